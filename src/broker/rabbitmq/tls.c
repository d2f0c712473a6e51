// SPDX-License-Identifier: MIT
// TLS on a stream, by OpenSSL. The server must show a certificate that a known
// authority signed and that is for the host we asked for, unless told else.

#include "broker/rabbitmq/stream.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>

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
new_bio(struct rabbit_stream *stream)
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
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%s in the DSN cannot be used: %s", parameter, file,
                    reason_of_last_error());
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
read_files(SSL_CTX *context, const struct rabbit_settings *settings,
           struct skr_error *error)
{
    const char *key = settings->key == NULL ? settings->cert : settings->key;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (settings->cacert == NULL)
        SSL_CTX_set_default_verify_paths(context);
    else if (SSL_CTX_load_verify_locations(context, settings->cacert, NULL) !=
             1)
        return fail_file(error, "cacert", settings->cacert);
    if (settings->cert == NULL)
        return SKR_OK;
    if (SSL_CTX_use_certificate_chain_file(context, settings->cert) != 1)
        return fail_file(error, "cert", settings->cert);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
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
prepare(struct rabbit_stream *stream, const struct rabbit_settings *settings,
        char *host, struct skr_error *error)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        return skr_fail_memory(error);
    enum skr_code code = read_files(context, settings, error);
    if (code != SKR_OK)
        goto free_context;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(
        context, settings->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    stream->tls = SSL_new(context);
    BIO *bio = stream->tls == NULL ? NULL : new_bio(stream);
    if (bio == NULL || !expect_host(stream->tls, host, settings->verify)) {
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
read_result(struct rabbit_stream *stream, int result, bool *again,
            struct skr_error *error)
{
    int number = errno;
    int kind = SSL_get_error(stream->tls, result);
    *again = kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE;
    if (*again)
        return SKR_OK;
    if (kind == SSL_ERROR_ZERO_RETURN)
        return skr_rabbit_stream_lost(stream, 0, error);
    if (kind == SSL_ERROR_SYSCALL)
        return skr_rabbit_stream_lost(stream, number, error);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s: TLS: %s", stream->peer,
                    reason_of_last_error());
}

static enum skr_code
fail_handshake(const struct rabbit_stream *stream, enum skr_code code,
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

enum skr_code
skr_rabbit_tls_start(struct rabbit_stream *stream,
                     const struct rabbit_settings *settings, char *host,
                     const struct rabbit_patience *patience,
                     struct skr_error *error)
{
    enum skr_code code = prepare(stream, settings, host, error);
    if (code != SKR_OK)
        return code;
    for (;;) {
        bool again = false;
        ERR_clear_error();
        errno = 0;
        int result = SSL_connect(stream->tls);
        if (result == 1)
            return SKR_OK;
        code = read_result(stream, result, &again, error);
        if (code == SKR_OK)
            code = skr_rabbit_stream_wait(stream, SSL_want_write(stream->tls),
                                          patience, error);
        if (code != SKR_OK)
            return fail_handshake(stream, code, error);
    }
}

enum skr_code
skr_rabbit_tls_read(struct rabbit_stream *stream, void *bytes, size_t size,
                    size_t *count, struct skr_error *error)
{
    bool again = false;
    ERR_clear_error();
    errno = 0;
    int result =
        SSL_read(stream->tls, bytes, size > INT_MAX ? INT_MAX : (int)size);
    if (result <= 0)
        return read_result(stream, result, &again, error);
    *count = (size_t)result;
    return SKR_OK;
}

enum skr_code
skr_rabbit_tls_write(struct rabbit_stream *stream, const void *bytes,
                     size_t size, size_t *count, struct skr_error *error)
{
    bool again = false;
    ERR_clear_error();
    errno = 0;
    int result =
        SSL_write(stream->tls, bytes, size > INT_MAX ? INT_MAX : (int)size);
    if (result <= 0)
        return read_result(stream, result, &again, error);
    *count = (size_t)result;
    return SKR_OK;
}

void
skr_rabbit_tls_free(struct rabbit_stream *stream)
{
    SSL_free(stream->tls);
    BIO_meth_free(stream->tls_method);
    stream->tls = NULL;
    stream->tls_method = NULL;
}
