// SPDX-License-Identifier: MIT
// From a row to an item of a batch.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/id.h"
#include "store/identity.h"
#include "store/messenger/layout.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_KEY_BYTES = 20 };

static struct skr_id
derive_id(const struct skr_messenger *messenger, const char *id_namespace,
          int64_t row, const char *created_at)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)row);
    struct skr_hash hash = skr_hash_start();
    hash = skr_hash_add_text(hash, id_namespace);
    hash = skr_hash_add_text(hash, messenger->table.name);
    hash = skr_hash_add_text(hash, messenger->table.queue);
    hash = skr_hash_add_text(hash, number);
    hash = skr_hash_add_text(hash, created_at);
    return skr_id_of_hash(hash);
}

// Bytes that no text column could hold stand in it as base64. The headers go on
// saying so, as they belong to the row.
static enum skr_code
read_body(struct skr_arena *arena, struct skr_envelope *envelope,
          struct skr_error *reason)
{
    struct skr_message *message = &envelope->message;
    const char *encoding =
        skr_headers_get(&envelope->headers, SKR_HEADER_BODY_ENCODING);
    if (encoding == NULL) {
        if (skr_text_is_storable(message->body, message->body_size))
            return SKR_OK;
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the body is not UTF-8 text");
    }
    void *bytes = skr_arena_take(arena, message->body_size + 1);
    if (bytes == NULL)
        return skr_fail_memory(reason);
    if (strcmp(encoding, "base64") != 0 ||
        !skr_text_from_base64(message->body, message->body_size, bytes,
                              &message->body_size))
        return skr_fail(
            reason, SKR_MALFORMED, SKR_GIVE_UP,
            "the body is not in base64, as the header " SKR_HEADER_BODY_ENCODING
            " says");
    message->body = bytes;
    return SKR_OK;
}

static enum skr_code
understand(const struct skr_messenger *messenger, const char *id_namespace,
           struct skr_arena *arena, struct skr_batch_item *item)
{
    struct skr_error *reason = &item->reason;
    struct skr_headers headers = {0};
    enum skr_code code = SKR_OK;
    if (messenger->limits_headers)
        code = skr_headers_check_size(item->raw_headers_size, reason);
    if (code == SKR_OK)
        code = skr_headers_parse(arena, item->raw_headers,
                                 item->raw_headers_size, &headers, reason);
    if (code != SKR_OK)
        return code;
    // Kept also when the next step fails: the failed table shows them.
    item->envelope.headers = headers;
    struct skr_envelope envelope = {0};
    code = skr_envelope_read(arena, &headers, NULL, messenger->names, &envelope,
                             reason);
    if (code != SKR_OK)
        return code;
    envelope.message.body = item->envelope.message.body;
    envelope.message.body_size = item->envelope.message.body_size;
    envelope.message.created_at_us = item->envelope.message.created_at_us;
    if (!envelope.has_id && id_namespace[0] != '\0') {
        envelope.message.id =
            derive_id(messenger, id_namespace, item->row, item->created_at);
        envelope.has_id = true;
    }
    // What a row is ordered by, a plain INSERT writes nowhere else.
    if (item->partition_key != NULL && item->partition_key[0] != '\0')
        envelope.message.partition_key = item->partition_key;
    item->envelope = envelope;
    code = read_body(arena, &item->envelope, reason);
    if (code != SKR_OK || !envelope.has_id)
        return code;
    return skr_envelope_to_wire(arena, messenger->id_header,
                                messenger->partition_header, &item->envelope,
                                reason);
}

static enum skr_code
understand_row(const struct skr_messenger *messenger, const char *id_namespace,
               const struct skr_value *columns, struct skr_batch *batch,
               struct skr_batch_item *item, struct skr_error *error)
{
    char created_at_utc[SKR_TIME_SIZE];
    const struct skr_value *utc = &columns[SKR_COLUMN_CREATED_AT_UTC];
    // What ids are derived from stays as it is written.
    item->created_at =
        skr_identity_take(&batch->arena, &columns[SKR_COLUMN_CREATED_AT]);
    if (item->created_at == NULL)
        return skr_fail_memory(error);
    skr_messenger_copy_time(
        utc->kind == SKR_NULL ? &columns[SKR_COLUMN_CREATED_AT] : utc,
        created_at_utc);
    // A time that cannot be read stays unknown; it decides nothing.
    (void)skr_clock_parse_timestamp(created_at_utc,
                                    &item->envelope.message.created_at_us);
    enum skr_code code =
        understand(messenger, id_namespace, &batch->arena, item);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        item->state = SKR_DEAD;
    return SKR_OK;
}

bool
skr_messenger_is_key(const struct skr_value *key)
{
    return key->kind == SKR_NULL ||
           (key->kind == SKR_TEXT && key->size < SKR_KEY_SIZE &&
            memchr(key->bytes, '\0', key->size) == NULL);
}

// No statement could find the rows of such a partition, so that each of them is
// for people to see.
static void
refuse_key(const struct skr_value *key, struct skr_batch_item *item)
{
    const unsigned char *bytes = key->bytes;
    char text[2 * SHOWN_KEY_BYTES + 1] = "";
    for (size_t i = 0; i < key->size && i < SHOWN_KEY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02X", bytes[i]);
    item->state = SKR_DEAD;
    skr_fail(&item->reason, SKR_MALFORMED, SKR_GIVE_UP,
             "the partition key, %s%s in hexadecimal, is not text of at most "
             "%d bytes without zero bytes; publish the message with such a "
             "key, or retry it without order",
             text, key->size > SHOWN_KEY_BYTES ? "..." : "", SKR_KEY_SIZE - 1);
}

static bool
take_key(const struct skr_value *key, struct skr_batch *batch,
         struct skr_batch_item *item)
{
    bool has_key = key->bytes != NULL && skr_messenger_is_key(key);
    item->partition_key = skr_arena_text(
        &batch->arena, has_key ? key->bytes : "", has_key ? key->size : 0);
    return item->partition_key != NULL;
}

enum skr_code
skr_messenger_take_row(const struct skr_messenger *messenger,
                       const char *id_namespace,
                       const struct skr_value *columns, struct skr_batch *batch,
                       struct skr_error *error)
{
    const struct skr_value *body = &columns[SKR_COLUMN_BODY];
    const struct skr_value *headers = &columns[SKR_COLUMN_HEADERS];
    int64_t marks = columns[SKR_COLUMN_MARKS].integer;
    struct skr_batch_item *item = &batch->items[batch->count];
    *item = (struct skr_batch_item){
        .row = columns[SKR_COLUMN_ID].integer,
        .size = body->size + headers->size,
        .redelivered = (marks & SKR_MARK_CLAIMED) != 0,
        .had_to_wait = (marks & SKR_MARK_WAITED) != 0,
        .raw_headers =
            skr_arena_text(&batch->arena, headers->bytes, headers->size),
        .raw_headers_size = headers->size,
        .envelope.message.body = skr_arena_text(
            &batch->arena, body->bytes == NULL ? "" : body->bytes, body->size),
        .envelope.message.body_size = body->size,
    };
    if (item->raw_headers == NULL || item->envelope.message.body == NULL)
        return skr_fail_memory(error);
    const struct skr_value *key = &columns[SKR_COLUMN_PARTITION];
    bool has_order = messenger->table.partitions != NULL;
    bool is_ready = !has_order || body->kind != SKR_NULL;
    enum skr_code code = SKR_OK;
    if (has_order && !take_key(key, batch, item))
        return skr_fail_memory(error);
    if (is_ready)
        code = understand_row(messenger, id_namespace, columns, batch, item,
                              error);
    else
        item->state = SKR_NOT_READY;
    if (code != SKR_OK)
        return code;
    if (has_order && is_ready && !skr_messenger_is_key(key))
        refuse_key(key, item);
    // The column decides, whatever a header says: a plain INSERT has none.
    if (item->partition_key != NULL && item->partition_key[0] != '\0')
        item->envelope.message.partition_key = item->partition_key;
    batch->count++;
    batch->bytes += item->size;
    return SKR_OK;
}
