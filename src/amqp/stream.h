// SPDX-License-Identifier: MIT
// Bytes to and from a server, over TCP or TLS, without ever waiting but where
// it is asked to. librabbitmq's own sockets wait in a send for as long as the
// server does not read, cannot be interrupted there, and do not check a
// certificate for an address; of that library only the codec is used.

#ifndef SKR_AMQP_STREAM_H
#define SKR_AMQP_STREAM_H

#include "base/host.h"

struct ssl_st;
struct bio_method_st;

struct skr_amqp_tls {
    bool is_on;
    bool verify;         // of the server's certificate and its name
    const char *cacert;  // NULL: the system's authorities
    const char *cert;    // NULL: the client shows none
    const char *key;     // NULL: in the same file as cert
};

// Where no server was met.
#define SKR_AMQP_LOOK \
    "look whether RabbitMQ runs; else correct host and port in the DSN"

struct skr_amqp_stream {
    int fd;              // negative: closed
    struct ssl_st *tls;  // NULL: plain
    struct bio_method_st *tls_method;
    char peer[SKR_HOST_PEER_SIZE];  // for people
};

// How long something may take.
struct skr_amqp_deadline {
    int64_t at_ms;  // by skr_clock_ms()
    int wake_fd;    // readable: SKR_STOPPED; negative: none
};

// The server must show a certificate that a known authority signed and that is
// for the host that was asked for, unless verify is off.
SKR_MUST_CHECK enum skr_code
skr_amqp_stream_open(struct skr_amqp_stream *stream, struct skr_host *host,
                     const struct skr_amqp_tls *tls,
                     const struct skr_amqp_deadline *deadline,
                     struct skr_error *error);
void skr_amqp_stream_close(struct skr_amqp_stream *stream);

// As much as there is, or as goes; *count 0 when that is nothing now.
SKR_MUST_CHECK enum skr_code
skr_amqp_stream_read(struct skr_amqp_stream *stream, void *bytes, size_t size,
                     size_t *count, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_stream_write(struct skr_amqp_stream *stream, const void *bytes,
                      size_t size, size_t *count, struct skr_error *error);

// Waits until there may be something to read or, if wanted, room to write:
// SKR_OK; SKR_TIMEOUT and SKR_STOPPED by the deadline.
SKR_MUST_CHECK enum skr_code
skr_amqp_stream_wait(struct skr_amqp_stream *stream, bool to_write,
                     const struct skr_amqp_deadline *deadline,
                     struct skr_error *error);

#endif
