// SPDX-License-Identifier: MIT
// The low watermark against a model of concurrent transactions: ids are given
// at the insert, numbers at the first write, commits come in any order.
// Schedules are random and seeded; whatever they are, the mark never passes an
// id whose row can still appear.

#include "store/low_watermark.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    WRITERS = 6,
    MOST_ROWS = 400,
    STEPS = 300,
    SCHEDULES = 20000,
// Of what a server is believed for, as many as sanitizers leave time for; or as
// many as SKR_SCHEDULES says.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    MANY_SCHEDULES = SCHEDULES,
#else
    MANY_SCHEDULES = 500000,
#endif
};

// What a server tells of its transactions.
enum server {
    BY_NUMBERS,  // PostgreSQL: a snapshot, and the number that comes next
    BY_SNAPSHOT_ALONE,  // the same, with the end of the snapshot for that
                        // number
    BY_SECONDS,  // InnoDB: when those began that have written, as it was lately
};

enum row_state { UNUSED, TAKEN, WRITTEN, COMMITTED, GONE };

struct writer {
    bool is_open;
    int64_t number;    // 0: it has written nothing
    int64_t began;     // in seconds
    int64_t taken_id;  // an id whose row is not written yet; 0: none
    int answers;       // that were given since it was taken
};

// What a server showed at some time.
struct view {
    int64_t oldest, end;  // of numbers
    int64_t first_begin;  // of those that have written, and of the reader
    bool is_visible[MOST_ROWS];
};

struct world {
    enum server server;
    bool is_slow;           // an id may be taken long before its row is written
    uint32_t least_step_s;  // by which its clock is put back; 0: it is not
    uint32_t chance;
    struct writer writers[WRITERS];
    struct writer *owner[MOST_ROWS];
    enum row_state rows[MOST_ROWS];
    bool is_read[MOST_ROWS];
    int64_t next_id, next_number, last_over;
    int64_t now_ms;     // by the reader's clock, which is never put back
    int64_t behind_s;   // by so much the server's has been
    struct view shown;  // by InnoDB, whose list may be an old one
    struct skr_low_watermark mark;
};

// The server's clock.
static int64_t
clock_s(const struct world *world)
{
    return world->now_ms / 1000 - world->behind_s;
}

static uint32_t
draw(struct world *world, uint32_t range)
{
    world->chance = world->chance * 1664525 + 1013904223;
    return (world->chance >> 8) % range;
}

static void
take_number(struct world *world, struct writer *writer)
{
    if (writer->number == 0)
        writer->number = world->next_number++;
}

static void
write_row(struct world *world, struct writer *writer)
{
    if (writer->taken_id == 0)
        return;
    take_number(world, writer);
    world->rows[writer->taken_id] = WRITTEN;
    writer->taken_id = 0;
}

static void
end_number(struct world *world, int64_t number)
{
    if (number > world->last_over)
        world->last_over = number;
}

static void
end_writer(struct world *world, struct writer *writer, bool commits)
{
    for (int64_t id = 1; id < world->next_id; id++)
        if (world->owner[id] == writer && world->rows[id] == WRITTEN)
            world->rows[id] = commits ? COMMITTED : GONE;
    end_number(world, writer->number);
    *writer = (struct writer){.is_open = false};
}

static void
step_writer(struct world *world)
{
    struct writer *writer = &world->writers[draw(world, WRITERS)];
    uint32_t kind = draw(world, 10);
    if (!writer->is_open) {
        *writer = (struct writer){.is_open = true, .began = clock_s(world)};
        return;
    }
    if (writer->taken_id != 0)
        write_row(world, writer);
    else if (kind < 5 && world->next_id < MOST_ROWS) {
        writer->taken_id = world->next_id++;
        writer->answers = 0;
        world->owner[writer->taken_id] = writer;
        world->rows[writer->taken_id] = TAKEN;
    } else if (kind < 6)
        take_number(world, writer);
    else
        end_writer(world, writer, kind < 9);
}

// Others are at work while the reader is.
static void
let_others_work(struct world *world)
{
    for (uint32_t i = draw(world, 5); i > 0; i--)
        step_writer(world);
    world->now_ms += draw(world, 4) == 0 ? 1000 : draw(world, 100);
}

static struct view
look_around(const struct world *world, int64_t reader_began)
{
    struct view view = {.end = world->last_over + 1,
                        .first_begin = reader_began};
    view.oldest = view.end;
    for (size_t i = 0; i < WRITERS; i++) {
        const struct writer *writer = &world->writers[i];
        if (!writer->is_open || writer->number == 0)
            continue;
        if (writer->number < view.oldest)
            view.oldest = writer->number;
        if (writer->began < view.first_begin)
            view.first_begin = writer->began;
    }
    for (int64_t id = 1; id < world->next_id; id++)
        view.is_visible[id] = world->rows[id] == COMMITTED;
    return view;
}

// A row is written a moment after its id was taken: not more than one answer
// comes in between.
static void
hurry(struct world *world)
{
    for (size_t i = 0; i < WRITERS && !world->is_slow; i++)
        if (world->writers[i].taken_id != 0 && world->writers[i].answers++ > 0)
            write_row(world, &world->writers[i]);
}

static void
answer(struct world *world, const struct view *snapshot, int64_t began)
{
    struct skr_low_watermark *mark = &world->mark;
    hurry(world);
    world->now_ms += 150;
    if (world->server == BY_SECONDS) {
        if (draw(world, 3) > 0)
            world->shown = look_around(world, began);
        skr_low_watermark_answered(mark, world->shown.first_begin,
                                   clock_s(world) + 1, world->now_ms);
        return;
    }
    skr_low_watermark_answered(mark, snapshot->oldest,
                               world->server == BY_NUMBERS ? world->next_number
                                                           : snapshot->end,
                               world->now_ms);
}

static void
read_late(struct world *world, const struct view *snapshot)
{
    const struct skr_low_watermark *mark = &world->mark;
    for (int64_t id = mark->low + 1; id <= mark->contiguous_from; id++)
        world->is_read[id] |= snapshot->is_visible[id];
}

static void
read_beyond(struct world *world, const struct view *snapshot)
{
    struct skr_low_watermark *mark = &world->mark;
    uint32_t room = draw(world, 4);
    for (int64_t id = mark->cursor + 1; id < MOST_ROWS && room > 0; id++) {
        if (!snapshot->is_visible[id])
            continue;
        world->is_read[id] = true;
        skr_low_watermark_move(mark, id);
        room--;
    }
}

// As a scan does: in one snapshot it looks for what is late, asks, and reads
// on. A part of them does not ask, and a part has room for nothing.
static void
read_some(struct world *world)
{
    struct skr_low_watermark *mark = &world->mark;
    int64_t began = clock_s(world);
    struct view snapshot = look_around(world, began);
    let_others_work(world);
    if (skr_low_watermark_may_be_late(mark)) {
        read_late(world, &snapshot);
        skr_low_watermark_looked(mark);
        let_others_work(world);
        if (draw(world, 3) > 0)
            answer(world, &snapshot, began);
    }
    let_others_work(world);
    read_beyond(world, &snapshot);
    if (mark->oldest_ms != 0)
        skr_low_watermark_settle(mark);
}

// The number of what the relay itself writes, which is over at once.
static void
write_something(struct world *world)
{
    end_number(world, world->next_number++);
}

// The id of a row that can still appear, or has and was not read, at or below
// the mark; 0: there is none.
static int64_t
find_passed(const struct world *world)
{
    for (int64_t id = 1; id <= world->mark.low; id++)
        if (world->rows[id] == TAKEN || world->rows[id] == WRITTEN ||
            (world->rows[id] == COMMITTED && !world->is_read[id]))
            return id;
    return 0;
}

static struct world
make_world(enum server server, uint32_t seed)
{
    return (struct world){
        .server = server,
        .chance = seed,
        .next_id = 1,
        .next_number = 1,
        .now_ms = 1000000,
        .mark = {.sql = "asked", .is_clock = server == BY_SECONDS}};
}

static int64_t
run_schedule(struct world *world)
{
    uint32_t writes_in = draw(world, 4);  // whether the broker is silent
    for (int i = 0; i < STEPS; i++) {
        // What was before the first answer is not known.
        if (world->least_step_s > 0 && world->mark.checkpoint_count > 0 &&
            draw(world, 40) == 0)
            world->behind_s += world->least_step_s + draw(world, 10);
        uint32_t kind = draw(world, 8);
        if (kind < 4)
            step_writer(world);
        else if (kind < 6)
            read_some(world);
        else if (kind < 7)
            world->now_ms += 1000;
        else if (draw(world, 4) < writes_in)
            write_something(world);
        int64_t passed = find_passed(world);
        if (passed != 0)
            return passed;
    }
    return 0;
}

static void
check_server(enum server server)
{
    const char *wanted = getenv("SKR_SCHEDULES");
    uint32_t count = wanted == NULL ? MANY_SCHEDULES : (uint32_t)atoi(wanted);
    assert_true(count > 0);
    for (uint32_t seed = 1; seed <= count; seed++) {
        struct world world = make_world(server, seed);
        int64_t passed = run_schedule(&world);
        if (passed != 0)
            fail_msg("seed %u: the mark %lld has passed row %lld", seed,
                     (long long)world.mark.low, (long long)passed);
    }
}

static bool
finds_passed(enum server server, bool is_slow)
{
    for (uint32_t seed = 1; seed <= SCHEDULES; seed++) {
        struct world world = make_world(server, seed);
        world.is_slow = is_slow;
        if (run_schedule(&world) != 0)
            return true;
    }
    return false;
}

static void
test_no_row_is_passed_by_numbers(void **state)
{
    (void)state;
    check_server(BY_NUMBERS);
}

static void
test_no_row_is_passed_by_seconds(void **state)
{
    (void)state;
    check_server(BY_SECONDS);
}

// Those that began before it seem to have begun after what comes later.
static void
test_no_row_is_passed_when_the_clock_is_put_back(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SCHEDULES; seed++) {
        struct world world = make_world(BY_SECONDS, seed);
        world.least_step_s = 2;
        int64_t passed = run_schedule(&world);
        if (passed != 0)
            fail_msg("seed %u: the mark %lld has passed row %lld", seed,
                     (long long)world.mark.low, (long long)passed);
    }
}

// Beside the youngest open transaction a snapshot's end is no number that the
// next one could have.
static void
test_the_end_of_a_snapshot_is_not_enough(void **state)
{
    (void)state;
    assert_true(finds_passed(BY_SNAPSHOT_ALONE, false));
}

// What the mark relies on: the row follows its id soon.
static void
test_an_id_that_waits_for_its_row_is_passed(void **state)
{
    (void)state;
    assert_true(finds_passed(BY_NUMBERS, true));
}

// Once all transactions are over everything has been read, and nothing is
// looked for any more.
static void
check_end(enum server server, uint32_t seed)
{
    struct world world = make_world(server, seed);
    struct skr_low_watermark *mark = &world.mark;
    assert_int_equal(run_schedule(&world), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        write_row(&world, &world.writers[i]);
        end_writer(&world, &world.writers[i], true);
    }
    for (int i = 0; i < 4 || mark->low < mark->cursor; i++) {
        assert_true(i < 10);
        world.now_ms += 2000;
        struct view snapshot = look_around(&world, clock_s(&world));
        read_late(&world, &snapshot);
        skr_low_watermark_looked(mark);
        world.shown = snapshot;
        skr_low_watermark_answered(
            mark,
            server == BY_SECONDS ? snapshot.first_begin : world.next_number,
            server == BY_SECONDS ? clock_s(&world) + 1 : world.next_number,
            world.now_ms);
        for (int64_t id = mark->cursor + 1; id < MOST_ROWS; id++)
            if (snapshot.is_visible[id]) {
                world.is_read[id] = true;
                skr_low_watermark_move(mark, id);
            }
        assert_int_equal(find_passed(&world), 0);
    }
    for (int64_t id = 1; id < world.next_id; id++)
        assert_true(world.rows[id] != COMMITTED || world.is_read[id]);
}

static void
test_the_mark_reaches_the_cursor_in_the_end(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 500; seed++) {
        check_end(BY_NUMBERS, seed);
        check_end(BY_SECONDS, seed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_row_is_passed_by_numbers),
        cmocka_unit_test(test_no_row_is_passed_by_seconds),
        cmocka_unit_test(test_no_row_is_passed_when_the_clock_is_put_back),
        cmocka_unit_test(test_the_end_of_a_snapshot_is_not_enough),
        cmocka_unit_test(test_an_id_that_waits_for_its_row_is_passed),
        cmocka_unit_test(test_the_mark_reaches_the_cursor_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
