// SPDX-License-Identifier: MIT
// Partitions that are to be read from their heads, first come, first served.

#ifndef SKR_OUTBOX_HEADS_H
#define SKR_OUTBOX_HEADS_H

#include <skirnir/skirnir.h>

struct skr_head {
    char *key;
    int64_t not_before_ms;  // by skr_clock_ms()
};

// A ring that grows. Starts as zeroes.
struct skr_heads {
    struct skr_head *items;
    size_t first;
    size_t count;
    size_t capacity;  // a power of two
};

// Copies the key.
SKR_MUST_CHECK enum skr_code
skr_heads_add(struct skr_heads *heads, const char *key, int64_t not_before_ms,
              struct skr_error *error);
// The first whose time has come, or NULL. It is the caller's to free.
char *skr_heads_take(struct skr_heads *heads, int64_t now_ms);
// When the next can be taken; 0: there is none.
int64_t skr_heads_next_ms(const struct skr_heads *heads);
void skr_heads_clear(struct skr_heads *heads);
void skr_heads_fini(struct skr_heads *heads);

#endif
