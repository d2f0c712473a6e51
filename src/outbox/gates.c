// SPDX-License-Identifier: MIT
#include "outbox/gates.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

enum {
    FIRST_PAUSE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    MOST_REFUSED_IN_A_ROW = 10,
    // How long ago a confirmation still shows that others get through.
    CONFIRMED_LATELY_MS = 10000,
    MINUTE_MS = 60000,
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

static struct skr_gate *
find(struct skr_gates *gates, uint64_t place)
{
    for (size_t i = 0; i < gates->count; i++)
        if (gates->items[i].place == place)
            return &gates->items[i];
    return NULL;
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

// Any gate can be forgotten that stands open; a message that is refused makes
// it anew. When all are closed the oldest goes, and is closed again by the next
// message that finds out why.
static struct skr_gate *
take_room(struct skr_gates *gates)
{
    if (gates->count < SKR_MAX_GATES)
        return &gates->items[gates->count++];
    struct skr_gate *least = &gates->items[0];
    for (size_t i = 1; i < gates->count; i++) {
        struct skr_gate *gate = &gates->items[i];
        bool is_open = gate->state == SKR_GATE_OPEN;
        bool least_is_open = least->state == SKR_GATE_OPEN;
        if (is_open != least_is_open ? is_open : gate->used_ms < least->used_ms)
            least = gate;
    }
    gates->has_opened = gates->has_opened || least->state != SKR_GATE_OPEN;
    return least;
}

static struct skr_gate *
find_or_make(struct skr_gates *gates, enum skr_gate_kind kind,
             const struct skr_passage *passage)
{
    uint64_t place = passage->places[kind];
    struct skr_gate *gate = find(gates, place);
    if (gate == NULL) {
        gate = take_room(gates);
        *gate = (struct skr_gate){.place = place};
        write_name(gate, kind, passage);
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

static void
say_closed(struct skr_gates *gates, struct skr_gate *gate,
           const struct skr_error *reason)
{
    struct skr_error named = *reason;
    skr_error_prefix(&named, "%s waits", gate->name);
    skr_trouble_report(&gate->trouble, gates->log, "relay.route_closed",
                       gates->name, &named);
}

static void
shut(struct skr_gates *gates, struct skr_gate *gate, uint32_t pause_ms,
     const struct skr_error *reason)
{
    gate->state = SKR_GATE_CLOSED;
    gate->pause_ms = pause_ms;
    gate->until_ms = skr_clock_ms() + pause_ms;
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
    gate->state = SKR_GATE_OPEN;
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
    skr_trouble_end(&gate->trouble, gates->log, "relay.route_open",
                    gates->name);
}

void
skr_gates_begin(struct skr_gates *gates)
{
    for (size_t i = 0; i < gates->count; i++)
        if (gates->items[i].state == SKR_GATE_TRYING)
            gates->items[i].state = SKR_GATE_CLOSED;
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
        struct skr_gate *gate = find(gates, passage->places[kind]);
        if (gate == NULL || gate->state != SKR_GATE_TRYING ||
            gate->row != passage->row)
            continue;
        gate->state = SKR_GATE_CLOSED;
        gate->until_ms = skr_clock_ms() + next_pause(gate);
    }
}

bool
skr_gates_admit(struct skr_gates *gates, const struct skr_passage *passage)
{
    // Every exchange has a gate, which knows whether others get through.
    find_or_make(gates, SKR_GATE_EXCHANGE, passage);
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = find(gates, passage->places[kind]);
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
        struct skr_gate *gate = find(gates, passage->places[kind]);
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
    struct skr_gate *exchange = find(gates, passage->places[SKR_GATE_EXCHANGE]);
    if (exchange != NULL)
        exchange->confirmed_ms = skr_clock_ms();
    skr_gates_reach(gates, passage);
}

enum skr_gate_verdict
skr_gates_refuse(struct skr_gates *gates, const struct skr_passage *passage,
                 const struct skr_error *reason)
{
    // Room for one gate may cost another: first this one.
    struct skr_gate *route = find_or_make(gates, SKR_GATE_ROUTE, passage);
    const struct skr_gate *exchange =
        find(gates, passage->places[SKR_GATE_EXCHANGE]);
    bool others_pass =
        exchange != NULL && exchange->confirmed_ms > 0 &&
        skr_clock_ms() - exchange->confirmed_ms < CONFIRMED_LATELY_MS;
    route->refused_in_a_row++;
    bool is_closed = route->state != SKR_GATE_OPEN;
    if (!is_closed && route->refused_in_a_row < MOST_REFUSED_IN_A_ROW)
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
    for (size_t i = 0; i < gates->count; i++) {
        struct skr_gate *gate = &gates->items[i];
        if (gate->state != SKR_GATE_CLOSED || gate->until_ms > now)
            continue;
        if (!gate->has_row) {
            open_gate(gates, gate);
            continue;
        }
        gate->state = SKR_GATE_TRYING;
        *row = gate->row;
        return true;
    }
    return false;
}

void
skr_gates_forget(struct skr_gates *gates, int64_t row)
{
    for (size_t i = 0; i < gates->count; i++)
        if (gates->items[i].state == SKR_GATE_TRYING &&
            gates->items[i].row == row)
            open_gate(gates, &gates->items[i]);
}

int64_t
skr_gates_next_ms(const struct skr_gates *gates)
{
    int64_t next_ms = 0;
    for (size_t i = 0; i < gates->count; i++) {
        const struct skr_gate *gate = &gates->items[i];
        if (gate->state == SKR_GATE_CLOSED &&
            (next_ms == 0 || gate->until_ms < next_ms))
            next_ms = gate->until_ms;
    }
    return next_ms;
}

bool
skr_gates_have_opened(struct skr_gates *gates)
{
    bool have_opened = gates->has_opened;
    gates->has_opened = false;
    return have_opened;
}
