// SPDX-License-Identifier: MIT
// What the programs of the benchmark share. Each of them ends at the first
// thing that goes wrong: a run with an error in it measures nothing.

#ifndef SKR_BENCH_BENCH_H
#define SKR_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void skr_bench_die(const char *what, const char *why);

enum { SKR_BENCH_TIME_SIZE = 20 };
// "2026-11-15 02:53:45", UTC.
void skr_bench_timestamp(char time[SKR_BENCH_TIME_SIZE]);
int64_t skr_bench_now_us(void);
// Returns at once when that time has passed.
void skr_bench_sleep_until(int64_t time_us);
// The next of a row of Poisson arrivals, so many microseconds apart in the
// mean; the same row in each run.
int64_t skr_bench_next_arrival(int64_t last_us, int64_t mean_pause_us);
long skr_bench_number(const char *text);

enum { SKR_BENCH_BODY_SIZE = 300 };
// A JSON object that differs with the number, `size` bytes and a zero.
void skr_bench_write_body(char *body, size_t size, long number);
// The number of a body.
long skr_bench_read_body(const char *body, size_t size);

// Sorts. share: 0.5 is the median; with 1 the greatest.
int64_t skr_bench_percentile(int64_t *values, size_t count, double share);

// When how many rows were done; the rate is that of the middle 80 %.
struct skr_bench_marks {
    struct {
        int64_t time_us;
        uint64_t rows;
    } * marks;
    uint64_t count, capacity;
};
void skr_bench_mark(struct skr_bench_marks *marks, uint64_t rows);
// Prints "ROWS rows, RATE rows/s" and frees the marks.
void skr_bench_report(struct skr_bench_marks *marks);

// Asks every 25 ms how many rows have arrived, until all have, and reports.
typedef uint64_t skr_bench_count_fn(void *user);
void skr_bench_watch(skr_bench_count_fn *count, void *user, uint64_t rows);

#endif
