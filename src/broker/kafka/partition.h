// SPDX-License-Identifier: MIT
// Which partition a key belongs to. The same key has to come out the same for
// ever, and as other clients have it: order hangs on it.

#ifndef SKR_BROKER_KAFKA_PARTITION_H
#define SKR_BROKER_KAFKA_PARTITION_H

#include <stddef.h>
#include <stdint.h>

enum kafka_partitioner {
    KAFKA_MURMUR2,  // Java's default
    KAFKA_FNV1A,    // Sarama's hash partitioner
};

// From 0 to count - 1; count is at least 1.
int32_t skr_kafka_partition(enum kafka_partitioner partitioner, const void *key,
                            size_t size, int32_t count);

#endif
