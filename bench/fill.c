// SPDX-License-Identifier: MIT
// Fills an outbox as an application does, with messages of 300 bytes.
//
//     bench-fill OUTBOX_FILE QUEUE_NAME ROWS DELAY_SECONDS

#include "bench.h"

#include <skirnir/sqlite.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BATCH = 1000, BODY_SIZE = 300 };

static char bodies[BATCH][BODY_SIZE + 1];
static struct skr_message messages[BATCH];

static void
write_body(char body[BODY_SIZE + 1], long number)
{
    int size =
        snprintf(body, BODY_SIZE + 1,
                 "{\"order\":%ld,\"customer\":%ld,\"total\":\"%ld.%02ld\""
                 ",\"note\":\"",
                 number, number * 7919 % 100003, number % 977, number % 100);
    memset(body + size, 'x', (size_t)(BODY_SIZE - size - 2));
    memcpy(body + BODY_SIZE - 2, "\"}", 3);
}

static void
fill_batch(const struct skr_outbox *outbox, sqlite3 *connection, long first,
           size_t count, int64_t due_at_us)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < count; i++) {
        write_body(bodies[i], first + (long)i);
        messages[i] = (struct skr_message){
            .name = "order.placed",
            .body = bodies[i],
            .body_size = BODY_SIZE,
            .due_at_us = due_at_us,
        };
    }
    skr_bench_run(connection, "BEGIN IMMEDIATE");
    if (skr_publish(outbox, skr_sqlite_tx(connection), messages, count, NULL,
                    &error) != SKR_OK)
        skr_bench_die("publish", error.text);
    skr_bench_run(connection, "COMMIT");
}

int
main(int argc, char **argv)
{
    if (argc != 5)
        skr_bench_die("usage",
                      "bench-fill OUTBOX_FILE QUEUE_NAME ROWS DELAY_SECONDS");
    long rows = skr_bench_number(argv[3]);
    long delay_s = skr_bench_number(argv[4]);
    int64_t due_at_us = delay_s == 0 ? 0 : (time(NULL) + delay_s) * 1000000;
    struct skr_outbox *outbox = NULL;
    struct skr_error error = {0};
    const struct skr_outbox_options options = {.queue = argv[2]};
    if (skr_outbox_new(&options, &outbox, &error) != SKR_OK)
        skr_bench_die("outbox", error.text);
    sqlite3 *connection = skr_bench_open(argv[1]);
    // Nothing is measured here.
    skr_bench_run(connection, "PRAGMA synchronous = OFF");
    for (long done = 0; done < rows; done += BATCH)
        fill_batch(outbox, connection, done,
                   rows - done < BATCH ? (size_t)(rows - done) : BATCH,
                   due_at_us);
    skr_bench_run(connection, "PRAGMA wal_checkpoint(TRUNCATE)");
    skr_bench_close(connection);
    skr_outbox_free(outbox);
    printf("SQLite %s\n", sqlite3_libversion());
    return 0;
}
