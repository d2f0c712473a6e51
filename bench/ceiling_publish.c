// SPDX-License-Identifier: MIT
// The ceiling of a relay to RabbitMQ: messages that need not be read from
// anywhere, persistent, to durable queues, confirmed, 1,000 of them on the way
// at a time. Each queue has a connection and a thread of its own.
//
//     bench-ceiling-publish BROKER_URL ROWS RATE BODY_SIZE bare|dressed|alone
//                           EXCHANGE KEY...
//
// Publishes ROWS messages under every KEY, RATE of them a second (0: as many
// as go). A dressed message has all that a relay says of it and must find a
// queue; a bare one has a body. One that is alone is dressed, and the next
// waits for its confirmation. "" is the exchange that knows every queue by its
// name.

#include "bench.h"
#include "rabbit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_QUEUES = 8, BODY_CAPACITY = 65536 };

struct publisher {
    pthread_t thread;
    const char *url;
    struct skr_bench_publication publication;
    bool is_dressed, is_alone;
    long rows, rate;
    size_t body_size;
    unsigned number;  // makes ids differ from those of the others
};

static void *
run_publisher(void *user)
{
    struct publisher *publisher = user;
    struct skr_bench_publication publication = publisher->publication;
    static _Thread_local char body[BODY_CAPACITY + 1];
    unsigned char id[SKR_BENCH_ID_SIZE];
    struct skr_bench_rabbit rabbit;
    skr_bench_rabbit_open(&rabbit, publisher->url);
    skr_bench_rabbit_confirm(&rabbit);
    publication.id = publisher->is_dressed ? id : NULL;
    publication.body =
        (amqp_bytes_t){.bytes = body, .len = publisher->body_size};
    int64_t began_us = skr_bench_now_us();
    for (long i = 0; i < publisher->rows; i++) {
        skr_bench_write_body(body, publisher->body_size, i);
        if (publisher->is_dressed)
            skr_bench_make_id(id, publisher->number, i);
        skr_bench_rabbit_publish(&rabbit, &publication);
        if (publisher->is_alone)
            skr_bench_rabbit_await(&rabbit, 0);
        if (publisher->rate == 0)
            continue;
        skr_bench_rabbit_look(&rabbit);
        skr_bench_sleep_until(began_us + i * 1000000 / publisher->rate);
    }
    skr_bench_rabbit_await(&rabbit, 0);
    skr_bench_rabbit_close(&rabbit);
    return NULL;
}

int
main(int argc, char **argv)
{
    if (argc < 8 || argc > 7 + MAX_QUEUES)
        skr_bench_die("usage",
                      "bench-ceiling-publish BROKER_URL ROWS RATE BODY_SIZE "
                      "bare|dressed|alone EXCHANGE KEY...");
    static struct publisher publishers[MAX_QUEUES];
    int count = argc - 7;
    for (int i = 0; i < count; i++) {
        publishers[i] = (struct publisher){
            .url = argv[1],
            .rows = skr_bench_number(argv[2]),
            .rate = skr_bench_number(argv[3]),
            .body_size = (size_t)skr_bench_number(argv[4]),
            .is_dressed = strcmp(argv[5], "bare") != 0,
            .is_alone = strcmp(argv[5], "alone") == 0,
            .publication = {.exchange = argv[6], .routing_key = argv[7 + i]},
            .number = (unsigned)i,
        };
        if (publishers[i].body_size > BODY_CAPACITY)
            skr_bench_die(argv[4], "too large");
        if (pthread_create(&publishers[i].thread, NULL, run_publisher,
                           &publishers[i]) != 0)
            skr_bench_die("publisher", "cannot start a thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(publishers[i].thread, NULL);
    return 0;
}
