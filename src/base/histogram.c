// SPDX-License-Identifier: MIT
// A latency histogram of fixed buckets that threads fill without a lock. The
// bounds are those of the exported metrics.

#include "base/histogram.h"

const int64_t skr_histogram_bounds_us[SKR_HISTOGRAM_STEPS - 1] = {
    1000,   2500,    5000,    10000,   25000,    50000,    100000,   250000,
    500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000,
};

void
skr_histogram_add(struct skr_histogram *histogram, int64_t time_us)
{
    int step = 0;
    if (time_us < 0)
        time_us = 0;
    while (step < SKR_HISTOGRAM_STEPS - 1 &&
           time_us > skr_histogram_bounds_us[step])
        step++;
    atomic_fetch_add_explicit(&histogram->counts[step], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_us, (uint64_t)time_us,
                              memory_order_relaxed);
}

void
skr_histogram_read(const struct skr_histogram *histogram,
                   struct skr_histogram_reading *reading)
{
    for (int i = 0; i < SKR_HISTOGRAM_STEPS; i++)
        reading->counts[i] += atomic_load(&histogram->counts[i]);
    reading->sum_us += atomic_load(&histogram->sum_us);
}
