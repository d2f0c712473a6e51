// SPDX-License-Identifier: MIT
// What a DSN says: which driver, which database, and options as parameters.
#include "app/config/reader.h"

#include "app/drivers.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "db/db.h"

#include <stdlib.h>
#include <string.h>

// Schemes that this build may lack a driver for, but which are no mistake.
static const char *const other_transports[] = {"amqp", "amqps", "kafka"};
static const char *const other_databases[] = {
    "sqlite", "mysql", "mariadb", "pgsql", "postgresql", "postgres"};

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
    if (exposure != NULL)
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
        if (ops->check_url != NULL && ops->check_url(url, &error) != SKR_OK)
            skr_config_mistake(reader, place, "%s", error.text);
        warn_of_exposure(reader, place, ops->exposure, url);
        return;
    }
    if (skr_text_is_among(scheme, other_databases,
                          SKR_COUNT_OF(other_databases)))
        skr_config_warn(reader, place, "%s",
                        skr_driver_missing(scheme, missing));
    else
        skr_config_mistake(reader, place,
                           "no database has the scheme %s://; sqlite, mysql "
                           "and pgsql are known",
                           skr_config_excerpt(scheme, excerpt));
}

// It may be another program's transport in a file that both read.
static void
warn_of_scheme(struct skr_config_reader *reader,
               const struct skr_config_place *place, const char *scheme)
{
    static const char *const known[] = {"doctrine", "queue", "ordered-doctrine",
                                        "amqp",     "amqps", "kafka"};
    struct skr_nearest nearest = {.name = scheme};
    for (size_t i = 0; i < SKR_COUNT_OF(known); i++)
        skr_nearest_compare(&nearest, known[i], known[i]);
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
place_files(struct skr_config_reader *reader,
            const struct skr_config_place *place, const char *scheme)
{
    struct skr_config_database *database = place->target;
    const struct skr_db_ops *ops = skr_driver_find_database(scheme);
    if (reader->folder == NULL || ops == NULL || ops->files == NULL)
        return;
    char *placed = skr_url_place(database->url, ops->files, reader->folder);
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
    transport->is_ordered = strcmp(transport->scheme, "ordered-doctrine") == 0;
    if (transport->is_ordered || strcmp(transport->scheme, "doctrine") == 0)
        transport->kind = SKR_TRANSPORT_OUTBOX;
    else if (strcmp(transport->scheme, "queue") == 0)
        transport->kind = SKR_TRANSPORT_QUEUE;
    else if (!skr_text_is_among(transport->scheme, other_transports,
                                SKR_COUNT_OF(other_transports)))
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
        place_files(reader, place, url.scheme);
    } else {
        struct skr_config_transport *transport = place->target;
        transport->folder = reader->folder;
        transport->scheme = skr_config_text(
            reader, "%s", skr_config_excerpt(url.scheme, excerpt));
        decide_kind(reader, place, transport);
    }
    skr_url_fini(&url);
}

static void
read_parameter(struct skr_config_reader *reader,
               const struct skr_config_place *dsn,
               const struct skr_url_parameter *parameter)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    const struct skr_config_key *options =
        skr_config_find_key("transports.*.options");
    struct skr_config_place place = *dsn;
    place.path = skr_config_text(reader, "%s?%s", dsn->path,
                                 skr_config_excerpt(parameter->name, excerpt));
    place.key = skr_config_find_child(options, parameter->name, false);
    if (place.key == NULL || place.key->type == SKR_TYPE_MAP) {
        char suggestion[256];
        skr_config_suggest(options, parameter->name, suggestion,
                           sizeof(suggestion));
        skr_config_mistake(reader, &place, "unknown parameter; %s", suggestion);
        return;
    }
    if (place.key->type == SKR_TYPE_IGNORED) {
        skr_config_warn(reader, &place, "ignored: it means nothing here");
        return;
    }
    if (place.key->same_as != NULL)
        place.key = skr_config_find_key(place.key->same_as);
    if (!skr_text_is_storable(parameter->value, strlen(parameter->value))) {
        skr_config_mistake(reader, &place, "the value is not UTF-8");
        return;
    }
    skr_config_set(reader, &place,
                   skr_config_text(reader, "%s", parameter->value), NULL);
}

void
skr_config_read_parameters(struct skr_config_reader *reader,
                           const struct skr_config_place *place)
{
    struct skr_config_transport *transport = place->target;
    struct skr_url url;
    struct skr_error ignored;
    if (transport->kind == SKR_TRANSPORT_OTHER ||
        skr_url_parse(transport->dsn, &url, &ignored) != SKR_OK)
        return;
    for (size_t i = 0; i < url.parameter_count; i++)
        read_parameter(reader, place, &url.parameters[i]);
    if (url.user != NULL || url.port != 0 ||
        (url.path != NULL && url.path[0] != '\0'))
        skr_config_mistake(reader, place,
                           "%s://DATABASE?... is needed: the name of a "
                           "database, without user, port or path",
                           transport->scheme);
    skr_url_fini(&url);
}

struct doubt {
    struct skr_config_reader *reader;
    const struct skr_config_place *place;
    const char *scheme;
};

static void
warn_of_option(void *user, enum skr_log_level level, const char *event,
               const struct skr_log_field *fields, size_t count)
{
    const struct doubt *doubt = user;
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    (void)level;
    (void)event;
    if (count > 0)
        skr_config_warn(doubt->reader, doubt->place,
                        "the option '%s' means nothing to %s://",
                        skr_config_excerpt(fields[0].text, excerpt),
                        doubt->scheme);
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
    if (ops == NULL || ops->check_url == NULL)
        return;
    enum skr_code code = skr_config_broker_url(transport, &text, &error);
    // A DSN that is none was told of when it was read.
    if (code == SKR_OK && skr_url_parse(text, &url, NULL) == SKR_OK) {
        struct doubt doubt = {reader, place, transport->scheme};
        const struct skr_log log = {.write = warn_of_option, .user = &doubt};
        code = ops->check_url(text, &url, &log, &error);
        if (code == SKR_OK)
            warn_of_exposure(reader, place, ops->exposure, &url);
        skr_url_fini(&url);
    }
    free(text);
    if (code == SKR_NO_MEMORY)
        reader->out_of_memory = true;
    else if (code != SKR_OK)
        skr_config_mistake(reader, place, "%s", error.text);
}
