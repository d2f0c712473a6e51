// SPDX-License-Identifier: MIT
// Sending rows, deciding what becomes of them, and keeping the order of
// partitions: the next row of a partition goes when the one before is done, and
// all that follow stay in their rows when it is not.

#include "relay/dispatcher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "message/id.h"
#include "relay/retry.h"

#include <stdlib.h>
#include <string.h>

enum {
    RESULTS_AT_ONCE = 64,
    AT_ONCE_MS = 1,
    SETTLING_PAUSE_MS = 20,  // before rows that are being settled are read
    SLOW_CHAIN_MS = 1000,
    SECOND_US = 1000000,
};

static void
log_breaker(void *user, const struct skr_breaker_notice *notice)
{
    const struct skr_dispatcher *dispatcher = user;
    const struct skr_relay_settings *settings = dispatcher->settings;
    enum skr_log_level loud = notice->is_open ? SKR_LOG_WARNING : SKR_LOG_INFO;
    enum skr_log_level level = notice->is_loud ? loud : SKR_LOG_DEBUG;
    if (notice->is_open)
        skr_log(&settings->log, level, "relay.route_closed",
                SKR_LOG_TEXT("name", settings->name),
                SKR_LOG_TEXT("native", notice->error.native),
                SKR_LOG_TEXT("error", notice->error.text),
                SKR_LOG_NUMBER("closed", notice->open_count));
    else
        skr_log(&settings->log, level, "relay.route_open",
                SKR_LOG_TEXT("name", settings->name),
                SKR_LOG_TEXT("route", notice->name),
                SKR_LOG_NUMBER("failures", notice->failures),
                SKR_LOG_NUMBER("closed", notice->open_count));
    skr_health_tell(&settings->log, SKR_HEALTH_CLOSED_ROUTES,
                    notice->open_count);
}

enum skr_code
skr_dispatcher_init(struct skr_dispatcher *dispatcher, size_t batch_capacity,
                    struct skr_error *error)
{
    const struct skr_relay_settings *settings = dispatcher->settings;
    const struct skr_room most = {settings->in_flight,
                                  settings->in_flight_bytes};
    dispatcher->breakers.failure_limit = settings->failure_limit;
    dispatcher->breakers.tell = log_breaker;
    dispatcher->breakers.tell_user = dispatcher;
    return skr_flight_init(&dispatcher->flight, most, batch_capacity, error);
}

void
skr_dispatcher_fini(struct skr_dispatcher *dispatcher)
{
    skr_flight_fini(&dispatcher->flight);
    skr_breakers_fini(&dispatcher->breakers);
    skr_sequencer_fini(&dispatcher->sequencer);
}

void
skr_dispatcher_begin(struct skr_dispatcher *dispatcher)
{
    dispatcher->lost = (struct skr_error){.code = SKR_OK};
    dispatcher->is_draining = dispatcher->has_confirmed = false;
    skr_sequencer_clear(&dispatcher->sequencer);
    skr_breakers_begin(&dispatcher->breakers, skr_clock_ms());
}

static void
leave(struct skr_flight_row *row)
{
    row->item->state = SKR_READ;
    skr_flight_move(row, SKR_ROW_LEFT);
}

// The item's state is what was decided; SKR_READ: nothing was.
static void
finish(struct skr_flight_row *row)
{
    if (skr_has_result(row->item))
        skr_flight_move(row, SKR_ROW_DECIDED);
    else
        leave(row);
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
let_go(struct skr_flight_row *row)
{
    struct skr_flight_row *next = row->next;
    row->next = NULL;
    while (next != NULL) {
        row = next;
        next = row->next;
        row->next = NULL;
        row->is_held_back = true;
        leave(row);
    }
}

static void
keep_first_alone(struct skr_dispatcher *dispatcher, uint64_t partition)
{
    const struct skr_chain chain =
        skr_sequencer_chain(&dispatcher->sequencer, partition);
    if (chain.length == 0)
        return;
    skr_sequencer_cut(&dispatcher->sequencer, partition, 1);
    let_go(skr_flight_find(&dispatcher->flight, chain.first));
}

// A row behind the cursor. If it belongs before something that has not been
// sent, that must wait for it.
static enum skr_code
note_behind(struct skr_dispatcher *dispatcher,
            const struct skr_batch_item *behind, struct skr_error *error)
{
    uint64_t partition = skr_sequencer_partition(behind->partition_key);
    const struct skr_chain chain =
        skr_sequencer_chain(&dispatcher->sequencer, partition);
    enum skr_code code =
        skr_sequencer_block(&dispatcher->sequencer, partition, error);
    if (code != SKR_OK)
        return code;
    if (chain.length == 0)
        return list_head(dispatcher, behind, AT_ONCE_MS, error);
    if (behind->row <
        skr_flight_find(&dispatcher->flight, chain.last)->item->row)
        keep_first_alone(dispatcher, partition);
    return SKR_OK;
}

// Of records in kafka_outbox the broker keeps the order.
static uint64_t
find_key(const struct skr_batch_item *item)
{
    const char *key = item->partition_key == NULL ? item->route.partition_key
                                                  : item->partition_key;
    return key == NULL || key[0] == '\0' ? 0 : skr_sequencer_partition(key);
}

// Gives a row with a key its turn.
static enum skr_code
place_row(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
          bool from_head, bool *stays, struct skr_error *error)
{
    uint64_t partition = row->key;
    struct skr_place place = {.turn = SKR_TURN_LEAVE};
    enum skr_code code =
        row->item->state == SKR_NOT_READY
            ? skr_sequencer_block(&dispatcher->sequencer, partition, error)
            : skr_sequencer_add(&dispatcher->sequencer, partition,
                                skr_flight_tag(row), from_head, &place, error);
    *stays = place.turn == SKR_TURN_LEAVE;
    if (code != SKR_OK || *stays)
        return code;
    row->partition = partition;
    row->waits_turn = place.turn == SKR_TURN_AFTER;
    if (row->waits_turn)
        skr_flight_find(&dispatcher->flight, place.before)->next = row;
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
        struct skr_flight_row *row = &batch->rows[kept];
        *row->item = read->items[i];
        *row = (struct skr_flight_row){
            .batch = batch, .item = row->item, .key = find_key(row->item)};
        bool is_behind = row->item->state == SKR_BEHIND;
        bool stays = is_behind || row->item->state == SKR_NOT_READY;
        if (!is_behind && skr_has_order(row->item)) {
            code = place_row(dispatcher, row, from_head, &stays, error);
            if (code == SKR_OK && stays)
                cast_vote(&left, row->item->partition_key);
        }
        kept += !stays;
        if (!stays)
            continue;
        read->bytes -= row->item->size;
        skr_source_returned(dispatcher->source, row->item);
    }
    for (; i < read->count; i++)
        skr_source_returned(dispatcher->source, &read->items[i]);
    if (code == SKR_OK && left.votes > read->count / 2)
        skr_sequencer_pass(&dispatcher->sequencer, left.key);
    read->count = kept;
    return code;
}

enum skr_code
skr_dispatcher_accept(struct skr_dispatcher *dispatcher,
                      struct skr_flight_batch *batch, bool from_head,
                      bool *has_rows, struct skr_error *error)
{
    struct skr_batch *read = &batch->job.batch;
    enum skr_code code = SKR_OK;
    skr_ownership_stamp(dispatcher->ownership, read);
    for (size_t i = 0; i < read->count && code == SKR_OK; i++)
        if (read->items[i].state == SKR_BEHIND)
            code = note_behind(dispatcher, &read->items[i], error);
    if (code == SKR_OK)
        code = place_rows(dispatcher, batch, from_head, error);
    *has_rows = read->count > 0;
    if (*has_rows) {
        skr_flight_open(batch);
        enum skr_code noted =
            skr_flight_note_order(&dispatcher->flight, batch, error);
        code = code == SKR_OK ? noted : code;
    } else {
        dispatcher->was_in_vain = true;
        skr_flight_free(batch);
    }
    return code;
}

// For good, unless too many did so lately.
static void
give_up(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
        const struct skr_error *reason)
{
    struct skr_batch_item *item = row->item;
    bool may_fail = skr_breakers_may_fail(
        &dispatcher->breakers, &row->destination, reason, skr_clock_ms());
    bool blocks =
        skr_has_order(item) && dispatcher->settings->blocks_partitions;
    enum skr_state end = blocks ? SKR_BLOCKED : SKR_DEAD;
    item->state = may_fail ? end : SKR_READ;
    item->reason = *reason;
}

static enum skr_code
find_destination(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
                 struct skr_error *error)
{
    const struct skr_relay_settings *settings = dispatcher->settings;
    struct skr_batch_item *item = row->item;
    struct skr_route route = {.exchange = "", .routing_key = ""};
    enum skr_code code = SKR_OK;
    if (item->route.topic != NULL)
        route = item->route;
    else if (settings->routes != NULL)
        code = skr_route_find(settings->routes, &row->batch->job.batch.arena,
                              &item->envelope, &route, error);
    skr_destination_init(&row->destination, code == SKR_OK ? &route : NULL,
                         settings->senders[route.sender].name, item->row);
    return code;
}

// Refused before it was sent: this message's own fault, unless it is memory
// that ran out, or the broker.
static enum skr_code
judge_unsent(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
             bool is_away, struct skr_error *error)
{
    struct skr_breakers *breakers = &dispatcher->breakers;
    if (!is_away && error->remedy != SKR_GIVE_UP)
        return error->code;
    if (is_away) {
        skr_breakers_report(breakers, &row->destination, SKR_UNCERTAIN, error,
                            skr_clock_ms());
    } else {
        skr_breakers_forget(breakers, row->item->row);
        give_up(dispatcher, row, error);
    }
    finish(row);
    return SKR_OK;
}

// A row that cannot be understood goes nowhere, and to the failed table only
// while such rows are few. Where it says at least where it would go, the others
// that go there wait with it.
static void
judge_unreadable(struct skr_dispatcher *dispatcher, struct skr_flight_row *row)
{
    struct skr_batch_item *item = row->item;
    const struct skr_route *route =
        item->route.topic == NULL ? NULL : &item->route;
    struct skr_error reason = item->reason;
    skr_destination_init(
        &row->destination, route,
        route == NULL ? "" : dispatcher->settings->senders[route->sender].name,
        item->row);
    skr_breakers_forget(&dispatcher->breakers, item->row);
    give_up(dispatcher, row, &reason);
    finish(row);
}

// Whether a row that can be understood may go now; if not, it is left.
static bool
may_go(struct skr_dispatcher *dispatcher, struct skr_flight_row *row)
{
    struct skr_breakers *breakers = &dispatcher->breakers;
    int64_t now_ms = skr_clock_ms();
    if (!skr_ownership_covers(dispatcher->ownership, row->batch->claimed_ms))
        skr_breakers_report(breakers, &row->destination, SKR_HELD_BACK, NULL,
                            now_ms);
    else if (skr_breakers_allow(breakers, &row->destination, now_ms))
        return true;
    leave(row);
    return false;
}

// An error ends the session, and the row is still queued. Otherwise its state
// tells what became of it.
static enum skr_code
send_row(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
         struct skr_error *error)
{
    const struct skr_batch_item *item = row->item;
    bool is_away = false;
    if (item->reason.code != SKR_OK) {
        judge_unreadable(dispatcher, row);
        return SKR_OK;
    }
    // Another has it, as a renewal found.
    if (item->lost) {
        skr_breakers_miss(&dispatcher->breakers, item->row, skr_clock_ms());
        leave(row);
        return SKR_OK;
    }
    enum skr_code code = skr_ownership_prove(dispatcher->ownership, error);
    if (code != SKR_OK)
        return code;
    code = find_destination(dispatcher, row, error);
    if (code == SKR_OK && !may_go(dispatcher, row))
        return SKR_OK;
    if (code == SKR_OK)
        code = skr_senders_submit(&dispatcher->senders, &item->envelope.message,
                                  &row->destination.route, skr_flight_tag(row),
                                  &is_away, error);
    if (code != SKR_OK)
        return judge_unsent(dispatcher, row, is_away, error);
    skr_flight_move(row, SKR_ROW_SENT);
    return SKR_OK;
}

// The row was not sent, or not confirmed: what follows must not pass it.
static enum skr_code
hold_back(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
          struct skr_error *error)
{
    let_go(row);
    skr_sequencer_cut(&dispatcher->sequencer, row->partition, 0);
    // Once it has moved to the failed table the partition goes on.
    if (row->item->state == SKR_DEAD)
        return list_head(dispatcher, row->item,
                         skr_clock_ms() + SETTLING_PAUSE_MS, error);
    return SKR_OK;
}

// A row has come to a decision, or was left: the next of its partition goes, or
// all that follow it stay in their rows.
static enum skr_code
follow(struct skr_dispatcher *dispatcher, struct skr_flight_row *row,
       struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && row->state != SKR_ROW_SENT) {
        bool is_behind = false;
        if (row->partition == 0)
            return SKR_OK;
        if (row->item->state != SKR_DONE || dispatcher->is_draining ||
            dispatcher->lost.code != SKR_OK)
            return hold_back(dispatcher, row, error);
        skr_tag next =
            row->next == NULL ? SKR_NO_TAG : skr_flight_tag(row->next);
        if (!skr_sequencer_advance(&dispatcher->sequencer, row->partition, next,
                                   &is_behind))
            return is_behind
                       ? list_head(dispatcher, row->item, AT_ONCE_MS, error)
                       : SKR_OK;
        row = row->next;
        row->waits_turn = false;
        code = send_row(dispatcher, row, error);
    }
    return code;
}

enum skr_code
skr_dispatcher_send(struct skr_dispatcher *dispatcher,
                    struct skr_flight_batch *batch, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    skr_failpoint("relay.read");
    for (size_t i = 0; i < batch->job.batch.count && code == SKR_OK; i++) {
        struct skr_flight_row *row = &batch->rows[i];
        if (row->state != SKR_ROW_QUEUED || row->waits_turn)
            continue;
        code = send_row(dispatcher, row, error);
        if (code == SKR_OK)
            code = follow(dispatcher, row, error);
    }
    skr_failpoint("relay.submitted");
    dispatcher->was_in_vain = true;
    for (size_t i = 0; i < batch->job.batch.count; i++)
        if (batch->rows[i].state != SKR_ROW_LEFT)
            dispatcher->was_in_vain = false;
    return code;
}

// Rows of kafka_outbox have no id but their number.
static void
log_published(const struct skr_dispatcher *dispatcher,
              const struct skr_batch_item *item)
{
    const struct skr_message *message = &item->envelope.message;
    char id[SKR_ID_TEXT_SIZE];
    skr_log(&dispatcher->settings->log, SKR_LOG_DEBUG, "relay.published",
            SKR_LOG_TEXT("name", dispatcher->settings->name),
            SKR_LOG_TEXT("message", message->name == NULL ? "" : message->name),
            SKR_LOG_TEXT("id", skr_id_show(message->id, id)),
            SKR_LOG_NUMBER("row", item->row));
}

// What is not counted has the number of the next that is.
static void
log_retry(const struct skr_dispatcher *dispatcher,
          const struct skr_batch_item *item)
{
    const struct skr_message *message = &item->envelope.message;
    char id[SKR_ID_TEXT_SIZE];
    skr_log(&dispatcher->settings->log, SKR_LOG_DEBUG, "relay.retry",
            SKR_LOG_TEXT("name", dispatcher->settings->name),
            SKR_LOG_TEXT("message", message->name == NULL ? "" : message->name),
            SKR_LOG_TEXT("id", skr_id_show(message->id, id)),
            SKR_LOG_NUMBER("row", item->row),
            SKR_LOG_NUMBER("retry", item->envelope.retry_count + 1),
            SKR_LOG_NUMBER("delay_ms", item->delay_ms),
            SKR_LOG_TEXT("error", item->reason.text));
}

bool
skr_dispatcher_latency(const struct skr_batch_item *item, int64_t now_us,
                       int64_t *latency_us)
{
    const struct skr_message *message = &item->envelope.message;
    int64_t began_us = message->created_at_us;
    int64_t made_us = skr_id_time_us(message->id);
    // What was refused had to wait for that; what was scheduled, on purpose.
    bool was_scheduled = item->had_to_wait && item->envelope.retry_count == 0;
    if (began_us <= 0 || was_scheduled)
        return false;
    // An id of another second is as old as its maker's clock says, or as the
    // time that it was kept for: neither tells when the row was written.
    if (made_us >= began_us && made_us < began_us + SECOND_US)
        began_us = made_us;
    *latency_us = now_us > began_us ? now_us - began_us : 0;
    return true;
}

static void
note_confirmed(struct skr_dispatcher *dispatcher,
               const struct skr_batch_item *item)
{
    struct skr_relay_tally *tally = dispatcher->settings->tally;
    int64_t latency_us = 0;
    dispatcher->has_confirmed = true;
    atomic_fetch_add_explicit(&tally->confirmed, 1, memory_order_relaxed);
    if (skr_dispatcher_latency(item, skr_clock_wall_us(), &latency_us))
        skr_histogram_add(&tally->latency, latency_us);
    if (dispatcher->settings->log.each_message)
        log_published(dispatcher, item);
}

static void
note_returned(struct skr_dispatcher *dispatcher,
              const struct skr_batch_item *item, const struct skr_route *route,
              const struct skr_error *reason)
{
    const struct skr_relay_settings *settings = dispatcher->settings;
    atomic_fetch_add(&settings->tally->returned, 1);
    if (route->unroutable == SKR_UNROUTABLE_DROP)
        skr_log(&settings->log, SKR_LOG_DEBUG, "relay.dropped",
                SKR_LOG_TEXT("name", settings->name),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", reason->text));
}

// Counts and logs the result, and tells the circuit breakers; gives who is to
// blame. What became of the first sender's messages cannot be known without it:
// the session ends.
static enum skr_blame
note_result(struct skr_dispatcher *dispatcher,
            const struct skr_published *published,
            const struct skr_flight_row *row)
{
    const struct skr_route *route = &row->destination.route;
    struct skr_error reason = published->reason;
    if (published->result == SKR_CONFIRMED)
        note_confirmed(dispatcher, row->item);
    else if (published->result == SKR_UNROUTABLE)
        note_returned(dispatcher, row->item, route, &reason);
    else if (published->result == SKR_UNCERTAIN && reason.code == SKR_OK)
        skr_fail(&reason, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "the broker did not say what became of a message");
    if (published->result == SKR_UNCERTAIN && route->sender == 0 &&
        dispatcher->lost.code == SKR_OK)
        dispatcher->lost = reason;
    return skr_breakers_report(&dispatcher->breakers, &row->destination,
                               published->result, &reason, skr_clock_ms());
}

static void
decide(struct skr_dispatcher *dispatcher, const struct skr_published *published,
       struct skr_flight_row *row)
{
    const struct skr_relay_settings *settings = dispatcher->settings;
    struct skr_batch_item *item = row->item;
    struct skr_route *route = &row->destination.route;
    if (route->unroutable == SKR_UNROUTABLE_UNSAID)
        route->unroutable = settings->unroutable;
    enum skr_blame blame = note_result(dispatcher, published, row);
    const struct skr_publish_facts facts = {
        .result = published->result,
        .blame = blame,
        .unroutable = route->unroutable,
        .retries = item->envelope.retry_count,
    };
    // Any number that differs from row to row and time to time will do.
    uint32_t random = (uint32_t)(item->row ^ skr_clock_wall_us()) * 2654435761u;
    const struct skr_retry_decision decision =
        skr_retry_decide(&facts, &settings->retry, random);
    switch (decision.decision) {
    case SKR_DECISION_DONE:
        item->state = SKR_DONE;
        skr_source_published(dispatcher->source, item);
        break;
    case SKR_DECISION_RETRY:
        item->state = SKR_RETRY_LATER;
        item->reason = published->reason;
        item->delay_ms = decision.delay_ms;
        item->is_not_counted = decision.is_not_counted;
        skr_source_refused(dispatcher->source, false);
        if (settings->log.each_message)
            log_retry(dispatcher, item);
        break;
    case SKR_DECISION_GIVE_UP:
        give_up(dispatcher, row, &published->reason);
        break;
    case SKR_DECISION_LEAVE: item->state = SKR_READ; break;
    }
    if (published->result == SKR_HELD_BACK)
        skr_source_refused(dispatcher->source, true);
    finish(row);
}

// A result for a row that is not at the broker any more is dropped.
static enum skr_code
apply(struct skr_dispatcher *dispatcher, const struct skr_published *published,
      struct skr_error *error)
{
    struct skr_flight_row *row =
        skr_flight_find(&dispatcher->flight, published->tag);
    if (row == NULL || row->state != SKR_ROW_SENT)
        return SKR_OK;
    decide(dispatcher, published, row);
    return follow(dispatcher, row, error);
}

// The batch's messages that were sent to a sender which is closed.
static enum skr_code
lose_messages(struct skr_dispatcher *dispatcher, struct skr_flight_batch *batch,
              size_t sender, const struct skr_error *reason,
              struct skr_error *error)
{
    struct skr_published published = {.result = SKR_UNCERTAIN,
                                      .reason = *reason};
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < batch->job.batch.count && code == SKR_OK; i++) {
        const struct skr_flight_row *row = &batch->rows[i];
        published.tag = skr_flight_tag(row);
        if (row->state == SKR_ROW_SENT &&
            row->destination.route.sender == sender)
            code = apply(dispatcher, &published, error);
    }
    return code;
}

// One sender's silence is not to keep the window from the others.
static enum skr_code
give_up_silent(struct skr_dispatcher *dispatcher, struct skr_error *error)
{
    struct skr_error reason;
    struct skr_flight *flight = &dispatcher->flight;
    struct skr_flight_batch *batch = NULL;
    size_t sender = skr_senders_close_silent(&dispatcher->senders, &reason);
    enum skr_code code = SKR_OK;
    while (sender > 0 && code == SKR_OK &&
           (batch = skr_flight_next(flight, SKR_BATCH_OPEN, batch)) != NULL)
        code = lose_messages(dispatcher, batch, sender, &reason, error);
    return code;
}

enum skr_code
skr_dispatcher_collect(struct skr_dispatcher *dispatcher, uint32_t timeout_ms,
                       struct skr_error *error)
{
    struct skr_published results[RESULTS_AT_ONCE];
    size_t count;
    enum skr_code code = give_up_silent(dispatcher, error);
    if (code != SKR_OK)
        return code;
    do {
        code = skr_senders_results(&dispatcher->senders, results,
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

void
skr_dispatcher_shorten_chains(struct skr_dispatcher *dispatcher)
{
    int64_t now_ms = skr_clock_ms();
    struct skr_flight *flight = &dispatcher->flight;
    struct skr_flight_batch *batch = NULL;
    while ((batch = skr_flight_next(flight, SKR_BATCH_OPEN, batch)) != NULL)
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
              const struct skr_flight_row *row)
{
    return !row->item->lost && !dispatcher->is_draining && !row->is_held_back &&
           skr_breakers_are_closed_for(&dispatcher->breakers,
                                       &row->destination);
}

bool
skr_dispatcher_close(struct skr_dispatcher *dispatcher,
                     struct skr_flight_batch *batch, bool *is_overtaken)
{
    size_t decided = 0;
    for (size_t i = 0; i < batch->job.batch.count; i++) {
        const struct skr_flight_row *row = &batch->rows[i];
        const struct skr_batch_item *item = row->item;
        bool is_left = row->state == SKR_ROW_LEFT;
        decided += !is_left;
        // A row that is not done is found by a search for what committed late.
        if (is_left || (item->partition_key != NULL && item->state != SKR_DONE))
            skr_source_left(dispatcher->source, item);
        if (is_left && was_overtaken(dispatcher, row))
            *is_overtaken = true;
    }
    dispatcher->decided += decided;
    return decided > 0;
}

static void
leave_unfinished(struct skr_flight_batch *batch)
{
    for (size_t i = 0; i < batch->job.batch.count; i++)
        if (batch->rows[i].state == SKR_ROW_QUEUED ||
            batch->rows[i].state == SKR_ROW_SENT)
            leave(&batch->rows[i]);
}

void
skr_dispatcher_drain(struct skr_dispatcher *dispatcher, bool is_draining)
{
    struct skr_flight *flight = &dispatcher->flight;
    struct skr_flight_batch *batch = NULL;
    dispatcher->is_draining = is_draining;
    while (is_draining &&
           (batch = skr_flight_next(flight, SKR_BATCH_AHEAD, batch)) != NULL) {
        skr_flight_open(batch);
        leave_unfinished(batch);
    }
}

void
skr_dispatcher_end(struct skr_dispatcher *dispatcher)
{
    struct skr_flight *flight = &dispatcher->flight;
    struct skr_flight_batch *batch = NULL;
    // The broker goes first: it borrows messages until it is closed.
    skr_senders_close(&dispatcher->senders);
    while ((batch = skr_flight_next(flight, SKR_BATCH_OPEN, batch)) != NULL)
        leave_unfinished(batch);
}
