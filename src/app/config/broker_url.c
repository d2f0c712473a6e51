// SPDX-License-Identifier: MIT
// Writes a transport's DSN and options as one URL, since a driver reads its
// settings from a URL only.

#include "app/config/config.h"
#include "app/config/yaml_tree.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"

#include <stdlib.h>
#include <string.h>

// In PHP's way: {exchange: {name: a}} is exchange[name]=a. The DSN's own
// parameters win.
static void
add_option(struct skr_text *text, const struct skr_url *dsn, const char *name,
           const struct skr_yaml_node *value)
{
    bool is_inside = strchr(name, '[') != NULL;
    switch (value->kind) {
    case SKR_YAML_NULL: break;
    case SKR_YAML_TEXT:
        if (skr_url_find(dsn, name) == NULL)
            skr_url_add_parameter(text, name, value->text);
        return;
    case SKR_YAML_LIST:
    case SKR_YAML_MAP: break;
    }
    // A name can say enough: {queues: {orders: ~}}.
    if (value->count == 0 && is_inside && skr_url_find(dsn, name) == NULL)
        skr_url_add_parameter(text, name, "");
    for (size_t i = 0; i < value->count; i++) {
        const struct skr_yaml_entry *entry = &value->entries[i];
        struct skr_text inside = {0};
        skr_text_add_format(&inside, "%s[%s]", name,
                            entry->key == NULL ? "" : entry->key);
        if (inside.broken)
            text->broken = true;
        else
            add_option(text, dsn, inside.bytes, entry->value);
        skr_text_fini(&inside);
    }
}

static enum skr_code
add_options(struct skr_text *text, const struct skr_config_transport *transport,
            struct skr_error *error)
{
    const struct skr_yaml_entry *options =
        skr_yaml_find(transport->node, "options");
    struct skr_url dsn;
    if (options == NULL)
        return SKR_OK;
    enum skr_code code = skr_url_parse(transport->dsn, &dsn, error);
    if (code != SKR_OK)
        return code;
    for (size_t i = 0; i < options->value->count; i++) {
        const struct skr_yaml_entry *entry = &options->value->entries[i];
        // This one is a key of the table, and in force already.
        if (strcmp(entry->key, "auto_setup") != 0)
            add_option(text, &dsn, entry->key, entry->value);
    }
    skr_url_fini(&dsn);
    return SKR_OK;
}

// Of the DSN and of the options alike.
static char *
place_files(const struct skr_config_transport *transport, struct skr_text *text)
{
    const struct skr_broker_ops *ops =
        skr_driver_find_broker(transport->scheme);
    char *url = skr_text_take(text);
    if (url == NULL || transport->folder == NULL || ops == NULL ||
        ops->files == NULL)
        return url;
    char *placed = skr_url_place(url, ops->files, transport->folder);
    free(url);
    return placed;
}

enum skr_code
skr_config_broker_url(const struct skr_config_transport *transport, char **url,
                      struct skr_error *error)
{
    struct skr_text text = {0};
    char number[24];
    if (transport->kind == SKR_TRANSPORT_QUEUE) {
        skr_text_add(&text, transport->dsn, strcspn(transport->dsn, "?"));
        skr_url_add_parameter(&text, "table_name", transport->table_name);
        skr_url_add_parameter(&text, "queue_name", transport->queue_name);
        snprintf(number, sizeof(number), "%u", transport->redeliver_timeout_s);
        skr_url_add_parameter(&text, "redeliver_timeout", number);
        skr_url_add_parameter(&text, "time_zone", transport->time_zone);
        if (strcmp(transport->missing_id, "derive") == 0)
            skr_url_add_parameter(&text, "derive_ids", "true");
    } else {
        skr_text_add_string(&text, transport->dsn);
        if (strcmp(transport->missing_id, "derive") == 0)
            skr_url_add_parameter(&text, "derive_ids", "true");
        if (transport->has_defaults)
            skr_url_add_parameter(&text, "defaults", "symfony");
        enum skr_code code = add_options(&text, transport, error);
        if (code != SKR_OK) {
            skr_text_fini(&text);
            return code;
        }
    }
    *url = place_files(transport, &text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}
