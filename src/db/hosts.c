// SPDX-License-Identifier: MIT
// Which of several hosts a driver works on.

#include "db/db.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/silence.h"

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

enum {
    HANGING_MS = 1000,  // a host that is down refuses sooner
    MOST_KNOWN = 64,    // hosts of one list
};

static void
name_peer(const struct skr_host *host, char peer[SKR_SILENCE_PEER_SIZE])
{
    snprintf(peer, SKR_SILENCE_PEER_SIZE, "%.*s:%s", SKR_HOST_NAME_SIZE - 1,
             host->name, host->port);
}

// One bit for each host of the list that hung of late.
static uint64_t
find_silent(const char *hosts)
{
    uint64_t silent = 0;
    char peer[SKR_SILENCE_PEER_SIZE];
    struct skr_host host;
    for (size_t i = 0; hosts != NULL && i < MOST_KNOWN; i++) {
        hosts = skr_host_next(hosts, &host);
        name_peer(&host, peer);
        if (skr_silence_ms(peer) > 0)
            silent |= UINT64_C(1) << i;
    }
    return silent;
}

struct opening {
    struct skr_db *db;
    skr_db_open_host_fn *open_host;
    const void *user;
    struct skr_host readable;  // the first that cannot be written
    bool is_readable;          // there is one
    bool is_open;              // the session is that one's
    struct skr_error problem;
};

// Whether the host can be written.
static bool
try_host(struct opening *opening, const struct skr_host *host)
{
    struct skr_db *db = opening->db;
    char peer[SKR_SILENCE_PEER_SIZE];
    int64_t start_ms = skr_clock_ms();
    opening->is_open = false;
    name_peer(host, peer);
    enum skr_code code =
        opening->open_host(db, host, opening->user, &opening->problem);
    if (code != SKR_UNAVAILABLE)
        skr_silence_end(peer);
    else if (skr_clock_ms() - start_ms >= HANGING_MS)
        skr_silence_note(peer);
    if (code == SKR_OK && db->read_only.code == SKR_OK)
        return true;
    if (code != SKR_OK || opening->is_readable)
        return false;
    opening->is_readable = opening->is_open = true;
    opening->readable = *host;
    db->passed_over = db->read_only;
    return false;
}

// Hosts that hung come last: each costs its timeout.
static bool
try_hosts(struct opening *opening, const char *list)
{
    struct skr_host host;
    uint64_t silent = find_silent(list);
    for (uint64_t wanted = 0; wanted <= 1; wanted++) {
        const char *hosts = list;
        for (size_t i = 0; hosts != NULL; i++) {
            hosts = skr_host_next(hosts, &host);
            uint64_t hung = i < MOST_KNOWN ? silent >> i & 1 : 0;
            if (hung == wanted && try_host(opening, &host))
                return true;
        }
    }
    return false;
}

enum skr_code
skr_db_open_hosts(struct skr_db *db, const char *hosts,
                  skr_db_open_host_fn *open_host, const void *user,
                  struct skr_error *error)
{
    struct opening opening = {.db = db, .open_host = open_host, .user = user};
    const struct skr_error *problem = &opening.problem;
    if (try_hosts(&opening, hosts))
        return SKR_OK;
    if (!opening.is_readable) {
        if (error != NULL)
            *error = *problem;
        return problem->code;
    }
    skr_error_clear(&db->passed_over);
    enum skr_code code = SKR_OK;
    if (!opening.is_open)
        code = open_host(db, &opening.readable, user, error);
    if (code == SKR_OK && problem->code != SKR_OK)
        add_problem(db, problem);
    return code;
}
