// SPDX-License-Identifier: MIT
// The state of each worker, as it tells it beside its log, and what readiness
// and liveness follow from it.

#include "app/service/health.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum skr_code
skr_health_init(struct skr_health *health, const struct skr_log *log,
                const char *const *names, size_t name_count, size_t each,
                struct skr_error *error)
{
    *health = (struct skr_health){
        .log = *log,
        .workers = calloc(name_count * each + 1, sizeof(*health->workers)),
        .count = name_count * each,
    };
    if (health->workers == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < health->count; i++)
        health->workers[i] = (struct skr_health_worker){
            .health = health, .name = names[i / each]};
    pthread_mutex_init(&health->lock, NULL);
    return SKR_OK;
}

void
skr_health_fini(struct skr_health *health)
{
    pthread_mutex_destroy(&health->lock);
    free(health->workers);
}

enum {
    CONNECTING = SKR_TROUBLE_RELAY | SKR_TROUBLE_CONSUMER | SKR_TROUBLE_BROKER,
};

// A worker that is connected is out of those troubles.
static void
set_role(struct skr_health_worker *worker, enum skr_role role)
{
    worker->role = role;
    worker->is_stuck = false;
    worker->has_worked |= role != SKR_ROLE_ENDED;
    worker->troubles &= role == SKR_ROLE_ENDED ? 0 : ~(uint32_t)CONNECTING;
}

static void
apply(struct skr_health_worker *worker, enum skr_health_event event,
      uint64_t detail)
{
    switch (event) {
    case SKR_HEALTH_ACTIVE: set_role(worker, SKR_ROLE_ACTIVE); break;
    case SKR_HEALTH_STANDBY: set_role(worker, SKR_ROLE_STANDBY); break;
    case SKR_HEALTH_ENDED: set_role(worker, SKR_ROLE_ENDED); break;
    case SKR_HEALTH_TROUBLE:
        worker->troubles |= (uint32_t)detail;
        worker->trouble_count++;
        break;
    case SKR_HEALTH_RECOVERED: worker->troubles &= ~(uint32_t)detail; break;
    case SKR_HEALTH_CLOSED_ROUTES: worker->closed_routes = detail; break;
    }
}

static void
note(void *user, enum skr_health_event event, uint64_t detail)
{
    struct skr_health_worker *worker = user;
    struct skr_health *health = worker->health;
    pthread_mutex_lock(&health->lock);
    apply(worker, event, detail);
    pthread_mutex_unlock(&health->lock);
}

struct skr_log
skr_health_log(struct skr_health *health, size_t index)
{
    struct skr_log log = health->log;
    log.tell = note;
    log.tell_user = &health->workers[index];
    return log;
}

void
skr_health_watch(struct skr_health *health, size_t index,
                 struct skr_pulse pulse)
{
    pthread_mutex_lock(&health->lock);
    health->workers[index].pulse = pulse;
    pthread_mutex_unlock(&health->lock);
}

bool
skr_health_is_turning(struct skr_health *health, int64_t within_ms)
{
    bool all_turn = true;
    pthread_mutex_lock(&health->lock);
    for (size_t i = 0; i < health->count; i++)
        all_turn &= skr_pulse_is_fresh(&health->workers[i].pulse, within_ms);
    pthread_mutex_unlock(&health->lock);
    return all_turn;
}

bool
skr_health_have_worked(struct skr_health *health)
{
    bool have_all = true;
    pthread_mutex_lock(&health->lock);
    for (size_t i = 0; i < health->count; i++)
        have_all &= health->workers[i].has_worked;
    pthread_mutex_unlock(&health->lock);
    return have_all;
}

bool
skr_health_gives_up(void *user)
{
    struct skr_health_worker *worker = user;
    struct skr_health *health = worker->health;
    pthread_mutex_lock(&health->lock);
    worker->is_stuck = true;
    bool are_all = true;
    for (size_t i = 0; i < health->count; i++)
        are_all &= health->workers[i].is_stuck ||
                   health->workers[i].role == SKR_ROLE_ENDED;
    pthread_mutex_unlock(&health->lock);
    return are_all && !health->waits;
}

// The one that is furthest from being at work speaks for all.
static bool
is_worse(enum skr_role role, enum skr_role than)
{
    static const int order[] = {
        [SKR_ROLE_ACTIVE] = 0,
        [SKR_ROLE_STANDBY] = 1,
        [SKR_ROLE_STARTING] = 2,
        [SKR_ROLE_ENDED] = 3,
    };
    return order[role] > order[than];
}

size_t
skr_health_read(struct skr_health *health,
                struct skr_health_entry entries[SKR_HEALTH_MAX])
{
    size_t count = 0;
    pthread_mutex_lock(&health->lock);
    for (size_t i = 0; i < health->count; i++) {
        const struct skr_health_worker *worker = &health->workers[i];
        size_t at = 0;
        while (at < count && strcmp(entries[at].name, worker->name) != 0)
            at++;
        if (at == SKR_HEALTH_MAX)
            continue;
        if (at == count)
            entries[count++] = (struct skr_health_entry){
                .name = worker->name, .role = SKR_ROLE_ACTIVE};
        struct skr_health_entry *entry = &entries[at];
        if (is_worse(worker->role, entry->role))
            entry->role = worker->role;
        entry->is_in_trouble |= worker->troubles != 0;
        entry->troubles += worker->trouble_count;
        entry->closed_routes += worker->closed_routes;
    }
    pthread_mutex_unlock(&health->lock);
    return count;
}

bool
skr_health_is_ready(const struct skr_health_entry *entry)
{
    return !entry->is_in_trouble &&
           (entry->role == SKR_ROLE_ACTIVE || entry->role == SKR_ROLE_STANDBY);
}

const char *
skr_health_text(const struct skr_health_entry *entry)
{
    if (entry->is_in_trouble)
        return "in trouble";
    switch (entry->role) {
    case SKR_ROLE_STARTING: return "starting";
    case SKR_ROLE_ACTIVE: return "active";
    case SKR_ROLE_STANDBY: return "standby";
    case SKR_ROLE_ENDED: return "ended";
    }
    return "starting";
}
