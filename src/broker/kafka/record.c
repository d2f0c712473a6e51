// SPDX-License-Identifier: MIT
// A record of Kafka as a consumer sees it.

#include "broker/kafka/kafka.h"

#include "base/error.h"
#include "base/text.h"
#include "message/id.h"

#include <stdio.h>
#include <string.h>

// With the type, the place and what failing adds there are never too many.
enum { MOST_HEADERS = SKR_MAX_HEADERS - 10 };

// A record that was made of another may bring them along.
static bool
tells_of_place(const char *header)
{
    static const char *const places[] = {
        SKR_HEADER_KAFKA_TOPIC,      SKR_HEADER_KAFKA_PARTITION,
        SKR_HEADER_KAFKA_OFFSET,     SKR_HEADER_KAFKA_KEY,
        SKR_HEADER_KAFKA_KEY_BASE64,
    };
    return skr_text_is_among(header, places, SKR_COUNT_OF(places));
}

static enum skr_code
read_headers(struct skr_arena *arena, const rd_kafka_message_t *message,
             struct skr_headers *headers, struct skr_error *error)
{
    rd_kafka_headers_t *list = NULL;
    const char *name, *text;
    const void *value;
    size_t size, all = 0;
    if (rd_kafka_message_headers(message, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return SKR_OK;
    for (size_t i = 0; rd_kafka_header_get_all(list, i, &name, &value, &size) ==
                       RD_KAFKA_RESP_ERR_NO_ERROR;
         i++) {
        if (i >= MOST_HEADERS)
            return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                            "the record has more than %d headers",
                            MOST_HEADERS);
        if (!skr_text_is_storable(name, strlen(name)))
            return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                            "the name of header %zu is not UTF-8", i + 1);
        all += strlen(name) + size;
        enum skr_code code = skr_headers_check_size(all, error);
        if (code != SKR_OK)
            return code;
        if (tells_of_place(name) || skr_headers_is_reserved(name))
            continue;
        text = value == NULL ? "null" : skr_arena_storable(arena, value, size);
        name = skr_arena_text(arena, name, strlen(name));
        if (text == NULL || name == NULL ||
            !skr_headers_add(arena, headers, name, text))
            return skr_fail_memory(error);
    }
    return SKR_OK;
}

// Producers that know nothing of types name the topic after what it holds.
static enum skr_code
add_type(struct skr_arena *arena, const char *topic,
         struct skr_headers *headers, struct skr_error *error)
{
    if (skr_headers_get(headers, SKR_HEADER_TYPE) != NULL)
        return SKR_OK;
    const char *type = skr_arena_text(arena, topic, strlen(topic));
    return type != NULL &&
                   skr_headers_add(arena, headers, SKR_HEADER_TYPE, type)
               ? SKR_OK
               : skr_fail_memory(error);
}

// So that one that failed can be found again.
static enum skr_code
add_place(struct skr_arena *arena, const rd_kafka_message_t *message,
          struct skr_headers *headers, struct skr_error *error)
{
    const char *topic =
        skr_arena_format(arena, "%s", rd_kafka_topic_name(message->rkt));
    const char *partition =
        skr_arena_format(arena, "%d", (int)message->partition);
    const char *offset =
        skr_arena_format(arena, "%lld", (long long)message->offset);
    bool ok = topic != NULL && partition != NULL && offset != NULL &&
              skr_headers_add(arena, headers, SKR_HEADER_KAFKA_TOPIC, topic) &&
              skr_headers_add(arena, headers, SKR_HEADER_KAFKA_PARTITION,
                              partition) &&
              skr_headers_add(arena, headers, SKR_HEADER_KAFKA_OFFSET, offset);
    if (ok && message->key != NULL) {
        bool is_text = skr_text_is_storable(message->key, message->key_len);
        const char *key =
            skr_arena_storable(arena, message->key, message->key_len);
        ok = key != NULL &&
             skr_headers_add(arena, headers,
                             is_text ? SKR_HEADER_KAFKA_KEY
                                     : SKR_HEADER_KAFKA_KEY_BASE64,
                             key);
    }
    return ok ? SKR_OK : skr_fail_memory(error);
}

// An id of the record's place. A topic that is deleted and made again gives
// the same places anew, at another time.
static enum skr_code
derive_id(struct skr_arena *arena, const rd_kafka_message_t *message,
          int64_t created_at_us, const char **id, struct skr_error *error)
{
    char place[80], text[SKR_ID_TEXT_SIZE];
    snprintf(place, sizeof(place), "%d %lld %lld", (int)message->partition,
             (long long)message->offset, (long long)created_at_us);
    struct skr_hash hash =
        skr_hash_add_text(skr_hash_start(), rd_kafka_topic_name(message->rkt));
    hash = skr_hash_add_text(hash, place);
    skr_id_format(skr_id_of_hash(hash), text);
    return skr_arena_keep(arena, text, id, error);
}

static enum skr_code
read_record(const struct kafka_broker *broker, struct skr_arena *arena,
            const rd_kafka_message_t *message, struct skr_incoming *incoming,
            struct skr_error *error)
{
    rd_kafka_timestamp_type_t kind;
    int64_t time_ms = rd_kafka_message_timestamp(message, &kind);
    if (kind != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && time_ms > 0 &&
        time_ms < INT64_MAX / 1000)
        incoming->created_at_us = time_ms * 1000;
    enum skr_code code = SKR_OK;
    if (broker->settings.derives_ids)
        code = derive_id(arena, message, incoming->created_at_us,
                         &incoming->broker_id, error);
    if (code == SKR_OK)
        code = read_headers(arena, message, &incoming->headers, error);
    if (code == SKR_OK)
        code = add_type(arena, rd_kafka_topic_name(message->rkt),
                        &incoming->headers, error);
    if (code == SKR_OK)
        code = add_place(arena, message, &incoming->headers, error);
    return code;
}

enum skr_code
skr_kafka_record_read(const struct kafka_broker *broker,
                      struct skr_arena *arena,
                      const struct kafka_delivery *delivery,
                      struct skr_incoming *incoming, struct skr_error *error)
{
    const rd_kafka_message_t *message = delivery->message;
    const struct kafka_assigned *assigned = delivery->assigned;
    struct skr_error problem = {0};
    *incoming = (struct skr_incoming){
        .body = message->payload == NULL ? "" : message->payload,
        .body_size = message->payload == NULL ? 0 : message->len,
        .retry_count = delivery->retry_count,
        .redelivered = delivery->retry_count == 0 &&
                       message->offset < assigned->suspect_end,
        .handle = (uint64_t)(uintptr_t)delivery,
        .partition = assigned->number,
    };
    enum skr_code code =
        read_record(broker, arena, message, incoming, &problem);
    if (code == SKR_MALFORMED) {
        incoming->headers = (struct skr_headers){0};
        incoming->raw_headers = "";
        incoming->problem = problem;
        skr_error_prefix(&incoming->problem,
                         "topic %.100s, partition %d, offset %lld",
                         assigned->topic, (int)message->partition,
                         (long long)message->offset);
        return SKR_OK;
    }
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &problem);
}
