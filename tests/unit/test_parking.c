// SPDX-License-Identifier: MIT
// Parking by itself: batches that find no room are all kept and tried again,
// and nothing is settled for a relay that owns nothing.

#include "base/clock.h"
#include "relay/parking.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 3, DEADLINE_MS = 20000 };

struct world {
    struct skr_parking parking;
    struct skr_ownership *ownership;
    struct skr_log log;
    struct skr_job jobs[JOBS];
    int troubles, recoveries;
};

static void
note(void *user, enum skr_log_level level, const char *event,
     const struct skr_log_field *fields, size_t count)
{
    struct world *world = user;
    (void)level;
    (void)fields;
    (void)count;
    world->troubles += strcmp(event, "relay.settle_trouble") == 0;
    world->recoveries += strcmp(event, "relay.settle_recovered") == 0;
}

static int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->log = (struct skr_log){.write = note, .user = world};
    world->parking.name = "outbox";
    world->parking.log = &world->log;
    world->parking.park_ms = 1;
    assert_int_equal(skr_parking_init(&world->parking, NULL), SKR_OK);
    assert_int_equal(
        skr_ownership_new(&(struct skr_ownership_options){.name = "outbox"},
                          &world->ownership, NULL),
        SKR_OK);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(skr_batch_init(&world->jobs[i].batch, 1, NULL),
                         SKR_OK);
    *state = world;
    return 0;
}

static int
tear_down(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < JOBS; i++)
        skr_batch_fini(&world->jobs[i].batch);
    skr_ownership_free(world->ownership);
    skr_parking_fini(&world->parking);
    free(world);
    return 0;
}

// A batch of one row, which is published and was refused, or was not.
static struct skr_job *
settle(struct world *world, int job, int64_t row, bool is_refused)
{
    struct skr_batch *batch = &world->jobs[job].batch;
    batch->count = 1;
    batch->items[0] = (struct skr_batch_item){
        .row = row,
        .state = SKR_DONE,
        .write = is_refused ? SKR_WRITE_REFUSED : SKR_WRITE_DONE,
        .refusal = is_refused ? "no" : NULL,
    };
    return &world->jobs[job];
}

static void
park_all_there_is_room_for(struct world *world)
{
    for (int64_t row = 1; row <= SKR_MOST_PARKED_PUBLISHED; row++)
        assert_true(
            skr_parking_take(&world->parking, settle(world, 0, row, true)));
}

static struct skr_job *
wait_for_job(struct world *world)
{
    struct skr_job *job = NULL;
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (job == NULL && skr_clock_ms() < end_ms)
        job = skr_parking_next_job(&world->parking, world->ownership, true);
    return job;
}

static void
test_every_batch_without_room_is_tried_again(void **state)
{
    struct world *world = *state;
    bool is_back[JOBS] = {false};
    park_all_there_is_room_for(world);
    for (int i = 0; i < JOBS; i++)
        assert_false(skr_parking_take(&world->parking,
                                      settle(world, i, 10000 + i, true)));
    assert_true(skr_parking_has_waiting(&world->parking));
    for (int i = 0; i < JOBS; i++) {
        struct skr_job *job = wait_for_job(world);
        assert_non_null(job);
        is_back[job - world->jobs] = true;
        // Whether its rows are those that were read is asked from now on.
        assert_true(job->batch.is_late);
        assert_int_equal(job->batch.items[0].write, SKR_WRITE_WHOLE);
    }
    for (int i = 0; i < JOBS; i++)
        assert_true(is_back[i]);
    assert_false(skr_parking_has_waiting(&world->parking));
}

static void
test_the_trouble_is_over_when_all_of_them_are_settled(void **state)
{
    struct world *world = *state;
    park_all_there_is_room_for(world);
    for (int i = 0; i < 2; i++)
        assert_false(skr_parking_take(&world->parking,
                                      settle(world, i, 10000 + i, true)));
    assert_int_equal(world->troubles, 1);
    // A batch of which nothing was refused proves nothing.
    assert_true(skr_parking_take(&world->parking, settle(world, 2, 5, false)));
    assert_int_equal(world->recoveries, 0);
    for (int i = 0; i < 2; i++)
        assert_non_null(wait_for_job(world));
    for (int i = 0; i < 2; i++)
        assert_true(skr_parking_take(&world->parking,
                                     settle(world, i, 10000 + i, false)));
    assert_int_equal(world->recoveries, 1);
}

static void
test_without_a_session_no_parked_row_is_settled(void **state)
{
    struct world *world = *state;
    assert_true(skr_parking_take(&world->parking, settle(world, 0, 1, true)));
    int64_t due_ms = skr_parked_due_ms(&world->parking.parked);
    assert_true(due_ms > 0);
    while (skr_clock_ms() <= due_ms)
        ;
    // The session would sleep for no time, again and again.
    assert_int_equal(
        skr_parking_next_job_ms(&world->parking, world->ownership, false), 0);
    assert_null(skr_parking_next_job(&world->parking, world->ownership, false));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_batch_without_room_is_tried_again),
        TEST(test_the_trouble_is_over_when_all_of_them_are_settled),
        TEST(test_without_a_session_no_parked_row_is_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
