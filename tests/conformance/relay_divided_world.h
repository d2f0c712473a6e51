// SPDX-License-Identifier: MIT
// Relays that divide a queue's shards among themselves, each an owner of its
// own.

#ifndef SKR_TESTS_RELAY_DIVIDED_WORLD_H
#define SKR_TESTS_RELAY_DIVIDED_WORLD_H

#include "conformance/relay_ordered_world.h"
#include "support/faulty_database.h"

enum { MOST_RELAYS = 4, LEASE_MS = 3000 };

// Each relay is an owner of its own, as in a process of its own.
struct member {
    struct skr_store *table;
    struct skr_relay_settings options;
    struct skr_relay_tally tally;
    struct skr_relay *relay;
    pthread_t thread;
};

static inline struct skr_store *
make_scanned(const struct fixture *fixture, bool is_ordered,
             enum skr_claim claim, uint32_t full_scan_ms)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.full_scan_ms = full_scan_ms;
    options.is_ordered = is_ordered;
    options.is_sharded = claim == SKR_CLAIM_SHARDS;
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    if (skr_messenger_new(&options, &table, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return table;
}

static inline struct skr_store *
make_messenger(const struct fixture *fixture, bool is_ordered,
               enum skr_claim claim)
{
    return make_scanned(fixture, is_ordered, claim, 500);
}

// Of the queue as the fixture's table is.
static inline struct skr_store *
make_owner(const struct fixture *fixture)
{
    return make_messenger(fixture, fixture->table->partitions != NULL,
                          SKR_CLAIM_SHARDS);
}

static inline int
set_up_shards(void **state, bool is_ordered)
{
    set_up_as(state, is_ordered);
    struct fixture *fixture = *state;
    struct skr_store *owner = make_owner(fixture);
    skr_store_free(fixture->table);
    fixture->table = owner;
    fixture->options.table = fixture->table;
    fixture->options.claim = SKR_CLAIM_SHARDS;
    fixture->options.lease_ms = LEASE_MS;
    fixture->options.blocks_partitions = true;
    fixture->options.in_flight = 60;
    struct skr_error error = {0};
    if (skr_store_create(fixture->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return 0;
}

static inline void
join_with(struct fixture *fixture, struct member *member,
          struct skr_store *table, enum skr_claim claim)
{
    struct skr_error error = {0};
    memset(&member->tally, 0, sizeof(member->tally));
    member->table = table;
    member->options = fixture->options;
    member->options.tally = &member->tally;
    member->options.claim = claim;
    member->options.table = member->table;
    if (skr_relay_make(&member->options, &member->relay, &error) != SKR_OK)
        fail_msg("%s", error.text);
    pthread_create(&member->thread, NULL, run_relay, member->relay);
}

static inline void
join_in(struct fixture *fixture, struct member *member)
{
    join_with(fixture, member, make_owner(fixture), SKR_CLAIM_SHARDS);
}

static inline void
leave(struct member *member)
{
    skr_relay_stop(member->relay);
    pthread_join(member->thread, NULL);
    skr_relay_free(member->relay);
    skr_store_free(member->table);
}

struct wanted {
    struct fixture *fixture;
    int owners;  // that have the same number of slots each
};

static inline bool
is_even(void *user)
{
    const struct wanted *wanted = user;
    char sql[256];
    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM (SELECT owner FROM skirnir_lease WHERE "
             "slot < 60 AND owner <> '' GROUP BY owner HAVING COUNT(*) = %d) "
             "AS shares",
             SKR_SHARDS / wanted->owners);
    return skr_test_number(wanted->fixture->db, sql) == wanted->owners;
}

static inline bool
eventually_even(struct fixture *fixture, int owners)
{
    struct wanted wanted = {fixture, owners};
    return skr_test_eventually(is_even, &wanted, WAIT_MS);
}

static inline bool
has_trouble(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->troubles, __ATOMIC_ACQUIRE) > 0;
}

static inline bool
has_standby(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->standbys, __ATOMIC_RELAXED) > 0;
}

static inline void
test_relays_come_and_go_and_the_order_holds(void **state)
{
    struct fixture *fixture = *state;
    struct member members[3];
    join_in(fixture, &members[0]);
    insert_keys(fixture, 40, 0, 20);
    assert_true(eventually_even(fixture, 1));
    join_in(fixture, &members[1]);
    insert_keys(fixture, 40, 20, 40);
    assert_true(eventually_even(fixture, 2));
    join_in(fixture, &members[2]);
    insert_keys(fixture, 40, 40, 60);
    assert_true(eventually_even(fixture, 3));
    leave(&members[0]);
    insert_keys(fixture, 40, 60, 80);
    assert_true(eventually_even(fixture, 2));
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&members[1]);
    leave(&members[2]);
    judge(fixture, 40, 80);
    // No relay died: nothing came twice.
    assert_int_equal(fixture->fake.got_count, 40 * 80);
    assert_int_equal(fixture->troubles, 0);
}

static inline void
test_order_holds_whatever_the_broker_does(void **state)
{
    struct fixture *fixture = *state;
    struct member members[MOST_RELAYS];
    unsigned seed = (unsigned)skr_clock_wall_us();
    print_message("seed %u\n", seed);
    fixture->fake.result = misbehave;
    fixture->fake.user = &seed;
    fixture->options.retry.max_retries = 100;
    insert_keys(fixture, 30, 0, 20);
    for (int i = 0; i < MOST_RELAYS; i++)
        join_in(fixture, &members[i]);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, 60000));
    for (int i = 0; i < MOST_RELAYS; i++)
        leave(&members[i]);
    judge(fixture, 30, 20);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

#endif
