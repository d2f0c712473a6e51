// SPDX-License-Identifier: MIT
// A small web server, in two threads of its own: for probes and Prometheus. One
// answer that takes its time delays no other, and connections that say nothing
// do not keep others out: of many the oldest are closed.

#ifndef SKR_APP_SERVICE_HTTP_H
#define SKR_APP_SERVICE_HTTP_H

#include "base/text.h"

#include <skirnir/skirnir.h>

struct skr_http;

struct skr_http_request {
    const char *path;  // "/healthz"
    void *connection;
};

enum {
    SKR_HTTP_OK = 200,
    SKR_HTTP_NOT_FOUND = 404,
    SKR_HTTP_UNAVAILABLE = 503,
};

#define SKR_HTTP_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

// Called by the server's threads, two at once, for GET and HEAD. Fills text,
// may set *type (text/plain by default), and returns the status.
typedef unsigned
skr_http_answer_fn(void *user, const struct skr_http_request *request,
                   const char **type, struct skr_text *text);

struct skr_http_options {
    const char *address;  // "127.0.0.1", "::1"; NULL: all of them
    uint16_t port;
    const char *setting;  // what names the place, for people
    skr_http_answer_fn *answer;
    void *user;
};

// SKR_INVALID: that is no address. SKR_CONFLICT: the port is taken.
// SKR_REFUSED: this user may not have it, or this build has no web server.
SKR_MUST_CHECK enum skr_code
skr_http_start(const struct skr_http_options *options, struct skr_http **http,
               struct skr_error *error);
// Returns when nothing is being answered any more.
void skr_http_stop(struct skr_http *http);

// What follows the path as "?name=value"; NULL: nothing of that name.
const char *
skr_http_argument(const struct skr_http_request *request, const char *name);

#endif
