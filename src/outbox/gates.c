// SPDX-License-Identifier: MIT
#include "outbox/gates.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_PAUSE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    MOST_REFUSED_IN_A_ROW = 10,
    // How long ago a confirmation still shows that others get through.
    CONFIRMED_LATELY_MS = 10000,
    MINUTE_MS = 60000,
    // How long a gate stays open that will not close again the next moment.
    LASTING_MS = 2000,
    MOST_MISSES = 3,
    SAID_EACH = 20,  // beyond so many in trouble not every one is told of
    FIRST_CAPACITY = 64,
};

void
skr_passage_init(struct skr_passage *passage, const struct skr_route *route,
                 const char *sender, int64_t row)
{
    *passage = (struct skr_passage){.sender = sender, .row = row};
    if (route == NULL)
        return;
    passage->route = *route;
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), sender);
    passage->places[SKR_GATE_SENDER] = hash.low;
    hash = skr_hash_add_text(hash, route->exchange);
    passage->places[SKR_GATE_EXCHANGE] = hash.low;
    hash = skr_hash_add_text(hash, route->routing_key);
    passage->places[SKR_GATE_ROUTE] = hash.low;
}

// Where a gate of this place is, or belongs.
static struct skr_gate **
look_up(const struct skr_gates *gates, uint64_t place)
{
    size_t at = place & (gates->capacity - 1);
    while (gates->items[at] != NULL && gates->items[at]->place != place)
        at = (at + 1) & (gates->capacity - 1);
    return &gates->items[at];
}

static struct skr_gate *
find(struct skr_gates *gates, enum skr_gate_kind kind,
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

// For walking through all of them; *at starts as 0. NULL: there is no more.
static struct skr_gate *
next_gate(struct skr_gates *gates, size_t *at)
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
           now - gate->used_ms >= MINUTE_MS;
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
    gates->forget_ms = now + FIRST_PAUSE_MS;
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

// What finds no room waits further outside; senders always do.
static struct skr_gate *
find_or_make(struct skr_gates *gates, enum skr_gate_kind kind,
             const struct skr_passage *passage)
{
    struct skr_gate *gate = NULL;
    for (;; kind--) {
        gate = find(gates, kind, passage);
        if (gate == NULL)
            gate = make(gates, kind, passage);
        if (gate != NULL)
            break;
    }
    gate->used_ms = skr_clock_ms();
    return gate;
}

static void
wait_at(struct skr_gate *gate, int64_t row)
{
    if (gate->state == SKR_GATE_TRYING || (gate->has_row && gate->row <= row))
        return;
    gate->row = row;
    gate->has_row = true;
}

// The same reason once. Where very many are closed at once, people are told of
// the first, and then each time that they are twice as many.
static void
say_closed(struct skr_gates *gates, struct skr_gate *gate,
           const struct skr_error *reason)
{
    struct skr_trouble *trouble = &gate->trouble;
    struct skr_error named = *reason;
    bool says =
        gates->in_trouble <= SAID_EACH || gates->in_trouble >= gates->say_next;
    skr_error_prefix(&named, "%s waits", gate->name);
    if (strcmp(trouble->text, named.text) == 0 && (gate->is_said || !says)) {
        trouble->repeats++;
        return;
    }
    if (says)
        gates->say_next = gates->in_trouble * 2;
    gate->is_said = gate->is_said || says;
    snprintf(trouble->text, sizeof(trouble->text), "%s", named.text);
    trouble->repeats = 0;
    skr_log(gates->log, says ? SKR_LOG_WARNING : SKR_LOG_DEBUG,
            "relay.route_closed", SKR_LOG_TEXT("name", gates->name),
            SKR_LOG_TEXT("native", named.native),
            SKR_LOG_TEXT("error", named.text),
            SKR_LOG_NUMBER("closed", gates->in_trouble));
}

static void
end_trouble(struct skr_gates *gates, struct skr_gate *gate)
{
    gate->is_in_trouble = false;
    gates->in_trouble--;
    gates->next_is_outdated = true;
    skr_log(gates->log, gate->is_said ? SKR_LOG_INFO : SKR_LOG_DEBUG,
            "relay.route_open", SKR_LOG_TEXT("name", gates->name),
            SKR_LOG_TEXT("route", gate->name),
            SKR_LOG_NUMBER("failures", gate->trouble.repeats + 1),
            SKR_LOG_NUMBER("closed", gates->in_trouble));
    gate->trouble = (struct skr_trouble){.repeats = 0};
    gate->is_said = false;
}

static void
set_state(struct skr_gates *gates, struct skr_gate *gate,
          enum skr_gate_state state)
{
    gates->closed += state != SKR_GATE_OPEN;
    gates->closed -= gate->state != SKR_GATE_OPEN;
    gates->next_is_outdated = true;
    gate->state = state;
}

static void
shut(struct skr_gates *gates, struct skr_gate *gate, uint32_t pause_ms,
     const struct skr_error *reason)
{
    set_state(gates, gate, SKR_GATE_CLOSED);
    gate->pause_ms = pause_ms;
    gate->until_ms = skr_clock_ms() + pause_ms;
    gate->is_proven = false;
    gate->misses = 0;
    gates->in_trouble += !gate->is_in_trouble;
    gate->is_in_trouble = true;
    say_closed(gates, gate, reason);
}

static uint32_t
next_pause(const struct skr_gate *gate)
{
    if (gate->pause_ms == 0)
        return FIRST_PAUSE_MS;
    return gate->pause_ms < LONGEST_PAUSE_MS / 2 ? gate->pause_ms * 2
                                                 : LONGEST_PAUSE_MS;
}

static void
open_gate(struct skr_gates *gates, struct skr_gate *gate)
{
    set_state(gates, gate, SKR_GATE_OPEN);
    gate->has_row = false;
    gate->refused_in_a_row = 0;
    gates->has_opened = true;
}

// Open by proof, not by hope.
static void
prove_open(struct skr_gates *gates, struct skr_gate *gate)
{
    if (gate->state != SKR_GATE_OPEN)
        open_gate(gates, gate);
    gate->pause_ms = 0;
    gate->refused_in_a_row = 0;
    if (!gate->is_in_trouble || gate->is_proven)
        return;
    gate->is_proven = true;
    gate->until_ms = skr_clock_ms() + LASTING_MS;
    gates->next_is_outdated = true;
}

// Closed as before, until its next try.
static void
put_off(struct skr_gates *gates, struct skr_gate *gate, uint32_t pause_ms)
{
    set_state(gates, gate, SKR_GATE_CLOSED);
    gate->until_ms = skr_clock_ms() + pause_ms;
}

void
skr_gates_begin(struct skr_gates *gates)
{
    struct skr_gate *gate;
    for (size_t at = 0; (gate = next_gate(gates, &at)) != NULL;)
        if (gate->state == SKR_GATE_TRYING)
            put_off(gates, gate, 0);
}

static bool
admits(const struct skr_gate *gate, int64_t row)
{
    switch (gate->state) {
    case SKR_GATE_OPEN: return true;
    case SKR_GATE_CLOSED: return false;
    case SKR_GATE_TRYING: return gate->row == row;
    }
    return true;
}

// One that tries at one gate may find the next one closed.
static void
give_up_try(struct skr_gates *gates, const struct skr_passage *passage)
{
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = find(gates, kind, passage);
        if (gate == NULL || gate->state != SKR_GATE_TRYING ||
            gate->row != passage->row)
            continue;
        put_off(gates, gate, next_pause(gate));
    }
}

bool
skr_gates_admit(struct skr_gates *gates, const struct skr_passage *passage)
{
    // Every exchange has a gate, which knows whether others get through.
    find_or_make(gates, SKR_GATE_EXCHANGE, passage);
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = find(gates, kind, passage);
        if (gate == NULL || admits(gate, passage->row))
            continue;
        wait_at(gate, passage->row);
        give_up_try(gates, passage);
        return false;
    }
    return true;
}

void
skr_gates_reach(struct skr_gates *gates, const struct skr_passage *passage)
{
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = find(gates, kind, passage);
        // What was sent before a gate closed proves nothing about it now.
        if (gate != NULL &&
            (gate->state == SKR_GATE_OPEN ||
             (gate->state == SKR_GATE_TRYING && gate->row == passage->row)))
            prove_open(gates, gate);
    }
}

void
skr_gates_confirm(struct skr_gates *gates, const struct skr_passage *passage)
{
    struct skr_gate *exchange = find(gates, SKR_GATE_EXCHANGE, passage);
    if (exchange != NULL)
        exchange->confirmed_ms = skr_clock_ms();
    skr_gates_reach(gates, passage);
}

enum skr_gate_verdict
skr_gates_refuse(struct skr_gates *gates, const struct skr_passage *passage,
                 const struct skr_error *reason)
{
    // Room for one gate may cost another that is idle: first this one.
    struct skr_gate *route = find_or_make(gates, SKR_GATE_ROUTE, passage);
    const struct skr_gate *exchange = find(gates, SKR_GATE_EXCHANGE, passage);
    bool others_pass =
        exchange != NULL && exchange->confirmed_ms > 0 &&
        skr_clock_ms() - exchange->confirmed_ms < CONFIRMED_LATELY_MS;
    route->refused_in_a_row++;
    bool is_closed = route->state != SKR_GATE_OPEN;
    // One that was closed a moment ago is closed again by the first.
    if (!is_closed && !route->is_in_trouble &&
        route->refused_in_a_row < MOST_REFUSED_IN_A_ROW)
        return others_pass ? SKR_GATE_BLAME : SKR_GATE_EXCUSE;
    bool tries = route->state == SKR_GATE_TRYING && route->row == passage->row;
    if (!is_closed || tries)
        shut(gates, route, next_pause(route), reason);
    wait_at(route, passage->row);
    return SKR_GATE_HOLD;
}

void
skr_gates_close(struct skr_gates *gates, enum skr_gate_kind kind,
                const struct skr_passage *passage,
                const struct skr_error *reason)
{
    struct skr_gate *gate = find_or_make(gates, kind, passage);
    bool tries = gate->state == SKR_GATE_TRYING && gate->row == passage->row;
    if (gate->state == SKR_GATE_OPEN || tries)
        shut(gates, gate, next_pause(gate), reason);
    wait_at(gate, passage->row);
}

bool
skr_gates_may_fail(struct skr_gates *gates, const struct skr_passage *passage,
                   const struct skr_error *reason)
{
    if (gates->failure_limit == 0)
        return true;
    struct skr_gate *gate = find_or_make(gates, SKR_GATE_ROUTE, passage);
    int64_t now = skr_clock_ms();
    if (now - gate->failing_since_ms >= MINUTE_MS) {
        gate->failing_since_ms = now;
        gate->failures = 0;
    }
    if (gate->failures < gates->failure_limit) {
        gate->failures++;
        return true;
    }
    if (gate->state == SKR_GATE_OPEN) {
        struct skr_error limited = *reason;
        skr_error_prefix(&limited,
                         "%u messages failed within a minute (failure_limit)",
                         gates->failure_limit);
        shut(gates, gate, (uint32_t)(gate->failing_since_ms + MINUTE_MS - now),
             &limited);
    }
    return false;
}

bool
skr_gates_next_try(struct skr_gates *gates, int64_t *row)
{
    int64_t now = skr_clock_ms();
    struct skr_gate *gate;
    for (size_t at = 0; (gate = next_gate(gates, &at)) != NULL;) {
        if (gate->until_ms > now)
            continue;
        if (gate->state == SKR_GATE_OPEN && gate->is_proven &&
            gate->is_in_trouble)
            end_trouble(gates, gate);
        if (gate->state != SKR_GATE_CLOSED)
            continue;
        if (!gate->has_row) {
            open_gate(gates, gate);
            continue;
        }
        set_state(gates, gate, SKR_GATE_TRYING);
        *row = gate->row;
        return true;
    }
    return false;
}

void
skr_gates_forget(struct skr_gates *gates, int64_t row)
{
    struct skr_gate *gate;
    for (size_t at = 0; (gate = next_gate(gates, &at)) != NULL;)
        if (gate->state == SKR_GATE_TRYING && gate->row == row)
            open_gate(gates, gate);
}

void
skr_gates_miss(struct skr_gates *gates, int64_t row)
{
    struct skr_gate *gate;
    for (size_t at = 0; (gate = next_gate(gates, &at)) != NULL;) {
        if (gate->state != SKR_GATE_TRYING || gate->row != row)
            continue;
        if (++gate->misses < MOST_MISSES)
            put_off(gates, gate, next_pause(gate));
        else
            open_gate(gates, gate);
    }
}

bool
skr_gates_are_closed(const struct skr_gates *gates)
{
    return gates->closed > 0;
}

static bool
waits(const struct skr_gate *gate)
{
    switch (gate->state) {
    case SKR_GATE_OPEN: return gate->is_in_trouble && gate->is_proven;
    case SKR_GATE_CLOSED: return true;
    case SKR_GATE_TRYING: return false;
    }
    return false;
}

int64_t
skr_gates_next_ms(struct skr_gates *gates)
{
    struct skr_gate *gate;
    if (!gates->next_is_outdated)
        return gates->next_ms;
    gates->next_ms = 0;
    gates->next_is_outdated = false;
    for (size_t at = 0; (gate = next_gate(gates, &at)) != NULL;)
        if (waits(gate) &&
            (gates->next_ms == 0 || gate->until_ms < gates->next_ms))
            gates->next_ms = gate->until_ms;
    return gates->next_ms;
}

bool
skr_gates_have_opened(struct skr_gates *gates)
{
    bool have_opened = gates->has_opened;
    gates->has_opened = false;
    return have_opened;
}
