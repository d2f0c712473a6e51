// SPDX-License-Identifier: MIT
// Fills an outbox on a server as an application does, with messages of 300
// bytes.
//
//     bench-fill DATABASE_URL QUEUE_NAME ROWS DELAY_SECONDS

#include "bench.h"
#include "database.h"
#include "publish.h"

#include <time.h>

int
main(int argc, char **argv)
{
    if (argc != 5)
        skr_bench_die("usage",
                      "bench-fill DATABASE_URL QUEUE_NAME ROWS DELAY_SECONDS");
    long rows = skr_bench_number(argv[3]);
    long delay_s = skr_bench_number(argv[4]);
    int64_t due_at_us = delay_s == 0 ? 0 : (time(NULL) + delay_s) * 1000000;
    struct skr_outbox *outbox = skr_bench_outbox_open(argv[2]);
    skr_bench_database_fill(argv[1], outbox, rows, due_at_us);
    skr_outbox_free(outbox);
    return 0;
}
