// SPDX-License-Identifier: MIT
// The ceiling of a relay that shares its queue with others: select 500 rows
// FOR UPDATE SKIP LOCKED, publish them, wait until all are confirmed, delete
// them, commit. One step after the other, on one connection each.
//
//     bench-ceiling-claim DATABASE_URL BROKER_URL EXCHANGE KEY
//
// Moves the rows of the queue `outbox` until there are none, with all that a
// relay says of a message. A conflict with
// another such loop means that rows are published again, as it would anywhere.

#include "bench.h"
#include "database.h"
#include "rabbit.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 500, ID_TEXT_SIZE = 24 };

struct loop {
    struct skr_bench_database database;
    struct skr_bench_rabbit rabbit;
    struct skr_bench_publication publication;
    uint64_t count, conflicts;
    size_t delete_size;
    char delete_sql[64 + BATCH * ID_TEXT_SIZE];
};

static const char claim_sql[] =
    "SELECT id, body, headers FROM messenger_outbox "
    "WHERE queue_name = 'outbox' AND delivered_at IS NULL "
    "ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED";
static const char delete_start[] = "DELETE FROM messenger_outbox WHERE id IN (";

static void
publish_row(const struct skr_bench_bytes *columns, void *user)
{
    struct loop *loop = user;
    unsigned char id[SKR_BENCH_ID_SIZE];
    amqp_bytes_t body = {.len = columns[1].size};
    memcpy(&body.bytes, &columns[1].bytes, sizeof(void *));
    skr_bench_make_id(id, 0, skr_bench_number((const char *)columns[0].bytes));
    loop->publication.id = id;
    loop->publication.body = body;
    skr_bench_rabbit_publish(&loop->rabbit, &loop->publication);
    loop->delete_size += (size_t)snprintf(
        loop->delete_sql + loop->delete_size, ID_TEXT_SIZE, "%s%s",
        loop->count == 0 ? "" : ",", (const char *)columns[0].bytes);
    loop->count++;
}

// False: another loop was in the way.
static bool
move_batch(struct loop *loop)
{
    loop->count = 0;
    loop->delete_size = sizeof(delete_start) - 1;
    memcpy(loop->delete_sql, delete_start, sizeof(delete_start));
    skr_bench_database_run(&loop->database, "BEGIN");
    if (!skr_bench_database_try(&loop->database, claim_sql, publish_row, loop))
        return false;
    if (loop->count > 0) {
        strcpy(loop->delete_sql + loop->delete_size, ")");
        skr_bench_rabbit_await(&loop->rabbit, 0);
        if (!skr_bench_database_try(&loop->database, loop->delete_sql, NULL,
                                    NULL))
            return false;
    }
    return skr_bench_database_try(&loop->database, "COMMIT", NULL, NULL);
}

int
main(int argc, char **argv)
{
    if (argc != 5)
        skr_bench_die("usage",
                      "bench-ceiling-claim DATABASE_URL BROKER_URL EXCHANGE "
                      "KEY");
    static struct loop loop;
    skr_bench_database_open(&loop.database, argv[1]);
    skr_bench_rabbit_open(&loop.rabbit, argv[2]);
    skr_bench_rabbit_confirm(&loop.rabbit);
    if (loop.database.ops->read_committed != NULL)
        skr_bench_database_run(&loop.database,
                               loop.database.ops->read_committed);
    loop.publication = (struct skr_bench_publication){.exchange = argv[3],
                                                      .routing_key = argv[4]};
    do {
        while (!move_batch(&loop)) {
            loop.conflicts++;
            skr_bench_database_run(&loop.database, "ROLLBACK");
        }
    } while (loop.count > 0);
    skr_bench_rabbit_close(&loop.rabbit);
    skr_bench_database_close(&loop.database);
    printf("%llu conflicts\n", (unsigned long long)loop.conflicts);
    return 0;
}
