// SPDX-License-Identifier: MIT
// What a mysql:// or mariadb:// URL asks for.

#ifndef SKR_DB_MYSQL_URL_H
#define SKR_DB_MYSQL_URL_H

#include "base/host.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_url;

// Texts are the URL's own.
struct skr_mysql_options {
    const char *hosts;   // one or several; NULL: by the socket
    const char *socket;  // NULL: by a host
    unsigned port;       // of a host that names none
    const char *user;
    const char *password;
    const char *database;
    unsigned connect_timeout_s;
    unsigned timeout_s;  // for which the server may be silent
    unsigned lock_timeout_s;

    bool uses_tls;  // to each of the hosts
    bool verifies_server;
    const char *authority, *certificate, *key;  // NULL: none
};

SKR_MUST_CHECK enum skr_code
skr_mysql_read_url(const struct skr_url *url, struct skr_mysql_options *options,
                   struct skr_error *error);
skr_exposure_fn skr_mysql_exposure;

#endif
