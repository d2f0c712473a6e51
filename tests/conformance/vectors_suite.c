// SPDX-License-Identifier: MIT
// clients/vectors: the rows that skr_publish writes and the lines that a
// consumer and a worker exchange are those that each client is tested against.

#include "base/text.h"
#include "conformance/databases.h"
#include "db/sql.h"
#include "inbox/child.h"
#include "message/json.h"

#include <skirnir/typed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSENGER                                             \
    " (body TEXT, headers TEXT, queue_name VARCHAR(190), "    \
    "partition_key VARCHAR(255), created_at TIMESTAMP NULL, " \
    "available_at TIMESTAMP NULL)"

enum { MOST_HEADERS = 8, BODY_SIZE = 64 };

struct fixture {
    struct skr_test_database database;
    struct skr_test_client client;
    struct skr_db *db;  // to look from outside
    struct skr_arena arena;
};

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    skr_test_run(fixture->db, "CREATE TABLE messenger_outbox" MESSENGER);
    skr_test_run(fixture->db, "CREATE TABLE Other_Outbox" MESSENGER);
    skr_test_run_template(fixture->db,
                          "CREATE TABLE kafka_outbox (topic VARCHAR(255), "
                          "payload_json TEXT, payload_headers TEXT, {key} "
                          "VARCHAR(255))",
                          NULL, 0);
    fixture->client = skr_test_client_open(&fixture->database);
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_test_client_close(&fixture->client);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    skr_arena_fini(&fixture->arena);
    free(fixture);
    return 0;
}

static const struct skr_json *
read_vectors(struct skr_arena *arena, const char *name)
{
    char path[512];
    struct skr_text text = {0};
    char bytes[4096];
    struct skr_json *json = NULL;
    struct skr_error error = {0};
    size_t size;
    snprintf(path, sizeof(path), "%s/%s", getenv("SKR_VECTORS"), name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be read", path);
    while ((size = fread(bytes, 1, sizeof(bytes), file)) > 0)
        skr_text_add(&text, bytes, size);
    fclose(file);
    if (skr_json_parse(arena, arena, text.bytes, text.size, &json, &error) !=
        SKR_OK)
        fail_msg("%s: %s", path, error.text);
    skr_text_fini(&text);
    return json->first;
}

// NULL where there is no such member.
static const char *
text_of(const struct skr_json *object, const char *name)
{
    const struct skr_json *member =
        object == NULL ? NULL : skr_json_find(object, name);
    return member == NULL || member->kind != SKR_JSON_TEXT ? NULL
                                                           : member->text;
}

static bool
is_true(const struct skr_json *object, const char *name)
{
    const struct skr_json *member =
        object == NULL ? NULL : skr_json_find(object, name);
    return member != NULL && member->truth;
}

static size_t
take_headers(const struct skr_json *object,
             struct skr_header headers[MOST_HEADERS])
{
    size_t count = 0;
    if (object == NULL)
        return 0;
    for (const struct skr_json *at = object->first; at != NULL; at = at->next) {
        assert_true(count < MOST_HEADERS);
        headers[count++] = (struct skr_header){at->name, at->text};
    }
    return count;
}

static void
take_body(const struct skr_json *given, char bytes[BODY_SIZE],
          struct skr_message *message)
{
    const struct skr_json *body = skr_json_find(given, "body");
    const char *hex = text_of(given, "body_hex");
    message->body = body == NULL ? bytes : body->text;
    message->body_size = body == NULL ? strlen(hex) / 2 : body->text_size;
    for (size_t i = 0; body == NULL && i < message->body_size; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (char)byte;
    }
}

static enum skr_code
publish(struct fixture *fixture, const struct skr_json *vector,
        struct skr_error *error)
{
    const struct skr_json *options = skr_json_find(vector, "outbox");
    const struct skr_json *given = skr_json_find(vector, "message");
    struct skr_header headers[MOST_HEADERS];
    struct skr_outbox *outbox = NULL;
    char bytes[BODY_SIZE];
    struct skr_message message = {
        .name = text_of(given, "name"),
        .partition_key = text_of(given, "key"),
        .content_type = text_of(given, "content_type"),
        .headers = headers,
        .header_count = take_headers(skr_json_find(given, "headers"), headers),
    };
    take_body(given, bytes, &message);
    enum skr_code code = skr_id_parse(text_of(given, "id"), &message.id, error);
    if (code != SKR_OK)
        return code;
    code = skr_outbox_new(
        &(struct skr_outbox_options){
            .table = text_of(options, "table"),
            .queue = text_of(options, "queue"),
            .stamp_namespace = text_of(options, "stamp_namespace"),
            .is_ordered = is_true(options, "ordered"),
            .is_kafka = is_true(options, "kafka"),
            .topic = text_of(options, "topic"),
        },
        &outbox, error);
    if (code == SKR_OK)
        code =
            skr_publish(outbox, fixture->client.tx, &message, 1, NULL, error);
    skr_outbox_free(outbox);
    return code;
}

static void
assert_row(struct fixture *fixture, const struct skr_json *vector)
{
    const struct skr_json *options = skr_json_find(vector, "outbox");
    const char *table = text_of(options, "table");
    if (table == NULL)
        table = is_true(options, "kafka") ? "kafka_outbox" : "messenger_outbox";
    const struct skr_json *column = skr_json_find(vector, "row")->first;
    for (; column != NULL; column = column->next) {
        bool is_key = strcmp(column->name, "key") == 0;
        const char *text =
            skr_arena_format(&fixture->arena, "SELECT %s FROM %s",
                             is_key ? "{key}" : column->name, table);
        const char *sql = skr_sql_fill(skr_db_dialect(fixture->db),
                                       &fixture->arena, text, NULL, 0);
        skr_test_assert_text(fixture->db, sql, column->text);
    }
    skr_test_run(fixture->db,
                 skr_arena_format(&fixture->arena, "DELETE FROM %s", table));
}

static void
test_rows_are_those_of_the_vectors(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_json *at = read_vectors(&fixture->arena, "publish.json");
    size_t count = 0;
    for (; at != NULL; at = at->next, count++) {
        const char *wanted = text_of(at, "error");
        struct skr_error error = {0};
        skr_test_client_begin(&fixture->client);
        enum skr_code code = publish(fixture, at, &error);
        skr_test_client_commit(&fixture->client);
        if ((code == SKR_OK) != (wanted == NULL) ||
            (wanted != NULL && strstr(error.text, wanted) == NULL))
            fail_msg("%s: '%s'", text_of(at, "about"), error.text);
        if (wanted == NULL)
            assert_row(fixture, at);
    }
    assert_in_range(count, 60, 1000);
}

static void
assert_line(const struct skr_json *in)
{
    const struct skr_json *place = skr_json_find(in, "deduplication");
    const struct skr_record_place record = {text_of(place, "table"),
                                            text_of(place, "name")};
    struct skr_header headers[MOST_HEADERS];
    struct skr_delivery delivery = {
        .message = {.name = text_of(in, "name"),
                    .partition_key = text_of(in, "partition_key"),
                    .content_type = text_of(in, "content_type"),
                    .traceparent = text_of(in, "traceparent"),
                    .tracestate = text_of(in, "tracestate"),
                    .body = text_of(in, "body"),
                    .body_size = skr_json_find(in, "body")->text_size,
                    .headers = headers,
                    .header_count =
                        take_headers(skr_json_find(in, "headers"), headers)},
        .attempt = 1,
        .source = text_of(in, "source"),
    };
    struct skr_json_writer writer = {0};
    struct skr_text line = {0};
    uint64_t number = 0;
    assert_int_equal(
        skr_json_read_unsigned(skr_json_find(in, "delivery"), &number, NULL),
        SKR_OK);
    if (text_of(in, "id") != NULL)
        assert_int_equal(
            skr_id_parse(text_of(in, "id"), &delivery.message.id, NULL),
            SKR_OK);
    assert_int_equal(
        skr_child_write_line(&delivery, &record, number, &line, NULL), SKR_OK);
    skr_json_write(&writer, in);
    skr_text_add_string(&writer.text, "\n");
    assert_string_equal(line.bytes, writer.text.bytes);
    skr_text_fini(&writer.text);
    skr_text_fini(&line);
}

static void
assert_answer(struct skr_arena *arena, const struct skr_json *out)
{
    static const char *const words[] = {"accept", "retry", "reject"};
    struct skr_json_writer writer = {0};
    struct skr_answer answer;
    struct skr_error error = {0};
    skr_json_write(&writer, out);
    if (skr_child_read_answer(writer.text.bytes, writer.text.size, arena,
                              &answer, &error) != SKR_OK)
        fail_msg("%s: %s", writer.text.bytes, error.text);
    assert_string_equal(answer.waits ? "wait" : words[answer.verdict],
                        text_of(out, "verdict"));
    if (text_of(out, "error") != NULL)
        assert_string_equal(answer.error, text_of(out, "error"));
    skr_text_fini(&writer.text);
}

static void
test_lines_are_those_of_the_vectors(void **state)
{
    struct fixture *fixture = *state;
    struct skr_arena *arena = &fixture->arena;
    const struct skr_json *at = read_vectors(arena, "worker.json");
    for (; at != NULL; at = at->next) {
        enum skr_recorder recorder = SKR_RECORDER_CONSUMER;
        struct skr_json_writer ready = {0};
        skr_json_write(&ready, skr_json_find(at, "ready"));
        assert_true(skr_child_is_ready_line(ready.text.bytes, ready.text.size,
                                            arena, &recorder));
        skr_text_fini(&ready.text);
        const struct skr_json *one = skr_json_find(at, "dialogue")->first;
        for (; one != NULL; one = one->next) {
            const struct skr_json *in = skr_json_find(one, "in");
            if (in->kind == SKR_JSON_NULL)
                continue;
            // One that is encoded here is a text that a client must take, too.
            if (strcmp(text_of(in, "body_encoding"), "text") == 0)
                assert_line(in);
            assert_answer(arena, skr_json_find(one, "out"));
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_rows_are_those_of_the_vectors),
        CASE(test_lines_are_those_of_the_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
