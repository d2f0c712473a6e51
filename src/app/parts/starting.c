// SPDX-License-Identifier: MIT
// Logs the first line of a relay or a consumer.

#include "app/parts/starting.h"

#include "app/config/mask.h"
#include "base/text.h"

#include <stdlib.h>

static void
add_masked(struct skr_text *text, const struct skr_config *config,
           const char *url)
{
    char *masked = skr_config_mask(config, url);
    skr_text_add_string(text, masked == NULL ? "?" : masked);
    free(masked);
}

// A transport in a database is known by its table and queue, any other by its
// DSN.
static void
add_place(struct skr_text *text, const struct skr_config *config,
          const struct skr_config_transport *transport)
{
    if (transport->database == NULL) {
        add_masked(text, config, transport->dsn);
        return;
    }
    add_masked(text, config, transport->database->url);
    skr_text_add_format(text, " %s/%s", transport->table_name,
                        transport->queue_name);
}

// A line without them is better than none.
static const char *
text_of(const struct skr_text *text)
{
    return text->broken || text->bytes == NULL ? "" : text->bytes;
}

void
skr_starting_say_relay(const struct skr_app *app,
                       const struct skr_config *config,
                       const struct skr_config_transport *outbox,
                       const struct skr_routing *routing)
{
    struct skr_text source = {0}, destination = {0};
    add_place(&source, config, outbox);
    for (size_t i = 0; i < routing->target_count; i++) {
        skr_text_add_format(&destination, "%s%s ", i == 0 ? "" : ", ",
                            routing->targets[i]->name);
        add_place(&destination, config, routing->targets[i]);
    }
    skr_log(&app->log, SKR_LOG_INFO, "relay.started",
            SKR_LOG_TEXT("name", outbox->name),
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("file", config->path),
            SKR_LOG_TEXT("source", text_of(&source)),
            SKR_LOG_TEXT("destination", text_of(&destination)));
    skr_text_fini(&source);
    skr_text_fini(&destination);
}

void
skr_starting_say_consumers(const struct skr_app *app,
                           const struct skr_config *config,
                           const struct skr_config_transport *transport,
                           size_t consumers)
{
    struct skr_text source = {0}, destination = {0};
    add_place(&source, config, transport);
    add_masked(&destination, config, config->inbox_database->url);
    skr_log(&app->log, SKR_LOG_INFO, "consumer.started",
            SKR_LOG_TEXT("name", transport->name),
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("file", config->path),
            SKR_LOG_TEXT("source", text_of(&source)),
            SKR_LOG_TEXT("destination", text_of(&destination)),
            SKR_LOG_NUMBER("consumers", consumers));
    skr_text_fini(&source);
    skr_text_fini(&destination);
}
