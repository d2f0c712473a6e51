// SPDX-License-Identifier: MIT
// The proxy beside a job, which would run for ever if nobody told it to quit.

#include "app/commands/kafka_relay.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIDECAR_PORT = 80, ANSWER_S = 5 };

static enum skr_code
send_request(int fd, const char *host, const char *path)
{
    struct skr_text request = {0};
    char answer[16];
    skr_text_add_format(&request,
                        "POST %s/quitquitquit HTTP/1.1\r\nHost: %s\r\n"
                        "Content-Type: text/plain\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n",
                        path, host);
    bool ok = !request.broken &&
              write(fd, request.bytes, request.size) == (ssize_t)request.size &&
              read(fd, answer, sizeof(answer)) > 0;
    skr_text_fini(&request);
    return ok ? SKR_OK : SKR_UNAVAILABLE;
}

enum skr_code
skr_kafka_relay_tell_sidecar(const char *text, struct skr_error *error)
{
    struct skr_url url;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const struct timeval patience = {.tv_sec = ANSWER_S};
    char port[8];
    enum skr_code code = skr_url_parse(text, &url, error);
    if (code != SKR_OK)
        return code;
    snprintf(port, sizeof(port), "%u",
             url.port == 0 ? SIDECAR_PORT : (unsigned)url.port);
    int fd = -1;
    code = SKR_UNAVAILABLE;
    if (url.host != NULL && getaddrinfo(url.host, port, &hints, &found) == 0)
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        if (connect(fd, found->ai_addr, found->ai_addrlen) == 0)
            code = send_request(fd, url.host, "");
        close(fd);
    }
    if (found != NULL)
        freeaddrinfo(found);
    skr_url_fini(&url);
    if (code == SKR_OK)
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the sidecar proxy cannot be told to quit; check "
                    "SIDECAR_PROXY_URL");
}
