// SPDX-License-Identifier: MIT
// The settler on a table that refuses rows: batches that find no room to be
// parked are all kept and tried again, and nothing is settled for a relay that
// owns nothing.

#include "base/clock.h"
#include "relay/ownership.h"
#include "relay/settler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 3, DEADLINE_MS = 20000, FREE_ROW = 5000, FIRST_ROW = 10000 };

struct world {
    struct skr_store table;  // the first member
    atomic_bool is_mended;   // else every row but FREE_ROW is refused
    atomic_int writes;
    bool is_again[JOBS];  // settled once more, as the settler's thread found

    struct skr_settler *settler;
    struct skr_parked parked;
    struct skr_relay_tally tally;
    struct skr_ownership *ownership;
    struct skr_beat beat;
    struct skr_relay_settings settings;
    struct skr_job jobs[JOBS];
    struct skr_job many;  // as many rows as can be parked
    atomic_int troubles, recoveries;
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

static enum skr_code
open_nothing(struct skr_db *db, const struct skr_url *url,
             struct skr_error *error)
{
    (void)db;
    (void)url;
    (void)error;
    return SKR_OK;
}

static void
close_nothing(struct skr_db *db)
{
    (void)db;
}

static const struct skr_db_ops database = {
    .scheme = "none",
    .size = sizeof(struct skr_db),
    .open = open_nothing,
    .close = close_nothing,
    .plan_by_index = skr_db_plan_nothing,
};

static enum skr_code
write_rows(const struct skr_store *table, struct skr_db *db,
           struct skr_batch *batch, struct skr_error *error)
{
    struct world *world = (struct world *)(uintptr_t)table;
    (void)db;
    (void)error;
    for (size_t i = 0; i < batch->count; i++) {
        struct skr_batch_item *item = &batch->items[i];
        // Whether its rows are those that were read is asked from now on.
        if (item->row >= FIRST_ROW && batch->is_late &&
            item->write == SKR_WRITE_WHOLE)
            world->is_again[item->row - FIRST_ROW] = true;
        bool is_refused = !world->is_mended && item->row != FREE_ROW;
        item->write = is_refused ? SKR_WRITE_REFUSED : SKR_WRITE_DONE;
        item->refusal = is_refused ? "no" : NULL;
    }
    world->writes++;
    return SKR_OK;
}

static const struct skr_settle_ops settle_ops = {.write = write_rows};

static int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->table.settle = &settle_ops;
    world->settings = (struct skr_relay_settings){
        .name = "outbox",
        .database = &database,
        .database_url = "none://test",
        .table = &world->table,
        .park_ms = 1,
        .tally = &world->tally,
        .log = {.write = note, .user = world},
    };
    assert_int_equal(
        skr_ownership_new(&world->settings, &world->ownership, NULL), SKR_OK);
    assert_int_equal(skr_settler_start(&world->settings, world->ownership,
                                       &world->parked, &world->beat,
                                       &world->settler, NULL),
                     SKR_OK);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(skr_batch_init(&world->jobs[i].batch, 1, NULL),
                         SKR_OK);
    assert_int_equal(
        skr_batch_init(&world->many.batch, SKR_MOST_PARKED_PUBLISHED, NULL),
        SKR_OK);
    *state = world;
    return 0;
}

static int
tear_down(void **state)
{
    struct world *world = *state;
    skr_settler_stop(world->settler, 0);
    skr_settler_free(world->settler);
    for (int i = 0; i < JOBS; i++)
        skr_batch_fini(&world->jobs[i].batch);
    skr_batch_fini(&world->many.batch);
    skr_ownership_free(world->ownership);
    skr_parked_fini(&world->parked);
    free(world);
    return 0;
}

// A batch of published rows.
static struct skr_job *
put(struct world *world, struct skr_job *job, int64_t first, size_t count)
{
    job->batch.count = count;
    for (size_t i = 0; i < count; i++)
        job->batch.items[i] = (struct skr_batch_item){
            .row = first + (int64_t)i,
            .state = SKR_DONE,
        };
    skr_settler_put(world->settler, job);
    return job;
}

static struct skr_job *
wait_for_job(struct world *world)
{
    struct skr_job *job = NULL;
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (job == NULL && skr_clock_ms() < end_ms) {
        skr_settler_wait(world->settler, -1);
        job = skr_settler_take(world->settler, NULL);
    }
    return job;
}

static void
park_all_there_is_room_for(struct world *world)
{
    put(world, &world->many, 1, SKR_MOST_PARKED_PUBLISHED);
    assert_ptr_equal(wait_for_job(world), &world->many);
    assert_int_equal(world->parked.published, SKR_MOST_PARKED_PUBLISHED);
}

// Puts jobs that find no room, until the settler has tried each.
static void
put_without_room(struct world *world, int count)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    int writes = world->writes;
    for (int i = 0; i < count; i++)
        put(world, &world->jobs[i], FIRST_ROW + i, 1);
    while (world->writes < writes + count && skr_clock_ms() < end_ms)
        assert_null(skr_settler_take(world->settler, NULL));
    assert_null(skr_settler_take(world->settler, NULL));
    assert_true(skr_settler_is_busy(world->settler));
}

static void
test_every_batch_without_room_is_tried_again(void **state)
{
    struct world *world = *state;
    bool is_back[JOBS] = {false};
    park_all_there_is_room_for(world);
    put_without_room(world, JOBS);
    world->is_mended = true;
    for (int i = 0; i < JOBS; i++) {
        struct skr_job *job = wait_for_job(world);
        assert_non_null(job);
        is_back[job - world->jobs] = true;
    }
    for (int i = 0; i < JOBS; i++)
        assert_true(is_back[i] && world->is_again[i]);
    assert_false(skr_settler_is_busy(world->settler));
    assert_int_equal(skr_settler_next_ms(world->settler), 0);
}

static void
test_the_trouble_is_over_when_all_of_them_are_settled(void **state)
{
    struct world *world = *state;
    park_all_there_is_room_for(world);
    put_without_room(world, 2);
    assert_int_equal(world->troubles, 1);
    // A batch of which nothing was refused proves nothing.
    put(world, &world->jobs[2], FREE_ROW, 1);
    assert_ptr_equal(wait_for_job(world), &world->jobs[2]);
    assert_int_equal(world->recoveries, 0);
    world->is_mended = true;
    for (int i = 0; i < 2; i++)
        assert_non_null(wait_for_job(world));
    assert_int_equal(world->recoveries, 1);
}

static void
test_without_a_session_no_parked_row_is_settled(void **state)
{
    struct world *world = *state;
    put(world, &world->jobs[0], FIRST_ROW, 1);
    assert_ptr_equal(wait_for_job(world), &world->jobs[0]);
    int64_t due_ms = skr_parked_due_ms(&world->parked);
    assert_true(due_ms > 0);
    while (skr_clock_ms() <= due_ms)
        ;
    // The session would sleep for no time, again and again.
    assert_int_equal(skr_settler_next_ms(world->settler), 0);
    assert_null(skr_settler_take(world->settler, NULL));
    assert_null(skr_settler_take(world->settler, NULL));
    assert_int_equal(world->writes, 1);
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
