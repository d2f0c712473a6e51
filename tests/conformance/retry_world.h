// SPDX-License-Identifier: MIT
// A consumer on a broker that can neither delay nor count: what waits for its
// retry does so in a table.

#ifndef SKR_TEST_RETRY_WORLD_H
#define SKR_TEST_RETRY_WORLD_H

#include "consumer_world.h"
#include "support/fake_queue.h"
#include "support/faulty_database.h"

static struct skr_fake_queue *fake;

static inline int
retry_world_set_up(void **state)
{
    consumer_world_set_up(state);
    struct world *world = *state;
    fake = skr_fake_queue_new();
    world->options.broker = &skr_fake_queue_broker;
    world->options.broker_url = "fake://shop";
    world->options.queue_database = NULL;
    world->options.queue_database_url = NULL;
    world->options.retry_broker = &skr_queue_broker;
    return 0;
}

static inline int
retry_world_tear_down(void **state)
{
    skr_fake_queue_free(fake);
    return consumer_world_tear_down(state);
}

// Messages whose body is their number, and whose id is made of it.
static inline void
send(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        char headers[200], body[32];
        snprintf(headers, sizeof(headers),
                 "{\"type\":\"order.placed\",\"X-Message-Id\":"
                 "\"01890a5d-ac96-774b-bcce-%012zu\"}",
                 i);
        snprintf(body, sizeof(body), "%zu", i);
        skr_fake_queue_add(fake, headers, body, NULL);
    }
}

static inline bool
has_nothing_waiting(void *user)
{
    (void)user;
    return skr_fake_queue_waiting(fake) == 0;
}

static inline int64_t
retry_rows(struct world *world)
{
    return skr_test_number(world->db,
                           "SELECT COUNT(*) FROM messenger_messages WHERE "
                           "queue_name = 'shop.retry'");
}

static inline int64_t
rows_of_failures(struct world *world)
{
    return failed_rows(world) - retry_rows(world);
}

static inline int64_t
attempt_rows(struct world *world)
{
    return skr_test_number(world->db, "SELECT COUNT(*) FROM skirnir_attempt");
}

static inline int64_t
effect_rows(struct world *world)
{
    return skr_test_number(world->db, "SELECT COUNT(*) FROM effects");
}

static inline void
make_rows_due(struct world *world)
{
    skr_test_run(world->db, "UPDATE messenger_messages SET available_at = "
                            "created_at WHERE queue_name = 'shop.retry'");
}

static inline enum skr_verdict
always_retry_chosen(const struct skr_delivery *delivery, struct skr_tx tx,
                    void *user, struct skr_error *reason)
{
    struct world *world = user;
    if (!is_chosen(world, delivery))
        return add_effect(delivery, tx, reason);
    world->last_attempt = delivery->attempt;
    snprintf(reason->text, sizeof(reason->text), "no stock of apples");
    return SKR_RETRY;
}

// As a consumer that dies after it has stored a row, and before the broker has
// heard of it.
static inline void
lose_next_settle(void)
{
    pthread_mutex_lock(&fake->lock);
    fake->settles_to_lose = 1;
    pthread_mutex_unlock(&fake->lock);
}

#define TEST(name)                                            \
    cmocka_unit_test_setup_teardown(name, retry_world_set_up, \
                                    retry_world_tear_down)

#endif
