// SPDX-License-Identifier: MIT
// Where relative paths begin: in the folder of the configuration file, and not
// where the program happens to be started.
#include "app/config/reader.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void
skr_config_find_folders(struct skr_config_reader *reader, const char *path)
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
