// SPDX-License-Identifier: MIT
// `skirnir publish`: one message from the command line into an outbox, in a
// transaction of its own.

#include "app/app.h"
#include "app/console/output.h"
#include "app/wiring/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/headers.h"
#include "message/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static enum skr_code
read_stream(FILE *file, const char *name, struct skr_text *body,
            struct skr_error *error)
{
    if (!skr_text_add_file(body, file, SIZE_MAX))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "cannot read %s: %s",
                        name, strerror(errno));
    return body->broken ? skr_fail_memory(error) : SKR_OK;
}

// A pipe that has no writer would be waited for without an end.
static enum skr_code
open_body(const char *path, FILE **file, struct skr_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (*file == NULL) {
        skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                 "cannot read the body from %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return SKR_INVALID;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        return SKR_OK;
    fclose(*file);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "cannot read the body from %s: it is no regular file; "
                    "`--body -` reads standard input",
                    path);
}

static enum skr_code
read_body(const char *given, struct skr_text *body, struct skr_error *error)
{
    if (strcmp(given, "-") == 0)
        return read_stream(stdin, "standard input", body, error);
    if (given[0] != '@') {
        skr_text_add_string(body, given);
        return body->broken ? skr_fail_memory(error) : SKR_OK;
    }
    FILE *file = NULL;
    enum skr_code code = open_body(given + 1, &file, error);
    if (code != SKR_OK)
        return code;
    code = read_stream(file, given + 1, body, error);
    fclose(file);
    return code;
}

// "name=value" of each --header, split in a copy.
static enum skr_code
read_headers(const struct skr_arguments *arguments, struct skr_arena *arena,
             struct skr_header *headers, size_t *count, struct skr_error *error)
{
    *count = 0;
    for (size_t i = 0; i < arguments->given_count; i++) {
        const struct skr_given *given = &arguments->given[i];
        if (strcmp(given->option->name, "header") != 0)
            continue;
        const char *equals = strchr(given->value, '=');
        const char *name = skr_arena_text(arena, given->value,
                                          (size_t)(equals - given->value));
        if (name == NULL)
            return skr_fail_memory(error);
        headers[(*count)++] =
            (struct skr_header){.name = name, .value = equals + 1};
    }
    return SKR_OK;
}

static enum skr_code
read_message(const struct skr_arguments *arguments, struct skr_message *message,
             struct skr_error *error)
{
    int64_t delay_s = skr_arguments_number(arguments, "delay", 0);
    const char *id = skr_arguments_find(arguments, "id");
    enum skr_code code = SKR_OK;
    if (id != NULL)
        code = skr_id_parse(id, &message->id, error);
    if (code != SKR_OK)
        return code;
    message->name = arguments->positional[0];
    message->partition_key = skr_arguments_find(arguments, "partition-key");
    message->content_type = skr_arguments_find(arguments, "content-type");
    message->traceparent = skr_arguments_find(arguments, "traceparent");
    message->tracestate = skr_arguments_find(arguments, "tracestate");
    if (delay_s > 0)
        message->due_at_us = skr_clock_wall_us() + delay_s * 1000000;
    return SKR_OK;
}

static bool
is_json(const char *content_type)
{
    if (content_type == NULL)
        return true;
    size_t size = strcspn(content_type, "; ");
    return (size == strlen(SKR_DEFAULT_CONTENT_TYPE) &&
            strncasecmp(content_type, SKR_DEFAULT_CONTENT_TYPE, size) == 0) ||
           (size > strlen("+json") &&
            strncasecmp(content_type + size - strlen("+json"), "+json",
                        strlen("+json")) == 0);
}

// A typing error of a shell would be found by a consumer, as a failed message.
// given is the value of --body.
static enum skr_code
check_body(const char *given, const struct skr_message *message,
           struct skr_error *error)
{
    enum skr_json_kind kind;
    enum skr_code code = SKR_OK;
    bool is_stdin = strcmp(given, "-") == 0;
    if (is_json(message->content_type))
        code =
            skr_json_scan(message->body, message->body_size, 0, &kind, error);
    if (code != SKR_MALFORMED)
        return code;
    struct skr_error reason = *error;
    if (is_stdin && message->body_size == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the body is empty, as nothing came from standard "
                        "input; JSON is needed, or another --content-type");
    if (!is_stdin && access(given, F_OK) == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the body is %s; --body @%s reads it from that file",
                        reason.text, given);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "the body is %s; --content-type=text/plain, or what it is, "
                    "publishes a body that is no JSON",
                    reason.text);
}

static enum skr_code
ensure_table(const struct skr_config *config,
             const struct skr_config_transport *transport, struct skr_db *db,
             struct skr_error *error)
{
    struct skr_store *table = NULL;
    enum skr_code code = skr_transport_table(config, transport, &table, error);
    if (code != SKR_OK)
        return code;
    code = table->admin->check(table, db, error);
    if (code == SKR_MISSING && transport->auto_setup)
        code = skr_store_create(table, db, error);
    skr_store_free(table);
    return code;
}

static enum skr_code
write_message(const struct skr_config_transport *transport, struct skr_db *db,
              const struct skr_message *message, struct skr_id *id,
              struct skr_error *error)
{
    const struct skr_outbox_options options = {
        .table = transport->place.table,
        .queue = transport->place.queue,
        .is_ordered = transport->is_ordered,
        .stamp_namespace = transport->stamp_namespace,
        .time_zone = transport->place.time_zone,
    };
    struct skr_outbox *outbox = NULL;
    enum skr_code code = skr_outbox_new(&options, &outbox, error);
    if (code != SKR_OK)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code == SKR_OK)
        code = skr_publish(outbox, skr_db_tx(db), message, 1, id, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    else
        skr_db_rollback(db);
    skr_outbox_free(outbox);
    return code;
}

static enum skr_code
publish(const struct skr_config *config,
        const struct skr_config_transport *transport,
        const struct skr_message *message, struct skr_id *id,
        struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    struct skr_db *db = NULL;
    enum skr_code code =
        skr_transport_database(transport->database, &ops, error);
    if (code == SKR_OK)
        code = skr_db_open_or_create(ops, transport->database->url,
                                     transport->auto_setup, &db, error);
    if (code == SKR_OK)
        code = ensure_table(config, transport, db, error);
    if (code == SKR_OK)
        code = write_message(transport, db, message, id, error);
    skr_db_close(db);
    return code;
}

static enum skr_code
print_json(const char *id, const char *name, const char *transport,
           struct skr_error *error)
{
    const struct skr_header fields[] = {
        {"id", id}, {"name", name}, {"transport", transport}};
    struct skr_text json = {0};
    enum skr_code code =
        skr_headers_write(fields, SKR_COUNT_OF(fields), &json, error);
    if (code == SKR_OK)
        printf("%s\n", json.bytes);
    skr_text_fini(&json);
    return code;
}

static enum skr_code
publish_given(const struct skr_app *app, const struct skr_config *config,
              struct skr_arena *arena, struct skr_text *body,
              struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    const struct skr_config_transport *transport = NULL;
    struct skr_header headers[SKR_MAX_GIVEN];
    struct skr_message message = {.headers = headers};
    enum skr_code code = skr_transport_choose_outbox(
        config, skr_arguments_find(arguments, "transport"), false, &transport,
        error);
    if (code == SKR_OK)
        code = read_message(arguments, &message, error);
    if (code == SKR_OK)
        code = read_headers(arguments, arena, headers, &message.header_count,
                            error);
    const char *given = skr_arguments_find(arguments, "body");
    if (code == SKR_OK)
        code = read_body(given, body, error);
    if (code != SKR_OK)
        return code;
    message.body = body->bytes;
    message.body_size = body->size;
    struct skr_id id;
    code = check_body(given, &message, error);
    if (code == SKR_OK)
        code = publish(config, transport, &message, &id, error);
    if (code != SKR_OK)
        return code;
    char id_text[SKR_ID_TEXT_SIZE];
    skr_id_format(id, id_text);
    if (skr_arguments_has(arguments, "json"))
        code = print_json(id_text, message.name, transport->name, error);
    else
        printf("%s\n", id_text);
    if (code == SKR_OK)
        code = skr_output_flush(error);
    // The message is on its way: a person or script that runs the command must
    // not send it again. A reader that went away is no failure.
    struct skr_error reason = *error;
    return code == SKR_OK || code == SKR_STOPPED
               ? SKR_OK
               : skr_fail(error, code, SKR_GIVE_UP, "published as %s, but %s",
                          id_text, reason.text);
}

enum skr_code
skr_command_publish(const struct skr_app *app, const struct skr_config *config,
                    struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_text body = {0};
    enum skr_code code = publish_given(app, config, &arena, &body, error);
    skr_text_fini(&body);
    skr_arena_fini(&arena);
    return code;
}
