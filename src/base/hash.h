// SPDX-License-Identifier: MIT
// FNV-1a, 128 bits: for names and ids that must come out the same everywhere
// and for ever, not against an adversary.

#ifndef SKR_BASE_HASH_H
#define SKR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct skr_hash {
    uint64_t high;
    uint64_t low;
};

struct skr_hash skr_hash_start(void);
struct skr_hash
skr_hash_add(struct skr_hash hash, const void *bytes, size_t size);
// Adds the text and its end, so that "ab","c" and "a","bc" differ.
struct skr_hash skr_hash_add_text(struct skr_hash hash, const char *text);

#endif
