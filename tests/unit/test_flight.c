// SPDX-License-Identifier: MIT
// Rows in flight: the table of legal moves, tags that are never used again, and
// the room that is left.

#include "relay/flight.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAPACITY = 4, MOST_ROWS = 10, MOST_BYTES = 1000 };

static int
set_up(void **state)
{
    struct skr_flight *flight = calloc(1, sizeof(*flight));
    assert_non_null(flight);
    assert_int_equal(skr_flight_init(flight,
                                     (struct skr_room){MOST_ROWS, MOST_BYTES},
                                     CAPACITY, NULL),
                     SKR_OK);
    *state = flight;
    return 0;
}

static int
tear_down(void **state)
{
    skr_flight_fini(*state);
    free(*state);
    return 0;
}

static struct skr_flight_batch *
read_rows(struct skr_flight *flight, size_t count, size_t bytes)
{
    struct skr_flight_batch *batch = skr_flight_take_free(flight, 0, 0);
    assert_non_null(batch);
    batch->job.batch.count = count;
    batch->job.batch.bytes = bytes;
    return batch;
}

static struct skr_flight_batch *
open_rows(struct skr_flight *flight, size_t count, size_t bytes)
{
    struct skr_flight_batch *batch = read_rows(flight, count, bytes);
    skr_flight_open(batch);
    return batch;
}

// In a process of its own, as one that is not legal ends it.
static bool
is_legal(struct skr_flight *flight, enum skr_row_state from,
         enum skr_row_state to)
{
    struct skr_flight_batch *batch = open_rows(flight, 1, 0);
    batch->rows[0].state = from;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        skr_flight_move(&batch->rows[0], to);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    skr_flight_free(batch);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void
test_every_move_is_in_the_table_or_refused(void **state)
{
    static const bool want[SKR_ROW_STATES][SKR_ROW_STATES] = {
        [SKR_ROW_QUEUED] = {[SKR_ROW_SENT] = true,
                            [SKR_ROW_DECIDED] = true,
                            [SKR_ROW_LEFT] = true},
        [SKR_ROW_SENT] = {[SKR_ROW_DECIDED] = true, [SKR_ROW_LEFT] = true},
    };
    for (int from = 0; from < SKR_ROW_STATES; from++)
        for (int to = 0; to < SKR_ROW_STATES; to++)
            assert_int_equal(is_legal(*state, from, to), want[from][to]);
}

static void
test_a_batch_is_finished_when_no_row_is_queued_or_sent(void **state)
{
    struct skr_flight *flight = *state;
    struct skr_flight_batch *batch = open_rows(flight, 3, 0);
    skr_flight_move(&batch->rows[0], SKR_ROW_SENT);
    skr_flight_move(&batch->rows[1], SKR_ROW_LEFT);
    skr_flight_move(&batch->rows[2], SKR_ROW_DECIDED);
    assert_null(skr_flight_find_finished(flight));
    skr_flight_move(&batch->rows[0], SKR_ROW_DECIDED);
    assert_ptr_equal(skr_flight_find_finished(flight), batch);
}

static struct skr_flight_batch *
open_with_keys(struct skr_flight *flight, uint64_t first, uint64_t second)
{
    struct skr_flight_batch *batch = open_rows(flight, 2, 0);
    batch->rows[0].key = first;
    batch->rows[1].key = second;
    assert_int_equal(skr_flight_note_order(flight, batch, NULL), SKR_OK);
    return batch;
}

static void
finish_rows(struct skr_flight_batch *batch)
{
    skr_flight_move(&batch->rows[0], SKR_ROW_DECIDED);
    skr_flight_move(&batch->rows[1], SKR_ROW_LEFT);
}

static void
test_a_batch_ends_after_those_with_earlier_rows_of_its_keys(void **state)
{
    struct skr_flight *flight = *state;
    struct skr_flight_batch *first = open_with_keys(flight, 7, 8);
    struct skr_flight_batch *second = open_with_keys(flight, 8, 9);
    struct skr_flight_batch *third = open_with_keys(flight, 9, 9);
    struct skr_flight_batch *other = open_with_keys(flight, 0, 10);
    finish_rows(third);
    finish_rows(second);
    assert_null(skr_flight_find_finished(flight));
    finish_rows(other);
    assert_ptr_equal(skr_flight_find_finished(flight), other);
    skr_flight_end(flight, other);
    skr_flight_free(other);
    finish_rows(first);
    struct skr_flight_batch *order[] = {first, second, third};
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(skr_flight_find_finished(flight), order[i]);
        skr_flight_end(flight, order[i]);
        skr_flight_free(order[i]);
    }
    // Nothing is remembered of them.
    assert_int_equal(flight->newest.count, 0);
    open_with_keys(flight, 7, 10);
    finish_rows(&flight->batches[0]);
    assert_ptr_equal(skr_flight_find_finished(flight), &flight->batches[0]);
}

static void
test_a_tag_finds_its_row_and_no_later_one(void **state)
{
    struct skr_flight *flight = *state;
    struct skr_flight_batch *batch = open_rows(flight, 3, 0);
    skr_tag tag = skr_flight_tag(&batch->rows[2]),
            beyond = skr_flight_tag(&batch->rows[3]);
    assert_ptr_equal(skr_flight_find(flight, tag), &batch->rows[2]);
    assert_ptr_equal(batch->rows[2].item, &batch->job.batch.items[2]);
    assert_null(skr_flight_find(flight, beyond));
    assert_null(skr_flight_find(flight, SKR_NO_TAG));
    skr_flight_free(batch);
    assert_null(skr_flight_find(flight, tag));
    // The same memory, and other rows.
    assert_ptr_equal(open_rows(flight, 3, 0), batch);
    assert_null(skr_flight_find(flight, tag));
    skr_flight_end(flight, batch);
    assert_null(skr_flight_find(flight, skr_flight_tag(&batch->rows[0])));
}

static void
test_rows_that_are_read_ahead_take_no_room(void **state)
{
    struct skr_flight *flight = *state;
    struct skr_flight_batch *batch = open_rows(flight, 4, 300);
    struct skr_flight_batch *settling = open_rows(flight, 4, 300);
    struct skr_flight_batch *ahead = read_rows(flight, 3, 100);
    skr_flight_end(flight, settling);
    assert_false(skr_flight_open_if_fits(flight, ahead));
    struct skr_room room = skr_flight_room(flight);
    assert_int_equal(room.rows, 2);
    assert_int_equal(room.bytes, 400);
    assert_int_equal(skr_flight_count_open(flight), 7);
    assert_int_equal(ahead->phase, SKR_BATCH_AHEAD);
    skr_flight_free(settling);
    assert_true(skr_flight_open_if_fits(flight, ahead));
    assert_int_equal(ahead->phase, SKR_BATCH_OPEN);
    // One that is larger than all the room travels alone.
    ahead->job.batch.bytes = MOST_BYTES + 1;
    assert_false(skr_flight_open_if_fits(flight, ahead));
    skr_flight_free(batch);
    assert_true(skr_flight_open_if_fits(flight, ahead));
}

static void
test_there_are_so_many_batches_and_no_more(void **state)
{
    struct skr_flight *flight = *state;
    for (int i = 0; i < SKR_FLIGHT_BATCHES; i++)
        open_rows(flight, 1, 0);
    assert_null(skr_flight_take_free(flight, 0, 0));
    assert_int_equal(skr_flight_room(flight).rows,
                     MOST_ROWS - SKR_FLIGHT_BATCHES);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_move_is_in_the_table_or_refused),
        TEST(test_a_batch_is_finished_when_no_row_is_queued_or_sent),
        TEST(test_a_batch_ends_after_those_with_earlier_rows_of_its_keys),
        TEST(test_a_tag_finds_its_row_and_no_later_one),
        TEST(test_rows_that_are_read_ahead_take_no_room),
        TEST(test_there_are_so_many_batches_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
