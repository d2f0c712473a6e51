// SPDX-License-Identifier: MIT
// From a file to a configuration, with reports of mistakes and warnings; and
// where relative paths begin: in the folder of the file, not where the program
// happens to be started.
#include "app/config/reader.h"

#include "base/error.h"
#include "base/secret.h"
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPORT_SIZE = 512 };

static __attribute__((format(printf, 4, 0))) void
report(struct skr_config_reader *reader, enum skr_config_severity severity,
       const struct skr_config_place *place, const char *format,
       va_list arguments)
{
    char text[REPORT_SIZE];
    int used = 0;
    if (place->path[0] != '\0')
        used = snprintf(text, sizeof(text), "%s: ", place->path);
    if (used < 0 || (size_t)used >= sizeof(text))
        used = 0;
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    if (reader->listener.report != NULL)
        reader->listener.report(reader->listener.user, severity,
                                reader->config->path, place->line, text);
    reader->mistakes += severity == SKR_CONFIG_MISTAKE;
    if (severity == SKR_CONFIG_WARNING || reader->code != SKR_OK)
        return;
    reader->code = SKR_INVALID;
    if (place->line > 0)
        skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP, "%s:%d: %s",
                 reader->config->path, place->line, text);
    else
        skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP, "%s: %s",
                 reader->config->path, text);
}

bool
skr_config_mistake(struct skr_config_reader *reader,
                   const struct skr_config_place *place, const char *format,
                   ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(reader, SKR_CONFIG_MISTAKE, place, format, arguments);
    va_end(arguments);
    return false;
}

void
skr_config_warn(struct skr_config_reader *reader,
                const struct skr_config_place *place, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(reader, SKR_CONFIG_WARNING, place, format, arguments);
    va_end(arguments);
}

const char *
skr_config_text(struct skr_config_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *formatted = NULL;
    int length = vasprintf(&formatted, format, arguments);
    va_end(arguments);
    const char *kept = NULL;
    if (length >= 0) {
        kept =
            skr_arena_text(&reader->config->arena, formatted, (size_t)length);
        free(formatted);
    }
    if (kept == NULL)
        reader->out_of_memory = true;
    return kept == NULL ? "" : kept;
}

void *
skr_config_take(struct skr_config_reader *reader, size_t count, size_t size)
{
    void *taken = skr_arena_take(&reader->config->arena, count * size);
    if (taken == NULL)
        reader->out_of_memory = true;
    else
        memset(taken, 0, count * size);
    return taken;
}

const char *
skr_config_excerpt(const char *text, char excerpt[SKR_CONFIG_EXCERPT_SIZE])
{
    // A DSN at the wrong place must not show its password either.
    char *masked = strstr(text, "://") == NULL ? NULL : skr_url_mask(text);
    const char *from = skr_secret_is_key(text) ? "***"
                       : masked == NULL        ? text
                                               : masked;
    bool is_text = skr_text_is_storable(from, strlen(from));
    size_t length = 0;
    for (; from[length] != '\0' && length < SKR_CONFIG_EXCERPT_SIZE - 4;
         length++) {
        unsigned char c = (unsigned char)from[length];
        excerpt[length] = c < ' ' || (c > '~' && !is_text) ? '?' : from[length];
    }
    // Not in the middle of a character.
    while (from[length] != '\0' && length > 0 &&
           ((unsigned char)from[length] & 0xc0) == 0x80)
        length--;
    strcpy(excerpt + length, from[length] == '\0' ? "" : "...");
    free(masked);
    return excerpt;
}

#define SYSTEM_PATH "/etc/skirnir/skirnir.yaml"

enum { MAX_FILE_SIZE = 4 * 1024 * 1024, PIPE_PATIENCE_MS = 5000 };

static enum skr_code
report_file(const char *path, int line, struct skr_config_listener listener,
            enum skr_code code, const char *text, struct skr_error *error)
{
    if (listener.report != NULL)
        listener.report(listener.user, SKR_CONFIG_MISTAKE, path, line, text);
    if (line > 0)
        return skr_fail(error, code, SKR_GIVE_UP, "%s:%d: %s", path, line,
                        text);
    return skr_fail(error, code, SKR_GIVE_UP, "%s: %s", path, text);
}

// Without links and dots; where there is no such folder, below the present one.
static const char *
absolute(struct skr_config_reader *reader, const char *folder)
{
    char *real = realpath(folder, NULL);
    char here[PATH_MAX] = "";
    const char *kept =
        real != NULL || folder[0] == '/' || getcwd(here, sizeof(here)) == NULL
            ? skr_config_text(reader, "%s", real == NULL ? folder : real)
            : skr_config_text(reader, "%s/%s", here, folder);
    free(real);
    return kept;
}

static bool
is_last(const char *folder, size_t size, const char *name)
{
    size_t length = strlen(name);
    return size > length && folder[size - length - 1] == '/' &&
           memcmp(folder + size - length, name, length) == 0;
}

static size_t
size_above(const char *folder, size_t size)
{
    while (size > 0 && folder[size - 1] != '/')
        size--;
    return size > 1 ? size - 1 : size;
}

// In config/, config/packages/ or config/packages/ENVIRONMENT/.
static size_t
project_size(const char *folder)
{
    size_t all = strlen(folder);
    size_t size = all;
    if (is_last(folder, size_above(folder, size), "packages"))
        size = size_above(folder, size);
    if (is_last(folder, size, "packages"))
        size = size_above(folder, size);
    return is_last(folder, size, "config") ? size_above(folder, size) : all;
}

// The folder of a file, and the project that it belongs to: the one above
// config/ for a file in config/ or config/packages/, as Symfony has them.
static void
find_folders(struct skr_config_reader *reader, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *given =
        slash == NULL ? "."
        : slash == path
            ? "/"
            : skr_config_text(reader, "%.*s", (int)(slash - path), path);
    const char *folder = absolute(reader, given);
    reader->folder = slash == NULL ? NULL : folder;
    reader->project =
        skr_config_text(reader, "%.*s", (int)project_size(folder), folder);
}

const char *
skr_config_place_path(struct skr_config_reader *reader, const char *path)
{
    if (reader->folder == NULL || path[0] == '/' || path[0] == '\0')
        return path;
    if (skr_text_starts_with(path, "./"))
        path += strlen("./");
    return skr_config_text(reader, "%s/%s", reader->folder, path);
}

static enum skr_code
read_tree(struct skr_config *config, struct skr_yaml_node *root,
          struct skr_config_listener listener, struct skr_error *error)
{
    struct skr_config_reader reader = {
        .config = config, .listener = listener, .error = error};
    size_t count = 0;
    skr_config_keys(&count);
    find_folders(&reader, config->path);
    reader.given = skr_config_take(&reader, count, sizeof(*reader.given));
    if (!reader.out_of_memory) {
        skr_config_read(&reader, root);
        if (root->kind == SKR_YAML_MAP && !reader.out_of_memory)
            skr_config_check(&reader);
    }
    bool out_of_memory = reader.out_of_memory || reader.ignored.broken;
    skr_text_fini(&reader.ignored);
    return out_of_memory ? skr_fail_memory(error) : reader.code;
}

static enum skr_code
parse(struct skr_config *config, const char *text, size_t size,
      struct skr_config_listener listener, struct skr_error *error)
{
    struct skr_yaml_node *root = NULL;
    struct skr_error malformed;
    int line = 0;
    enum skr_code code =
        skr_yaml_parse(text, size, &config->arena, &root, &line, &malformed);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        return report_file(config->path, line, listener, code, malformed.text,
                           error);
    if (root == NULL || root->kind == SKR_YAML_NULL)
        return report_file(config->path, 0, listener, SKR_INVALID,
                           "the file is empty; it needs at least "
                           "'transports:'",
                           error);
    return read_tree(config, root, listener, error);
}

enum skr_code
skr_config_parse(const char *text, size_t size, const char *path,
                 struct skr_config_listener listener,
                 struct skr_config **config, struct skr_error *error)
{
    struct skr_config *parsed = calloc(1, sizeof(*parsed));
    if (parsed == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_NO_MEMORY;
    parsed->path = skr_arena_text(&parsed->arena, path, strlen(path));
    if (parsed->path != NULL)
        code = parse(parsed, text, size, listener, error);
    else
        skr_fail_memory(error);
    if (code != SKR_OK) {
        skr_config_free(parsed);
        return code;
    }
    *config = parsed;
    return SKR_OK;
}

void
skr_config_free(struct skr_config *config)
{
    if (config == NULL)
        return;
    skr_arena_fini(&config->arena);
    free(config);
}

// errno is ETIMEDOUT: it is a pipe, and no process begins to write into it.
static FILE *
open_file(const char *path)
{
    struct pollfd input = {.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                           .events = POLLIN};
    if (input.fd < 0)
        return NULL;
    bool is_ready = poll(&input, 1, PIPE_PATIENCE_MS) != 0;
    // From here on what is written slowly is waited for.
    fcntl(input.fd, F_SETFL, 0);
    FILE *file = is_ready ? fdopen(input.fd, "r") : NULL;
    if (!is_ready)
        errno = ETIMEDOUT;
    if (file == NULL)
        close(input.fd);
    return file;
}

static const char *
describe(int problem)
{
    if (problem == ENOENT)
        return "there is no such file";
    return problem == ETIMEDOUT ? "it is a pipe that nobody writes into"
                                : strerror(problem);
}

static enum skr_code
load(const char *path, struct skr_config_listener listener,
     struct skr_config **config, struct skr_error *error)
{
    struct skr_text text = {0};
    FILE *file = open_file(path);
    if (file == NULL)
        return report_file(path, 0, listener,
                           errno == ENOENT ? SKR_MISSING : SKR_REFUSED,
                           describe(errno), error);
    enum skr_code code = SKR_OK;
    if (!skr_text_add_file(&text, file, MAX_FILE_SIZE))
        code =
            report_file(path, 0, listener, SKR_REFUSED, strerror(errno), error);
    else if (text.size > MAX_FILE_SIZE)
        code = report_file(path, 0, listener, SKR_INVALID,
                           "the file is larger than 4 MiB", error);
    else if (text.broken)
        code = skr_fail_memory(error);
    else
        code = skr_config_parse(text.bytes == NULL ? "" : text.bytes, text.size,
                                path, listener, config, error);
    fclose(file);
    skr_text_fini(&text);
    return code;
}

enum skr_code
skr_config_load(const char *path, struct skr_config_listener listener,
                struct skr_config **config, struct skr_error *error)
{
    const char *named = getenv("SKIRNIR_CONFIG");
    // As of a variable that is not set: nothing else may be meant.
    if (path != NULL && path[0] == '\0')
        return report_file("--config", 0, listener, SKR_INVALID,
                           "the name of the file is empty", error);
    if (path == NULL && named != NULL && named[0] != '\0')
        path = named;
    if (path != NULL)
        return load(path, listener, config, error);
    if (access("skirnir.yaml", F_OK) == 0)
        return load("skirnir.yaml", listener, config, error);
    if (access(SYSTEM_PATH, F_OK) == 0)
        return load(SYSTEM_PATH, listener, config, error);
    return report_file("skirnir.yaml", 0, listener, SKR_MISSING,
                       "there is no such file here, none at " SYSTEM_PATH
                       ", and SKIRNIR_CONFIG is not set",
                       error);
}

enum skr_code
skr_config_find_transport(const struct skr_config *config, const char *name,
                          const struct skr_config_transport **transport,
                          struct skr_error *error)
{
    struct skr_text known = {0};
    for (size_t i = 0; i < config->transport_count; i++) {
        if (strcmp(config->transports[i].name, name) == 0) {
            *transport = &config->transports[i];
            skr_text_fini(&known);
            return SKR_OK;
        }
        skr_text_add_format(&known, "%s%s", i == 0 ? "" : ", ",
                            config->transports[i].name);
    }
    skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
             "there is no transport '%s' in %s; configured: %s", name,
             config->path, known.size == 0 ? "none" : known.bytes);
    skr_text_fini(&known);
    return SKR_INVALID;
}
