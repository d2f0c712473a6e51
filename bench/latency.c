// SPDX-License-Identifier: MIT
// How long a message takes from the end of its COMMIT until a consumer has it
// that RabbitMQ pushes to, with a relay running between the two.
//
//     bench-latency DATABASE_URL BROKER_URL QUEUE COUNT PAUSE_MS
//
// Messages arrive as a Poisson process, PAUSE_MS apart in the mean; a lone one
// after exactly that time. Prints "p50 p99 max publish_p50 publish_p99
// statements": times in microseconds, those of publishing from BEGIN to the
// end of COMMIT; the statements of this program that the server counted, -1
// where it does not count them by session.

#include "bench.h"
#include "database.h"
#include "publish.h"
#include "rabbit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATIENCE_MS = 30000, LOOK_MS = 100 };

struct run {
    const char *database_url;
    long count;
    int64_t mean_pause_us;
    int64_t *committed_us, *took_us, *arrived_us;  // by number
    _Atomic int64_t last_us;                       // the last commit
    _Atomic long committed;
    int64_t statements;
};

// At times that do not depend on how long a commit takes: a slow one must not
// thin out the load that the others see.
static void *
run_application(void *user)
{
    struct run *run = user;
    struct skr_bench_database database;
    struct skr_outbox *outbox = skr_bench_outbox_open(NULL);
    skr_bench_database_open(&database, run->database_url);
    struct skr_tx tx = database.ops->tx(database.connection);
    int64_t next_us = skr_bench_now_us();
    for (long i = 0; i < run->count; i++) {
        next_us = run->count == 1
                      ? next_us + run->mean_pause_us
                      : skr_bench_next_arrival(next_us, run->mean_pause_us);
        skr_bench_sleep_until(next_us);
        int64_t began_us = skr_bench_now_us();
        skr_bench_database_run(&database, "BEGIN");
        if (!skr_bench_publish(outbox, tx, i, 1, 0))
            skr_bench_die("publish", "a conflict with another transaction");
        skr_bench_database_run(&database, "COMMIT");
        run->committed_us[i] = skr_bench_now_us();
        run->took_us[i] = run->committed_us[i] - began_us;
        atomic_store(&run->last_us, run->committed_us[i]);
        atomic_store(&run->committed, i + 1);
    }
    run->statements = database.ops->own_statements == NULL
                          ? -1
                          : skr_bench_database_number(
                                &database, database.ops->own_statements);
    skr_bench_database_close(&database);
    skr_outbox_free(outbox);
    return NULL;
}

static void
receive_all(struct run *run, struct skr_bench_rabbit *rabbit)
{
    for (long left = run->count; left > 0;) {
        amqp_envelope_t envelope;
        if (!skr_bench_rabbit_receive(rabbit, LOOK_MS, &envelope)) {
            if (atomic_load(&run->committed) > run->count - left &&
                skr_bench_now_us() - atomic_load(&run->last_us) >
                    PATIENCE_MS * 1000)
                skr_bench_die("queue", "a message did not arrive in 30 s");
            continue;
        }
        int64_t now_us = skr_bench_now_us();
        long number = skr_bench_read_body(envelope.message.body.bytes,
                                          envelope.message.body.len);
        amqp_destroy_envelope(&envelope);
        if (number < 0 || number >= run->count)
            skr_bench_die("queue", "a message that nobody published here");
        left -= run->arrived_us[number] == 0;
        run->arrived_us[number] = now_us;
    }
}

static void
print_run(struct run *run)
{
    size_t count = (size_t)run->count;
    for (size_t i = 0; i < count; i++)
        run->arrived_us[i] -= run->committed_us[i];
    printf("%lld %lld %lld %lld %lld %lld\n",
           (long long)skr_bench_percentile(run->arrived_us, count, 0.5),
           (long long)skr_bench_percentile(run->arrived_us, count, 0.99),
           (long long)skr_bench_percentile(run->arrived_us, count, 1),
           (long long)skr_bench_percentile(run->took_us, count, 0.5),
           (long long)skr_bench_percentile(run->took_us, count, 0.99),
           (long long)run->statements);
}

int
main(int argc, char **argv)
{
    if (argc != 6)
        skr_bench_die("usage", "bench-latency DATABASE_URL BROKER_URL QUEUE "
                               "COUNT PAUSE_MS");
    struct run run = {.database_url = argv[1],
                      .count = skr_bench_number(argv[4]),
                      .mean_pause_us = skr_bench_number(argv[5]) * 1000};
    int64_t *times = calloc((size_t)run.count * 3, sizeof(*times));
    if (run.count == 0 || times == NULL)
        skr_bench_die(argv[4], "nothing to do, or too much");
    run.committed_us = times;
    run.took_us = times + run.count;
    run.arrived_us = times + 2 * run.count;
    struct skr_bench_rabbit rabbit;
    skr_bench_rabbit_open(&rabbit, argv[2]);
    skr_bench_rabbit_consume(&rabbit, argv[3], 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_application, &run) != 0)
        skr_bench_die("application", "cannot start a thread");
    receive_all(&run, &rabbit);
    pthread_join(thread, NULL);
    skr_bench_rabbit_close(&rabbit);
    print_run(&run);
    free(times);
    return 0;
}
