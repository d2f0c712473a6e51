// SPDX-License-Identifier: MIT
// Reads host, database, TLS mode and timeouts from a mysql:// or mariadb://
// DSN, and decides whether the connection needs TLS.

#include "db/mysql/url.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_PORT = 3306,
    CONNECT_TIMEOUT_S = 10,
    TIMEOUT_S = 30,
    LOCK_TIMEOUT_S = 5,
};

#define KNOWN                                                            \
    "unix_socket, connect_timeout, timeout, lock_timeout, ssl, ssl_ca, " \
    "ssl_cert, "                                                         \
    "ssl_key and ssl_verify"

static enum skr_code
check_parameters(const struct skr_url *url, struct skr_error *error)
{
    // The first two are in the DSNs of PHP projects. The server tells its
    // version itself, and the connection's character set is always utf8mb4.
    static const char *const known[] = {
        "serverVersion", "charset",    "unix_socket", "connect_timeout",
        "lock_timeout",  "ssl",        "ssl_ca",      "ssl_cert",
        "ssl_key",       "ssl_verify", "timeout"};
    for (size_t i = 0; i < url->parameter_count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < SKR_COUNT_OF(known); k++)
            is_known |= strcmp(url->parameters[i].name, known[k]) == 0;
        if (!is_known)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "%s is not a parameter of a mysql:// DSN; " KNOWN
                            " are",
                            url->parameters[i].name);
    }
    return SKR_OK;
}

static enum skr_code
read_place(const struct skr_url *url, struct skr_mysql_options *options,
           struct skr_error *error)
{
    options->socket = skr_url_find(url, "unix_socket");
    options->hosts = options->socket == NULL ? url->host : NULL;
    options->port = url->port == 0 ? DEFAULT_PORT : url->port;
    options->user = url->user;
    options->password = url->password;
    options->database = url->path;
    if (options->socket == NULL && url->host == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no host; write "
                        "mysql://user:password@host/database");
    if (url->path == NULL || url->path[0] == '\0' ||
        strchr(url->path, '/') != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no database; write "
                        "mysql://user:password@host/database");
    return skr_host_check_list(url, error);
}

static enum skr_code
read_flag(const struct skr_url *url, const char *name, bool fallback,
          bool *flag, struct skr_error *error)
{
    int64_t number = 0;
    enum skr_code code =
        skr_url_number(url, name, 0, 1, fallback ? 1 : 0, &number, error);
    if (code == SKR_OK)
        *flag = number == 1;
    return code;
}

// False for a socket. The first of the hosts that is another machine.
static bool
find_other(const struct skr_mysql_options *options, struct skr_host *other)
{
    return options->hosts != NULL && skr_host_find_other(options->hosts, other);
}

// A password, or a message, does not cross a network in the clear unless the
// URL says so: where one host is another machine all have TLS.
static enum skr_code
read_tls(const struct skr_url *url, struct skr_mysql_options *options,
         struct skr_error *error)
{
    options->authority = skr_url_find(url, "ssl_ca");
    options->certificate = skr_url_find(url, "ssl_cert");
    options->key = skr_url_find(url, "ssl_key");
    struct skr_host other;
    bool is_asked_for = options->authority != NULL ||
                        options->certificate != NULL || options->key != NULL ||
                        skr_url_find(url, "ssl_verify") != NULL;
    enum skr_code code =
        read_flag(url, "ssl", is_asked_for || find_other(options, &other),
                  &options->uses_tls, error);
    if (code == SKR_OK)
        code = read_flag(url, "ssl_verify", true, &options->verifies_server,
                         error);
    if (code != SKR_OK)
        return code;
    if (is_asked_for && !options->uses_tls)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "ssl=0 contradicts the other ssl_ parameters");
    if ((options->certificate == NULL) != (options->key == NULL))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "ssl_cert and ssl_key belong together");
    return SKR_OK;
}

// A client that waits for a lock hears from the server that it was in vain, and
// so must wait for longer than the server does.
static enum skr_code
read_times(const struct skr_url *url, struct skr_mysql_options *options,
           struct skr_error *error)
{
    int64_t connect_s = 0, timeout_s = 0, lock_s = LOCK_TIMEOUT_S;
    enum skr_code code = skr_url_number(url, "connect_timeout", 1, 3600,
                                        CONNECT_TIMEOUT_S, &connect_s, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "timeout", 2, 86400, 0, &timeout_s, error);
    bool is_given = timeout_s > 0;
    if (is_given && timeout_s <= lock_s)
        lock_s = timeout_s - 1;
    if (code == SKR_OK)
        code = skr_url_number(url, "lock_timeout", 1, 3600, lock_s, &lock_s,
                              error);
    if (code != SKR_OK)
        return code;
    if (is_given && timeout_s <= lock_s)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "timeout=%lld in the DSN must be longer than "
                        "lock_timeout, which is %lld",
                        (long long)timeout_s, (long long)lock_s);
    if (!is_given)
        timeout_s = lock_s < TIMEOUT_S ? TIMEOUT_S : lock_s + 1;
    options->connect_timeout_s = (unsigned)connect_s;
    options->timeout_s = (unsigned)timeout_s;
    options->lock_timeout_s = (unsigned)lock_s;
    return SKR_OK;
}

enum skr_code
skr_mysql_read_url(const struct skr_url *url, struct skr_mysql_options *options,
                   struct skr_error *error)
{
    *options = (struct skr_mysql_options){0};
    enum skr_code code = check_parameters(url, error);
    if (code == SKR_OK)
        code = read_place(url, options, error);
    if (code == SKR_OK)
        code = read_tls(url, options, error);
    return code == SKR_OK ? read_times(url, options, error) : code;
}

// Without TLS the login proves a password by a hash, or encrypts it with a key
// that the peer has sent, which may not be the server.
void
skr_mysql_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct skr_mysql_options options;
    struct skr_host other;
    said[0] = '\0';
    if (url->password == NULL || url->password[0] == '\0' ||
        skr_mysql_read_url(url, &options, NULL) != SKR_OK || options.uses_tls ||
        !find_other(&options, &other))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "ssl=0 lets whoever listens on the way to %.80s read all "
             "messages, and whoever steps in between the password; take ssl "
             "out, and name the server's authority in ssl_ca",
             other.name);
}
