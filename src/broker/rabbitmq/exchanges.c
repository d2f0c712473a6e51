// SPDX-License-Identifier: MIT
// Which exchanges are there. A message for one that is missing would close the
// channel and make everything in flight uncertain, so the server is asked
// before the first message for it goes, and again after a close.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_AGAIN_MS = 1000,
    // Names may come from messages: they must not fill the memory.
    MOST_EXCHANGES = 4096,
};

// Where it is, or would have to be put in.
static size_t
place_of(const struct rabbit_exchanges *exchanges, const char *name)
{
    size_t low = 0, high = exchanges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(exchanges->items[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rabbit_exchange *
skr_rabbit_exchange_find(struct rabbit_exchanges *exchanges, const char *name)
{
    size_t place = place_of(exchanges, name);
    if (place == exchanges->count ||
        strcmp(exchanges->items[place].name, name) != 0)
        return NULL;
    return &exchanges->items[place];
}

static enum skr_code
insert(struct rabbit_exchanges *exchanges, const char *name,
       struct rabbit_exchange **made, struct skr_error *error)
{
    if (exchanges->count == MOST_EXCHANGES)
        skr_rabbit_exchanges_forget(exchanges);
    if (exchanges->count == exchanges->capacity) {
        size_t capacity =
            exchanges->capacity == 0 ? 16 : exchanges->capacity * 2;
        struct rabbit_exchange *items =
            realloc(exchanges->items, capacity * sizeof(*items));
        if (items == NULL)
            return skr_fail_memory(error);
        exchanges->items = items;
        exchanges->capacity = capacity;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return skr_fail_memory(error);
    size_t place = place_of(exchanges, name);
    struct rabbit_exchange *item = &exchanges->items[place];
    memmove(item + 1, item, (exchanges->count - place) * sizeof(*item));
    exchanges->count++;
    *item = (struct rabbit_exchange){.name = copy};
    *made = item;
    return SKR_OK;
}

enum skr_code
skr_rabbit_exchange_note(struct rabbit_exchanges *exchanges, const char *name,
                         const struct skr_error *trouble,
                         struct skr_error *error)
{
    struct rabbit_exchange *exchange =
        skr_rabbit_exchange_find(exchanges, name);
    if (exchange == NULL) {
        enum skr_code code = insert(exchanges, name, &exchange, error);
        if (code != SKR_OK)
            return code;
    }
    exchange->is_there = trouble == NULL;
    if (trouble != NULL) {
        exchange->trouble = *trouble;
        exchange->ask_again_ms = skr_clock_ms() + ASK_AGAIN_MS;
    }
    return SKR_OK;
}

void
skr_rabbit_exchanges_forget(struct rabbit_exchanges *exchanges)
{
    for (size_t i = 0; i < exchanges->count; i++)
        free(exchanges->items[i].name);
    free(exchanges->items);
    *exchanges = (struct rabbit_exchanges){0};
}

enum skr_code
skr_rabbit_exchange_ask(struct rabbit_broker *broker, const char *name,
                        struct skr_error *error)
{
    amqp_exchange_declare_t question = {
        .exchange = amqp_cstring_bytes(name),
        .type = amqp_cstring_bytes("direct"),
        .passive = 1,
    };
    snprintf(broker->asked, sizeof(broker->asked), "%s", name);
    broker->is_asking = true;
    broker->channel_asked_ms = skr_clock_ms();
    return skr_rabbit_link_send(&broker->link, RABBIT_ASKING,
                                AMQP_EXCHANGE_DECLARE_METHOD, &question, error);
}
