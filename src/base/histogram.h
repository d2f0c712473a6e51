// SPDX-License-Identifier: MIT
// How long things took, counted in steps that a chart can be made of.

#ifndef SKR_BASE_HISTOGRAM_H
#define SKR_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { SKR_HISTOGRAM_STEPS = 17 };

// What is at most so long falls into the step; the last takes all the rest.
extern const int64_t skr_histogram_bounds_us[SKR_HISTOGRAM_STEPS - 1];

// A zeroed one is empty. [shared]
struct skr_histogram {
    atomic_uint_fast64_t counts[SKR_HISTOGRAM_STEPS];
    atomic_uint_fast64_t sum_us;
};

// The same at one moment, for one thread.
struct skr_histogram_reading {
    uint64_t counts[SKR_HISTOGRAM_STEPS];
    uint64_t sum_us;
};

// Less than nothing, as by clocks that differ, counts as nothing.
void skr_histogram_add(struct skr_histogram *histogram, int64_t time_us);
// Adds to the reading, which may have others in it.
void skr_histogram_read(const struct skr_histogram *histogram,
                        struct skr_histogram_reading *reading);

#endif
