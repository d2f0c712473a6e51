// SPDX-License-Identifier: MIT
// Which exchanges are there. A message for one that is missing would close the
// channel and make everything in flight uncertain, so the server is asked
// before the first message for it goes, and again after a close.

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_AGAIN_MS = 1000,
    // Names may come from messages: they must not fill the memory.
    MOST_EXCHANGES = 4096,
};

static int
compare_name(const void *name, const void *exchange)
{
    return strcmp(name, ((const struct rabbit_exchange *)exchange)->name);
}

static size_t
place_of(const struct rabbit_exchanges *exchanges, const char *name)
{
    return skr_vec_find(exchanges->items, exchanges->count,
                        sizeof(*exchanges->items), name, compare_name);
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
    const struct rabbit_exchange exchange = {.name = strdup(name)};
    size_t place = place_of(exchanges, name);
    if (exchange.name == NULL ||
        !skr_vec_insert(&exchanges->items, &exchanges->count,
                        &exchanges->capacity, place, &exchange,
                        sizeof(exchange))) {
        free(exchange.name);
        return skr_fail_memory(error);
    }
    *made = &exchanges->items[place];
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
