// SPDX-License-Identifier: MIT
// A back-off: pauses between tries that double up to a longest one. It has no
// clock and does not sleep.

#ifndef SKR_BASE_BACKOFF_H
#define SKR_BASE_BACKOFF_H

#include <stdint.h>

struct skr_backoff {
    uint32_t first_ms;
    uint32_t longest_ms;
    uint32_t pause_ms;  // the last pause; 0: none since the start or the reset
};

// The pause to make now: first_ms at first, then twice the last one, never more
// than longest_ms.
static inline uint32_t
skr_backoff_next(struct skr_backoff *backoff)
{
    uint64_t pause_ms = backoff->pause_ms == 0
                            ? backoff->first_ms
                            : (uint64_t)backoff->pause_ms * 2;
    backoff->pause_ms = pause_ms < backoff->longest_ms ? (uint32_t)pause_ms
                                                       : backoff->longest_ms;
    return backoff->pause_ms;
}

// The next pause is the first one again.
static inline void
skr_backoff_reset(struct skr_backoff *backoff)
{
    backoff->pause_ms = 0;
}

#endif
