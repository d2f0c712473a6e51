// SPDX-License-Identifier: MIT
#include "app/service/health.h"

#include <string.h>

void
skr_health_init(struct skr_health *health, const struct skr_log *log)
{
    *health = (struct skr_health){.log = *log};
    pthread_mutex_init(&health->lock, NULL);
}

void
skr_health_fini(struct skr_health *health)
{
    pthread_mutex_destroy(&health->lock);
}

static struct skr_health_entry *
find(struct skr_health *health, const char *name)
{
    for (size_t i = 0; i < health->count; i++)
        if (strcmp(health->entries[i].name, name) == 0)
            return &health->entries[i];
    return NULL;
}

void
skr_health_add(struct skr_health *health, const char *name)
{
    if (health->count == SKR_HEALTH_MAX || find(health, name) != NULL)
        return;
    health->entries[health->count++] = (struct skr_health_entry){.name = name};
}

static const char *
name_of(const struct skr_log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "name") == 0 && fields[i].text != NULL)
            return fields[i].text;
    return "";
}

static uint64_t
number_of(const struct skr_log_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0 && fields[i].text == NULL)
            return fields[i].number;
    return 0;
}

// Sorted by what they mean; whoever logs a new one of these kinds adds it here.
static void
apply(struct skr_health_entry *entry, const char *event,
      const struct skr_log_field *fields, size_t count)
{
    static const struct {
        const char *event;
        enum skr_role role;
    } roles[] = {
        {"relay.active", SKR_ROLE_ACTIVE},
        {"consumer.ready", SKR_ROLE_ACTIVE},
        {"relay.standby", SKR_ROLE_STANDBY},
        {"relay.stopped", SKR_ROLE_ENDED},
        {"consumer.ended", SKR_ROLE_ENDED},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(roles); i++)
        if (strcmp(roles[i].event, event) == 0) {
            entry->role = roles[i].role;
            entry->is_in_trouble = false;
        }
    if (strcmp(event, "relay.trouble") == 0 ||
        strcmp(event, "consumer.trouble") == 0) {
        entry->is_in_trouble = true;
        entry->troubles++;
    } else if (strcmp(event, "relay.recovered") == 0 ||
               strcmp(event, "consumer.recovered") == 0) {
        entry->is_in_trouble = false;
    } else if (strcmp(event, "relay.route_closed") == 0 ||
               strcmp(event, "relay.route_open") == 0) {
        entry->closed_routes = number_of(fields, count, "closed");
    }
}

void
skr_health_note(void *user, enum skr_log_level level, const char *event,
                const struct skr_log_field *fields, size_t count)
{
    struct skr_health *health = user;
    pthread_mutex_lock(&health->lock);
    struct skr_health_entry *entry = find(health, name_of(fields, count));
    if (entry != NULL)
        apply(entry, event, fields, count);
    pthread_mutex_unlock(&health->lock);
    if (health->log.write != NULL)
        health->log.write(health->log.user, level, event, fields, count);
}

size_t
skr_health_read(struct skr_health *health,
                struct skr_health_entry entries[SKR_HEALTH_MAX])
{
    pthread_mutex_lock(&health->lock);
    size_t count = health->count;
    memcpy(entries, health->entries, count * sizeof(entries[0]));
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
