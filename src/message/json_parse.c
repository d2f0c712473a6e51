// SPDX-License-Identifier: MIT
// The JSON parser: RFC 8259, nothing beyond it, of bounded depth. What is only
// looked at is scanned or walked: a tree takes up to forty times its bytes.

#include "base/error.h"
#include "message/json.h"

#include <string.h>

struct parser {
    const char *start;
    const char *at;
    const char *end;
    size_t depth;
    struct skr_arena *arena;  // NULL: nothing is kept
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
    if (code != SKR_OK || parser->arena == NULL)
        return code;
    json->text_size = (size_t)(parser->at - start);
    json->text = skr_arena_text(parser->arena, start, json->text_size);
    return json->text == NULL ? skr_fail_memory(parser->error) : SKR_OK;
}

static bool
accept_hex4(struct parser *parser, uint32_t *value)
{
    if (parser->end - parser->at < 4)
        return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = parser->at[i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A' + 10);
        else
            return false;
        *value = *value << 4 | digit;
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
parse_text(struct parser *parser, const char **text, size_t *size)
{
    const char *quote = NULL;
    char character[CHARACTER_SIZE], *copy = character;
    enum skr_code code = begin_text(parser, &quote);
    if (code != SKR_OK)
        return code;
    // No escape is shorter than the character it stands for.
    if (parser->arena != NULL)
        copy = skr_arena_take(parser->arena, (size_t)(quote - parser->at) + 1);
    if (copy == NULL)
        return skr_fail_memory(parser->error);
    char *out = copy;
    while (parser->at < quote && code == SKR_OK) {
        code = parse_character(parser, &out);
        if (parser->arena == NULL)
            out = copy;
    }
    if (code != SKR_OK)
        return code;
    parser->at++;
    *out = '\0';
    *text = parser->arena == NULL ? NULL : copy;
    *size = (size_t)(out - copy);
    return SKR_OK;
}

static enum skr_code parse_value(struct parser *parser, struct skr_json *json);

static enum skr_code
parse_name(struct parser *parser, struct skr_json *member)
{
    skip_space(parser);
    const char *start = parser->at + 1;
    enum skr_code code = parse_text(parser, &member->name, &member->name_size);
    if (code != SKR_OK)
        return code;
    if (parser->arena == NULL) {
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
    bool is_raw = parser->arena == NULL ||
                  (start < inner.end && (*start == '{' || *start == '['));
    inner.take = NULL;
    if (is_raw)
        inner.arena = NULL;
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
    if (parser->arena == NULL)
        return parse_value(parser, child);
    struct skr_json *kept = skr_arena_take(parser->arena, sizeof(*kept));
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
        return parse_text(parser, &json->text, &json->text_size);
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
begin(struct parser *parser, const char *bytes, size_t size)
{
    parser->start = parser->at = bytes;
    parser->end = bytes + size;
    if (!skr_text_is_storable(bytes, size))
        return skr_fail(parser->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "not JSON: it is not well-formed UTF-8");
    return SKR_OK;
}

static enum skr_code
end(struct parser *parser)
{
    skip_space(parser);
    if (parser->at != parser->end)
        return fail(parser, "something follows the value");
    return SKR_OK;
}

static enum skr_code
parse(struct parser *parser, const char *bytes, size_t size,
      struct skr_json *json)
{
    enum skr_code code = begin(parser, bytes, size);
    if (code == SKR_OK)
        code = parse_value(parser, json);
    return code == SKR_OK ? end(parser) : code;
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
skr_json_walk(struct skr_arena *arena, const char *bytes, size_t size,
              enum skr_json_kind *kind, skr_json_child_fn *take, void *user,
              struct skr_error *error)
{
    struct parser parser = {
        .arena = arena, .take = take, .user = user, .error = error};
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

const char *
skr_json_compact(struct skr_arena *arena, const char *json, size_t size)
{
    struct skr_text compact = {0};
    struct parser parser = {
        .start = json, .at = json, .end = json + size, .arena = arena};
    enum skr_code code = SKR_OK;
    for (skip_space(&parser); code == SKR_OK && parser.at < parser.end;
         skip_space(&parser)) {
        const char *text = NULL;
        size_t text_size = 0;
        if (*parser.at == '"') {
            code = parse_text(&parser, &text, &text_size);
            if (code == SKR_OK)
                skr_json_quote(&compact, text, text_size);
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
skr_json_parse(struct skr_arena *arena, const char *bytes, size_t size,
               size_t depth, struct skr_json **json, struct skr_error *error)
{
    struct parser parser = {.depth = depth, .arena = arena, .error = error};
    struct skr_json *root = skr_arena_take(arena, sizeof(*root));
    if (root == NULL)
        return skr_fail_memory(error);
    *root = (struct skr_json){.kind = SKR_JSON_NULL};
    enum skr_code code = parse(&parser, bytes, size, root);
    if (code == SKR_OK)
        *json = root;
    return code;
}
