// SPDX-License-Identifier: MIT
// What the suites of relays on ordered outboxes share: messages that are
// numbered within their partition, a judge of their order, and a broker that
// misbehaves.

#ifndef SKR_TEST_RELAY_ORDERED_WORLD_H
#define SKR_TEST_RELAY_ORDERED_WORLD_H

#include "base/arena.h"
#include "conformance/relay_world.h"
#include "db/sql.h"

static inline void
insert_on(struct skr_db *db, const char *key, const char *body, int delay_s)
{
    const struct skr_value values[] = {
        skr_bind_text(body), skr_bind_text("{\"type\":\"order.placed\"}"),
        skr_bind_text(key), skr_bind_integer(delay_s)};
    skr_test_run_template(db,
                          delay_s == 0
                              ? "INSERT INTO messenger_outbox (body, headers, "
                                "queue_name, partition_key, created_at, "
                                "available_at) VALUES (?, ?, 'outbox', ?, "
                                "{now}, {now})"
                              : "INSERT INTO messenger_outbox (body, headers, "
                                "queue_name, partition_key, created_at, "
                                "available_at) VALUES (?, ?, 'outbox', ?, "
                                "{now}, {now_plus})",
                          values, delay_s == 0 ? 3 : 4);
}

static inline void
insert_keyed(struct fixture *fixture, const char *key, int number)
{
    char body[64];
    snprintf(body, sizeof(body), "%s:%d", key, number);
    insert_on(fixture->db, key, body, 0);
}

// Messages 0 to each - 1 of keys "k0", "k1", ..., by turns.
static inline void
insert_keys(struct fixture *fixture, int keys, int from, int to)
{
    char key[16];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int number = from; number < to; number++)
        for (int i = 0; i < keys; i++) {
            snprintf(key, sizeof(key), "k%d", i);
            insert_keyed(fixture, key, number);
        }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static inline int
number_of(const struct skr_fake_message *message)
{
    return atoi(strchr(message->body, ':') + 1);
}

static inline bool
is_of(const struct skr_fake_message *message, const char *key)
{
    size_t size = strlen(key);
    return strncmp(message->body, key, size) == 0 && message->body[size] == ':';
}

// First occurrences of a key are 0, 1, 2, ...: none is lost, none comes early.
// Gives how many there are.
static inline int
judge_key(const struct skr_fake *fake, const char *key)
{
    int next = 0;
    for (size_t i = 0; i < fake->got_count; i++) {
        if (!is_of(&fake->got[i], key))
            continue;
        int number = number_of(&fake->got[i]);
        if (number > next)
            fail_msg("%s:%d came when %d was expected", key, number, next);
        next += number == next;
    }
    return next;
}

static inline void
judge(const struct fixture *fixture, int keys, int each)
{
    char key[16];
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(judge_key(&fixture->fake, key), each);
    }
}

static inline enum skr_publish_result
misbehave(const struct skr_fake_message *message, size_t count, void *user)
{
    unsigned *seed = user;
    (void)message;
    if (count > 3)
        return SKR_CONFIRMED;
    int kind = rand_r(seed) % 100;
    return kind < 4   ? SKR_REFUSED_FOR_NOW
           : kind < 5 ? SKR_UNCERTAIN
           : kind < 6 ? SKR_ROUTE_UNAVAILABLE
                      : SKR_CONFIRMED;
}

static inline enum skr_publish_result
refuse_k1_5_for_good(const struct skr_fake_message *message, size_t count,
                     void *user)
{
    const bool *is_mended = user;
    (void)count;
    return strcmp(message->body, "k1:5") == 0 &&
                   !__atomic_load_n(is_mended, __ATOMIC_RELAXED)
               ? SKR_REFUSED_FOR_GOOD
               : SKR_CONFIRMED;
}

static inline bool
others_are_through(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS " WHERE partition_key <> 'k1'") ==
           0;
}

#define HEAD_IS_BLOCKED                                           \
    ROWS " WHERE body = 'k1:5' AND partition_key = 'k1' AND "     \
         "available_at = '9999-12-31 23:59:59' AND headers LIKE " \
         "'%refuses%'"

static inline bool
is_blocked(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, HEAD_IS_BLOCKED) == 1 &&
           others_are_through(user);
}

static inline struct skr_db *
begin_beside(const struct fixture *fixture)
{
    struct skr_db *db = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    return db;
}

struct wanted_count {
    struct fixture *fixture;
    size_t count;
};

static inline bool
got_so_many(void *user)
{
    const struct wanted_count *wanted = user;
    return skr_fake_got(&wanted->fixture->fake) >= wanted->count;
}

static inline void
wait_for_count(struct fixture *fixture, size_t count)
{
    struct wanted_count wanted = {fixture, count};
    if (skr_test_eventually(got_so_many, &wanted, WAIT_MS))
        return;
    stop(fixture);
    fail_msg("%zu messages came, not %zu", fixture->fake.got_count, count);
}

// While the broker is silent a relay writes nothing, so that no transaction
// ends after the youngest that is open has begun to write. That one has the
// first message of a key, and the second follows its commit at once. Full scans
// are to be rare here: they would find what was passed.
static inline void
check_youngest_is_not_passed(struct fixture *fixture)
{
    enum { WHILE_MS = 600 };  // several looks at open transactions
    skr_fake_hold_back(&fixture->fake, true);
    start(fixture);
    insert_on(fixture->db, "other", "other:0", 0);
    wait_for_count(fixture, 1);
    struct skr_db *older = begin_beside(fixture);
    insert_on(older, "another", "another:0", 0);
    struct skr_db *youngest = begin_beside(fixture);
    insert_on(youngest, "k0", "k0:0", 0);
    insert_on(older, "further", "further:0", 0);
    assert_int_equal(skr_db_commit(older, NULL), SKR_OK);
    wait_for_count(fixture, 3);
    skr_clock_sleep(-1, WHILE_MS);
    assert_int_equal(skr_db_commit(youngest, NULL), SKR_OK);
    insert_on(fixture->db, "k0", "k0:1", 0);
    wait_for_count(fixture, 4);
    skr_fake_hold_back(&fixture->fake, false);
    stop(fixture);
    assert_true(judge_key(&fixture->fake, "k0") > 0);
    skr_db_close(older);
    skr_db_close(youngest);
}

static inline void *
run_relay(void *user)
{
    struct skr_error error = {0};
    if (skr_relay_run(user, &error) != SKR_STOPPED)
        fail_msg("%s", error.text);
    return NULL;
}

#endif
