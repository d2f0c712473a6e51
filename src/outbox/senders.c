// SPDX-License-Identifier: MIT
#include "outbox/senders.h"

// While several have something to say, none is waited for any longer.
enum { SHARED_WAIT_MS = 2 };

static enum skr_code
open_sender(struct skr_sender *sender, struct skr_error *error)
{
    sender->pending = 0;
    return skr_broker_open(sender->options->broker, &sender->options->options,
                           &sender->broker, error);
}

static void
close_sender(struct skr_sender *sender)
{
    skr_broker_close(sender->broker);
    sender->broker = NULL;
    sender->pending = 0;
}

enum skr_code
skr_senders_open(struct skr_senders *senders, struct skr_error *error)
{
    return open_sender(&senders->items[0], error);
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
        code = open_sender(chosen, error);
    if (code == SKR_OK)
        code = chosen->broker->ops->submit(chosen->broker, message, route,
                                           ticket, error);
    if (code == SKR_OK)
        chosen->pending++;
    else
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
    enum skr_code code = sender->broker->ops->outcomes(
        sender->broker, outcomes, capacity, count, timeout_ms, error);
    sender->pending -= *count < sender->pending ? *count : sender->pending;
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
skr_senders_pending(const struct skr_senders *senders)
{
    size_t pending = 0;
    for (size_t i = 0; i < senders->count; i++)
        pending += senders->items[i].pending;
    return pending;
}
