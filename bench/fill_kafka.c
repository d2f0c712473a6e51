// SPDX-License-Identifier: MIT
// Fills kafka_outbox on a server as an application does, with messages of 300
// bytes.
//
//     bench-fill-kafka DATABASE_URL TOPIC ROWS

#include "bench.h"
#include "database.h"
#include "publish.h"

int
main(int argc, char **argv)
{
    if (argc != 4)
        skr_bench_die("usage", "bench-fill-kafka DATABASE_URL TOPIC ROWS");
    long rows = skr_bench_number(argv[3]);
    struct skr_outbox *outbox = skr_bench_kafka_outbox_open(argv[2]);
    skr_bench_database_fill(argv[1], outbox, rows, 0);
    skr_outbox_free(outbox);
    return 0;
}
