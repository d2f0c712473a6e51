// SPDX-License-Identifier: MIT
// What concerns several keys at once: names become pointers, and settings that
// contradict each other are mistakes.
#include "app/config/reader.h"

#include "app/drivers.h"
#include "base/error.h"
#include "base/url.h"
#include "db/zone.h"
#include "message/envelope.h"
#include "store/messenger/messenger.h"
#include "store/schema.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const struct skr_config_place *
given(const struct skr_config_reader *reader, const char *path)
{
    return &reader->given[skr_config_key_index(skr_config_find_key(path))];
}

// The place of a transport's key; that of the transport where the key is not
// written or the transport is a plain DSN.
static struct skr_config_place
place_in(struct skr_config_reader *reader,
         const struct skr_config_transport *transport, const char *key)
{
    const struct skr_yaml_entry *entry = skr_yaml_find(transport->node, key);
    return (struct skr_config_place){
        .path =
            skr_config_text(reader, "%s.%s%s%s",
                            given(reader, "transports")->path, transport->name,
                            entry == NULL ? "" : ".", entry == NULL ? "" : key),
        .line = entry == NULL ? transport->source.line : entry->line,
    };
}

static const struct skr_config_database *
find_database(const struct skr_config *config, const char *name)
{
    for (size_t i = 0; i < config->database_count; i++)
        if (strcmp(config->databases[i].name, name) == 0)
            return &config->databases[i];
    return NULL;
}

static const struct skr_config_transport *
find_transport(const struct skr_config *config, const char *name)
{
    const struct skr_config_transport *found = NULL;
    return skr_config_find_transport(config, name, &found, NULL) == SKR_OK
               ? found
               : NULL;
}

static void
report_unknown(struct skr_config_reader *reader,
               const struct skr_config_place *place,
               enum skr_config_scope scope, const char *name)
{
    const struct skr_config_collection *all = skr_config_collection(scope);
    const char *config = (const char *)reader->config;
    const char *elements = *(const char *const *)(config + all->elements);
    size_t count = *(const size_t *)(config + all->count);
    bool is_database = scope == SKR_SCOPE_DATABASE;
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    struct skr_text known = {0};
    for (size_t i = 0; i < count; i++)
        skr_text_add_format(&known, "%s%s", i == 0 ? "" : ", ",
                            *(const char *const *)(elements + i * all->size));
    skr_config_excerpt(name, excerpt);
    if (is_database && count == 0)
        skr_config_mistake(reader, place,
                           "there is no database '%s': the file lists no "
                           "'databases', and the environment variable "
                           "DATABASE_URL is not set",
                           excerpt);
    else
        skr_config_mistake(reader, place, "there is no %s '%s'; configured: %s",
                           is_database ? "database" : "transport", excerpt,
                           known.size == 0 ? "none" : known.bytes);
    skr_text_fini(&known);
}

// Symfony's convention: without a list of databases there is one.
static void
add_default_database(struct skr_config_reader *reader)
{
    const char *variable = getenv("DATABASE_URL");
    if (reader->config->database_count > 0 || variable == NULL ||
        variable[0] == '\0')
        return;
    struct skr_config_database *database =
        skr_config_take(reader, 1, sizeof(*database));
    if (database == NULL)
        return;
    struct skr_config_place place = {
        .path = "DATABASE_URL",
        .key = skr_config_find_key("databases.*"),
        .target = database,
    };
    database->name = "default";
    database->url =
        skr_config_fill(reader, &place, "%env(resolve:DATABASE_URL)%");
    reader->config->databases = database;
    reader->config->database_count = 1;
    skr_config_read_dsn(reader, &place);
}

static void
resolve_database(struct skr_config_reader *reader,
                 struct skr_config_transport *transport)
{
    struct skr_url url;
    struct skr_error error;
    struct skr_config_place place = place_in(reader, transport, "dsn");
    if (transport->kind == SKR_TRANSPORT_OTHER ||
        skr_url_parse(transport->dsn, &url, &error) != SKR_OK)
        return;
    const char *name = url.host == NULL ? "" : url.host;
    transport->database = find_database(reader->config, name);
    if (transport->database == NULL)
        report_unknown(reader, &place, SKR_SCOPE_DATABASE, name);
    skr_url_fini(&url);
}

static bool
share_queue(const struct skr_config_transport *a,
            const struct skr_config_transport *b)
{
    return skr_config_share_table(a, b) &&
           strcmp(a->place.queue, b->place.queue) == 0;
}

static void
check_relay(struct skr_config_reader *reader,
            struct skr_config_transport *transport)
{
    struct skr_config *config = reader->config;
    struct skr_config_place place = place_in(reader, transport, "relay_to");
    bool is_failure = config->failure_transport != NULL &&
                      strcmp(config->failure_transport, transport->name) == 0;
    bool is_outbox = transport->kind == SKR_TRANSPORT_OUTBOX;
    bool is_given = transport->relay_to != NULL;
    if (!is_given && is_outbox && !is_failure &&
        find_transport(config, "amqp") != NULL)
        transport->relay_to = "amqp";
    if (transport->relay_to == NULL || transport->scheme[0] == '\0')
        return;
    const struct skr_config_transport *target =
        find_transport(config, transport->relay_to);
    if (!is_outbox)
        skr_config_mistake(reader, &place,
                           "only an outbox (doctrine://) is relayed, not %s://",
                           transport->scheme);
    else if (target == NULL)
        report_unknown(reader, &place, SKR_SCOPE_TRANSPORT,
                       transport->relay_to);
    else if (target->kind == SKR_TRANSPORT_OUTBOX)
        skr_config_mistake(reader, &place,
                           "'%s' is an outbox itself (doctrine://); a broker "
                           "such as queue:// is needed",
                           target->name);
    else if (is_given && target->scheme[0] != '\0' &&
             skr_driver_scheme(target->scheme)->name == NULL)
        skr_config_mistake(reader, &place,
                           "'%s' is %s://, to which nothing is relayed; "
                           "correct its DSN",
                           target->name, target->scheme);
    else if (share_queue(transport, target))
        skr_config_mistake(reader, &place,
                           "'%s' is the same queue in the same table; "
                           "messages would go round in circles",
                           target->name);
}

// Each hop has a record of a message: in one table the second would take what
// the first has recorded for a duplicate.
static void
check_forward_records(struct skr_config_reader *reader,
                      struct skr_config_transport *transport,
                      const struct skr_config_transport *target)
{
    struct skr_config *config = reader->config;
    struct skr_config_place place =
        place_in(reader, transport, "deduplication");
    struct skr_error error;
    const char *handled = target->deduplication.table;
    if (handled == NULL)
        handled = config->deduplication_table;
    // What was handled before there were two hops is recorded where the second
    // looks.
    if (transport->deduplication.table == NULL)
        transport->deduplication = (struct skr_config_deduplication){
            .table = skr_config_text(reader, "%s_forward",
                                     config->deduplication_table)};
    if (skr_config_same_table(config->inbox_database,
                              transport->deduplication.table, handled))
        skr_config_mistake(reader, &place,
                           "the table %s is that in which the handlers of '%s' "
                           "record messages: they would take each for a "
                           "duplicate. With forward_to, table_name is another "
                           "table, or left out",
                           handled, target->name);
    else if (skr_schema_check_name(transport->deduplication.table, &error) !=
             SKR_OK)
        skr_config_mistake(reader, &place, "%s; name a table in table_name",
                           error.text);
}

// What a transport cannot have beside forward_to.
static void
check_forward_keys(struct skr_config_reader *reader,
                   const struct skr_config_transport *transport)
{
    struct skr_config_place place = place_in(reader, transport, "missing_id");
    if (transport->missing_id == SKR_MISSING_ID_HANDLE)
        skr_config_mistake(reader, &place,
                           "'handle': with forward_to it is fail or derive, as "
                           "a message without an id would be stored each time "
                           "that it comes");
    place = place_in(reader, transport, "unhandled");
    if (transport->unhandled != SKR_UNHANDLED_FAIL)
        skr_config_mistake(reader, &place,
                           "every message is forwarded to '%s': set this "
                           "there, and leave it out here",
                           transport->forward_to);
}

// A row of the queue and the record of the message are of one transaction.
static void
check_forward_target(struct skr_config_reader *reader,
                     struct skr_config_transport *transport,
                     const struct skr_config_transport *target)
{
    const struct skr_config *config = reader->config;
    struct skr_config_place place = place_in(reader, transport, "forward_to");
    if (target == transport || share_queue(transport, target))
        skr_config_mistake(reader, &place,
                           "'%s' is the same queue; messages would go round in "
                           "circles",
                           target->name);
    else if (target->kind != SKR_TRANSPORT_QUEUE)
        skr_config_mistake(reader, &place,
                           "'%s' is %s://; a queue:// in the database '%s' is "
                           "needed",
                           target->name, target->scheme,
                           config->inbox_database_name);
    else if (config->inbox_database == NULL ||
             strcmp(target->database->url, config->inbox_database->url) != 0)
        skr_config_mistake(reader, &place,
                           "'%s' stands in the database '%s', but messages are "
                           "recorded in '%s'; both need one. Name it in "
                           "message_broker.inbox.database",
                           target->name, target->database->name,
                           config->inbox_database == NULL
                               ? "none"
                               : config->inbox_database->name);
    else if (target->forward_to != NULL)
        skr_config_mistake(reader, &place,
                           "'%s' forwards its messages itself; handlers have "
                           "to work that queue",
                           target->name);
    else if (strpbrk(target->place.queue, "'\\") != NULL)
        skr_config_mistake(reader, &place,
                           "the queue_name of '%s' has a quote or a backslash; "
                           "give it another",
                           target->name);
    else
        check_forward_records(reader, transport, target);
}

static void
check_forward(struct skr_config_reader *reader,
              struct skr_config_transport *transport)
{
    struct skr_config_place place = place_in(reader, transport, "forward_to");
    if (transport->forward_to == NULL || transport->scheme == NULL ||
        transport->scheme[0] == '\0')
        return;
    const struct skr_config_transport *target =
        find_transport(reader->config, transport->forward_to);
    check_forward_keys(reader, transport);
    if (transport->kind == SKR_TRANSPORT_OUTBOX)
        skr_config_mistake(reader, &place,
                           "%s:// is not consumed but relayed; write relay_to",
                           transport->scheme);
    else if (target == NULL)
        report_unknown(reader, &place, SKR_SCOPE_TRANSPORT,
                       transport->forward_to);
    else if (target->database != NULL ||
             (target->scheme != NULL && target->kind == SKR_TRANSPORT_OTHER &&
              target->scheme[0] != '\0'))
        check_forward_target(reader, transport, target);
}

// One queue has one name, wherever it is written.
static void
check_queue_name(struct skr_config_reader *reader,
                 const struct skr_config_transport *transport)
{
    const struct skr_yaml_entry *options =
        skr_yaml_find(transport->node, "options");
    if (options == NULL || transport->kind == SKR_TRANSPORT_OTHER)
        return;
    const struct skr_yaml_entry *queue = skr_yaml_find(options->value, "queue");
    const struct skr_yaml_entry *plain =
        skr_yaml_find(options->value, "queue_name");
    const struct skr_yaml_entry *name =
        queue == NULL ? NULL : skr_yaml_find(queue->value, "name");
    if (name == NULL || plain == NULL)
        return;
    struct skr_config_place place = place_in(reader, transport, "options");
    place.path = skr_config_text(reader, "%s.queue.name", place.path);
    place.line = name->line;
    skr_config_mistake(reader, &place,
                       "is the same as queue_name, which is given in line %d",
                       plain->line);
}

static void
check_time_zone(struct skr_config_reader *reader,
                const struct skr_config_transport *transport)
{
    struct skr_error error;
    struct skr_zone zone;
    const struct skr_dialect *dialect = skr_config_dialect(transport->database);
    struct skr_config_place place = place_in(reader, transport, "time_zone");
    if (dialect != NULL && skr_zone_read(dialect, transport->place.time_zone,
                                         &zone, &error) != SKR_OK)
        skr_config_mistake(reader, &place, "%s", error.text);
}

static void
check_failure_of(struct skr_config_reader *reader,
                 const struct skr_config_place *place,
                 const struct skr_config_transport *failure,
                 const struct skr_config_transport *outbox)
{
    if (outbox == failure || outbox->kind != SKR_TRANSPORT_OUTBOX ||
        outbox->relay_to == NULL || outbox->database == NULL)
        return;
    if (strcmp(failure->database->url, outbox->database->url) != 0)
        skr_config_mistake(reader, place,
                           "'%s' stands in the database '%s', but the outbox "
                           "'%s' in '%s'; both need one, since a message "
                           "moves in one transaction. Without a "
                           "failure_transport each outbox keeps its own",
                           failure->name, failure->database->name, outbox->name,
                           outbox->database->name);
    else if (share_queue(failure, outbox))
        skr_config_mistake(reader, place,
                           "'%s' is the queue of the outbox '%s' itself; give "
                           "it another queue_name",
                           failure->name, outbox->name);
}

static void
check_failure_transport(struct skr_config_reader *reader)
{
    const struct skr_config *config = reader->config;
    const struct skr_config_place *place = given(reader, "failure_transport");
    if (config->failure_transport == NULL)
        return;
    const struct skr_config_transport *failure =
        find_transport(config, config->failure_transport);
    if (failure == NULL) {
        report_unknown(reader, place, SKR_SCOPE_TRANSPORT,
                       config->failure_transport);
        return;
    }
    if (failure->scheme[0] != '\0' && failure->kind != SKR_TRANSPORT_OUTBOX) {
        skr_config_mistake(reader, place,
                           "'%s' is %s://; failed messages need doctrine://, "
                           "in the database of the outbox",
                           failure->name, failure->scheme);
        return;
    }
    if (failure->relay_to != NULL) {
        skr_config_mistake(reader, place,
                           "'%s' is an outbox that is relayed to '%s'; failed "
                           "messages need a transport without relay_to",
                           failure->name, failure->relay_to);
        return;
    }
    for (size_t i = 0; failure->database && i < config->transport_count; i++)
        check_failure_of(reader, place, failure, &config->transports[i]);
}

static void
check_metrics_address(struct skr_config_reader *reader)
{
    unsigned char address[16];
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    const char *text = reader->config->metrics_address;
    if (text != NULL && inet_pton(AF_INET, text, address) != 1 &&
        inet_pton(AF_INET6, text, address) != 1)
        skr_config_mistake(reader, given(reader, "metrics.address"),
                           "an address such as 127.0.0.1 or ::1 is needed, "
                           "not '%s'",
                           skr_config_excerpt(text, excerpt));
}

static void
resolve_inbox_database(struct skr_config_reader *reader)
{
    struct skr_config *config = reader->config;
    const struct skr_config_place *place =
        given(reader, "message_broker.inbox.database");
    const char *name = config->inbox_database_name;
    config->inbox_database = find_database(config, name);
    if (config->inbox_database != NULL)
        return;
    if (place->path != NULL)
        report_unknown(reader, place, SKR_SCOPE_DATABASE, name);
    else if (config->handler_count > 0)
        skr_config_mistake(reader, given(reader, "handlers"),
                           "handlers run in the database '%s', which is not "
                           "configured; name another in "
                           "message_broker.inbox.database",
                           name);
    else
        config->inbox_database_name = NULL;
}

static void
check_missing_id(struct skr_config_reader *reader,
                 const struct skr_config_transport *transport)
{
    if (transport->missing_id != SKR_MISSING_ID_DERIVE ||
        skr_driver_scheme(transport->scheme)->derives_ids)
        return;
    struct skr_config_place place = place_in(reader, transport, "missing_id");
    skr_config_mistake(reader, &place,
                       "'derive': fail or handle is needed, as only "
                       "queue:// and kafka:// transports can derive ids");
}

static void
check_on_success(struct skr_config_reader *reader,
                 const struct skr_config_transport *transport)
{
    if (transport->relay.on_success != SKR_ON_SUCCESS_KEEP)
        return;
    struct skr_config_place place = place_in(reader, transport, "on_success");
    struct skr_error error;
    if (transport->kind != SKR_TRANSPORT_OUTBOX)
        skr_config_mistake(reader, &place,
                           "'keep': only what a doctrine:// transport has sent "
                           "can be kept");
    else if (transport->place.queue != NULL &&
             skr_messenger_check_sent(transport->place.queue, &error) != SKR_OK)
        skr_config_mistake(reader, &place, "%s", error.text);
}

// Whether the transport keeps an order, for which the key is.
static bool
check_order(struct skr_config_reader *reader,
            const struct skr_config_transport *transport,
            const struct skr_config_place *place, const char *mistake)
{
    if (transport->is_ordered)
        return true;
    skr_config_mistake(reader, place, "%s", mistake);
    return false;
}

// The default may stand at any transport, as `config show` writes it there.
static void
check_on_failure(struct skr_config_reader *reader,
                 const struct skr_config_transport *transport)
{
    struct skr_config_place place = place_in(reader, transport, "on_failure");
    if (transport->relay.on_failure != SKR_ON_FAILURE_BLOCK)
        (void)check_order(reader, transport, &place,
                          "only an ordered-doctrine:// transport has "
                          "partitions that go on without a message");
}

static bool
is_header_name(const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f || *at == ':')
            return false;
    return text[0] != '\0';
}

static void
check_partition_header(struct skr_config_reader *reader,
                       const struct skr_config_transport *transport)
{
    const char *header = transport->relay.partition_header;
    struct skr_config_place place =
        place_in(reader, transport, "partition_header");
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    if (header == NULL ||
        !check_order(reader, transport, &place,
                     "only messages of an ordered-doctrine:// transport have a "
                     "partition key"))
        return;
    if (!is_header_name(header))
        skr_config_mistake(reader, &place,
                           "'%s' is no name of a header: it has no blanks, "
                           "control characters or colons",
                           skr_config_excerpt(header, excerpt));
    else if (!skr_envelope_is_free_header(header))
        skr_config_mistake(reader, &place,
                           "'%s' has a meaning of its own; choose another "
                           "header, such as X-Partition-Key",
                           skr_config_excerpt(header, excerpt));
}

static void
check_commit_order(struct skr_config_reader *reader,
                   const struct skr_config_transport *transport)
{
    struct skr_error error;
    struct skr_config_place place = place_in(reader, transport, "commit_order");
    if (!transport->relay.commit_order ||
        !check_order(reader, transport, &place,
                     "only an ordered-doctrine:// transport keeps the order of "
                     "commits"))
        return;
    const struct skr_dialect *dialect = skr_config_dialect(transport->database);
    if (dialect != NULL &&
        skr_messenger_know_commits(dialect, &error) != SKR_OK)
        skr_config_mistake(reader, &place, "%s", error.text);
}

void
skr_config_check(struct skr_config_reader *reader)
{
    struct skr_config *config = reader->config;
    add_default_database(reader);
    config->names =
        (struct skr_names){config->message_types, config->message_type_count};
    for (size_t i = 0; i < config->database_count; i++)
        if (config->databases[i].url == NULL)
            config->databases[i].url = "";  // a mistake that was reported
    skr_config_set_amqp_defaults(reader);
    for (size_t i = 0; i < config->transport_count; i++) {
        struct skr_config_transport *transport = &config->transports[i];
        if (transport->serializer == NULL)
            transport->serializer = config->default_serializer;
        check_queue_name(reader, transport);
        check_missing_id(reader, transport);
        check_on_success(reader, transport);
        resolve_database(reader, transport);
        check_time_zone(reader, transport);
        check_commit_order(reader, transport);
        check_on_failure(reader, transport);
        check_partition_header(reader, transport);
        struct skr_config_place place = place_in(reader, transport, "dsn");
        skr_config_check_broker(reader, &place, transport);
    }
    for (size_t i = 0; i < config->transport_count; i++)
        check_relay(reader, &config->transports[i]);
    check_failure_transport(reader);
    check_metrics_address(reader);
    skr_config_check_amqp(reader);
    resolve_inbox_database(reader);
    for (size_t i = 0; i < config->transport_count; i++)
        check_forward(reader, &config->transports[i]);
    skr_config_check_handlers(reader);
    skr_config_check_overlap(reader);
}
