// SPDX-License-Identifier: MIT
// Makes durable queues, or empties them, and prints how many messages they had.
//
//     bench-purge BROKER_URL QUEUE...

#include "bench.h"
#include "rabbit.h"

#include <stdio.h>

int
main(int argc, char **argv)
{
    if (argc < 3)
        skr_bench_die("usage", "bench-purge BROKER_URL QUEUE...");
    struct skr_bench_rabbit rabbit;
    uint64_t count = 0;
    skr_bench_rabbit_open(&rabbit, argv[1]);
    for (int i = 2; i < argc; i++)
        count += skr_bench_rabbit_purge(&rabbit, argv[i]);
    skr_bench_rabbit_close(&rabbit);
    printf("%llu\n", (unsigned long long)count);
    return 0;
}
