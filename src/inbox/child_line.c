// SPDX-License-Identifier: MIT
// The lines of JSON that a consumer and a handler's process exchange.

#include "inbox/child.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/headers.h"
#include "message/id.h"
#include "message/json.h"

#include <stdlib.h>
#include <string.h>

static void
write_headers(struct skr_json_writer *writer, const struct skr_message *message)
{
    skr_json_write_name(writer, "headers");
    skr_json_begin_object(writer);
    for (size_t i = 0; i < message->header_count; i++)
        skr_json_write_member(writer, message->headers[i].name,
                              message->headers[i].value);
    skr_json_end_object(writer);
}

// JSON is text: what is none travels in an encoding, and says so.
static void
write_body(struct skr_json_writer *writer, const struct skr_message *message)
{
    const char *body = message->body_size == 0 ? "" : message->body;
    if (skr_text_is_storable(body, message->body_size)) {
        skr_json_write_member(writer, "body_encoding", "text");
        skr_json_write_name(writer, "body");
        skr_json_write_text(writer, body, message->body_size);
        return;
    }
    char *encoded = skr_text_base64(body, message->body_size);
    skr_json_write_member(writer, "body_encoding", "base64");
    skr_json_write_member(writer, "body", encoded);
    if (encoded == NULL)
        skr_fail_memory(&writer->error);
    free(encoded);
}

enum skr_code
skr_child_write_line(const struct skr_delivery *delivery,
                     const struct skr_record_place *record, uint64_t number,
                     struct skr_text *line, struct skr_error *error)
{
    const struct skr_message *message = &delivery->message;
    struct skr_json_writer writer = {0};
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    skr_json_begin_object(&writer);
    skr_json_write_name(&writer, "delivery");
    skr_json_write_unsigned(&writer, number);
    skr_json_write_member(&writer, "id",
                          skr_id_is_unset(message->id) ? NULL : id);
    skr_json_write_member(&writer, "name", message->name);
    skr_json_write_member(&writer, "type",
                          skr_headers_find(message->headers,
                                           message->header_count,
                                           SKR_HEADER_TYPE));
    skr_json_write_name(&writer, "attempt");
    skr_json_write_unsigned(&writer, delivery->attempt);
    skr_json_write_member(&writer, "source", delivery->source);
    skr_json_write_member(&writer, "partition_key", message->partition_key);
    skr_json_write_member(&writer, "content_type", message->content_type);
    skr_json_write_member(&writer, "traceparent", message->traceparent);
    skr_json_write_member(&writer, "tracestate", message->tracestate);
    skr_json_write_name(&writer, "deduplication");
    skr_json_begin_object(&writer);
    skr_json_write_member(&writer, "table", record->table);
    skr_json_write_member(&writer, "name", record->name);
    skr_json_end_object(&writer);
    write_headers(&writer, message);
    write_body(&writer, message);
    skr_json_end_object(&writer);
    skr_text_add_string(&writer.text, "\n");
    if (writer.error.code == SKR_OK && writer.text.broken)
        skr_fail_memory(&writer.error);
    if (writer.error.code == SKR_OK) {
        *line = writer.text;
        return SKR_OK;
    }
    skr_text_fini(&writer.text);
    return skr_fail_with(error, &writer.error);
}

static enum skr_code
find_text(const struct skr_json *json, const char *name, const char **text,
          struct skr_error *error)
{
    const struct skr_json *member = skr_json_find(json, name);
    size_t size = 0;
    *text = NULL;
    if (member == NULL || skr_json_kind(member) == SKR_JSON_NULL)
        return SKR_OK;
    enum skr_code code = skr_json_read_text(member, text, &size, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "%s", name);
    return code;
}

static enum skr_code
parse_object(const char *line, size_t size, struct skr_arena *arena,
             struct skr_json **json, struct skr_error *error)
{
    enum skr_code code = skr_json_parse(arena, arena, line, size, json, error);
    if (code == SKR_OK && skr_json_kind(*json) != SKR_JSON_OBJECT)
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a JSON object is needed");
    return code;
}

enum skr_code
skr_child_read_answer(const char *line, size_t size, struct skr_arena *arena,
                      struct skr_answer *answer, struct skr_error *error)
{
    static const char *const words[] = {[SKR_ACCEPT] = "accept",
                                        [SKR_RETRY] = "retry",
                                        [SKR_REJECT] = "reject"};
    struct skr_json *json = NULL;
    struct skr_answer read = {0};
    const char *word = NULL;
    enum skr_code code = parse_object(line, size, arena, &json, error);
    if (code != SKR_OK)
        return code;
    const struct skr_json *number = skr_json_find(json, "delivery");
    if (number == NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the number \"delivery\" of the message is missing");
    code = skr_json_read_unsigned(number, &read.number, error);
    if (code == SKR_OK)
        code = find_text(json, "error", &read.error, error);
    if (code == SKR_OK)
        code = find_text(json, "verdict", &word, error);
    if (code != SKR_OK)
        return code;
    read.waits = word != NULL && strcmp(word, "wait") == 0;
    const char *verdict = read.waits ? words[SKR_RETRY] : word;
    for (size_t i = 0; verdict != NULL && i < SKR_COUNT_OF(words); i++)
        if (strcmp(verdict, words[i]) == 0) {
            read.verdict = (enum skr_verdict)i;
            *answer = read;
            return SKR_OK;
        }
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "\"verdict\" is %s%.40s; accept, retry, wait or reject is "
                    "needed",
                    word == NULL ? "missing" : "", word == NULL ? "" : word);
}

// False: it is no word for who records.
static bool
read_recorder(const struct skr_json *json, enum skr_recorder *recorder)
{
    const struct skr_json *member = skr_json_find(json, "deduplicates");
    const char *word = NULL;
    struct skr_error ignored;
    bool says = false;
    if (member == NULL)
        return true;
    if (skr_json_read_boolean(member, &says, &ignored) == SKR_OK) {
        *recorder = says ? SKR_RECORDER_HANDLER : SKR_RECORDER_CONSUMER;
        return true;
    }
    *recorder = SKR_RECORDER_OWN;
    return find_text(json, "deduplicates", &word, &ignored) == SKR_OK &&
           word != NULL && strcmp(word, "own") == 0;
}

bool
skr_child_is_ready_line(const char *line, size_t size, struct skr_arena *arena,
                        enum skr_recorder *recorder)
{
    struct skr_json *json = NULL;
    struct skr_error ignored;
    bool is_ready = false;
    if (parse_object(line, size, arena, &json, &ignored) != SKR_OK)
        return false;
    const struct skr_json *member = skr_json_find(json, "ready");
    return member != NULL &&
           skr_json_read_boolean(member, &is_ready, &ignored) == SKR_OK &&
           is_ready && read_recorder(json, recorder);
}
