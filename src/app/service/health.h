// SPDX-License-Identifier: MIT
// What is known of the workers of this process: how they are, as they tell it,
// and whether they turn.

#ifndef SKR_APP_SERVICE_HEALTH_H
#define SKR_APP_SERVICE_HEALTH_H

#include "base/beat.h"
#include "base/log.h"
#include "base/text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { SKR_HEALTH_MAX = 64 };

enum skr_role {
    SKR_ROLE_STARTING,  // or between two attempts
    SKR_ROLE_ACTIVE,
    SKR_ROLE_STANDBY,
    SKR_ROLE_ENDED,
};

struct skr_health;

// A relay, or one of the consumers of a transport.
struct skr_health_worker {
    struct skr_health *health;
    const char *name;  // of the transport
    enum skr_role role;
    uint32_t troubles;  // those that last: bits of enum skr_trouble_kind
    uint64_t trouble_count;
    uint64_t closed_routes;
    bool is_stuck;           // a mistake keeps it from its first connection
    bool has_worked;         // it was at work, or stood by
    struct skr_pulse pulse;  // empty: the worker has not begun
};

// Of a transport: of several consumers the one that is worst off.
struct skr_health_entry {
    const char *name;
    enum skr_role role;
    bool is_in_trouble;
    uint64_t troubles;  // how often that began
    uint64_t closed_routes;
};

// [shared]
struct skr_health {
    pthread_mutex_t lock;
    struct skr_log log;  // of all workers
    struct skr_health_worker *workers;
    size_t count;
    bool waits;  // none of them gives up; set before they run
};

// So many workers for each of the names, which are borrowed. Not to be moved.
SKR_MUST_CHECK enum skr_code
skr_health_init(struct skr_health *health, const struct skr_log *log,
                const char *const *names, size_t name_count, size_t each,
                struct skr_error *error);
void skr_health_fini(struct skr_health *health);

// What a worker is to log to, and to tell its health. Those of the first name
// come first.
struct skr_log skr_health_log(struct skr_health *health, size_t index);

// The pulse of the worker of this place, which lives as long as the health.
void skr_health_watch(struct skr_health *health, size_t index,
                      struct skr_pulse pulse);
// For gives_up() of a relay or a consumer; user is a skr_health_worker: whether
// no worker can do anything, since mistakes keep all of them from their first
// connection.
bool skr_health_gives_up(void *user);
// Whether all workers were at work once, or stood by.
bool skr_health_have_worked(struct skr_health *health);
// Whether all workers turn.
bool skr_health_is_turning(struct skr_health *health, int64_t within_ms);

// Copies what is known now; returns how many there are.
size_t skr_health_read(struct skr_health *health,
                       struct skr_health_entry entries[SKR_HEALTH_MAX]);

// Connected, and at work or ready to take over.
bool skr_health_is_ready(const struct skr_health_entry *entry);
const char *skr_health_text(const struct skr_health_entry *entry);

#endif
