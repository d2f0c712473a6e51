// SPDX-License-Identifier: MIT
// Drivers: the lock, and waiting for work.

#include "db_world.h"

// ------------------------------------------------------------------------ lock

static bool
try_as(struct skr_db *db, enum skr_lock_mode mode, const char *name,
       uint32_t timeout_ms)
{
    struct skr_error error = {0};
    if (skr_db_lock(db, name, mode, -1, timeout_ms, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return db->holds_lock;
}

static bool
try_together(struct skr_db *db, const char *name, uint32_t timeout_ms)
{
    return try_as(db, SKR_LOCK_TOGETHER, name, timeout_ms);
}

static bool
try_lock(struct skr_db *db, const char *name, uint32_t timeout_ms)
{
    return try_as(db, SKR_LOCK_ALONE, name, timeout_ms);
}

static void
test_a_lock_has_one_holder(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_UNAVAILABLE);
    assert_true(try_lock(fixture->db, "relay-1", 0));
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_OK);
    int64_t start_ms = skr_clock_ms();
    assert_false(try_lock(other, "relay-1", 60));
    assert_true(skr_clock_ms() - start_ms >= 60);
    assert_int_equal(skr_db_check_lock(other, NULL), SKR_UNAVAILABLE);
    // Another name is another lock.
    assert_true(try_lock(other, "relay-2", 0));
    skr_db_unlock(other);
    skr_db_unlock(fixture->db);
    skr_db_unlock(fixture->db);
    assert_true(try_lock(other, "relay-1", 0));
    // Closing gives it back, once the server has noticed.
    skr_db_close(other);
    assert_true(try_lock(fixture->db, "relay-1", 30000));
}

static void
test_waiting_for_a_lock_ends_when_woken(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_true(try_lock(fixture->db, "relay", 0));
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(
        skr_db_lock(other, "relay", SKR_LOCK_ALONE, pipe_fds[0], 30000, NULL),
        SKR_OK);
    assert_false(other->holds_lock);
    assert_true(skr_clock_ms() - start_ms < 10000);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    skr_db_close(other);
}

// A child that holds the lock until it is killed; returns once it has it.
static pid_t
hold_lock_in_child(const struct fixture *fixture)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t child = fork();
    if (child == 0) {
        struct skr_db *db = skr_test_connect(&fixture->database);
        if (try_lock(db, "relay", 0) && write(pipe_fds[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    char byte;
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return child;
}

static void *
kill_soon(void *user)
{
    skr_clock_sleep(-1, 100);
    kill(*(pid_t *)user, SIGKILL);
    return NULL;
}

static void
test_the_lock_of_a_killed_process_is_free_at_once(void **state)
{
    struct fixture *fixture = *state;
    pid_t child = hold_lock_in_child(fixture);
    assert_false(try_lock(fixture->db, "relay", 0));
    pthread_t killer;
    assert_int_equal(pthread_create(&killer, NULL, kill_soon, &child), 0);
    int64_t start_ms = skr_clock_ms();
    assert_true(try_lock(fixture->db, "relay", 30000));
    assert_true(skr_clock_ms() - start_ms < 5000);
    pthread_join(killer, NULL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_OK);
}

static void
test_a_database_has_one_lock_whatever_it_is_called(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *alias = NULL;
    assert_int_equal(skr_db_open(fixture->database.ops,
                                 fixture->database.alias_url, &alias, NULL),
                     SKR_OK);
    assert_int_equal(count_things(alias), 0);
    assert_true(try_lock(fixture->db, "relay", 0));
    assert_false(try_lock(alias, "relay", 0));
    skr_db_close(alias);
}

static void
test_a_lock_that_was_taken_away_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    struct skr_error error = {0};
    assert_true(try_lock(fixture->db, "relay", 0));
    skr_test_break_lock(&fixture->database, "relay");
    assert_int_equal(skr_db_check_lock(fixture->db, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_true(try_lock(other, "relay", 0));
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_UNAVAILABLE);
    assert_int_equal(skr_db_check_lock(other, NULL), SKR_OK);
    // The one who lost it does not take the other's along.
    skr_db_unlock(fixture->db);
    assert_int_equal(skr_db_check_lock(other, NULL), SKR_OK);
    // Nor does it get it back, if its connection is of any use at all.
    if (skr_db_lock(fixture->db, "relay", SKR_LOCK_ALONE, -1, 0, &error) !=
        SKR_OK)
        assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_false(fixture->db->holds_lock);
    skr_db_close(other);
}

// Where the lock is a file beside that of the database.
static void
test_the_lock_is_for_those_whom_the_database_is_for(void **state)
{
    static const struct {
        mode_t umask, mode;
        const char *name;
    } cases[] = {{0, 0600, "secret"}, {077, 0664, "open"}, {027, 0640, "a"}};
    struct fixture *fixture = *state;
    char path[200];
    struct stat database, lock;
    // A server's locks are no files.
    if (strcmp(fixture->database.ops->scheme, "sqlite") != 0)
        return;
    snprintf(path, sizeof(path), "%s/test.db", fixture->database.folder);
    if (geteuid() == 0)
        assert_int_equal(chown(path, 4321, 1234), 0);
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        snprintf(path, sizeof(path), "%s/test.db", fixture->database.folder);
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(stat(path, &database), 0);
        mode_t before = umask(cases[i].umask);
        assert_true(try_lock(fixture->db, cases[i].name, 0));
        umask(before);
        snprintf(path, sizeof(path), "%s/test.db-%s.lock",
                 fixture->database.folder, cases[i].name);
        assert_int_equal(stat(path, &lock), 0);
        assert_int_equal(lock.st_mode, database.st_mode);
        assert_int_equal(lock.st_uid, database.st_uid);
        assert_int_equal(lock.st_gid, database.st_gid);
        skr_db_unlock(fixture->db);
    }
}

static void
test_many_hold_a_lock_together_and_none_alone_beside_them(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *others[8];
    struct skr_db *lone = skr_test_connect(&fixture->database);
    assert_true(try_together(fixture->db, "relay", 0));
    for (size_t i = 0; i < SKR_COUNT_OF(others); i++) {
        others[i] = skr_test_connect(&fixture->database);
        assert_true(try_together(others[i], "relay", 0));
    }
    for (size_t i = 0; i < SKR_COUNT_OF(others); i++) {
        assert_int_equal(skr_db_check_lock(others[i], NULL), SKR_OK);
        assert_false(try_lock(lone, "relay", 0));
        skr_db_close(others[i]);
    }
    // Another name is another lock.
    assert_true(try_lock(lone, "relay-2", 0));
    skr_db_unlock(lone);
    // The last one is still there.
    assert_false(try_lock(lone, "relay", 60));
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_OK);
    skr_db_unlock(fixture->db);
    assert_true(try_lock(lone, "relay", 1000));
    skr_db_close(lone);
}

static void
share_apart(struct fixture *fixture, enum skr_lock_mode way,
            enum skr_lock_mode other_way)
{
    struct skr_db *friend = skr_test_connect(&fixture->database);
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_true(try_as(fixture->db, way, "relay", 1000));
    assert_true(try_as(friend, way, "relay", 1000));
    assert_int_equal(skr_db_check_lock(friend, NULL), SKR_OK);
    assert_false(try_lock(other, "relay", 0));
    assert_false(try_as(other, other_way, "relay", 0));
    skr_db_unlock(fixture->db);
    assert_false(try_as(other, other_way, "relay", 0));
    skr_db_unlock(friend);
    assert_true(try_as(other, other_way, "relay", 1000));
    skr_db_close(friend);
    skr_db_close(other);
}

static void
test_ways_to_share_a_lock_do_not_mix(void **state)
{
    const enum skr_lock_mode ways[] = {SKR_LOCK_TOGETHER, SKR_LOCK_IN_SHARES};
    for (size_t i = 0; i < SKR_COUNT_OF(ways); i++)
        for (size_t j = 0; j < SKR_COUNT_OF(ways); j++)
            if (i != j)
                share_apart(*state, ways[i], ways[j]);
}

// A person who asks who works a queue is told, in whatever way it is held.
static void
test_a_holder_is_found_in_every_way_to_share(void **state)
{
    struct fixture *fixture = *state;
    const enum skr_lock_mode ways[] = {SKR_LOCK_TOGETHER, SKR_LOCK_IN_SHARES};
    for (size_t i = 0; i < SKR_COUNT_OF(ways); i++) {
        char holder[SKR_HOLDER_SIZE] = "";
        assert_true(try_as(fixture->db, ways[i], "relay", 1000));
        assert_int_equal(
            fixture->db->ops->locks->holder(fixture->db, "relay", holder, NULL),
            SKR_OK);
        assert_string_not_equal(holder, "");
        skr_db_unlock(fixture->db);
    }
}

static int64_t
count_attending(struct skr_db *db, const char *name)
{
    struct skr_error error = {0};
    int64_t count = 0;
    if (db->ops->locks->attendance(db, name, &count, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return count;
}

static void
attend(struct skr_db *db, const char *name)
{
    struct skr_error error = {0};
    if (db->ops->locks->attend(db, name, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// A server may need a moment to notice that a connection is closed.
static void
wait_for_attending(struct skr_db *db, const char *name, int64_t wanted)
{
    int64_t end_ms = skr_clock_ms() + 30000;
    while (count_attending(db, name) != wanted && skr_clock_ms() < end_ms)
        skr_clock_sleep(-1, 10);
    assert_int_equal(count_attending(db, name), wanted);
}

static void
test_those_who_are_there_are_counted(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *first = skr_test_connect(&fixture->database);
    struct skr_db *second = skr_test_connect(&fixture->database);
    assert_int_equal(count_attending(fixture->db, "workers-1"), 0);
    attend(first, "workers-1");
    attend(first, "workers-1");
    assert_int_equal(count_attending(fixture->db, "workers-1"), 1);
    attend(second, "workers-1");
    assert_int_equal(count_attending(fixture->db, "workers-1"), 2);
    // It keeps no connection out, and another name is another count.
    assert_int_equal(count_attending(fixture->db, "workers-2"), 0);
    assert_true(try_lock(first, "relay-1", 0));
    assert_int_equal(count_attending(fixture->db, "workers-1"), 2);
    skr_db_close(first);
    wait_for_attending(fixture->db, "workers-1", 1);
    skr_db_close(second);
    wait_for_attending(fixture->db, "workers-1", 0);
    // The last one takes nothing along that the next one needs.
    attend(fixture->db, "workers-1");
    assert_int_equal(count_attending(fixture->db, "workers-1"), 1);
}

static void
test_one_who_is_alone_keeps_out_those_who_would_share(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_true(try_lock(fixture->db, "relay", 0));
    assert_false(try_together(other, "relay", 0));
    assert_int_equal(skr_db_check_lock(other, NULL), SKR_UNAVAILABLE);
    assert_int_equal(skr_db_check_lock(fixture->db, NULL), SKR_OK);
    skr_db_unlock(fixture->db);
    assert_true(try_together(other, "relay", 1000));
    // What was alone before joins.
    assert_true(try_together(fixture->db, "relay", 1000));
    skr_db_close(other);
}

static int
change_modes(const struct skr_test_database *database, int number)
{
    struct skr_db *db = skr_test_connect(database);
    for (int i = 0; i < 15; i++) {
        bool is_alone = (i + number) % 3 == 0;
        while (is_alone ? !try_lock(db, "relay", 2000)
                        : !try_together(db, "relay", 2000))
            ;
        // Who is alone adds what would make the others fail.
        if (is_alone)
            skr_test_run(db, "INSERT INTO thing (name) VALUES ('alone')");
        if (skr_test_number(db, "SELECT COUNT(*) FROM thing") !=
            (is_alone ? 1 : 0))
            return 1;
        if (skr_db_check_lock(db, NULL) != SKR_OK)
            return 2;
        if (is_alone)
            skr_test_run(db, "DELETE FROM thing");
        skr_db_unlock(db);
    }
    skr_db_close(db);
    return 0;
}

static void
test_modes_never_meet(void **state)
{
    struct fixture *fixture = *state;
    pid_t children[4];
    skr_db_close(fixture->db);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(change_modes(&fixture->database, i));
    }
    for (int i = 0; i < 4; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    fixture->db = skr_test_connect(&fixture->database);
}

// --------------------------------------------------------------------- waiting

// One who is only sent to look is soon sent less often than that.
static void
assert_quiet(const struct fixture *fixture, uint32_t timeout_ms)
{
    int looks = 0, most = fixture->database.wait_sees_commits ? 0 : 20;
    while (fixture->db->ops->wait(fixture->db, -1, timeout_ms, NULL) == SKR_OK)
        assert_true(++looks < most);
}

static void
test_waiting_notices_commits_of_others(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    struct skr_db *other = skr_test_connect(&fixture->database);
    // Nothing has been looked at yet: there may be rows.
    assert_int_equal(db->ops->wait(db, -1, 10000, NULL), SKR_OK);
    assert_quiet(fixture, 15);
    assert_quiet(fixture, 0);
    skr_test_run(other, "INSERT INTO thing (id) VALUES (1)");
    assert_int_equal(db->ops->wait(db, -1, 10000, NULL), SKR_OK);
    assert_quiet(fixture, 0);
    // Reading in between takes nothing away from it.
    skr_test_run(other, "INSERT INTO thing (id) VALUES (2)");
    assert_int_equal(count_things(db), 2);
    assert_int_equal(db->ops->wait(db, -1, 10000, NULL), SKR_OK);
    skr_db_close(other);
}

static void *
insert_soon(void *user)
{
    struct skr_db *db = skr_test_connect(user);
    skr_clock_sleep(-1, 150);
    skr_test_run(db, "INSERT INTO thing (id) VALUES (1)");
    skr_db_close(db);
    return NULL;
}

static void
test_a_commit_ends_the_wait(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    assert_int_equal(db->ops->wait(db, -1, 0, NULL), SKR_OK);
    pthread_t writer;
    assert_int_equal(
        pthread_create(&writer, NULL, insert_soon, &fixture->database), 0);
    int64_t start_ms = skr_clock_ms();
    // Opening and closing a connection may count as a change as well.
    while (count_things(db) == 0)
        assert_int_equal(db->ops->wait(db, -1, 30000, NULL), SKR_OK);
    assert_true(skr_clock_ms() - start_ms < 10000);
    pthread_join(writer, NULL);
}

static void
test_waiting_ends_when_woken(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(db->ops->wait(db, pipe_fds[0], 0, NULL), SKR_OK);
    // One who is only sent to look is soon sent less often than every 10 ms.
    int looks = 0;
    while (db->ops->wait(db, pipe_fds[0], 10, NULL) == SKR_OK)
        assert_true(++looks < 20);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(db->ops->wait(db, pipe_fds[0], 30000, NULL), SKR_STOPPED);
    assert_true(skr_clock_ms() - start_ms < 10000);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void
test_a_waiting_connection_holds_up_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    struct skr_db *impatient = skr_test_connect_impatient(&fixture->database);
    assert_int_equal(db->ops->wait(db, -1, 0, NULL), SKR_OK);
    skr_test_run(impatient, "INSERT INTO thing (id) VALUES (1)");
    skr_test_run(impatient, "DROP TABLE thing");
    skr_db_close(impatient);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_lock_has_one_holder),
        TEST(test_waiting_for_a_lock_ends_when_woken),
        TEST(test_the_lock_of_a_killed_process_is_free_at_once),
        TEST(test_a_database_has_one_lock_whatever_it_is_called),
        TEST(test_a_lock_that_was_taken_away_is_noticed),
        TEST(test_the_lock_is_for_those_whom_the_database_is_for),
        TEST(test_many_hold_a_lock_together_and_none_alone_beside_them),
        TEST(test_ways_to_share_a_lock_do_not_mix),
        TEST(test_a_holder_is_found_in_every_way_to_share),
        TEST(test_those_who_are_there_are_counted),
        TEST(test_one_who_is_alone_keeps_out_those_who_would_share),
        TEST(test_modes_never_meet),
        TEST(test_waiting_notices_commits_of_others),
        TEST(test_a_commit_ends_the_wait),
        TEST(test_waiting_ends_when_woken),
        TEST(test_a_waiting_connection_holds_up_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
