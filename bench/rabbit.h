// SPDX-License-Identifier: MIT
// RabbitMQ through librabbitmq, in the way that its manual shows.

#ifndef SKR_BENCH_RABBIT_H
#define SKR_BENCH_RABBIT_H

#include <amqp.h>
#include <stdbool.h>
#include <stdint.h>

enum { SKR_BENCH_WINDOW = 1000, SKR_BENCH_ID_SIZE = 16 };

// One connection with one channel.
struct skr_bench_rabbit {
    amqp_connection_state_t state;
    uint64_t next_tag;                 // of the next message
    uint64_t lowest_tag;               // not confirmed yet
    bool confirmed[SKR_BENCH_WINDOW];  // by tag
};

struct skr_bench_publication {
    const char *exchange, *routing_key;
    amqp_bytes_t body;
    // NULL: nothing but the body, persistent. Else all that a relay would say
    // of it, under this id, and it must find a queue.
    const unsigned char *id;
};

void skr_bench_rabbit_open(struct skr_bench_rabbit *rabbit, const char *url);
void skr_bench_rabbit_close(struct skr_bench_rabbit *rabbit);

// Messages are confirmed from here on.
void skr_bench_rabbit_confirm(struct skr_bench_rabbit *rabbit);
// Waits for confirmations while SKR_BENCH_WINDOW messages have none.
void skr_bench_rabbit_publish(struct skr_bench_rabbit *rabbit,
                              const struct skr_bench_publication *publication);
uint64_t skr_bench_rabbit_unconfirmed(const struct skr_bench_rabbit *rabbit);
// Until at most so many messages have no confirmation.
void skr_bench_rabbit_await(struct skr_bench_rabbit *rabbit, uint64_t most);
// Takes the confirmations that have come, without waiting.
void skr_bench_rabbit_look(struct skr_bench_rabbit *rabbit);

// Messages that wait in a queue.
uint64_t
skr_bench_rabbit_waiting(struct skr_bench_rabbit *rabbit, const char *queue);

// Makes it if it is missing, durable. Returns how many messages it had.
uint64_t
skr_bench_rabbit_purge(struct skr_bench_rabbit *rabbit, const char *queue);

// prefetch 0: no limit, and messages count as acknowledged when they are sent.
void skr_bench_rabbit_consume(struct skr_bench_rabbit *rabbit,
                              const char *queue, uint16_t prefetch);
// False: nothing came in time. The envelope is the caller's to destroy.
bool skr_bench_rabbit_receive(struct skr_bench_rabbit *rabbit, int timeout_ms,
                              amqp_envelope_t *envelope);
// This one and all before it.
void
skr_bench_rabbit_acknowledge(struct skr_bench_rabbit *rabbit, uint64_t tag);

// A UUIDv7 that no other publisher or number has.
void skr_bench_make_id(unsigned char id[SKR_BENCH_ID_SIZE], unsigned publisher,
                       long number);
// "018f3b1c-...": `text` has room for 37 characters.
void skr_bench_write_id(const unsigned char id[SKR_BENCH_ID_SIZE], char *text);
// The id in the properties of a message.
void skr_bench_read_id(const amqp_basic_properties_t *properties,
                       unsigned char id[SKR_BENCH_ID_SIZE]);

#endif
