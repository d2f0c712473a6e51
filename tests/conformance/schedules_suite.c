// SPDX-License-Identifier: MIT
// Random schedules, each from a seed: transactions that commit or roll back, a
// broker that refuses, closes routes, falls silent or goes away, sessions and
// commits that are lost, relays that come, stop and die with messages in
// flight. Then all is well again, and a judge looks at what the broker stored:
// nothing that was committed is lost, nothing that was rolled back is there,
// and in an ordered queue no message is stored before the one ahead of it.
//
// All clocks of the process, SQLite's too, run RATE times as fast as time does,
// so that pauses and leases of seconds are over in milliseconds.
//
//   SKR_SEED=7 SKR_SEEDS=1 .../suite_schedules    the schedule of that seed

#include "conformance/relay_divided_world.h"

#include <sqlite3.h>

enum {
    RATE = 16,
    KEYS = 6,
    MOST_OF_KEY = 200,
    LIVES = 3,  // relays at once
    LONG_SEEDS = 10000,
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    QUICK_SEEDS = 100,
#else
    QUICK_SEEDS = 300,
#endif
    END_MS = 60000 * RATE,  // by the fast clock
};

int64_t __real_skr_clock_ms(void);
int64_t __wrap_skr_clock_ms(void);
bool __real_skr_clock_sleep(int wake_fd, int64_t timeout_ms);
bool __wrap_skr_clock_sleep(int wake_fd, int64_t timeout_ms);
struct timespec __real_skr_clock_deadline(int64_t timeout_ms);
struct timespec __wrap_skr_clock_deadline(int64_t timeout_ms);

int64_t
__wrap_skr_clock_ms(void)
{
    return skr_clock_us() / 1000 * RATE;
}

bool
__wrap_skr_clock_sleep(int wake_fd, int64_t timeout_ms)
{
    return __real_skr_clock_sleep(wake_fd, (timeout_ms + RATE - 1) / RATE);
}

struct timespec
__wrap_skr_clock_deadline(int64_t timeout_ms)
{
    return __real_skr_clock_deadline((timeout_ms + RATE - 1) / RATE);
}

static sqlite3_vfs fast_files;
static int (*real_time)(sqlite3_vfs *files, sqlite3_int64 *time_ms);
static sqlite3_int64 time_began_ms;

static int
tell_time(sqlite3_vfs *files, sqlite3_int64 *time_ms)
{
    int code = real_time(files, time_ms);
    *time_ms = time_began_ms + (*time_ms - time_began_ms) * RATE;
    return code;
}

static int
make_time_fast(void **state)
{
    (void)state;
    fast_files = *sqlite3_vfs_find(NULL);
    real_time = fast_files.xCurrentTimeInt64;
    real_time(&fast_files, &time_began_ms);
    fast_files.zName = "fast";
    fast_files.xCurrentTimeInt64 = tell_time;
    return sqlite3_vfs_register(&fast_files, 1);
}

struct schedule {
    struct fixture *fixture;
    unsigned seed;     // of the steps
    unsigned results;  // of what the broker does; under its lock
    int trouble;       // of a hundred messages so many are not confirmed
    bool is_ordered;
    enum skr_claim claim;
    struct member lives[LIVES];
    bool is_alive[LIVES];
    int committed[KEYS];
    enum skr_publish_result
        result[SKR_FAKE_CAPACITY];  // of what the broker got
    bool has_result[SKR_FAKE_CAPACITY];
};

static int
roll(struct schedule *schedule, int sides)
{
    return rand_r(&schedule->seed) % sides;
}

static enum skr_publish_result
choose_result(const struct skr_fake_message *message, size_t count, void *user)
{
    static const enum skr_publish_result bad[] = {
        SKR_REFUSED_FOR_NOW,  SKR_REFUSED_FOR_NOW,   SKR_UNCERTAIN,
        SKR_REFUSED_FOR_GOOD, SKR_ROUTE_UNAVAILABLE, SKR_UNROUTABLE,
    };
    struct schedule *schedule = user;
    size_t index = (size_t)(message - schedule->fixture->fake.got);
    enum skr_publish_result result = SKR_CONFIRMED;
    if (count <= 3 && rand_r(&schedule->results) % 100 < schedule->trouble)
        result = bad[(size_t)rand_r(&schedule->results) %
                     (sizeof(bad) / sizeof(bad[0]))];
    schedule->result[index] = result;
    schedule->has_result[index] = true;
    return result;
}

static struct skr_store *
make_own_table(const struct schedule *schedule)
{
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(schedule->fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .redeliver_timeout_s = 10,
        .full_scan_ms = 2000,
        .is_ordered = schedule->is_ordered,
        .is_sharded = schedule->claim == SKR_CLAIM_SHARDS,
        .transport = "outbox",
        .failed_table = "messenger_messages",
        .failed_queue = "failed",
    };
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    if (skr_messenger_new(&options, &table, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return table;
}

static void
begin_life(struct schedule *schedule, int which)
{
    if (schedule->is_alive[which])
        return;
    join_with(schedule->fixture, &schedule->lives[which],
              make_own_table(schedule), schedule->claim);
    schedule->is_alive[which] = true;
}

static void
end_life(struct schedule *schedule, int which)
{
    if (!schedule->is_alive[which])
        return;
    leave(&schedule->lives[which]);
    schedule->is_alive[which] = false;
}

// What is in flight stays so: no statement and no answer gets through.
static void
kill_life(struct schedule *schedule, int which)
{
    static const struct skr_fault dead = {.call = SKR_FAULTY_RUN,
                                          .sql = "",
                                          .count = SIZE_MAX,
                                          .code = SKR_UNAVAILABLE,
                                          .remedy = SKR_RECONNECT};
    skr_fake_hold_back(&schedule->fixture->fake, true);
    skr_faulty_set(&dead);
    end_life(schedule, which);
    skr_faulty_set(NULL);
    skr_fake_hold_back(&schedule->fixture->fake, false);
}

static void
commit_some(struct schedule *schedule)
{
    struct skr_db *db = schedule->fixture->db;
    bool is_kept = roll(schedule, 5) > 0;
    int count = 1 + roll(schedule, 8);
    char key[16], body[32];
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < count; i++) {
        int which = roll(schedule, KEYS);
        if (is_kept && schedule->committed[which] == MOST_OF_KEY)
            continue;
        int number = is_kept ? schedule->committed[which]++ : -1;
        snprintf(key, sizeof(key), "k%d", which);
        snprintf(body, sizeof(body), "%s:%d", key, number);
        if (schedule->is_ordered)
            insert_on(db, key, body,
                      is_kept && roll(schedule, 12) == 0 ? 1 : 0);
        else
            insert_with_headers(schedule->fixture,
                                "{\"type\":\"order.placed\"}", body);
    }
    if (is_kept)
        assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
    else
        skr_db_rollback(db);
}

static void
lose_something(struct schedule *schedule)
{
    static const char *const statements[] = {"", "SELECT", "DELETE", "UPDATE",
                                             "INSERT"};
    const struct skr_fault fault = {
        .call = (enum skr_faulty_call)roll(schedule, 4),
        .sql = statements[roll(schedule, 5)],
        .after = (size_t)roll(schedule, 4),
        .count = 1 + (size_t)roll(schedule, 3),
        .code = SKR_UNAVAILABLE,
        .remedy = roll(schedule, 2) == 0 ? SKR_TRY_AGAIN : SKR_RECONNECT,
    };
    skr_faulty_set(&fault);
}

static void
take_step(struct schedule *schedule)
{
    struct skr_fake *fake = &schedule->fixture->fake;
    int which = schedule->claim == SKR_CLAIM_NONE && roll(schedule, 3) > 0
                    ? 0
                    : roll(schedule, LIVES);
    switch (roll(schedule, 12)) {
    case 0: begin_life(schedule, which); break;
    case 1: end_life(schedule, which); break;
    case 2: kill_life(schedule, which); break;
    case 3: skr_fake_hold_back(fake, roll(schedule, 2) == 0); break;
    case 4: skr_fake_set_down(fake, roll(schedule, 2) == 0); break;
    case 5: lose_something(schedule); break;
    case 6: __real_skr_clock_sleep(-1, roll(schedule, 20)); break;
    default: commit_some(schedule);
    }
}

static bool
was_stored(const struct schedule *schedule, int key, int number)
{
    const struct skr_fake *fake = &schedule->fixture->fake;
    char body[32], sql[128];
    snprintf(body, sizeof(body), "k%d:%d", key, number);
    for (size_t i = 0; i < fake->got_count; i++)
        if (schedule->has_result[i] && schedule->result[i] == SKR_CONFIRMED &&
            strcmp(fake->got[i].body, body) == 0)
            return true;
    snprintf(sql, sizeof(sql), FAILED " WHERE body = '%s'", body);
    return skr_test_number(schedule->fixture->db, sql) > 0;
}

// One message of a key, as it was handed to the broker.
struct handed {
    int number;
    bool is_over;  // the broker stored it, or it is a dead letter
};

// The first message that came too early, or, where that is right, one that was
// repeated after later ones that were not: a consumer that remembers no ids
// would end with the older. -1: the order is right. After a loss a key is sent
// again from the first message that was not settled, and then all that follow.
static int
find_inverted(const struct handed *handed, size_t count)
{
    int next = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        if (handed[i].number > next)
            return handed[i].number;
        next = handed[i].number + handed[i].is_over;
        most = next > most ? next : most;
    }
    return next < most ? next : -1;
}

static void
judge_order(const struct schedule *schedule, int which)
{
    const struct skr_fake *fake = &schedule->fixture->fake;
    struct handed *handed = calloc(fake->got_count + 1, sizeof(*handed));
    size_t count = 0;
    char key[16];
    snprintf(key, sizeof(key), "k%d", which);
    for (size_t i = 0; i < fake->got_count; i++) {
        if (!is_of(&fake->got[i], key))
            continue;
        handed[count].number = number_of(&fake->got[i]);
        if (handed[count].number < 0)
            fail_msg("%s was published and never committed", key);
        // A dead letter lets the next one go.
        handed[count++].is_over =
            schedule->has_result[i] &&
            (schedule->result[i] == SKR_CONFIRMED ||
             schedule->result[i] == SKR_REFUSED_FOR_GOOD ||
             schedule->result[i] == SKR_UNROUTABLE);
    }
    int inverted = schedule->is_ordered ? find_inverted(handed, count) : -1;
    for (size_t i = 0; inverted >= 0 && i < count; i++)
        print_message("%s:%d%s\n", key, handed[i].number,
                      handed[i].is_over ? "" : " (not stored)");
    free(handed);
    if (inverted >= 0)
        fail_msg("%s:%d came early, or is missing after a repeat", key,
                 inverted);
}

static void
judge_schedule(const struct schedule *schedule)
{
    for (int key = 0; key < KEYS; key++) {
        for (int number = 0; number < schedule->committed[key]; number++)
            if (!was_stored(schedule, key, number))
                fail_msg("k%d:%d is lost", key, number);
        judge_order(schedule, key);
    }
}

static void
run_schedule(unsigned seed)
{
    static const struct {
        bool is_ordered;
        enum skr_claim claim;
    } kinds[] = {{true, SKR_CLAIM_NONE},
                 {true, SKR_CLAIM_SHARDS},
                 {false, SKR_CLAIM_NONE},
                 {false, SKR_CLAIM_LEASED},
                 {false, SKR_CLAIM_SHARDS}};
    const size_t kind = seed % SKR_COUNT_OF(kinds);
    void *state = NULL;
    set_up_as(&state, kinds[kind].is_ordered);
    struct fixture *fixture = state;
    struct schedule *schedule = calloc(1, sizeof(*schedule));
    schedule->fixture = fixture;
    schedule->seed = schedule->results = seed;
    schedule->is_ordered = kinds[kind].is_ordered;
    schedule->claim = kinds[kind].claim;
    skr_store_free(fixture->table);
    fixture->table = make_own_table(schedule);
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    // The world keeps what one relay says; here there are several.
    fixture->options.log = (struct skr_log){0};
    fixture->options.lease_ms = 10000;
    fixture->options.stop_timeout_ms = 500;
    fixture->options.retry.max_retries = 100;
    fixture->options.in_flight = 4 + (uint32_t)roll(schedule, 40);
    fixture->fake.result = choose_result;
    fixture->fake.user = schedule;
    schedule->trouble = roll(schedule, 3) * 10;
    for (int steps = 10 + roll(schedule, 40); steps > 0; steps--)
        take_step(schedule);
    skr_faulty_set(NULL);
    skr_fake_hold_back(&fixture->fake, false);
    skr_fake_set_down(&fixture->fake, false);
    begin_life(schedule, 0);
    bool is_over = skr_test_eventually(outbox_is_empty, fixture, END_MS);
    for (int which = 0; which < LIVES; which++)
        end_life(schedule, which);
    if (!is_over)
        fail_msg("%d rows are left", (int)skr_test_number(fixture->db, ROWS));
    judge_schedule(schedule);
    free(schedule);
    tear_down(&state);
}

static void
test_the_judge_refuses_a_repeat_that_stays_the_last(void **state)
{
    (void)state;
    static const struct {
        struct handed handed[5];
        size_t count;
        int inverted;
    } cases[] = {
        {{{0, true}, {1, true}, {2, true}}, 3, -1},
        {{{0, false}, {0, true}, {1, true}}, 3, -1},
        {{{0, true}, {1, true}, {0, true}, {1, true}}, 4, -1},
        {{{0, true}, {1, true}, {1, true}, {2, true}}, 4, -1},
        {{{0, true}, {1, true}, {0, true}}, 3, 1},
        {{{0, true}, {1, true}, {0, true}, {2, true}}, 4, 2},
        {{{0, true}, {1, true}, {0, false}, {1, true}}, 4, 1},
        {{{0, false}, {1, true}}, 2, 1},
        {{{1, true}, {0, true}}, 2, 1},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_int_equal(find_inverted(cases[i].handed, cases[i].count),
                         cases[i].inverted);
}

static unsigned
read_number(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : (unsigned)strtoul(text, NULL, 10);
}

static void
test_nothing_is_lost_or_inverted_by_any_schedule(void **state)
{
    (void)state;
    unsigned first = read_number("SKR_SEED", 1);
    unsigned count = read_number(
        "SKR_SEEDS", getenv("SKIRNIR_LONG") != NULL ? LONG_SEEDS : QUICK_SEEDS);
    for (unsigned seed = first; seed < first + count; seed++) {
        print_message("seed %u\n", seed);
        run_schedule(seed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_judge_refuses_a_repeat_that_stays_the_last),
        cmocka_unit_test(test_nothing_is_lost_or_inverted_by_any_schedule),
    };
    return cmocka_run_group_tests(tests, make_time_fast, NULL);
}
