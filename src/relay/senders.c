// SPDX-License-Identifier: MIT
// Opens the brokers of one relay, shares the waiting time for publish results
// among them, and closes a broker that gives none.

#include "relay/senders.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "relay/opening.h"

enum {
    // While several have something to say, none is waited for any longer.
    SHARED_WAIT_MS = 2,
    // Others wait meanwhile, and the lock on the queue wants to be heard of.
    OPENING_WAIT_MS = 1000,
    // A message without an outcome keeps its batch, and soon the window.
    MOST_SILENT_MS = 5000,
};

// A sender beyond the first is opened beside the others' work.
static enum skr_code
open_beside(struct skr_sender *sender, struct skr_error *error)
{
    uint32_t wait_ms = 0;
    if (sender->opening == NULL) {
        enum skr_code code = skr_opening_start(sender->options->broker,
                                               &sender->options->options,
                                               &sender->opening, error);
        if (code != SKR_OK)
            return code;
        wait_ms = OPENING_WAIT_MS;
    }
    if (!skr_opening_wait(sender->opening, wait_ms))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "connecting to it takes long");
    struct skr_opening *opening = sender->opening;
    sender->opening = NULL;
    return skr_opening_finish(opening, &sender->broker, error);
}

static void
close_sender(struct skr_sender *sender)
{
    skr_opening_cancel(sender->opening);
    sender->opening = NULL;
    skr_broker_close(sender->broker);
    sender->broker = NULL;
    sender->pending = 0;
}

enum skr_code
skr_senders_open(struct skr_senders *senders, struct skr_error *error)
{
    struct skr_sender *first = &senders->items[0];
    return skr_broker_open(first->options->broker, &first->options->options,
                           &first->broker, error);
}

void
skr_senders_close(struct skr_senders *senders)
{
    for (size_t i = 0; i < senders->count; i++)
        close_sender(&senders->items[i]);
}

enum skr_code
skr_senders_submit(struct skr_senders *senders, size_t sender,
                   const struct skr_message *message,
                   const struct skr_route *route, uint64_t ticket,
                   bool *is_away, struct skr_error *error)
{
    struct skr_sender *chosen = &senders->items[sender];
    enum skr_code code = SKR_OK;
    *is_away = false;
    if (chosen->broker == NULL)
        code = open_beside(chosen, error);
    else if (sender > 0 && chosen->broker->is_blocked)
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "its broker takes no messages (blocked)");
    if (code == SKR_OK)
        code = chosen->broker->ops->submit(chosen->broker, message, route,
                                           ticket, error);
    if (code == SKR_OK && chosen->pending++ == 0)
        chosen->heard_ms = skr_clock_ms();
    if (code != SKR_OK)
        *is_away = sender > 0 &&
                   (chosen->broker == NULL || error->remedy != SKR_GIVE_UP);
    return code;
}

static size_t
count_busy(const struct skr_senders *senders)
{
    size_t busy = 0;
    for (size_t i = 0; i < senders->count; i++)
        busy += senders->items[i].pending > 0;
    return busy;
}

static enum skr_code
collect_from(struct skr_sender *sender, bool is_first,
             struct skr_outcome *outcomes, size_t capacity, size_t *count,
             uint32_t timeout_ms, struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = sender->broker->ops->outcomes(
        sender->broker, outcomes, capacity, count, timeout_ms, error);
    skr_beat_resume();
    sender->pending -= *count < sender->pending ? *count : sender->pending;
    if (*count > 0)
        sender->heard_ms = skr_clock_ms();
    if (code == SKR_OK || code == SKR_TIMEOUT || is_first)
        return code;
    // Every ticket has had its outcome by now: the connection alone is lost.
    close_sender(sender);
    return SKR_OK;
}

enum skr_code
skr_senders_outcomes(struct skr_senders *senders, struct skr_outcome *outcomes,
                     size_t capacity, size_t *count, uint32_t timeout_ms,
                     struct skr_error *error)
{
    bool is_shared = count_busy(senders) > 1;
    *count = 0;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; code == SKR_OK && i < senders->count; i++) {
        struct skr_sender *sender = &senders->items[i];
        if (sender->broker == NULL || *count == capacity)
            continue;
        size_t found = 0;
        // Those with nothing under way are asked too: they want to be heard of.
        uint32_t wait_ms = sender->pending == 0          ? 0
                           : !is_shared                  ? timeout_ms
                           : timeout_ms < SHARED_WAIT_MS ? timeout_ms
                                                         : SHARED_WAIT_MS;
        code = collect_from(sender, i == 0, outcomes + *count,
                            capacity - *count, &found, wait_ms, error);
        *count += found;
        if (code == SKR_TIMEOUT)
            code = SKR_OK;
    }
    return code;
}

size_t
skr_senders_close_silent(struct skr_senders *senders, struct skr_error *reason)
{
    int64_t now = skr_clock_ms();
    for (size_t i = 1; i < senders->count; i++) {
        struct skr_sender *sender = &senders->items[i];
        if (sender->pending == 0 || now - sender->heard_ms <= MOST_SILENT_MS)
            continue;
        skr_fail(reason, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "its broker has not said what became of messages for %d s%s",
                 MOST_SILENT_MS / 1000,
                 sender->broker->is_blocked ? ": it takes none (blocked)" : "");
        close_sender(sender);
        return i;
    }
    return 0;
}

size_t
skr_senders_pending(const struct skr_senders *senders)
{
    size_t pending = 0;
    for (size_t i = 0; i < senders->count; i++)
        pending += senders->items[i].pending;
    return pending;
}
