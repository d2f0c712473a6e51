// SPDX-License-Identifier: MIT
// What looking for rows costs, and how long a row waits for a look, by a clock
// that is simulated: no machine is too busy for it.
#include "db/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    SECOND_MS = 1000,
    MINUTE_MS = 60 * SECOND_MS,
    SEEDS = 200,
    GAP_MS = 10,  // between rows, on average: a hundred a second
};

struct simulation {
    struct skr_pace pace;
    uint64_t chance;
    int64_t now_ms;
    // How late a look may be, and for how long the writer may be kept from
    // writing what it has.
    int64_t most_late_ms, most_held_ms;
    int64_t held_until_ms;
    int64_t pending;                // rows that the writer has
    int64_t oldest_ms, longest_ms;  // of the rows that were not looked at
    int64_t rows, queries;
};

static int64_t
below(struct simulation *run, int64_t limit)
{
    // xorshift64
    run->chance ^= run->chance << 13;
    run->chance ^= run->chance >> 7;
    run->chance ^= run->chance << 17;
    return limit <= 0 ? 0 : (int64_t)(run->chance % (uint64_t)limit);
}

static struct simulation
begin(uint64_t seed)
{
    struct simulation run = {.chance = seed * 0x9e3779b97f4a7c15u};
    skr_pace_found(&run.pace, run.now_ms);
    skr_pace_look(&run.pace, run.now_ms);
    return run;
}

// The time from the last look until now, a millisecond at a time. Gives how
// many rows were committed in it.
static int64_t
write_until(struct simulation *run, int64_t until_ms, int64_t gap_ms)
{
    int64_t committed = 0;
    for (; run->now_ms < until_ms; run->now_ms++) {
        if (gap_ms > 0 && below(run, gap_ms) == 0)
            run->pending++;
        if (run->now_ms < run->held_until_ms)
            continue;
        if (run->pending > 0 && run->oldest_ms < 0)
            run->oldest_ms = run->now_ms;
        committed += run->pending;
        run->pending = 0;
        run->held_until_ms = run->now_ms + below(run, run->most_held_ms);
    }
    return committed;
}

// As a relay does: a look is a query, and what it found is deleted by another.
static void
look_for(struct simulation *run, int64_t time_ms, int64_t gap_ms)
{
    int64_t end_ms = run->now_ms + time_ms;
    while (run->now_ms < end_ms) {
        int64_t look_ms = run->pace.next_look_ms;
        run->oldest_ms = -1;
        int64_t found =
            write_until(run, look_ms + below(run, run->most_late_ms), gap_ms);
        skr_pace_look(&run->pace, run->now_ms);
        run->queries++;
        if (found == 0)
            continue;
        run->rows += found;
        run->queries++;
        if (run->now_ms - run->oldest_ms > run->longest_ms)
            run->longest_ms = run->now_ms - run->oldest_ms;
        skr_pace_found(&run->pace, run->now_ms);
    }
}

// Of a time in which the writer was held up the looks count, too: as many rows
// as there are at this rate are what they are for.
static void
test_a_steady_stream_costs_three_queries_a_row(void **state)
{
    static const struct {
        int64_t late_ms, held_ms;
    } machines[] = {{0, 0},   {3, 0},  {20, 0},   {100, 0},  {0, 3},
                    {0, 20},  {0, 60}, {0, 110},  {0, 200},  {3, 3},
                    {10, 60}, {60, 3}, {60, 110}, {100, 200}};
    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct simulation run = begin(seed);
            run.most_late_ms = machines[i].late_ms;
            run.most_held_ms = machines[i].held_ms;
            look_for(&run, 5 * SECOND_MS, GAP_MS);
            int64_t rows = run.now_ms / GAP_MS;
            rows = rows > run.rows ? rows : run.rows;
            if (run.queries > 3 * rows)
                fail_msg("late %d, held %d, seed %d: %d queries for %d rows",
                         (int)run.most_late_ms, (int)run.most_held_ms,
                         (int)seed, (int)run.queries, (int)rows);
        }
}

static void
test_a_row_of_a_steady_stream_waits_for_milliseconds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct simulation run = begin(seed);
        look_for(&run, SECOND_MS, GAP_MS);
        run.longest_ms = 0;
        look_for(&run, 5 * SECOND_MS, GAP_MS);
        assert_true(run.longest_ms <= 20);
    }
}

static void
test_the_longer_nothing_came_the_fewer_the_looks(void **state)
{
    static const struct {
        int64_t time_ms, most;
    } cases[] = {
        {5 * SECOND_MS, 260},  // while the last row is fresh
        {55 * SECOND_MS, 60},
        {MINUTE_MS, 40},  // beside what keeps a session alive: one a second
        {10 * MINUTE_MS, 400},
    };
    struct simulation run = begin(1);
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run.queries = 0;
        look_for(&run, cases[i].time_ms, 0);
        if (run.queries > cases[i].most)
            fail_msg("%d looks in %d s", (int)run.queries,
                     (int)(cases[i].time_ms / SECOND_MS));
    }
    // The first row after that waits for the next of them.
    assert_true(run.pace.next_look_ms <= run.now_ms + 1500);
}

static void
test_an_idle_queue_is_looked_at_as_often_as_told(void **state)
{
    struct simulation run = begin(1);
    (void)state;
    run.pace.idle_pause_ms = 100;
    look_for(&run, MINUTE_MS, 0);
    run.queries = 0;
    look_for(&run, MINUTE_MS, 0);
    assert_in_range(run.queries, 590, 610);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_steady_stream_costs_three_queries_a_row),
        cmocka_unit_test(test_a_row_of_a_steady_stream_waits_for_milliseconds),
        cmocka_unit_test(test_an_idle_queue_is_looked_at_as_often_as_told),
        cmocka_unit_test(test_the_longer_nothing_came_the_fewer_the_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
