// SPDX-License-Identifier: MIT
// The relay of <skirnir/relay.h>: an embedder's options become a table, a
// sender and the settings of a relay that owns them. Defaults are the
// program's.

#include "base/error.h"
#include "base/url.h"
#include "relay/relay.h"
#include "store/messenger/messenger.h"

#include <string.h>

enum {
    MOST_IN_FLIGHT = 1000000,
    FAILURE_LIMIT = 100,
    SHARD_LEASE_MS = 15000,
};

struct embedding {
    struct skr_relay_options options;  // with defaults; all texts are copies
    struct skr_arena texts;
    struct skr_store *table;
    struct skr_routes *routes;  // NULL: the broker is one queue
};

static enum skr_code
check_options(const struct skr_relay_options *options, struct skr_error *error)
{
    const char *missing =
        options->name == NULL           ? "name"
        : options->database == NULL     ? "database"
        : options->database_url == NULL ? "database_url"
        : options->broker == NULL       ? "broker"
        : options->broker_url == NULL   ? "broker_url"
        : options->queue_database != NULL && options->queue_database_url == NULL
            ? "queue_database_url"
            : NULL;
    if (missing != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.%s is not set", missing);
    if ((unsigned)options->claim > SKR_RELAY_LEASE)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.claim is %u; SKR_RELAY_EXCLUSIVE, "
                        "SKR_RELAY_SHARED or SKR_RELAY_LEASE is needed",
                        (unsigned)options->claim);
    if (options->in_flight > MOST_IN_FLIGHT)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.in_flight is %u; at most %d is "
                        "possible",
                        (unsigned)options->in_flight, MOST_IN_FLIGHT);
    return SKR_OK;
}

// NULL stays NULL where there is no fallback.
static bool
copy_text(struct skr_arena *arena, const char **text, const char *fallback)
{
    if (*text == NULL)
        *text = fallback;
    if (*text != NULL)
        *text = skr_arena_text(arena, *text, strlen(*text));
    return *text != NULL;
}

static enum skr_code
copy_options(struct embedding *embedding, const struct skr_relay_options *from,
             struct skr_error *error)
{
    struct skr_relay_options *to = &embedding->options;
    struct skr_arena *arena = &embedding->texts;
    *to = *from;
    bool is_copied =
        copy_text(arena, &to->name, NULL) &&
        copy_text(arena, &to->database_url, NULL) &&
        copy_text(arena, &to->table, "messenger_outbox") &&
        copy_text(arena, &to->queue, "outbox") &&
        copy_text(arena, &to->broker_url, NULL) &&
        (to->queue_database_url == NULL ||
         copy_text(arena, &to->queue_database_url, NULL)) &&
        copy_text(arena, &to->failed_table, "messenger_messages") &&
        copy_text(arena, &to->failed_queue, "failed");
    return is_copied ? SKR_OK : skr_fail_memory(error);
}

static enum skr_claim
find_claim(const struct skr_relay_options *options)
{
    if (options->claim == SKR_RELAY_EXCLUSIVE)
        return SKR_CLAIM_NONE;
    return options->is_ordered || options->claim == SKR_RELAY_SHARED
               ? SKR_CLAIM_SLOTS
               : SKR_CLAIM_LEASED;
}

static enum skr_code
make_table(struct embedding *embedding, struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    return skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = options->database->tx->dialect,
            .table = options->table,
            .queue = options->queue,
            .is_ordered = options->is_ordered,
            .is_divided = find_claim(options) == SKR_CLAIM_SLOTS,
            .limits_headers = true,
            .transport = options->name,
            .failed_table = options->failed_table,
            .failed_queue = options->failed_queue,
        },
        &embedding->table, error);
}

// The exchange or topic that the URL of a broker names goes before the
// convention.
static enum skr_code
make_routes(struct embedding *embedding, struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    struct skr_arena *arena = &embedding->texts;
    struct skr_url url;
    if (options->queue_database != NULL)
        return SKR_OK;
    enum skr_code code = skr_url_parse(options->broker_url, &url, error);
    if (code != SKR_OK)
        return code;
    bool has_topics = options->broker->has_topics;
    const char *own =
        skr_url_find(&url, has_topics ? "topic" : "exchange[name]");
    if (own == NULL)
        own = has_topics ? url.path : skr_route_path_exchange(&url);
    if (own != NULL && own[0] == '\0')
        own = NULL;
    struct skr_routes *routes = skr_arena_take(arena, sizeof(*routes));
    struct skr_route_sender *sender = skr_arena_take(arena, sizeof(*sender));
    bool is_made = routes != NULL && sender != NULL &&
                   (own == NULL || copy_text(arena, &own, NULL));
    if (is_made) {
        *sender = (struct skr_route_sender){
            .name = options->name,
            .topics = has_topics ? SKR_TOPICS_NAME : SKR_TOPICS_NONE,
            .exchange = has_topics ? NULL : own,
            .topic = has_topics ? own : NULL,
        };
        *routes = (struct skr_routes){.senders = sender};
        embedding->routes = routes;
    }
    skr_url_fini(&url);
    return is_made ? SKR_OK : skr_fail_memory(error);
}

static enum skr_code
make_relay(struct embedding *embedding, struct skr_relay **relay,
           struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    const struct skr_log log = {.write = options->log,
                                .user = options->log_user};
    const struct skr_sender_options sender = {
        .name = options->broker->scheme,
        .broker = options->broker,
        .options = {.url = options->broker_url,
                    .database = options->queue_database,
                    .database_url = options->queue_database_url,
                    .log = log},
    };
    enum skr_claim claim = find_claim(options);
    return skr_relay_make(
        &(struct skr_relay_settings){
            .name = options->name,
            .database = options->database,
            .database_url = options->database_url,
            .table = embedding->table,
            .table_name = options->table,
            .senders = &sender,
            .sender_count = 1,
            .routes = embedding->routes,
            .claim = claim,
            .lease_ms = claim == SKR_CLAIM_SLOTS ? SHARD_LEASE_MS : 0,
            .retry = SKR_DEFAULT_RETRY_POLICY,
            .blocks_partitions = true,
            .unroutable = SKR_UNROUTABLE_FAIL,
            .failure_limit = FAILURE_LIMIT,
            .in_flight = options->in_flight,
            .stop_when_empty = options->stop_when_empty,
            .log = log,
        },
        relay, error);
}

static bool
give_up(void *user)
{
    (void)user;
    return true;
}

enum skr_code
skr_relay_new(const struct skr_relay_options *options, struct skr_relay **relay,
              struct skr_error *error)
{
    struct embedding embedding = {.table = NULL};
    struct skr_relay *made = NULL;
    enum skr_code code = options == NULL
                             ? skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                        "a relay needs skr_relay_options")
                             : check_options(options, error);
    if (code == SKR_OK)
        code = copy_options(&embedding, options, error);
    if (code == SKR_OK)
        code = make_table(&embedding, error);
    if (code == SKR_OK)
        code = make_routes(&embedding, error);
    if (code == SKR_OK)
        code = make_relay(&embedding, &made, error);
    if (code != SKR_OK) {
        skr_store_free(embedding.table);
        skr_arena_fini(&embedding.texts);
        return code;
    }
    skr_relay_own(made, embedding.table, embedding.texts);
    skr_relay_give_up_by(made, give_up, NULL);
    *relay = made;
    return SKR_OK;
}
