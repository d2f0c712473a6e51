// SPDX-License-Identifier: MIT
// Tables that Symfony made, in each of the shapes they have: used as they are,
// completed on request, and read without a look at all that waits.

#include "table_world.h"

#include "store/attempt/attempt.h"
#include "store/messenger/layout.h"
#include "store/schema.h"

enum { BACKLOG = 10000, FEW = 2500 };

static bool
is_database(const struct fixture *fixture, const char *product)
{
    return strcmp(skr_db_dialect(fixture->db)->product, product) == 0;
}

static void
create_table(const struct fixture *fixture)
{
    const char *sql =
        is_database(fixture, "MariaDB or MySQL")
            ? "CREATE TABLE messenger_outbox (id BIGINT AUTO_INCREMENT NOT "
              "NULL, body LONGTEXT NOT NULL, headers LONGTEXT NOT NULL, "
              "queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL, "
              "available_at DATETIME NOT NULL, delivered_at DATETIME DEFAULT "
              "NULL, PRIMARY KEY(id)) DEFAULT CHARACTER SET utf8mb4 COLLATE "
              "`utf8mb4_unicode_ci` ENGINE = InnoDB"
        : is_database(fixture, "PostgreSQL")
            ? "CREATE TABLE messenger_outbox (id BIGSERIAL NOT NULL, body TEXT "
              "NOT NULL, headers TEXT NOT NULL, queue_name VARCHAR(190) NOT "
              "NULL, created_at TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL, "
              "available_at TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL, "
              "delivered_at TIMESTAMP(0) WITHOUT TIME ZONE DEFAULT NULL, "
              "PRIMARY KEY(id))"
            : "CREATE TABLE messenger_outbox (id INTEGER PRIMARY KEY "
              "AUTOINCREMENT NOT NULL, body CLOB NOT NULL, headers CLOB NOT "
              "NULL, queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT "
              "NULL, available_at DATETIME NOT NULL, delivered_at DATETIME "
              "DEFAULT NULL)";
    skr_test_run(fixture->db, sql);
}

static const char *const singles[] = {
    "CREATE INDEX IDX_75EA56E0FB7336F0 ON messenger_outbox (queue_name)",
    "CREATE INDEX IDX_75EA56E0E3BD61CE ON messenger_outbox (available_at)",
    "CREATE INDEX IDX_75EA56E016BA31DB ON messenger_outbox (delivered_at)",
    NULL};
static const char *const composite[] = {
    "CREATE INDEX IDX_75EA56E0FB7336F0E3BD61CE16BA31DBBF396750 ON "
    "messenger_outbox (queue_name, available_at, delivered_at, id)",
    NULL};
static const char *const none[] = {NULL};

static void
make_shape(const struct fixture *fixture, const char *const *indexes)
{
    create_table(fixture);
    for (; *indexes != NULL; indexes++)
        skr_test_run(fixture->db, *indexes);
}

struct statements {
    struct skr_text all;
    struct skr_db *db;  // NULL: they are not run
};

static enum skr_code
note_statement(const char *sql, void *user, struct skr_error *error)
{
    struct statements *statements = user;
    skr_text_add_format(&statements->all, "%s;", sql);
    if (statements->db == NULL)
        return SKR_OK;
    return skr_schema_run(sql, statements->db, error);
}

// What is run to complete the table.
static void
complete(const struct fixture *fixture, struct skr_db *run_on,
         struct skr_text *all)
{
    struct statements statements = {.db = run_on};
    struct skr_error error = {0};
    skr_text_add_string(&statements.all, "");
    if (fixture->table->admin->complete(fixture->table, fixture->db,
                                        note_statement, &statements,
                                        &error) != SKR_OK)
        fail_msg("%s", error.text);
    *all = statements.all;
}

static bool
has_index(const struct fixture *fixture, const char *column)
{
    bool has = false;
    assert_int_equal(skr_schema_has_index(skr_db_tx(fixture->db),
                                          "messenger_outbox", column, NULL,
                                          &has, NULL),
                     SKR_OK);
    return has;
}

static void
test_auto_setup_leaves_a_table_as_it_is(void **state)
{
    struct fixture *fixture = *state;
    make_shape(fixture, none);
    start(fixture);
    assert_false(has_index(fixture, "queue_name"));
    assert_false(has_index(fixture, "available_at"));
    // What is missing beside it is made.
    assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
    assert_int_equal(count_rows(fixture, "skirnir_meta"), 1);
}

static void
test_nothing_is_added_beside_indexes_that_serve(void **state)
{
    struct fixture *fixture = *state;
    struct skr_text all;
    make_shape(fixture, singles);
    start(fixture);
    complete(fixture, NULL, &all);
    assert_string_equal(all.bytes, "");
    skr_text_fini(&all);
}

static void
test_our_own_table_needs_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct skr_text all;
    start(fixture);
    complete(fixture, NULL, &all);
    assert_string_equal(all.bytes, "");
    skr_text_fini(&all);
}

// Two tables of this many bytes, alike but for the last one.
static void
assert_indexes_of_long_names(struct fixture *fixture, size_t size)
{
    for (char last = 'a'; last <= 'b'; last++) {
        char name[SKR_SCHEMA_NAME_SIZE] = "";
        struct skr_messenger_options options = outbox_options(fixture);
        struct skr_text all;
        memset(name, 'L', size);
        name[size - 1] = last;
        options.table = name;
        options.is_ordered = true;
        skr_store_free(fixture->table);
        fixture->table = make_table_by(&options);
        start(fixture);
        complete(fixture, NULL, &all);
        assert_string_equal(all.bytes, "");
        skr_text_fini(&all);
    }
}

// PostgreSQL cuts an index's name at 63 bytes.
static void
test_a_table_with_a_long_name_needs_nothing(void **state)
{
    assert_indexes_of_long_names(*state, 46);
    assert_indexes_of_long_names(*state, 47);
    assert_indexes_of_long_names(*state, 58);
    assert_indexes_of_long_names(*state, 63);
}

static void
test_a_composite_index_lacks_the_claims(void **state)
{
    struct fixture *fixture = *state;
    struct skr_text all;
    make_shape(fixture, composite);
    start(fixture);
    complete(fixture, fixture->db, &all);
    assert_non_null(strstr(all.bytes, "delivered_at"));
    assert_null(strstr(all.bytes, "available_at"));
    assert_null(strstr(all.bytes, "queue_name"));
    skr_text_fini(&all);
    assert_true(has_index(fixture, "delivered_at"));
    complete(fixture, NULL, &all);
    assert_string_equal(all.bytes, "");
    skr_text_fini(&all);
}

static void
test_a_bare_table_gets_all_of_them_while_others_write(void **state)
{
    struct fixture *fixture = *state;
    struct skr_text all;
    make_shape(fixture, none);
    start(fixture);
    complete(fixture, fixture->db, &all);
    if (is_database(fixture, "MariaDB or MySQL"))
        assert_non_null(strstr(all.bytes, "LOCK = NONE"));
    if (is_database(fixture, "PostgreSQL"))
        assert_non_null(strstr(all.bytes, "CONCURRENTLY"));
    skr_text_fini(&all);
    assert_true(has_index(fixture, "queue_name"));
    assert_true(has_index(fixture, "available_at"));
    assert_true(has_index(fixture, "delivered_at"));
}

// ----------------------------------------------------------------------- plans

// Half of it due, half of it for tomorrow.
static void
insert_backlog(struct fixture *fixture)
{
    const struct skr_value delay = skr_bind_integer(86400);
    insert_many(fixture, 1);
    for (int64_t count = 1; count < BACKLOG; count *= 2)
        skr_test_run(fixture->db,
                     "INSERT INTO messenger_outbox (body, headers, queue_name, "
                     "created_at, available_at) SELECT body, headers, "
                     "queue_name, created_at, available_at FROM "
                     "messenger_outbox");
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = "
                          "{now_plus} WHERE id % 2 = 0",
                          &delay, 1);
    skr_test_run(fixture->db, is_database(fixture, "MariaDB or MySQL")
                                  ? "ANALYZE TABLE messenger_outbox"
                                  : "ANALYZE messenger_outbox");
}

// Rows that the server has looked at on this connection.
static int64_t
rows_touched(const struct fixture *fixture)
{
    return skr_test_status(fixture->db, "Handler_read%");
}

struct plan {
    int64_t most_removed;
    bool scans_all;
};

static enum skr_code
read_plan(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct plan *plan = user;
    const char *line = columns[0].bytes;
    const char *removed = strstr(line, "Rows Removed by Filter: ");
    plan->scans_all = plan->scans_all || strstr(line, "Seq Scan") != NULL;
    if (removed != NULL && atoll(strchr(removed, ':') + 1) > plan->most_removed)
        plan->most_removed = atoll(strchr(removed, ':') + 1);
    return SKR_OK;
}

static void
assert_plan(const struct fixture *fixture, const char *sql,
            const struct skr_value *values, size_t count)
{
    struct skr_error error = {0};
    char text[2000];
    if (is_database(fixture, "MariaDB or MySQL")) {
        int64_t before = rows_touched(fixture);
        int64_t own = rows_touched(fixture) - before;
        before = rows_touched(fixture);
        if (skr_tx_run(skr_db_tx(fixture->db),
                       &(struct skr_statement){
                           .sql = sql, .values = values, .value_count = count},
                       &error) != SKR_OK)
            fail_msg("%s", error.text);
        int64_t touched = rows_touched(fixture) - before - own;
        if (touched > FEW)
            fail_msg("%lld rows were looked at: %s", (long long)touched, sql);
        return;
    }
    if (!is_database(fixture, "PostgreSQL"))
        return;
    struct plan plan = {0};
    snprintf(text, sizeof(text), "EXPLAIN (ANALYZE) %s", sql);
    if (skr_tx_run(skr_db_tx(fixture->db),
                   &(struct skr_statement){.sql = text,
                                           .values = values,
                                           .value_count = count,
                                           .each_row = read_plan,
                                           .user = &plan},
                   &error) != SKR_OK)
        fail_msg("%s", error.text);
    if (plan.scans_all || plan.most_removed > FEW)
        fail_msg("%lld rows were looked at in vain: %s",
                 (long long)plan.most_removed, sql);
}

static void
assert_plans(struct fixture *fixture)
{
    const struct skr_messenger *messenger = skr_messenger_of(fixture->table);
    insert_backlog(fixture);
    assert_int_equal(read_with(fixture, &(struct skr_read){.max_rows = 10,
                                                           .max_bytes = 1000}),
                     10);
    const struct skr_cursor *position = &fixture->reader.at;
    bool dues_by_queue = fixture->reader.indexes.dues_by_queue;
    int64_t last =
        skr_test_number(fixture->db, "SELECT MAX(id) FROM messenger_outbox");
    const struct skr_value queue = skr_bind_text("outbox");
    const struct skr_value mark = skr_bind_text(position->due_until);
    const struct skr_value rest[] = {skr_bind_integer(last), queue, mark};
    assert_plan(fixture,
                dues_by_queue
                    ? skr_messenger_sql(messenger, SKR_SQL_TAIL_BY_QUEUE)
                    : skr_messenger_sql(messenger, SKR_SQL_TAIL),
                rest, SKR_COUNT_OF(rest));
    const struct skr_value beyond[] = {queue, skr_bind_integer(last / 2),
                                       skr_bind_integer(60),
                                       skr_bind_integer(500)};
    assert_plan(fixture, skr_messenger_sql(messenger, SKR_SQL_NEW), beyond,
                SKR_COUNT_OF(beyond));
    const struct skr_value first[] = {queue, skr_bind_integer(INT64_MIN),
                                      skr_bind_integer(60),
                                      skr_bind_integer(500)};
    assert_plan(fixture,
                dues_by_queue
                    ? skr_messenger_sql(messenger, SKR_SQL_FIRST_TIMED)
                    : skr_messenger_sql(messenger, SKR_SQL_FIRST),
                first, SKR_COUNT_OF(first));
    assert_plan(fixture,
                dues_by_queue
                    ? skr_messenger_sql(messenger, SKR_SQL_FIRST_TIMED_IDS)
                    : skr_messenger_sql(messenger, SKR_SQL_FIRST_IDS),
                first, SKR_COUNT_OF(first));
    // A second of time that has come since.
    const struct skr_value dues[] = {
        queue, skr_bind_integer(INT64_MIN), skr_bind_integer(last), mark,
        mark,  skr_bind_integer(60),        skr_bind_integer(500)};
    assert_plan(fixture,
                dues_by_queue
                    ? skr_messenger_sql(messenger, SKR_SQL_DUE_BY_QUEUE)
                    : skr_messenger_sql(messenger, SKR_SQL_DUE),
                dues, SKR_COUNT_OF(dues));
    const struct skr_value leased[] = {skr_bind_integer(position->mark.cursor),
                                       queue, skr_bind_integer(60)};
    if (fixture->reader.indexes.lacks_claims)
        assert_plan(fixture, skr_messenger_sql(messenger, SKR_SQL_COUNT_NEAR),
                    leased, 3);
    else
        assert_plan(fixture, skr_messenger_sql(messenger, SKR_SQL_COUNT_LEASED),
                    leased + 1, 2);
}

static void
test_plans_on_our_own_table(void **state)
{
    start(*state);
    assert_plans(*state);
}

static void
test_plans_with_three_single_indexes(void **state)
{
    make_shape(*state, singles);
    start(*state);
    assert_plans(*state);
}

static void
test_plans_with_one_composite_index(void **state)
{
    make_shape(*state, composite);
    start(*state);
    assert_plans(*state);
}

// Another who works the same queue.
struct claimer {
    struct fixture *fixture;
    struct skr_messenger_reader reader;
};

static bool
claims_row(void *user)
{
    struct claimer *claimer = user;
    struct fixture *fixture = claimer->fixture;
    skr_batch_clear(&fixture->batch);
    assert_int_equal(
        fixture->table->leases->claim(
            use_reader(&claimer->reader, fixture->table, fixture->db),
            &(struct skr_read){.max_rows = 10, .max_bytes = 1 << 20},
            &fixture->batch, NULL),
        SKR_OK);
    return fixture->batch.count > 0;
}

static void
test_a_consumer_works_with_one_composite_index(void **state)
{
    struct fixture *fixture = *state;
    make_shape(fixture, composite);
    start(fixture);
    insert_many(fixture, 3);
    skr_batch_clear(&fixture->batch);
    assert_int_equal(
        fixture->table->leases->claim(
            use_reader(&fixture->reader, fixture->table, fixture->db),
            &(struct skr_read){.max_rows = 10, .max_bytes = 1 << 20},
            &fixture->batch, NULL),
        SKR_OK);
    assert_int_equal(fixture->batch.count, 3);
}

// Without an index on claims what others had is found all the same.
static void
test_what_is_given_back_is_found_with_one_composite_index(void **state)
{
    struct fixture *fixture = *state;
    make_shape(fixture, composite);
    start(fixture);
    insert_many(fixture, 3);
    const struct skr_read read = {.max_rows = 2, .max_bytes = 1 << 20};
    struct claimer claimer = {.fixture = fixture};
    struct skr_batch first;
    assert_int_equal(skr_batch_init(&first, 10, NULL), SKR_OK);
    assert_int_equal(
        fixture->table->leases->claim(
            use_reader(&fixture->reader, fixture->table, fixture->db), &read,
            &first, NULL),
        SKR_OK);
    assert_int_equal(first.count, 2);
    assert_true(claims_row(&claimer));
    assert_int_equal(fixture->batch.items[0].row, first.items[1].row + 1);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(fixture->table->leases->release(fixture->table,
                                                     fixture->db, &first, NULL),
                     SKR_OK);
    assert_true(skr_test_eventually(claims_row, &claimer, 20000));
    assert_int_equal(fixture->batch.items[0].row, first.items[0].row);
    assert_int_equal(fixture->batch.count, 2);
    skr_batch_fini(&first);
}

static void
test_others_are_noticed_with_one_composite_index(void **state)
{
    struct fixture *fixture = *state;
    struct claimer other = {.fixture = fixture};
    uint64_t leased = 0;
    make_shape(fixture, composite);
    start(fixture);
    insert_many(fixture, 3);
    for (uint64_t expected = 0; expected <= 3; expected += 3) {
        assert_int_equal(
            fixture->table->diagnosis->count_claimed(
                use_reader(&fixture->reader, fixture->table, fixture->db),
                &leased, NULL),
            SKR_OK);
        assert_int_equal(leased, expected);
        if (expected == 0)
            assert_true(claims_row(&other));
    }
}

static void
test_a_queue_has_one_lock_whatever_its_database_is_called(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_database other;
    struct skr_db *alias = NULL;
    skr_test_database_make(&other);
    struct skr_db *elsewhere = skr_test_connect(&other);
    assert_int_equal(skr_db_open(fixture->database.ops,
                                 fixture->database.alias_url, &alias, NULL),
                     SKR_OK);
    assert_int_equal(skr_store_create(fixture->table, elsewhere, NULL), SKR_OK);
    start(fixture);
    assert_true(may_work_queue(fixture->table, fixture->db));
    assert_false(may_work_queue(fixture->table, alias));
    assert_true(may_work_queue(fixture->table, elsewhere));
    skr_db_close(alias);
    skr_db_close(elsewhere);
    skr_test_database_remove(&other);
}

// The fixture's table is divided by leases; another's, whose configuration
// spells it otherwise.
static struct skr_store *
start_with_other_spelling(struct fixture *fixture)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_sharded = true;
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    start(fixture);
    options.table = "Messenger_OUTBOX";
    return make_table_by(&options);
}

// Two relays that spell it in two ways contend for its lock and its shards.
static void
test_a_table_is_one_however_it_is_spelt(void **state)
{
    struct fixture *fixture = *state;
    struct skr_assignments shares;
    struct skr_assignment all = {.shards = (UINT64_C(1) << SKR_SHARDS) - 1,
                                 .members = 1};
    struct skr_error error = {0};
    struct skr_db *db = skr_test_connect(&fixture->database);
    struct skr_store *other = start_with_other_spelling(fixture);
    if (other->admin->check(other, db, &error) == SKR_OK) {
        const struct skr_shard_ops *shards = fixture->table->shards;
        assert_int_equal(
            fixture->table->admin->check(fixture->table, fixture->db, &error),
            SKR_OK);
        assert_int_equal(
            shards->see(fixture->table, fixture->db, &shares, &error), SKR_OK);
        assert_int_equal(shards->take(fixture->table, fixture->db, &all,
                                      &(struct skr_term){.lease_s = 60},
                                      &error),
                         SKR_OK);
        assert_int_equal(shards->see(other, db, &shares, &error), SKR_OK);
        assert_int_equal(shares.free.shards, 0);
        assert_int_equal(shares.others, 1);
        assert_true(may_work_queue(fixture->table, fixture->db));
        assert_false(may_work_queue(other, db));
    } else {
        // The server tells the two apart.
        assert_int_equal(error.code, SKR_MISSING);
    }
    skr_store_free(other);
    skr_db_close(db);
}

// Relays of earlier versions own shards under the name of their configuration.
static void
test_shards_of_an_earlier_spelling_are_not_taken(void **state)
{
    struct fixture *fixture = *state;
    struct skr_assignments shares;
    struct skr_error error = {0};
    struct skr_store *other = start_with_other_spelling(fixture);
    for (int slot = 0; slot < SKR_SHARDS; slot++) {
        const struct skr_value values[] = {skr_bind_integer(slot),
                                           skr_bind_integer(60)};
        skr_test_run_template(fixture->db,
                              "INSERT INTO skirnir_lease (queue_name, slot, "
                              "owner, epoch, expires_at) VALUES "
                              "('outbox/Messenger_OUTBOX', ?, 'earlier', 1, "
                              "{now_plus})",
                              values, 2);
    }
    enum skr_code code = other->admin->check(other, fixture->db, &error);
    if (code == SKR_OK) {
        assert_int_equal(
            other->shards->see(other, fixture->db, &shares, &error), SKR_OK);
        assert_int_equal(shares.free.shards, 0);
    } else {
        // The server tells the two apart.
        assert_int_equal(error.code, SKR_MISSING);
    }
    skr_store_free(other);
}

static const char *
fill_name(const struct fixture *fixture, struct skr_arena *arena,
          const char *sql, const char *table)
{
    const struct skr_word words[] = {{"table", table}};
    return skr_sql_fill(skr_db_dialect(fixture->db), arena, sql, words, 1);
}

static void
record_as(const struct fixture *fixture, const char *name, const char *before)
{
    struct skr_deduplication *records = NULL;
    bool inherits = false;
    struct skr_error error = {0};
    if (skr_deduplication_new(skr_db_dialect(fixture->db), name, &records,
                              &error) != SKR_OK ||
        skr_deduplication_succeed(records, before, &error) != SKR_OK ||
        skr_deduplication_create(records, fixture->db, &error) != SKR_OK ||
        skr_deduplication_check(records, fixture->db, &error) != SKR_OK ||
        skr_deduplication_look_back(records, fixture->db, &inherits, &error) !=
            SKR_OK)
        fail_msg("%s", error.text);
    skr_deduplication_free(records);
}

static enum skr_code
check_all(const struct fixture *fixture,
          const struct skr_deduplication *records, struct skr_error *error)
{
    enum skr_code code =
        fixture->table->admin->check(fixture->table, fixture->db, error);
    if (code == SKR_OK)
        code = skr_deduplication_check(records, fixture->db, error);
    return code == SKR_OK ? skr_attempts_check(fixture->db, error) : code;
}

// Every table of ours, as it would be if another program had one of its name.
static void
test_a_column_that_is_missing_is_named_with_its_table(void **state)
{
    static const struct {
        const char *table, *column, *cure;
    } cases[] = {
        {"messenger_outbox", "available_at", "`skirnir setup`"},
        {"messenger_outbox", "partition_key", "`skirnir setup`"},
        {"messenger_messages", "headers", "`skirnir setup`"},
        {"skirnir_lease", "epoch", "`skirnir setup`"},
        {"message_broker_deduplication", "message_name",
         "`skirnir setup-deduplication --force`"},
        {"skirnir_attempt", "since", "`skirnir setup`"},
    };
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    struct skr_deduplication *records = NULL;
    struct skr_error error = {0};
    options.is_ordered = true;
    options.is_sharded = true;
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    start(fixture);
    if (skr_deduplication_new(skr_db_dialect(fixture->db), NULL, &records,
                              &error) != SKR_OK ||
        skr_deduplication_create(records, fixture->db, &error) != SKR_OK ||
        skr_attempts_create(fixture->db, &error) != SKR_OK ||
        check_all(fixture, records, &error) != SKR_OK)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char sql[120], wanted[120];
        snprintf(sql, sizeof(sql), "ALTER TABLE %s RENAME COLUMN %s TO other",
                 cases[i].table, cases[i].column);
        skr_test_run(fixture->db, sql);
        assert_int_equal(check_all(fixture, records, &error), SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        snprintf(wanted, sizeof(wanted), "table %s has no column %s",
                 cases[i].table, cases[i].column);
        assert_non_null(strstr(error.text, wanted));
        assert_non_null(strstr(error.text, cases[i].cure));
        snprintf(sql, sizeof(sql), "ALTER TABLE %s RENAME COLUMN other TO %s",
                 cases[i].table, cases[i].column);
        skr_test_run(fixture->db, sql);
        assert_int_equal(check_all(fixture, records, &error), SKR_OK);
    }
    skr_deduplication_free(records);
}

// Made, completed, read and settled.
static void
test_words_of_sql_name_tables(void **state)
{
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    struct skr_arena arena = {0};
    struct skr_text all;
    const char *sql = fill_name(fixture, &arena,
                                "INSERT INTO {table} (body, headers, "
                                "queue_name, created_at, available_at) VALUES "
                                "('[]', '[]', 'outbox', {now}, {now})",
                                "Order");
    options.table = "Order";
    options.failed_table = "group";
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    start(fixture);
    complete(fixture, fixture->db, &all);
    assert_string_equal(all.bytes, "");
    skr_text_fini(&all);
    assert_true(may_work_queue(fixture->table, fixture->db));
    for (int i = 0; i < 3; i++)
        skr_test_run(fixture->db, sql);
    assert_int_equal(read_rows(fixture), 3);
    fixture->batch.items[0].state = SKR_DONE;
    fixture->batch.items[1].state = SKR_DEAD;
    fixture->batch.items[2].state = SKR_READ;
    settle(fixture);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            skr_test_number(fixture->db, fill_name(fixture, &arena,
                                                   "SELECT COUNT(*) FROM "
                                                   "{table}",
                                                   i == 0 ? "Order" : "group")),
            1);
    skr_arena_fini(&arena);
    record_as(fixture, "Key", NULL);
    record_as(fixture, "select", "Key");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BARE_TEST(test_auto_setup_leaves_a_table_as_it_is),
        BARE_TEST(test_nothing_is_added_beside_indexes_that_serve),
        BARE_TEST(test_our_own_table_needs_nothing),
        BARE_TEST(test_a_table_with_a_long_name_needs_nothing),
        BARE_TEST(test_a_composite_index_lacks_the_claims),
        BARE_TEST(test_a_bare_table_gets_all_of_them_while_others_write),
        BARE_TEST(test_plans_on_our_own_table),
        BARE_TEST(test_plans_with_three_single_indexes),
        BARE_TEST(test_plans_with_one_composite_index),
        BARE_TEST(test_a_consumer_works_with_one_composite_index),
        BARE_TEST(test_what_is_given_back_is_found_with_one_composite_index),
        BARE_TEST(test_others_are_noticed_with_one_composite_index),
        BARE_TEST(test_a_queue_has_one_lock_whatever_its_database_is_called),
        BARE_TEST(test_a_column_that_is_missing_is_named_with_its_table),
        BARE_TEST(test_a_table_is_one_however_it_is_spelt),
        BARE_TEST(test_shards_of_an_earlier_spelling_are_not_taken),
        BARE_TEST(test_words_of_sql_name_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
