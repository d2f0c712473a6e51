// SPDX-License-Identifier: MIT
// Chooses for each text the plainest YAML form that reads back the same: plain,
// quoted or a block. A % is escaped, as it would begin a variable.

#include "app/config/yaml_print.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

static void print_value(const json_t *value, int indent, FILE *out);

static bool
is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on",
                                        "off",  "null",  "y",   "n"};
    static const char good[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-@";
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    bool starts_well = (text[0] >= 'a' && text[0] <= 'z') ||
                       (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '_';
    return starts_well && text[strspn(text, good)] == '\0';
}

// The code point at text, which is well-formed UTF-8; *size is its length.
static uint32_t
code_point(const char *text, size_t *size)
{
    const unsigned char *p = (const unsigned char *)text;
    *size = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (*size == 1)
        return p[0];
    uint32_t point = p[0] & (0x7fu >> *size);
    for (size_t i = 1; i < *size; i++)
        point = point << 6 | (p[i] & 0x3f);
    return point;
}

// Whether YAML takes the character as it stands, inside a line.
static bool
is_printable(uint32_t point)
{
    return (point >= ' ' && point <= '~') ||
           (point >= 0xa0 && point != 0x2028 && point != 0x2029 &&
            point != 0xfeff && point != 0xfffe && point != 0xffff);
}

static bool
has_printable_lines(const char *text)
{
    for (size_t size = 0; *text != '\0'; text += size)
        if (!is_printable(code_point(text, &size)) && *text != '\n')
            return false;
    return true;
}

// | keeps lines as they are, but not spaces at the start or empty lines at
// either end.
static bool
fits_block(const char *text)
{
    size_t length = strlen(text);
    return strchr(text, '\n') != NULL && has_printable_lines(text) &&
           text[0] != ' ' && text[0] != '\n' &&
           !(length > 1 && text[length - 1] == '\n' &&
             text[length - 2] == '\n');
}

// Whether the % at text would begin something for the reader.
static bool
is_percent_special(const char *text)
{
    return text[1] == '%' || skr_text_starts_with(text, "%env(") ||
           skr_text_starts_with(text, "%kernel.project_dir%");
}

static void
print_block(const char *text, int indent, FILE *out)
{
    fputs(skr_text_ends_with(text, "\n") ? "|" : "|-", out);
    bool at_start = true;
    for (; *text != '\0'; text++) {
        if (at_start)
            fputc('\n', out);
        if (*text == '\n') {
            at_start = true;
            continue;
        }
        if (at_start)
            fprintf(out, "%*s", indent, "");
        at_start = false;
        if (*text == '%' && is_percent_special(text))
            fputc('%', out);
        fputc(*text, out);
    }
    fputc('\n', out);
}

static void
print_character(const char *text, size_t size, uint32_t point, char quote,
                FILE *out)
{
    if (quote == '"' && point == '\n')
        fputs("\\n", out);
    else if (quote == '"' && !is_printable(point))
        fprintf(out, "\\U%08X", point);
    else if (quote == '"' && (point == '"' || point == '\\'))
        fprintf(out, "\\%c", (char)point);
    else if (quote == '\'' && point == '\'')
        fputs("''", out);
    else if (point == '%' && is_percent_special(text))
        fputs("%%", out);
    else
        fwrite(text, 1, size, out);
}

static void
print_text(const char *text, FILE *out)
{
    if (is_plain(text)) {
        fputs(text, out);
        return;
    }
    bool single = has_printable_lines(text) && strchr(text, '\n') == NULL;
    char quote = single ? '\'' : '"';
    fputc(quote, out);
    for (size_t size = 0; *text != '\0'; text += size) {
        uint32_t point = code_point(text, &size);
        print_character(text, size, point, quote, out);
    }
    fputc(quote, out);
}

// Keys are not filled in, so that a % in one stands for itself.
static void
print_key(const char *key, FILE *out)
{
    if (is_plain(key)) {
        fputs(key, out);
        return;
    }
    fputc('"', out);
    for (size_t size = 0; *key != '\0'; key += size) {
        uint32_t point = code_point(key, &size);
        if (point == '%')
            fputc('%', out);
        else
            print_character(key, size, point, '"', out);
    }
    fputc('"', out);
}

static void
print_map(const json_t *map, int indent, FILE *out)
{
    const char *key = NULL;
    const json_t *value = NULL;
    void *iterator = json_object_iter((json_t *)(uintptr_t)map);
    for (; iterator != NULL;
         iterator = json_object_iter_next((json_t *)(uintptr_t)map, iterator)) {
        key = json_object_iter_key(iterator);
        value = json_object_iter_value(iterator);
        fprintf(out, "%*s", indent, "");
        print_key(key, out);
        fputc(':', out);
        print_value(value, indent + 2, out);
    }
}

static void
print_list(const json_t *list, int indent, FILE *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        fprintf(out, "%*s-", indent, "");
        print_value(json_array_get(list, i), indent + 2, out);
    }
}

// What follows "key:" or "-", to the end of the line or beyond.
static void
print_value(const json_t *value, int indent, FILE *out)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        fputs(json_object_size(value) == 0 ? " {}\n" : "\n", out);
        print_map(value, indent, out);
        return;
    case JSON_ARRAY:
        fputs(json_array_size(value) == 0 ? " []\n" : "\n", out);
        print_list(value, indent, out);
        return;
    case JSON_STRING:
        fputc(' ', out);
        if (fits_block(json_string_value(value))) {
            print_block(json_string_value(value), indent, out);
            return;
        }
        print_text(json_string_value(value), out);
        break;
    case JSON_INTEGER:
        fprintf(out, " %lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL: fprintf(out, " %.15g", json_real_value(value)); break;
    case JSON_TRUE: fputs(" true", out); break;
    case JSON_FALSE: fputs(" false", out); break;
    case JSON_NULL: fputs(" null", out); break;
    }
    fputc('\n', out);
}

void
skr_yaml_print(const json_t *tree, FILE *out)
{
    print_map(tree, 0, out);
}
