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
uint32_t skr_backoff_next(struct skr_backoff *backoff);
// The next pause is the first one again.
void skr_backoff_reset(struct skr_backoff *backoff);

#endif
