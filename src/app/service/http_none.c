// SPDX-License-Identifier: MIT
// A build without a web server.

#include "app/service/http.h"
#include "base/error.h"

enum skr_code
skr_http_start(const struct skr_http_options *options, struct skr_http **http,
               struct skr_error *error)
{
    (void)http;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "this build serves no metrics: it was made without "
                    "libmicrohttpd; remove %s",
                    options->setting);
}

void
skr_http_stop(struct skr_http *http)
{
    (void)http;
}

const char *
skr_http_argument(const struct skr_http_request *request, const char *name)
{
    (void)request;
    (void)name;
    return NULL;
}
