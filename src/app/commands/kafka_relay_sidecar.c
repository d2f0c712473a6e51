// SPDX-License-Identifier: MIT
// The proxy beside a job, which would run for ever if it were not told to quit.

#include "app/commands/kafka_relay.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIDECAR_PORT = 80, ANSWER_S = 5 };

// As it is written, not decoded: that is how a request has it.
static const char *
path_of(const char *text, int *size)
{
    const char *end = strstr(text, "://");
    const char *host = end == NULL ? text : end + 3;
    const char *path = host + strcspn(host, "/?#");
    *size = (int)strcspn(path, "?#");
    return path;
}

static bool
send_request(int fd, const char *text, const char *host, const char *port)
{
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct skr_text request = {0};
    char answer[16];
    int size;
    const char *path = path_of(text, &size);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    skr_text_add_format(&request,
                        "POST %.*s/quitquitquit HTTP/1.1\r\nHost: %s:%s\r\n"
                        "Content-Type: text/plain\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n",
                        size, path, host, port);
    bool ok = !request.broken &&
              write(fd, request.bytes, request.size) == (ssize_t)request.size &&
              read(fd, answer, sizeof(answer)) > 0;
    skr_text_fini(&request);
    return ok;
}

// It runs beside us, and what it is told is no secret: there is no TLS.
static enum skr_code
parse(const char *text, struct skr_url *url, struct skr_error *error)
{
    enum skr_code code = skr_url_parse(text, url, error);
    if (code == SKR_OK &&
        (strcmp(url->scheme, "http") != 0 || url->host == NULL)) {
        skr_url_fini(url);
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the sidecar is told to quit by plain HTTP alone: "
                        "http://HOST:PORT is needed");
    }
    if (code != SKR_OK)
        skr_error_prefix(error, "SIDECAR_PROXY_URL");
    return code;
}

enum skr_code
skr_kafka_relay_check_sidecar(const char *text, struct skr_error *error)
{
    struct skr_url url;
    enum skr_code code = parse(text, &url, error);
    if (code == SKR_OK)
        skr_url_fini(&url);
    return code;
}

enum skr_code
skr_kafka_relay_tell_sidecar(const char *text, struct skr_error *error)
{
    struct skr_url url;
    char port[8];
    enum skr_code code = parse(text, &url, error);
    if (code != SKR_OK)
        return code;
    snprintf(port, sizeof(port), "%u",
             url.port == 0 ? SIDECAR_PORT : (unsigned)url.port);
    int fd = skr_kafka_relay_dial(url.host, port, ANSWER_S * 1000);
    bool is_told = fd >= 0 && send_request(fd, text, url.host, port);
    if (fd >= 0)
        close(fd);
    skr_url_fini(&url);
    if (is_told)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the sidecar proxy cannot be told to quit; check "
                    "SIDECAR_PROXY_URL");
}
