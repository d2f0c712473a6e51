// SPDX-License-Identifier: MIT
// Handlers that are processes: whatever one of them does, its message is
// handled, retried or kept, and others are handled.
#include "consumer_world.h"
#include "store/deduplication/deduplication.h"
#include "support/memory_ceiling.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

// A worker in the shell. What is special about a message stands between.
#define READY "echo '{\"ready\":true}'; "
#define ANSWER                                                               \
    "answer() { echo \"{\\\"delivery\\\":$n,\\\"verdict\\\":\\\"$1\\\"}\"; " \
    "}; "
#define EACH "while read -r line; do n=${line#*:}; n=${n%%,*}; "
#define ON_CHOSEN "case \"$line\" in *'\"body\":\"3\"'*) "
#define WORKER(special) \
    ANSWER READY EACH ON_CHOSEN special ";; esac; answer accept; done"

// One that records messages by itself. The shell knows no database, so it says
// on its standard error which message to record, and that is heard before its
// answer is.
#define DEDUPLICATES "echo '{\"ready\":true,\"deduplicates\":true}'; "
#define RECORDER(how, special) RECORDER_SAYING(DEDUPLICATES, how, special)
#define RECORDER_SAYING(says, how, special)                        \
    ANSWER says EACH "b=${line##*:\\\"}; b=${b%%\\\"*}; "          \
                     "echo \"" how " $b\" >&2; " ON_CHOSEN special \
                     ";; esac; answer accept; done"

enum { COUNT = 8, CHOSEN = 3, COMMIT_LATE_MS = 300 };

static atomic_int stderr_lines, dropped_bytes, endings, no_records,
    unsaid_records;
static pthread_t committer;
static bool has_committer;

// In a transaction of its own. False: it is recorded already.
static bool
begin_record(struct world *world, unsigned number)
{
    struct skr_error error = {0};
    struct skr_deduplication *table = NULL;
    struct skr_id id = {{0}};
    char text[SKR_ID_TEXT_SIZE];
    snprintf(text, sizeof(text), "01890a5d-ac96-774b-bcce-%012u", number);
    assert_int_equal(skr_id_parse(text, &id, &error), SKR_OK);
    assert_int_equal(
        skr_deduplication_new(skr_db_dialect(world->db), NULL, &table, &error),
        SKR_OK);
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_WRITE, &error), SKR_OK);
    enum skr_code code = skr_deduplication_admit(table, skr_db_tx(world->db),
                                                 id, "order.placed", &error);
    skr_deduplication_free(table);
    if (code == SKR_DUPLICATE)
        skr_db_rollback(world->db);
    else
        assert_int_equal(code, SKR_OK);
    return code == SKR_OK;
}

static void *
commit_late(void *user)
{
    struct world *world = user;
    struct skr_error error = {0};
    skr_clock_sleep(-1, COMMIT_LATE_MS);
    return (void *)(intptr_t)skr_db_commit(world->db, &error);
}

// What a worker says that it does with its record. One that dies after it has
// answered others is asked once more.
static void
record(struct world *world, const char *text)
{
    struct skr_error error = {0};
    unsigned number = 0;
    if (sscanf(text, "commit %u", &number) == 1 && begin_record(world, number))
        assert_int_equal(skr_db_commit(world->db, &error), SKR_OK);
    if (sscanf(text, "hold %u", &number) == 1 && number == CHOSEN &&
        !has_committer)
        has_committer = begin_record(world, number);
    if (sscanf(text, "late %u", &number) == 1 && number == CHOSEN &&
        !has_committer) {
        has_committer = begin_record(world, number);
        assert_int_equal(pthread_create(&committer, NULL, commit_late, world),
                         0);
    }
}

static void
count_events(void *user, enum skr_log_level level, const char *event,
             const struct skr_log_field *fields, size_t count)
{
    count_lines(user, level, event, fields, count);
    if (strcmp(event, "child.stderr") == 0)
        atomic_fetch_add(&stderr_lines, 1);
    if (strcmp(event, "child.ended") == 0)
        atomic_fetch_add(&endings, 1);
    if (strcmp(event, "consumer.no_record") == 0)
        atomic_fetch_add(&no_records, 1);
    if (strcmp(event, "consumer.unsaid_record") == 0)
        atomic_fetch_add(&unsaid_records, 1);
    for (size_t i = 0; i < count; i++)
        if (strcmp(event, "child.stderr") == 0 &&
            strcmp(fields[i].name, "text") == 0)
            record(user, fields[i].text);
    for (size_t i = 0; i < count; i++)
        if (strcmp(event, "child.stderr_dropped") == 0 &&
            strcmp(fields[i].name, "bytes") == 0)
            atomic_fetch_add(&dropped_bytes, (int)fields[i].number);
}

static struct skr_consumer *
open_child(struct world *world, const char *script, uint32_t timeout_ms)
{
    const char *const words[] = {"sh", "-c", script};
    const char *const withheld[] = {"SKR_TEST_WITHHELD", NULL};
    struct skr_error error = {0};
    atomic_store(&stderr_lines, 0);
    atomic_store(&dropped_bytes, 0);
    atomic_store(&endings, 0);
    atomic_store(&no_records, 0);
    atomic_store(&unsaid_records, 0);
    world->options.log = count_events;
    struct skr_consumer *consumer = open_consumer(world, NULL);
    const struct skr_handler_command command = {.words = words,
                                                .word_count = 3,
                                                .withheld = withheld,
                                                .timeout_ms = timeout_ms};
    if (skr_consumer_handle_command(consumer, "order.placed", &command,
                                    &error) != SKR_OK)
        fail_msg("%s", error.text);
    return consumer;
}

static struct skr_consumer_counts
run_child(struct world *world, const char *script, uint32_t timeout_ms)
{
    struct skr_consumer *consumer = open_child(world, script, timeout_ms);
    run_until_empty(consumer);
    struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
    return counts;
}

static int64_t
recorded(struct world *world)
{
    return skr_test_number(world->db,
                           "SELECT COUNT(*) FROM message_broker_deduplication");
}

// The one that is special failed in this way, and all others are handled.
static void
expect_failure(struct world *world, struct skr_consumer_counts counts,
               const char *says)
{
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_int_equal(counts.handled, COUNT - 1);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(recorded(world), COUNT - 1);
    assert_int_equal(waiting(world), 0);
    assert_non_null(headers);
    if (strstr(headers, says) == NULL)
        fail_msg("%s is not in %s", says, headers);
    free(headers);
}

static void
test_a_child_is_asked_once_for_each_message(void **state)
{
    struct world *world = *state;
    char script[400], path[96], command[128], answer[32] = "";
    snprintf(path, sizeof(path), "%s/seen", world->database.folder);
    snprintf(script, sizeof(script),
             ANSWER READY EACH "echo $n >> %s; answer accept; done", path);
    publish(world, 0, 50);
    publish(world, 0, 50);
    struct skr_consumer_counts counts = run_child(world, script, 10000);
    assert_int_equal(counts.handled, 50);
    assert_int_equal(counts.duplicates, 50);
    assert_int_equal(recorded(world), 50);
    snprintf(command, sizeof(command), "sort -u %s | wc -l", path);
    FILE *lines = popen(command, "r");
    assert_non_null(fgets(answer, sizeof(answer), lines));
    pclose(lines);
    unlink(path);
    assert_int_equal(strtol(answer, NULL, 10), 50);
}

static void
test_a_child_that_fails_costs_its_own_message_alone(void **state)
{
    static const struct {
        const char *script;
        uint32_t timeout_ms;
        const char *says;
    } cases[] = {
        {WORKER("exit 3"), 10000, "ended without an answer: exit code 3"},
        {WORKER("kill -9 $$"), 10000, "ended without an answer: signal 9"},
        {WORKER("while :; do sleep 1; done"), 2000, "gave no answer within"},
        {WORKER("echo garbage; continue"), 10000, "an answer that is none"},
        {WORKER("echo '{}'; continue"), 10000, "an answer that is none"},
        {WORKER("answer maybe; continue"), 10000, "maybe"},
        {WORKER("while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"),
         10000, "without the end of a line"},
        {WORKER("exec <&- >&-; sleep 100"), 10000, "ended without an answer"},
        {WORKER("answer reject; continue"), 10000, "said reject"},
        {WORKER("echo \"{\\\"delivery\\\":$n,\\\"verdict\\\":\\\"retry\\\","
                "\\\"error\\\":\\\"no paper\\\"}\"; continue"),
         10000, "no paper"},
    };
    struct world *world = *state;
    world->options.max_retries = -1;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        publish(world, 0, COUNT);
        expect_failure(world,
                       run_child(world, cases[i].script, cases[i].timeout_ms),
                       cases[i].says);
        skr_test_run(world->db, "DELETE FROM messenger_messages");
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
}

static void
test_a_failed_try_is_repeated_later(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world, WORKER("exit 3"), 10000);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(waiting(world), 1);
    make_retries_due(world);
    counts = run_child(world, WORKER(":"), 10000);
    assert_int_equal(counts.handled, 1);
    assert_int_equal(recorded(world), COUNT);
}

static void
test_a_second_answer_is_not_taken_for_the_next_message(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, COUNT);
    // It would accept the next one, which it has to reject. Both are written at
    // once, so that the second is there before the next message is.
    struct skr_consumer_counts counts = run_child(
        world,
        ANSWER READY EACH ON_CHOSEN "answer reject; continue;; esac; "
                                    "a=$(answer accept); "
                                    "printf '%s\\n%s\\n' \"$a\" \"$a\"; done",
        10000);
    expect_failure(world, counts, "said reject");
    assert_int_not_equal(atomic_load(&endings), 0);
}

static void
test_a_late_second_answer_is_not_taken_for_the_next_message(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, COUNT);
    // The answer that is too many comes when the next message is there.
    struct skr_consumer_counts counts =
        run_child(world,
                  ANSWER READY
                  "m=; while read -r line; do "
                  "[ -n \"$m\" ] && { n=$m; answer accept; sleep 100; }; "
                  "n=${line#*:}; n=${n%%,*}; " ON_CHOSEN
                  "answer reject; continue;; esac; answer accept; m=$n; done",
                  10000);
    expect_failure(world, counts, "said reject");
}

static void
test_a_child_that_closes_its_input_is_replaced(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts = run_child(
        world,
        ANSWER READY "read -r line; n=${line#*:}; n=${n%%,*}; exec <&-; "
                     "answer accept; sleep 100",
        10000);
    assert_int_equal(counts.handled, COUNT);
    assert_int_equal(counts.failed, 0);
}

static void
test_a_child_that_has_had_enough_is_replaced_at_once(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, COUNT);
    // Whether or not the next message is on its way to it by then.
    struct skr_consumer_counts counts = run_child(
        world, ANSWER READY EACH "answer accept; exit 0; done", 10000);
    assert_int_equal(counts.handled, COUNT);
    assert_int_equal(counts.failed, 0);
}

static void
test_what_a_child_says_goes_to_the_log_in_bounds(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world,
                  WORKER("i=0; while [ $i -lt 5000 ]; do i=$((i+1)); "
                         "echo 'more than anybody wants to know' >&2; done"),
                  20000);
    assert_int_equal(counts.handled, COUNT);
    assert_true(atomic_load(&stderr_lines) > 0);
    assert_true(atomic_load(&stderr_lines) <= 40);
    assert_true(atomic_load(&dropped_bytes) > 10000);
}

static void
test_a_child_that_closes_its_errors_is_no_burden(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world, "exec 2>&-; " WORKER("sleep 0.2"), 10000);
    assert_int_equal(counts.handled, COUNT);
}

static void
test_no_message_is_spent_on_a_child_that_does_not_start(void **state)
{
    static const char *const scripts[] = {"exit 1", "echo hello; sleep 100",
                                          "echo '{\"ready\":false}'"};
    struct world *world = *state;
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    publish(world, 0, COUNT);
    for (size_t i = 0; i < SKR_COUNT_OF(scripts); i++) {
        struct running running;
        atomic_store(&world->troubles, 0);
        start_consumer(&running, open_child(world, scripts[i], 5000));
        assert_true(skr_test_eventually(has_trouble, world, 30000));
        stop_running(&running);
        assert_int_equal(waiting(world), COUNT);
        assert_int_equal(failed_rows(world), 0);
    }
    world->extras.stop_when_empty = true;
    // Their rows wait as long as the handler does.
    make_retries_due(world);
    struct skr_consumer_counts counts = run_child(world, WORKER(":"), 10000);
    assert_int_equal(counts.handled, COUNT);
}

static bool
is_gone(void *user)
{
    pid_t *pid = user;
    return kill(*pid, 0) != 0 && errno == ESRCH;
}

static void
test_what_a_child_started_ends_with_it(void **state)
{
    struct world *world = *state;
    char script[600], path[96];
    world->options.max_retries = -1;
    snprintf(path, sizeof(path), "%s/pid", world->database.folder);
    snprintf(script, sizeof(script),
             ANSWER READY EACH "sleep 1000 & echo $! > %s; wait; done", path);
    publish(world, 0, 1);
    struct skr_consumer_counts counts = run_child(world, script, 2000);
    assert_int_equal(counts.failed, 1);
    FILE *file = fopen(path, "r");
    long number = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &number), 1);
    fclose(file);
    unlink(path);
    pid_t pid = (pid_t)number;
    assert_true(skr_test_eventually(is_gone, &pid, 10000));
}

static bool
has_begun(void *user)
{
    (void)user;
    return atomic_load(&stderr_lines) > 0;
}

// It would have a minute.
static void
test_a_stop_does_not_wait_for_a_child_that_hangs(void **state)
{
    struct world *world = *state;
    struct running running;
    publish(world, 0, 2);
    world->extras.stop_when_empty = false;
    start_consumer(
        &running,
        open_child(world, READY EACH "echo begun >&2; sleep 60; done", 60000));
    assert_true(skr_test_eventually(has_begun, world, 20000));
    int64_t start_ms = skr_clock_ms();
    stop_running(&running);
    assert_in_range(skr_clock_ms() - start_ms, 4000, 8000);
    assert_int_equal(waiting(world), 2);
    assert_int_equal(recorded(world), 0);
    assert_int_equal(failed_rows(world), 0);
}

static void
test_a_program_that_is_not_there_is_refused_at_once(void **state)
{
    static const char *const programs[] = {"no-such-program-anywhere",
                                           "./no-such-program", "/tmp"};
    struct world *world = *state;
    const char *const withheld[] = {NULL};
    struct skr_consumer *consumer = open_consumer(world, NULL);
    for (size_t i = 0; i < SKR_COUNT_OF(programs); i++) {
        struct skr_error error = {0};
        const struct skr_handler_command command = {.words = &programs[i],
                                                    .word_count = 1,
                                                    .withheld = withheld,
                                                    .timeout_ms = 1000};
        assert_int_equal(skr_consumer_handle_command(consumer, "order.placed",
                                                     &command, &error),
                         SKR_INVALID);
        assert_non_null(strstr(error.text, programs[i]));
    }
    skr_consumer_close(consumer);
}

// Of each message there is one record, and each counts as handled.
static void
expect_handled(struct world *world, struct skr_consumer_counts counts)
{
    assert_int_equal(counts.handled, COUNT);
    assert_int_equal(counts.duplicates, 0);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(counts.retried, 0);
    assert_int_equal(recorded(world), COUNT);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(failed_rows(world), 0);
}

static void
test_what_a_child_recorded_is_handled(void **state)
{
    // What it recorded is done, whatever became of it afterwards, or whatever
    // it says.
    static const char *const scripts[] = {
        RECORDER("commit", ":"),
        RECORDER("commit", "exit 3"),
        RECORDER("commit", "kill -9 $$"),
        RECORDER("commit", "echo garbage; continue"),
        RECORDER("commit", "answer retry; continue"),
        RECORDER("commit", "answer reject; continue"),
    };
    struct world *world = *state;
    world->options.max_retries = -1;
    for (size_t i = 0; i < SKR_COUNT_OF(scripts); i++) {
        publish(world, 0, COUNT);
        expect_handled(world, run_child(world, scripts[i], 10000));
        assert_int_equal(atomic_load(&no_records), 0);
        publish(world, 0, COUNT);
        struct skr_consumer_counts again = run_child(world, scripts[i], 10000);
        assert_int_equal(again.duplicates, COUNT);
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
}

static void
test_a_commit_under_way_is_waited_for(void **state)
{
    struct world *world = *state;
    void *code = NULL;
    world->options.max_retries = -1;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world, RECORDER("late", "exit 3"), 10000);
    assert_int_equal(pthread_join(committer, &code), 0);
    has_committer = false;
    assert_int_equal((intptr_t)code, SKR_OK);
    expect_handled(world, counts);
}

static bool commits_late;

// The record was looked for, and the dead letter is not stored yet.
static void
record_at_last(const struct skr_delivery *delivery, enum skr_verdict verdict,
               const struct skr_error *reason, void *user)
{
    struct world *world = user;
    struct skr_error error = {0};
    (void)reason;
    assert_int_equal(verdict, SKR_REJECT);
    assert_true(begin_record(world, (unsigned)number_of(delivery)));
    has_committer = commits_late;
    if (commits_late)
        assert_int_equal(pthread_create(&committer, NULL, commit_late, world),
                         0);
    else
        assert_int_equal(skr_db_commit(world->db, &error), SKR_OK);
}

static void
expect_no_dead_letters(struct world *world)
{
    for (int late = 0; late < 2; late++) {
        struct skr_error error = {0};
        void *code = NULL;
        commits_late = late == 1;
        publish(world, 0, COUNT);
        struct skr_consumer *consumer =
            open_child(world, RECORDER("forget", "exit 3"), 10000);
        assert_int_equal(
            skr_consumer_add_hook(
                consumer,
                &(struct skr_hook){.on_error = record_at_last, .user = world},
                &error),
            SKR_OK);
        run_until_empty(consumer);
        struct skr_consumer_counts counts = skr_consumer_counts(consumer);
        skr_consumer_close(consumer);
        if (has_committer)
            assert_int_equal(pthread_join(committer, &code), 0);
        has_committer = false;
        assert_int_equal((intptr_t)code, SKR_OK);
        expect_handled(world, counts);
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
}

static void
test_what_is_recorded_is_no_dead_letter(void **state)
{
    struct world *world = *state;
    struct skr_test_database elsewhere;
    world->options.max_retries = -1;
    expect_no_dead_letters(world);
    skr_test_database_make(&elsewhere);
    world->options.failed_database = elsewhere.ops;
    world->options.failed_database_url = elsewhere.url;
    expect_no_dead_letters(world);
    struct skr_db *db = skr_test_connect(&elsewhere);
    assert_int_equal(
        skr_test_number(db, "SELECT COUNT(*) FROM messenger_messages"), 0);
    skr_db_close(db);
    skr_test_database_remove(&elsewhere);
}

// Two connections to one file would wait for each other's locks.
static void
test_a_failed_table_in_the_same_database_by_another_name_is_written(
    void **state)
{
    struct world *world = *state;
    struct running running;
    world->options.failed_database = world->database.ops;
    world->options.failed_database_url = world->database.alias_url;
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    publish(world, 0, COUNT);
    start_consumer(&running,
                   open_child(world, RECORDER("forget", "exit 3"), 10000));
    assert_true(skr_test_eventually(has_no_messages, world, 4000));
    struct skr_consumer_counts counts = skr_consumer_counts(running.consumer);
    stop_running(&running);
    assert_int_equal(atomic_load(&world->troubles), 0);
    expect_failure(world, counts, "exit code 3");
}

// The hook comes after the look for a record.
static void
lose_records(const struct skr_delivery *delivery, enum skr_verdict verdict,
             const struct skr_error *reason, void *user)
{
    struct world *world = user;
    (void)delivery;
    (void)verdict;
    (void)reason;
    skr_test_run(world->db, "DROP TABLE message_broker_deduplication");
}

static void
test_a_table_of_records_that_is_gone_is_not_taken_for_the_failed_table(
    void **state)
{
    struct world *world = *state;
    struct skr_test_database elsewhere;
    struct running running;
    struct skr_error error = {0};
    skr_test_database_make(&elsewhere);
    world->options.failed_database = elsewhere.ops;
    world->options.failed_database_url = elsewhere.url;
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    publish(world, CHOSEN, 1);
    struct skr_consumer *consumer =
        open_child(world, RECORDER("forget", "exit 3"), 10000);
    const struct skr_hook hook = {.on_error = lose_records, .user = world};
    assert_int_equal(skr_consumer_add_hook(consumer, &hook, &error), SKR_OK);
    start_consumer(&running, consumer);
    // On connecting again it is made.
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    stop_running(&running);
    assert_int_equal(atomic_load(&world->troubles), 0);
    struct skr_db *db = skr_test_connect(&elsewhere);
    assert_int_equal(
        skr_test_number(db, "SELECT COUNT(*) FROM messenger_messages"), 1);
    skr_db_close(db);
    skr_test_database_remove(&elsewhere);
}

static bool
is_there(void *path)
{
    return access(path, F_OK) == 0;
}

// The consumer waits for it as long as for any lock, and then the message waits
// for its handler.
static void
test_a_record_that_stays_locked_costs_no_retry(void **state)
{
    struct world *world = *state;
    struct running running;
    char script[600], go[96], seen[96];
    snprintf(go, sizeof(go), "%s/go", world->database.folder);
    snprintf(seen, sizeof(seen), "%s/seen", world->database.folder);
    snprintf(script, sizeof(script), "go=%s; seen=%s; %s", go, seen,
             RECORDER("hold", "[ -e $go ] || exit 3; echo > $seen"));
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    publish(world, 0, COUNT);
    start_consumer(&running, open_child(world, script, 10000));
    assert_true(skr_test_eventually(has_trouble, world, 30000));
    assert_int_equal(failed_rows(world), 0);
    // From now on it is accepted. Before, nothing may be found out of it.
    assert_int_equal(close(creat(go, 0600)), 0);
    assert_true(skr_test_eventually(is_there, seen, 30000));
    skr_db_rollback(world->db);
    assert_true(skr_test_eventually(has_no_messages, world, 30000));
    struct skr_consumer_counts counts = skr_consumer_counts(running.consumer);
    stop_running(&running);
    unlink(go);
    unlink(seen);
    has_committer = false;
    expect_handled(world, counts);
}

static void
test_a_record_that_a_child_forgot_is_written_and_said_once(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world, RECORDER("forget", ":"), 10000);
    expect_handled(world, counts);
    assert_int_equal(atomic_load(&no_records), 1);
}

static void
test_a_record_that_a_child_does_not_speak_of_is_said_once(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts =
        run_child(world, RECORDER_SAYING(READY, "commit", ":"), 10000);
    assert_int_equal(counts.duplicates, COUNT);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(atomic_load(&unsaid_records), 1);
}

static void
test_a_child_with_records_of_its_own_is_not_checked(void **state)
{
    struct world *world = *state;
    publish(world, 0, COUNT);
    struct skr_consumer_counts counts = run_child(
        world,
        ANSWER "echo '{\"ready\":true,\"deduplicates\":\"own\"}'; " EACH
               "answer accept; done",
        10000);
    expect_handled(world, counts);
    assert_int_equal(atomic_load(&no_records), 0);
}

static void
test_a_child_that_waits_costs_no_retry(void **state)
{
    struct world *world = *state;
    struct running running;
    char script[600], path[96];
    snprintf(path, sizeof(path), "%s/waits", world->database.folder);
    snprintf(script, sizeof(script), "waits=%s; %s", path,
             WORKER("echo >> $waits; [ $(wc -l < $waits) -lt 2 ] && "
                    "{ answer wait; continue; }"));
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    publish(world, 0, COUNT);
    start_consumer(&running, open_child(world, script, 10000));
    assert_true(skr_test_eventually(has_no_messages, world, 30000));
    struct skr_consumer_counts counts = skr_consumer_counts(running.consumer);
    stop_running(&running);
    unlink(path);
    expect_handled(world, counts);
    assert_true(atomic_load(&world->troubles) > 0);
}

#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, consumer_world_set_up, \
                                    consumer_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_child_is_asked_once_for_each_message),
        CASE(test_a_child_that_fails_costs_its_own_message_alone),
        CASE(test_a_failed_try_is_repeated_later),
        CASE(test_a_second_answer_is_not_taken_for_the_next_message),
        CASE(test_a_late_second_answer_is_not_taken_for_the_next_message),
        CASE(test_what_a_child_recorded_is_handled),
        CASE(test_a_commit_under_way_is_waited_for),
        CASE(test_what_is_recorded_is_no_dead_letter),
        CASE(
            test_a_failed_table_in_the_same_database_by_another_name_is_written),
        CASE(
            test_a_table_of_records_that_is_gone_is_not_taken_for_the_failed_table),
        CASE(test_a_record_that_stays_locked_costs_no_retry),
        CASE(test_a_record_that_a_child_forgot_is_written_and_said_once),
        CASE(test_a_record_that_a_child_does_not_speak_of_is_said_once),
        CASE(test_a_child_with_records_of_its_own_is_not_checked),
        CASE(test_a_child_that_waits_costs_no_retry),
        CASE(test_a_child_that_closes_its_input_is_replaced),
        CASE(test_a_child_that_has_had_enough_is_replaced_at_once),
        CASE(test_what_a_child_says_goes_to_the_log_in_bounds),
        CASE(test_a_child_that_closes_its_errors_is_no_burden),
        CASE(test_no_message_is_spent_on_a_child_that_does_not_start),
        CASE(test_what_a_child_started_ends_with_it),
        CASE(test_a_stop_does_not_wait_for_a_child_that_hangs),
        CASE(test_a_program_that_is_not_there_is_refused_at_once),
    };
    skr_test_limit_memory(SKR_TEST_CEILING_MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
