// SPDX-License-Identifier: MIT
// What is known of the workers of this process: how they are, from the events
// that they log, and what they have done.

#ifndef SKR_APP_SERVICE_HEALTH_H
#define SKR_APP_SERVICE_HEALTH_H

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

// Of a transport. Several consumers of one count as one.
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
    struct skr_log log;  // where events go on to
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count;
};

void skr_health_init(struct skr_health *health, const struct skr_log *log);
void skr_health_fini(struct skr_health *health);
// Before workers begin; the name is borrowed. Harmless when it is there.
void skr_health_add(struct skr_health *health, const char *name);

// A skr_log_fn whose user is the struct: notes an event and passes it on.
skr_log_fn skr_health_note;

// Copies what is known now; returns how many there are.
size_t skr_health_read(struct skr_health *health,
                       struct skr_health_entry entries[SKR_HEALTH_MAX]);

// Connected, and at work or ready to take over.
bool skr_health_is_ready(const struct skr_health_entry *entry);
const char *skr_health_text(const struct skr_health_entry *entry);

#endif
