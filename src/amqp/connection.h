// SPDX-License-Identifier: MIT
// A connection to an AMQP 0-9-1 server: opening it with a login, frames to and
// from it, heartbeats. What is sent is gathered and written when there is room;
// what comes is taken apart one frame at a time. Methods are sent by channel.h.

#ifndef SKR_AMQP_CONNECTION_H
#define SKR_AMQP_CONNECTION_H

#include "amqp/fields.h"
#include "amqp/stream.h"

struct amqp_pool_t_;

// Of what a server says when it closes a channel or a connection, that which
// others ask for.
enum {
    SKR_AMQP_NO_ROUTE = 312,
    SKR_AMQP_ACCESS_REFUSED = 403,
    SKR_AMQP_NOT_FOUND = 404,
    SKR_AMQP_NOT_ALLOWED = 530,  // the virtual host
};

struct skr_amqp_reply {
    uint16_t code;
    struct skr_amqp_piece text;
};

// "NOT_FOUND - no exchange 'x' in vhost '/'", as the server says it; its code
// is the error's native one.
enum skr_code
skr_amqp_fail_reply(struct skr_error *error, struct skr_amqp_reply reply);

// Whether the server closed the connection for something that this client sent.
bool skr_amqp_blames_client(uint16_t code);

struct skr_amqp_options {
    const char *hosts;  // one or more: "a:5672,b"
    uint16_t port;      // of those that name none
    const char *user, *password;
    const char *vhost;
    // What the server shows of this client.
    const char *product, *version, *connection_name;
    struct skr_amqp_tls tls;
    int64_t connect_timeout_ms;  // for each host
    uint16_t heartbeat_s;        // 0: none
};

struct skr_amqp {
    struct skr_amqp_stream stream;
    struct amqp_pool_t_ *pool;  // of the method that came last
    size_t frame_max;           // bytes of a whole frame
    int64_t heartbeat_ms;       // 0: none
    int64_t last_received_ms, last_sent_ms;
    // bytes: 0 .. start (done) .. end (still to do) .. capacity
    struct skr_amqp_buffer {
        char *bytes;
        size_t start, end, capacity;
    } in, out;
};

// A connection that is not open: close() does nothing then.
#define SKR_AMQP_CLOSED ((struct skr_amqp){.stream.fd = -1})

// Connects to one of the hosts, logs in and opens the vhost. From a random host
// on, so that many clients spread; hosts that were silent come last. A server
// that answers and refuses speaks for all. A password never gets into an error.
// wake_fd: readable, it ends with SKR_STOPPED; negative: none.
SKR_MUST_CHECK enum skr_code
skr_amqp_open(struct skr_amqp *amqp, const struct skr_amqp_options *options,
              int wake_fd, struct skr_error *error);
// In good order if is_alive.
void skr_amqp_close(struct skr_amqp *amqp, bool is_alive);

// Bytes that wait for the server to read.
size_t skr_amqp_unsent(const struct skr_amqp *amqp);
// Writes as much as goes without waiting.
SKR_MUST_CHECK enum skr_code
skr_amqp_flush(struct skr_amqp *amqp, struct skr_error *error);

// The number of a method, which is its class and its place in it; of content,
// the type of its frame.
enum skr_amqp_kind {
    SKR_AMQP_PROPERTIES = 2,                    // content
    SKR_AMQP_BODY = 3,                          // text: a part of it
    SKR_AMQP_CONNECTION_CLOSE = 10 << 16 | 50,  // reply
    SKR_AMQP_BLOCKED = 10 << 16 | 60,           // text: the reason
    SKR_AMQP_UNBLOCKED = 10 << 16 | 61,
    SKR_AMQP_OPEN_OK = 20 << 16 | 11,        // of a channel
    SKR_AMQP_CHANNEL_CLOSE = 20 << 16 | 40,  // reply
    SKR_AMQP_CHANNEL_CLOSE_OK = 20 << 16 | 41,
    SKR_AMQP_EXCHANGE_DECLARE_OK = 40 << 16 | 11,
    SKR_AMQP_QUEUE_DECLARE_OK = 50 << 16 | 11,  // queue
    SKR_AMQP_QOS_OK = 60 << 16 | 11,
    SKR_AMQP_CONSUME_OK = 60 << 16 | 21,
    SKR_AMQP_CANCEL = 60 << 16 | 30,  // text: the consumer tag
    SKR_AMQP_CANCEL_OK = 60 << 16 | 31,
    SKR_AMQP_RETURN = 60 << 16 | 50,   // returned
    SKR_AMQP_DELIVER = 60 << 16 | 60,  // delivery
    SKR_AMQP_ACK = 60 << 16 | 80,      // confirm
    SKR_AMQP_NACK = 60 << 16 | 120,    // confirm
    SKR_AMQP_SELECT_OK = 85 << 16 | 11,
};

// A frame that came; its pieces live until the next one is taken.
struct skr_amqp_frame {
    uint32_t kind;     // one of those, or another method
    uint16_t channel;  // 0: the connection itself
    union {
        struct skr_amqp_reply reply;
        struct skr_amqp_piece text;
        struct {
            uint32_t frame_max;
            uint16_t channel_max, heartbeat_s;
        } tune;  // while the connection is opened
        struct {
            uint32_t messages, consumers;
        } queue;
        struct {
            uint64_t tag;
            bool multiple;
        } confirm;
        struct {
            struct skr_amqp_reply reply;
            struct skr_amqp_piece exchange, routing_key;
        } returned;
        struct {
            struct skr_amqp_piece consumer_tag;
            uint64_t tag;
            bool redelivered;
        } delivery;
        struct {
            struct skr_amqp_piece properties;
            uint64_t body_size;
        } content;
    };
};

// The next frame that has come, without heartbeats; *found is false when there
// is none. Properties are given raw: they hold what any publisher wrote, and
// librabbitmq follows nested tables for as long as the stack lasts.
SKR_MUST_CHECK enum skr_code
skr_amqp_next(struct skr_amqp *amqp, struct skr_amqp_frame *frame, bool *found,
              struct skr_error *error);

// The server has closed the channel, or, with channel 0, the connection; it is
// told that the client knows. *reason becomes why.
SKR_MUST_CHECK enum skr_code
skr_amqp_accept_close(struct skr_amqp *amqp, const struct skr_amqp_frame *frame,
                      struct skr_error *reason, struct skr_error *error);

// To be called after all that came has been read: sends a heartbeat if one is
// due, and fails when the server has sent nothing for too long.
SKR_MUST_CHECK enum skr_code
skr_amqp_tick(struct skr_amqp *amqp, struct skr_error *error);

// Flushes, and waits for the server. SKR_TIMEOUT and SKR_STOPPED by deadline.
SKR_MUST_CHECK enum skr_code
skr_amqp_wait(struct skr_amqp *amqp, const struct skr_amqp_deadline *deadline,
              struct skr_error *error);

// For channel.c: a method as librabbitmq numbers it and encodes its fields, and
// what follows basic.publish. Encoded properties fit one frame: the caller saw
// to that. Of a body, *size becomes what the frame took.
SKR_MUST_CHECK enum skr_code
skr_amqp_send(struct skr_amqp *amqp, uint16_t channel, uint32_t method,
              void *fields, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_send_properties(struct skr_amqp *amqp, uint16_t channel,
                         size_t body_size, struct skr_amqp_piece properties,
                         struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_send_body(struct skr_amqp *amqp, uint16_t channel, const void *bytes,
                   size_t *size, struct skr_error *error);

#endif
