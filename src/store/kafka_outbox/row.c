// SPDX-License-Identifier: MIT
// What a row says: a record of Kafka, or the reason why it is none.

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "message/json.h"
#include "store/identity.h"
#include "store/kafka_outbox/layout.h"

#include <string.h>

struct reading {
    struct skr_arena *arena;
    struct skr_headers *headers;
};

// Text as it is, null as no value at all, anything else as its JSON.
static enum skr_code
add_header(void *user, const struct skr_json *member, struct skr_error *error)
{
    struct reading *reading = user;
    struct skr_headers *headers = reading->headers;
    if (member->name == NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "they are JSON but not an object");
    enum skr_code code =
        skr_headers_take(reading->arena, member, headers, error);
    if (code != SKR_OK || member->kind != SKR_JSON_NULL)
        return code;
    // A list of headers is given no NULL for a value, and can hold one.
    for (size_t i = 0; i < headers->count; i++)
        if (strcmp(headers->items[i].name, member->name) == 0)
            headers->items[i].value = NULL;
    return SKR_OK;
}

static enum skr_code
read_headers(struct skr_arena *arena, const struct skr_value *column,
             struct skr_headers *headers, struct skr_error *error)
{
    struct reading reading = {.arena = arena, .headers = headers};
    enum skr_json_kind kind = SKR_JSON_NULL;
    if (column->kind == SKR_NULL || column->size == 0)
        return SKR_OK;
    enum skr_code code = skr_headers_check_size(column->size, error);
    if (code == SKR_OK)
        code = skr_json_walk(&(struct skr_json_walker){.arena = arena,
                                                       .take = add_header,
                                                       .user = &reading},
                             column->bytes, column->size, &kind, error);
    if (code == SKR_OK && kind != SKR_JSON_OBJECT && kind != SKR_JSON_NULL &&
        kind != SKR_JSON_ARRAY)
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "they are JSON but not an object");
    if (code == SKR_MALFORMED)
        skr_error_prefix(error, "error unmarshalling message headers for "
                                "publishing to Kafka");
    return code;
}

// "" is as good as none.
static enum skr_code
keep_text(struct skr_arena *arena, const struct skr_value *column,
          const char **text, struct skr_error *error)
{
    *text = NULL;
    if (column->kind == SKR_NULL || column->size == 0)
        return SKR_OK;
    *text = skr_arena_text(arena, column->bytes, column->size);
    return *text == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
read_place(struct skr_arena *arena, const struct skr_value *columns,
           struct skr_route *route, struct skr_error *error)
{
    enum skr_code code =
        keep_text(arena, &columns[KAFKA_OUTBOX_TOPIC], &route->topic, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[KAFKA_OUTBOX_KEY], &route->key, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[KAFKA_OUTBOX_PARTITION_KEY],
                         &route->partition_key, error);
    if (route->partition_key == NULL)
        route->partition_key = route->key;
    if (route->topic == NULL)
        route->topic = "";
    route->exchange = route->topic;
    route->routing_key = "";
    return code;
}

bool
skr_kafka_outbox_partition(const struct skr_value *columns,
                           struct skr_hash *partition)
{
    const struct skr_value *topic = &columns[KAFKA_OUTBOX_TOPIC];
    const struct skr_value *key = &columns[KAFKA_OUTBOX_PARTITION_KEY];
    if (key->kind == SKR_NULL || key->size == 0)
        key = &columns[KAFKA_OUTBOX_KEY];
    if (key->kind == SKR_NULL || key->size == 0)
        return false;
    *partition = skr_hash_add(skr_hash_start(), topic->bytes, topic->size);
    *partition = skr_hash_add(*partition, "", 1);
    *partition = skr_hash_add(*partition, key->bytes, key->size);
    return true;
}

size_t
skr_kafka_outbox_row_size(const struct skr_value *columns)
{
    return columns[KAFKA_OUTBOX_PAYLOAD].size +
           columns[KAFKA_OUTBOX_HEADERS].size;
}

static enum skr_code
read_payload(const struct skr_kafka_outbox *outbox, struct skr_arena *arena,
             const struct skr_value *column, struct skr_message *message,
             struct skr_error *error)
{
    if (column->kind == SKR_NULL)
        return outbox->publishes_tombstones
                   ? SKR_OK
                   : skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                              "payload_json is NULL: as a record without a "
                              "value it would delete what Kafka has of its "
                              "key; --publish-tombstones publishes such rows");
    message->body = skr_arena_text(arena, column->bytes, column->size);
    message->body_size = column->size;
    return message->body == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_kafka_outbox_take_row(const struct skr_kafka_outbox *outbox,
                          struct skr_batch *batch,
                          const struct skr_value *columns,
                          struct skr_error *error)
{
    int64_t attempts = columns[KAFKA_OUTBOX_ATTEMPTS].integer;
    struct skr_arena *arena = &batch->arena;
    struct skr_batch_item *item = &batch->items[batch->count];
    struct skr_headers headers = {0};
    *item = (struct skr_batch_item){
        .row = columns[KAFKA_OUTBOX_ID].integer,
        .size = skr_kafka_outbox_row_size(columns),
        .created_at =
            skr_identity_take(arena, &columns[KAFKA_OUTBOX_CREATED_AT]),
        .envelope.retry_count = attempts > 0 ? (uint32_t)attempts : 0,
    };
    if (item->created_at == NULL)
        return skr_fail_memory(error);
    struct skr_message *message = &item->envelope.message;
    enum skr_code code = read_place(arena, columns, &item->route, error);
    if (code != SKR_OK)
        return code;
    code = read_payload(outbox, arena, &columns[KAFKA_OUTBOX_PAYLOAD], message,
                        &item->reason);
    if (code == SKR_OK)
        code = read_headers(arena, &columns[KAFKA_OUTBOX_HEADERS], &headers,
                            &item->reason);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        item->state = SKR_DEAD;
    message->name = item->route.topic;
    message->content_type = "";
    message->headers = headers.items;
    message->header_count = headers.count;
    batch->count++;
    batch->bytes += item->size;
    return SKR_OK;
}
