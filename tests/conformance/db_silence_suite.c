// SPDX-License-Identifier: MIT
// Drivers, and a server that neither answers nor ends the connection: it is
// stopped, or a network has forgotten the connection. Between the two stands a
// process that carries bytes; while it is stopped the system still accepts what
// is sent, and nothing comes back.

#include "db_world.h"

#include <arpa/inet.h>
#include <poll.h>

enum {
    TIMEOUT_MS = 2000,
    // A machine that does other things too; far below any time-out of TCP.
    PATIENCE_MS = 9000,
    AT_ONCE_MS = 1000,
    // What MySQL gives a handler at least; others give twice the timeout.
    LEAST_REST_MS = 10000,
};

struct line {
    pid_t carrier;
    struct skr_db *db;
};

static int
connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        _exit(1);
    return fd;
}

static void
carry(int listener, uint16_t port)
{
    static char piece[65536];
    int ends[] = {accept(listener, NULL, NULL), connect_to(port)};
    for (;;) {
        struct pollfd polled[] = {{.fd = ends[0], .events = POLLIN},
                                  {.fd = ends[1], .events = POLLIN}};
        poll(polled, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (polled[i].revents == 0)
                continue;
            ssize_t size = read(ends[i], piece, sizeof(piece));
            if (size <= 0)
                _exit(0);
            for (ssize_t at = 0; at < size;) {
                ssize_t written =
                    write(ends[1 - i], piece + at, (size_t)(size - at));
                if (written <= 0)
                    _exit(0);
                at += written;
            }
        }
    }
}

// The port of 127.0.0.1:PORT/ in a URL.
static char *
find_port(const char *url)
{
    char *at = strchr(strchr(url, '@'), ':');
    assert_non_null(at);
    return at + 1;
}

static void
make_url(const char *direct, uint16_t port, const char *more, char url[512])
{
    const char *start = find_port(direct);
    const char *rest = strchr(start, '/');
    snprintf(url, 512, "%.*s%u%s%c%s", (int)(start - direct), direct,
             (unsigned)port, rest, strchr(rest, '?') == NULL ? '?' : '&', more);
}

static struct line
open_line(const struct fixture *fixture)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&address, &size);
    const char *direct = fixture->database.url;
    struct line line = {.carrier = fork()};
    assert_true(line.carrier >= 0);
    if (line.carrier == 0)
        carry(listener, (uint16_t)atoi(find_port(direct)));
    close(listener);
    char url[512];
    struct skr_error error = {0};
    make_url(direct, ntohs(address.sin_port), "timeout=2", url);
    if (skr_db_open(fixture->database.ops, url, &line.db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return line;
}

static void
fall_silent(const struct line *line)
{
    int status = 0;
    assert_int_equal(kill(line->carrier, SIGSTOP), 0);
    assert_int_equal(waitpid(line->carrier, &status, WUNTRACED), line->carrier);
    assert_true(WIFSTOPPED(status));
}

static void
close_line(struct line *line)
{
    int64_t start_ms = skr_clock_ms();
    skr_db_close(line->db);
    assert_in_range(skr_clock_ms() - start_ms, 0, PATIENCE_MS);
    kill(line->carrier, SIGKILL);
    waitpid(line->carrier, NULL, 0);
}

static void
assert_given_up(enum skr_code code, const struct skr_error *error,
                int64_t start_ms)
{
    int64_t took_ms = skr_clock_ms() - start_ms;
    assert_int_equal(code, SKR_UNAVAILABLE);
    assert_int_equal(error->remedy, SKR_RECONNECT);
    assert_in_range(took_ms, TIMEOUT_MS - 100, PATIENCE_MS);
    // Where, and what to do.
    assert_non_null(strstr(error->text, "127.0.0.1"));
    assert_non_null(strstr(error->text, "no answer"));
    assert_non_null(strstr(error->text, "timeout in the DSN is 2 s"));
    assert_null(strstr(error->text, "p@ss"));
}

static void
assert_over(struct line *line)
{
    int64_t start_ms = skr_clock_ms();
    struct skr_error error = {0};
    assert_int_equal(run(line->db, "SELECT 1", &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_int_equal(skr_db_begin(line->db, SKR_BEGIN_WRITE, &error),
                     SKR_UNAVAILABLE);
    skr_db_rollback(line->db);
    skr_db_close(line->db);
    line->db = NULL;
    assert_in_range(skr_clock_ms() - start_ms, 0, AT_ONCE_MS);
}

// ------------------------------------------------------------------- the calls

static enum skr_code
call_text(struct skr_db *db, struct skr_error *error)
{
    return run(db, "DELETE FROM thing", error);
}

static enum skr_code
call_prepared(struct skr_db *db, struct skr_error *error)
{
    struct skr_value name = skr_bind_text("a");
    return run_with(db, "DELETE FROM thing WHERE name = ?", &name, 1, error);
}

// More than the sockets on the way take in.
static enum skr_code
call_with_much_to_send(struct skr_db *db, struct skr_error *error)
{
    enum { SIZE = 12 * 1024 * 1024 };
    char *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    struct skr_value data = skr_bind_blob(bytes, SIZE);
    enum skr_code code =
        run_with(db, "INSERT INTO thing (data) VALUES (?)", &data, 1, error);
    free(bytes);
    return code;
}

static enum skr_code
call_begin(struct skr_db *db, struct skr_error *error)
{
    return skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
}

static enum skr_code
call_lock(struct skr_db *db, struct skr_error *error)
{
    return skr_db_lock(db, "silence", SKR_LOCK_ALONE, -1, 0, error);
}

static void
test_no_call_waits_for_ever(void **state)
{
    struct fixture *fixture = *state;
    enum skr_code (*const calls[])(struct skr_db *, struct skr_error *) = {
        call_text, call_prepared, call_with_much_to_send, call_begin, call_lock,
    };
    for (size_t i = 0; i < SKR_COUNT_OF(calls); i++) {
        struct line line = open_line(fixture);
        struct skr_error error = {0};
        fall_silent(&line);
        int64_t start_ms = skr_clock_ms();
        enum skr_code code = calls[i](line.db, &error);
        assert_given_up(code, &error, start_ms);
        assert_over(&line);
        close_line(&(struct line){.carrier = line.carrier});
    }
}

static void
test_a_statement_that_was_run_before_does_not_wait_either(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    assert_int_equal(call_prepared(line.db, &error), SKR_OK);
    fall_silent(&line);
    int64_t start_ms = skr_clock_ms();
    assert_given_up(call_prepared(line.db, &error), &error, start_ms);
    assert_over(&line);
    close_line(&line);
}

static void
test_nobody_knows_whether_a_commit_without_an_answer_was_one(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(line.db, SKR_BEGIN_WRITE, &error), SKR_OK);
    assert_int_equal(
        run(line.db, "INSERT INTO thing (name) VALUES ('a')", &error), SKR_OK);
    fall_silent(&line);
    int64_t start_ms = skr_clock_ms();
    assert_given_up(skr_db_commit(line.db, &error), &error, start_ms);
    assert_over(&line);
    close_line(&line);
}

static void
test_the_lock_of_a_silent_server_is_not_believed_in(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    assert_int_equal(
        skr_db_lock(line.db, "silence", SKR_LOCK_ALONE, -1, 0, &error), SKR_OK);
    assert_true(line.db->holds_lock);
    fall_silent(&line);
    int64_t start_ms = skr_clock_ms();
    assert_given_up(skr_db_check_lock(line.db, &error), &error, start_ms);
    start_ms = skr_clock_ms();
    skr_db_unlock(line.db);
    assert_in_range(skr_clock_ms() - start_ms, 0, AT_ONCE_MS);
    assert_over(&line);
    close_line(&line);
}

static void
test_closing_waits_for_a_silent_server_no_longer_than_a_call(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    assert_int_equal(
        skr_db_lock(line.db, "silence", SKR_LOCK_ALONE, -1, 0, NULL), SKR_OK);
    assert_int_equal(skr_db_begin(line.db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    fall_silent(&line);
    close_line(&line);
}

static bool
can_write(void *user)
{
    struct fixture *fixture = user;
    return run(fixture->db, "INSERT INTO thing (name) VALUES ('a')", NULL) ==
           SKR_OK;
}

// The server cannot know that no client will commit it.
static void
expect_freed_soon(struct fixture *fixture, enum skr_begin mode)
{
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(line.db, mode, &error), SKR_OK);
    assert_int_equal(
        run(line.db, "INSERT INTO thing (name) VALUES ('a')", &error), SKR_OK);
    fall_silent(&line);
    assert_true(
        skr_test_eventually(can_write, fixture, LEAST_REST_MS + PATIENCE_MS));
    assert_int_equal(count_things(fixture->db), 1);
    close_line(&line);
}

static void
test_what_a_lost_transaction_has_locked_is_free_again_soon(void **state)
{
    expect_freed_soon(*state, SKR_BEGIN_WRITE);
}

static void
test_what_a_frozen_consumer_has_locked_is_free_again_soon(void **state)
{
    expect_freed_soon(*state, SKR_BEGIN_GUARDED);
}

struct pause {
    pid_t carrier;
    uint32_t pause_ms;
};

static void *
go_on_after_a_pause(void *user)
{
    const struct pause *pause = user;
    skr_clock_sleep(-1, pause->pause_ms);
    kill(pause->carrier, SIGCONT);
    return NULL;
}

static void
test_a_statement_that_takes_long_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    struct pause pause = {line.carrier, TIMEOUT_MS + 1000};
    pthread_t thread;
    fall_silent(&line);
    assert_int_equal(pthread_create(&thread, NULL, go_on_after_a_pause, &pause),
                     0);
    const struct skr_statement slow = {
        .sql = "CREATE INDEX slow_index ON thing (name)", .takes_long = true};
    int64_t start_ms = skr_clock_ms();
    if (skr_tx_run(skr_db_tx(line.db), &slow, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_true(skr_clock_ms() - start_ms > TIMEOUT_MS);
    pthread_join(thread, NULL);
    assert_int_equal(count_things(line.db), 0);
    close_line(&line);
}

static void
test_a_server_that_comes_back_in_time_is_not_left(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct skr_error error = {0};
    struct pause pause = {line.carrier, TIMEOUT_MS / 2};
    pthread_t thread;
    fall_silent(&line);
    assert_int_equal(pthread_create(&thread, NULL, go_on_after_a_pause, &pause),
                     0);
    if (call_prepared(line.db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    pthread_join(thread, NULL);
    close_line(&line);
}

static enum skr_code
fall_silent_at_the_first(const struct skr_value *columns, size_t count,
                         void *user, struct skr_error *error)
{
    (void)columns;
    (void)count;
    (void)error;
    struct line *line = user;
    if (line->carrier > 0)
        fall_silent(line);
    line->carrier = 0;
    return SKR_OK;
}

// Where rows are given as they arrive; where they come whole there is no
// "within".
static void
test_an_answer_that_ends_in_the_middle_is_not_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct line line = open_line(fixture);
    struct line silenced = line;
    struct skr_error error = {0};
    char *note = malloc(1024 * 1024 + 1);
    assert_non_null(note);
    memset(note, 'n', 1024 * 1024);
    note[1024 * 1024] = '\0';
    struct skr_value value = skr_bind_text(note);
    for (int i = 0; i < 24; i++)
        assert_int_equal(run_with(fixture->db,
                                  "INSERT INTO thing (note) VALUES (?)", &value,
                                  1, NULL),
                         SKR_OK);
    free(note);
    int64_t start_ms = skr_clock_ms();
    enum skr_code code =
        skr_tx_run(skr_db_tx(line.db),
                   &(struct skr_statement){.sql = "SELECT note FROM thing",
                                           .each_row = fall_silent_at_the_first,
                                           .user = &silenced},
                   &error);
    if (code != SKR_OK)
        assert_given_up(code, &error, start_ms);
    assert_in_range(skr_clock_ms() - start_ms, 0, PATIENCE_MS);
    close_line(&line);
}

// ----------------------------------------------------------------------
// opening

static void
test_a_server_that_says_nothing_at_all_is_not_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&address, &size);
    char url[512];
    struct skr_error error = {0};
    struct skr_db *db = NULL;
    make_url(fixture->database.url, ntohs(address.sin_port),
             "connect_timeout=1", url);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(skr_db_open(fixture->database.ops, url, &db, &error),
                     SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_in_range(skr_clock_ms() - start_ms, 0, PATIENCE_MS);
    close(listener);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_no_call_waits_for_ever),
        TEST(test_a_statement_that_was_run_before_does_not_wait_either),
        TEST(test_nobody_knows_whether_a_commit_without_an_answer_was_one),
        TEST(test_the_lock_of_a_silent_server_is_not_believed_in),
        TEST(test_closing_waits_for_a_silent_server_no_longer_than_a_call),
        TEST(test_what_a_lost_transaction_has_locked_is_free_again_soon),
        TEST(test_what_a_frozen_consumer_has_locked_is_free_again_soon),
        TEST(test_a_statement_that_takes_long_is_waited_for),
        TEST(test_a_server_that_comes_back_in_time_is_not_left),
        TEST(test_an_answer_that_ends_in_the_middle_is_not_waited_for),
        TEST(test_a_server_that_says_nothing_at_all_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
