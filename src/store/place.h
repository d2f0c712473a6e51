// SPDX-License-Identifier: MIT
// Where a queue is.

#ifndef SKR_STORE_PLACE_H
#define SKR_STORE_PLACE_H

#include <stdint.h>

struct skr_queue_place {
    const char *table, *queue;
    const char *time_zone;  // of its times (db/zone.h); NULL: UTC
    // After so long what a worker has claimed may be claimed by others.
    uint32_t redeliver_timeout_s;
};

#endif
