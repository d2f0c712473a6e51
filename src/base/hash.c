// SPDX-License-Identifier: MIT
// 128-bit FNV-1a. Lock names, keys in tables and derived message ids are made
// of it, so its values must never change.

#include "base/hash.h"

#include <string.h>

__extension__ typedef unsigned __int128 uint128;

struct skr_hash
skr_hash_start(void)
{
    return (struct skr_hash){0x6c62272e07bb0142, 0x62b821756295c58d};
}

struct skr_hash
skr_hash_add(struct skr_hash hash, const void *bytes, size_t size)
{
    const uint128 prime = (uint128)1 << 88 | 0x13b;
    uint128 state = (uint128)hash.high << 64 | hash.low;
    const unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++)
        state = (state ^ p[i]) * prime;
    return (struct skr_hash){(uint64_t)(state >> 64), (uint64_t)state};
}

struct skr_hash
skr_hash_add_text(struct skr_hash hash, const char *text)
{
    return skr_hash_add(hash, text, strlen(text) + 1);
}
