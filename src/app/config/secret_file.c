// SPDX-License-Identifier: MIT
// Files that %env(file:NAME)% reads: credentials, as Docker, Kubernetes and
// systemd hand them over. What was read is kept, so that a change is noticed.
#include "app/config/reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SIZE = 64 * 1024 };

// Without the end of the last line, which editors add. Returns 0, or errno.
static int
read_text(const char *path, struct skr_text *text)
{
    char buffer[4096];
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
    size_t got = 0;
    errno = 0;
    skr_text_add(text, "", 0);
    while (text->size <= MAX_SIZE &&
           (got = fread(buffer, 1, sizeof(buffer), file)) > 0)
        skr_text_add(text, buffer, got);
    int failure = ferror(file) != 0 ? errno : text->size > MAX_SIZE ? EFBIG : 0;
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
    size_t count = config->file_count;
    struct skr_config_file *grown =
        skr_config_take(reader, count + 1, sizeof(*grown));
    if (grown == NULL)
        return;
    if (count > 0)
        memcpy(grown, config->files, count * sizeof(*grown));
    grown[count] =
        (struct skr_config_file){.path = skr_config_text(reader, "%s", path),
                                 .text = skr_config_text(reader, "%s", text)};
    config->files = grown;
    config->file_count = count + 1;
}

bool
skr_config_read_file(struct skr_config_reader *reader,
                     const struct skr_config_place *place, const char *name,
                     const char *path, struct skr_text *text)
{
    int failure = read_text(path, text);
    if (failure != 0)
        skr_config_mistake(reader, place,
                           "the file %s, which the environment variable %s "
                           "names, cannot be read: %s",
                           path, name,
                           failure == ESPIPE ? "it is no regular file"
                                             : strerror(failure));
    else if (!skr_text_is_storable(text->bytes, text->size))
        skr_config_mistake(reader, place,
                           "the file %s, which the environment variable %s "
                           "names, is not UTF-8",
                           path, name);
    else
        note(reader, path, text->bytes);
    return failure == 0 && skr_text_is_storable(text->bytes, text->size);
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
