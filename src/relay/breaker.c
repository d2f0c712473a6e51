// SPDX-License-Identifier: MIT
// Breakers of senders are in an array, so that there is always room for them;
// those of exchanges and routes are in a map, from which idle ones are removed
// when it is full.

#include "relay/breaker.h"

#include "base/error.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_PAUSE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    MOST_REFUSED_IN_A_ROW = 10,
    // How long ago a confirmation still shows that other messages get through.
    CONFIRMED_LATELY_MS = 10000,
    MINUTE_MS = 60000,
    // How long a breaker stays closed that will not trip again the next moment.
    LASTING_MS = 2000,
    MOST_MISSES = 3,
    LOUD_EACH = 20,   // beyond so many outages not every one is loud
    IDLE_MS = 60000,  // unused for so long, a breaker may be removed
    CLEAN_MS = 1000,  // between two searches for idle breakers
};

void
skr_destination_init(struct skr_destination *destination,
                     const struct skr_route *route, const char *sender,
                     int64_t row)
{
    *destination = (struct skr_destination){.sender = sender, .row = row};
    if (route == NULL)
        return;
    destination->route = *route;
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), sender);
    destination->keys[SKR_BREAKER_SENDER] = hash.low;
    hash = skr_hash_add_text(hash, route->exchange);
    destination->keys[SKR_BREAKER_EXCHANGE] = hash.low;
    hash = skr_hash_add_text(hash, route->routing_key);
    destination->keys[SKR_BREAKER_ROUTE] = hash.low;
}

// A walk over all breakers, senders first, then in no particular order.
struct walk {
    size_t sender;
    size_t other;
};

static struct skr_breaker *
next(struct skr_breakers *breakers, struct walk *walk)
{
    if (walk->sender < breakers->sender_count)
        return &breakers->senders[walk->sender++];
    return skr_map_next(&breakers->others, &walk->other, NULL);
}

// NULL: there is none.
static struct skr_breaker *
find(struct skr_breakers *breakers, enum skr_breaker_scope scope,
     const struct skr_destination *destination)
{
    uint64_t key = destination->keys[scope];
    if (scope != SKR_BREAKER_SENDER)
        return skr_map_get(&breakers->others, key);
    for (size_t i = 0; i < breakers->sender_count; i++)
        if (breakers->senders[i].key == key)
            return &breakers->senders[i];
    return NULL;
}

// A breaker can be removed that is closed and has not been used lately: the
// next message that is refused makes it anew.
static bool
is_idle(const struct skr_breaker *breaker, int64_t now_ms)
{
    return breaker->state == SKR_BREAKER_CLOSED && !breaker->has_outage &&
           now_ms - breaker->used_ms >= IDLE_MS;
}

// Nothing is removed when memory is out.
static void
remove_idle(struct skr_breakers *breakers, int64_t now_ms)
{
    struct skr_map used = {.entries = NULL};
    struct skr_breaker *breaker;
    size_t at = 0;
    while ((breaker = skr_map_next(&breakers->others, &at, NULL)) != NULL) {
        if (!is_idle(breaker, now_ms) &&
            !skr_map_put(&used, breaker->key, breaker)) {
            skr_map_fini(&used);
            return;
        }
    }
    at = 0;
    while ((breaker = skr_map_next(&breakers->others, &at, NULL)) != NULL)
        if (is_idle(breaker, now_ms))
            free(breaker);
    skr_map_fini(&breakers->others);
    breakers->others = used;
}

static bool
has_room(struct skr_breakers *breakers, size_t most, int64_t now_ms)
{
    // The search costs more the more there are: not for each new destination.
    if (breakers->others.count >= most && now_ms >= breakers->clean_ms) {
        breakers->clean_ms = now_ms + CLEAN_MS;
        remove_idle(breakers, now_ms);
    }
    return breakers->others.count < most;
}

static void
write_name(struct skr_breaker *breaker, enum skr_breaker_scope scope,
           const struct skr_destination *destination)
{
    const struct skr_route *route = &destination->route;
    char *name = breaker->name;
    size_t size = sizeof(breaker->name);
    if (route->exchange == NULL)
        snprintf(name, size, "rows without a route");
    else if (scope == SKR_BREAKER_SENDER || route->exchange[0] == '\0')
        snprintf(name, size, "transport %s", destination->sender);
    else if (scope == SKR_BREAKER_EXCHANGE)
        snprintf(name, size, "%s %s",
                 route->topic == NULL ? "exchange" : "topic", route->exchange);
    else if (route->topic != NULL)
        snprintf(name, size, "topic %s", route->topic);
    else
        snprintf(name, size, "exchange %.90s, routing key %.80s",
                 route->exchange, route->routing_key);
}

// NULL: there is no room, or no memory.
static struct skr_breaker *
make_other(struct skr_breakers *breakers, uint64_t key, size_t most,
           int64_t now_ms)
{
    struct skr_breaker *made =
        has_room(breakers, most, now_ms) ? malloc(sizeof(*made)) : NULL;
    if (made == NULL || skr_map_put(&breakers->others, key, made))
        return made;
    free(made);
    return NULL;
}

static struct skr_breaker *
make(struct skr_breakers *breakers, enum skr_breaker_scope scope,
     const struct skr_destination *destination, int64_t now_ms)
{
    uint64_t key = destination->keys[scope];
    size_t most = scope == SKR_BREAKER_ROUTE ? SKR_MOST_ROUTE_BREAKERS
                                             : SKR_MOST_BREAKERS;
    struct skr_breaker *made =
        scope == SKR_BREAKER_SENDER
            ? &breakers->senders[breakers->sender_count++]
            : make_other(breakers, key, most, now_ms);
    if (made == NULL)
        return NULL;
    *made = (struct skr_breaker){
        .key = key, .backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS, 0}};
    write_name(made, scope, destination);
    return made;
}

// Where there is no room for one of this scope, that of the next scope outside,
// of which senders always have one. Idle ones may be removed by this.
static struct skr_breaker *
find_or_make(struct skr_breakers *breakers, enum skr_breaker_scope scope,
             const struct skr_destination *destination, int64_t now_ms)
{
    struct skr_breaker *breaker = NULL;
    for (;; scope--) {
        breaker = find(breakers, scope, destination);
        if (breaker == NULL)
            breaker = make(breakers, scope, destination, now_ms);
        if (breaker != NULL)
            break;
    }
    breaker->used_ms = now_ms;
    return breaker;
}

void
skr_breakers_fini(struct skr_breakers *breakers)
{
    struct skr_breaker *breaker;
    size_t at = 0;
    while ((breaker = skr_map_next(&breakers->others, &at, NULL)) != NULL)
        free(breaker);
    skr_map_fini(&breakers->others);
}

// The same error once a minute. Of very many outages the first are loud, and
// then one each time that they are twice as many.
static void
note_trip(struct skr_breakers *breakers, struct skr_breaker *breaker,
          const struct skr_error *reason, int64_t now_ms)
{
    struct skr_breaker_notice notice = {.is_open = true,
                                        .name = breaker->name,
                                        .error = *reason,
                                        .open_count = breakers->outage_count};
    skr_error_prefix(&notice.error, "%s waits", breaker->name);
    bool is_known = strcmp(breaker->error, notice.error.text) == 0;
    bool is_repeat = is_known && breaker->is_logged;
    notice.is_loud = is_repeat || breakers->outage_count <= LOUD_EACH ||
                     breakers->outage_count >= breakers->loud_next;
    breaker->trips = is_known ? breaker->trips + 1 : 1;
    if (is_repeat ? now_ms - breaker->logged_ms < MINUTE_MS
                  : is_known && !notice.is_loud)
        return;
    if (notice.is_loud) {
        breakers->loud_next = breakers->outage_count * 2;
        breaker->is_logged = true;
        breaker->logged_ms = now_ms;
    }
    memcpy(breaker->error, notice.error.text, sizeof(breaker->error));
    breakers->tell(breakers->tell_user, &notice);
}

static void
end_outage(struct skr_breakers *breakers, struct skr_breaker *breaker)
{
    breaker->has_outage = false;
    breakers->outage_count--;
    breakers->next_is_outdated = true;
    struct skr_breaker_notice notice = {
        .is_loud = breaker->is_logged,
        .name = breaker->name,
        .failures = breaker->trips,
        .open_count = breakers->outage_count,
    };
    breakers->tell(breakers->tell_user, &notice);
    breaker->error[0] = '\0';
    breaker->is_logged = false;
}

static bool
is_probed_by(const struct skr_breaker *breaker, int64_t row)
{
    return breaker->state == SKR_BREAKER_HALF_OPEN && breaker->row == row;
}

static void
wait_at(struct skr_breaker *breaker, int64_t row)
{
    if (breaker->state == SKR_BREAKER_HALF_OPEN ||
        (breaker->has_row && breaker->row <= row))
        return;
    breaker->row = row;
    breaker->has_row = true;
}

static void
set_state(struct skr_breakers *breakers, struct skr_breaker *breaker,
          enum skr_breaker_state state)
{
    breakers->open_count += state != SKR_BREAKER_CLOSED;
    breakers->open_count -= breaker->state != SKR_BREAKER_CLOSED;
    breakers->next_is_outdated = true;
    breaker->state = state;
}

static void
trip(struct skr_breakers *breakers, struct skr_breaker *breaker,
     uint32_t pause_ms, const struct skr_error *reason, int64_t now_ms)
{
    set_state(breakers, breaker, SKR_BREAKER_OPEN);
    breaker->backoff.pause_ms = pause_ms;
    breaker->until_ms = now_ms + pause_ms;
    breaker->is_proven = false;
    breaker->misses = 0;
    breakers->outage_count += !breaker->has_outage;
    breaker->has_outage = true;
    note_trip(breakers, breaker, reason, now_ms);
}

static void
close_breaker(struct skr_breakers *breakers, struct skr_breaker *breaker)
{
    set_state(breakers, breaker, SKR_BREAKER_CLOSED);
    breaker->has_row = false;
    breakers->has_recovered = true;
}

// A message has got through.
static void
prove(struct skr_breakers *breakers, struct skr_breaker *breaker,
      int64_t now_ms)
{
    if (breaker->state != SKR_BREAKER_CLOSED)
        close_breaker(breakers, breaker);
    skr_backoff_reset(&breaker->backoff);
    breaker->refused_in_a_row = 0;
    if (!breaker->has_outage || breaker->is_proven)
        return;
    breaker->is_proven = true;
    breaker->until_ms = now_ms + LASTING_MS;
    breakers->next_is_outdated = true;
}

// Open as before, until the next probe.
static void
reopen(struct skr_breakers *breakers, struct skr_breaker *breaker,
       int64_t now_ms)
{
    set_state(breakers, breaker, SKR_BREAKER_OPEN);
    // It grows with trips alone.
    struct skr_backoff backoff = breaker->backoff;
    breaker->until_ms = now_ms + skr_backoff_next(&backoff);
}

void
skr_breakers_begin(struct skr_breakers *breakers, int64_t now_ms)
{
    // By then the rows have been read.
    int64_t read_by_ms = now_ms + FIRST_PAUSE_MS;
    struct walk walk = {0};
    struct skr_breaker *breaker;
    while ((breaker = next(breakers, &walk)) != NULL) {
        if (breaker->state == SKR_BREAKER_CLOSED)
            continue;
        set_state(breakers, breaker, SKR_BREAKER_OPEN);
        breaker->has_row = false;
        if (breaker->until_ms < read_by_ms)
            breaker->until_ms = read_by_ms;
    }
}

static bool
allows(const struct skr_breaker *breaker, int64_t row)
{
    return breaker->state == SKR_BREAKER_CLOSED || is_probed_by(breaker, row);
}

// Of breakers that the message probes nothing is known.
static void
end_probe(struct skr_breakers *breakers,
          const struct skr_destination *destination, int64_t now_ms)
{
    if (breakers->open_count == 0)
        return;
    for (size_t scope = 0; scope < SKR_BREAKER_SCOPES; scope++) {
        struct skr_breaker *breaker = find(breakers, scope, destination);
        if (breaker != NULL && is_probed_by(breaker, destination->row))
            reopen(breakers, breaker, now_ms);
    }
}

// A probe that is the first row at several breakers probes all of them: at one
// after the other it would find another one open each time.
static void
probe_all(struct skr_breakers *breakers,
          const struct skr_destination *destination)
{
    bool is_probe = false;
    for (size_t scope = 0; scope < SKR_BREAKER_SCOPES; scope++) {
        const struct skr_breaker *breaker = find(breakers, scope, destination);
        is_probe = is_probe ||
                   (breaker != NULL && is_probed_by(breaker, destination->row));
    }
    for (size_t scope = 0; is_probe && scope < SKR_BREAKER_SCOPES; scope++) {
        struct skr_breaker *breaker = find(breakers, scope, destination);
        if (breaker != NULL && breaker->state == SKR_BREAKER_OPEN &&
            breaker->has_row && breaker->row == destination->row)
            set_state(breakers, breaker, SKR_BREAKER_HALF_OPEN);
    }
}

bool
skr_breakers_allow(struct skr_breakers *breakers,
                   const struct skr_destination *destination, int64_t now_ms)
{
    // Every exchange has a breaker, which knows whether messages get through.
    find_or_make(breakers, SKR_BREAKER_EXCHANGE, destination, now_ms);
    if (breakers->open_count > 1)
        probe_all(breakers, destination);
    for (size_t scope = 0; scope < SKR_BREAKER_SCOPES; scope++) {
        struct skr_breaker *breaker = find(breakers, scope, destination);
        if (breaker == NULL || allows(breaker, destination->row))
            continue;
        wait_at(breaker, destination->row);
        // The probe of one breaker may find the next one open.
        end_probe(breakers, destination, now_ms);
        return false;
    }
    return true;
}

// The message got through all of its breakers, or through those before up_to.
static void
reach(struct skr_breakers *breakers, const struct skr_destination *destination,
      const struct skr_breaker *up_to, int64_t now_ms)
{
    for (size_t scope = 0; scope < SKR_BREAKER_SCOPES; scope++) {
        struct skr_breaker *breaker = find(breakers, scope, destination);
        if (breaker != NULL && breaker == up_to)
            return;
        // What was sent before a breaker tripped proves nothing about it now.
        if (breaker != NULL && allows(breaker, destination->row))
            prove(breakers, breaker, now_ms);
    }
}

static enum skr_blame
refuse(struct skr_breakers *breakers, const struct skr_destination *destination,
       const struct skr_error *reason, int64_t now_ms)
{
    // This one first: room for it may cost another one that is idle.
    struct skr_breaker *route =
        find_or_make(breakers, SKR_BREAKER_ROUTE, destination, now_ms);
    const struct skr_breaker *exchange =
        find(breakers, SKR_BREAKER_EXCHANGE, destination);
    bool others_pass = exchange != NULL && exchange->confirmed_ms > 0 &&
                       now_ms - exchange->confirmed_ms < CONFIRMED_LATELY_MS;
    reach(breakers, destination, route, now_ms);
    route->refused_in_a_row++;
    bool is_closed = route->state == SKR_BREAKER_CLOSED;
    // One that was open a moment ago is tripped again by the first refusal.
    if (is_closed && !route->has_outage &&
        route->refused_in_a_row < MOST_REFUSED_IN_A_ROW)
        return others_pass ? SKR_BLAME_MESSAGE : SKR_BLAME_NOBODY;
    if (allows(route, destination->row))
        trip(breakers, route, skr_backoff_next(&route->backoff), reason,
             now_ms);
    wait_at(route, destination->row);
    return SKR_BLAME_DESTINATION;
}

// Nothing can go there, whatever the message: this one waits.
static void
trip_at(struct skr_breakers *breakers, enum skr_breaker_scope scope,
        const struct skr_destination *destination,
        const struct skr_error *reason, int64_t now_ms)
{
    struct skr_breaker *breaker =
        find_or_make(breakers, scope, destination, now_ms);
    reach(breakers, destination, breaker, now_ms);
    if (allows(breaker, destination->row))
        trip(breakers, breaker, skr_backoff_next(&breaker->backoff), reason,
             now_ms);
    wait_at(breaker, destination->row);
}

enum skr_blame
skr_breakers_report(struct skr_breakers *breakers,
                    const struct skr_destination *destination,
                    enum skr_publish_result result,
                    const struct skr_error *reason, int64_t now_ms)
{
    const struct skr_route *route = &destination->route;
    struct skr_breaker *exchange =
        find(breakers, SKR_BREAKER_EXCHANGE, destination);
    enum skr_blame blame = SKR_BLAME_MESSAGE;
    switch (result) {
    case SKR_CONFIRMED:
        if (exchange != NULL)
            exchange->confirmed_ms = now_ms;
        reach(breakers, destination, NULL, now_ms);
        break;
    case SKR_REFUSED_FOR_NOW:
        blame = refuse(breakers, destination, reason, now_ms);
        break;
    case SKR_REFUSED_FOR_GOOD:
        reach(breakers, destination, NULL, now_ms);
        break;
    case SKR_UNROUTABLE:
        if (route->unroutable == SKR_UNROUTABLE_WAIT)
            trip_at(breakers, SKR_BREAKER_ROUTE, destination, reason, now_ms);
        else
            reach(breakers, destination, NULL, now_ms);
        break;
    case SKR_ROUTE_UNAVAILABLE:
        trip_at(breakers, SKR_BREAKER_EXCHANGE, destination, reason, now_ms);
        break;
    case SKR_UNCERTAIN:
        if (route->sender > 0)
            trip_at(breakers, SKR_BREAKER_SENDER, destination, reason, now_ms);
        break;
    case SKR_HELD_BACK: break;
    }
    end_probe(breakers, destination, now_ms);
    return blame;
}

bool
skr_breakers_may_fail(struct skr_breakers *breakers,
                      const struct skr_destination *destination,
                      const struct skr_error *reason, int64_t now_ms)
{
    if (breakers->failure_limit == 0)
        return true;
    struct skr_breaker *route =
        find_or_make(breakers, SKR_BREAKER_ROUTE, destination, now_ms);
    uint32_t pause_ms =
        skr_failures_count(&route->failures, breakers->failure_limit, now_ms);
    if (pause_ms == 0)
        return true;
    if (route->state == SKR_BREAKER_CLOSED) {
        struct skr_error limited = *reason;
        skr_error_prefix(&limited,
                         "%u messages failed within a minute (failure_limit)",
                         breakers->failure_limit);
        trip(breakers, route, pause_ms, &limited, now_ms);
    }
    wait_at(route, destination->row);
    return false;
}

// Whether something is to be done at until_ms.
static bool
has_timer(const struct skr_breaker *breaker)
{
    switch (breaker->state) {
    case SKR_BREAKER_CLOSED: return breaker->has_outage && breaker->is_proven;
    case SKR_BREAKER_OPEN: return true;
    case SKR_BREAKER_HALF_OPEN: return false;
    }
    return false;
}

bool
skr_breakers_next_probe(struct skr_breakers *breakers, int64_t now_ms,
                        int64_t *row)
{
    struct walk walk = {0};
    struct skr_breaker *breaker;
    while ((breaker = next(breakers, &walk)) != NULL) {
        if (!has_timer(breaker) || breaker->until_ms > now_ms)
            continue;
        if (breaker->state == SKR_BREAKER_CLOSED) {
            end_outage(breakers, breaker);
        } else if (breaker->has_row) {
            set_state(breakers, breaker, SKR_BREAKER_HALF_OPEN);
            *row = breaker->row;
            return true;
        } else {
            close_breaker(breakers, breaker);
        }
    }
    return false;
}

void
skr_breakers_forget(struct skr_breakers *breakers, int64_t row)
{
    struct walk walk = {0};
    struct skr_breaker *breaker;
    while ((breaker = next(breakers, &walk)) != NULL)
        if (is_probed_by(breaker, row))
            close_breaker(breakers, breaker);
}

void
skr_breakers_miss(struct skr_breakers *breakers, int64_t row, int64_t now_ms)
{
    struct walk walk = {0};
    struct skr_breaker *breaker;
    while ((breaker = next(breakers, &walk)) != NULL) {
        if (!is_probed_by(breaker, row))
            continue;
        if (++breaker->misses < MOST_MISSES)
            reopen(breakers, breaker, now_ms);
        else
            close_breaker(breakers, breaker);
    }
}

bool
skr_breakers_are_closed_for(struct skr_breakers *breakers,
                            const struct skr_destination *destination)
{
    for (size_t scope = 0; scope < SKR_BREAKER_SCOPES; scope++) {
        const struct skr_breaker *breaker = find(breakers, scope, destination);
        if (breaker != NULL && breaker->state != SKR_BREAKER_CLOSED)
            return false;
    }
    return true;
}

int64_t
skr_breakers_next_ms(struct skr_breakers *breakers)
{
    if (!breakers->next_is_outdated)
        return breakers->next_ms;
    breakers->next_ms = 0;
    breakers->next_is_outdated = false;
    struct walk walk = {0};
    struct skr_breaker *breaker;
    while ((breaker = next(breakers, &walk)) != NULL)
        if (has_timer(breaker) &&
            (breakers->next_ms == 0 || breaker->until_ms < breakers->next_ms))
            breakers->next_ms = breaker->until_ms;
    return breakers->next_ms;
}

bool
skr_breakers_take_recovered(struct skr_breakers *breakers)
{
    bool has_recovered = breakers->has_recovered;
    breakers->has_recovered = false;
    return has_recovered;
}
