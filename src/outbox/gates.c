// SPDX-License-Identifier: MIT
#include "outbox/gate_set.h"

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
    // How long a gate stays open that will not close again the next moment.
    LASTING_MS = 2000,
    MOST_MISSES = 3,
    SAID_EACH = 20,  // beyond so many in trouble not every one is told of
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

static bool
is_tried_by(const struct skr_gate *gate, int64_t row)
{
    return gate->state == SKR_GATE_TRYING && gate->row == row;
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
    int64_t read_by_ms = skr_clock_ms() + FIRST_PAUSE_MS;
    struct skr_gate *gate;
    for (size_t at = 0; (gate = skr_gates_next(gates, &at)) != NULL;) {
        if (gate->state == SKR_GATE_OPEN)
            continue;
        set_state(gates, gate, SKR_GATE_CLOSED);
        gate->has_row = false;
        if (gate->until_ms < read_by_ms)
            gate->until_ms = read_by_ms;
    }
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

void
skr_gates_end_try(struct skr_gates *gates, const struct skr_passage *passage)
{
    if (gates->closed == 0)
        return;
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        if (gate != NULL && is_tried_by(gate, passage->row))
            put_off(gates, gate, next_pause(gate));
    }
}

// Where one message is the first at several gates it tries at all of them:
// at one after the other it would find another closed each time.
static void
try_all(struct skr_gates *gates, const struct skr_passage *passage)
{
    bool tries = false;
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        const struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        tries = tries || (gate != NULL && is_tried_by(gate, passage->row));
    }
    for (size_t kind = 0; tries && kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        if (gate != NULL && gate->state == SKR_GATE_CLOSED && gate->has_row &&
            gate->row == passage->row)
            set_state(gates, gate, SKR_GATE_TRYING);
    }
}

bool
skr_gates_admit(struct skr_gates *gates, const struct skr_passage *passage)
{
    // Every exchange has a gate, which knows whether others get through.
    skr_gates_find_or_make(gates, SKR_GATE_EXCHANGE, passage);
    if (gates->closed > 1)
        try_all(gates, passage);
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        if (gate == NULL || admits(gate, passage->row))
            continue;
        wait_at(gate, passage->row);
        // One that tries at one gate may find the next one closed.
        skr_gates_end_try(gates, passage);
        return false;
    }
    return true;
}

// The message came through all of its gates, or through those before that one.
static void
reach(struct skr_gates *gates, const struct skr_passage *passage,
      const struct skr_gate *up_to)
{
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        if (gate != NULL && gate == up_to)
            return;
        // What was sent before a gate closed proves nothing about it now.
        if (gate != NULL &&
            (gate->state == SKR_GATE_OPEN || is_tried_by(gate, passage->row)))
            prove_open(gates, gate);
    }
}

void
skr_gates_reach(struct skr_gates *gates, const struct skr_passage *passage)
{
    reach(gates, passage, NULL);
}

void
skr_gates_confirm(struct skr_gates *gates, const struct skr_passage *passage)
{
    struct skr_gate *exchange =
        skr_gates_find(gates, SKR_GATE_EXCHANGE, passage);
    if (exchange != NULL)
        exchange->confirmed_ms = skr_clock_ms();
    skr_gates_reach(gates, passage);
}

enum skr_gate_verdict
skr_gates_refuse(struct skr_gates *gates, const struct skr_passage *passage,
                 const struct skr_error *reason)
{
    // Room for one gate may cost another that is idle: first this one.
    struct skr_gate *route =
        skr_gates_find_or_make(gates, SKR_GATE_ROUTE, passage);
    const struct skr_gate *exchange =
        skr_gates_find(gates, SKR_GATE_EXCHANGE, passage);
    bool others_pass =
        exchange != NULL && exchange->confirmed_ms > 0 &&
        skr_clock_ms() - exchange->confirmed_ms < CONFIRMED_LATELY_MS;
    reach(gates, passage, route);
    route->refused_in_a_row++;
    bool is_closed = route->state != SKR_GATE_OPEN;
    // One that was closed a moment ago is closed again by the first.
    if (!is_closed && !route->is_in_trouble &&
        route->refused_in_a_row < MOST_REFUSED_IN_A_ROW)
        return others_pass ? SKR_GATE_BLAME : SKR_GATE_EXCUSE;
    if (!is_closed || is_tried_by(route, passage->row))
        shut(gates, route, next_pause(route), reason);
    wait_at(route, passage->row);
    return SKR_GATE_HOLD;
}

void
skr_gates_close(struct skr_gates *gates, enum skr_gate_kind kind,
                const struct skr_passage *passage,
                const struct skr_error *reason)
{
    struct skr_gate *gate = skr_gates_find_or_make(gates, kind, passage);
    reach(gates, passage, gate);
    if (gate->state == SKR_GATE_OPEN || is_tried_by(gate, passage->row))
        shut(gates, gate, next_pause(gate), reason);
    wait_at(gate, passage->row);
}

bool
skr_gates_may_fail(struct skr_gates *gates, const struct skr_passage *passage,
                   const struct skr_error *reason)
{
    if (gates->failure_limit == 0)
        return true;
    struct skr_gate *gate =
        skr_gates_find_or_make(gates, SKR_GATE_ROUTE, passage);
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
    wait_at(gate, passage->row);
    return false;
}

bool
skr_gates_next_try(struct skr_gates *gates, int64_t *row)
{
    int64_t now = skr_clock_ms();
    struct skr_gate *gate;
    for (size_t at = 0; (gate = skr_gates_next(gates, &at)) != NULL;) {
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
    for (size_t at = 0; (gate = skr_gates_next(gates, &at)) != NULL;)
        if (is_tried_by(gate, row))
            open_gate(gates, gate);
}

void
skr_gates_miss(struct skr_gates *gates, int64_t row)
{
    struct skr_gate *gate;
    for (size_t at = 0; (gate = skr_gates_next(gates, &at)) != NULL;) {
        if (!is_tried_by(gate, row))
            continue;
        if (++gate->misses < MOST_MISSES)
            put_off(gates, gate, next_pause(gate));
        else
            open_gate(gates, gate);
    }
}

bool
skr_gates_are_open(struct skr_gates *gates, const struct skr_passage *passage)
{
    for (size_t kind = 0; kind < SKR_GATE_KINDS; kind++) {
        const struct skr_gate *gate = skr_gates_find(gates, kind, passage);
        if (gate != NULL && gate->state != SKR_GATE_OPEN)
            return false;
    }
    return true;
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
    for (size_t at = 0; (gate = skr_gates_next(gates, &at)) != NULL;)
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
