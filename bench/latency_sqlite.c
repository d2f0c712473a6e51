// SPDX-License-Identifier: MIT
// How long a message takes from its commit in the outbox until it can be seen
// in the queue, with a relay running between the two.
//
//     bench-latency-sqlite OUTBOX_FILE QUEUE_FILE COUNT PAUSE_MS
//
// Prints "queue_p50_us queue_p99_us queue_max_us publish_p50_us
// publish_p99_us": the last two from BEGIN to the end of COMMIT.

#include "bench.h"
#include "publish.h"
#include "sqlite.h"

#include <pthread.h>
#include <skirnir/sqlite.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POLL_NS = 50000, GIVE_UP_US = 30000000 };

struct watch {
    const char *queue_file;
    long count;
    int64_t *seen_us;  // by the number in the body
    _Atomic bool is_watching;
    _Atomic long published;
    _Atomic int64_t published_us;  // the last one
};

static void
sleep_ns(int64_t ns)
{
    struct timespec pause = {.tv_sec = ns / 1000000000,
                             .tv_nsec = ns % 1000000000};
    nanosleep(&pause, NULL);
}

static void
check_patience(struct watch *watch, long seen)
{
    if (atomic_load(&watch->published) > seen &&
        skr_bench_now_us() - atomic_load(&watch->published_us) > GIVE_UP_US)
        skr_bench_die("queue", "a message did not arrive in 30 s");
}

static int64_t
read_number(sqlite3_stmt *statement)
{
    int64_t number = 0;
    while (skr_bench_step(statement))
        number = sqlite3_column_int64(statement, 0);
    return number;
}

// One row at a time, as they come; asking for the version costs two
// microseconds and no lock.
static void *
run_watch(void *user)
{
    struct watch *watch = user;
    sqlite3 *queue = skr_bench_open(watch->queue_file);
    sqlite3_stmt *version = skr_bench_prepare(queue, "PRAGMA data_version");
    sqlite3_stmt *rows = skr_bench_prepare(
        queue, "SELECT id, body FROM messenger_messages WHERE id > ?");
    sqlite3_stmt *newest = skr_bench_prepare(
        queue, "SELECT COALESCE(MAX(id), 0) FROM messenger_messages");
    int64_t seen_version = read_number(version);
    int64_t cursor = read_number(newest);
    atomic_store(&watch->is_watching, true);
    for (long left = watch->count; left > 0;) {
        int64_t now_version = read_number(version);
        if (now_version == seen_version) {
            check_patience(watch, watch->count - left);
            sleep_ns(POLL_NS);
            continue;
        }
        seen_version = now_version;
        int64_t now_us = skr_bench_now_us();
        sqlite3_bind_int64(rows, 1, cursor);
        for (; skr_bench_step(rows); left--) {
            cursor = sqlite3_column_int64(rows, 0);
            long number =
                skr_bench_read_body((const char *)sqlite3_column_text(rows, 1),
                                    (size_t)sqlite3_column_bytes(rows, 1));
            watch->seen_us[number] = now_us;
        }
    }
    skr_bench_close(queue);
    return NULL;
}

// At fixed times, however long a commit takes: a slow one must not thin out
// the load that the others see.
static void
publish_all(const char *outbox_file, struct watch *watch, int64_t pause_us,
            int64_t *committed_us, int64_t *took_us)
{
    struct skr_outbox *outbox = skr_bench_outbox_open(NULL);
    sqlite3 *connection = skr_bench_open(outbox_file);
    int64_t next_us = skr_bench_now_us();
    for (long i = 0; i < watch->count; i++) {
        next_us += pause_us;
        int64_t began_us = skr_bench_now_us();
        if (next_us > began_us)
            sleep_ns((next_us - began_us) * 1000);
        began_us = skr_bench_now_us();
        skr_bench_run(connection, "BEGIN IMMEDIATE");
        if (!skr_bench_publish(outbox, skr_sqlite_tx(connection), i, 1, 0))
            skr_bench_die("publish", "somebody else is at work");
        skr_bench_run(connection, "COMMIT");
        committed_us[i] = skr_bench_now_us();
        took_us[i] = committed_us[i] - began_us;
        atomic_store(&watch->published_us, committed_us[i]);
        atomic_store(&watch->published, i + 1);
    }
    skr_bench_close(connection);
    skr_outbox_free(outbox);
}

int
main(int argc, char **argv)
{
    if (argc != 5)
        skr_bench_die(
            "usage",
            "bench-latency-sqlite OUTBOX_FILE QUEUE_FILE COUNT PAUSE_MS");
    long count = skr_bench_number(argv[3]);
    struct watch watch = {.queue_file = argv[2], .count = count};
    int64_t *committed_us = calloc((size_t)count * 3, sizeof(*committed_us));
    if (count == 0 || committed_us == NULL)
        skr_bench_die(argv[3], "nothing to do, or too much");
    int64_t *took_us = committed_us + count;
    watch.seen_us = took_us + count;
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_watch, &watch) != 0)
        skr_bench_die("watch", "cannot start a thread");
    while (!atomic_load(&watch.is_watching))
        sleep_ns(POLL_NS);
    publish_all(argv[1], &watch, skr_bench_number(argv[4]) * 1000, committed_us,
                took_us);
    pthread_join(thread, NULL);
    for (long i = 0; i < count; i++)
        watch.seen_us[i] -= committed_us[i];
    size_t all = (size_t)count;
    printf("%lld %lld %lld %lld %lld\n",
           (long long)skr_bench_percentile(watch.seen_us, all, 0.5),
           (long long)skr_bench_percentile(watch.seen_us, all, 0.99),
           (long long)skr_bench_percentile(watch.seen_us, all, 1),
           (long long)skr_bench_percentile(took_us, all, 0.5),
           (long long)skr_bench_percentile(took_us, all, 0.99));
    free(committed_us);
    return 0;
}
