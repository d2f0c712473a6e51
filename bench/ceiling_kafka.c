// SPDX-License-Identifier: MIT
// The ceiling of a relay from kafka_outbox: one reader in id order, records
// produced as they are read, idempotent and stored by all brokers in step; rows
// deleted, or marked as completed, in ranges behind the delivery reports, by a
// thread and a connection of their own.
//
//     bench-ceiling-kafka DATABASE_URL BROKERS delete|mark [dressed]
//
// Dressed, a record has the headers that a relay would send with it.
//
// Moves rows until there are none.

#include "bench.h"
#include "database.h"
#include "kafka.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1000,
    MOST_IN_FLIGHT = 10000,
    MOST_ROWS = 16 * 1000 * 1000,
    LEAST_RANGE = 1000,
    PAUSE_US = 1000,
};

struct loop {
    const char *database_url;
    bool marks;
    bool is_dressed;
    rd_kafka_t *handle;
    int64_t *ids;  // of everything that was read, in that order
    bool *done;
    size_t count;            // rows that were read
    size_t batch_count;      // in the last batch
    size_t confirmed;        // up to here all are
    _Atomic size_t free;     // the same, for the other thread
    _Atomic size_t settled;  // up to here rows are gone, or marked
    atomic_bool is_over;
};

static void
on_report(rd_kafka_t *handle, const rd_kafka_message_t *report, void *user)
{
    struct loop *loop = user;
    (void)handle;
    if (report->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        skr_bench_die("report", rd_kafka_err2str(report->err));
    loop->done[(size_t)(uintptr_t)report->_private] = true;
    while (loop->confirmed < loop->count && loop->done[loop->confirmed])
        loop->confirmed++;
    atomic_store(&loop->free, loop->confirmed);
}

// The key of these rows is the id of their message.
static rd_kafka_headers_t *
dress(const char *id)
{
    char stamp[64];
    snprintf(stamp, sizeof(stamp), "[{\"messageId\":\"%.36s\"}]", id);
    const char *const headers[][2] = {
        {"type", "order.placed"},
        {"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp", stamp},
        {"X-Message-Id", id},
        {"Content-Type", "application/json"},
    };
    size_t count = sizeof(headers) / sizeof(headers[0]);
    rd_kafka_headers_t *made = rd_kafka_headers_new(count);
    for (size_t i = 0; i < count; i++)
        rd_kafka_header_add(made, headers[i][0], -1, headers[i][1], -1);
    return made;
}

static void
produce_row(const struct skr_bench_bytes *columns, void *user)
{
    struct loop *loop = user;
    if (loop->count == MOST_ROWS)
        skr_bench_die("rows", "there are too many");
    loop->ids[loop->count] = strtoll(columns[0].bytes, NULL, 10);
    loop->batch_count++;
    size_t number = loop->count++;
    // What is sent and still there is bounded, as it would come again.
    while (number - atomic_load(&loop->settled) >= MOST_IN_FLIGHT)
        rd_kafka_poll(loop->handle, 1);
    void *key, *payload;
    memcpy(&key, &columns[3].bytes, sizeof(key));
    memcpy(&payload, &columns[2].bytes, sizeof(payload));
    const rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = columns[1].bytes},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key, columns[3].size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {payload, columns[2].size}},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = (void *)(uintptr_t)number},
        {.vtype = RD_KAFKA_VTYPE_HEADERS,
         .u.headers = loop->is_dressed ? dress(columns[3].bytes) : NULL},
    };
    size_t part_count =
        sizeof(parts) / sizeof(parts[0]) - (loop->is_dressed ? 0 : 1);
    for (;;) {
        rd_kafka_error_t *error =
            rd_kafka_produceva(loop->handle, parts, part_count);
        rd_kafka_resp_err_t code = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
            break;
        if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            skr_bench_die("produce", rd_kafka_err2str(code));
        rd_kafka_poll(loop->handle, 1);
    }
    rd_kafka_poll(loop->handle, 0);
}

static void
settle(struct skr_bench_database *database, bool marks, int64_t after,
       int64_t last)
{
    char sql[400];
    snprintf(sql, sizeof(sql),
             marks ? "UPDATE kafka_outbox SET batch_id = "
                     "'00000000-0000-0000-0000-000000000000', push_started_at "
                     "= CURRENT_TIMESTAMP, push_completed_at = "
                     "CURRENT_TIMESTAMP, push_attempts = push_attempts + 1 "
                     "WHERE id > %lld AND id <= %lld"
                   : "DELETE FROM kafka_outbox WHERE id > %lld AND id <= %lld",
             (long long)after, (long long)last);
    if (!skr_bench_database_try(database, sql, NULL, NULL))
        skr_bench_die("settle", "somebody else is at work");
}

static void *
run_settler(void *user)
{
    struct loop *loop = user;
    struct skr_bench_database database;
    skr_bench_database_open(&database, loop->database_url);
    size_t settled = 0;
    for (;;) {
        // In this order: what is over has told of all its rows.
        bool is_over = atomic_load(&loop->is_over);
        size_t until = atomic_load(&loop->free);
        if (until - settled >= LEAST_RANGE || (is_over && until > settled)) {
            settle(&database, loop->marks,
                   settled == 0 ? loop->ids[0] - 1 : loop->ids[settled - 1],
                   loop->ids[until - 1]);
            settled = until;
            atomic_store(&loop->settled, settled);
        } else if (is_over) {
            break;
        } else {
            skr_bench_sleep_until(skr_bench_now_us() + PAUSE_US);
        }
    }
    skr_bench_database_close(&database);
    return NULL;
}

static void
read_all(struct loop *loop)
{
    struct skr_bench_database database;
    char sql[300];
    skr_bench_database_open(&database, loop->database_url);
    do {
        snprintf(sql, sizeof(sql),
                 "SELECT o.id, o.topic, o.payload_json, o.key%s FROM "
                 "kafka_outbox o WHERE o.id > %lld AND o.push_completed_at IS "
                 "NULL AND o.errored = 0 ORDER BY o.id LIMIT %d",
                 loop->is_dressed ? ", o.payload_headers" : "",
                 loop->count == 0 ? 0LL : (long long)loop->ids[loop->count - 1],
                 BATCH);
        loop->batch_count = 0;
        if (!skr_bench_database_try(&database, sql, produce_row, loop))
            skr_bench_die("read", "somebody else is at work");
    } while (loop->batch_count > 0);
    while (loop->confirmed < loop->count)
        rd_kafka_poll(loop->handle, 10);
    skr_bench_database_close(&database);
}

int
main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        skr_bench_die("usage", "bench-ceiling-kafka DATABASE_URL BROKERS "
                               "delete|mark [dressed]");
    char in_flight[16];
    snprintf(in_flight, sizeof(in_flight), "%d", MOST_IN_FLIGHT);
    const struct skr_bench_property properties[] = {
        {"enable.idempotence", "true"},
        {"acks", "all"},
        {"linger.ms", "1"},
        {"queue.buffering.max.messages", in_flight},
    };
    static struct loop loop;
    loop.database_url = argv[1];
    loop.marks = strcmp(argv[3], "mark") == 0;
    loop.is_dressed = argc == 5;
    loop.ids = calloc(MOST_ROWS, sizeof(*loop.ids));
    loop.done = calloc(MOST_ROWS, sizeof(*loop.done));
    if (loop.ids == NULL || loop.done == NULL)
        skr_bench_die("memory", "there is none");
    loop.handle = skr_bench_kafka_open(
        RD_KAFKA_PRODUCER, argv[2], properties,
        sizeof(properties) / sizeof(properties[0]), on_report, &loop);
    pthread_t settler;
    if (pthread_create(&settler, NULL, run_settler, &loop) != 0)
        skr_bench_die("settler", "cannot start a thread");
    read_all(&loop);
    atomic_store(&loop.is_over, true);
    pthread_join(settler, NULL);
    rd_kafka_destroy(loop.handle);
    free(loop.ids);
    free(loop.done);
    return 0;
}
