// SPDX-License-Identifier: MIT
#include "outbox/gate_set.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FIRST_CAPACITY = 64,
    IDLE_MS = 60000,   // unused for so long, a gate may be forgotten
    FORGET_MS = 1000,  // between two looks for such
};

// Where a gate of this place is, or belongs.
static struct skr_gate **
look_up(const struct skr_gates *gates, uint64_t place)
{
    size_t at = place & (gates->capacity - 1);
    while (gates->items[at] != NULL && gates->items[at]->place != place)
        at = (at + 1) & (gates->capacity - 1);
    return &gates->items[at];
}

struct skr_gate *
skr_gates_find(struct skr_gates *gates, enum skr_gate_kind kind,
               const struct skr_passage *passage)
{
    uint64_t place = passage->places[kind];
    if (kind != SKR_GATE_SENDER)
        return gates->capacity == 0 ? NULL : *look_up(gates, place);
    for (size_t i = 0; i < gates->sender_count; i++)
        if (gates->senders[i].place == place)
            return &gates->senders[i];
    return NULL;
}

struct skr_gate *
skr_gates_next(struct skr_gates *gates, size_t *at)
{
    while (*at < gates->sender_count + gates->capacity) {
        size_t i = (*at)++;
        struct skr_gate *gate = i < gates->sender_count
                                    ? &gates->senders[i]
                                    : gates->items[i - gates->sender_count];
        if (gate != NULL)
            return gate;
    }
    return NULL;
}

void
skr_gates_fini(struct skr_gates *gates)
{
    for (size_t i = 0; i < gates->capacity; i++)
        free(gates->items[i]);
    free(gates->items);
    gates->items = NULL;
    gates->count = gates->capacity = 0;
}

static void
write_name(struct skr_gate *gate, enum skr_gate_kind kind,
           const struct skr_passage *passage)
{
    const struct skr_route *route = &passage->route;
    if (route->exchange == NULL)
        snprintf(gate->name, sizeof(gate->name), "rows without a route");
    else if (kind == SKR_GATE_SENDER || route->exchange[0] == '\0')
        snprintf(gate->name, sizeof(gate->name), "transport %s",
                 passage->sender);
    else if (kind == SKR_GATE_EXCHANGE)
        snprintf(gate->name, sizeof(gate->name), "%s %s",
                 route->topic == NULL ? "exchange" : "topic", route->exchange);
    else if (route->topic != NULL)
        snprintf(gate->name, sizeof(gate->name), "topic %s", route->topic);
    else
        snprintf(gate->name, sizeof(gate->name),
                 "exchange %.90s, routing key %.80s", route->exchange,
                 route->routing_key);
}

// Any gate can be forgotten that stands open and has not been used lately; a
// message that is refused makes it anew.
static bool
is_idle(const struct skr_gate *gate, int64_t now)
{
    return gate->state == SKR_GATE_OPEN && !gate->is_in_trouble &&
           now - gate->used_ms >= IDLE_MS;
}

// Moves all that are in use into a table of this size.
static bool
move_to(struct skr_gates *gates, size_t capacity)
{
    struct skr_gates grown = {.capacity = capacity};
    int64_t now = skr_clock_ms();
    grown.items = calloc(capacity, sizeof(grown.items[0]));
    if (grown.items == NULL)
        return false;
    for (size_t i = 0; i < gates->capacity; i++) {
        struct skr_gate *gate = gates->items[i];
        if (gate == NULL)
            continue;
        if (is_idle(gate, now)) {
            free(gate);
            continue;
        }
        *look_up(&grown, gate->place) = gate;
        grown.count++;
    }
    free(gates->items);
    gates->items = grown.items;
    gates->count = grown.count;
    gates->capacity = capacity;
    return true;
}

// At most half of the places are taken.
static bool
has_room(struct skr_gates *gates, size_t most)
{
    if (gates->count * 2 < gates->capacity && gates->count < most)
        return true;
    // Forgetting costs more the more there are: not for each that finds none.
    int64_t now = skr_clock_ms();
    if (gates->count >= most && now < gates->forget_ms)
        return false;
    gates->forget_ms = now + FORGET_MS;
    size_t capacity = gates->capacity == 0 ? FIRST_CAPACITY
                      : gates->count * 2 < gates->capacity
                          ? gates->capacity
                          : gates->capacity * 2;
    return move_to(gates, capacity) && gates->count < most;
}

static struct skr_gate *
make(struct skr_gates *gates, enum skr_gate_kind kind,
     const struct skr_passage *passage)
{
    uint64_t place = passage->places[kind];
    struct skr_gate *gate = NULL;
    if (kind == SKR_GATE_SENDER) {
        gate = &gates->senders[gates->sender_count++];
    } else if (has_room(gates, kind == SKR_GATE_ROUTE ? SKR_MOST_ROUTE_GATES
                                                      : SKR_MOST_GATES)) {
        gate = malloc(sizeof(*gate));
        if (gate != NULL) {
            *look_up(gates, place) = gate;
            gates->count++;
        }
    }
    if (gate == NULL)
        return NULL;
    *gate = (struct skr_gate){.place = place};
    write_name(gate, kind, passage);
    return gate;
}

struct skr_gate *
skr_gates_find_or_make(struct skr_gates *gates, enum skr_gate_kind kind,
                       const struct skr_passage *passage)
{
    struct skr_gate *gate = NULL;
    for (;; kind--) {
        gate = skr_gates_find(gates, kind, passage);
        if (gate == NULL)
            gate = make(gates, kind, passage);
        if (gate != NULL)
            break;
    }
    gate->used_ms = skr_clock_ms();
    return gate;
}
