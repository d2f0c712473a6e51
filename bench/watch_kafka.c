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

enum { PAUSE_US = 25000, PATIENCE_US = 120 * 1000000 };

int
main(int argc, char **argv)
{
    if (argc != 4)
        skr_bench_die("usage", "bench-watch-kafka BROKERS TOPIC ROWS");
    uint64_t rows = (uint64_t)skr_bench_number(argv[3]);
    struct skr_bench_marks marks = {0};
    rd_kafka_t *handle =
        skr_bench_kafka_open(RD_KAFKA_PRODUCER, argv[1], NULL, 0, NULL, NULL);
    int32_t partitions = skr_bench_kafka_partitions(handle, argv[2]);
    uint64_t before = skr_bench_kafka_count(handle, argv[2], partitions);
    puts("ready");
    fflush(stdout);
    int64_t next_us = skr_bench_now_us(), moved_us = next_us;
    for (uint64_t count = 0, last = 0; count < rows; last = count) {
        count = skr_bench_kafka_count(handle, argv[2], partitions) - before;
        skr_bench_mark(&marks, count);
        if (count != last)
            moved_us = skr_bench_now_us();
        if (skr_bench_now_us() - moved_us > PATIENCE_US)
            skr_bench_die("watch", "nothing arrived for two minutes");
        next_us += PAUSE_US;
        skr_bench_sleep_until(next_us);
    }
    skr_bench_report(&marks);
    rd_kafka_destroy(handle);
    return 0;
}
