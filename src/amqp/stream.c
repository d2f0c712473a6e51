// SPDX-License-Identifier: MIT
// Non-blocking sockets over TCP, and TLS on them by OpenSSL: connecting to each
// address of a host in turn, reading and writing.

#include "amqp/stream.h"

#include "base/clock.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum skr_code
fail_lost(const struct skr_amqp_stream *stream, int number,
          struct skr_error *error)
{
    if (number == 0)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s closed the connection", stream->peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, "RabbitMQ at %s: %s",
                    stream->peer, strerror(number));
}

enum skr_code
skr_amqp_stream_wait(struct skr_amqp_stream *stream, bool to_write,
                     const struct skr_amqp_deadline *deadline,
                     struct skr_error *error)
{
    struct pollfd polled[] = {
        {.fd = stream->fd,
         .events = (short)(POLLIN | (to_write ? POLLOUT : 0))},
        {.fd = deadline->wake_fd, .events = POLLIN},
    };
    int count = skr_clock_poll(polled, 2, deadline->at_ms - skr_clock_ms());
    if (count < 0)
        return fail_lost(stream, errno, error);
    if (count == 0)
        return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                        "RabbitMQ at %s: no answer in time", stream->peer);
    if (polled[1].revents != 0)
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stop was requested");
    return SKR_OK;
}

static enum skr_code
connect_to(struct skr_amqp_stream *stream, const struct addrinfo *address,
           const struct skr_amqp_deadline *deadline, struct skr_error *error)
{
    int on = 1, number = 0;
    socklen_t size = sizeof(number);
    stream->fd = socket(address->ai_family,
                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (stream->fd < 0)
        return fail_lost(stream, errno, error);
    // Messages are gathered here before they are written.
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (connect(stream->fd, address->ai_addr, address->ai_addrlen) == 0)
        return SKR_OK;
    if (errno != EINPROGRESS)
        return fail_lost(stream, errno, error);
    enum skr_code code = skr_amqp_stream_wait(stream, true, deadline, error);
    if (code != SKR_OK)
        return code;
    getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &number, &size);
    return number == 0 ? SKR_OK : fail_lost(stream, number, error);
}

static void
close_socket(struct skr_amqp_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

// A host that is silent at one of its addresses may answer at the next: each
// has its part of the time.
static struct skr_amqp_deadline
part_of(const struct skr_amqp_deadline *deadline, const struct addrinfo *at)
{
    int64_t count = 0, now_ms = skr_clock_ms();
    for (; at != NULL; at = at->ai_next)
        count++;
    return (struct skr_amqp_deadline){
        .at_ms = now_ms + (deadline->at_ms - now_ms) / count,
        .wake_fd = deadline->wake_fd,
    };
}

static enum skr_code
connect_to_any(struct skr_amqp_stream *stream, const struct skr_host *host,
               const struct skr_amqp_deadline *deadline,
               struct skr_error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    int number = getaddrinfo(host->name, host->port, &hints, &addresses);
    if (number != 0)
        return skr_fail(
            error, SKR_UNAVAILABLE, SKR_RECONNECT,
            "RabbitMQ: host %.100s cannot be found: %s; correct it in the DSN",
            host->name, gai_strerror(number));
    enum skr_code code = SKR_UNAVAILABLE;
    for (const struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        struct skr_amqp_deadline part = part_of(deadline, at);
        code = connect_to(stream, at, &part, error);
        if (code == SKR_OK || code == SKR_STOPPED)
            break;
        close_socket(stream);
    }
    freeaddrinfo(addresses);
    if (code == SKR_UNAVAILABLE || code == SKR_TIMEOUT)
        skr_error_advise(error, SKR_AMQP_LOOK);
    return code;
}

// OpenSSL's own way to a socket would raise SIGPIPE in the application.
static int
bio_write(BIO *bio, const char *bytes, int size)
{
    const int *fd = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t put = send(*fd, bytes, (size_t)size, MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)put;
}

static int
bio_read(BIO *bio, char *bytes, int size)
{
    const int *fd = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = recv(*fd, bytes, (size_t)size, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)got;
}

static long
bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO *
new_bio(struct skr_amqp_stream *stream)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "stream");
    BIO *bio = NULL;
    if (method != NULL && BIO_meth_set_write(method, bio_write) &&
        BIO_meth_set_read(method, bio_read) &&
        BIO_meth_set_ctrl(method, bio_control))
        bio = BIO_new(method);
    if (bio == NULL) {
        BIO_meth_free(method);
        return NULL;
    }
    stream->tls_method = method;
    BIO_set_data(bio, &stream->fd);
    BIO_set_init(bio, 1);
    return bio;
}

static const char *
reason_of_last_error(void)
{
    unsigned long number = ERR_peek_last_error();
    const char *reason = number == 0 ? NULL : ERR_reason_error_string(number);
    return reason == NULL ? "unknown" : reason;
}

static enum skr_code
fail_file(struct skr_error *error, const char *parameter, const char *file)
{
    const char *reason = reason_of_last_error();
    // Of a file that cannot be opened the library says "system lib".
    if (access(file, R_OK) != 0)
        reason = strerror(errno);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%s in the DSN cannot be used: %s", parameter, file,
                    reason);
}

// Without this OpenSSL would ask on the terminal.
static int
no_passphrase(char *bytes, int size, int writing, void *user)
{
    (void)bytes;
    (void)size;
    (void)writing;
    (void)user;
    return -1;
}

static enum skr_code
read_files(SSL_CTX *context, const struct skr_amqp_tls *options,
           struct skr_error *error)
{
    const char *key = options->key == NULL ? options->cert : options->key;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (options->cacert == NULL)
        SSL_CTX_set_default_verify_paths(context);
    else if (SSL_CTX_load_verify_locations(context, options->cacert, NULL) != 1)
        return fail_file(error, "cacert", options->cacert);
    if (options->cert == NULL)
        return SKR_OK;
    if (SSL_CTX_use_certificate_chain_file(context, options->cert) != 1)
        return fail_file(error, "cert", options->cert);
    bool is_read =
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1;
    if (!is_read && options->key == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "cert=%s in the DSN holds no key that can be read; "
                        "name the file of its key in key",
                        options->cert);
    if (!is_read || SSL_CTX_check_private_key(context) != 1)
        return fail_file(error, "key", key);
    return SKR_OK;
}

static bool
expect_host(SSL *tls, char *host, bool verify)
{
    unsigned char address[16];
    bool is_address = inet_pton(AF_INET, host, address) == 1 ||
                      inet_pton(AF_INET6, host, address) == 1;
    if (!is_address && SSL_set_tlsext_host_name(tls, host) != 1)
        return false;
    if (!verify)
        return true;
    if (is_address)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1;
    return SSL_set1_host(tls, host) == 1;
}

static enum skr_code
prepare_tls(struct skr_amqp_stream *stream, const struct skr_amqp_tls *options,
            char *host, struct skr_error *error)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        return skr_fail_memory(error);
    enum skr_code code = read_files(context, options, error);
    if (code != SKR_OK)
        goto free_context;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(
        context, options->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    stream->tls = SSL_new(context);
    BIO *bio = stream->tls == NULL ? NULL : new_bio(stream);
    if (bio == NULL || !expect_host(stream->tls, host, options->verify)) {
        BIO_free(bio);
        code = skr_fail_memory(error);
        goto free_context;
    }
    SSL_set_bio(stream->tls, bio, bio);
free_context:
    SSL_CTX_free(context);  // the connection holds on to it
    return code;
}

// result is what SSL_connect, SSL_read or SSL_write gave.
static enum skr_code
tls_result(struct skr_amqp_stream *stream, int result, bool *again,
           struct skr_error *error)
{
    int number = errno;
    int kind = SSL_get_error(stream->tls, result);
    *again = kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE;
    if (*again)
        return SKR_OK;
    if (kind == SSL_ERROR_ZERO_RETURN)
        return fail_lost(stream, 0, error);
    if (kind == SSL_ERROR_SYSCALL)
        return fail_lost(stream, number, error);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s: TLS: %s", stream->peer,
                    reason_of_last_error());
}

static enum skr_code
fail_handshake(const struct skr_amqp_stream *stream, enum skr_code code,
               struct skr_error *error)
{
    long verdict = SSL_get_verify_result(stream->tls);
    if (code != SKR_STOPPED &&
        ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER)
        return skr_fail(
            error, SKR_UNAVAILABLE, SKR_RECONNECT,
            "RabbitMQ at %s offers no TLS (%s): is this a plain port? Take the "
            "TLS port, or amqp:// if nobody can listen in between",
            stream->peer, reason_of_last_error());
    if (code == SKR_STOPPED || verdict == X509_V_OK)
        return code;
    return skr_fail(
        error, SKR_REFUSED, SKR_GIVE_UP,
        "RabbitMQ at %s: its certificate is not trusted: %s; name "
        "its authority in cacert, and the host as the certificate does",
        stream->peer, X509_verify_cert_error_string(verdict));
}

static enum skr_code
start_tls(struct skr_amqp_stream *stream, const struct skr_amqp_tls *options,
          char *host, const struct skr_amqp_deadline *deadline,
          struct skr_error *error)
{
    enum skr_code code = prepare_tls(stream, options, host, error);
    if (code != SKR_OK)
        return code;
    for (;;) {
        bool again = false;
        ERR_clear_error();
        errno = 0;
        int result = SSL_connect(stream->tls);
        if (result == 1)
            return SKR_OK;
        code = tls_result(stream, result, &again, error);
        if (code == SKR_OK)
            code = skr_amqp_stream_wait(stream, SSL_want_write(stream->tls),
                                        deadline, error);
        if (code != SKR_OK)
            return fail_handshake(stream, code, error);
    }
}

enum skr_code
skr_amqp_stream_open(struct skr_amqp_stream *stream, struct skr_host *host,
                     const struct skr_amqp_tls *tls,
                     const struct skr_amqp_deadline *deadline,
                     struct skr_error *error)
{
    *stream = (struct skr_amqp_stream){.fd = -1};
    skr_host_show(host, stream->peer);
    enum skr_code code = connect_to_any(stream, host, deadline, error);
    if (code == SKR_OK && tls->is_on)
        code = start_tls(stream, tls, host->name, deadline, error);
    if (code != SKR_OK)
        skr_amqp_stream_close(stream);
    return code;
}

void
skr_amqp_stream_close(struct skr_amqp_stream *stream)
{
    SSL_free(stream->tls);
    BIO_meth_free(stream->tls_method);
    stream->tls = NULL;
    stream->tls_method = NULL;
    close_socket(stream);
}

// *count becomes what a call on the socket, or of OpenSSL, has moved; number is
// its errno.
static enum skr_code
read_count(struct skr_amqp_stream *stream, ssize_t moved, int number,
           size_t *count, struct skr_error *error)
{
    bool again = false;
    *count = moved > 0 ? (size_t)moved : 0;
    if (moved > 0 || (stream->tls == NULL && moved < 0 &&
                      (number == EAGAIN || number == EWOULDBLOCK)))
        return SKR_OK;
    if (stream->tls != NULL)
        return tls_result(stream, (int)moved, &again, error);
    return fail_lost(stream, moved < 0 ? number : 0, error);
}

static int
tls_size(size_t size)
{
    ERR_clear_error();
    errno = 0;
    return size > INT_MAX ? INT_MAX : (int)size;
}

enum skr_code
skr_amqp_stream_read(struct skr_amqp_stream *stream, void *bytes, size_t size,
                     size_t *count, struct skr_error *error)
{
    ssize_t moved;
    if (stream->tls != NULL)
        moved = SSL_read(stream->tls, bytes, tls_size(size));
    else
        do
            moved = recv(stream->fd, bytes, size, 0);
        while (moved < 0 && errno == EINTR);
    return read_count(stream, moved, errno, count, error);
}

enum skr_code
skr_amqp_stream_write(struct skr_amqp_stream *stream, const void *bytes,
                      size_t size, size_t *count, struct skr_error *error)
{
    ssize_t moved;
    if (stream->tls != NULL)
        moved = SSL_write(stream->tls, bytes, tls_size(size));
    else
        do
            moved = send(stream->fd, bytes, size, MSG_NOSIGNAL);
        while (moved < 0 && errno == EINTR);
    return read_count(stream, moved, errno, count, error);
}
