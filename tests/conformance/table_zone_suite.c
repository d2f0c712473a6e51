// SPDX-License-Identifier: MIT
// Tables whose other writers write another time zone than UTC.

#include "table_world.h"

#include "db/run.h"
#include "db/zone.h"

enum { AHEAD_S = 5 * 3600 };

static struct skr_store *
make_table_in(const struct fixture *fixture, const char *zone,
              struct skr_error *error)
{
    struct skr_store *table = NULL;
    struct skr_messenger_options options = outbox_options(fixture);
    options.time_zone = zone;
    options.failed_time_zone = zone;
    enum skr_code code = skr_messenger_new(&options, &table, error);
    return code == SKR_OK ? table : NULL;
}

static int
set_up_ahead(void **state)
{
    set_up_with_sweep(state, 0);
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    skr_store_free(fixture->table);
    fixture->table = make_table_in(fixture, "+05:00", &error);
    if (fixture->table == NULL)
        fail_msg("%s", error.text);
    start(fixture);
    return 0;
}

// As a writer whose clock is ahead of UTC.
static void
insert_ahead(struct fixture *fixture, int64_t ahead_s, int64_t delay_s)
{
    const struct skr_value values[] = {
        skr_bind_text("{}"), skr_bind_text(HEADERS),
        skr_bind_integer(llabs(ahead_s)),
        skr_bind_integer(llabs(ahead_s + delay_s))};
    skr_test_run_template(fixture->db,
                          ahead_s < 0
                              ? "INSERT INTO messenger_outbox (body, headers, "
                                "created_at, available_at, queue_name) VALUES "
                                "(?, ?, {now_minus}, {now_minus}, 'outbox')"
                              : "INSERT INTO messenger_outbox (body, headers, "
                                "created_at, available_at, queue_name) VALUES "
                                "(?, ?, {now_plus}, {now_plus}, 'outbox')",
                          values, SKR_COUNT_OF(values));
}

static char *
fill(const struct fixture *fixture, struct skr_arena *arena, const char *sql)
{
    char *filled =
        skr_sql_fill(skr_db_dialect(fixture->db), arena, sql, NULL, 0);
    assert_non_null(filled);
    return filled;
}

// Rows whose column is five hours ahead of UTC, about.
static int64_t
count_ahead(const struct fixture *fixture, const char *table,
            const char *column)
{
    char sql[400];
    const struct skr_value values[] = {skr_bind_integer(AHEAD_S - 60),
                                       skr_bind_integer(AHEAD_S + 60)};
    struct skr_arena arena = {0};
    struct skr_value count = {.kind = SKR_NULL};
    struct skr_row row = {.arena = &arena, .columns = &count, .count = 1};
    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM %s WHERE %s BETWEEN {now_plus} AND "
             "{now_plus}",
             table, column);
    assert_int_equal(skr_sql_fetch(skr_db_tx(fixture->db),
                                   &(struct skr_statement){
                                       .sql = fill(fixture, &arena, sql),
                                       .values = values,
                                       .value_count = SKR_COUNT_OF(values),
                                   },
                                   &row, NULL),
                     SKR_OK);
    int64_t number = count.integer;
    skr_arena_fini(&arena);
    return number;
}

static bool
is_read(void *user)
{
    return read_rows(user) > 0;
}

static void
test_a_row_that_waits_is_due_by_its_writers_clock(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(read_rows(fixture), 0);
    insert_ahead(fixture, AHEAD_S, 3600);
    assert_int_equal(read_rows(fixture), 0);
    insert_ahead(fixture, AHEAD_S, 2);
    assert_true(skr_test_eventually(is_read, fixture, 20000));
    assert_int_equal(fixture->batch.count, 1);
    assert_int_equal(read_rows(fixture), 0);
}

static void
test_a_message_goes_on_with_its_true_time(void **state)
{
    struct fixture *fixture = *state;
    insert_ahead(fixture, AHEAD_S, 0);
    assert_int_equal(read_rows(fixture), 1);
    int64_t age_us = skr_clock_wall_us() -
                     fixture->batch.items[0].envelope.message.created_at_us;
    assert_in_range(age_us + 60000000, 0, 120000000);
}

static void
test_what_we_write_is_in_that_zone(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_messenger_row rows[] = {
        {.body = "{}",
         .body_size = 2,
         .headers = HEADERS,
         .headers_size = strlen(HEADERS)},
        {.body = "{}",
         .body_size = 2,
         .headers = HEADERS,
         .headers_size = strlen(HEADERS),
         .due_at_us = skr_clock_wall_us() + 1000000},
    };
    assert_int_equal(skr_messenger_append(fixture->table,
                                          skr_db_tx(fixture->db), NULL, rows, 2,
                                          NULL),
                     SKR_OK);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "created_at"), 2);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "available_at"),
                     2);
    assert_true(skr_test_eventually(is_read, fixture, 20000));
    set_states(fixture, SKR_RETRY_LATER);
    settle(fixture);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "available_at"),
                     2);
    assert_true(skr_test_eventually(is_read, fixture, 20000));
    set_states(fixture, SKR_DEAD);
    settle(fixture);
    assert_int_equal(count_ahead(fixture, "messenger_messages", "created_at"),
                     (int64_t)fixture->batch.count);
}

static size_t
take(struct fixture *fixture, skr_store_claim_fn *take_rows)
{
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    if (take_rows(use_reader(&fixture->reader, fixture->table, fixture->db),
                  &(struct skr_read){.max_rows = 10, .max_bytes = 1 << 20},
                  &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return fixture->batch.count;
}

static bool
is_claimed(void *user)
{
    struct fixture *fixture = user;
    return take(fixture, fixture->table->leases->claim) > 0;
}

static void
test_a_claim_is_in_that_zone_too(void **state)
{
    struct fixture *fixture = *state;
    uint64_t leased = 0;
    insert_ahead(fixture, AHEAD_S, 0);
    assert_int_equal(take(fixture, fixture->table->leases->claim), 1);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "delivered_at"),
                     1);
    assert_int_equal(
        fixture->table->diagnosis->count_claimed(
            use_reader(&fixture->reader, fixture->table, fixture->db), &leased,
            NULL),
        SKR_OK);
    assert_int_equal(leased, 1);
    assert_int_equal(fixture->table->leases->renew(fixture->table, fixture->db,
                                                   &fixture->batch, NULL),
                     SKR_OK);
    assert_false(fixture->batch.items[0].lost);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "delivered_at"),
                     1);
    set_states(fixture, SKR_RETRY_LATER);
    settle(fixture);
    assert_false(fixture->batch.items[0].lost);
    assert_int_equal(count_ahead(fixture, "messenger_outbox", "available_at"),
                     1);
    assert_true(skr_test_eventually(is_claimed, fixture, 20000));
    set_states(fixture, SKR_DEAD);
    settle(fixture);
    assert_int_equal(count_ahead(fixture, "messenger_messages", "created_at"),
                     1);
}

static void
test_a_lease_runs_out_by_that_zones_clock(void **state)
{
    struct fixture *fixture = *state;
    insert_ahead(fixture, AHEAD_S, 0);
    assert_int_equal(take(fixture, fixture->table->leases->claim), 1);
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(take(fixture, fixture->table->leases->claim), 0);
    const struct skr_value ahead_s = skr_bind_integer(AHEAD_S - 7200);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET delivered_at = "
                          "{now_plus}",
                          &ahead_s, 1);
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(take(fixture, fixture->table->leases->claim), 1);
    assert_true(fixture->batch.items[0].redelivered);
}

static void
test_a_writer_in_another_zone_gives_itself_away(void **state)
{
    static const struct {
        int64_t ahead_s;
        int hours;
    } cases[] = {{5, 0},         {2 * 3600, 2},     {2 * 3600 + 800, 2},
                 {5 * 1800, 0},  {-3 * 3600, -3},   {-3 * 3600 + 600, -3},
                 {30 * 3600, 0}, {-5 * 3600 / 2, 0}};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int hours = 99;
        insert_ahead(fixture, cases[i].ahead_s, 0);
        assert_int_equal(fixture->table->diagnosis->skew(
                             fixture->table, fixture->db, &hours, NULL),
                         SKR_OK);
        assert_int_equal(hours, cases[i].hours);
    }
}

static void
test_an_empty_table_gives_nobody_away(void **state)
{
    struct fixture *fixture = *state;
    int hours = 99;
    assert_int_equal(fixture->table->diagnosis->skew(fixture->table,
                                                     fixture->db, &hours, NULL),
                     SKR_OK);
    assert_int_equal(hours, 0);
}

static void
test_what_is_no_zone_is_refused(void **state)
{
    static const char *const bad[] = {"+2:00",   "+25:00", "+14:30", "02:00",
                                      "'; DROP", "a'b",    "/etc",   "{now}",
                                      "+02:0x",  "a b"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(bad); i++) {
        struct skr_error error = {0};
        assert_null(make_table_in(fixture, bad[i], &error));
        assert_int_equal(error.code, SKR_INVALID);
        assert_non_null(strstr(error.text, "time_zone"));
    }
}

// Whichever of the two finds out.
static void
test_a_zone_that_the_database_does_not_know_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_store *table =
        make_table_in(fixture, "Middle_Earth/Bree", &error);
    if (table != NULL)
        assert_int_equal(table->admin->check(table, fixture->db, &error),
                         SKR_INVALID);
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    assert_non_null(strstr(error.text, "Middle_Earth/Bree"));
    assert_non_null(strstr(error.text, "+02:00"));
    skr_store_free(table);
}

// The statement with its clock stopped at a time in UTC.
static void
stop_clock(const struct fixture *fixture, const char *sql, const char *at,
           char *stopped, size_t size)
{
    const char *clock = fixture->database.clock;
    const char *const *words = fixture->database.time_words;
    size_t used = 0;
    for (const char *next; (next = strstr(sql, clock)) != NULL;
         sql = next + strlen(clock))
        used +=
            (size_t)snprintf(stopped + used, size - used, "%.*s%s%s%s",
                             (int)(next - sql), sql, words[0], at, words[1]);
    assert_true(used > 0);
    snprintf(stopped + used, size - used, "%s", sql);
}

// What a claim must not be older than to be fresh, at a time in UTC.
static void
assert_minute_ago(const struct fixture *fixture, const struct skr_zone *zone,
                  const char *now, const char *expected)
{
    char sql[1000];
    struct skr_arena arena = {0};
    struct skr_word words[SKR_ZONE_WORDS];
    size_t count = skr_zone_words(zone, words);
    const struct skr_value minute = skr_bind_integer(60);
    struct skr_value value = {.kind = SKR_NULL};
    struct skr_row row = {.arena = &arena, .columns = &value, .count = 1};
    stop_clock(fixture,
               skr_sql_fill(skr_db_dialect(fixture->db), &arena,
                            "SELECT {now_minus}", words, count),
               now, sql, sizeof(sql));
    struct skr_error error = {0};
    if (skr_sql_fetch(skr_db_tx(fixture->db),
                      &(struct skr_statement){
                          .sql = sql, .values = &minute, .value_count = 1},
                      &row, &error) != SKR_OK)
        fail_msg("%s: %s", sql, error.text);
    assert_non_null(value.bytes);
    assert_memory_equal(value.bytes, expected, strlen(expected));
    skr_arena_fini(&arena);
}

// A claim of the hour that comes twice is not taken for one of an hour ago: it
// may be kept for an hour longer, and is never another's too soon.
static void
test_a_fresh_claim_stays_one_when_the_clock_is_put_back(void **state)
{
    static const struct {
        const char *now, *minute_ago;
    } cases[] = {
        {"2026-10-25 00:59:50", "2026-10-25 02:58:50"},  // summer's last
        {"2026-10-25 01:00:20", "2026-10-25 01:59:20"},  // it is 02:00:20
        {"2026-10-25 01:30:00", "2026-10-25 02:29:00"},
        {"2026-03-29 00:59:50", "2026-03-29 01:58:50"},  // winter's last
        {"2026-03-29 01:00:20", "2026-03-29 01:59:20"},  // it is 03:00:20
        {"2026-03-29 01:01:20", "2026-03-29 02:00:20"},
        {"2026-03-29 05:00:00", "2026-03-29 06:59:00"},
    };
    struct fixture *fixture = *state;
    char name[SKR_TEST_ZONE_SIZE];
    struct skr_zone zone;
    skr_test_summer_zone(&fixture->database, name);
    enum skr_code code =
        skr_zone_read(skr_db_dialect(fixture->db),
                      name[0] == '\0' ? "Europe/Berlin" : name, &zone, NULL);
    // Where there are no names there is no such hour.
    assert_int_equal(code, name[0] == '\0' ? SKR_INVALID : SKR_OK);
    for (size_t i = 0; code == SKR_OK && i < SKR_COUNT_OF(cases); i++)
        assert_minute_ago(fixture, &zone, cases[i].now, cases[i].minute_ago);
}

#define AHEAD_TEST(name) \
    cmocka_unit_test_setup_teardown(name, set_up_ahead, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        AHEAD_TEST(test_a_row_that_waits_is_due_by_its_writers_clock),
        AHEAD_TEST(test_a_message_goes_on_with_its_true_time),
        AHEAD_TEST(test_what_we_write_is_in_that_zone),
        AHEAD_TEST(test_a_claim_is_in_that_zone_too),
        AHEAD_TEST(test_a_lease_runs_out_by_that_zones_clock),
        TEST(test_a_fresh_claim_stays_one_when_the_clock_is_put_back),
        TEST(test_a_writer_in_another_zone_gives_itself_away),
        TEST(test_an_empty_table_gives_nobody_away),
        TEST(test_what_is_no_zone_is_refused),
        TEST(test_a_zone_that_the_database_does_not_know_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
