// SPDX-License-Identifier: MIT
// Which of several hosts a driver works on.

#include "db/db.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

// To the reason why nothing can be written.
static void
add_problem(struct skr_db *db, const struct skr_error *problem)
{
    size_t length = strlen(db->read_only.text);
    snprintf(db->read_only.text + length, sizeof(db->read_only.text) - length,
             "; another host: %.180s", problem->text);
}

enum skr_code
skr_db_open_hosts(struct skr_db *db, const char *hosts,
                  skr_db_open_host_fn *open_host, const void *user,
                  struct skr_error *error)
{
    struct skr_host host, readable = {.name = ""};
    struct skr_error problem = {0};
    bool is_readable = false;  // one that cannot be written, so far
    bool is_open = false;      // the session of that one
    while (hosts != NULL) {
        hosts = skr_host_next(hosts, &host);
        is_open = false;
        enum skr_code code = open_host(db, &host, user, &problem);
        if (code == SKR_OK && db->read_only.code == SKR_OK)
            return SKR_OK;
        if (code != SKR_OK || is_readable)
            continue;
        is_readable = is_open = true;
        readable = host;
        db->passed_over = db->read_only;
    }
    if (!is_readable) {
        if (error != NULL)
            *error = problem;
        return problem.code;
    }
    skr_error_clear(&db->passed_over);
    enum skr_code code = SKR_OK;
    if (!is_open)
        code = open_host(db, &readable, user, error);
    if (code == SKR_OK && problem.code != SKR_OK)
        add_problem(db, &problem);
    return code;
}
