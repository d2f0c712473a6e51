// SPDX-License-Identifier: MIT
// Lines that wait to be written, in a bounded number of bytes. Where a line
// finds no room the oldest lines go and are counted: the newest tell most of
// how a process ended.

#ifndef SKR_APP_CONSOLE_LOG_RING_H
#define SKR_APP_CONSOLE_LOG_RING_H

#include "base/text.h"

struct skr_log_ring {
    char *bytes;
    size_t capacity;
    size_t begin;      // of the oldest line
    size_t used;       // bytes of all lines, with their sizes
    uint64_t dropped;  // lines that went since the last report of it
};

// bytes is borrowed.
void skr_log_ring_init(struct skr_log_ring *ring, char *bytes, size_t capacity);
// A line that is larger than the ring is dropped itself.
void skr_log_ring_add(struct skr_log_ring *ring, const char *line, size_t size);
// Takes the oldest line, in place of what line holds. False: there is none.
bool skr_log_ring_take(struct skr_log_ring *ring, struct skr_text *line);

#endif
