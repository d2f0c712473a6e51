// SPDX-License-Identifier: MIT
// Transports that get the same messages and record them in one table: the
// second takes each for a duplicate and acknowledges it unhandled. Refused is
// what the file shows beyond doubt.
#include "app/config/reader.h"

#include "app/config/topology.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

// A routing key has at most so many bytes; a word and its dot are two of them.
enum { LONGEST_KEY = 255, MOST_WORDS = LONGEST_KEY + 1 };

struct word {
    const char *text;
    size_t size;
};

// An empty key has no words.
static size_t
split(const char *key, struct word words[MOST_WORDS])
{
    size_t count = 0;
    while (key[0] != '\0' || count > 0) {
        size_t size = strcspn(key, ".");
        words[count++] = (struct word){key, size};
        if (key[size] == '\0')
            break;
        key += size + 1;
    }
    return count;
}

static bool
is_word(const struct word *word, const char *text)
{
    return word->size == strlen(text) &&
           memcmp(word->text, text, word->size) == 0;
}

static bool
can_be_same(const struct word *a, const struct word *b)
{
    return is_word(a, "*") || is_word(b, "*") ||
           (a->size == b->size && memcmp(a->text, b->text, a->size) == 0);
}

// Whether there is a routing key that both patterns match. Row i of the table
// tells of what follows the first i words of one, column k of the other.
static bool
patterns_overlap(const char *one, const char *other)
{
    struct word a[MOST_WORDS], b[MOST_WORDS];
    bool rows[2][MOST_WORDS + 1] = {{false}};
    if (strlen(one) > LONGEST_KEY || strlen(other) > LONGEST_KEY)
        return false;
    size_t a_count = split(one, a), b_count = split(other, b);
    for (size_t i = a_count + 1; i-- > 0;) {
        bool *row = rows[i % 2];
        const bool *next = rows[(i + 1) % 2];
        for (size_t k = b_count + 1; k-- > 0;) {
            bool has_a = i < a_count, has_b = k < b_count;
            if ((has_a && is_word(&a[i], "#")) ||
                (has_b && is_word(&b[k], "#")))
                row[k] = (has_a && next[k]) || (has_b && row[k + 1]);
            else if (has_a && has_b)
                row[k] = can_be_same(&a[i], &b[k]) && next[k + 1];
            else
                row[k] = !has_a && !has_b;
        }
    }
    return rows[0][0];
}

static const struct skr_amqp_declaration *
find_exchange(const struct skr_topology *topology, const char *name)
{
    for (size_t i = 0; i < topology->count; i++)
        if (topology->declarations[i].object == SKR_AMQP_EXCHANGE &&
            strcmp(topology->declarations[i].name, name) == 0)
            return &topology->declarations[i];
    return NULL;
}

static bool
bindings_overlap(const struct skr_topology *topology,
                 const struct skr_amqp_declaration *a,
                 const struct skr_amqp_declaration *b)
{
    const struct skr_amqp_declaration *exchange =
        find_exchange(topology, a->exchange);
    if (exchange == NULL || strcmp(a->exchange, b->exchange) != 0)
        return false;
    // Where the configuration does not name its type, another program may have
    // made it a topic.
    if (strcmp(exchange->type, "fanout") == 0)
        return !exchange->type_is_default ||
               patterns_overlap(a->binding_key, b->binding_key);
    if (strcmp(exchange->type, "direct") == 0)
        return strcmp(a->binding_key, b->binding_key) == 0;
    return strcmp(exchange->type, "topic") == 0 &&
           patterns_overlap(a->binding_key, b->binding_key);
}

static bool
has_queue(const struct skr_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->declarations[i].object == SKR_AMQP_QUEUE &&
            strcmp(plan->declarations[i].name, name) == 0)
            return true;
    return false;
}

// A pair of bindings by which a message gets into a queue of each. A queue that
// both read gives each message to one of them.
struct overlap {
    const struct skr_amqp_declaration *a, *b;
};

static bool
find_overlap(const struct skr_topology *topology, const struct skr_plan *a,
             const struct skr_plan *b, struct overlap *found)
{
    for (size_t i = 0; i < topology->count; i++) {
        const struct skr_amqp_declaration *one = &topology->declarations[i];
        if (one->object != SKR_AMQP_BINDING || !has_queue(a, one->queue))
            continue;
        for (size_t k = 0; k < topology->count; k++) {
            const struct skr_amqp_declaration *other =
                &topology->declarations[k];
            if (other->object != SKR_AMQP_BINDING ||
                !has_queue(b, other->queue) || has_queue(a, other->queue) ||
                has_queue(b, one->queue) ||
                !bindings_overlap(topology, one, other))
                continue;
            *found = (struct overlap){one, other};
            return true;
        }
    }
    return false;
}

static const char *
table_of(const struct skr_config *config,
         const struct skr_config_transport *transport)
{
    return transport->deduplication.table == NULL
               ? config->deduplication_table
               : transport->deduplication.table;
}

// One with a plan of its own, whose queues are there to be consumed: nothing in
// the file publishes by it.
struct consuming {
    const struct skr_config_transport *transport;
    const struct skr_plan *plan;
};

// Where its messages are handled, which is elsewhere if it forwards them.
static const struct skr_config_transport *
handled_by(const struct skr_config *config,
           const struct skr_config_transport *transport)
{
    const struct skr_config_transport *target = NULL;
    if (transport->forward_to == NULL ||
        skr_config_find_transport(config, transport->forward_to, &target,
                                  NULL) != SKR_OK)
        return transport;
    return target;
}

static bool
share_table(const struct skr_config *config,
            const struct skr_config_transport *a,
            const struct skr_config_transport *b)
{
    return skr_config_same_table(config->inbox_database, table_of(config, a),
                                 table_of(config, b));
}

// That of b, or the one that b forwards to, whose table is also that of a or of
// the one that a forwards to; NULL: there is none. Two that forward to one
// queue are meant to put a message there once.
static const struct skr_config_transport *
find_clash(const struct skr_config *config,
           const struct skr_config_transport *a,
           const struct skr_config_transport *b)
{
    const struct skr_config_transport *by_a = handled_by(config, a);
    const struct skr_config_transport *by_b = handled_by(config, b);
    bool is_handled = config->handler_count > 0;
    if (by_a == by_b)
        return NULL;
    if (share_table(config, a, b) && (is_handled || (by_a != a && by_b != b)))
        return b;
    return is_handled && share_table(config, by_a, by_b) ? by_b : NULL;
}

static void
refuse(struct skr_config_reader *reader, const struct skr_config_transport *a,
       const struct skr_config_transport *b, const char *overlap)
{
    const struct skr_config_transport *clash = find_clash(reader->config, a, b);
    struct skr_config_place place = {
        .path = skr_config_text(reader, "transports.%s", b->name),
        .line = b->source.line,
    };
    skr_config_mistake(reader, &place,
                       "%s transport '%s', and both record what they handled "
                       "in the table %s: the second would take it for a "
                       "duplicate. Name a table of its own in transports.%s."
                       "deduplication.table_name",
                       overlap, a->name, table_of(reader->config, clash),
                       clash->name);
}

static void
check_pair(struct skr_config_reader *reader, const struct skr_sites *sites,
           const struct consuming *a, const struct consuming *b)
{
    const struct skr_site *site = skr_site_find(sites, a->plan);
    struct overlap overlap;
    if (site == NULL || site != skr_site_find(sites, b->plan) ||
        find_clash(reader->config, a->transport, b->transport) == NULL ||
        !find_overlap(&site->topology, a->plan, b->plan, &overlap))
        return;
    refuse(reader, a->transport, b->transport,
           skr_config_text(reader,
                           "its queue '%s' may get the same message from the "
                           "exchange '%s' as '%s' of the",
                           overlap.b->queue, overlap.b->exchange,
                           overlap.a->queue));
}

static void
check_sites(struct skr_config_reader *reader, const struct skr_sites *sites)
{
    const struct skr_config *config = reader->config;
    // The first plan is that of the topology; those of amqp:// transports
    // follow.
    size_t at = 1, count = 0;
    struct consuming *all =
        skr_config_take(reader, config->transport_count, sizeof(*all));
    for (size_t i = 0; all != NULL && i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (!skr_driver_scheme(transport->scheme)->has_exchanges)
            continue;
        const struct skr_plan *plan = &sites->plans[at++];
        if (plan->count == 0 ||
            skr_config_publishes_by(config, transport->name))
            continue;
        all[count++] = (struct consuming){transport, plan};
        for (size_t k = 0; k + 1 < count; k++)
            check_pair(reader, sites, &all[k], &all[count - 1]);
    }
}

// What a transport reads from a log.
struct reading {
    const struct skr_config_transport *transport;
    struct skr_subscription subscription;
};

static enum skr_code
find_subscription(struct reading *reading)
{
    const struct skr_broker_ops *ops =
        reading->transport->scheme == NULL
            ? NULL
            : skr_driver_find_broker(reading->transport->scheme);
    struct skr_url url;
    char *text = NULL;
    if (ops == NULL || !ops->has_topics)
        return SKR_OK;
    enum skr_code code = skr_config_broker_url(reading->transport, &text, NULL);
    if (code == SKR_OK)
        code = skr_url_parse(text, &url, NULL);
    if (code == SKR_OK) {
        code = ops->subscription(&url, &reading->subscription, NULL);
        skr_url_fini(&url);
    }
    free(text);
    return code;
}

// Each group gets all messages of its topics; members of one group share them.
static void
check_groups(struct skr_config_reader *reader, const struct reading *a,
             const struct reading *b)
{
    const struct skr_subscription *one = &a->subscription;
    const struct skr_subscription *other = &b->subscription;
    size_t i = 0;
    while (
        i < one->topic_count &&
        !skr_text_is_among(one->topics[i], other->topics, other->topic_count))
        i++;
    if (i == one->topic_count || strcmp(one->group, other->group) == 0 ||
        strcmp(one->server, other->server) != 0 ||
        find_clash(reader->config, a->transport, b->transport) == NULL)
        return;
    refuse(reader, a->transport, b->transport,
           skr_config_text(reader,
                           "its group '%s' gets the same messages of the "
                           "topic '%s' as the group '%s' of the",
                           other->group, one->topics[i], one->group));
}

static void
check_logs(struct skr_config_reader *reader)
{
    const struct skr_config *config = reader->config;
    size_t count = config->transport_count;
    struct reading *readings = calloc(count + 1, sizeof(*readings));
    enum skr_code code = readings == NULL ? SKR_NO_MEMORY : SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        readings[i].transport = &config->transports[i];
        code = find_subscription(&readings[i]);
        for (size_t k = 0; k < i && code == SKR_OK; k++)
            check_groups(reader, &readings[k], &readings[i]);
    }
    if (code == SKR_NO_MEMORY)
        reader->out_of_memory = true;
    for (size_t i = 0; readings != NULL && i < count; i++)
        skr_arena_fini(&readings[i].subscription.arena);
    free(readings);
}

void
skr_config_check_overlap(struct skr_config_reader *reader)
{
    struct skr_sites sites;
    struct skr_error error;
    // What else is wrong comes first; and what is not handled here is not
    // recorded here.
    if (reader->code != SKR_OK || !skr_config_consumes(reader->config))
        return;
    if (skr_sites_find(reader->config, NULL, NULL, &sites, &error) == SKR_OK)
        check_sites(reader, &sites);
    skr_sites_fini(&sites);
    check_logs(reader);
}
