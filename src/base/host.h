// SPDX-License-Identifier: MIT
// The hosts of a DSN: lists of them, and which are this very machine.

#ifndef SKR_BASE_HOST_H
#define SKR_BASE_HOST_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_url;

enum {
    SKR_HOST_NAME_SIZE = 256,
    SKR_HOST_PEER_SIZE = 272,
    SKR_EXPOSURE_SIZE = 240,
};

struct skr_host {
    char name[SKR_HOST_NAME_SIZE];  // an IPv6 address without its brackets
    char port[8];                   // "": none is given
};

// Takes "host", "host:port" or "[address]:port" from a list with commas. What
// is left of the list, or NULL.
const char *skr_host_next(const char *list, struct skr_host *host);

// "host:port", or "[address]:port", for people.
void skr_host_show(const struct skr_host *host, char peer[SKR_HOST_PEER_SIZE]);

// SKR_INVALID for a URL with a list of several hosts of which one has no name,
// or no number as its port.
SKR_MUST_CHECK enum skr_code
skr_host_check_list(const struct skr_url *url, struct skr_error *error);

// What is sent there stays on this machine, where no third party can listen or
// step between: localhost, or an address of the loopback network. A name that
// only begins like one is another host. Asks no resolver.
bool skr_host_is_this_machine(const char *name);

// The first host of a list, which may be NULL, that is another machine.
bool skr_host_find_other(const char *list, struct skr_host *host);

// What a driver says of a URL whose password others may read on its way: one
// line with the host and the cure. "": there is no such password. Asks no
// server, and repeats no password.
typedef void
skr_exposure_fn(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE]);
// Of a driver whose URLs send nothing over a network.
skr_exposure_fn skr_exposure_none;

#endif
