// SPDX-License-Identifier: MIT
// Prints one failed message for people and as JSON.

#include "app/parts/failed_print.h"

#include "app/console/grid.h"
#include "app/parts/members.h"
#include "base/text.h"
#include "message/json.h"

#include <stdlib.h>
#include <string.h>

static void
print_field(const char *name, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    printf("  %-10s ", name);
    skr_print_plain(text, strlen(text), false, stdout);
    putchar('\n');
}

static void
print_error(const struct skr_failure_report *report)
{
    print_field("error", report->error_text);
    print_field("class", report->error_class);
    print_field("code", report->error_code);
}

struct printing {
    struct skr_arena *arena;  // for the texts of one value
    int depth;
    bool has_children;
};

static void print_value(const struct skr_json *json, int depth);

static enum skr_code
print_child(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct printing *printing = user;
    (void)error;
    printf("%s\n%*s", printing->has_children ? "," : "",
           4 + 2 * printing->depth, "");
    printing->has_children = true;
    if (child->name != NULL) {
        printf("\"");
        skr_print_plain(child->name, child->name_size, false, stdout);
        printf("\": ");
    }
    print_value(child, printing->depth);
    skr_arena_reset(printing->arena);
    return SKR_OK;
}

static void
print_scalar(const struct skr_json *json)
{
    struct skr_json_writer writer = {.needs_comma = false};
    skr_json_write(&writer, json);
    if (writer.text.bytes != NULL)
        skr_print_plain(writer.text.bytes, writer.text.size, false, stdout);
    skr_text_fini(&writer.text);
}

// Its children are printed as they are found: a body may be of any size.
static void
print_value(const struct skr_json *json, int depth)
{
    bool is_object = json->kind == SKR_JSON_OBJECT;
    if (!is_object && json->kind != SKR_JSON_ARRAY) {
        print_scalar(json);
        return;
    }
    struct skr_arena arena = {0};
    struct printing printing = {.arena = &arena, .depth = depth + 1};
    enum skr_json_kind kind = json->kind;
    printf("%c", is_object ? '{' : '[');
    enum skr_code code = skr_json_walk(&arena, json->text, json->text_size,
                                       &kind, print_child, &printing, NULL);
    if (code != SKR_OK)
        printf(" (memory is out)");
    skr_arena_fini(&arena);
    if (printing.has_children)
        printf("\n%*s", 4 + 2 * depth, "");
    printf("%c", is_object ? '}' : ']');
}

// A scalar alone needs no other form than its own.
static bool
print_json(const char *body, size_t size)
{
    struct skr_json json = {.text = body, .text_size = size};
    if (skr_json_scan(body, size, 0, &json.kind, NULL) != SKR_OK ||
        (json.kind != SKR_JSON_OBJECT && json.kind != SKR_JSON_ARRAY))
        return false;
    printf("    ");
    print_value(&json, 0);
    printf("\n");
    return true;
}

static bool
is_base64(const struct skr_failure_report *report)
{
    const char *encoding = skr_headers_find(
        report->headers.items, report->headers.count, SKR_HEADER_BODY_ENCODING);
    return encoding != NULL && strcmp(encoding, "base64") == 0;
}

static void
print_body(const struct skr_failed_found *found)
{
    const struct skr_failed_row *row = found->row;
    if (row->body == NULL)
        return;
    printf("\n  body, %zu bytes%s\n", row->body_size,
           is_base64(found->report) ? " of base64: it is no text" : "");
    if (print_json(row->body, row->body_size))
        return;
    if (!skr_text_is_storable(row->body, row->body_size)) {
        printf("    (no text)\n");
        return;
    }
    printf("    ");
    skr_print_plain(row->body, row->body_size, true, stdout);
    printf("\n");
}

static void
print_headers(const struct skr_failed_found *found)
{
    const struct skr_headers *headers = &found->report->headers;
    printf("\n  headers\n");
    for (size_t i = 0; i < headers->count; i++) {
        const struct skr_header *header = &headers->items[i];
        printf("    ");
        skr_print_plain(header->name, strlen(header->name), false, stdout);
        printf(": ");
        skr_print_plain(header->value, strlen(header->value), false, stdout);
        printf("\n");
    }
    if (headers->count == 0) {
        printf("    ");
        skr_print_plain(found->row->headers, found->row->headers_size, false,
                        stdout);
        printf("\n");
    }
}

void
skr_failed_print(const struct skr_failed_found *found, size_t detail)
{
    const struct skr_failure_report *report = found->report;
    char id[SKR_ID_TEXT_SIZE] = "", retries[16];
    if (report->has_id)
        skr_id_format(report->id, id);
    snprintf(retries, sizeof(retries), "%u", report->retries);
    if (found->blocked_head != NULL)
        printf("Blocked head %s\n", found->blocked_head);
    else
        printf("Failed message %lld\n", (long long)found->row->id);
    print_field("partition", found->partition);
    print_field("message",
                report->is_php ? "(in PHP's own serialisation)" : report->name);
    print_field("PHP class", report->class_name);
    print_field("id", id);
    print_field("transport", report->transport);
    print_field(found->blocked_head != NULL ? "published" : "failed at",
                found->row->created_at);
    print_field("retries", retries);
    print_error(report);
    print_field("queue", found->row->queue);
    print_field("database", found->database->name);
    if (detail == 0) {
        printf("  -vv shows headers and body.\n");
        return;
    }
    print_headers(found);
    print_body(found);
}

// Bytes that are no text stand there as base64, under another name.
static void
write_body(const struct skr_failed_row *row, struct skr_json_writer *json)
{
    if (row->body == NULL)
        return;
    if (skr_text_is_storable(row->body, row->body_size)) {
        skr_json_write_name(json, "body");
        skr_json_write_text(json, row->body, row->body_size);
        return;
    }
    char *encoded = skr_text_base64(row->body, row->body_size);
    skr_member_text(json, "body_base64", encoded);
    free(encoded);
}

static void
write_headers(const struct skr_headers *headers, struct skr_json_writer *json)
{
    skr_json_write_name(json, "headers");
    skr_json_begin_object(json);
    for (size_t i = 0; i < headers->count; i++)
        skr_member_text(json, headers->items[i].name, headers->items[i].value);
    skr_json_end_object(json);
}

void
skr_failed_write_json(const struct skr_failed_found *found,
                      struct skr_json_writer *json)
{
    const struct skr_failure_report *report = found->report;
    char id[SKR_ID_TEXT_SIZE] = "";
    if (report->has_id)
        skr_id_format(report->id, id);
    skr_json_begin_object(json);
    bool is_blocked = found->blocked_head != NULL;
    if (is_blocked) {
        skr_member_text(json, "blocked_head", found->blocked_head);
        skr_member_text(json, "partition", found->partition);
    }
    skr_json_write_name(json, is_blocked ? "row" : "number");
    skr_json_write_signed(json, found->row->id);
    skr_member_text(json, "database", found->database->name);
    skr_member_text(json, "queue", found->row->queue);
    skr_member_text(json, is_blocked ? "published_at" : "failed_at",
                    found->row->created_at);
    skr_member_text(json, "transport", report->transport);
    skr_member_text(json, "name", report->name);
    skr_member_text(json, "class", report->class_name);
    skr_member_text(json, "id", report->has_id ? id : NULL);
    skr_member_number(json, "retries", report->retries);
    skr_member_text(json, "error", report->error_text);
    skr_member_text(json, "error_class", report->error_class);
    skr_member_text(json, "error_code", report->error_code);
    if (found->row->body != NULL)
        write_headers(&report->headers, json);
    write_body(found->row, json);
    skr_json_end_object(json);
}
