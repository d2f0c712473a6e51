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
    struct skr_bench_database database;
    skr_bench_database_open(&database, argv[1]);
    struct skr_tx tx = database.ops->tx(database.connection);
    for (long done = 0; done < rows; done += SKR_BENCH_MOST_MESSAGES) {
        long left = rows - done;
        skr_bench_database_run(&database, "BEGIN");
        if (!skr_bench_publish(outbox, tx, done,
                               left < SKR_BENCH_MOST_MESSAGES
                                   ? (size_t)left
                                   : SKR_BENCH_MOST_MESSAGES,
                               0))
            skr_bench_die("publish", "somebody else is at work");
        skr_bench_database_run(&database, "COMMIT");
    }
    skr_bench_database_close(&database);
    skr_outbox_free(outbox);
    return 0;
}
