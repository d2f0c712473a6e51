// SPDX-License-Identifier: MIT
// The ceiling of a relay on SQLite: the least that moves rows from an outbox
// to a queue in another file without losing one. No headers are read, nothing
// is checked, and no other is asked for.
//
//     bench-ceiling-sqlite OUTBOX_FILE QUEUE_FILE

#include "bench.h"
#include "sqlite.h"

#include <stdio.h>

enum { BATCH = 1000 };

struct loop {
    sqlite3 *outbox, *queue;
    sqlite3_stmt *select, *insert, *delete;
    int64_t cursor;
    int64_t rows[BATCH];
};

static void
open_loop(struct loop *loop, const char *outbox, const char *queue)
{
    loop->outbox = skr_bench_open(outbox);
    loop->queue = skr_bench_open(queue);
    loop->select = skr_bench_prepare(
        loop->outbox,
        "SELECT id, body, headers FROM messenger_outbox "
        "WHERE queue_name = 'outbox' AND id > ? ORDER BY id LIMIT ?");
    loop->insert = skr_bench_prepare(
        loop->queue, "INSERT INTO messenger_messages "
                     "(body, headers, queue_name, created_at, available_at) "
                     "VALUES (?1, ?2, 'orders', ?3, ?3)");
    loop->delete = skr_bench_prepare(
        loop->outbox, "DELETE FROM messenger_outbox WHERE id = ?");
}

// Rows go from page to page: read and written without a copy in between.
static int
copy_batch(struct loop *loop)
{
    char now[SKR_BENCH_TIME_SIZE];
    int count = 0;
    skr_bench_timestamp(now);
    skr_bench_run(loop->queue, "BEGIN IMMEDIATE");
    sqlite3_bind_int64(loop->select, 1, loop->cursor);
    sqlite3_bind_int64(loop->select, 2, BATCH);
    while (skr_bench_step(loop->select)) {
        loop->rows[count++] = sqlite3_column_int64(loop->select, 0);
        skr_bench_bind_column(loop->insert, 1, loop->select, 1);
        skr_bench_bind_column(loop->insert, 2, loop->select, 2);
        skr_bench_bind_text(loop->insert, 3, now);
        skr_bench_step(loop->insert);
    }
    skr_bench_run(loop->queue, "COMMIT");
    return count;
}

static void
delete_batch(struct loop *loop, int count)
{
    skr_bench_run(loop->outbox, "BEGIN IMMEDIATE");
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int64(loop->delete, 1, loop->rows[i]);
        skr_bench_step(loop->delete);
    }
    skr_bench_run(loop->outbox, "COMMIT");
    loop->cursor = loop->rows[count - 1];
}

int
main(int argc, char **argv)
{
    if (argc != 3)
        skr_bench_die("usage", "bench-ceiling-sqlite OUTBOX_FILE QUEUE_FILE");
    static struct loop loop;
    struct skr_bench_marks marks = {0};
    uint64_t moved = 0;
    open_loop(&loop, argv[1], argv[2]);
    for (int count; (count = copy_batch(&loop)) > 0;) {
        delete_batch(&loop, count);
        moved += (uint64_t)count;
        skr_bench_mark(&marks, moved);
    }
    skr_bench_report(&marks);
    skr_bench_close(loop.queue);
    skr_bench_close(loop.outbox);
    return 0;
}
