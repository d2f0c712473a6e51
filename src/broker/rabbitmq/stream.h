// SPDX-License-Identifier: MIT
// Bytes to and from a server, over TCP or TLS, without ever waiting but where
// it is asked to. librabbitmq's own sockets wait in a send for as long as the
// server does not read, cannot be interrupted there, and do not check a
// certificate for an address; of that library only the codec is used.

#ifndef SKR_BROKER_RABBITMQ_STREAM_H
#define SKR_BROKER_RABBITMQ_STREAM_H

#include "broker/rabbitmq/settings.h"

struct ssl_st;
struct bio_method_st;

enum { RABBIT_PEER_SIZE = 160 };

struct rabbit_stream {
    int fd;              // negative: closed
    struct ssl_st *tls;  // NULL: plain
    struct bio_method_st *tls_method;
    char peer[RABBIT_PEER_SIZE];  // "host:port", for people
};

// How long something may take.
struct rabbit_patience {
    int64_t deadline_ms;  // by skr_clock_ms()
    int wake_fd;          // readable: SKR_STOPPED; negative: none
};

// A host as people name it.
void skr_rabbit_name_host(const struct rabbit_host *host,
                          char peer[RABBIT_PEER_SIZE]);

SKR_MUST_CHECK enum skr_code
skr_rabbit_stream_open(struct rabbit_stream *stream,
                       const struct rabbit_settings *settings,
                       const struct rabbit_host *host,
                       const struct rabbit_patience *patience,
                       struct skr_error *error);
void skr_rabbit_stream_close(struct rabbit_stream *stream);

// As much as there is, or as goes; *count 0 when that is nothing now.
SKR_MUST_CHECK enum skr_code
skr_rabbit_stream_read(struct rabbit_stream *stream, void *bytes, size_t size,
                       size_t *count, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_stream_write(struct rabbit_stream *stream, const void *bytes,
                        size_t size, size_t *count, struct skr_error *error);

// Waits until there may be something to read or, if wanted, room to write:
// SKR_OK; SKR_TIMEOUT and SKR_STOPPED by patience.
SKR_MUST_CHECK enum skr_code
skr_rabbit_stream_wait(struct rabbit_stream *stream, bool to_write,
                       const struct rabbit_patience *patience,
                       struct skr_error *error);

// The part of these that TLS takes over; stream.c calls them.
SKR_MUST_CHECK enum skr_code
skr_rabbit_tls_start(struct rabbit_stream *stream,
                     const struct rabbit_settings *settings, char *host,
                     const struct rabbit_patience *patience,
                     struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_tls_read(struct rabbit_stream *stream, void *bytes, size_t size,
                    size_t *count, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_tls_write(struct rabbit_stream *stream, const void *bytes,
                     size_t size, size_t *count, struct skr_error *error);
void skr_rabbit_tls_free(struct rabbit_stream *stream);

// The connection ended: SKR_UNAVAILABLE with the reason. number is an errno.
enum skr_code skr_rabbit_stream_lost(const struct rabbit_stream *stream,
                                     int number, struct skr_error *error);

#endif
