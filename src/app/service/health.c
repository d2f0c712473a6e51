// SPDX-License-Identifier: MIT
// The state of each worker, read off the names of the events it logs, and what
// readiness and liveness follow from it.

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
        .workers = calloc(name_count * each, sizeof(*health->workers)),
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

static uint64_t
number_of(const struct skr_log_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0 && fields[i].text == NULL)
            return fields[i].number;
    return 0;
}

// Each kind of trouble has an end of its own: to be connected again says
// nothing of a table that cannot be written. A new kind of log event has to be
// added here.
enum {
    RELAYING = 1 << 0,
    CONSUMING = 1 << 1,
    SETTLING = 1 << 2,
    KEEPING = 1 << 3,
    RETRYING = 1 << 4,
    REACHING = 1 << 5,
    CONNECTING = RELAYING | CONSUMING | REACHING,
};
static const struct {
    uint32_t kind;
    const char *begins;  // NULL: another line says so
    const char *ends;
} kinds[] = {
    {RELAYING, "relay.trouble", "relay.recovered"},
    {CONSUMING, "consumer.trouble", "consumer.recovered"},
    {SETTLING, "relay.settle_trouble", "relay.settle_recovered"},
    {KEEPING, "consumer.keep_trouble", "consumer.keep_recovered"},
    {RETRYING, "consumer.retry_trouble", "consumer.retry_recovered"},
    {REACHING, "kafka.trouble", "kafka.recovered"},
    // A worker that needs a client makes another, and logs trouble where that
    // fails.
    {REACHING, NULL, "kafka.given_up"},
};

static void
apply_trouble(struct skr_health_worker *worker, const char *event)
{
    for (size_t i = 0; i < SKR_COUNT_OF(kinds); i++) {
        const char *begins = kinds[i].begins;
        if (begins != NULL && strcmp(begins, event) == 0) {
            worker->troubles |= kinds[i].kind;
            worker->trouble_count++;
        } else if (strcmp(kinds[i].ends, event) == 0) {
            worker->troubles &= ~kinds[i].kind;
        }
    }
}

// Sorted by what they mean; a new event of these kinds has to be added here.
static void
apply(struct skr_health_worker *worker, const char *event,
      const struct skr_log_field *fields, size_t count)
{
    static const struct {
        const char *event;
        enum skr_role role;
        uint32_t ends;  // of the troubles
    } roles[] = {
        {"relay.active", SKR_ROLE_ACTIVE, CONNECTING},
        {"consumer.ready", SKR_ROLE_ACTIVE, CONNECTING},
        {"relay.standby", SKR_ROLE_STANDBY, CONNECTING},
        {"relay.stopped", SKR_ROLE_ENDED, UINT32_MAX},
        {"consumer.stopped", SKR_ROLE_ENDED, UINT32_MAX},
        {"consumer.ended", SKR_ROLE_ENDED, UINT32_MAX},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(roles); i++)
        if (strcmp(roles[i].event, event) == 0) {
            worker->role = roles[i].role;
            worker->is_stuck = false;
            worker->has_worked |= worker->role != SKR_ROLE_ENDED;
            worker->troubles &= ~roles[i].ends;
        }
    apply_trouble(worker, event);
    if (strcmp(event, "relay.route_closed") == 0 ||
        strcmp(event, "relay.route_open") == 0)
        worker->closed_routes = number_of(fields, count, "closed");
}

static void
note(void *user, enum skr_log_level level, const char *event,
     const struct skr_log_field *fields, size_t count)
{
    struct skr_health_worker *worker = user;
    struct skr_health *health = worker->health;
    pthread_mutex_lock(&health->lock);
    apply(worker, event, fields, count);
    pthread_mutex_unlock(&health->lock);
    skr_log_write(&health->log, level, event, fields, count);
}

struct skr_log
skr_health_log(struct skr_health *health, size_t index)
{
    return (struct skr_log){.write = note,
                            .user = &health->workers[index],
                            .each_message = health->log.each_message};
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

bool
skr_health_are_ready(struct skr_health *health)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(health, entries);
    bool are_ready = true;
    for (size_t i = 0; i < count; i++)
        are_ready &= skr_health_is_ready(&entries[i]);
    return are_ready;
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
