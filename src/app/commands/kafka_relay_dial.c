// SPDX-License-Identifier: MIT
// A connection to a place that is known by name.

#include "app/commands/kafka_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static bool
can_connect(int fd, const struct addrinfo *address, int patience_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int problem = 1;
    socklen_t size = sizeof(problem);
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return true;
    return errno == EINPROGRESS && poll(&ready, 1, patience_ms) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 &&
           problem == 0;
}

int
skr_kafka_relay_dial(const char *host, const char *port, int patience_ms)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &addresses) != 0)
        return -1;
    for (const struct addrinfo *at = addresses; at != NULL && fd < 0;
         at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    0);
        if (fd >= 0 && can_connect(fd, at, patience_ms) &&
            fcntl(fd, F_SETFL, 0) == 0)
            break;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(addresses);
    return fd;
}
