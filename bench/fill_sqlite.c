// SPDX-License-Identifier: MIT
// Fills an outbox in an SQLite file as an application does, with messages of
// 300 bytes.
//
//     bench-fill-sqlite OUTBOX_FILE QUEUE_NAME ROWS DELAY_SECONDS

#include "bench.h"
#include "publish.h"
#include "sqlite.h"

#include <skirnir/sqlite.h>
#include <stdio.h>
#include <time.h>

int
main(int argc, char **argv)
{
    if (argc != 5)
        skr_bench_die("usage", "bench-fill-sqlite OUTBOX_FILE QUEUE_NAME ROWS "
                               "DELAY_SECONDS");
    long rows = skr_bench_number(argv[3]);
    long delay_s = skr_bench_number(argv[4]);
    int64_t due_at_us = delay_s == 0 ? 0 : (time(NULL) + delay_s) * 1000000;
    struct skr_outbox *outbox = skr_bench_outbox_open(argv[2]);
    sqlite3 *connection = skr_bench_open(argv[1]);
    // Nothing is measured here.
    skr_bench_run(connection, "PRAGMA synchronous = OFF");
    for (long done = 0; done < rows; done += SKR_BENCH_MOST_MESSAGES) {
        long left = rows - done;
        skr_bench_run(connection, "BEGIN IMMEDIATE");
        if (!skr_bench_publish(outbox, skr_sqlite_tx(connection), done,
                               left < SKR_BENCH_MOST_MESSAGES
                                   ? (size_t)left
                                   : SKR_BENCH_MOST_MESSAGES,
                               due_at_us))
            skr_bench_die("publish", "somebody else is at work");
        skr_bench_run(connection, "COMMIT");
    }
    skr_bench_run(connection, "PRAGMA wal_checkpoint(TRUNCATE)");
    skr_bench_close(connection);
    skr_outbox_free(outbox);
    printf("SQLite %s\n", sqlite3_libversion());
    return 0;
}
