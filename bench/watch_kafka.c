// SPDX-License-Identifier: MIT
// Watches from outside how fast records arrive: asks every 25 ms for their
// number and prints the rate of the middle 80 %.
//
//     bench-watch-kafka BROKERS TOPIC ROWS
//
// Those that the topic had before do not count. Says "ready" first.

#include "bench.h"
#include "kafka.h"

#include <stdio.h>

struct watch {
    rd_kafka_t *handle;
    const char *topic;
    int32_t partitions;
    uint64_t before;
};

static uint64_t
count_records(void *user)
{
    const struct watch *watch = user;
    return skr_bench_kafka_count(watch->handle, watch->topic,
                                 watch->partitions) -
           watch->before;
}

int
main(int argc, char **argv)
{
    if (argc != 4)
        skr_bench_die("usage", "bench-watch-kafka BROKERS TOPIC ROWS");
    uint64_t rows = (uint64_t)skr_bench_number(argv[3]);
    struct watch watch = {
        .handle = skr_bench_kafka_open(RD_KAFKA_PRODUCER, argv[1], NULL, 0,
                                       NULL, NULL),
        .topic = argv[2],
    };
    watch.partitions = skr_bench_kafka_partitions(watch.handle, watch.topic);
    watch.before = count_records(&watch);
    puts("ready");
    fflush(stdout);
    skr_bench_watch(count_records, &watch, rows);
    rd_kafka_destroy(watch.handle);
    return 0;
}
