// SPDX-License-Identifier: MIT
// Leases on shards: who has which share of a queue, what each is given of it,
// and that an owner who comes late has no say; and owners who live by a lock of
// the database.

#include "store/identity.h"
#include "table_world.h"

#include "base/error.h"
#include "support/faulty_database.h"

enum { LEASE_S = 60, KEYS = 120, PROCESSES = 8 };

static const uint64_t all_slots = (UINT64_C(1) << SKR_SHARDS) - 1;
static const struct skr_assignment everything = {
    .shards = (UINT64_C(1) << SKR_SHARDS) - 1, .members = 1};

// Each is another owner.
static struct skr_store *
make_divided(const struct fixture *fixture, const char *queue)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.queue = queue;
    options.is_ordered = true;
    options.is_sharded = true;
    return make_table_by(&options);
}

static int
set_up_divided(void **state)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    skr_store_free(fixture->table);
    fixture->table = make_divided(fixture, "outbox");
    skr_batch_fini(&fixture->batch);
    assert_int_equal(skr_batch_init(&fixture->batch, 1000, NULL), SKR_OK);
    start(fixture);
    return 0;
}

static void
add_keys(struct fixture *fixture, int keys)
{
    char key[32];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof(key), "key %d", i);
        insert_keyed(fixture->db, key, key);
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static struct skr_assignments
see(const struct fixture *fixture, const struct skr_store *table)
{
    struct skr_assignments shares = {.others = 0};
    struct skr_error error = {0};
    if (table->shards->see(table, fixture->db, &shares, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return shares;
}

static const struct skr_term by_lease = {.lease_s = LEASE_S};
static const struct skr_term by_lock = {.lease_s = LEASE_S, .by_lock = true};

static struct skr_assignment
take_for(const struct fixture *fixture, const struct skr_store *table,
         struct skr_assignment share, const struct skr_term *term)
{
    struct skr_error error = {0};
    (void)see(fixture, table);
    if (table->shards->take(table, fixture->db, &share, term, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return see(fixture, table).ours;
}

static struct skr_assignment
take(const struct fixture *fixture, const struct skr_store *table,
     struct skr_assignment share)
{
    return take_for(fixture, table, share, &by_lease);
}

// The server's clock moves on by so much, as far as leases can tell.
static void
let_time_pass(const struct fixture *fixture, int64_t seconds)
{
    const struct skr_value value = skr_bind_integer(seconds);
    skr_test_run_template(fixture->db,
                          "UPDATE skirnir_lease SET expires_at = {now_minus} "
                          "WHERE owner <> ''",
                          &value, 1);
}

static enum skr_code
keep_time(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    snprintf(user, 20, "%s", (const char *)columns[0].bytes);
    return SKR_OK;
}

static void
find_first_end(const struct fixture *fixture, char end[20])
{
    assert_int_equal(skr_tx_run(skr_db_tx(fixture->db),
                                &(struct skr_statement){
                                    .sql = "SELECT expires_at FROM "
                                           "skirnir_lease WHERE slot = 0",
                                    .each_row = keep_time,
                                    .user = end},
                                NULL),
                     SKR_OK);
}

static size_t
read_share(struct fixture *fixture, const struct skr_store *table,
           const struct skr_assignment *share)
{
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    fixture->reader.at.mark.cursor = fixture->reader.at.mark.low = 0;
    if (table->source->read(
            use_reader(&fixture->reader, table, fixture->db),
            &(struct skr_read){.max_rows = 1000, .max_bytes = 1 << 20},
            &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    fixture->batch.lease.shards = share->shards;
    fixture->batch.lease.epochs = share->epochs;
    return fixture->batch.count;
}

static void
settle_as(struct fixture *fixture, const struct skr_store *table,
          enum skr_state state)
{
    struct skr_error error = {0};
    set_states(fixture, state);
    for (size_t i = 0; i < fixture->batch.count; i++)
        skr_fail(&fixture->batch.items[i].reason, SKR_REFUSED, SKR_GIVE_UP,
                 "the broker refuses it");
    if (table->settle->write(table, fixture->db, &fixture->batch, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
}

static void
test_a_slot_has_one_owner(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    struct skr_assignments shares = see(fixture, fixture->table);
    assert_int_equal(shares.ours.shards, 0);
    assert_true(shares.free.shards == all_slots);
    struct skr_assignment ours =
        take(fixture, fixture->table, (struct skr_assignment){.shards = 7});
    assert_int_equal(ours.shards, 7);
    assert_int_equal(ours.epochs, 3);
    // What is not free is not taken.
    struct skr_assignment theirs = take(fixture, other, everything);
    assert_true(theirs.shards == (all_slots & ~UINT64_C(7)));
    shares = see(fixture, fixture->table);
    assert_int_equal(shares.ours.shards, 7);
    assert_int_equal(shares.free.shards, 0);
    assert_int_equal(shares.others, 1);
    // By a clock of whole seconds.
    assert_in_range(shares.others_for_s, 1, LEASE_S);
    assert_int_equal(other->shards->give(other, fixture->db, &theirs, NULL),
                     SKR_OK);
    shares = see(fixture, fixture->table);
    assert_true(shares.free.shards == (all_slots & ~UINT64_C(7)));
    assert_int_equal(shares.others, 0);
    assert_int_equal(shares.others_for_s, 0);
    skr_store_free(other);
}

static void
test_a_lease_that_ran_out_is_anybodys_and_cannot_be_renewed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_store *other = make_divided(fixture, "outbox");
    const struct skr_store *table = fixture->table;
    struct skr_assignment ours = take(fixture, table, everything);
    assert_int_equal(
        table->shards->renew(table, fixture->db, &ours, &by_lease, NULL),
        SKR_OK);
    let_time_pass(fixture, 1);
    // No owner has come for it.
    assert_int_equal(
        table->shards->renew(table, fixture->db, &ours, &by_lease, NULL),
        SKR_OK);
    let_time_pass(fixture, 1);
    struct skr_assignment theirs =
        take(fixture, other, (struct skr_assignment){.shards = 1});
    assert_int_equal(theirs.shards, 1);
    assert_int_equal(theirs.epochs, 2);
    assert_int_equal(
        table->shards->renew(table, fixture->db, &ours, &by_lease, &error),
        SKR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "another relay has them"));
    skr_store_free(other);
}

static void
test_shares_are_of_one_queue(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "Outbox");
    take(fixture, fixture->table, everything);
    assert_true(see(fixture, other).free.shards == all_slots);
    skr_store_free(other);
}

// A hash that lets keys of one slot alone be read would do it: all rows come,
// and each to one owner.
static void
test_a_reader_is_given_its_share_and_no_other(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    add_keys(fixture, KEYS);
    for (int i = 0; i < KEYS; i++)
        insert_keyed(fixture->db, "", "free");
    insert_keyed(fixture->db, "  ", "blanks");
    assert_int_equal(read_share(fixture, fixture->table,
                                &(struct skr_assignment){.shards = 0}),
                     0);
    struct skr_assignment ours =
        take(fixture, fixture->table,
             (struct skr_assignment){.shards = all_slots & 0x5555555555555555});
    struct skr_assignment theirs = take(fixture, other, everything);
    size_t half = read_share(fixture, fixture->table, &ours);
    // By chance far fewer than this would be a wonder.
    assert_in_range(half, KEYS / 2, 2 * KEYS - KEYS / 2);
    settle_as(fixture, fixture->table, SKR_DONE);
    assert_int_equal(count_rows(fixture, "messenger_outbox"),
                     2 * KEYS + 1 - half);
    assert_int_equal(read_share(fixture, other, &theirs), 2 * KEYS + 1 - half);
    settle_as(fixture, other, SKR_DONE);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    skr_store_free(other);
}

// Stopped for longer than its lease, and going on as if nothing had been.
static void
test_a_late_settle_changes_nothing(void **state)
{
    static const enum skr_state states[] = {SKR_DONE, SKR_RETRY_LATER, SKR_DEAD,
                                            SKR_BLOCKED};
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    add_keys(fixture, 20);
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        struct skr_assignment ours = take(fixture, fixture->table, everything);
        assert_int_equal(read_share(fixture, fixture->table, &ours), 20);
        let_time_pass(fixture, 1);
        struct skr_assignment theirs =
            take(fixture, other, (struct skr_assignment){.shards = 1});
        settle_as(fixture, fixture->table, states[i]);
        assert_int_equal(count_rows(fixture, "messenger_outbox"), 20);
        assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
        assert_int_equal(
            skr_test_number(fixture->db,
                            "SELECT COUNT(*) FROM messenger_outbox WHERE "
                            "available_at > created_at"),
            0);
        assert_true(fixture->batch.items[0].lost);
        assert_int_equal(fixture->batch.items[0].state, SKR_READ);
        assert_int_equal(other->shards->give(other, fixture->db, &theirs, NULL),
                         SKR_OK);
        let_time_pass(fixture, 1);
    }
    skr_store_free(other);
}

#define LEASE_ENDS \
    "SELECT COUNT(*) FROM skirnir_lease WHERE slot < 60 AND expires_at = '%s'"

// As in a cluster: each settle changes the rows of all its slots, and no lease
// is shorter for it.
static void
test_a_fence_that_writes_changes_each_row(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    char before[20] = "", sql[160];
    for (int i = 0; i < 4; i++) {
        add_keys(fixture, 1);
        assert_int_equal(read_share(fixture, fixture->table, &ours), 1);
        fixture->batch.lease.write_s = LEASE_S;
        settle_as(fixture, fixture->table, SKR_DONE);
        assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
        snprintf(sql, sizeof(sql), LEASE_ENDS, before);
        if (i > 0)
            assert_int_equal(skr_test_number(fixture->db, sql), 0);
        find_first_end(fixture, before);
        assert_in_range(see(fixture, other).others_for_s, LEASE_S / 2,
                        LEASE_S + 1);
    }
    add_keys(fixture, 1);
    assert_int_equal(read_share(fixture, fixture->table, &ours), 1);
    fixture->batch.lease.write_s = LEASE_S;
    let_time_pass(fixture, 1);
    take(fixture, other, (struct skr_assignment){.shards = 1});
    settle_as(fixture, fixture->table, SKR_DONE);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 1);
    assert_true(fixture->batch.items[0].lost);
    skr_store_free(other);
}

// It was stopped in the middle of settling, and its session is still open.
static void
test_nobody_waits_for_rows_that_are_locked(void **state)
{
    struct fixture *fixture = *state;
    bool has_row_locks = skr_test_writes_side_by_side(fixture->db);
    struct skr_store *other = make_divided(fixture, "outbox");
    struct skr_db *frozen = skr_test_connect(&fixture->database);
    take(fixture, fixture->table, everything);
    let_time_pass(fixture, 1);
    // Without locks on rows it can be stopped with rows that it has read.
    assert_int_equal(
        skr_db_begin(
            frozen, has_row_locks ? SKR_BEGIN_WRITE : SKR_BEGIN_SNAPSHOT, NULL),
        SKR_OK);
    char sql[160];
    snprintf(sql, sizeof(sql),
             "SELECT slot FROM skirnir_lease WHERE queue_name = "
             "'outbox/messenger_outbox' AND slot IN (3, 4, 5)%s",
             has_row_locks ? " FOR UPDATE" : "");
    skr_test_run(frozen, sql);
    int64_t began_ms = skr_clock_ms();
    struct skr_assignment theirs = take(fixture, other, everything);
    assert_in_range(skr_clock_ms() - began_ms, 0, 2000);
    uint64_t locked = has_row_locks ? UINT64_C(0x38) : 0;
    assert_true(theirs.shards == (all_slots & ~locked));
    skr_db_rollback(frozen);
    assert_true(take(fixture, other, everything).shards == all_slots);
    skr_db_close(frozen);
    skr_store_free(other);
}

// It had lost them and has them again: what it sent before is not its any more.
static void
test_an_epoch_is_not_the_next_one(void **state)
{
    struct fixture *fixture = *state;
    add_keys(fixture, 20);
    struct skr_assignment before = take(fixture, fixture->table, everything);
    let_time_pass(fixture, 1);
    assert_int_equal(fixture->table->shards->give(fixture->table, fixture->db,
                                                  &before, NULL),
                     SKR_OK);
    struct skr_assignment again = take(fixture, fixture->table, everything);
    assert_true(again.shards == before.shards);
    assert_int_equal(again.epochs, before.epochs + SKR_SHARDS);
    assert_int_equal(read_share(fixture, fixture->table, &before), 20);
    settle_as(fixture, fixture->table, SKR_DONE);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 20);
}

static enum skr_liveness
live(const struct skr_store *table, struct skr_db *db)
{
    enum skr_liveness liveness = SKR_LIVES_ELSEWHERE;
    struct skr_error error = {0};
    if (table->shards->live(table, db, &liveness, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return liveness;
}

static struct skr_db *
live_anew(const struct fixture *fixture, const struct skr_store *table)
{
    struct skr_db *db = skr_test_connect(&fixture->database);
    assert_int_equal(live(table, db), SKR_LIVES_BY_LOCK);
    return db;
}

static bool
is_all_free(void *user)
{
    const struct fixture *fixture = user;
    return see(fixture, fixture->table).free.shards == all_slots;
}

// His leases would last.
static void
test_what_one_had_who_lived_by_a_lock_is_free_with_his_session(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    if (!skr_test_writes_side_by_side(fixture->db)) {
        // A file has no sessions that hold such locks.
        assert_int_equal(live(other, fixture->db), SKR_LIVES_BY_LEASES);
        skr_store_free(other);
        return;
    }
    struct skr_db *session = live_anew(fixture, other);
    struct skr_assignment theirs =
        take_for(fixture, other, everything, &by_lock);
    assert_true(theirs.shards == all_slots);
    struct skr_assignments shares = see(fixture, fixture->table);
    assert_int_equal(shares.free.shards, 0);
    assert_int_equal(shares.others, 1);
    assert_true(shares.others_by_lock);
    assert_int_equal(take(fixture, fixture->table, everything).shards, 0);
    skr_db_close(session);
    assert_true(skr_test_eventually(is_all_free, fixture, 10000));
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    assert_true(ours.shards == all_slots);
    assert_int_equal(ours.epochs, theirs.epochs + SKR_SHARDS);
    assert_false(see(fixture, fixture->table).others_by_lock);
    skr_store_free(other);
}

// Who lives by leases alone needs no session to be there.
static void
test_what_one_has_who_lives_by_leases_is_free_when_they_run_out(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_divided(fixture, "outbox");
    take(fixture, other, everything);
    struct skr_assignments shares = see(fixture, fixture->table);
    assert_int_equal(shares.free.shards, 0);
    assert_false(shares.others_by_lock);
    let_time_pass(fixture, 1);
    assert_true(is_all_free(fixture));
    skr_store_free(other);
}

struct revival {
    const struct skr_store *table;
    struct skr_db *db;
};

static bool
is_alive(void *user)
{
    const struct revival *revival = user;
    return live(revival->table, revival->db) == SKR_LIVES_BY_LOCK;
}

// The server may not have noticed yet that a connection is lost.
static void
test_an_owner_lives_in_one_session_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    struct skr_store *owner = make_divided(fixture, "outbox");
    struct skr_db *session = live_anew(fixture, owner);
    struct revival revival = {owner, fixture->db};
    assert_false(is_alive(&revival));
    skr_db_close(session);
    assert_true(skr_test_eventually(is_alive, &revival, 10000));
    skr_store_free(owner);
}

static void
test_a_batch_costs_two_statements_to_read_and_two_to_settle(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_db_ops *counting =
        skr_faulty_database(fixture->database.ops);
    struct skr_db *real = fixture->db;
    struct skr_error error = {0};
    if (skr_db_open(counting, fixture->database.url, &fixture->db, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    const struct skr_read read = {.max_rows = 250, .max_bytes = 1 << 20};
    for (int i = 0; i < 10; i++)
        add_keys(fixture, KEYS);
    size_t before = 0;
    for (int i = 0; i < 4; i++) {
        // The first looks around: what is there, and by which indexes.
        before = skr_faulty_runs();
        assert_int_equal(read_with(fixture, &read), 250);
        if (i > 0)
            assert_in_range(skr_faulty_runs() - before, 1, 3);
        fixture->batch.lease.shards = ours.shards;
        fixture->batch.lease.epochs = ours.epochs;
        before = skr_faulty_runs();
        settle_as(fixture, fixture->table, SKR_DONE);
        // And the begin of a transaction; and, where ids may be given twice, a
        // look whether the rows are those that were read.
        assert_int_equal(
            skr_faulty_runs() - before,
            3 + (skr_identity_is_unsure(skr_db_dialect(real)) ? 1 : 0));
    }
    skr_db_close(fixture->db);
    fixture->db = real;
}

static int
see_alone(const struct fixture *fixture)
{
    struct skr_store *table = make_divided(fixture, "outbox");
    struct skr_db *db = skr_test_connect(&fixture->database);
    struct skr_error error = {0};
    struct skr_assignments shares;
    enum skr_code code = skr_store_create(table, db, &error);
    if (code == SKR_OK)
        code = table->shards->see(table, db, &shares, &error);
    if (code == SKR_OK)
        code = table->shards->take(table, db, &everything, &by_lease, &error);
    if (code == SKR_OK)
        code = table->shards->see(table, db, &shares, &error);
    skr_db_close(db);
    skr_store_free(table);
    if (code != SKR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    return 0;
}

static void
test_tables_and_rows_are_made_by_many_at_once(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db, "DROP TABLE skirnir_lease");
    run_in_processes(PROCESSES, see_alone, fixture);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM skirnir_lease"),
        SKR_SHARDS + SKR_MEMBERS);
    // Each has an owner, and an epoch is one who took it.
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM skirnir_lease WHERE "
                                     "slot < 60 AND owner <> '' AND epoch = 1"),
                     SKR_SHARDS);
}

static void
test_rows_that_somebody_removed_are_made_again(void **state)
{
    struct fixture *fixture = *state;
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    skr_test_run(fixture->db, "DELETE FROM skirnir_lease WHERE slot < 30");
    struct skr_assignments shares = see(fixture, fixture->table);
    assert_true(shares.free.shards == (UINT64_C(1) << 30) - 1);
    assert_true(shares.ours.shards == (ours.shards & ~shares.free.shards));
}

static void
test_a_missing_table_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    skr_test_run(fixture->db, "DROP TABLE skirnir_lease");
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "skirnir_lease"));
    assert_non_null(strstr(error.text, "skirnir setup"));
}

// ------------------------------------------------------- queues without order

enum { BLOCK = 256 };

static struct skr_store *
make_plain(const struct fixture *fixture)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_sharded = true;
    return make_table_by(&options);
}

static int
set_up_plain(void **state)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    skr_store_free(fixture->table);
    fixture->table = make_plain(fixture);
    skr_batch_fini(&fixture->batch);
    assert_int_equal(skr_batch_init(&fixture->batch, 1000, NULL), SKR_OK);
    start(fixture);
    return 0;
}

static void
insert_at(const struct fixture *fixture, int64_t id, int delay_s)
{
    const struct skr_value values[] = {
        skr_bind_integer(id), skr_bind_text("{}"), skr_bind_text(HEADERS),
        skr_bind_integer(delay_s)};
    skr_test_run_template(fixture->db,
                          "INSERT INTO messenger_outbox (id, body, headers, "
                          "queue_name, created_at, available_at) "
                          "VALUES (?, ?, ?, 'outbox', {now}, {now_plus})",
                          values, SKR_COUNT_OF(values));
}

static bool
was_given(const struct fixture *fixture, int64_t row)
{
    for (size_t i = 0; i < fixture->batch.count; i++)
        if (fixture->batch.items[i].row == row)
            return true;
    return false;
}

static void
test_a_block_of_ids_is_one_owners(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_plain(fixture);
    const uint64_t half = all_slots & 0x5555555555555555;
    // The first and the last of each; MariaDB and MySQL give no id of 0.
    for (int64_t block = -65; block < 65; block++) {
        if (block != 0)
            insert_at(fixture, block * BLOCK, 0);
        insert_at(fixture, block * BLOCK + BLOCK - 1, 0);
    }
    struct skr_assignment ours =
        take(fixture, fixture->table, (struct skr_assignment){.shards = half});
    struct skr_assignment theirs = take(fixture, other, everything);
    size_t first = read_share(fixture, fixture->table, &ours);
    for (int64_t block = -65; block < 65; block++) {
        bool is_ours = was_given(fixture, block * BLOCK + BLOCK - 1);
        if (block != 0)
            assert_int_equal(was_given(fixture, block * BLOCK), is_ours);
        if (block >= 0)
            assert_int_equal(is_ours, half >> (block % SKR_SHARDS) & 1);
    }
    settle_as(fixture, fixture->table, SKR_DONE);
    assert_int_equal(read_share(fixture, other, &theirs), 2 * 130 - 1 - first);
    settle_as(fixture, other, SKR_DONE);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    skr_store_free(other);
}

struct due_rows {
    struct fixture *fixture;
    size_t wanted;
};

static bool
are_given(void *user)
{
    const struct due_rows *due = user;
    return read_rows(due->fixture) == due->wanted;
}

// By a full scan, by their time, by their place beyond the cursor or behind it,
// and by name.
static void
test_whatever_leads_to_a_row_it_is_of_the_share(void **state)
{
    struct fixture *fixture = *state;
    struct skr_assignment ours =
        take(fixture, fixture->table, (struct skr_assignment){.shards = 2});
    const int64_t mine = BLOCK, another = 2 * BLOCK, beyond = 61 * BLOCK;
    insert_at(fixture, mine + 1, 0);
    insert_at(fixture, another + 1, 0);
    insert_at(fixture, mine + 2, 3);
    insert_at(fixture, another + 2, 3);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, mine + 1);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    struct due_rows due = {fixture, 1};
    assert_true(skr_test_eventually(are_given, &due, 10000));
    assert_int_equal(fixture->batch.items[0].row, mine + 2);
    // Beyond the cursor.
    insert_at(fixture, beyond, 0);
    insert_at(fixture, beyond + BLOCK, 0);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, beyond);
    // Behind it, as what commits late, and by a full scan.
    if (skr_test_writes_side_by_side(fixture->db)) {
        fixture->reader.at.mark.low = 1;
        insert_at(fixture, mine + 3, 0);
        insert_at(fixture, another + 3, 0);
        const int64_t known[] = {mine + 2, beyond};
        assert_int_equal(
            read_with(fixture, &(struct skr_read){.max_rows = 1000,
                                                  .max_bytes = 1 << 20,
                                                  .in_flight = known,
                                                  .in_flight_count = 2}),
            1);
        assert_int_equal(fixture->batch.items[0].row, mine + 3);
        skr_test_run(fixture->db, "DELETE FROM messenger_outbox WHERE id IN "
                                  "(259, 515)");
    }
    // What is another's takes no room, although it comes first.
    for (int64_t id = 1; id < 10; id++)
        insert_at(fixture, id, 0);
    fixture->reader.at.next_full_scan_ms = 1;
    assert_int_equal(
        read_with(fixture,
                  &(struct skr_read){.max_rows = 1, .max_bytes = 1 << 20}),
        1);
    assert_int_equal(fixture->batch.items[0].row, mine + 2);
    fixture->reader.at.scan_until[0] = '\0';
    fixture->reader.at.next_full_scan_ms = 1;
    assert_int_equal(read_rows(fixture), 2);
    assert_int_equal(fixture->batch.items[0].row, mine + 2);
    assert_int_equal(fixture->batch.items[1].row, beyond);
    const int64_t only[] = {mine + 2, another + 2};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            read_with(fixture, &(struct skr_read){.max_rows = 1,
                                                  .max_bytes = 1 << 20,
                                                  .only = &only[i]}),
            i == 0 ? 1 : 0);
    assert_int_equal(ours.shards, 2);
}

// What is published may go, whichever relay has the shard by now; all else is
// for its next owner.
static void
test_a_late_settle_of_a_plain_queue_deletes_and_nothing_else(void **state)
{
    static const enum skr_state states[] = {SKR_DONE, SKR_RETRY_LATER,
                                            SKR_DEAD};
    struct fixture *fixture = *state;
    struct skr_store *other = make_plain(fixture);
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
        fixture->reader.at = (struct skr_cursor){0};
        insert_many(fixture, 3);
        struct skr_assignment ours = take(fixture, fixture->table, everything);
        assert_int_equal(read_share(fixture, fixture->table, &ours), 3);
        let_time_pass(fixture, 1);
        struct skr_assignment theirs =
            take(fixture, other, (struct skr_assignment){.shards = 1});
        set_states(fixture, SKR_DONE);
        fixture->batch.items[1].state = states[i];
        skr_fail(&fixture->batch.items[1].reason, SKR_REFUSED, SKR_GIVE_UP,
                 "the broker refuses it");
        settle(fixture);
        assert_int_equal(fixture->batch.items[1].lost, states[i] != SKR_DONE);
        assert_int_equal(count_rows(fixture, "messenger_outbox"),
                         states[i] == SKR_DONE ? 0 : 1);
        assert_int_equal(
            skr_test_number(fixture->db,
                            "SELECT COUNT(*) FROM messenger_outbox WHERE "
                            "available_at > created_at OR headers LIKE "
                            "'%refuses%'"),
            0);
        assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
        assert_int_equal(other->shards->give(other, fixture->db, &theirs, NULL),
                         SKR_OK);
        let_time_pass(fixture, 1);
    }
    // Whose shard it is may say so.
    insert_many(fixture, 2);
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    skr_test_run(fixture->db, "DELETE FROM messenger_messages");
    fixture->reader.at = (struct skr_cursor){0};
    size_t count = read_share(fixture, fixture->table, &ours);
    settle_as(fixture, fixture->table, SKR_DEAD);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    assert_int_equal(count_rows(fixture, "messenger_messages"), count);
    skr_store_free(other);
}

static void
test_what_is_done_costs_a_plain_queue_one_statement(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_db_ops *counting =
        skr_faulty_database(fixture->database.ops);
    struct skr_db *real = fixture->db;
    struct skr_error error = {0};
    if (skr_db_open(counting, fixture->database.url, &fixture->db, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
    struct skr_assignment ours = take(fixture, fixture->table, everything);
    insert_many(fixture, 200);
    assert_int_equal(read_share(fixture, fixture->table, &ours), 200);
    size_t before = skr_faulty_runs();
    settle_as(fixture, fixture->table, SKR_DONE);
    // Where ids may be given twice: a transaction, and a look whether the rows
    // are those that were read.
    assert_int_equal(skr_faulty_runs() - before,
                     skr_identity_is_unsure(skr_db_dialect(real)) ? 3 : 1);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    skr_db_close(fixture->db);
    fixture->db = real;
}

// Where rows come from tells when the next one may: its shard is chance.
static void
test_rows_of_other_shards_set_the_pace(void **state)
{
    struct fixture *fixture = *state;
    take(fixture, fixture->table, (struct skr_assignment){.shards = 2});
    insert_at(fixture, 2 * BLOCK, 0);
    assert_int_equal(read_rows(fixture), 0);
    fixture->db->found_rows = false;
    assert_int_equal(read_rows(fixture), 0);
    assert_false(fixture->db->found_rows);
    insert_at(fixture, 2 * BLOCK + 1, 0);
    fixture->reader.at.next_tail_ms = 0;
    assert_int_equal(read_rows(fixture), 0);
    assert_true(fixture->db->found_rows);
}

static void
test_owners_of_blocks_and_owners_of_keys_take_nothing_together(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *plain = make_plain(fixture);
    struct skr_assignment ours =
        take(fixture, fixture->table, (struct skr_assignment){.shards = 1});
    assert_int_equal(ours.shards, 1);
    assert_int_equal(take(fixture, plain, everything).shards, 0);
    assert_true(see(fixture, plain).has_other_kind);
    assert_false(see(fixture, fixture->table).has_other_kind);
    assert_int_equal(
        fixture->table->shards->give(fixture->table, fixture->db, &ours, NULL),
        SKR_OK);
    assert_false(see(fixture, plain).has_other_kind);
    assert_true(take(fixture, plain, everything).shards == all_slots);
    assert_true(see(fixture, fixture->table).has_other_kind);
    assert_int_equal(take(fixture, fixture->table, everything).members, 0);
    let_time_pass(fixture, 1);
    assert_true(take(fixture, fixture->table, everything).shards == all_slots);
    skr_store_free(plain);
}

#define PLAIN(test) \
    cmocka_unit_test_setup_teardown(test, set_up_plain, tear_down)
#define DIVIDED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_divided, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        DIVIDED(test_a_slot_has_one_owner),
        DIVIDED(test_a_lease_that_ran_out_is_anybodys_and_cannot_be_renewed),
        DIVIDED(test_shares_are_of_one_queue),
        DIVIDED(test_a_reader_is_given_its_share_and_no_other),
        DIVIDED(test_a_late_settle_changes_nothing),
        DIVIDED(test_a_fence_that_writes_changes_each_row),
        DIVIDED(test_nobody_waits_for_rows_that_are_locked),
        DIVIDED(test_an_epoch_is_not_the_next_one),
        DIVIDED(test_what_one_had_who_lived_by_a_lock_is_free_with_his_session),
        DIVIDED(
            test_what_one_has_who_lives_by_leases_is_free_when_they_run_out),
        DIVIDED(test_an_owner_lives_in_one_session_at_a_time),
        DIVIDED(test_a_batch_costs_two_statements_to_read_and_two_to_settle),
        DIVIDED(test_tables_and_rows_are_made_by_many_at_once),
        DIVIDED(test_rows_that_somebody_removed_are_made_again),
        DIVIDED(test_a_missing_table_is_named),
        DIVIDED(test_owners_of_blocks_and_owners_of_keys_take_nothing_together),
        PLAIN(test_a_block_of_ids_is_one_owners),
        PLAIN(test_whatever_leads_to_a_row_it_is_of_the_share),
        PLAIN(test_a_late_settle_of_a_plain_queue_deletes_and_nothing_else),
        PLAIN(test_what_is_done_costs_a_plain_queue_one_statement),
        PLAIN(test_rows_of_other_shards_set_the_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
