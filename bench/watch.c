// SPDX-License-Identifier: MIT
// Watches from outside how fast rows arrive: asks every 25 ms for their number
// and prints the rate of the middle 80 %.
//
//     bench-watch BROKER_URL ROWS QUEUE...   messages in all these queues
//     bench-watch DATABASE_URL ROWS SQL      a number that SQL gives

#include "bench.h"
#include "database.h"
#include "rabbit.h"

#include <string.h>

struct watch {
    bool is_rabbit;
    struct skr_bench_rabbit rabbit;
    struct skr_bench_database database;
    char **names;
};

static uint64_t
count_rows(void *user)
{
    struct watch *watch = user;
    if (!watch->is_rabbit)
        return (uint64_t)skr_bench_database_number(&watch->database,
                                                   watch->names[0]);
    uint64_t count = 0;
    for (char **name = watch->names; *name != NULL; name++)
        count += skr_bench_rabbit_waiting(&watch->rabbit, *name);
    return count;
}

int
main(int argc, char **argv)
{
    if (argc < 4)
        skr_bench_die("usage", "bench-watch URL ROWS QUEUE|SQL...");
    uint64_t rows = (uint64_t)skr_bench_number(argv[2]);
    struct watch watch = {.is_rabbit = strncmp(argv[1], "amqp://", 7) == 0,
                          .names = argv + 3};
    if (watch.is_rabbit)
        skr_bench_rabbit_open(&watch.rabbit, argv[1]);
    else
        skr_bench_database_open(&watch.database, argv[1]);
    skr_bench_watch(count_rows, &watch, rows);
    if (watch.is_rabbit)
        skr_bench_rabbit_close(&watch.rabbit);
    else
        skr_bench_database_close(&watch.database);
    return 0;
}
