// SPDX-License-Identifier: MIT
// Which exchanges, queues and bindings a transport has on its server: what the
// DSN names, what is there by default, and the delay queues of retries. Where
// that is wanted they are made; what is missing is named with the cure.

#ifndef SKR_BROKER_RABBITMQ_TOPOLOGY_H
#define SKR_BROKER_RABBITMQ_TOPOLOGY_H

#include "amqp/connection.h"
#include "broker/topology.h"

struct rabbit_broker;
struct rabbit_options;

// Arguments of an exchange, a queue or a binding; a list that grows in an
// arena.
struct rabbit_arguments {
    struct skr_amqp_argument *items;
    size_t count, capacity;
};

struct rabbit_queue {
    const char *name;
    bool is_transient;
    const char **binding_keys;  // none: one, which is empty
    size_t key_count, key_capacity;
    struct rabbit_arguments arguments, binding_arguments;
};

struct rabbit_topology {
    const char *exchange;       // NULL: none
    const char *exchange_type;  // NULL: the DSN names none
    struct rabbit_arguments exchange_arguments;
    struct rabbit_queue *queues;  // at least one, once it is complete
    size_t queue_count, queue_capacity;
    bool names_queues;  // the DSN does, rather than convention
    // What the DSN does not name is Symfony's default, and the transport's own:
    // the exchange, and a queue, which is made together with the exchange.
    bool has_defaults;
};

// The queue of that name, added unless it is there.
SKR_MUST_CHECK enum skr_code
skr_rabbit_queue_add(struct rabbit_options *options, const char *name,
                     size_t size, struct rabbit_queue **queue,
                     struct skr_error *error);
// Adds what is there by default, once the DSN is read.
SKR_MUST_CHECK enum skr_code
skr_rabbit_topology_complete(struct rabbit_options *options,
                             struct skr_error *error);

// Where a retry of a queue waits for so long: a queue whose messages expire
// after the delay and go back, by the default exchange, to the queue that they
// came from. It expires too, ten seconds later.
enum { RABBIT_DELAY_NAME_SIZE = 256, RABBIT_DELAY_ARGUMENTS = 4 + 32 };
struct rabbit_delay_queue {
    char name[RABBIT_DELAY_NAME_SIZE];  // and its routing key
    struct skr_amqp_argument arguments[RABBIT_DELAY_ARGUMENTS];
    struct skr_amqp_declaration exchange, queue, binding;
};
// SKR_INVALID: its name is too long. The declarations point into *delay.
SKR_MUST_CHECK enum skr_code
skr_rabbit_delay_queue(const struct rabbit_options *options, const char *queue,
                       uint32_t delay_ms, struct rabbit_delay_queue *delay,
                       struct skr_error *error);

extern const struct skr_topology_ops skr_rabbit_topology;
skr_broker_depth_fn skr_rabbit_depth;

struct rabbit_setup {
    bool is_open;          // the declaring channel
    bool is_binding_open;  // the one on which bindings are not waited for
    bool is_unbound;       // bindings may be missing: they are waited for
    enum rabbit_answer { RABBIT_NONE, RABBIT_YES, RABBIT_NO } answer;
    struct skr_error refusal;      // of an answer that is no
    uint32_t messages, consumers;  // of the queue that was asked for
    // Why what is missing could not be made; SKR_OK: nothing is known of that.
    struct skr_error trouble;
    bool is_due;      // a message found no queue: nothing is sent meanwhile
    int64_t done_ms;  // when that was last done; 0: never
};

// What comes on the channels of set-ups.
SKR_MUST_CHECK enum skr_code
skr_rabbit_topology_on_frame(struct rabbit_broker *broker,
                             const struct skr_amqp_frame *frame,
                             struct skr_error *error);

// Makes what the transport has of its own and is missing, queues first, so that
// its exchange is never there without them. What it may not make is logged, and
// no error: a publisher need not have the right.
SKR_MUST_CHECK enum skr_code
skr_rabbit_publishing_set_up(struct rabbit_broker *broker,
                             struct skr_error *error);
// A message for the exchange, sent then, found no exchange or no queue. True:
// it goes again after the set-up that is, or was, made since.
bool skr_rabbit_may_set_up_again(struct rabbit_broker *broker,
                                 const char *exchange, int64_t sent_ms);
// That set-up. After an error that needs a reconnect, failure says so.
void skr_rabbit_set_up_again(struct rabbit_broker *broker);

// For a consumer, if auto_setup is on: the parts of it. error is written to in
// any case. SKR_MISSING: the queue is not there, and may not be made.
SKR_MUST_CHECK enum skr_code
skr_rabbit_queue_make(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue,
                      struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_queue_bind(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue,
                      struct skr_error *error);
// The exchange, and what binds the queues that are there to it. Queues are
// consumed from, whatever may not be bound to them.
SKR_MUST_CHECK enum skr_code
skr_rabbit_consuming_bind(struct rabbit_broker *broker,
                          struct skr_error *error);

// What the server said of a queue, with its place, the right that was needed
// and the cure; the same of an exchange that is missing. error is both what was
// said and what becomes of it.
enum skr_code
skr_rabbit_fail_queue(const struct rabbit_broker *broker, const char *queue,
                      const char *right, struct skr_error *error);
enum skr_code
skr_rabbit_fail_exchange(const struct rabbit_broker *broker,
                         const char *exchange, struct skr_error *error);

#endif
