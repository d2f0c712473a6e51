// SPDX-License-Identifier: MIT
// %env(NAME)% in values: the environment's words, before any type is looked at.
// Files that %env(file:NAME)% reads: credentials, as Docker, Kubernetes and
// systemd hand them over; what was read is kept, so that a change is noticed.

#include "app/config/reader.h"
#include "base/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SECRET_SIZE = 64 * 1024 };

// Without the end of the last line, which editors add. Returns 0, or errno.
static int
read_text(const char *path, struct skr_text *text)
{
    struct stat status;
    // What is no file, such as a pipe without a writer, could be waited for
    // without an end.
    if (stat(path, &status) != 0)
        return errno;
    if (!S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? EISDIR : ESPIPE;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return errno;
    skr_text_add(text, "", 0);
    int failure = !skr_text_add_file(text, file, MAX_SECRET_SIZE) ? errno
                  : text->size > MAX_SECRET_SIZE                  ? EFBIG
                                                                  : 0;
    fclose(file);
    if (text->broken)
        return ENOMEM;
    if (failure == 0 && text->size > 0 && text->bytes[text->size - 1] == '\n')
        text->bytes[--text->size] = '\0';
    if (failure == 0 && text->size > 0 && text->bytes[text->size - 1] == '\r')
        text->bytes[--text->size] = '\0';
    return failure;
}

static void
note(struct skr_config_reader *reader, const char *path, const char *text)
{
    struct skr_config *config = reader->config;
    struct skr_config_file *grown =
        skr_arena_grow(&config->arena, config->files, config->file_count,
                       &reader->file_capacity, sizeof(*grown));
    reader->out_of_memory |= grown == NULL;
    if (grown == NULL)
        return;
    config->files = grown;
    grown[config->file_count++] =
        (struct skr_config_file){.path = skr_config_text(reader, "%s", path),
                                 .text = skr_config_text(reader, "%s", text)};
}

static bool
read_secret(struct skr_config_reader *reader,
            const struct skr_config_place *place, const char *name,
            const char *path, struct skr_text *text)
{
    int failure = read_text(path, text);
    if (failure != 0)
        return skr_config_mistake(
            reader, place,
            "the file %s, which the environment variable %s "
            "names, cannot be read: %s",
            path, name,
            failure == ESPIPE ? "it is no regular file" : strerror(failure));
    if (!skr_text_is_storable(text->bytes, text->size))
        return skr_config_mistake(
            reader, place,
            "the file %s, which the environment variable %s "
            "names, is not UTF-8",
            path, name);
    note(reader, path, text->bytes);
    return true;
}

bool
skr_config_files_changed(const struct skr_config *config)
{
    bool has_changed = false;
    for (size_t i = 0; i < config->file_count && !has_changed; i++) {
        struct skr_text text = {0};
        // One that is about to be replaced may be absent, or empty.
        has_changed = read_text(config->files[i].path, &text) == 0 &&
                      text.size > 0 &&
                      strcmp(text.bytes, config->files[i].text) != 0;
        skr_text_fini(&text);
    }
    return has_changed;
}

// What resolve: may nest, and how long a value may become.
enum { MAX_DEPTH = 8, MAX_SIZE = 1024 * 1024, MAX_NAME = 200 };

#define PROJECT_FOLDER "%kernel.project_dir%"

struct filling {
    struct skr_config_reader *reader;
    const struct skr_config_place *place;
    struct skr_text text;
};

static bool fill(struct filling *filling, const char *text, int depth);

static bool
add_whole_number(struct filling *filling, const char *name, const char *value)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0)
        return skr_config_mistake(
            filling->reader, filling->place,
            "the environment variable %s is not a whole number", name);
    skr_text_add_format(&filling->text, "%lld", number);
    return true;
}

static bool
add_boolean(struct filling *filling, const char *name, const char *value)
{
    bool is_true = false;
    if (skr_text_boolean(value, &is_true)) {
        skr_text_add_string(&filling->text, is_true ? "true" : "false");
        return true;
    }
    return skr_config_mistake(
        filling->reader, filling->place,
        "the environment variable %s is %s: true or false is "
        "needed",
        name, value[0] == '\0' ? "empty" : "no boolean");
}

static void
note_variable(struct skr_config_reader *reader, const char *name)
{
    struct skr_config *config = reader->config;
    if (skr_text_is_among(name, config->variables, config->variable_count))
        return;
    const char **grown = skr_arena_grow(
        &config->arena, config->variables, config->variable_count,
        &reader->variable_capacity, sizeof(*grown));
    reader->out_of_memory |= grown == NULL;
    if (grown == NULL)
        return;
    config->variables = grown;
    grown[config->variable_count++] = skr_config_text(reader, "%s", name);
}

// processors is "", or words that end with a colon, as in "int:resolve:". The
// one that stands nearest to the name comes first, and only file: and resolve:
// make a difference before another.
static bool
add_variable(struct filling *filling, const char *processors, const char *name,
             int depth)
{
    const char *value = getenv(name);
    if (value == NULL)
        return skr_config_mistake(filling->reader, filling->place,
                                  "the environment variable %s is not set",
                                  name);
    if (!skr_text_is_storable(value, strlen(value)))
        return skr_config_mistake(filling->reader, filling->place,
                                  "the environment variable %s is not UTF-8",
                                  name);
    note_variable(filling->reader, name);
    struct filling resolved = {filling->reader, filling->place, {0}};
    bool good = true;
    if (strstr(processors, "file:") != NULL)
        good = read_secret(filling->reader, filling->place, name,
                           skr_config_place_path(filling->reader, value),
                           &resolved.text);
    else if (strstr(processors, "resolve:") != NULL)
        good = fill(&resolved, value, depth + 1);
    else
        skr_text_add_string(&resolved.text, value);
    const char *text = resolved.text.bytes == NULL ? "" : resolved.text.bytes;
    if (good && strstr(processors, "urlencode:") != NULL)
        skr_url_add_encoded(&filling->text, text);
    else if (good && strstr(processors, "int:") != NULL)
        good = add_whole_number(filling, name, text);
    else if (good && strstr(processors, "bool:") != NULL)
        good = add_boolean(filling, name, text);
    else if (good)
        skr_text_add_string(&filling->text, text);
    filling->text.broken |= resolved.text.broken;
    skr_text_fini(&resolved.text);
    return good;
}

static bool
are_processors_known(const char *processors)
{
    static const char *const known[] = {
        "resolve:", "int:", "string:", "bool:", "file:", "urlencode:"};
    while (*processors != '\0') {
        size_t i = 0;
        while (i < SKR_COUNT_OF(known) &&
               !skr_text_starts_with(processors, known[i]))
            i++;
        if (i == SKR_COUNT_OF(known))
            return false;
        processors += strlen(known[i]);
    }
    return true;
}

// inside is what stands between %env( and )%.
static bool
add_reference(struct filling *filling, const char *inside, int depth)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    char processors[MAX_NAME + 1] = "";
    const char *colon = strrchr(inside, ':');
    const char *name = colon == NULL ? inside : colon + 1;
    if (!skr_text_is_identifier(name))
        return skr_config_mistake(filling->reader, filling->place,
                                  "%%env()%% needs the name of an environment "
                                  "variable, not '%s'",
                                  skr_config_excerpt(inside, excerpt));
    memcpy(processors, inside, (size_t)(name - inside));
    if (!are_processors_known(processors)) {
        skr_config_mistake(filling->reader, filling->place,
                           "%%env(%s)%% is not understood; resolve:, int:, "
                           "bool:, string:, file: and urlencode: may stand "
                           "before the name",
                           skr_config_excerpt(inside, excerpt));
        return false;
    }
    return add_variable(filling, processors, name, depth);
}

// Reads the reference at text, which begins with %env(; *end is behind it.
static bool
fill_reference(struct filling *filling, const char *text, const char **end,
               int depth)
{
    const char *inside = text + strlen("%env(");
    const char *close = strstr(inside, ")%");
    if (close == NULL || close - inside > MAX_NAME) {
        skr_config_mistake(filling->reader, filling->place,
                           "%%env( is not closed by )%%; write %%%% for a "
                           "plain %%");
        return false;
    }
    char copy[MAX_NAME + 1] = "";
    memcpy(copy, inside, (size_t)(close - inside));
    *end = close + strlen(")%");
    return add_reference(filling, copy, depth);
}

static bool
fill(struct filling *filling, const char *text, int depth)
{
    if (depth > MAX_DEPTH)
        return skr_config_mistake(
            filling->reader, filling->place,
            "environment variables refer to each other too "
            "deeply (%d levels at most)",
            MAX_DEPTH);
    while (*text != '\0') {
        size_t plain = strcspn(text, "%");
        skr_text_add(&filling->text, text, plain);
        text += plain;
        if (skr_text_starts_with(text, "%env(")) {
            if (!fill_reference(filling, text, &text, depth))
                return false;
        } else if (skr_text_starts_with(text, PROJECT_FOLDER)) {
            skr_text_add_string(&filling->text, filling->reader->project);
            text += strlen(PROJECT_FOLDER);
        } else if (*text == '%') {
            skr_text_add_string(&filling->text, "%");
            text += text[1] == '%' ? 2 : 1;
        }
        if (filling->text.size > MAX_SIZE)
            return skr_config_mistake(filling->reader, filling->place,
                                      "more than 1 MiB with its environment "
                                      "variables filled in");
    }
    return true;
}

const char *
skr_config_fill(struct skr_config_reader *reader,
                const struct skr_config_place *place, const char *text)
{
    if (strchr(text, '%') == NULL)
        return text;
    struct filling filling = {reader, place, {0}};
    const char *filled = NULL;
    if (fill(&filling, text, 0)) {
        filled = filling.text.broken
                     ? NULL
                     : skr_arena_text(&reader->config->arena,
                                      filling.text.bytes, filling.text.size);
        if (filled == NULL)
            reader->out_of_memory = true;
    }
    skr_text_fini(&filling.text);
    return filled;
}
