// SPDX-License-Identifier: MIT
// What a DSN says: which driver, which database, and options as parameters; and
// a transport's DSN and options as one URL, from which a broker's driver reads
// its settings.

#include "app/config/config.h"
#include "app/config/reader.h"
#include "app/config/yaml_tree.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "db/db.h"
#include "db/sql.h"

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
    // A list is told of as a mistake where the key is read.
    if (options == NULL || options->value->kind != SKR_YAML_MAP)
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
    if (url == NULL || transport->folder == NULL || ops == NULL)
        return url;
    char *placed = skr_url_place(url, &ops->files, transport->folder);
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
        skr_url_add_parameter(&text, "table_name", transport->place.table);
        skr_url_add_parameter(&text, "queue_name", transport->place.queue);
        snprintf(number, sizeof(number), "%u",
                 transport->place.redeliver_timeout_s);
        skr_url_add_parameter(&text, "redeliver_timeout", number);
        skr_url_add_parameter(&text, "time_zone", transport->place.time_zone);
    } else {
        skr_text_add_string(&text, transport->dsn);
        if (transport->has_defaults)
            skr_url_add_parameter(&text, "defaults", "symfony");
        enum skr_code code = add_options(&text, transport, error);
        if (code != SKR_OK) {
            skr_text_fini(&text);
            return code;
        }
    }
    if (transport->missing_id == SKR_MISSING_ID_DERIVE)
        skr_url_add_parameter(&text, "derive_ids", "true");
    *url = place_files(transport, &text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

static bool
parse(struct skr_config_reader *reader, const struct skr_config_place *place,
      const char *dsn, struct skr_url *url)
{
    struct skr_error error;
    enum skr_code code = skr_url_parse(dsn, url, &error);
    if (code == SKR_NO_MEMORY)
        reader->out_of_memory = true;
    else if (code != SKR_OK)
        skr_config_mistake(reader, place, "%s", error.text);
    return code == SKR_OK;
}

// Which of two values would count is not defined. name[] is a list in PHP's
// way.
static void
check_repeated(struct skr_config_reader *reader,
               const struct skr_config_place *place, const struct skr_url *url)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    for (size_t i = 1; i < url->parameter_count; i++) {
        const char *name = url->parameters[i].name;
        size_t earlier = 0;
        while (strcmp(url->parameters[earlier].name, name) != 0)
            earlier++;
        if (earlier < i && !skr_text_ends_with(name, "[]"))
            skr_config_mistake(reader, place,
                               "the parameter '%s' stands twice in the DSN",
                               skr_config_excerpt(name, excerpt));
    }
}

static void
warn_of_exposure(struct skr_config_reader *reader,
                 const struct skr_config_place *place,
                 skr_exposure_fn *exposure, const struct skr_url *url)
{
    char said[SKR_EXPOSURE_SIZE] = "";
    exposure(url, said);
    if (said[0] != '\0')
        skr_config_warn(reader, place, "%s", said);
}

static void
check_database(struct skr_config_reader *reader,
               const struct skr_config_place *place, const struct skr_url *url)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE], missing[SKR_DRIVER_MISSING_SIZE];
    struct skr_error error;
    const char *scheme = url->scheme;
    const struct skr_db_ops *ops = skr_driver_find_database(scheme);
    if (ops != NULL) {
        if (ops->check_url(url, &error) != SKR_OK)
            skr_config_mistake(reader, place, "%s", error.text);
        warn_of_exposure(reader, place, ops->exposure, url);
        return;
    }
    if (skr_driver_is_database(scheme))
        skr_config_warn(reader, place, "%s",
                        skr_driver_missing(scheme, missing));
    else
        skr_config_mistake(reader, place,
                           "no database has the scheme %s://; sqlite, mysql "
                           "and pgsql are known",
                           skr_config_excerpt(scheme, excerpt));
}

const struct skr_dialect *
skr_config_dialect(const struct skr_config_database *database)
{
    struct skr_url url;
    if (database == NULL || skr_url_parse(database->url, &url, NULL) != SKR_OK)
        return NULL;
    const struct skr_db_ops *ops = skr_driver_find_database(url.scheme);
    skr_url_fini(&url);
    return ops == NULL ? NULL : ops->tx->dialect;
}

bool
skr_config_consumes(const struct skr_config *config)
{
    for (size_t i = 0; i < config->transport_count; i++)
        if (config->transports[i].forward_to != NULL)
            return true;
    return config->handler_count > 0;
}

bool
skr_config_same_table(const struct skr_config_database *database, const char *a,
                      const char *b)
{
    return skr_sql_same_table(skr_config_dialect(database), a, b);
}

bool
skr_config_share_table(const struct skr_config_transport *a,
                       const struct skr_config_transport *b)
{
    return a->database != NULL && b->database != NULL &&
           strcmp(a->database->url, b->database->url) == 0 &&
           skr_config_same_table(a->database, a->place.table, b->place.table);
}

// It may be another program's transport in a file that both read.
static void
warn_of_scheme(struct skr_config_reader *reader,
               const struct skr_config_place *place, const char *scheme)
{
    struct skr_nearest nearest = {.name = scheme};
    const struct skr_scheme *known;
    for (size_t at = 0; (known = skr_driver_next_scheme(&at)) != NULL;)
        skr_nearest_compare(&nearest, known->name, known->name);
    skr_nearest_compare(&nearest, "rabbitmq", "amqp");
    if (nearest.meant != NULL)
        skr_config_warn(reader, place,
                        "%s:// is unknown, so that nothing can use this "
                        "transport; did you mean %s://?",
                        scheme, nearest.meant);
    else
        skr_config_warn(reader, place,
                        "%s:// is unknown, so that nothing can use this "
                        "transport; doctrine, queue, ordered-doctrine, amqp, "
                        "amqps and kafka are known",
                        scheme);
}

// Names of files in a DSN, as they count.
static void
place_database_files(struct skr_config_reader *reader,
                     const struct skr_config_place *place, const char *scheme)
{
    struct skr_config_database *database = place->target;
    const struct skr_db_ops *ops = skr_driver_find_database(scheme);
    if (reader->folder == NULL || ops == NULL)
        return;
    char *placed = skr_url_place(database->url, &ops->files, reader->folder);
    if (placed == NULL)
        reader->out_of_memory = true;
    else
        database->url = skr_config_text(reader, "%s", placed);
    free(placed);
}

static void
decide_kind(struct skr_config_reader *reader,
            const struct skr_config_place *place,
            struct skr_config_transport *transport)
{
    const struct skr_scheme *scheme = skr_driver_scheme(transport->scheme);
    transport->is_ordered = scheme->is_ordered;
    if (scheme->is_outbox)
        transport->kind = SKR_TRANSPORT_OUTBOX;
    else if (scheme->is_queue)
        transport->kind = SKR_TRANSPORT_QUEUE;
    else if (scheme->name == NULL)
        warn_of_scheme(reader, place, transport->scheme);
    skr_config_set_defaults(reader, SKR_SCOPE_TRANSPORT, transport->kind,
                            transport);
}

void
skr_config_read_dsn(struct skr_config_reader *reader,
                    const struct skr_config_place *place)
{
    struct skr_url url;
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    const char *const *dsn =
        (const char *const *)((char *)place->target + place->key->offset);
    if (*dsn == NULL || !parse(reader, place, *dsn, &url))
        return;
    check_repeated(reader, place, &url);
    if (place->key->scope == SKR_SCOPE_DATABASE) {
        check_database(reader, place, &url);
        place_database_files(reader, place, url.scheme);
    } else {
        struct skr_config_transport *transport = place->target;
        transport->folder = reader->folder;
        transport->scheme = skr_config_text(
            reader, "%s", skr_config_excerpt(url.scheme, excerpt));
        decide_kind(reader, place, transport);
    }
    skr_url_fini(&url);
}

struct doubt {
    struct skr_config_reader *reader;
    const struct skr_config_place *place;
    const struct skr_config_transport *transport;
};

// Where the option stands that a driver's text begins with, as in
// "queues[orders][flags] is not understood".
static struct skr_config_place
place_of_option(const struct doubt *doubt, const char *text)
{
    struct skr_config_place place = *doubt->place;
    char name[SKR_CONFIG_EXCERPT_SIZE];
    const struct skr_yaml_entry *entry =
        skr_yaml_find(doubt->transport->node, "options");
    while (entry != NULL) {
        text += strspn(text, "[]");
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "[]=: "), text);
        text += strlen(name);
        entry = skr_yaml_find(entry->value, name);
        if (entry == NULL)
            break;
        place.line = entry->line;
        place.path = skr_config_text(doubt->reader, "%s.options",
                                     doubt->transport->source.path);
    }
    return place;
}

// The option of a driver that may have been meant, with parts of its own or
// any; NULL: none.
static const char *
nearest_option(const char *scheme, const char *name, bool has_parts)
{
    struct skr_nearest nearest = {.name = name};
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        const char *option = strstr(keys[i].path, SKR_OPTION_OF);
        if (option == NULL || !skr_text_starts_with(keys[i].path, scheme) ||
            (has_parts && keys[i].type != SKR_TYPE_ANYTHING))
            continue;
        option += strlen(SKR_OPTION_OF);
        skr_nearest_compare(&nearest, option, option);
    }
    return nearest.meant;
}

static void
warn_of_option(void *user, enum skr_log_level level, const char *event,
               const struct skr_log_field *fields, size_t count)
{
    const struct doubt *doubt = user;
    const char *scheme = doubt->transport->scheme;
    const char *family = skr_driver_family(scheme);
    char excerpt[SKR_CONFIG_EXCERPT_SIZE], name[SKR_CONFIG_EXCERPT_SIZE];
    (void)level;
    (void)event;
    if (count == 0)
        return;
    const char *option = fields[0].text;
    struct skr_config_place place = place_of_option(doubt, option);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(option, "["), option);
    bool has_parts = strchr(option, '[') != NULL;
    const struct skr_config_key *key = skr_config_find_option(family, name);
    const char *meant =
        key == NULL ? nearest_option(family, name, has_parts) : NULL;
    const char *hint =
        meant != NULL
            ? skr_config_text(doubt->reader, "; did you mean '%s'?", meant)
        : key != NULL && has_parts
            ? skr_config_text(doubt->reader, ": %s", key->help)
            : "";
    const char *text = skr_config_text(
        doubt->reader, "the option '%s' means nothing to %s://%s",
        skr_config_excerpt(option, excerpt), scheme, hint);
    // It may be another program's, but a map as {exchang: {name: shop}} says
    // where messages go.
    if (meant == NULL || !has_parts) {
        skr_config_warn(doubt->reader, &place, "%s", text);
        return;
    }
    place.path = skr_config_text(doubt->reader, "%s.%s", place.path, name);
    skr_config_mistake(doubt->reader, &place, "%s", text);
}

void
skr_config_check_broker(struct skr_config_reader *reader,
                        const struct skr_config_place *place,
                        const struct skr_config_transport *transport)
{
    struct skr_url url;
    struct skr_error error;
    char *text = NULL;
    const struct skr_broker_ops *ops =
        transport->dsn == NULL || transport->scheme == NULL
            ? NULL
            : skr_driver_find_broker(transport->scheme);
    // A queue:// is a table, whose database was checked.
    if (ops == NULL || transport->kind == SKR_TRANSPORT_QUEUE ||
        transport->has_wrong_option)
        return;
    struct doubt doubt = {reader, place, transport};
    enum skr_code code = skr_config_broker_url(transport, &text, &error);
    // A DSN that is none was told of when it was read.
    if (code == SKR_OK && skr_url_parse(text, &url, NULL) == SKR_OK) {
        const struct skr_log log = {.write = warn_of_option, .user = &doubt};
        code = ops->check_url(text, &url, &log, &error);
        if (code == SKR_OK)
            warn_of_exposure(reader, place, ops->exposure, &url);
        skr_url_fini(&url);
    }
    free(text);
    if (code == SKR_NO_MEMORY) {
        reader->out_of_memory = true;
    } else if (code != SKR_OK) {
        struct skr_config_place at = place_of_option(&doubt, error.text);
        skr_config_mistake(reader, &at, "%s", error.text);
    }
}
