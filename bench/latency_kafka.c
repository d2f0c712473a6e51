// SPDX-License-Identifier: MIT
// How long a row takes from the end of its COMMIT until a consumer of Kafka has
// it, with a relay running between the two.
//
//     bench-latency-kafka DATABASE_URL BROKERS TOPIC COUNT PAUSE_MS
//
// Rows arrive as a Poisson process, PAUSE_MS apart in the mean. Prints "p50 p99
// max" in microseconds.

#include "bench.h"
#include "database.h"
#include "kafka.h"
#include "publish.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATIENCE_US = 30 * 1000000, LOOK_MS = 100 };

struct run {
    const char *database_url, *topic;
    long count;
    int64_t mean_pause_us;
    int64_t *committed_us, *arrived_us;  // by number
    _Atomic int64_t last_us;             // the last commit; 0: none yet
};

// At times that do not depend on how long a commit takes.
static void *
run_application(void *user)
{
    struct run *run = user;
    struct skr_bench_database database;
    struct skr_outbox *outbox = skr_bench_kafka_outbox_open(run->topic);
    skr_bench_database_open(&database, run->database_url);
    struct skr_tx tx = database.ops->tx(database.connection);
    int64_t next_us = skr_bench_now_us();
    for (long i = 0; i < run->count; i++) {
        next_us = skr_bench_next_arrival(next_us, run->mean_pause_us);
        skr_bench_sleep_until(next_us);
        skr_bench_database_run(&database, "BEGIN");
        if (!skr_bench_publish(outbox, tx, i, 1, 0))
            skr_bench_die("publish", "a conflict with another transaction");
        skr_bench_database_run(&database, "COMMIT");
        run->committed_us[i] = skr_bench_now_us();
        atomic_store(&run->last_us, run->committed_us[i]);
    }
    skr_bench_database_close(&database);
    skr_outbox_free(outbox);
    return NULL;
}

// From the end of every partition on.
static void
assign_all(rd_kafka_t *handle, const char *topic)
{
    int32_t partitions = skr_bench_kafka_partitions(handle, topic);
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new(partitions);
    for (int32_t i = 0; i < partitions; i++) {
        int64_t first = 0, next = 0;
        if (rd_kafka_query_watermark_offsets(handle, topic, i, &first, &next,
                                             PATIENCE_US / 1000) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            skr_bench_die(topic, "its end is not known");
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = next;
    }
    if (rd_kafka_assign(handle, list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        skr_bench_die(topic, "cannot be consumed");
    rd_kafka_topic_partition_list_destroy(list);
}

static void
receive_all(struct run *run, rd_kafka_t *handle)
{
    for (long left = run->count; left > 0;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(handle, LOOK_MS);
        int64_t now_us = skr_bench_now_us();
        int64_t last_us = atomic_load(&run->last_us);
        if (message == NULL || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            if (last_us != 0 && now_us - last_us > PATIENCE_US)
                skr_bench_die(run->topic, "a record did not arrive in 30 s");
            if (message != NULL)
                rd_kafka_message_destroy(message);
            continue;
        }
        long number = skr_bench_read_body(message->payload, message->len);
        rd_kafka_message_destroy(message);
        if (number < 0 || number >= run->count)
            skr_bench_die(run->topic, "a record that nobody published here");
        left -= run->arrived_us[number] == 0;
        run->arrived_us[number] = now_us;
    }
}

int
main(int argc, char **argv)
{
    if (argc != 6)
        skr_bench_die("usage", "bench-latency-kafka DATABASE_URL BROKERS TOPIC "
                               "COUNT PAUSE_MS");
    struct run run = {.database_url = argv[1],
                      .topic = argv[3],
                      .count = skr_bench_number(argv[4]),
                      .mean_pause_us = skr_bench_number(argv[5]) * 1000};
    const struct skr_bench_property properties[] = {
        {"group.id", "bench"},
        {"enable.auto.commit", "false"},
        {"fetch.wait.max.ms", "100"},
    };
    size_t count = (size_t)run.count;
    int64_t *times = calloc(count * 2, sizeof(*times));
    if (count == 0 || times == NULL)
        skr_bench_die(argv[4], "nothing to do, or too much");
    run.committed_us = times;
    run.arrived_us = times + count;
    rd_kafka_t *handle = skr_bench_kafka_open(
        RD_KAFKA_CONSUMER, argv[2], properties,
        sizeof(properties) / sizeof(properties[0]), NULL, NULL);
    rd_kafka_poll_set_consumer(handle);
    assign_all(handle, run.topic);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_application, &run) != 0)
        skr_bench_die("application", "cannot start a thread");
    receive_all(&run, handle);
    pthread_join(thread, NULL);
    rd_kafka_consumer_close(handle);
    rd_kafka_destroy(handle);
    for (size_t i = 0; i < count; i++)
        run.arrived_us[i] -= run.committed_us[i];
    printf("%lld %lld %lld\n",
           (long long)skr_bench_percentile(run.arrived_us, count, 0.5),
           (long long)skr_bench_percentile(run.arrived_us, count, 0.99),
           (long long)skr_bench_percentile(run.arrived_us, count, 1));
    free(times);
    return 0;
}
