// SPDX-License-Identifier: MIT
// Runs a fuzz target on every file of a folder, and on every beginning of each
// file: input that ends too early is where parsers read past the end.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/memory_ceiling.h"
#include "fuzz.h"

enum { MAX_SIZE = 64 * 1024, MAX_CUT_SIZE = 4096 };

// In memory of exactly that size, so that a sanitizer sees one byte too many.
static void
run_once(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int
run_file(const char *path)
{
    static uint8_t bytes[MAX_SIZE];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout);
    run_once(bytes, size);
    for (size_t cut = 0; cut < size && cut < MAX_CUT_SIZE; cut++)
        run_once(bytes, cut);
    return 0;
}

int
main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    skr_test_limit_memory(64);
    int files = 0, failed = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        files++;
        failed |= run_file(path);
    }
    closedir(folder);
    if (files == 0)
        fprintf(stderr, "%s holds no corpus\n", argv[1]);
    return files == 0 || failed != 0;
}
