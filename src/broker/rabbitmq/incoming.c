// SPDX-License-Identifier: MIT
// A message of RabbitMQ as a consumer sees it.

#include "base/error.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <string.h>

enum { MOST_COUNT = 1000000 };

static bool
is_text(struct rabbit_piece piece)
{
    return piece.size > 0 && skr_text_is_storable(piece.bytes, piece.size);
}

static uint64_t
number_of(struct rabbit_piece piece)
{
    uint64_t number = 0;
    for (size_t i = 0; i < piece.size; i++)
        number = number << 8 | piece.bytes[i];
    return number;
}

// A property that stands in for a header that is missing.
static enum skr_code
add_missing(struct skr_arena *arena, struct skr_headers *headers,
            const char *name, struct rabbit_piece piece,
            struct skr_error *error)
{
    if (!is_text(piece) ||
        skr_headers_find(headers->items, headers->count, name) != NULL)
        return SKR_OK;
    const char *value =
        skr_arena_text(arena, (const char *)piece.bytes, piece.size);
    return skr_headers_add(arena, headers, name, value)
               ? SKR_OK
               : skr_fail_memory(error);
}

// How often it was tried before: Symfony's stamp says so, and x-death where a
// queue of ours has a dead letter exchange that leads back to it.
static enum skr_code
read_retry_count(struct skr_arena *arena, const char *queue,
                 struct rabbit_piece table, struct skr_incoming *incoming,
                 struct skr_error *error)
{
    const struct skr_headers *headers = &incoming->headers;
    const char *stamp =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_REDELIVERY);
    const char *text = NULL;
    int64_t count = 0;
    incoming->retry_count = skr_rabbit_rejections(table, queue);
    if (stamp == NULL)
        return SKR_OK;
    enum skr_code code =
        skr_stamp_read(arena, stamp, "retryCount", &text, error);
    if (code == SKR_OK && text != NULL &&
        skr_text_number(text, 0, INT64_MAX, &count) &&
        count > incoming->retry_count)
        incoming->retry_count =
            count > MOST_COUNT ? MOST_COUNT : (uint32_t)count;
    return code;
}

static enum skr_code
read_properties(struct skr_arena *arena, const char *queue,
                struct rabbit_piece raw, struct skr_incoming *incoming,
                struct skr_error *error)
{
    struct rabbit_properties properties = {0};
    enum skr_code code = skr_rabbit_properties_read(raw, &properties, error);
    if (code != SKR_OK)
        return code;
    const struct rabbit_piece *pieces = properties.pieces;
    struct rabbit_piece table = pieces[RABBIT_HEADERS];
    if (is_text(pieces[RABBIT_MESSAGE_ID])) {
        incoming->broker_id =
            skr_arena_text(arena, (const char *)pieces[RABBIT_MESSAGE_ID].bytes,
                           pieces[RABBIT_MESSAGE_ID].size);
        if (incoming->broker_id == NULL)
            return skr_fail_memory(error);
    }
    uint64_t seconds = number_of(pieces[RABBIT_TIMESTAMP]);
    // Later than any clock: no time at all.
    if (seconds <= INT64_MAX / 1000000)
        incoming->created_at_us = (int64_t)seconds * 1000000;
    incoming->delivery_count = skr_rabbit_delivery_count(table);
    if (incoming->delivery_count > 0)
        incoming->redelivered = true;
    code = skr_rabbit_headers_read(arena, table, &incoming->headers, error);
    if (code == SKR_OK)
        code = add_missing(arena, &incoming->headers, SKR_HEADER_TYPE,
                           pieces[RABBIT_TYPE], error);
    if (code == SKR_OK)
        code = add_missing(arena, &incoming->headers, SKR_HEADER_CONTENT_TYPE,
                           pieces[RABBIT_CONTENT_TYPE], error);
    if (code == SKR_OK)
        code = read_retry_count(arena, queue, table, incoming, error);
    return code;
}

bool
skr_rabbit_delivery_was_out(const struct rabbit_delivery *delivery)
{
    const struct rabbit_piece raw = {.bytes = delivery->block,
                                     .size = delivery->properties_size};
    struct rabbit_properties properties = {0};
    return skr_rabbit_properties_read(raw, &properties, NULL) == SKR_OK &&
           skr_rabbit_delivery_count(properties.pieces[RABBIT_HEADERS]) > 0;
}

enum skr_code
skr_rabbit_incoming_fill(struct skr_arena *arena, const char *queue,
                         const struct rabbit_delivery *delivery, uint64_t tag,
                         struct skr_incoming *incoming, struct skr_error *error)
{
    const struct rabbit_piece raw = {.bytes = delivery->block,
                                     .size = delivery->properties_size};
    struct skr_error problem = {0};
    *incoming = (struct skr_incoming){
        .body = delivery->block + delivery->properties_size,
        .body_size = delivery->body_size,
        .redelivered = delivery->redelivered,
        .handle = tag,
    };
    enum skr_code code = read_properties(arena, queue, raw, incoming, &problem);
    if (code == SKR_MALFORMED) {
        incoming->headers = (struct skr_headers){0};
        incoming->raw_headers = (const char *)raw.bytes;
        incoming->raw_headers_size = raw.size;
        incoming->problem = problem;
        return SKR_OK;
    }
    if (code != SKR_OK && error != NULL)
        *error = problem;
    return code;
}
