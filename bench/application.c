// SPDX-License-Identifier: MIT
// An application whose patience is measured. One connection inserts RATE
// messages a second, 20 in a transaction, so that a relay has that much to do;
// another inserts one at a time, 100 times a second, and looks at the clock.
//
//     bench-application DATABASE_URL SECONDS RATE [TOPIC]
//
// With a topic the messages are rows of kafka_outbox.
//
// Prints "p50 p99 max conflicts lock_waits": microseconds from BEGIN to the
// end of COMMIT; transactions that the server sacrificed or let wait too long;
// waits for a lock, all that the server counted, or where it does not count,
// those that were seen in looking every 20 ms.

#include "bench.h"
#include "database.h"
#include "publish.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEED = 20, PROBES_A_SECOND = 100, LOOK_US = 20000 };

struct application {
    const char *url;
    const char *topic;  // NULL: messenger_outbox
    int64_t end_us;
    long rate;
    _Atomic long conflicts;
    int64_t lock_waits;
    int64_t *took_us;
    size_t count, capacity;
};

static struct skr_outbox *
open_outbox(const struct application *application)
{
    return application->topic == NULL
               ? skr_bench_outbox_open(NULL)
               : skr_bench_kafka_outbox_open(application->topic);
}

static void
publish(struct application *application, const struct skr_outbox *outbox,
        struct skr_bench_database *database, size_t count)
{
    skr_bench_database_run(database, "BEGIN");
    if (skr_bench_publish(outbox, database->ops->tx(database->connection), 0,
                          count, 0) &&
        skr_bench_database_try(database, "COMMIT", NULL, NULL))
        return;
    atomic_fetch_add(&application->conflicts, 1);
    skr_bench_database_run(database, "ROLLBACK");
}

static void *
run_feed(void *user)
{
    struct application *application = user;
    struct skr_bench_database database;
    struct skr_outbox *outbox = open_outbox(application);
    skr_bench_database_open(&database, application->url);
    for (int64_t next_us = skr_bench_now_us(); next_us < application->end_us;
         next_us += FEED * 1000000 / application->rate) {
        skr_bench_sleep_until(next_us);
        publish(application, outbox, &database, FEED);
    }
    skr_bench_database_close(&database);
    skr_outbox_free(outbox);
    return NULL;
}

static void *
run_lock_watch(void *user)
{
    struct application *application = user;
    struct skr_bench_database database;
    skr_bench_database_open(&database, application->url);
    const struct skr_bench_database_ops *ops = database.ops;
    int64_t first = skr_bench_database_number(&database, ops->lock_waits);
    int64_t last = first, sum = 0;
    for (int64_t next_us = skr_bench_now_us(); next_us < application->end_us;
         next_us += LOOK_US) {
        skr_bench_sleep_until(next_us);
        last = skr_bench_database_number(&database, ops->lock_waits);
        sum += last;
    }
    application->lock_waits = ops->counts_lock_waits ? last - first : sum;
    skr_bench_database_close(&database);
    return NULL;
}

static void
probe(struct application *application)
{
    struct skr_bench_database database;
    struct skr_outbox *outbox = open_outbox(application);
    skr_bench_database_open(&database, application->url);
    for (int64_t next_us = skr_bench_now_us();
         next_us < application->end_us &&
         application->count < application->capacity;
         next_us = skr_bench_next_arrival(next_us, 1000000 / PROBES_A_SECOND)) {
        skr_bench_sleep_until(next_us);
        int64_t began_us = skr_bench_now_us();
        publish(application, outbox, &database, 1);
        application->took_us[application->count++] =
            skr_bench_now_us() - began_us;
    }
    skr_bench_database_close(&database);
    skr_outbox_free(outbox);
}

int
main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        skr_bench_die("usage",
                      "bench-application DATABASE_URL SECONDS RATE [TOPIC]");
    long seconds = skr_bench_number(argv[2]);
    struct application application = {
        .url = argv[1],
        .topic = argc == 5 ? argv[4] : NULL,
        .end_us = skr_bench_now_us() + seconds * 1000000,
        .rate = skr_bench_number(argv[3]),
        .capacity = (size_t)seconds * PROBES_A_SECOND * 2,
    };
    application.took_us = calloc(application.capacity, sizeof(int64_t));
    pthread_t feed, lock_watch;
    if (application.rate == 0 || application.took_us == NULL)
        skr_bench_die("usage", "a time and a rate are needed");
    if (pthread_create(&feed, NULL, run_feed, &application) != 0 ||
        pthread_create(&lock_watch, NULL, run_lock_watch, &application) != 0)
        skr_bench_die("application", "cannot start a thread");
    probe(&application);
    pthread_join(feed, NULL);
    pthread_join(lock_watch, NULL);
    size_t count = application.count;
    int64_t *took_us = application.took_us;
    printf("%lld %lld %lld %ld %lld\n",
           (long long)skr_bench_percentile(took_us, count, 0.5),
           (long long)skr_bench_percentile(took_us, count, 0.99),
           (long long)skr_bench_percentile(took_us, count, 1),
           atomic_load(&application.conflicts),
           (long long)application.lock_waits);
    free(took_us);
    return 0;
}
