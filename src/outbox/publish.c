// SPDX-License-Identifier: MIT
// Publishing: a message becomes a row in the caller's own transaction.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/json.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/messenger.h"
#include "store/schema.h"

#include <skirnir/skirnir.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct skr_outbox {
    struct skr_arena arena;
    const char *table;
    const char *queue;
    const char *time_zone;
    const char *id_header;
    bool is_ordered;
    bool is_kafka;
    const char *topic;        // NULL: the name of each message
    atomic_bool *is_checked;  // the table was seen to roll back
};

enum { LONGEST_TOPIC = 249 };

static enum skr_code
check_topic(const struct skr_outbox_options *options, struct skr_error *error)
{
    if (options->topic == NULL)
        return SKR_OK;
    size_t size = strlen(options->topic);
    if (options->is_kafka && size > 0 && size <= LONGEST_TOPIC &&
        strspn(options->topic, "abcdefghijklmnopqrstuvwxyz0123456789"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == size)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "topic '%.80s': 1 to %d letters, digits, dots, underscores "
                    "and hyphens are needed, and is_kafka",
                    options->topic, LONGEST_TOPIC);
}

enum skr_code
skr_outbox_new(const struct skr_outbox_options *options,
               struct skr_outbox **outbox, struct skr_error *error)
{
    const struct skr_outbox_options defaults = {0};
    if (options == NULL)
        options = &defaults;
    const char *table = options->table;
    if (table == NULL)
        table = options->is_kafka ? "kafka_outbox" : "messenger_outbox";
    const char *queue = options->queue == NULL ? "outbox" : options->queue;
    enum skr_code code = skr_messenger_check_names(table, queue, error);
    if (code == SKR_OK)
        code = check_topic(options, error);
    if (code != SKR_OK)
        return code;
    struct skr_outbox *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->is_ordered = options->is_ordered;
    made->is_kafka = options->is_kafka;
    if (options->topic != NULL)
        made->topic = skr_arena_text(&made->arena, options->topic,
                                     strlen(options->topic));
    made->table = skr_arena_text(&made->arena, table, strlen(table));
    made->queue = skr_arena_text(&made->arena, queue, strlen(queue));
    const char *zone = options->time_zone == NULL ? "UTC" : options->time_zone;
    made->time_zone = skr_arena_text(&made->arena, zone, strlen(zone));
    made->is_checked = skr_arena_take(&made->arena, sizeof(*made->is_checked));
    if (made->is_checked != NULL)
        atomic_init(made->is_checked, false);
    code = made->table == NULL || made->queue == NULL ||
                   made->time_zone == NULL || made->is_checked == NULL ||
                   (options->topic != NULL && made->topic == NULL)
               ? skr_fail_memory(error)
               : skr_envelope_id_header(&made->arena, options->stamp_namespace,
                                        &made->id_header, error);
    if (code != SKR_OK) {
        skr_outbox_free(made);
        return code;
    }
    *outbox = made;
    return SKR_OK;
}

void
skr_outbox_free(struct skr_outbox *outbox)
{
    if (outbox == NULL)
        return;
    skr_arena_fini(&outbox->arena);
    free(outbox);
}

static bool
is_unset(struct skr_id id)
{
    static const struct skr_id unset;
    return memcmp(&id, &unset, sizeof(id)) == 0;
}

// What kafka_outbox has no column for, or a column that takes less.
static enum skr_code
check_record(const struct skr_message *message, struct skr_error *error)
{
    enum skr_json_kind kind;
    if (message->due_at_us != 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has a due time, which kafka_outbox does "
                        "not know",
                        message->name);
    enum skr_code code =
        skr_json_scan(message->body, message->body_size, 0, &kind, error);
    if (code == SKR_MALFORMED) {
        error->code = code = SKR_INVALID;
        skr_error_prefix(error, "message %s: its body must be JSON",
                         message->name);
    }
    return code;
}

// A relay would find the row malformed.
static enum skr_code
check_headers_size(const struct skr_message *message, size_t size,
                   struct skr_error *error)
{
    enum skr_code code = skr_headers_check_size(size, error);
    if (code == SKR_OK)
        return SKR_OK;
    skr_error_prefix(error, "message %s", message->name);
    if (error != NULL)
        error->code = SKR_INVALID;
    return SKR_INVALID;
}

// A key that no column takes would promise an order that nothing keeps.
static enum skr_code
check_partition_key(const struct skr_outbox *outbox,
                    const struct skr_message *message, struct skr_error *error)
{
    const char *key = message->partition_key;
    if (outbox->is_ordered && key == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has no partition key, which this ordered "
                        "outbox needs; give one, such as the id of what it is "
                        "about, or \"\" if its order does not matter",
                        message->name);
    if (outbox->is_ordered || outbox->is_kafka || key == NULL || key[0] == '\0')
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "message %s has the partition key '%.80s', but this outbox "
                    "keeps no order; leave the key out, or make it an ordered "
                    "outbox (is_ordered; ordered-doctrine:// in the "
                    "configuration)",
                    message->name, key);
}

// Every message is checked, and has its row ready, before the first is
// written: a mistake in the last leaves the caller's transaction untouched.
static enum skr_code
make_row(const struct skr_outbox *outbox, struct skr_message *message,
         struct skr_arena *arena, struct skr_messenger_row *row,
         struct skr_error *error)
{
    enum skr_code code = skr_message_check(message, error);
    if (code == SKR_OK)
        code = check_partition_key(outbox, message, error);
    if (code == SKR_OK && outbox->is_kafka)
        code = check_record(message, error);
    if (code == SKR_OK && is_unset(message->id))
        code = skr_id_new(&message->id, error);
    if (code != SKR_OK)
        return code;
    struct skr_text json = {0};
    code = skr_message_write_headers(message, arena, outbox->id_header, &json,
                                     error);
    if (code == SKR_OK)
        code = check_headers_size(message, json.size, error);
    if (code == SKR_OK) {
        *row = (struct skr_messenger_row){
            .body = message->body,
            .body_size = message->body_size,
            .headers = skr_arena_text(arena, json.bytes, json.size),
            .headers_size = json.size,
            .partition_key = outbox->is_ordered ? message->partition_key : NULL,
            .due_at_us = message->due_at_us,
        };
        if (row->headers == NULL)
            code = skr_fail_memory(error);
    }
    skr_text_fini(&json);
    return code;
}

static int
compare_ids(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct skr_id));
}

// A consumer takes the second message of an id for a duplicate of the first and
// drops it: a mistake that must not go unseen.
static enum skr_code
refuse_equal_ids(struct skr_arena *arena, const struct skr_id *ids,
                 size_t count, struct skr_error *error)
{
    struct skr_id *sorted = skr_arena_take(arena, count * sizeof(*sorted));
    if (sorted == NULL)
        return skr_fail_memory(error);
    memcpy(sorted, ids, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_ids);
    for (size_t i = 1; i < count; i++)
        if (compare_ids(&sorted[i - 1], &sorted[i]) == 0) {
            char text[SKR_ID_TEXT_SIZE];
            skr_id_format(sorted[i], text);
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "two messages have the id %s; leave it zero to "
                            "have one made for each",
                            text);
        }
    return SKR_OK;
}

static enum skr_code
make_rows(const struct skr_outbox *outbox, const struct skr_message *messages,
          size_t count, struct skr_arena *arena, struct skr_messenger_row *rows,
          struct skr_id *ids, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        struct skr_message message = messages[i];
        code = make_row(outbox, &message, arena, &rows[i], error);
        ids[i] = message.id;
    }
    return code != SKR_OK ? code : refuse_equal_ids(arena, ids, count, error);
}

// A table that keeps what is rolled back would break the promise. Asked once:
// the answer costs a round trip where there are such tables.
static enum skr_code
check_engine(const struct skr_outbox *outbox, struct skr_tx tx,
             struct skr_error *error)
{
    if (atomic_load(outbox->is_checked))
        return SKR_OK;
    enum skr_code code = skr_schema_check_engine(tx, outbox->table, error);
    if (code == SKR_OK)
        atomic_store(outbox->is_checked, true);
    return code;
}

static enum skr_code
insert_records(const struct skr_outbox *outbox, struct skr_tx tx,
               const struct skr_message *messages,
               const struct skr_messenger_row *rows, const struct skr_id *ids,
               size_t count, struct skr_arena *arena, struct skr_error *error)
{
    struct skr_kafka_outbox_row *records =
        skr_arena_take(arena, count * sizeof(*records));
    char(*keys)[SKR_ID_TEXT_SIZE] =
        skr_arena_take(arena, count * sizeof(*keys));
    if (records == NULL || keys == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const char *key = messages[i].partition_key;
        skr_id_format(ids[i], keys[i]);
        records[i] = (struct skr_kafka_outbox_row){
            .topic = outbox->topic == NULL ? messages[i].name : outbox->topic,
            .payload = rows[i].body,
            .payload_size = rows[i].body_size,
            .headers = rows[i].headers,
            .headers_size = rows[i].headers_size,
            .key = key == NULL || key[0] == '\0' ? keys[i] : key,
        };
    }
    return skr_kafka_outbox_insert(tx, outbox->table, records, count, error);
}

enum skr_code
skr_publish(const struct skr_outbox *outbox, struct skr_tx tx,
            const struct skr_message *messages, size_t count,
            struct skr_id *ids, struct skr_error *error)
{
    if (outbox == NULL || tx.ops == NULL || tx.connection == NULL ||
        (messages == NULL && count > 0))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_publish: outbox, connection and messages must "
                        "not be NULL");
    enum skr_code code = tx.ops->check(tx, error);
    if (code != SKR_OK || count == 0)
        return code;
    struct skr_arena arena = {0};
    struct skr_messenger_row *rows = NULL;
    struct skr_id *made = NULL;
    if (count <= SIZE_MAX / sizeof(*rows)) {
        rows = skr_arena_take(&arena, count * sizeof(*rows));
        made = skr_arena_take(&arena, count * sizeof(*made));
    }
    code = rows == NULL || made == NULL
               ? skr_fail_memory(error)
               : make_rows(outbox, messages, count, &arena, rows, made, error);
    if (code == SKR_OK)
        code = check_engine(outbox, tx, error);
    if (code == SKR_OK && outbox->is_kafka)
        code = insert_records(outbox, tx, messages, rows, made, count, &arena,
                              error);
    else if (code == SKR_OK)
        code = skr_messenger_insert(tx, outbox->table, outbox->queue,
                                    outbox->time_zone, rows, count, error);
    if (code == SKR_MISSING)
        skr_error_prefix(error, outbox->is_kafka
                                    ? "start `skirnir kafka-relay` first"
                                    : "run `skirnir setup` first");
    if (code == SKR_OK && ids != NULL)
        memcpy(ids, made, count * sizeof(*ids));
    skr_arena_fini(&arena);
    return code;
}
