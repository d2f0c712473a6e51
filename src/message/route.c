// SPDX-License-Identifier: MIT
// Chooses exchange and routing key, or topic and key, for a message by the
// rules of the header.

#include "message/route.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/url.h"
#include "message/envelope.h"

#include <string.h>

const char *
skr_route_path_exchange(const struct skr_url *url)
{
    const char *slash = url->path == NULL ? NULL : strchr(url->path, '/');
    // A virtual host that is "/" itself comes decoded.
    if (slash == url->path && slash != NULL)
        slash = strchr(slash + 1, '/');
    return slash == NULL || slash[1] == '\0' ? NULL : slash + 1;
}

bool
skr_route_matches(const char *pattern, const char *name)
{
    size_t word = strcspn(pattern, ".");
    if (word == 1 && pattern[0] == '#') {
        if (pattern[1] == '\0')
            return true;
        // Any number of words: try each place where the rest may begin.
        for (const char *at = name;; at++) {
            if (skr_route_matches(pattern + 2, at))
                return true;
            at += strcspn(at, ".");
            if (*at == '\0')
                return false;
        }
    }
    size_t length = strcspn(name, ".");
    bool equal = word == 1 && pattern[0] == '*'
                     ? length > 0
                     : word == length && strncmp(pattern, name, word) == 0;
    if (!equal)
        return false;
    if (pattern[word] == '\0' || name[length] == '\0')
        return (pattern[word] == '\0' && name[length] == '\0') ||
               (name[length] == '\0' && strcmp(pattern + word, ".#") == 0);
    return skr_route_matches(pattern + word + 1, name + length + 1);
}

// A rule for just this name goes before any pattern.
static const struct skr_route_rule *
find_rule(const struct skr_routes *routes, const char *name)
{
    for (size_t i = 0; i < routes->rule_count; i++)
        if (strcmp(routes->rules[i].pattern, name) == 0)
            return &routes->rules[i];
    for (size_t i = 0; i < routes->rule_count; i++)
        if (skr_route_matches(routes->rules[i].pattern, name))
            return &routes->rules[i];
    return NULL;
}

static const char *
first_of(const char *a, const char *b, const char *c, const char *d)
{
    return a != NULL ? a : b != NULL ? b : c != NULL ? c : d;
}

static enum skr_code
add_headers(struct skr_arena *arena, const struct skr_route_rule *rule,
            struct skr_message *message, struct skr_error *error)
{
    struct skr_headers headers = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < message->header_count; i++)
        ok = skr_headers_add(arena, &headers, message->headers[i].name,
                             message->headers[i].value);
    for (size_t i = 0; ok && i < rule->header_count; i++)
        ok = skr_headers_set(arena, &headers, rule->headers[i].name,
                             rule->headers[i].value);
    if (!ok)
        return skr_fail_memory(error);
    message->headers = headers.items;
    message->header_count = headers.count;
    return SKR_OK;
}

static const char *
first_two_words(struct skr_arena *arena, const char *name)
{
    size_t length = strcspn(name, ".");
    if (name[length] == '.')
        length += 1 + strcspn(name + length + 1, ".");
    return skr_arena_text(arena, name, length);
}

static const char *
find_header(const struct skr_envelope *envelope, const char *name)
{
    return skr_headers_find(envelope->headers.items, envelope->headers.count,
                            name);
}

static enum skr_code
find_exchange(const struct skr_route_sender *sender,
              const struct skr_route_rule *rule, struct skr_arena *arena,
              const struct skr_envelope *envelope, const char **exchange,
              struct skr_error *error)
{
    const char *name = envelope->message.name;
    *exchange = first_of(find_header(envelope, SKR_HEADER_EXCHANGE),
                         rule == NULL ? NULL : rule->exchange,
                         find_header(envelope, SKR_HEADER_TYPE_EXCHANGE),
                         sender->exchange);
    if (*exchange != NULL)
        return SKR_OK;
    if (skr_name_is_class(name))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "'%.120s' is a class without a message name, and the "
                        "transport has no exchange; add it to message_types "
                        "or set the transport's exchange.name",
                        name);
    *exchange = first_two_words(arena, name);
    return *exchange == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
find_topic(const struct skr_route_sender *sender,
           const struct skr_route_rule *rule, struct skr_arena *arena,
           const struct skr_envelope *envelope, const char **topic,
           struct skr_error *error)
{
    const char *name = envelope->message.name;
    *topic = first_of(find_header(envelope, SKR_HEADER_TOPIC),
                      rule == NULL ? NULL : rule->topic, sender->topic, NULL);
    if (*topic != NULL)
        return SKR_OK;
    if (skr_name_is_class(name))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "'%.120s' is a class without a message name, and the "
                        "transport has no topic; add it to message_types or "
                        "set the transport's topic",
                        name);
    *topic = sender->topics == SKR_TOPICS_TWO_WORDS
                 ? first_two_words(arena, name)
                 : name;
    return *topic == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
find_record(const struct skr_route_sender *sender,
            const struct skr_route_rule *rule, struct skr_arena *arena,
            const struct skr_envelope *envelope, struct skr_route *route,
            struct skr_error *error)
{
    const struct skr_message *message = &envelope->message;
    bool has_partition =
        message->partition_key != NULL && message->partition_key[0] != '\0';
    enum skr_code code =
        find_topic(sender, rule, arena, envelope, &route->topic, error);
    if (code != SKR_OK)
        return code;
    route->exchange = route->topic;
    route->key = first_of(find_header(envelope, SKR_HEADER_KEY),
                          rule == NULL ? NULL : rule->key,
                          has_partition ? message->partition_key : NULL, NULL);
    if (route->key == NULL) {
        char id[SKR_ID_TEXT_SIZE];
        skr_id_format(message->id, id);
        route->key = skr_arena_text(arena, id, SKR_ID_TEXT_SIZE - 1);
    }
    route->partition_key = has_partition ? message->partition_key : route->key;
    return route->key == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
find_place(const struct skr_route_sender *sender,
           const struct skr_route_rule *rule, struct skr_arena *arena,
           const struct skr_envelope *envelope, struct skr_route *route,
           struct skr_error *error)
{
    if (sender->is_one_queue)
        return SKR_OK;
    if (sender->topics != SKR_TOPICS_NONE)
        return find_record(sender, rule, arena, envelope, route, error);
    route->routing_key =
        first_of(find_header(envelope, SKR_HEADER_ROUTING_KEY),
                 rule == NULL ? NULL : rule->routing_key,
                 find_header(envelope, SKR_HEADER_TYPE_ROUTING_KEY),
                 sender->routing_key);
    if (route->routing_key == NULL)
        route->routing_key = envelope->message.name;
    return find_exchange(sender, rule, arena, envelope, &route->exchange,
                         error);
}

enum skr_code
skr_route_find(const struct skr_routes *routes, struct skr_arena *arena,
               struct skr_envelope *envelope, struct skr_route *route,
               struct skr_error *error)
{
    const char *name = envelope->message.name;
    const struct skr_route_rule *rule = find_rule(routes, name);
    *route = (struct skr_route){.exchange = "", .routing_key = ""};
    if (rule != NULL) {
        route->sender = rule->sender;
        route->unroutable = rule->unroutable;
    }
    const struct skr_route_sender *sender = &routes->senders[route->sender];
    enum skr_code code =
        find_place(sender, rule, arena, envelope, route, error);
    if (code == SKR_OK && rule != NULL && rule->header_count > 0)
        code = add_headers(arena, rule, &envelope->message, error);
    return code;
}
