// SPDX-License-Identifier: MIT
// Non-blocking sockets over TCP, and over TLS by tls.c: connecting to each
// address of a host in turn, reading and writing.

#include "broker/rabbitmq/stream.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum skr_code
skr_rabbit_stream_lost(const struct rabbit_stream *stream, int number,
                       struct skr_error *error)
{
    if (number == 0)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s closed the connection", stream->peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, "RabbitMQ at %s: %s",
                    stream->peer, strerror(number));
}

enum skr_code
skr_rabbit_stream_wait(struct rabbit_stream *stream, bool to_write,
                       const struct rabbit_patience *patience,
                       struct skr_error *error)
{
    for (;;) {
        int64_t left = patience->deadline_ms - skr_clock_ms();
        struct pollfd polled[] = {
            {.fd = stream->fd,
             .events = (short)(POLLIN | (to_write ? POLLOUT : 0))},
            {.fd = patience->wake_fd, .events = POLLIN},
        };
        int count = poll(polled, 2,
                         left < 0         ? 0
                         : left > INT_MAX ? INT_MAX
                                          : (int)left);
        if (count < 0 && errno != EINTR)
            return skr_rabbit_stream_lost(stream, errno, error);
        if (count > 0 && polled[1].revents != 0)
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                            "stop was requested");
        if (count > 0)
            return SKR_OK;
        if (left <= 0)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "RabbitMQ at %s: no answer in time", stream->peer);
    }
}

static enum skr_code
connect_to(struct rabbit_stream *stream, const struct addrinfo *address,
           const struct rabbit_patience *patience, struct skr_error *error)
{
    int on = 1, number = 0;
    socklen_t size = sizeof(number);
    stream->fd = socket(address->ai_family,
                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (stream->fd < 0)
        return skr_rabbit_stream_lost(stream, errno, error);
    // Messages are gathered here before they are written.
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (connect(stream->fd, address->ai_addr, address->ai_addrlen) == 0)
        return SKR_OK;
    if (errno != EINPROGRESS)
        return skr_rabbit_stream_lost(stream, errno, error);
    enum skr_code code = skr_rabbit_stream_wait(stream, true, patience, error);
    if (code != SKR_OK)
        return code;
    getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &number, &size);
    return number == 0 ? SKR_OK : skr_rabbit_stream_lost(stream, number, error);
}

static void
close_socket(struct rabbit_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

// A host that is silent at one of its addresses may answer at the next: each
// has its part of the time.
static struct rabbit_patience
part_of(const struct rabbit_patience *patience, const struct addrinfo *at)
{
    int64_t count = 0, now_ms = skr_clock_ms();
    for (; at != NULL; at = at->ai_next)
        count++;
    return (struct rabbit_patience){
        .deadline_ms = now_ms + (patience->deadline_ms - now_ms) / count,
        .wake_fd = patience->wake_fd,
    };
}

static enum skr_code
connect_to_any(struct rabbit_stream *stream, const struct rabbit_host *host,
               const struct rabbit_patience *patience, struct skr_error *error)
{
    char port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    snprintf(port, sizeof(port), "%u", host->port);
    int number = getaddrinfo(host->name, port, &hints, &addresses);
    if (number != 0)
        return skr_fail(
            error, SKR_UNAVAILABLE, SKR_RECONNECT,
            "RabbitMQ: host %.100s cannot be found: %s; correct it in the DSN",
            host->name, gai_strerror(number));
    enum skr_code code = SKR_UNAVAILABLE;
    for (const struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        struct rabbit_patience part = part_of(patience, at);
        code = connect_to(stream, at, &part, error);
        if (code == SKR_OK || code == SKR_STOPPED)
            break;
        close_socket(stream);
    }
    freeaddrinfo(addresses);
    return code;
}

void
skr_rabbit_name_host(const struct rabbit_host *host,
                     char peer[RABBIT_PEER_SIZE])
{
    snprintf(peer, RABBIT_PEER_SIZE,
             strchr(host->name, ':') == NULL ? "%.140s:%u" : "[%.140s]:%u",
             host->name, host->port);
}

enum skr_code
skr_rabbit_stream_open(struct rabbit_stream *stream,
                       const struct rabbit_settings *settings,
                       const struct rabbit_host *host,
                       const struct rabbit_patience *patience,
                       struct skr_error *error)
{
    *stream = (struct rabbit_stream){.fd = -1};
    skr_rabbit_name_host(host, stream->peer);
    enum skr_code code = connect_to_any(stream, host, patience, error);
    if (code == SKR_OK && settings->tls)
        code =
            skr_rabbit_tls_start(stream, settings, host->name, patience, error);
    if (code != SKR_OK)
        skr_rabbit_stream_close(stream);
    return code;
}

void
skr_rabbit_stream_close(struct rabbit_stream *stream)
{
    skr_rabbit_tls_free(stream);
    close_socket(stream);
}

enum skr_code
skr_rabbit_stream_read(struct rabbit_stream *stream, void *bytes, size_t size,
                       size_t *count, struct skr_error *error)
{
    *count = 0;
    if (stream->tls != NULL)
        return skr_rabbit_tls_read(stream, bytes, size, count, error);
    ssize_t got;
    do
        got = recv(stream->fd, bytes, size, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SKR_OK;
    if (got <= 0)
        return skr_rabbit_stream_lost(stream, got < 0 ? errno : 0, error);
    *count = (size_t)got;
    return SKR_OK;
}

enum skr_code
skr_rabbit_stream_write(struct rabbit_stream *stream, const void *bytes,
                        size_t size, size_t *count, struct skr_error *error)
{
    *count = 0;
    if (stream->tls != NULL)
        return skr_rabbit_tls_write(stream, bytes, size, count, error);
    ssize_t put;
    do
        put = send(stream->fd, bytes, size, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SKR_OK;
    if (put < 0)
        return skr_rabbit_stream_lost(stream, errno, error);
    *count = (size_t)put;
    return SKR_OK;
}
