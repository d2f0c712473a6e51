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

// What a message's place is chosen by.
struct choice {
    const struct skr_route_sender *sender;
    const struct skr_route_rule *rule;  // NULL: none
    struct skr_arena *arena;
    const struct skr_envelope *envelope;
};

// The exchange or topic that nothing else names. option is where it could be.
static enum skr_code
derive_place(const struct choice *choice, const char *what, const char *option,
             bool is_whole, const char **place, struct skr_error *error)
{
    const char *name = choice->envelope->message.name;
    if (skr_name_is_class(name))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "'%.120s' is a class without a message name, and the "
                        "transport has no %s; add it to message_types or set "
                        "the transport's %s",
                        name, what, option);
    *place = is_whole ? name : first_two_words(choice->arena, name);
    return *place == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
find_exchange(const struct choice *choice, const char **exchange,
              struct skr_error *error)
{
    const struct skr_envelope *envelope = choice->envelope;
    *exchange =
        first_of(skr_headers_get(&envelope->headers, SKR_HEADER_EXCHANGE),
                 choice->rule == NULL ? NULL : choice->rule->exchange,
                 skr_headers_get(&envelope->headers, SKR_HEADER_TYPE_EXCHANGE),
                 choice->sender->exchange);
    return *exchange != NULL ? SKR_OK
                             : derive_place(choice, "exchange", "exchange.name",
                                            false, exchange, error);
}

static enum skr_code
find_record(const struct choice *choice, struct skr_route *route,
            struct skr_error *error)
{
    const struct skr_envelope *envelope = choice->envelope;
    const struct skr_route_rule *rule = choice->rule;
    const struct skr_message *message = &envelope->message;
    bool has_partition =
        message->partition_key != NULL && message->partition_key[0] != '\0';
    route->topic = first_of(
        skr_headers_get(&envelope->headers, SKR_HEADER_TOPIC),
        rule == NULL ? NULL : rule->topic, choice->sender->topic, NULL);
    enum skr_code code =
        route->topic != NULL
            ? SKR_OK
            : derive_place(choice, "topic", "topic",
                           choice->sender->topics != SKR_TOPICS_TWO_WORDS,
                           &route->topic, error);
    if (code != SKR_OK)
        return code;
    route->exchange = route->topic;
    route->key = first_of(skr_headers_get(&envelope->headers, SKR_HEADER_KEY),
                          rule == NULL ? NULL : rule->key,
                          has_partition ? message->partition_key : NULL, NULL);
    if (route->key == NULL) {
        char id[SKR_ID_TEXT_SIZE];
        skr_id_format(message->id, id);
        route->key = skr_arena_text(choice->arena, id, SKR_ID_TEXT_SIZE - 1);
    }
    route->partition_key = has_partition ? message->partition_key : route->key;
    return route->key == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
find_place(const struct choice *choice, struct skr_route *route,
           struct skr_error *error)
{
    const struct skr_envelope *envelope = choice->envelope;
    if (choice->sender->is_one_queue)
        return SKR_OK;
    if (choice->sender->topics != SKR_TOPICS_NONE)
        return find_record(choice, route, error);
    route->routing_key = first_of(
        skr_headers_get(&envelope->headers, SKR_HEADER_ROUTING_KEY),
        choice->rule == NULL ? NULL : choice->rule->routing_key,
        skr_headers_get(&envelope->headers, SKR_HEADER_TYPE_ROUTING_KEY),
        choice->sender->routing_key);
    if (route->routing_key == NULL)
        route->routing_key = envelope->message.name;
    return find_exchange(choice, &route->exchange, error);
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
    const struct choice choice = {&routes->senders[route->sender], rule, arena,
                                  envelope};
    enum skr_code code = find_place(&choice, route, error);
    if (code == SKR_OK && rule != NULL && rule->header_count > 0)
        code = add_headers(arena, rule, &envelope->message, error);
    return code;
}
