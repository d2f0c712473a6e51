// SPDX-License-Identifier: MIT
// The JSON writer.

#include "base/error.h"
#include "message/json.h"

#include <inttypes.h>
#include <string.h>

static void
keep_mistake(struct skr_json_writer *writer, const char *why)
{
    if (writer->error.code == SKR_OK)
        skr_fail(&writer->error, SKR_INVALID, SKR_GIVE_UP, "%s", why);
}

void
skr_json_write_separator(struct skr_json_writer *writer)
{
    if (writer->needs_comma)
        skr_text_add(&writer->text, ",", 1);
    writer->needs_comma = false;
}

static void
write_plain(struct skr_json_writer *writer, const char *json)
{
    skr_json_write_separator(writer);
    skr_text_add_string(&writer->text, json);
    writer->needs_comma = true;
}

void
skr_json_write_null(struct skr_json_writer *writer)
{
    write_plain(writer, "null");
}

void
skr_json_write_boolean(struct skr_json_writer *writer, bool value)
{
    write_plain(writer, value ? "true" : "false");
}

void
skr_json_write_signed(struct skr_json_writer *writer, int64_t value)
{
    skr_json_write_separator(writer);
    skr_text_add_format(&writer->text, "%" PRId64, value);
    writer->needs_comma = true;
}

void
skr_json_write_unsigned(struct skr_json_writer *writer, uint64_t value)
{
    skr_json_write_separator(writer);
    skr_text_add_format(&writer->text, "%" PRIu64, value);
    writer->needs_comma = true;
}

void
skr_json_write_double(struct skr_json_writer *writer, double value)
{
    char text[SKR_NUMBER_SIZE];
    if (skr_number_format(value, text))
        write_plain(writer, text);
    else
        keep_mistake(writer, "JSON has no NaN and no infinity");
}

void
skr_json_write_digits(struct skr_json_writer *writer, const char *digits)
{
    if ((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '-')
        write_plain(writer, digits);
    else
        keep_mistake(writer, "the digits are not a number");
}

static void
add_escape(struct skr_text *text, char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = c == '\0' ? NULL : strchr(plain, c);
    if (found != NULL)
        skr_text_add_format(text, "\\%c", letters[found - plain]);
    else
        skr_text_add_format(text, "\\u%04x", (unsigned)(unsigned char)c);
}

void
skr_json_quote(struct skr_text *text, const char *bytes, size_t size)
{
    skr_text_add(text, "\"", 1);
    size_t done = 0;
    for (size_t at = 0; at < size; at++) {
        char c = bytes[at];
        if ((unsigned char)c >= 0x20 && c != '"' && c != '\\')
            continue;
        skr_text_add(text, bytes + done, at - done);
        add_escape(text, c);
        done = at + 1;
    }
    skr_text_add(text, bytes + done, size - done);
    skr_text_add(text, "\"", 1);
}

void
skr_json_write_text(struct skr_json_writer *writer, const char *text,
                    size_t size)
{
    if (!skr_text_is_storable(text, size)) {
        keep_mistake(writer, "the text is not well-formed UTF-8");
        return;
    }
    skr_json_write_separator(writer);
    skr_json_quote(&writer->text, text, size);
    writer->needs_comma = true;
}

void
skr_json_write_name(struct skr_json_writer *writer, const char *name)
{
    skr_json_write_text(writer, name, strlen(name));
    skr_text_add(&writer->text, ":", 1);
    writer->needs_comma = false;
}

static void
begin(struct skr_json_writer *writer, const char *bracket)
{
    skr_json_write_separator(writer);
    skr_text_add(&writer->text, bracket, 1);
}

static void
end(struct skr_json_writer *writer, const char *bracket)
{
    skr_text_add(&writer->text, bracket, 1);
    writer->needs_comma = true;
}

void
skr_json_begin_object(struct skr_json_writer *writer)
{
    begin(writer, "{");
}

void
skr_json_end_object(struct skr_json_writer *writer)
{
    end(writer, "}");
}

void
skr_json_begin_array(struct skr_json_writer *writer)
{
    begin(writer, "[");
}

void
skr_json_end_array(struct skr_json_writer *writer)
{
    end(writer, "]");
}

void
skr_json_write(struct skr_json_writer *writer, const struct skr_json *json)
{
    switch (json->kind) {
    case SKR_JSON_NULL: skr_json_write_null(writer); return;
    case SKR_JSON_BOOLEAN: skr_json_write_boolean(writer, json->truth); return;
    case SKR_JSON_NUMBER: skr_json_write_digits(writer, json->text); return;
    case SKR_JSON_TEXT:
        skr_json_write_text(writer, json->text, json->text_size);
        return;
    case SKR_JSON_ARRAY:
    case SKR_JSON_OBJECT: break;
    }
    bool is_object = json->kind == SKR_JSON_OBJECT;
    begin(writer, is_object ? "{" : "[");
    for (const struct skr_json *member = json->first; member != NULL;
         member = member->next) {
        if (is_object)
            skr_json_write_name(writer, member->name);
        skr_json_write(writer, member);
    }
    end(writer, is_object ? "}" : "]");
}

const char *
skr_json_take_text(struct skr_json_writer *writer, struct skr_arena *arena)
{
    const char *copy = NULL;
    if (writer->error.code == SKR_OK && !writer->text.broken)
        copy = skr_arena_text(arena, writer->text.bytes, writer->text.size);
    skr_text_fini(&writer->text);
    return copy;
}
