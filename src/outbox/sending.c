// SPDX-License-Identifier: MIT
// The way of single messages to the broker and back, and who is to blame when
// one does not arrive.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "outbox/pump.h"
#include "outbox/tally.h"

#include <string.h>

enum { OUTCOMES_AT_ONCE = 64 };

// Whether the row stays where a look for what committed late would find it.
static bool
stays(const struct skr_batch_item *item)
{
    return item->state == SKR_READ || item->state == SKR_CHAINED ||
           (item->partition_key != NULL && skr_has_outcome(item) &&
            item->state != SKR_DONE);
}

// A connection that opens proves little: a full disk lets rows be read, too.
// Trouble is over when a message got through, or none is left.
void
skr_pump_end_trouble(struct skr_pump *pump)
{
    if (pump->works)
        return;
    pump->works = true;
    skr_trouble_end(&pump->trouble, &pump->options->log, "relay.recovered",
                    pump->options->name);
}

// The gate that it waited at has opened while it was in hand, where the sweep
// that followed has not seen it.
static bool
was_overtaken(struct skr_pump *pump, const struct skr_slot *slot, size_t index)
{
    const struct skr_batch_item *item = &slot->batch.items[index];
    return item->state == SKR_READ && !item->lost && !pump->is_draining &&
           !slot->links[index].is_left &&
           skr_gates_are_open(&pump->gates, &slot->passages[index]);
}

void
skr_pump_close_slot(struct skr_pump *pump, struct skr_slot *slot)
{
    size_t outcomes = 0;
    for (size_t i = 0; i < slot->batch.count; i++) {
        struct skr_batch_item *item = &slot->batch.items[i];
        outcomes += skr_has_outcome(item);
        if (stays(item))
            skr_waiting_add(&pump->waiting, item->row);
        pump->sweeps_anew |= was_overtaken(pump, slot, i);
        if (item->state == SKR_CHAINED)
            item->state = SKR_READ;
    }
    slot->batch.pending = 0;
    pump->open_rows -= slot->batch.count;
    pump->finished += outcomes;
    // Rows that were claimed are given back by the settler.
    if (outcomes > 0 || slot->batch.claim == SKR_CLAIM_LEASED)
        skr_settler_hand_over(pump->settler, slot);
    else
        skr_settler_put_back(pump->settler, slot);
}

void
skr_pump_release(struct skr_pump *pump, struct skr_slot *slot)
{
    if (--slot->batch.pending == 0)
        skr_pump_close_slot(pump, slot);
}

// For good, unless too many did so lately.
static void
give_up(struct skr_pump *pump, struct skr_batch_item *item,
        const struct skr_passage *passage, const struct skr_error *reason)
{
    bool may_fail = skr_gates_may_fail(&pump->gates, passage, reason);
    bool has_order =
        item->partition_key != NULL && item->partition_key[0] != '\0';
    enum skr_state end = has_order && pump->options->blocks_partitions
                             ? SKR_BLOCKED
                             : SKR_HOPELESS;
    item->state = may_fail ? end : SKR_READ;
    item->reason = *reason;
}

static void
retry_later(struct skr_pump *pump, struct skr_batch_item *item,
            const struct skr_passage *passage, const struct skr_error *reason,
            bool is_excused)
{
    const struct skr_retry_policy *retry = &pump->options->retry;
    if (!is_excused && item->envelope.retry_count >= retry->max_retries) {
        give_up(pump, item, passage, reason);
        return;
    }
    item->state = SKR_RETRY_LATER;
    item->reason = *reason;
    item->is_excused = is_excused;
    // Any number that differs from row to row and time to time will do.
    uint32_t jitter = (uint32_t)(item->row ^ skr_clock_wall_us()) * 2654435761u;
    item->delay_ms =
        skr_retry_delay_ms(retry, item->envelope.retry_count + 1, jitter);
}

static void
judge_refusal(struct skr_pump *pump, struct skr_batch_item *item,
              const struct skr_passage *passage, const struct skr_error *reason)
{
    switch (skr_gates_refuse(&pump->gates, passage, reason)) {
    case SKR_GATE_BLAME: retry_later(pump, item, passage, reason, false); break;
    case SKR_GATE_EXCUSE: retry_later(pump, item, passage, reason, true); break;
    case SKR_GATE_HOLD: item->state = SKR_READ; break;
    }
}

static void
judge_unroutable(struct skr_pump *pump, struct skr_batch_item *item,
                 const struct skr_passage *passage,
                 const struct skr_error *reason)
{
    enum skr_unroutable what = passage->route.unroutable;
    if (pump->options->tally != NULL)
        atomic_fetch_add(&pump->options->tally->returned, 1);
    if (what == SKR_UNROUTABLE_UNSAID)
        what = pump->options->unroutable;
    switch (what) {
    case SKR_UNROUTABLE_UNSAID:
    case SKR_UNROUTABLE_FAIL:
        skr_gates_reach(&pump->gates, passage);
        give_up(pump, item, passage, reason);
        break;
    case SKR_UNROUTABLE_DROP:
        skr_gates_reach(&pump->gates, passage);
        item->state = SKR_DONE;
        skr_log(&pump->options->log, SKR_LOG_DEBUG, "relay.dropped",
                SKR_LOG_TEXT("name", pump->options->name),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", reason->text));
        break;
    case SKR_UNROUTABLE_WAIT:
        item->state = SKR_READ;
        skr_gates_close(&pump->gates, SKR_GATE_ROUTE, passage, reason);
        break;
    }
}

// What became of the first sender's messages is nobody's guess to make.
static void
judge_uncertain(struct skr_pump *pump, struct skr_batch_item *item,
                const struct skr_passage *passage,
                const struct skr_error *reason)
{
    struct skr_error lost = *reason;
    item->state = SKR_READ;
    if (lost.code == SKR_OK)
        skr_fail(&lost, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "the broker did not say what became of a message");
    if (passage->route.sender > 0)
        skr_gates_close(&pump->gates, SKR_GATE_SENDER, passage, &lost);
    else if (pump->lost.code == SKR_OK)
        pump->lost = lost;
}

// Rows of kafka_outbox have no id but their number.
static void
log_published(const struct skr_pump *pump, const struct skr_batch_item *item)
{
    static const struct skr_id none;
    const struct skr_message *message = &item->envelope.message;
    char id[SKR_ID_TEXT_SIZE] = "";
    if (memcmp(&message->id, &none, sizeof(none)) != 0)
        skr_id_format(message->id, id);
    skr_log(&pump->options->log, SKR_LOG_DEBUG, "relay.published",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_TEXT("message", message->name == NULL ? "" : message->name),
            SKR_LOG_TEXT("id", id), SKR_LOG_NUMBER("row", item->row));
}

static void
judge(struct skr_pump *pump, const struct skr_outcome *outcome,
      struct skr_batch_item *item, const struct skr_passage *passage)
{
    switch (outcome->fate) {
    case SKR_CONFIRMED:
        item->state = SKR_DONE;
        skr_gates_confirm(&pump->gates, passage);
        if (pump->options->tally != NULL)
            skr_tally_confirm(pump->options->tally, item);
        if (pump->options->log.each_message)
            log_published(pump, item);
        skr_pump_end_trouble(pump);
        break;
    case SKR_REFUSED_ONCE:
        judge_refusal(pump, item, passage, &outcome->reason);
        break;
    case SKR_REFUSED_FOR_GOOD:
        skr_gates_reach(&pump->gates, passage);
        give_up(pump, item, passage, &outcome->reason);
        break;
    case SKR_UNROUTABLE:
        judge_unroutable(pump, item, passage, &outcome->reason);
        break;
    case SKR_ROUTE_CLOSED:
        item->state = SKR_READ;
        skr_gates_close(&pump->gates, SKR_GATE_EXCHANGE, passage,
                        &outcome->reason);
        break;
    case SKR_UNCERTAIN:
        judge_uncertain(pump, item, passage, &outcome->reason);
        break;
    case SKR_HELD_BACK: item->state = SKR_READ; break;
    }
    skr_gates_end_try(&pump->gates, passage);
}

static enum skr_code
find_way(struct skr_pump *pump, struct skr_slot *slot, size_t index,
         struct skr_error *error)
{
    const struct skr_relay_options *options = pump->options;
    struct skr_batch_item *item = &slot->batch.items[index];
    struct skr_route route = {.exchange = "", .routing_key = ""};
    enum skr_code code = SKR_OK;
    if (item->route.topic != NULL)
        route = item->route;
    else if (options->routes != NULL)
        code = skr_route_find(options->routes, &slot->batch.arena,
                              &item->envelope, &route, error);
    skr_passage_init(&slot->passages[index], code == SKR_OK ? &route : NULL,
                     options->senders[route.sender].name, item->row);
    return code;
}

// Refused before it was sent: this message's own fault, unless it is memory
// that ran out, or the broker.
static enum skr_code
judge_unsent(struct skr_pump *pump, struct skr_batch_item *item,
             const struct skr_passage *passage, bool is_away,
             struct skr_error *error)
{
    if (is_away) {
        skr_gates_close(&pump->gates, SKR_GATE_SENDER, passage, error);
        skr_gates_end_try(&pump->gates, passage);
        return SKR_OK;
    }
    if (error->remedy != SKR_GIVE_UP)
        return error->code;
    skr_gates_forget(&pump->gates, item->row);
    give_up(pump, item, passage, error);
    return SKR_OK;
}

static enum skr_code
submit_item(struct skr_pump *pump, struct skr_slot *slot, size_t index,
            struct skr_error *error)
{
    struct skr_batch_item *item = &slot->batch.items[index];
    const struct skr_passage *passage = &slot->passages[index];
    bool is_away = false;
    // Another has it, as a renewal found.
    if (item->lost) {
        skr_gates_miss(&pump->gates, item->row);
        return SKR_OK;
    }
    enum skr_code code = skr_pump_check_lock(pump, false, error);
    if (code != SKR_OK)
        return code;
    // What was held back by this would stay so: all is read anew instead.
    if (slot->batch.claim == SKR_CLAIM_SLOTS && !skr_pump_has_share(pump))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the leases on shards could not be renewed in time: "
                        "nothing more is sent on them");
    code = find_way(pump, slot, index, error);
    if (code == SKR_OK && !skr_pump_may_send(pump, slot)) {
        skr_gates_end_try(&pump->gates, passage);
        return SKR_OK;
    }
    if (code == SKR_OK && !skr_gates_admit(&pump->gates, passage))
        return SKR_OK;
    if (code == SKR_OK)
        code = skr_senders_submit(&pump->senders, passage->route.sender,
                                  &item->envelope.message, &passage->route,
                                  skr_pump_ticket(pump, slot, index), &is_away,
                                  error);
    if (code != SKR_OK)
        return judge_unsent(pump, item, passage, is_away, error);
    item->state = SKR_SENT;
    return SKR_OK;
}

// A row that cannot be understood goes nowhere, and to the failed table only
// while such rows are few. Where it says at least where it would go, the others
// that go there wait with it.
static void
judge_unreadable(struct skr_pump *pump, struct skr_slot *slot, size_t index)
{
    struct skr_batch_item *item = &slot->batch.items[index];
    const struct skr_route *route =
        item->route.topic == NULL ? NULL : &item->route;
    struct skr_error reason = item->reason;
    skr_passage_init(&slot->passages[index], route,
                     route == NULL ? ""
                                   : pump->options->senders[route->sender].name,
                     item->row);
    skr_gates_forget(&pump->gates, item->row);
    give_up(pump, item, &slot->passages[index], &reason);
}

enum skr_code
skr_pump_send(struct skr_pump *pump, struct skr_slot *slot, size_t index,
              struct skr_error *error)
{
    struct skr_batch_item *item = &slot->batch.items[index];
    if (item->reason.code != SKR_OK) {
        judge_unreadable(pump, slot, index);
        return SKR_OK;
    }
    item->state = SKR_READ;
    return submit_item(pump, slot, index, error);
}

static bool
is_as_read(const struct skr_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state != SKR_READ)
            return false;
    return true;
}

enum skr_code
skr_pump_submit(struct skr_pump *pump, struct skr_slot *slot,
                struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    // It must not close while there is more to send from it.
    slot->batch.pending++;
    for (size_t i = 0; i < slot->batch.count && code == SKR_OK; i++) {
        const struct skr_batch_item *item = &slot->batch.items[i];
        if ((item->state != SKR_READ && item->state != SKR_HOPELESS) ||
            slot->links[i].is_left)
            continue;
        code = skr_pump_send(pump, slot, i, error);
        if (code == SKR_OK && item->state == SKR_SENT)
            slot->batch.pending++;
        else if (code == SKR_OK)
            code = skr_pump_follow(pump, slot, i, error);
    }
    skr_failpoint("relay.submitted");
    pump->in_vain = is_as_read(&slot->batch);
    skr_pump_release(pump, slot);
    return code;
}

// Whether whoever reads on would pass this row, or not come back to it soon. In
// an ordered queue its partition waits with it.
static bool
is_left_behind(const struct skr_pump *pump, const struct skr_batch_item *item,
               enum skr_fate fate)
{
    if (skr_pump_is_ordered(pump))
        return false;
    return fate == SKR_HELD_BACK || (item->state == SKR_RETRY_LATER &&
                                     pump->options->table->ops->keeps_keys);
}

static enum skr_code
apply(struct skr_pump *pump, const struct skr_outcome *outcome,
      struct skr_error *error)
{
    size_t index;
    struct skr_slot *slot = skr_pump_find(pump, outcome->ticket, &index);
    struct skr_batch_item *item = &slot->batch.items[index];
    judge(pump, outcome, item, &slot->passages[index]);
    if (is_left_behind(pump, item, outcome->fate))
        pump->reads_anew = true;
    enum skr_code code = skr_pump_follow(pump, slot, index, error);
    skr_pump_release(pump, slot);
    return code;
}

// The slot's messages that were sent to a sender which is closed.
static enum skr_code
lose_messages(struct skr_pump *pump, struct skr_slot *slot, size_t sender,
              const struct skr_error *reason, struct skr_error *error)
{
    struct skr_outcome outcome = {.fate = SKR_UNCERTAIN, .reason = *reason};
    enum skr_code code = SKR_OK;
    // It must not close before all of it has been looked at.
    slot->batch.pending++;
    for (size_t i = 0; i < slot->batch.count && code == SKR_OK; i++) {
        if (slot->batch.items[i].state != SKR_SENT ||
            slot->passages[i].route.sender != sender)
            continue;
        outcome.ticket = skr_pump_ticket(pump, slot, i);
        code = apply(pump, &outcome, error);
    }
    skr_pump_release(pump, slot);
    return code;
}

// One sender's silence is not to keep the window from the others.
static enum skr_code
give_up_silent(struct skr_pump *pump, struct skr_error *error)
{
    struct skr_error reason;
    size_t sender = skr_senders_close_silent(&pump->senders, &reason);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; sender > 0 && code == SKR_OK && i < SKR_MAX_SLOTS; i++) {
        struct skr_slot *slot = &pump->settler->slots[i];
        // Of what waits for room nothing was sent.
        if (slot != pump->ahead &&
            skr_settler_state(pump->settler, slot) == SKR_SLOT_OPEN)
            code = lose_messages(pump, slot, sender, &reason, error);
    }
    return code;
}

enum skr_code
skr_pump_collect(struct skr_pump *pump, uint32_t timeout_ms,
                 struct skr_error *error)
{
    struct skr_outcome outcomes[OUTCOMES_AT_ONCE];
    size_t count;
    enum skr_code code = give_up_silent(pump, error);
    if (code != SKR_OK)
        return code;
    do {
        code = skr_senders_outcomes(&pump->senders, outcomes,
                                    SKR_COUNT_OF(outcomes), &count, timeout_ms,
                                    error);
        if (count > 0)
            skr_failpoint("relay.confirmed");
        // Every outcome counts, whatever became of what follows another.
        for (size_t i = 0; i < count; i++) {
            struct skr_error failure;
            enum skr_code applied = apply(pump, &outcomes[i], &failure);
            if (applied == SKR_OK || code != SKR_OK)
                continue;
            code = applied;
            *error = failure;
        }
        timeout_ms = 0;
    } while (code == SKR_OK && count == SKR_COUNT_OF(outcomes));
    if (pump->lost.code == SKR_OK)
        return code;
    *error = pump->lost;
    error->remedy = SKR_RECONNECT;
    return error->code;
}
