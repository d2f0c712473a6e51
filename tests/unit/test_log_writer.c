// SPDX-License-Identifier: MIT
// Lines of a log that wait for a reader: in order, bounded, and counted where
// they are missing.
#include "app/console/log_ring.h"
#include "app/console/log_writer.h"
#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void
add(struct skr_log_ring *ring, const char *line)
{
    skr_log_ring_add(ring, line, strlen(line));
}

static void
assert_next(struct skr_log_ring *ring, const char *expected)
{
    struct skr_text line = {0};
    assert_true(skr_log_ring_take(ring, &line));
    assert_string_equal(line.bytes, expected);
    skr_text_fini(&line);
}

static void
assert_empty(struct skr_log_ring *ring)
{
    struct skr_text line = {0};
    assert_false(skr_log_ring_take(ring, &line));
    assert_int_equal(ring->used, 0);
    skr_text_fini(&line);
}

static void
test_lines_come_in_order(void **state)
{
    char bytes[64];
    struct skr_log_ring ring;
    (void)state;
    skr_log_ring_init(&ring, bytes, sizeof(bytes));
    assert_empty(&ring);
    add(&ring, "one\n");
    add(&ring, "two\n");
    assert_next(&ring, "one\n");
    add(&ring, "three\n");
    assert_next(&ring, "two\n");
    assert_next(&ring, "three\n");
    assert_empty(&ring);
    assert_int_equal(ring.dropped, 0);
}

// Whatever the place of a line, its size and its text may go over the end.
static void
test_lines_go_round(void **state)
{
    char bytes[61], line[32];
    struct skr_log_ring ring;
    (void)state;
    skr_log_ring_init(&ring, bytes, sizeof(bytes));
    add(&ring, "0\n");
    for (int i = 1; i < 1000; i++) {
        snprintf(line, sizeof(line), "%d\n", i);
        add(&ring, line);
        snprintf(line, sizeof(line), "%d\n", i - 1);
        assert_next(&ring, line);
    }
    assert_next(&ring, "999\n");
    assert_empty(&ring);
    assert_int_equal(ring.dropped, 0);
}

static void
test_the_oldest_go_and_are_counted(void **state)
{
    char bytes[40], line[32];
    struct skr_log_ring ring;
    (void)state;
    // Ten bytes a line, with its size.
    skr_log_ring_init(&ring, bytes, sizeof(bytes));
    for (int i = 0; i < 10; i++) {
        snprintf(line, sizeof(line), "%05d\n", i);
        add(&ring, line);
    }
    assert_int_equal(ring.dropped, 6);
    for (int i = 6; i < 10; i++) {
        snprintf(line, sizeof(line), "%05d\n", i);
        assert_next(&ring, line);
    }
    assert_empty(&ring);
    // One that needs all of the room drives out the rest; one that needs more
    // has no place.
    add(&ring, "small\n");
    add(&ring, "thirty-six bytes are what it has at m");
    assert_int_equal(ring.dropped, 7);
    assert_next(&ring, "small\n");
    add(&ring, "small\n");
    add(&ring, "thirty-six bytes are what it has at\n");
    assert_int_equal(ring.dropped, 8);
    assert_next(&ring, "thirty-six bytes are what it has at\n");
    assert_empty(&ring);
}

static const struct skr_log_form plain = {.event_name = "event"};

static struct skr_log_writer *
start(int ends[2])
{
    struct skr_log_writer *writer = NULL;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
    assert_int_equal(skr_log_writer_start(ends[1], &plain, &writer, NULL),
                     SKR_OK);
    return writer;
}

static void
put_number(struct skr_log_writer *writer, int number)
{
    char line[128];
    int size = snprintf(line, sizeof(line), "%-99d\n", number);
    skr_log_writer_put(writer, line, (size_t)size);
}

enum { LINES = 30000 };

// All lines of a file: how many were not there, by their numbers, and how many
// that was said to be.
static void
read_lines(FILE *file, long *missing, long *told)
{
    char line[256];
    long last = -1;
    *missing = *told = 0;
    while (last < LINES - 1 && fgets(line, sizeof(line), file) != NULL) {
        const char *dropped = strstr(line, "warning output.dropped lines=");
        if (dropped != NULL) {
            *told += atol(strchr(dropped, '=') + 1);
            continue;
        }
        long number = atol(line);
        assert_true(number > last);
        *missing += number - last - 1;
        // The number that is missing is told right before the gap's end.
        assert_int_equal(*missing, *told);
        last = number;
    }
    assert_int_equal(last, LINES - 1);
}

static void
test_nobody_waits_for_a_reader_who_is_told_of_it(void **state)
{
    int ends[2];
    long missing, told;
    struct skr_log_writer *writer = start(ends);
    (void)state;
    for (int i = 0; i < LINES; i++)
        put_number(writer, i);
    // More than fits was put, though nothing was read.
    FILE *file = fdopen(ends[0], "r");
    read_lines(file, &missing, &told);
    assert_true(missing > LINES / 2);
    skr_log_writer_stop(writer);
    fclose(file);
    close(ends[1]);
}

static void
test_the_end_writes_what_is_left(void **state)
{
    char line[256] = "";
    int ends[2];
    struct skr_log_writer *writer = start(ends);
    (void)state;
    for (int i = 0; i < 40; i++)
        put_number(writer, i);
    skr_log_writer_stop(writer);
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    int count = 0;
    while (fgets(line, sizeof(line), file) != NULL)
        assert_int_equal(atoi(line), count++);
    assert_int_equal(count, 40);
    fclose(file);
}

static void
test_the_end_comes_without_a_reader(void **state)
{
    int ends[2];
    struct skr_log_writer *writer = start(ends);
    (void)state;
    for (int i = 0; i < 100; i++)
        put_number(writer, i);
    int64_t began_ms = skr_clock_ms();
    skr_log_writer_stop(writer);
    assert_true(skr_clock_ms() - began_ms >= SKR_LOG_WRITER_END_MS);
    // Its thread waits for the pipe until the process ends.
}

// The disk is full for a while: each line comes or is counted.
static void
test_what_cannot_be_written_is_counted(void **state)
{
    char line[256];
    int ends[2], seen = 0;
    struct skr_log_writer *writer = NULL;
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(skr_log_writer_start(fd, &plain, &writer, NULL), SKR_OK);
    for (int i = 0; i < 5; i++)
        put_number(writer, i);
    assert_int_equal(dup3(ends[1], fd, O_CLOEXEC), fd);
    skr_log_writer_stop(writer);
    close(fd);
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *dropped = strstr(line, "output.dropped lines=");
        seen += dropped == NULL ? 1 : atoi(strchr(dropped, '=') + 1);
    }
    assert_int_equal(seen, 5);
    fclose(file);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_in_order),
        cmocka_unit_test(test_lines_go_round),
        cmocka_unit_test(test_the_oldest_go_and_are_counted),
        cmocka_unit_test(test_nobody_waits_for_a_reader_who_is_told_of_it),
        cmocka_unit_test(test_the_end_writes_what_is_left),
        cmocka_unit_test(test_the_end_comes_without_a_reader),
        cmocka_unit_test(test_what_cannot_be_written_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
