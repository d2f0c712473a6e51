// SPDX-License-Identifier: MIT
// Where a message goes on its broker. The first that says something wins, for
// exchange and routing key each: the message's own headers, the rule for its
// name, what its type asks for, the transport's own, the convention. On Kafka
// it is topic and key: headers, rule, the transport's own, the convention.

#ifndef SKR_MESSAGE_ROUTE_H
#define SKR_MESSAGE_ROUTE_H

#include "message/headers.h"

#include <stdbool.h>

struct skr_arena;
struct skr_envelope;
struct skr_url;

// Set on a message, and never sent: they are for the relay.
#define SKR_HEADER_EXCHANGE "X-Skirnir-Exchange"
#define SKR_HEADER_ROUTING_KEY "X-Skirnir-Routing-Key"
#define SKR_HEADER_TOPIC "X-Skirnir-Topic"
#define SKR_HEADER_KEY "X-Skirnir-Key"
// The same from the message's type: weaker than the configuration.
#define SKR_HEADER_TYPE_EXCHANGE "X-Skirnir-Type-Exchange"
#define SKR_HEADER_TYPE_ROUTING_KEY "X-Skirnir-Type-Routing-Key"

// What becomes of a message that the broker could give to no queue.
enum skr_unroutable {
    SKR_UNROUTABLE_UNSAID,
    SKR_UNROUTABLE_FAIL,  // it goes to the failed table
    SKR_UNROUTABLE_DROP,  // it is done: no queue wants it
    SKR_UNROUTABLE_WAIT,  // it stays until a queue is bound
};

// One entry of the configuration. What is NULL is left to the next in line.
struct skr_route_rule {
    const char *pattern;  // a name; * stands for one word, # for any number
    size_t sender;        // which of the relay's; 0: the first
    enum skr_unroutable unroutable;
    const char *exchange;
    const char *routing_key;
    const char *topic;  // on Kafka
    const char *key;
    const struct skr_header *headers;  // added to the message
    size_t header_count;
};

// What the topic is where nothing names one.
enum skr_topics {
    SKR_TOPICS_NONE,       // the sender has exchanges
    SKR_TOPICS_NAME,       // the message's full name
    SKR_TOPICS_TWO_WORDS,  // the first two words of it
};

// One of the transports that a relay sends to.
struct skr_route_sender {
    const char *name;
    bool is_one_queue;  // messages need no exchange there
    enum skr_topics topics;
    // NULL: by convention.
    const char *exchange;
    const char *routing_key;
    const char *topic;
};

// Borrowed; rules in the order of the file.
struct skr_routes {
    const struct skr_route_rule *rules;
    size_t rule_count;
    const struct skr_route_sender *senders;  // at least one
};

struct skr_route {
    size_t sender;
    enum skr_unroutable unroutable;  // as the rule says
    const char *exchange;
    const char *routing_key;
    // On Kafka, where exchange is the topic too, so that a topic has a circuit
    // breaker as an exchange has. NULL: the sender is no Kafka.
    const char *topic;
    const char *key;            // of the record; NULL: a null key
    const char *partition_key;  // decides the partition; NULL: any will do
};

// What RabbitMQ's URLs have behind the virtual host; NULL: nothing.
const char *skr_route_path_exchange(const struct skr_url *url);

bool skr_route_matches(const char *pattern, const char *name);

// Finds the route and adds the rule's headers to envelope->message.headers,
// which are the wire's by now. By convention the exchange is the first two
// words of the name and the routing key the whole of it; a class name has no
// such words: SKR_REFUSED when nothing else names an exchange. Where the sender
// is one queue, both are "". On Kafka the key is by convention the partition
// key, else the id; both partition the topic.
SKR_MUST_CHECK enum skr_code
skr_route_find(const struct skr_routes *routes, struct skr_arena *arena,
               struct skr_envelope *envelope, struct skr_route *route,
               struct skr_error *error);

#endif
