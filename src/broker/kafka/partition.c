// SPDX-License-Identifier: MIT
// The partitioners of Java's client (murmur2) and of Go's Sarama (FNV-1a),
// computed here so that a key goes to the same partition as from those clients.

#include "broker/kafka/partition.h"

static uint32_t
murmur2(const uint8_t *bytes, size_t size)
{
    const uint32_t multiplier = 0x5bd1e995;
    const uint32_t seed = 0x9747b28c;
    uint32_t hash = seed ^ (uint32_t)size;
    size_t left = size;
    for (; left >= 4; left -= 4, bytes += 4) {
        uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                        (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        word *= multiplier;
        hash = hash * multiplier ^ word;
    }
    uint32_t rest = 0;
    for (size_t i = 0; i < left; i++)
        rest |= (uint32_t)bytes[i] << 8 * i;
    if (left > 0)
        hash = (hash ^ rest) * multiplier;
    hash ^= hash >> 13;
    hash *= multiplier;
    return hash ^ hash >> 15;
}

static uint32_t
fnv1a(const uint8_t *bytes, size_t size)
{
    uint32_t hash = 0x811c9dc5;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x01000193;
    return hash;
}

int32_t
skr_kafka_partition(enum kafka_partitioner partitioner, const void *key,
                    size_t size, int32_t count)
{
    int64_t hash = 0;
    switch (partitioner) {
    case KAFKA_MURMUR2:
        // Java drops the sign, and so gets another number than its absolute.
        hash = murmur2(key, size) & 0x7fffffff;
        return (int32_t)(hash % count);
    case KAFKA_FNV1A:
        // Go's remainder has the sign of the hash, which is then turned.
        hash = (int32_t)fnv1a(key, size);
        hash %= count;
        return (int32_t)(hash < 0 ? -hash : hash);
    }
    return 0;
}
