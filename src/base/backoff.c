// SPDX-License-Identifier: MIT
// The arithmetic of a doubling pause. Without a clock and without a sleep, it
// is tested by calls alone.

#include "base/backoff.h"

uint32_t
skr_backoff_next(struct skr_backoff *backoff)
{
    uint64_t pause_ms = backoff->pause_ms == 0
                            ? backoff->first_ms
                            : (uint64_t)backoff->pause_ms * 2;
    backoff->pause_ms = pause_ms < backoff->longest_ms ? (uint32_t)pause_ms
                                                       : backoff->longest_ms;
    return backoff->pause_ms;
}

void
skr_backoff_reset(struct skr_backoff *backoff)
{
    backoff->pause_ms = 0;
}
