// SPDX-License-Identifier: MIT
// Frames to and from a server. What is sent is gathered and written when there
// is room; what comes is taken apart one frame at a time. Heartbeats included.

#ifndef SKR_BROKER_RABBITMQ_LINK_H
#define SKR_BROKER_RABBITMQ_LINK_H

#include "broker/rabbitmq/stream.h"

#include <amqp.h>
#include <amqp_framing.h>

struct rabbit_link {
    struct rabbit_stream stream;
    amqp_pool_t pool;      // of the method that came last
    size_t frame_max;      // bytes of a whole frame
    int64_t heartbeat_ms;  // 0: none
    int64_t heard_ms;      // when bytes last came
    int64_t told_ms;       // when bytes last went
    // bytes: 0 .. start (done) .. end (still to do) .. capacity
    struct rabbit_bytes {
        char *bytes;
        size_t start, end, capacity;
    } in, out;
};

// Connects to one of the hosts, logs in and opens the vhost. A password never
// gets into an error.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_open(struct rabbit_link *link,
                     const struct rabbit_settings *settings, int wake_fd,
                     struct skr_error *error);
// In good order if is_alive.
void skr_rabbit_link_close(struct rabbit_link *link, bool is_alive);

// AMQP has room for 255 bytes in names and keys: the encoder does not look.
SKR_MUST_CHECK enum skr_code
skr_rabbit_check_short(const char *what, const char *text,
                       struct skr_error *error);

SKR_MUST_CHECK enum skr_code
skr_rabbit_link_send(struct rabbit_link *link, amqp_channel_t channel,
                     amqp_method_number_t method, void *fields,
                     struct skr_error *error);
// The frame that follows basic.publish. It fits one frame: the caller saw to
// that.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_send_properties(struct rabbit_link *link,
                                amqp_channel_t channel, size_t body_size,
                                amqp_basic_properties_t *properties,
                                struct skr_error *error);
// The same from bytes that are encoded already.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_send_raw_properties(struct rabbit_link *link,
                                    amqp_channel_t channel, size_t body_size,
                                    const void *bytes, size_t size,
                                    struct skr_error *error);
// One frame of the body; *size becomes what it took.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_send_body(struct rabbit_link *link, amqp_channel_t channel,
                          const void *bytes, size_t *size,
                          struct skr_error *error);

size_t skr_rabbit_link_unsent(const struct rabbit_link *link);
// Writes as much as goes without waiting.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_flush(struct rabbit_link *link, struct skr_error *error);

// The next frame that has come; *found is false when there is none. It lives
// until the next call. Properties are given raw: they hold what any publisher
// wrote, and librabbitmq follows nested tables for as long as the stack lasts.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_next(struct rabbit_link *link, amqp_frame_t *frame, bool *found,
                     struct skr_error *error);

// To be called after all that came has been read: says that we are there, and
// fails when the server has not said so for too long.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_tick(struct rabbit_link *link, struct skr_error *error);

// The server has not said for so long what it was asked: SKR_UNAVAILABLE, and
// other hosts are tried before this one.
enum skr_code
skr_rabbit_link_fail_silent(const struct rabbit_link *link, int64_t waited_ms,
                            struct skr_error *error);

// Flushes, and waits for the server. SKR_TIMEOUT and SKR_STOPPED by patience.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_wait(struct rabbit_link *link,
                     const struct rabbit_patience *patience,
                     struct skr_error *error);

// link.c's part of opening; the rest is login.c's.
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_start(struct rabbit_link *link, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_tune(struct rabbit_link *link, uint32_t frame_max,
                     uint16_t heartbeat_s, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_link_send_raw(struct rabbit_link *link, const void *bytes,
                         size_t size, struct skr_error *error);

#endif
