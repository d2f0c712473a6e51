// SPDX-License-Identifier: MIT
// JSON: the parser, which is RFC 8259 of bounded depth and nothing beyond it;
// asking a value for what it holds; the writer. What is only looked at is
// scanned or walked: a tree takes up to forty times its bytes.

#include "message/json.h"

#include "base/error.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *start;
    const char *at;
    const char *end;
    size_t depth;
    struct skr_arena *texts;  // NULL: nothing is kept
    struct skr_arena *nodes;  // of all but texts; NULL: likewise
    skr_json_child_fn *take;  // NULL: children are kept, if anything is
    void *user;
    struct skr_error *error;
};

static enum skr_code
fail(struct parser *parser, const char *why)
{
    return skr_fail(parser->error, SKR_MALFORMED, SKR_GIVE_UP,
                    "not JSON at byte %zu: %s",
                    (size_t)(parser->at - parser->start), why);
}

static void
skip_space(struct parser *parser)
{
    while (parser->at < parser->end &&
           (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n' ||
            *parser->at == '\r'))
        parser->at++;
}

static bool
accept(struct parser *parser, char wanted)
{
    if (parser->at == parser->end || *parser->at != wanted)
        return false;
    parser->at++;
    return true;
}

static bool
accept_word(struct parser *parser, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(parser->end - parser->at) < size ||
        memcmp(parser->at, word, size) != 0)
        return false;
    parser->at += size;
    return true;
}

static bool
accept_digits(struct parser *parser)
{
    const char *before = parser->at;
    while (parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9')
        parser->at++;
    return parser->at > before;
}

static enum skr_code
scan_number(struct parser *parser)
{
    accept(parser, '-');
    if (!accept(parser, '0') && !accept_digits(parser))
        return fail(parser, "a value is needed");
    if (accept(parser, '.') && !accept_digits(parser))
        return fail(parser, "a digit is needed after the point");
    if (accept(parser, 'e') || accept(parser, 'E')) {
        if (!accept(parser, '+'))
            accept(parser, '-');
        if (!accept_digits(parser))
            return fail(parser, "a digit is needed in the exponent");
    }
    return SKR_OK;
}

static enum skr_code
parse_number(struct parser *parser, struct skr_json *json)
{
    const char *start = parser->at;
    enum skr_code code = scan_number(parser);
    json->kind = SKR_JSON_NUMBER;
    if (code != SKR_OK || parser->nodes == NULL)
        return code;
    json->text_size = (size_t)(parser->at - start);
    json->text = skr_arena_text(parser->nodes, start, json->text_size);
    return json->text == NULL ? skr_fail_memory(parser->error) : SKR_OK;
}

static bool
accept_hex4(struct parser *parser, uint32_t *value)
{
    if (parser->end - parser->at < 4)
        return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = skr_text_hex_digit(parser->at[i]);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    parser->at += 4;
    return true;
}

// The rest of \uXXXX, or of the two that make a character past U+FFFF.
static bool
accept_unicode(struct parser *parser, uint32_t *character)
{
    uint32_t low;
    if (!accept_hex4(parser, character))
        return false;
    if (*character < 0xd800 || *character > 0xdfff)
        return true;
    if (*character > 0xdbff || !accept_word(parser, "\\u") ||
        !accept_hex4(parser, &low) || low < 0xdc00 || low > 0xdfff)
        return false;
    *character = 0x10000 + ((*character - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static char *
put_utf8(char *out, uint32_t character)
{
    if (character < 0x80) {
        *out++ = (char)character;
        return out;
    }
    if (character < 0x800) {
        *out++ = (char)(0xc0 | character >> 6);
    } else if (character < 0x10000) {
        *out++ = (char)(0xe0 | character >> 12);
        *out++ = (char)(0x80 | (character >> 6 & 0x3f));
    } else {
        *out++ = (char)(0xf0 | character >> 18);
        *out++ = (char)(0x80 | (character >> 12 & 0x3f));
        *out++ = (char)(0x80 | (character >> 6 & 0x3f));
    }
    *out++ = (char)(0x80 | (character & 0x3f));
    return out;
}

// What follows a backslash.
static char *
parse_escape(struct parser *parser, char *out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (accept(parser, 'u')) {
        uint32_t character;
        return accept_unicode(parser, &character) ? put_utf8(out, character)
                                                  : NULL;
    }
    if (parser->at == parser->end || *parser->at == '\0')
        return NULL;
    const char *letter = strchr(letters, *parser->at);
    if (letter == NULL)
        return NULL;
    parser->at++;
    *out++ = meanings[letter - letters];
    return out;
}

// The end of the text that begins at parser->at, or NULL.
static const char *
find_quote(const struct parser *parser)
{
    const char *at = parser->at;
    for (; at < parser->end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < parser->end)
            at++;
    return at < parser->end ? at : NULL;
}

// Finds the end of the text that begins here, behind its first quote.
static enum skr_code
begin_text(struct parser *parser, const char **quote)
{
    if (!accept(parser, '"'))
        return fail(parser, "a text in quotes is needed");
    *quote = find_quote(parser);
    return *quote == NULL ? fail(parser, "a text does not end") : SKR_OK;
}

enum { CHARACTER_SIZE = 4 };

// Decodes one character to out and moves it on, by CHARACTER_SIZE at most.
static enum skr_code
parse_character(struct parser *parser, char **out)
{
    char c = *parser->at;
    if ((unsigned char)c < 0x20)
        return fail(parser, "a control character stands in a text");
    parser->at++;
    if (c != '\\') {
        *(*out)++ = c;
        return SKR_OK;
    }
    *out = parse_escape(parser, *out);
    return *out == NULL ? fail(parser, "a wrong escape stands in a text")
                        : SKR_OK;
}

static enum skr_code
parse_text(struct parser *parser, struct skr_arena *arena, const char **text,
           size_t *size)
{
    const char *quote = NULL;
    char character[CHARACTER_SIZE], *copy = character;
    enum skr_code code = begin_text(parser, &quote);
    if (code != SKR_OK)
        return code;
    // No escape is shorter than the character it stands for.
    if (arena != NULL)
        copy = skr_arena_take(arena, (size_t)(quote - parser->at) + 1);
    if (copy == NULL)
        return skr_fail_memory(parser->error);
    char *out = copy;
    while (parser->at < quote && code == SKR_OK) {
        code = parse_character(parser, &out);
        if (arena == NULL)
            out = copy;
    }
    if (code != SKR_OK)
        return code;
    parser->at++;
    *out = '\0';
    *text = arena == NULL ? NULL : copy;
    *size = (size_t)(out - copy);
    return SKR_OK;
}

static enum skr_code parse_value(struct parser *parser, struct skr_json *json);

static enum skr_code
parse_name(struct parser *parser, struct skr_json *member)
{
    skip_space(parser);
    const char *start = parser->at + 1;
    enum skr_code code =
        parse_text(parser, parser->nodes, &member->name, &member->name_size);
    if (code != SKR_OK)
        return code;
    if (parser->nodes == NULL) {
        member->name = start;
        member->name_size = (size_t)(parser->at - 1 - start);
    }
    skip_space(parser);
    return accept(parser, ':') ? SKR_OK : fail(parser, "a colon is needed");
}

// One that has children stays the JSON that it is, and without an arena any.
static enum skr_code
hand_out(struct parser *parser, struct skr_json *child)
{
    struct parser inner = *parser;
    skip_space(&inner);
    const char *start = inner.at;
    bool is_raw = parser->nodes == NULL ||
                  (start < inner.end && (*start == '{' || *start == '['));
    inner.take = NULL;
    if (is_raw)
        inner.texts = inner.nodes = NULL;
    enum skr_code code = parse_value(&inner, child);
    parser->at = inner.at;
    if (code != SKR_OK)
        return code;
    if (is_raw) {
        child->text = start;
        child->text_size = (size_t)(inner.at - start);
    }
    return parser->take(parser->user, child, parser->error);
}

// In a tree it is kept behind the last one, in a walk it is handed out.
static enum skr_code
parse_child(struct parser *parser, struct skr_json *child,
            struct skr_json ***tail)
{
    if (parser->take != NULL)
        return hand_out(parser, child);
    if (parser->nodes == NULL)
        return parse_value(parser, child);
    struct skr_json *kept = skr_arena_take(parser->nodes, sizeof(*kept));
    if (kept == NULL)
        return skr_fail_memory(parser->error);
    *kept = *child;
    **tail = kept;
    *tail = &kept->next;
    return parse_value(parser, kept);
}

// What follows the bracket that opened an array or object.
static enum skr_code
parse_children(struct parser *parser, struct skr_json *json, char closing)
{
    struct skr_json **tail = &json->first;
    if (parser->depth == SKR_TYPED_DEPTH)
        return fail(parser, "nested too deep");
    skip_space(parser);
    if (accept(parser, closing))
        return SKR_OK;
    parser->depth++;
    do {
        struct skr_json child = {.kind = SKR_JSON_NULL};
        enum skr_code code =
            json->kind == SKR_JSON_OBJECT ? parse_name(parser, &child) : SKR_OK;
        if (code == SKR_OK)
            code = parse_child(parser, &child, &tail);
        if (code != SKR_OK)
            return code;
        skip_space(parser);
    } while (accept(parser, ','));
    parser->depth--;
    if (!accept(parser, closing))
        return fail(parser, "a comma or a closing bracket is needed");
    return SKR_OK;
}

static enum skr_code
parse_value(struct parser *parser, struct skr_json *json)
{
    skip_space(parser);
    if (parser->at == parser->end)
        return fail(parser, "it ends too early");
    if (accept(parser, '{')) {
        json->kind = SKR_JSON_OBJECT;
        return parse_children(parser, json, '}');
    }
    if (accept(parser, '[')) {
        json->kind = SKR_JSON_ARRAY;
        return parse_children(parser, json, ']');
    }
    if (*parser->at == '"') {
        json->kind = SKR_JSON_TEXT;
        return parse_text(parser, parser->texts, &json->text, &json->text_size);
    }
    json->kind = SKR_JSON_NULL;
    if (accept_word(parser, "null"))
        return SKR_OK;
    json->kind = SKR_JSON_BOOLEAN;
    json->truth = accept_word(parser, "true");
    if (json->truth || accept_word(parser, "false"))
        return SKR_OK;
    return parse_number(parser, json);
}

static enum skr_code
parse(struct parser *parser, const char *bytes, size_t size,
      struct skr_json *json)
{
    parser->start = parser->at = bytes;
    parser->end = bytes + size;
    if (!skr_text_is_storable(bytes, size))
        return skr_fail(parser->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "not JSON: it is not well-formed UTF-8");
    enum skr_code code = parse_value(parser, json);
    if (code != SKR_OK)
        return code;
    skip_space(parser);
    return parser->at == parser->end
               ? SKR_OK
               : fail(parser, "something follows the value");
}

enum skr_code
skr_json_scan(const char *bytes, size_t size, size_t depth,
              enum skr_json_kind *kind, struct skr_error *error)
{
    struct parser parser = {.depth = depth, .error = error};
    struct skr_json json = {.kind = SKR_JSON_NULL};
    enum skr_code code = parse(&parser, bytes, size, &json);
    *kind = json.kind;
    return code;
}

enum skr_code
skr_json_walk(const struct skr_json_walker *walker, const char *bytes,
              size_t size, enum skr_json_kind *kind, struct skr_error *error)
{
    struct parser parser = {.texts = walker->arena,
                            .nodes = walker->arena,
                            .take = walker->take,
                            .user = walker->user,
                            .error = error};
    struct skr_json json = {.kind = SKR_JSON_NULL};
    enum skr_code code = parse(&parser, bytes, size, &json);
    *kind = json.kind;
    return code;
}

bool
skr_json_has_name(const struct skr_json *member, const char *name)
{
    struct parser parser = {
        .at = member->name,
        .end = member->name + member->name_size,
    };
    while (parser.at < parser.end) {
        char character[CHARACTER_SIZE], *out = character;
        size_t left = strlen(name);
        if (parse_character(&parser, &out) != SKR_OK)
            return false;
        size_t size = (size_t)(out - character);
        if (left < size || memcmp(name, character, size) != 0)
            return false;
        name += size;
    }
    return *name == '\0';
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

size_t
skr_json_quoted_size(const char *bytes, size_t size)
{
    size_t quoted = size + 2;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool is_short = c == '"' || c == '\\' || c == '\b' || c == '\f' ||
                        c == '\n' || c == '\r' || c == '\t';
        quoted += is_short ? 1 : c < 0x20 ? 5 : 0;
    }
    return quoted;
}

// Adds a text in quotes; bytes are UTF-8 and may hold zeros.
static void
quote_text(struct skr_text *text, const char *bytes, size_t size)
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

const char *
skr_json_compact(struct skr_arena *arena, const char *json, size_t size)
{
    struct skr_text compact = {0};
    struct parser parser = {.start = json, .at = json, .end = json + size};
    enum skr_code code = SKR_OK;
    for (skip_space(&parser); code == SKR_OK && parser.at < parser.end;
         skip_space(&parser)) {
        const char *text = NULL;
        size_t text_size = 0;
        if (*parser.at == '"') {
            code = parse_text(&parser, arena, &text, &text_size);
            if (code == SKR_OK)
                quote_text(&compact, text, text_size);
        } else {
            skr_text_add(&compact, parser.at++, 1);
        }
    }
    const char *copy = code == SKR_OK && !compact.broken
                           ? skr_arena_text(arena, compact.bytes, compact.size)
                           : NULL;
    skr_text_fini(&compact);
    return copy;
}

enum skr_code
skr_json_parse(struct skr_arena *nodes, struct skr_arena *texts,
               const char *bytes, size_t size, struct skr_json **json,
               struct skr_error *error)
{
    struct parser parser = {.nodes = nodes, .texts = texts, .error = error};
    struct skr_json *root = skr_arena_take(nodes, sizeof(*root));
    if (root == NULL)
        return skr_fail_memory(error);
    *root = (struct skr_json){.kind = SKR_JSON_NULL};
    enum skr_code code = parse(&parser, bytes, size, root);
    if (code == SKR_OK)
        *json = root;
    return code;
}

enum skr_json_kind
skr_json_kind(const struct skr_json *json)
{
    return json->kind;
}

enum skr_code
skr_json_fail_kind(const struct skr_json *json, const char *needed,
                   struct skr_error *error)
{
    static const char *const texts[] = {
        [SKR_JSON_NULL] = "null",       [SKR_JSON_BOOLEAN] = "a boolean",
        [SKR_JSON_NUMBER] = "a number", [SKR_JSON_TEXT] = "text",
        [SKR_JSON_ARRAY] = "an array",  [SKR_JSON_OBJECT] = "an object"};
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP, "%s is needed, not %s",
                    needed, texts[json->kind]);
}

enum skr_code
skr_json_read_boolean(const struct skr_json *json, bool *value,
                      struct skr_error *error)
{
    if (json->kind != SKR_JSON_BOOLEAN)
        return skr_json_fail_kind(json, "a boolean", error);
    *value = json->truth;
    return SKR_OK;
}

// False when it has a fraction or an exponent, or over 64 bits.
static bool
parse_whole(const char *digits, struct skr_whole *whole)
{
    whole->is_negative = digits[0] == '-';
    whole->magnitude = 0;
    for (const char *at = digits + whole->is_negative; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        uint64_t digit = (uint64_t)(*at - '0');
        if (whole->magnitude > (UINT64_MAX - digit) / 10)
            return false;
        whole->magnitude = whole->magnitude * 10 + digit;
    }
    return true;
}

enum skr_code
skr_json_read_whole(const struct skr_json *json, uint64_t least, uint64_t most,
                    struct skr_whole *whole, struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a whole number", error);
    if (!parse_whole(json->text, whole) ||
        whole->magnitude > (whole->is_negative ? least : most))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a whole number from %s%" PRIu64 " to %" PRIu64
                        " is needed",
                        least == 0 ? "" : "-", least, most);
    return SKR_OK;
}

enum skr_code
skr_json_read_signed(const struct skr_json *json, int64_t *value,
                     struct skr_error *error)
{
    struct skr_whole whole = {0};
    enum skr_code code = skr_json_read_whole(
        json, (uint64_t)INT64_MAX + 1, (uint64_t)INT64_MAX, &whole, error);
    if (code != SKR_OK)
        return code;
    *value =
        (int64_t)(whole.is_negative ? 0 - whole.magnitude : whole.magnitude);
    return SKR_OK;
}

enum skr_code
skr_json_read_unsigned(const struct skr_json *json, uint64_t *value,
                       struct skr_error *error)
{
    struct skr_whole whole = {0};
    enum skr_code code =
        skr_json_read_whole(json, 0, UINT64_MAX, &whole, error);
    if (code != SKR_OK)
        return code;
    *value = whole.magnitude;
    return SKR_OK;
}

// strtod() and printf() use the decimal point of the application's locale.
// One more call tells it without asking a function that is not thread-safe.
static size_t
find_decimal_point(char point[16])
{
    char half[16];
    int length = snprintf(half, sizeof(half), "%.1f", 0.5);
    size_t size = length > 2 ? (size_t)length - 2 : 0;
    memcpy(point, half + 1, size);
    return size;
}

// A copy of the digits with the locale's decimal point; the caller frees it.
static char *
localize(const char *digits, const char *point, size_t point_size)
{
    struct skr_text copy = {0};
    const char *dot = strchr(digits, '.');
    if (dot == NULL)
        dot = digits + strlen(digits);
    skr_text_add(&copy, digits, (size_t)(dot - digits));
    if (*dot == '.') {
        skr_text_add(&copy, point, point_size);
        skr_text_add_string(&copy, dot + 1);
    }
    return skr_text_take(&copy);
}

enum skr_code
skr_json_read_double(const struct skr_json *json, double *value,
                     struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a number", error);
    char point[16];
    size_t point_size = find_decimal_point(point);
    double number;
    if (point_size == 1 && point[0] == '.') {
        number = strtod(json->text, NULL);
    } else {
        char *localized = localize(json->text, point, point_size);
        if (localized == NULL)
            return skr_fail_memory(error);
        number = strtod(localized, NULL);
        free(localized);
    }
    if (!isfinite(number))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the number is too large");
    *value = number;
    return SKR_OK;
}

enum skr_code
skr_json_read_text(const struct skr_json *json, const char **text, size_t *size,
                   struct skr_error *error)
{
    if (json->kind != SKR_JSON_TEXT)
        return skr_json_fail_kind(json, "text", error);
    if (memchr(json->text, '\0', json->text_size) != NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the text has a zero character in it");
    *text = json->text;
    *size = json->text_size;
    return SKR_OK;
}

enum skr_code
skr_json_read_digits(const struct skr_json *json, const char **digits,
                     struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a number", error);
    *digits = json->text;
    return SKR_OK;
}

const struct skr_json *
skr_json_find(const struct skr_json *json, const char *name)
{
    const struct skr_json *found = NULL;
    if (json->kind != SKR_JSON_OBJECT)
        return NULL;
    size_t size = strlen(name);
    for (const struct skr_json *at = json->first; at != NULL; at = at->next)
        if (at->name_size == size && memcmp(at->name, name, size) == 0)
            found = at;
    return found;
}

const struct skr_json *
skr_json_first(const struct skr_json *json)
{
    return json->first;
}

const struct skr_json *
skr_json_next(const struct skr_json *json)
{
    return json->next;
}

const char *
skr_json_name(const struct skr_json *json)
{
    return json->name;
}

// Below DBL_MIN fewer than 15 digits may do; above it, what has a short form
// shows it at 15, since %g drops trailing zeros.
static void
format_shortest(double value, char *text, size_t size)
{
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

bool
skr_number_format(double value, char text[SKR_NUMBER_SIZE])
{
    if (!isfinite(value))
        return false;
    char localized[SKR_NUMBER_SIZE];
    format_shortest(value, localized, sizeof(localized));
    char point[16];
    size_t point_size = find_decimal_point(point);
    char *out = text;
    bool is_plain = true;
    for (const char *at = localized; *at != '\0'; at++) {
        if (point_size > 0 && strncmp(at, point, point_size) == 0) {
            *out++ = '.';
            at += point_size - 1;
            is_plain = false;
            continue;
        }
        *out++ = *at;
        if (*at == 'e')
            is_plain = false;
    }
    memcpy(out, is_plain ? ".0" : "", is_plain ? 3 : 1);
    return true;
}

static void
keep_mistake(struct skr_json_writer *writer, const char *why)
{
    if (writer->error.code == SKR_OK)
        skr_fail(&writer->error, SKR_INVALID, SKR_GIVE_UP, "%s", why);
}

// Nothing was written since the bracket that opened the level.
static bool
is_at_bracket(const struct skr_json_writer *writer)
{
    const struct skr_text *text = &writer->text;
    return text->size > 0 && strchr("[{", text->bytes[text->size - 1]) != NULL;
}

static void
break_line(struct skr_json_writer *writer)
{
    skr_text_add_format(&writer->text, "\n%*s",
                        (int)(writer->indent * writer->depth), "");
}

void
skr_json_write_separator(struct skr_json_writer *writer)
{
    bool is_next = writer->needs_comma;
    if (is_next)
        skr_text_add(&writer->text, ",", 1);
    if (writer->indent > 0 && (is_next || is_at_bracket(writer)))
        break_line(writer);
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

void
skr_json_write_text(struct skr_json_writer *writer, const char *text,
                    size_t size)
{
    if (!skr_text_is_storable(text, size)) {
        keep_mistake(writer, "the text is not well-formed UTF-8");
        return;
    }
    skr_json_write_separator(writer);
    quote_text(&writer->text, text, size);
    writer->needs_comma = true;
}

void
skr_json_write_name(struct skr_json_writer *writer, const char *name)
{
    skr_json_write_text(writer, name, strlen(name));
    skr_text_add_string(&writer->text, writer->indent > 0 ? ": " : ":");
    writer->needs_comma = false;
}

void
skr_json_write_member(struct skr_json_writer *writer, const char *name,
                      const char *text)
{
    skr_json_write_name(writer, name);
    if (text == NULL)
        skr_json_write_null(writer);
    else
        skr_json_write_text(writer, text, strlen(text));
}

static void
open_level(struct skr_json_writer *writer, const char *bracket)
{
    skr_json_write_separator(writer);
    skr_text_add(&writer->text, bracket, 1);
    writer->depth++;
}

static void
close_level(struct skr_json_writer *writer, const char *bracket)
{
    writer->depth--;
    if (writer->indent > 0 && !is_at_bracket(writer))
        break_line(writer);
    skr_text_add(&writer->text, bracket, 1);
    writer->needs_comma = true;
}

void
skr_json_begin_object(struct skr_json_writer *writer)
{
    open_level(writer, "{");
}

void
skr_json_end_object(struct skr_json_writer *writer)
{
    close_level(writer, "}");
}

void
skr_json_begin_array(struct skr_json_writer *writer)
{
    open_level(writer, "[");
}

void
skr_json_end_array(struct skr_json_writer *writer)
{
    close_level(writer, "]");
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
    open_level(writer, is_object ? "{" : "[");
    for (const struct skr_json *member = json->first; member != NULL;
         member = member->next) {
        if (is_object)
            skr_json_write_name(writer, member->name);
        skr_json_write(writer, member);
    }
    close_level(writer, is_object ? "}" : "]");
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
