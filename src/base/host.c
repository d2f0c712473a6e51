// SPDX-License-Identifier: MIT
// Lists of hosts in a DSN, and which hosts are the loopback: drivers ask it
// before they let a password cross a network without TLS.

#include "base/host.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

const char *
skr_host_next(const char *list, struct skr_host *host)
{
    size_t length = strcspn(list, ","), name_length = length;
    const char *start = list, *port = NULL;
    if (*list == '[') {
        name_length = strcspn(list, "],");
        start = list + 1;
        port = memchr(list + name_length, ':', length - name_length);
        name_length -= 1;
    } else {
        port = memchr(list, ':', length);
        name_length = port == NULL ? length : (size_t)(port - list);
    }
    *host = (struct skr_host){.port = ""};
    snprintf(host->name, sizeof(host->name), "%.*s", (int)name_length, start);
    if (port != NULL)
        snprintf(host->port, sizeof(host->port), "%.*s",
                 (int)(list + length - port - 1), port + 1);
    return list[length] == ',' ? list + length + 1 : NULL;
}

void
skr_host_show(const struct skr_host *host, char peer[SKR_HOST_PEER_SIZE])
{
    snprintf(peer, SKR_HOST_PEER_SIZE,
             strchr(host->name, ':') == NULL ? "%s:%s" : "[%s]:%s", host->name,
             host->port);
}

// Several hosts stay one text, which skr_url_parse() has not looked into.
enum skr_code
skr_host_check_list(const struct skr_url *url, struct skr_error *error)
{
    const char *hosts = url->host == NULL ? "" : url->host;
    bool is_list = strchr(hosts, ',') != NULL;
    int64_t port = 0;
    while (hosts != NULL) {
        struct skr_host host;
        const char *end = hosts + strcspn(hosts, "],");
        if (hosts[0] == '[' && (*end != ']' || strchr(":,", end[1]) == NULL))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "a host of the DSN begins with [ and has no ] "
                            "behind its address");
        size_t size = strcspn(hosts, ",");
        bool has_colon = size > 0 && hosts[size - 1] == ':';
        hosts = skr_host_next(hosts, &host);
        if (is_list && host.name[0] == '\0')
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "a host of the DSN's list has no name; write "
                            "%s://user@one,two:5433/shop",
                            url->scheme);
        if ((has_colon || host.port[0] != '\0') &&
            !skr_text_number(host.port, 1, UINT16_MAX, &port))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the port of %.80s in the DSN is not a number from "
                            "1 to 65535",
                            host.name);
    }
    return SKR_OK;
}

static bool
is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *six =
        &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) ||
           (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

// As the client libraries read an address: "127.1" is one, "127.evil.example"
// and "127.0.0.1.nip.io" are names that may lead to another machine.
bool
skr_host_is_this_machine(const char *name)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (strcasecmp(name, "localhost") == 0)
        return true;
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    bool is_local = is_loopback(found->ai_addr);
    freeaddrinfo(found);
    return is_local;
}

bool
skr_host_find_other(const char *list, struct skr_host *host)
{
    while (list != NULL) {
        list = skr_host_next(list, host);
        if (!skr_host_is_this_machine(host->name))
            return true;
    }
    return false;
}

void
skr_exposure_none(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    (void)url;
    said[0] = '\0';
}
