// SPDX-License-Identifier: MIT
// Parses, writes and masks DSNs. Masking works on texts that do not parse,
// since a DSN with a mistake in it has a password too.

#include "base/url.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/secret.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ESCAPES \
    "in a user or a password / is written %%2f, : %%3a, ? %%3f and @ %%40"

static enum skr_code
decode(const char *start, const char *end, const char *part, char **decoded,
       struct skr_error *error)
{
    char *out = malloc((size_t)(end - start) + 1);
    if (out == NULL)
        return skr_fail_memory(error);
    char *to = out;
    for (const char *at = start; at < end; at++) {
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        int high = end - at > 2 ? skr_text_hex_digit(at[1]) : -1;
        int low = high >= 0 ? skr_text_hex_digit(at[2]) : -1;
        if (low < 0 || (high == 0 && low == 0)) {
            free(out);
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the %s of the DSN %s", part,
                            low < 0 ? "has a % that is not followed by two "
                                      "hexadecimal digits; write % as %25"
                                    : "holds %00, a zero byte, which ends "
                                      "every text");
        }
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = '\0';
    *decoded = out;
    return SKR_OK;
}

static const char *
find_between(const char *start, const char *end, const char *any_of)
{
    for (const char *at = start; at < end; at++)
        if (strchr(any_of, *at) != NULL)
            return at;
    return end;
}

// What is written before a scheme by mistake, and how it is told.
static const struct {
    const char *prefix, *told;
} not_schemes[] = {
    {" ", "a blank"},
    {"'", "a quote"},
    {"\"", "a quote"},
    {"jdbc:", "jdbc:"},
    {"$", "$; %env(NAME)% reads an environment variable"},
};

static enum skr_code
parse_scheme(const char *text, struct skr_url *url, const char **rest,
             struct skr_error *error)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    for (size_t i = 0; i < SKR_COUNT_OF(not_schemes); i++)
        if (skr_text_starts_with(text, not_schemes[i].prefix))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "a DSN begins with scheme://, as in "
                            "sqlite:///shop.db, and not with %s",
                            not_schemes[i].told);
    const char *colon = strstr(text, "://");
    if (length == 0 || text + length != colon)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a DSN begins with scheme://, as in "
                        "sqlite:///shop.db%s",
                        colon == NULL ? ""
                                      : "; a scheme has lower case letters, "
                                        "digits, +, - and .");
    *rest = text + length + 3;
    return decode(text, text + length, "scheme", &url->scheme, error);
}

static enum skr_code
parse_user(const char *start, const char *end, struct skr_url *url,
           struct skr_error *error)
{
    const char *colon = find_between(start, end, ":");
    enum skr_code code = decode(start, colon, "user", &url->user, error);
    if (code == SKR_OK && colon < end)
        code = decode(colon + 1, end, "password", &url->password, error);
    return code;
}

static bool
read_port(const char *at, const char *end, uint16_t *port)
{
    char text[16];
    int64_t number = 0;
    int size = snprintf(text, sizeof(text), "%.*s", (int)(end - at), at);
    bool is_port = size < (int)sizeof(text) &&
                   skr_text_number(text, 1, UINT16_MAX, &number);
    *port = (uint16_t)number;
    return is_port;
}

static enum skr_code
parse_host(const char *start, const char *end, struct skr_url *url,
           struct skr_error *error)
{
    const char *colon = end;
    if (find_between(start, end, ",") == end) {
        const char *after = find_between(start, end, "]");
        colon = find_between(after == end ? start : after, end, ":");
    }
    if (colon < end && !read_port(colon + 1, end, &url->port))
        return skr_fail(
            error, SKR_INVALID, SKR_GIVE_UP,
            "the port of the DSN is not a number from 1 to 65535; " ESCAPES);
    if (colon == start)
        return SKR_OK;
    return decode(start, colon, "host", &url->host, error);
}

// A password that is not escaped ends at its / or ?. Its parts must not be told
// of as a host, a path or the name of a parameter.
static enum skr_code
check_escapes(const char *start, const char *end, struct skr_error *error)
{
    if (find_between(start, end, "@") == end)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "an @ of the DSN stands behind a / or a ?; write %%40 if "
                    "it belongs there, and " ESCAPES);
}

static enum skr_code
parse_parameters(const char *at, const char *end, struct skr_url *url,
                 struct skr_error *error)
{
    while (at < end) {
        const char *stop = find_between(at, end, "&");
        const char *equals = find_between(at, stop, "=");
        if (url->parameter_count == SKR_URL_MAX_PARAMETERS)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the DSN has more than %d parameters",
                            SKR_URL_MAX_PARAMETERS);
        struct skr_url_parameter *parameter =
            &url->parameters[url->parameter_count++];
        enum skr_code code = check_escapes(at, equals, error);
        if (code == SKR_OK)
            code =
                decode(at, equals, "parameter name", &parameter->name, error);
        if (code == SKR_OK)
            code = decode(equals < stop ? equals + 1 : stop, stop,
                          "parameter value", &parameter->value, error);
        if (code != SKR_OK)
            return code;
        at = stop + 1;
    }
    return SKR_OK;
}

static enum skr_code
parse_rest(const char *rest, struct skr_url *url, struct skr_error *error)
{
    const char *end = rest + strlen(rest);
    const char *query = find_between(rest, end, "?");
    const char *slash = find_between(rest, query, "/");
    const char *at_sign = slash;
    while (at_sign > rest && at_sign[-1] != '@')
        at_sign--;
    enum skr_code code = SKR_OK;
    if (at_sign > rest)
        code = parse_user(rest, at_sign - 1, url, error);
    if (code == SKR_OK)
        code = parse_host(at_sign, slash, url, error);
    // Behind a path a parameter may have an @, as a user's name does.
    if (code == SKR_OK && find_between(rest, slash, "@:") < slash)
        code = check_escapes(
            slash, at_sign > rest && slash == query ? end : query, error);
    if (code == SKR_OK && slash < query)
        code = decode(slash + 1, query, "path", &url->path, error);
    if (code == SKR_OK && query < end)
        code = parse_parameters(query + 1, end, url, error);
    return code;
}

enum skr_code
skr_url_parse(const char *text, struct skr_url *url, struct skr_error *error)
{
    struct skr_url parsed = {0};
    const char *rest = text + strlen(text);
    if (rest > text && isspace((unsigned char)rest[-1]))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a blank or a line break ends the DSN; take it out of "
                        "the variable or file that it comes from");
    enum skr_code code = parse_scheme(text, &parsed, &rest, error);
    if (code == SKR_OK)
        code = parse_rest(rest, &parsed, error);
    if (code != SKR_OK) {
        skr_url_fini(&parsed);
        return code;
    }
    *url = parsed;
    return SKR_OK;
}

void
skr_url_fini(struct skr_url *url)
{
    free(url->scheme);
    free(url->user);
    free(url->password);
    free(url->host);
    free(url->path);
    for (size_t i = 0; i < url->parameter_count; i++) {
        free(url->parameters[i].name);
        free(url->parameters[i].value);
    }
    *url = (struct skr_url){0};
}

// False: memory is out.
static bool
copy_text(const char *text, char **copy)
{
    *copy = text == NULL ? NULL : strdup(text);
    return text == NULL || *copy != NULL;
}

enum skr_code
skr_url_copy(const struct skr_url *url, struct skr_url *copy)
{
    *copy = (struct skr_url){.port = url->port};
    bool is_whole = copy_text(url->scheme, &copy->scheme) &&
                    copy_text(url->user, &copy->user) &&
                    copy_text(url->password, &copy->password) &&
                    copy_text(url->host, &copy->host) &&
                    copy_text(url->path, &copy->path);
    for (size_t i = 0; is_whole && i < url->parameter_count; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        copy->parameter_count++;
        is_whole = copy_text(parameter->name, &copy->parameters[i].name) &&
                   copy_text(parameter->value, &copy->parameters[i].value);
    }
    if (is_whole)
        return SKR_OK;
    skr_url_fini(copy);
    return skr_fail_memory(NULL);
}

const char *
skr_url_find(const struct skr_url *url, const char *name)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0)
            return url->parameters[i].value;
    return NULL;
}

static enum skr_code
fail_unknown(const struct skr_url *url, const char *unknown,
             const char *const *known, size_t count, struct skr_error *error)
{
    struct skr_text list = {0};
    struct skr_nearest nearest = {.name = unknown};
    for (size_t i = 0; i < count; i++) {
        skr_text_add_format(&list, "%s%s", i == 0 ? "" : ", ", known[i]);
        skr_nearest_compare(&nearest, known[i], known[i]);
    }
    bool is_near = nearest.meant != NULL;
    skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
             "%.80s is not a parameter of a %s:// DSN; %s%s%s", unknown,
             url->scheme, is_near ? "did you mean " : "it has ",
             is_near       ? nearest.meant
             : list.broken ? ""
                           : list.bytes,
             is_near ? "?" : "");
    skr_text_fini(&list);
    return SKR_INVALID;
}

enum skr_code
skr_url_check_parameters(const struct skr_url *url, const char *const *known,
                         size_t count, struct skr_error *error)
{
    static const char *const of_others[] = {"serverVersion", "charset"};
    for (size_t i = 0; i < url->parameter_count; i++) {
        const char *name = url->parameters[i].name;
        if (!skr_text_is_among(name, known, count) &&
            !skr_text_is_among(name, of_others, SKR_COUNT_OF(of_others)))
            return fail_unknown(url, name, known, count, error);
    }
    return SKR_OK;
}

static enum skr_code
read_number(const char *name, const char *text, int64_t least, int64_t most,
            int64_t *number, struct skr_error *error)
{
    if (text == NULL || skr_text_number(text, least, most, number))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%s in the DSN: a whole number from %lld to %lld is "
                    "needed",
                    name, text, (long long)least, (long long)most);
}

enum skr_code
skr_url_number(const struct skr_url *url, const char *name, int64_t least,
               int64_t most, int64_t *number, struct skr_error *error)
{
    return read_number(name, skr_url_find(url, name), least, most, number,
                       error);
}

static enum skr_code
read_boolean(const char *name, const char *text, bool *value,
             struct skr_error *error)
{
    if (text == NULL || skr_text_boolean(text, value))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%.40s in the DSN: true or false is needed", name, text);
}

enum skr_code
skr_url_boolean(const struct skr_url *url, const char *name, bool *value,
                struct skr_error *error)
{
    return read_boolean(name, skr_url_find(url, name), value, error);
}

// With a fraction if need be, as Symfony's times have it.
static enum skr_code
read_seconds(const struct skr_url_option *option, const char *text,
             int64_t *time_ms, struct skr_error *error)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    double least = (double)option->least / 1000;
    double most = (double)option->most / 1000;
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < least ||
        seconds > most)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s=%s in the DSN: a number of seconds from %g to %g "
                        "is needed",
                        option->name, text, least, most);
    *time_ms = (int64_t)(seconds * 1000);
    return SKR_OK;
}

static enum skr_code
read_choice(const struct skr_url_option *option, const char *text,
            bool *is_second, struct skr_error *error)
{
    *is_second = strcmp(text, option->words[1]) == 0;
    if (*is_second || strcmp(text, option->words[0]) == 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%.40s in the DSN: %s or %s is needed", option->name,
                    text, option->words[0], option->words[1]);
}

static enum skr_code
read_option(const struct skr_url *url, const struct skr_url_option *option,
            struct skr_arena *arena, void *value, struct skr_error *error)
{
    const char *text = NULL;
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, option->name) == 0)
            text = url->parameters[i].value;
    if (text == NULL)
        return SKR_OK;
    switch (option->kind) {
    case SKR_URL_ELSEWHERE: break;
    case SKR_URL_TEXT: return skr_arena_keep(arena, text, value, error);
    case SKR_URL_BOOLEAN: return read_boolean(option->name, text, value, error);
    case SKR_URL_NUMBER:
        return read_number(option->name, text, option->least, option->most,
                           value, error);
    case SKR_URL_SECONDS: return read_seconds(option, text, value, error);
    case SKR_URL_CHOICE: return read_choice(option, text, value, error);
    }
    return SKR_OK;
}

enum skr_code
skr_url_read(const struct skr_url *url, const struct skr_url_option *options,
             size_t count, struct skr_arena *arena, void *values,
             struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = read_option(url, &options[i], arena,
                           (char *)values + options[i].place, error);
    return code;
}

bool
skr_url_is_option(const char *name, const struct skr_url_option *options,
                  size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, options[i].name) == 0 ||
            (skr_text_ends_with(options[i].name, "[") &&
             skr_text_starts_with(name, options[i].name)))
            return true;
    return false;
}

static void
add_escaped(struct skr_text *dsn, const char *text, const char *plain)
{
    for (; *text != '\0'; text++)
        if (isalnum((unsigned char)*text) || strchr(plain, *text) != NULL)
            skr_text_add(dsn, text, 1);
        else
            skr_text_add_format(dsn, "%%%02X", (unsigned char)*text);
}

void
skr_url_add_encoded(struct skr_text *text, const char *value)
{
    add_escaped(text, value, "-._~");
}

void
skr_url_add_parameter(struct skr_text *dsn, const char *name, const char *value)
{
    bool first = dsn->bytes == NULL || strchr(dsn->bytes, '?') == NULL;
    skr_text_add(dsn, first ? "?" : "&", 1);
    add_escaped(dsn, name, "-._~[]");
    skr_text_add(dsn, "=", 1);
    add_escaped(dsn, value, "-._~");
}

static void
add_folder(struct skr_text *placed, const char *folder)
{
    add_escaped(placed, folder, "-._~/");
    if (!skr_text_ends_with(folder, "/"))
        skr_text_add(placed, "/", 1);
}

static bool
is_relative(const char *value, const char *end)
{
    // Client libraries take these words in the place of a file.
    static const char *const words[] = {"system", "probe"};
    size_t size = (size_t)(end - value);
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (strlen(words[i]) == size && memcmp(words[i], value, size) == 0)
            return false;
    // A keytab of Kerberos may name its kind.
    return size > 0 && value[0] != '/' && strncasecmp(value, "%2f", 3) != 0 &&
           strncmp(value, "FILE:", 5) != 0 &&
           strncasecmp(value, "FILE%3a", 7) != 0;
}

static bool
names_file(const struct skr_url_files *files, const char *name, size_t size)
{
    const char *const *known = files->parameters;
    for (; known != NULL && *known != NULL; known++)
        if (strlen(*known) == size && memcmp(*known, name, size) == 0)
            return true;
    return false;
}

// at is behind the ?.
static void
place_parameters(struct skr_text *placed, const struct skr_url_files *files,
                 const char *at, const char *folder)
{
    while (*at != '\0') {
        size_t size = strcspn(at, "&");
        const char *equals = find_between(at, at + size, "=");
        const char *value = equals < at + size ? equals + 1 : at + size;
        skr_text_add(placed, at, (size_t)(value - at));
        if (names_file(files, at, (size_t)(equals - at)) &&
            is_relative(value, at + size))
            add_folder(placed, folder);
        skr_text_add(placed, value, (size_t)(at + size - value));
        at += size;
        if (*at == '&')
            skr_text_add(placed, at++, 1);
    }
}

char *
skr_url_place(const char *text, const struct skr_url_files *files,
              const char *folder)
{
    struct skr_text placed = {0};
    const char *query = text + strcspn(text, "?");
    const char *path = strstr(text, ":///");
    if (files->is_path && path != NULL && path < query) {
        path += strlen(":///");
        skr_text_add(&placed, text, (size_t)(path - text));
        if (path[0] != ':' && is_relative(path, query))
            add_folder(&placed, folder);
    } else {
        path = text;
    }
    skr_text_add(&placed, path, (size_t)(query - path));
    if (*query == '?') {
        skr_text_add(&placed, "?", 1);
        place_parameters(&placed, files, query + 1, folder);
    }
    return skr_text_take(&placed);
}

// A key of any kind is taken for a secret, and a DSN may hold a password.
static bool
looks_secret(const char *name, const char *end)
{
    if (skr_secret_is_name(name, (size_t)(end - name)))
        return true;
    for (; end - name >= 3; name++)
        if (strncasecmp(name, "key", 3) == 0 ||
            strncasecmp(name, "dsn", 3) == 0)
            return true;
    return false;
}

// Where a password or a lone user stands. A password goes from its colon's
// successor to the last @ of all: one that was not escaped may hold any
// character, and masking too much is the safe mistake. Empty at the end when
// there is none.
static void
find_password(const char *text, const char **start, const char **end)
{
    *start = *end = text + strlen(text);
    const char *authority = strstr(text, "://");
    const char *last_at = strrchr(text, '@');
    if (last_at == NULL)
        return;
    authority = authority == NULL ? text : authority + 3;
    if (authority > last_at)
        return;
    const char *colon = find_between(authority, last_at, ":");
    if (colon < last_at) {
        *start = colon + 1;
        *end = last_at;
        return;
    }
    // What stands alone before the host may be a token. An @ further on is none
    // of its business.
    const char *only_at = find_between(authority, last_at, "/?#@");
    if (*only_at != '@' || only_at == authority)
        return;
    *start = authority;
    *end = only_at;
}

char *
skr_url_mask(const char *text)
{
    const char *password, *password_end;
    find_password(text, &password, &password_end);
    struct skr_text masked = {0};
    // Parameters are looked for in all of the text, the password included: an @
    // in a parameter must not bring the rest of its value to light.
    const char *name = NULL;
    bool in_secret = false, was_hidden = false;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '?' || *at == '&') {
            name = at + 1;
            in_secret = false;
        }
        bool hidden = in_secret || (at >= password && at < password_end);
        if (hidden && !was_hidden)
            skr_text_add_string(&masked, "***");
        if (!hidden)
            skr_text_add(&masked, at, 1);
        was_hidden = hidden;
        if (*at == '=' && name != NULL && looks_secret(name, at))
            in_secret = true;
    }
    return skr_text_take(&masked);
}

bool
skr_url_has_secret(const char *text)
{
    char *masked = skr_url_mask(text);
    bool has = masked == NULL || strcmp(masked, text) != 0;
    free(masked);
    return has;
}
