// SPDX-License-Identifier: MIT
// The load on Kafka that a relay makes, without the relay: RATE records of 300
// bytes a second, as durable as its own, until it is ended.
//
//     bench-load-kafka BROKERS TOPIC RATE

#include "bench.h"
#include "kafka.h"

#include <stdio.h>

enum { AT_ONCE = 20 };

static void
on_report(rd_kafka_t *handle, const rd_kafka_message_t *report, void *user)
{
    (void)handle;
    (void)user;
    if (report->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        skr_bench_die("report", rd_kafka_err2str(report->err));
}

static void
produce(rd_kafka_t *handle, const char *topic, long number)
{
    char body[SKR_BENCH_BODY_SIZE + 1], key[24];
    skr_bench_write_body(body, SKR_BENCH_BODY_SIZE, number);
    size_t key_size = (size_t)snprintf(key, sizeof(key), "%ld", number);
    const rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key, key_size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {body, SKR_BENCH_BODY_SIZE}},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
    };
    rd_kafka_error_t *error =
        rd_kafka_produceva(handle, parts, sizeof(parts) / sizeof(parts[0]));
    if (error != NULL)
        skr_bench_die("produce", rd_kafka_error_string(error));
}

int
main(int argc, char **argv)
{
    const struct skr_bench_property properties[] = {
        {"enable.idempotence", "true"},
        {"acks", "all"},
        {"linger.ms", "1"},
    };
    if (argc != 4 || skr_bench_number(argv[3]) == 0)
        skr_bench_die("usage", "bench-load-kafka BROKERS TOPIC RATE");
    int64_t pause_us = AT_ONCE * INT64_C(1000000) / skr_bench_number(argv[3]);
    rd_kafka_t *handle = skr_bench_kafka_open(
        RD_KAFKA_PRODUCER, argv[1], properties,
        sizeof(properties) / sizeof(properties[0]), on_report, NULL);
    int64_t next_us = skr_bench_now_us();
    for (long number = 0;; next_us += pause_us) {
        skr_bench_sleep_until(next_us);
        for (int i = 0; i < AT_ONCE; i++)
            produce(handle, argv[2], number++);
        rd_kafka_poll(handle, 0);
    }
}
