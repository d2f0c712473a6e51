// SPDX-License-Identifier: MIT
// Sending rows, deciding what becomes of them, and keeping the order of
// partitions: the next row of a partition goes when the one before is done, and
// all that follow stay in their rows when it is not.

#include "relay/dispatcher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "relay/retry.h"
#include "relay/tally.h"

#include <stdlib.h>
#include <string.h>

enum {
    RESULTS_AT_ONCE = 64,
    AT_ONCE_MS = 1,
    SETTLING_PAUSE_MS = 20,  // before rows that are being settled are read
    SLOW_CHAIN_MS = 1000,
};

void
skr_dispatcher_begin(struct skr_dispatcher *dispatcher)
{
    dispatcher->lost = (struct skr_error){.code = SKR_OK};
    dispatcher->is_draining = false;
    skr_sequencer_clear(&dispatcher->sequencer);
    skr_breakers_begin(&dispatcher->breakers, skr_clock_ms());
}

void
skr_dispatcher_log_breakers(struct skr_dispatcher *dispatcher)
{
    const struct skr_relay_settings *options = dispatcher->options;
    struct skr_breaker_notice notice;
    while (skr_breakers_take_notice(&dispatcher->breakers, &notice)) {
        enum skr_log_level loud =
            notice.is_open ? SKR_LOG_WARNING : SKR_LOG_INFO;
        enum skr_log_level level = notice.is_loud ? loud : SKR_LOG_DEBUG;
        if (notice.is_open)
            skr_log(&options->log, level, "relay.route_closed",
                    SKR_LOG_TEXT("name", options->name),
                    SKR_LOG_TEXT("native", notice.error.native),
                    SKR_LOG_TEXT("error", notice.error.text),
                    SKR_LOG_NUMBER("closed", notice.open_count));
        else
            skr_log(&options->log, level, "relay.route_open",
                    SKR_LOG_TEXT("name", options->name),
                    SKR_LOG_TEXT("route", notice.name),
                    SKR_LOG_NUMBER("failures", notice.failures),
                    SKR_LOG_NUMBER("closed", notice.open_count));
    }
}

static void
leave(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
      size_t index)
{
    batch->job.batch.items[index].state = SKR_READ;
    skr_flight_move(&dispatcher->flight, batch, index, SKR_ROW_LEFT);
}

// The item's state is what was decided; SKR_READ: nothing was.
static void
finish(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
       size_t index)
{
    if (skr_has_outcome(&batch->job.batch.items[index]))
        skr_flight_move(&dispatcher->flight, batch, index, SKR_ROW_DECIDED);
    else
        leave(dispatcher, batch, index);
}

// The partition of a row goes on from its head, not before that time.
static enum skr_code
list_head(struct skr_dispatcher *dispatcher, const struct skr_batch_item *item,
          int64_t not_before_ms, struct skr_error *error)
{
    return skr_sequencer_list_head(&dispatcher->sequencer, item->partition_key,
                                   not_before_ms, error);
}

// All rows that follow this one stay in theirs.
static void
let_go(struct skr_dispatcher *dispatcher, struct skr_flight_row *row)
{
    skr_tag tag = row->next;
    row->next = SKR_NO_TAG;
    while (tag != SKR_NO_TAG) {
        size_t index;
        struct skr_flight_batch *batch =
            skr_flight_find(&dispatcher->flight, tag, &index);
        tag = batch->rows[index].next;
        batch->rows[index].next = SKR_NO_TAG;
        batch->rows[index].is_held_back = true;
        leave(dispatcher, batch, index);
    }
}

static void
keep_first_alone(struct skr_dispatcher *dispatcher, uint64_t partition)
{
    skr_tag first, last;
    size_t index;
    if (!skr_sequencer_chain(&dispatcher->sequencer, partition, &first, &last))
        return;
    struct skr_flight_batch *batch =
        skr_flight_find(&dispatcher->flight, first, &index);
    skr_sequencer_trim(&dispatcher->sequencer, partition);
    let_go(dispatcher, &batch->rows[index]);
}

// A row behind the cursor. If it belongs before something that has not been
// sent, that must wait for it.
static enum skr_code
note_behind(struct skr_dispatcher *dispatcher,
            const struct skr_batch_item *behind, struct skr_error *error)
{
    uint64_t partition = skr_sequencer_partition(behind->partition_key);
    skr_tag first, last;
    size_t index;
    enum skr_code code =
        skr_sequencer_block(&dispatcher->sequencer, partition, error);
    if (code != SKR_OK)
        return code;
    if (!skr_sequencer_chain(&dispatcher->sequencer, partition, &first, &last))
        return list_head(dispatcher, behind, AT_ONCE_MS, error);
    const struct skr_flight_batch *batch =
        skr_flight_find(&dispatcher->flight, last, &index);
    if (behind->row < batch->job.batch.items[index].row)
        keep_first_alone(dispatcher, partition);
    return SKR_OK;
}

// Gives a row with a key its turn.
static enum skr_code
place_row(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
          size_t index, bool from_head, bool *stays, struct skr_error *error)
{
    const struct skr_batch_item *item = &batch->job.batch.items[index];
    uint64_t partition = skr_sequencer_partition(item->partition_key);
    skr_tag tag = skr_flight_tag(batch, index);
    struct skr_place place = {.turn = SKR_TURN_LEAVE};
    enum skr_code code =
        item->state == SKR_NOT_READY
            ? skr_sequencer_block(&dispatcher->sequencer, partition, error)
            : skr_sequencer_add(&dispatcher->sequencer, partition, tag,
                                from_head, &place, error);
    *stays = place.turn == SKR_TURN_LEAVE;
    if (code != SKR_OK || *stays)
        return code;
    batch->rows[index].partition = partition;
    if (place.turn == SKR_TURN_AFTER) {
        size_t at;
        struct skr_flight_batch *holder =
            skr_flight_find(&dispatcher->flight, place.before, &at);
        holder->rows[at].next = tag;
        batch->rows[index].waits_turn = true;
    }
    return SKR_OK;
}

// The key that more than half of a number of rows have is left over in the end.
struct vote {
    const char *key;
    size_t votes;
};

static void
cast_vote(struct vote *vote, const char *key)
{
    if (vote->votes == 0)
        vote->key = key;
    if (strcmp(vote->key, key) == 0)
        vote->votes++;
    else
        vote->votes--;
}

static enum skr_code
place_rows(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
           bool from_head, struct skr_error *error)
{
    struct skr_batch *read = &batch->job.batch;
    struct vote left = {.votes = 0};
    size_t kept = 0, i = 0;
    enum skr_code code = SKR_OK;
    for (; i < read->count && code == SKR_OK; i++) {
        bool stays = read->items[i].state == SKR_BEHIND ||
                     read->items[i].state == SKR_NOT_READY;
        bool is_behind = read->items[i].state == SKR_BEHIND;
        read->items[kept] = read->items[i];
        batch->rows[kept] = (struct skr_flight_row){.next = SKR_NO_TAG};
        if (!is_behind && skr_has_order(&read->items[kept])) {
            code = place_row(dispatcher, batch, kept, from_head, &stays, error);
            if (code == SKR_OK && stays)
                cast_vote(&left, read->items[kept].partition_key);
        }
        if (!stays) {
            kept++;
            continue;
        }
        read->bytes -= read->items[kept].size;
        skr_source_returned(dispatcher->source, &read->items[kept]);
    }
    for (; i < read->count; i++)
        skr_source_returned(dispatcher->source, &read->items[i]);
    if (code == SKR_OK && left.votes > read->count / 2)
        skr_sequencer_pass(&dispatcher->sequencer, left.key);
    read->count = kept;
    return code;
}

enum skr_code
skr_dispatcher_place(struct skr_dispatcher *dispatcher,
                     struct skr_flight_batch *batch, bool from_head,
                     struct skr_error *error)
{
    const struct skr_batch *read = &batch->job.batch;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < read->count && code == SKR_OK; i++)
        if (read->items[i].state == SKR_BEHIND)
            code = note_behind(dispatcher, &read->items[i], error);
    if (code == SKR_OK)
        code = place_rows(dispatcher, batch, from_head, error);
    return code;
}

// For good, unless too many did so lately.
static void
give_up(struct skr_dispatcher *dispatcher, struct skr_batch_item *item,
        const struct skr_destination *destination,
        const struct skr_error *reason)
{
    bool may_fail = skr_breakers_may_fail(&dispatcher->breakers, destination,
                                          reason, skr_clock_ms());
    bool blocks = skr_has_order(item) && dispatcher->options->blocks_partitions;
    enum skr_state end = blocks ? SKR_BLOCKED : SKR_HOPELESS;
    item->state = may_fail ? end : SKR_READ;
    item->reason = *reason;
}

static enum skr_code
find_destination(struct skr_dispatcher *dispatcher,
                 struct skr_flight_batch *batch, size_t index,
                 struct skr_error *error)
{
    const struct skr_relay_settings *options = dispatcher->options;
    struct skr_batch_item *item = &batch->job.batch.items[index];
    struct skr_route route = {.exchange = "", .routing_key = ""};
    enum skr_code code = SKR_OK;
    if (item->route.topic != NULL)
        route = item->route;
    else if (options->routes != NULL)
        code = skr_route_find(options->routes, &batch->job.batch.arena,
                              &item->envelope, &route, error);
    skr_destination_init(&batch->rows[index].destination,
                         code == SKR_OK ? &route : NULL,
                         options->senders[route.sender].name, item->row);
    return code;
}

// Refused before it was sent: this message's own fault, unless it is memory
// that ran out, or the broker.
static enum skr_code
judge_unsent(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
             size_t index, bool is_away, struct skr_error *error)
{
    struct skr_breakers *breakers = &dispatcher->breakers;
    struct skr_batch_item *item = &batch->job.batch.items[index];
    const struct skr_destination *destination = &batch->rows[index].destination;
    int64_t now_ms = skr_clock_ms();
    if (!is_away && error->remedy != SKR_GIVE_UP)
        return error->code;
    if (is_away) {
        skr_breakers_trip(breakers, SKR_BREAKER_SENDER, destination, error,
                          now_ms);
        skr_breakers_end_probe(breakers, destination, now_ms);
    } else {
        skr_breakers_forget(breakers, item->row);
        give_up(dispatcher, item, destination, error);
    }
    finish(dispatcher, batch, index);
    return SKR_OK;
}

// A row that cannot be understood goes nowhere, and to the failed table only
// while such rows are few. Where it says at least where it would go, the others
// that go there wait with it.
static void
judge_unreadable(struct skr_dispatcher *dispatcher,
                 struct skr_flight_batch *batch, size_t index)
{
    struct skr_batch_item *item = &batch->job.batch.items[index];
    struct skr_destination *destination = &batch->rows[index].destination;
    const struct skr_route *route =
        item->route.topic == NULL ? NULL : &item->route;
    struct skr_error reason = item->reason;
    skr_destination_init(
        destination, route,
        route == NULL ? "" : dispatcher->options->senders[route->sender].name,
        item->row);
    skr_breakers_forget(&dispatcher->breakers, item->row);
    give_up(dispatcher, item, destination, &reason);
    finish(dispatcher, batch, index);
}

// Whether a row that can be understood may go now; if not, it is left.
static bool
may_go(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
       size_t index)
{
    struct skr_breakers *breakers = &dispatcher->breakers;
    const struct skr_destination *destination = &batch->rows[index].destination;
    int64_t now_ms = skr_clock_ms();
    if (!skr_ownership_covers(dispatcher->ownership, batch->claimed_ms))
        skr_breakers_end_probe(breakers, destination, now_ms);
    else if (skr_breakers_allow(breakers, destination, now_ms))
        return true;
    leave(dispatcher, batch, index);
    return false;
}

// An error ends the session, and the row is still queued. Otherwise its state
// tells what became of it.
static enum skr_code
send_row(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
         size_t index, struct skr_error *error)
{
    struct skr_batch_item *item = &batch->job.batch.items[index];
    const struct skr_destination *destination = &batch->rows[index].destination;
    bool is_away = false;
    if (item->reason.code != SKR_OK) {
        judge_unreadable(dispatcher, batch, index);
        return SKR_OK;
    }
    // Another has it, as a renewal found.
    if (item->lost) {
        skr_breakers_miss(&dispatcher->breakers, item->row, skr_clock_ms());
        leave(dispatcher, batch, index);
        return SKR_OK;
    }
    enum skr_code code = skr_ownership_prove(dispatcher->ownership, error);
    if (code != SKR_OK)
        return code;
    code = find_destination(dispatcher, batch, index, error);
    if (code == SKR_OK && !may_go(dispatcher, batch, index))
        return SKR_OK;
    if (code == SKR_OK)
        code =
            skr_senders_submit(&dispatcher->senders, destination->route.sender,
                               &item->envelope.message, &destination->route,
                               skr_flight_tag(batch, index), &is_away, error);
    if (code != SKR_OK)
        return judge_unsent(dispatcher, batch, index, is_away, error);
    skr_flight_move(&dispatcher->flight, batch, index, SKR_ROW_SENT);
    return SKR_OK;
}

// The row was not sent, or not confirmed: what follows must not pass it.
static enum skr_code
hold_back(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
          size_t index, struct skr_error *error)
{
    const struct skr_batch_item *item = &batch->job.batch.items[index];
    let_go(dispatcher, &batch->rows[index]);
    skr_sequencer_drop(&dispatcher->sequencer, batch->rows[index].partition);
    // Once it has moved to the failed table the partition goes on.
    if (item->state == SKR_HOPELESS)
        return list_head(dispatcher, item, skr_clock_ms() + SETTLING_PAUSE_MS,
                         error);
    return SKR_OK;
}

// A row has come to a decision, or was left: the next of its partition goes, or
// all that follow it stay in their rows.
static enum skr_code
follow(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
       size_t index, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && batch->rows[index].state != SKR_ROW_SENT) {
        const struct skr_batch_item *item = &batch->job.batch.items[index];
        const struct skr_flight_row *row = &batch->rows[index];
        bool is_behind = false;
        if (row->partition == 0)
            return SKR_OK;
        if (item->state != SKR_DONE || dispatcher->is_draining ||
            dispatcher->lost.code != SKR_OK)
            return hold_back(dispatcher, batch, index, error);
        if (!skr_sequencer_advance(&dispatcher->sequencer, row->partition,
                                   row->next, &is_behind))
            return is_behind ? list_head(dispatcher, item, AT_ONCE_MS, error)
                             : SKR_OK;
        batch = skr_flight_find(&dispatcher->flight, row->next, &index);
        batch->rows[index].waits_turn = false;
        code = send_row(dispatcher, batch, index, error);
    }
    return code;
}

static bool
is_as_read(const struct skr_flight_batch *batch)
{
    for (size_t i = 0; i < batch->job.batch.count; i++)
        if (batch->rows[i].state != SKR_ROW_LEFT)
            return false;
    return true;
}

enum skr_code
skr_dispatcher_send(struct skr_dispatcher *dispatcher,
                    struct skr_flight_batch *batch, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < batch->job.batch.count && code == SKR_OK; i++) {
        if (batch->rows[i].state != SKR_ROW_QUEUED || batch->rows[i].waits_turn)
            continue;
        code = send_row(dispatcher, batch, i, error);
        if (code == SKR_OK)
            code = follow(dispatcher, batch, i, error);
    }
    skr_failpoint("relay.submitted");
    skr_dispatcher_log_breakers(dispatcher);
    dispatcher->was_in_vain = is_as_read(batch);
    return code;
}

// Rows of kafka_outbox have no id but their number.
static void
log_published(const struct skr_dispatcher *dispatcher,
              const struct skr_batch_item *item)
{
    static const struct skr_id none;
    const struct skr_message *message = &item->envelope.message;
    char id[SKR_ID_TEXT_SIZE] = "";
    if (memcmp(&message->id, &none, sizeof(none)) != 0)
        skr_id_format(message->id, id);
    skr_log(&dispatcher->options->log, SKR_LOG_DEBUG, "relay.published",
            SKR_LOG_TEXT("name", dispatcher->options->name),
            SKR_LOG_TEXT("message", message->name == NULL ? "" : message->name),
            SKR_LOG_TEXT("id", id), SKR_LOG_NUMBER("row", item->row));
}

static void
note_confirmed(struct skr_dispatcher *dispatcher,
               const struct skr_batch_item *item)
{
    dispatcher->confirmed++;
    if (dispatcher->options->tally != NULL)
        skr_tally_confirm(dispatcher->options->tally, item);
    if (dispatcher->options->log.each_message)
        log_published(dispatcher, item);
}

static void
note_returned(struct skr_dispatcher *dispatcher,
              const struct skr_batch_item *item,
              const struct skr_destination *destination,
              const struct skr_error *reason)
{
    const struct skr_relay_settings *options = dispatcher->options;
    int64_t now_ms = skr_clock_ms();
    if (options->tally != NULL)
        atomic_fetch_add(&options->tally->returned, 1);
    if (destination->route.unroutable == SKR_UNROUTABLE_WAIT)
        skr_breakers_trip(&dispatcher->breakers, SKR_BREAKER_ROUTE, destination,
                          reason, now_ms);
    else
        skr_breakers_reach(&dispatcher->breakers, destination, now_ms);
    if (destination->route.unroutable == SKR_UNROUTABLE_DROP)
        skr_log(&options->log, SKR_LOG_DEBUG, "relay.dropped",
                SKR_LOG_TEXT("name", options->name),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", reason->text));
}

// What became of the first sender's messages cannot be known without it: the
// session ends.
static void
note_uncertain(struct skr_dispatcher *dispatcher,
               const struct skr_destination *destination,
               const struct skr_error *reason)
{
    struct skr_error lost = *reason;
    if (lost.code == SKR_OK)
        skr_fail(&lost, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "the broker did not say what became of a message");
    if (destination->route.sender > 0)
        skr_breakers_trip(&dispatcher->breakers, SKR_BREAKER_SENDER,
                          destination, &lost, skr_clock_ms());
    else if (dispatcher->lost.code == SKR_OK)
        dispatcher->lost = lost;
}

// What the result means for the destination; gives who is to blame.
static enum skr_blame
inform_breakers(struct skr_dispatcher *dispatcher,
                const struct skr_outcome *result,
                const struct skr_batch_item *item,
                const struct skr_destination *destination)
{
    struct skr_breakers *breakers = &dispatcher->breakers;
    int64_t now_ms = skr_clock_ms();
    switch (result->fate) {
    case SKR_CONFIRMED:
        skr_breakers_confirm(breakers, destination, now_ms);
        note_confirmed(dispatcher, item);
        break;
    case SKR_REFUSED_ONCE:
        return skr_breakers_refuse(breakers, destination, &result->reason,
                                   now_ms);
    case SKR_REFUSED_FOR_GOOD:
        skr_breakers_reach(breakers, destination, now_ms);
        break;
    case SKR_UNROUTABLE:
        note_returned(dispatcher, item, destination, &result->reason);
        break;
    case SKR_ROUTE_CLOSED:
        skr_breakers_trip(breakers, SKR_BREAKER_EXCHANGE, destination,
                          &result->reason, now_ms);
        break;
    case SKR_UNCERTAIN:
        note_uncertain(dispatcher, destination, &result->reason);
        break;
    case SKR_HELD_BACK: break;
    }
    return SKR_BLAME_MESSAGE;
}

static void
write_decision(struct skr_dispatcher *dispatcher,
               const struct skr_retry_decision *decision,
               struct skr_batch_item *item,
               const struct skr_destination *destination,
               const struct skr_error *reason)
{
    switch (decision->decision) {
    case SKR_DECISION_DONE:
        item->state = SKR_DONE;
        skr_source_published(dispatcher->source, item);
        break;
    case SKR_DECISION_RETRY:
        item->state = SKR_RETRY_LATER;
        item->reason = *reason;
        item->delay_ms = decision->delay_ms;
        item->is_excused = decision->is_not_counted;
        skr_source_deferred(dispatcher->source);
        break;
    case SKR_DECISION_GIVE_UP:
        give_up(dispatcher, item, destination, reason);
        break;
    case SKR_DECISION_LEAVE: item->state = SKR_READ; break;
    }
}

static void
decide(struct skr_dispatcher *dispatcher, const struct skr_outcome *result,
       struct skr_flight_batch *batch, size_t index)
{
    const struct skr_relay_settings *options = dispatcher->options;
    struct skr_batch_item *item = &batch->job.batch.items[index];
    struct skr_destination *destination = &batch->rows[index].destination;
    if (destination->route.unroutable == SKR_UNROUTABLE_UNSAID)
        destination->route.unroutable = options->unroutable;
    const struct skr_publish_facts facts = {
        .fate = result->fate,
        .blame = inform_breakers(dispatcher, result, item, destination),
        .unroutable = destination->route.unroutable,
        .retries = item->envelope.retry_count,
    };
    // Any number that differs from row to row and time to time will do.
    uint32_t random = (uint32_t)(item->row ^ skr_clock_wall_us()) * 2654435761u;
    const struct skr_retry_decision decision =
        skr_retry_decide(&facts, &options->retry, random);
    write_decision(dispatcher, &decision, item, destination, &result->reason);
    if (result->fate == SKR_HELD_BACK)
        skr_source_held_back(dispatcher->source);
    skr_breakers_end_probe(&dispatcher->breakers, destination, skr_clock_ms());
    finish(dispatcher, batch, index);
}

// A result for a row that is not at the broker is dropped: a message that was
// returned is acknowledged, too, and one may be confirmed after its time-out.
static enum skr_code
apply(struct skr_dispatcher *dispatcher, const struct skr_outcome *result,
      struct skr_error *error)
{
    size_t index;
    struct skr_flight_batch *batch =
        skr_flight_find(&dispatcher->flight, result->ticket, &index);
    if (batch == NULL || batch->rows[index].state != SKR_ROW_SENT) {
        dispatcher->stray_results++;
        return SKR_OK;
    }
    decide(dispatcher, result, batch, index);
    enum skr_code code = follow(dispatcher, batch, index, error);
    skr_dispatcher_log_breakers(dispatcher);
    return code;
}

// The batch's messages that were sent to a sender which is closed.
static enum skr_code
lose_messages(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
              size_t sender, const struct skr_error *reason,
              struct skr_error *error)
{
    struct skr_outcome result = {.fate = SKR_UNCERTAIN, .reason = *reason};
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < batch->job.batch.count && code == SKR_OK; i++) {
        if (batch->rows[i].state != SKR_ROW_SENT ||
            batch->rows[i].destination.route.sender != sender)
            continue;
        result.ticket = skr_flight_tag(batch, i);
        code = apply(dispatcher, &result, error);
    }
    return code;
}

// One sender's silence is not to keep the window from the others.
static enum skr_code
give_up_silent(struct skr_dispatcher *dispatcher, struct skr_error *error)
{
    struct skr_error reason;
    struct skr_flight_batch *batch;
    size_t sender = skr_senders_close_silent(&dispatcher->senders, &reason);
    enum skr_code code = SKR_OK;
    for (size_t at = 0; sender > 0 && code == SKR_OK &&
                        (batch = skr_flight_next(&dispatcher->flight,
                                                 SKR_BATCH_OPEN, &at)) != NULL;)
        code = lose_messages(dispatcher, batch, sender, &reason, error);
    return code;
}

enum skr_code
skr_dispatcher_collect(struct skr_dispatcher *dispatcher, uint32_t timeout_ms,
                       struct skr_error *error)
{
    struct skr_outcome results[RESULTS_AT_ONCE];
    size_t count;
    enum skr_code code = give_up_silent(dispatcher, error);
    if (code != SKR_OK)
        return code;
    do {
        code = skr_senders_outcomes(&dispatcher->senders, results,
                                    SKR_COUNT_OF(results), &count, timeout_ms,
                                    error);
        if (count > 0)
            skr_failpoint("relay.confirmed");
        // Every result counts, whatever became of what follows another.
        for (size_t i = 0; i < count; i++) {
            struct skr_error failure;
            enum skr_code applied = apply(dispatcher, &results[i], &failure);
            if (applied == SKR_OK || code != SKR_OK)
                continue;
            code = applied;
            *error = failure;
        }
        timeout_ms = 0;
    } while (code == SKR_OK && count == SKR_COUNT_OF(results));
    if (dispatcher->lost.code == SKR_OK)
        return code;
    *error = dispatcher->lost;
    error->remedy = SKR_RECONNECT;
    return error->code;
}

size_t
skr_dispatcher_pending(const struct skr_dispatcher *dispatcher)
{
    return skr_senders_pending(&dispatcher->senders);
}

void
skr_dispatcher_shorten_chains(struct skr_dispatcher *dispatcher)
{
    int64_t now_ms = skr_clock_ms();
    struct skr_flight_batch *batch;
    for (size_t at = 0; (batch = skr_flight_next(&dispatcher->flight,
                                                 SKR_BATCH_OPEN, &at)) != NULL;)
        for (size_t i = 0; now_ms - batch->claimed_ms >= SLOW_CHAIN_MS &&
                           i < batch->job.batch.count;
             i++)
            if (batch->rows[i].state == SKR_ROW_QUEUED &&
                batch->rows[i].waits_turn)
                keep_first_alone(dispatcher, batch->rows[i].partition);
}

// Its destination takes messages again, as of a moment when the source did not
// look at the row: it was given.
static bool
was_overtaken(struct skr_dispatcher *dispatcher,
              const struct skr_flight_batch *batch, size_t index)
{
    const struct skr_flight_row *row = &batch->rows[index];
    return !batch->job.batch.items[index].lost && !dispatcher->is_draining &&
           !row->is_held_back &&
           skr_breakers_are_closed_for(&dispatcher->breakers,
                                       &row->destination);
}

bool
skr_dispatcher_close(struct skr_dispatcher *dispatcher,
                     struct skr_flight_batch *batch)
{
    size_t decided = 0;
    for (size_t i = 0; i < batch->job.batch.count; i++) {
        const struct skr_batch_item *item = &batch->job.batch.items[i];
        bool is_left = batch->rows[i].state == SKR_ROW_LEFT;
        decided += !is_left;
        // A row that is not done is found by a look for what committed late.
        if (is_left || (item->partition_key != NULL && item->state != SKR_DONE))
            skr_source_left(dispatcher->source, item);
        if (is_left && was_overtaken(dispatcher, batch, i))
            dispatcher->wants_rescan = true;
    }
    dispatcher->decided += decided;
    return decided > 0;
}

static void
leave_unfinished(struct skr_dispatcher *dispatcher, enum skr_batch_phase phase)
{
    struct skr_flight_batch *batch;
    for (size_t at = 0;
         (batch = skr_flight_next(&dispatcher->flight, phase, &at)) != NULL;) {
        for (size_t i = 0; i < batch->job.batch.count; i++)
            if (batch->rows[i].state == SKR_ROW_QUEUED ||
                batch->rows[i].state == SKR_ROW_SENT)
                leave(dispatcher, batch, i);
        batch->phase = SKR_BATCH_OPEN;
    }
}

void
skr_dispatcher_begin_drain(struct skr_dispatcher *dispatcher)
{
    dispatcher->is_draining = true;
    leave_unfinished(dispatcher, SKR_BATCH_AHEAD);
}

void
skr_dispatcher_end_drain(struct skr_dispatcher *dispatcher)
{
    // The broker goes first: it borrows messages until it is closed.
    skr_senders_close(&dispatcher->senders);
    leave_unfinished(dispatcher, SKR_BATCH_OPEN);
}
