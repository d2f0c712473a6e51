// SPDX-License-Identifier: MIT
// The ceiling of a consumer on SQLite: claim 100 rows of a queue; remember
// each id and insert one row for it, all in one transaction; delete the rows.
//
//     bench-ceiling-consume-sqlite QUEUE_FILE INBOX_FILE

#include "bench.h"
#include "sqlite.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 100, ID_SIZE = 16 };

struct loop {
    sqlite3 *queue, *inbox;
    sqlite3_stmt *claim, *mark, *remember, *effect, *delete;
    int count;
    struct {
        int64_t row;
        unsigned char id[ID_SIZE];
        char body[4096];
        int body_size;
    } items[BATCH];
};

static void
open_loop(struct loop *loop, const char *queue, const char *inbox)
{
    loop->queue = skr_bench_open(queue);
    loop->inbox = skr_bench_open(inbox);
    loop->claim = skr_bench_prepare(
        loop->queue, "SELECT id, body, headers FROM messenger_messages "
                     "WHERE queue_name = 'orders' AND delivered_at IS NULL "
                     "ORDER BY id LIMIT ?");
    loop->mark = skr_bench_prepare(
        loop->queue,
        "UPDATE messenger_messages SET delivered_at = ? WHERE id = ?");
    loop->delete = skr_bench_prepare(
        loop->queue, "DELETE FROM messenger_messages WHERE id = ?");
    loop->remember = skr_bench_prepare(
        loop->inbox, "INSERT INTO message_broker_deduplication "
                     "(message_id, message_name, processed_at) "
                     "VALUES (?, 'order.placed', ?) "
                     "ON CONFLICT (message_id) DO NOTHING");
    loop->effect = skr_bench_prepare(
        loop->inbox, "INSERT INTO effect (id, body) VALUES (?, ?)");
}

// The id is all that is looked for in the headers.
static void
find_id(const char *headers, unsigned char id[ID_SIZE])
{
    static const char name[] = "\"X-Message-Id\":\"";
    const char *at = headers == NULL ? NULL : strstr(headers, name);
    if (at == NULL)
        skr_bench_die("headers", "no X-Message-Id");
    at += sizeof(name) - 1;
    for (int i = 0; i < ID_SIZE; i++) {
        unsigned byte = 0;
        at += *at == '-';
        if (sscanf(at, "%2x", &byte) != 1)
            skr_bench_die("X-Message-Id", "not a UUID");
        id[i] = (unsigned char)byte;
        at += 2;
    }
}

static void
take_row(struct loop *loop)
{
    int size = sqlite3_column_bytes(loop->claim, 1);
    if (size > (int)sizeof(loop->items[0].body))
        skr_bench_die("body", "too large");
    loop->items[loop->count].row = sqlite3_column_int64(loop->claim, 0);
    loop->items[loop->count].body_size = size;
    memcpy(loop->items[loop->count].body, sqlite3_column_text(loop->claim, 1),
           (size_t)size);
    find_id((const char *)sqlite3_column_text(loop->claim, 2),
            loop->items[loop->count].id);
    loop->count++;
}

static void
claim(struct loop *loop, const char *now)
{
    loop->count = 0;
    skr_bench_run(loop->queue, "BEGIN IMMEDIATE");
    sqlite3_bind_int64(loop->claim, 1, BATCH);
    while (skr_bench_step(loop->claim))
        take_row(loop);
    for (int i = 0; i < loop->count; i++) {
        skr_bench_bind_text(loop->mark, 1, now);
        sqlite3_bind_int64(loop->mark, 2, loop->items[i].row);
        skr_bench_step(loop->mark);
    }
    skr_bench_run(loop->queue, "COMMIT");
}

static void
handle(struct loop *loop, const char *now)
{
    skr_bench_run(loop->inbox, "BEGIN IMMEDIATE");
    for (int i = 0; i < loop->count; i++) {
        sqlite3_bind_blob(loop->remember, 1, loop->items[i].id, ID_SIZE,
                          SQLITE_STATIC);
        skr_bench_bind_text(loop->remember, 2, now);
        skr_bench_step(loop->remember);
        if (sqlite3_changes(loop->inbox) == 0)
            continue;
        sqlite3_bind_blob(loop->effect, 1, loop->items[i].id, ID_SIZE,
                          SQLITE_STATIC);
        sqlite3_bind_text(loop->effect, 2, loop->items[i].body,
                          loop->items[i].body_size, SQLITE_STATIC);
        skr_bench_step(loop->effect);
    }
    skr_bench_run(loop->inbox, "COMMIT");
}

static void
acknowledge(struct loop *loop)
{
    skr_bench_run(loop->queue, "BEGIN IMMEDIATE");
    for (int i = 0; i < loop->count; i++) {
        sqlite3_bind_int64(loop->delete, 1, loop->items[i].row);
        skr_bench_step(loop->delete);
    }
    skr_bench_run(loop->queue, "COMMIT");
}

int
main(int argc, char **argv)
{
    if (argc != 3)
        skr_bench_die("usage",
                      "bench-ceiling-consume-sqlite QUEUE_FILE INBOX_FILE");
    static struct loop loop;
    struct skr_bench_marks marks = {0};
    uint64_t handled = 0;
    open_loop(&loop, argv[1], argv[2]);
    for (;;) {
        char now[SKR_BENCH_TIME_SIZE];
        skr_bench_timestamp(now);
        claim(&loop, now);
        if (loop.count == 0)
            break;
        handle(&loop, now);
        acknowledge(&loop);
        handled += (uint64_t)loop.count;
        skr_bench_mark(&marks, handled);
    }
    skr_bench_report(&marks);
    skr_bench_close(loop.inbox);
    skr_bench_close(loop.queue);
    return 0;
}
