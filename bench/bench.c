// SPDX-License-Identifier: MIT
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void
skr_bench_die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void
skr_bench_timestamp(char text[SKR_BENCH_TIME_SIZE])
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, SKR_BENCH_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &parts);
}

int64_t
skr_bench_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
skr_bench_sleep_until(int64_t time_us)
{
    struct timespec until = {.tv_sec = time_us / 1000000,
                             .tv_nsec = time_us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
           EINTR)
        ;
}

int64_t
skr_bench_next_arrival(int64_t last_us, int64_t mean_pause_us)
{
    static _Thread_local unsigned short state[3] = {1, 2, 3};
    return last_us +
           (int64_t)(-log(1 - erand48(state)) * (double)mean_pause_us);
}

void
skr_bench_write_body(char *body, size_t size, long number)
{
    int used =
        snprintf(body, size + 1,
                 "{\"orderId\":\"%ld\",\"customer\":%ld,\"total\":\"%ld.%02ld\""
                 ",\"note\":\"",
                 number, number * 7919 % 100003, number % 977, number % 100);
    if (used < 0 || (size_t)used + 2 > size)
        skr_bench_die("body", "too small");
    memset(body + used, 'x', size - (size_t)used - 2);
    memcpy(body + size - 2, "\"}", 3);
}

long
skr_bench_read_body(const char *body, size_t size)
{
    static const char start[] = "{\"orderId\":\"";
    if (size < sizeof(start) || memcmp(body, start, sizeof(start) - 1) != 0)
        skr_bench_die("body", "not one that was published here");
    return atol(body + sizeof(start) - 1);
}

static int
compare_values(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int64_t
skr_bench_percentile(int64_t *values, size_t count, double share)
{
    if (count == 0)
        skr_bench_die("percentile", "of nothing");
    qsort(values, count, sizeof(*values), compare_values);
    size_t at = (size_t)((double)count * share);
    return values[at < count ? at : count - 1];
}

long
skr_bench_number(const char *text)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < 0)
        skr_bench_die(text, "a whole number is needed");
    return number;
}

void
skr_bench_mark(struct skr_bench_marks *marks, uint64_t rows)
{
    if (marks->count == marks->capacity) {
        marks->capacity = marks->capacity == 0 ? 1024 : marks->capacity * 2;
        void *grown =
            realloc(marks->marks, marks->capacity * sizeof(marks->marks[0]));
        if (grown == NULL)
            skr_bench_die("marks", "out of memory");
        marks->marks = grown;
    }
    marks->marks[marks->count].time_us = skr_bench_now_us();
    marks->marks[marks->count++].rows = rows;
}

// When the row was done, between two marks in proportion.
static double
time_of_row(const struct skr_bench_marks *marks, double row)
{
    for (uint64_t i = 1; i < marks->count; i++) {
        double before = (double)marks->marks[i - 1].rows;
        double after = (double)marks->marks[i].rows;
        if (after < row || after == before)
            continue;
        return (double)marks->marks[i - 1].time_us +
               (row - before) / (after - before) *
                   (double)(marks->marks[i].time_us -
                            marks->marks[i - 1].time_us);
    }
    return 0;
}

void
skr_bench_report(struct skr_bench_marks *marks)
{
    uint64_t rows = marks->count == 0 ? 0 : marks->marks[marks->count - 1].rows;
    double took_us = time_of_row(marks, 0.9 * (double)rows) -
                     time_of_row(marks, 0.1 * (double)rows);
    double rate = took_us > 0 ? 0.8 * (double)rows * 1e6 / took_us : 0;
    printf("%llu rows, %.0f rows/s\n", (unsigned long long)rows, rate);
    free(marks->marks);
    *marks = (struct skr_bench_marks){0};
}

void
skr_bench_watch(skr_bench_count_fn *count, void *user, uint64_t rows)
{
    enum { PAUSE_US = 25000, PATIENCE_US = 120 * 1000000 };
    struct skr_bench_marks marks = {0};
    int64_t next_us = skr_bench_now_us(), moved_us = next_us;
    for (uint64_t arrived = 0, last = 0; arrived < rows; last = arrived) {
        arrived = count(user);
        skr_bench_mark(&marks, arrived);
        if (arrived != last)
            moved_us = skr_bench_now_us();
        if (skr_bench_now_us() - moved_us > PATIENCE_US)
            skr_bench_die("watch", "nothing arrived for two minutes");
        next_us += PAUSE_US;
        skr_bench_sleep_until(next_us);
    }
    skr_bench_report(&marks);
}
