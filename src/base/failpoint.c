// SPDX-License-Identifier: MIT
// Stops the process at a named place of the source, for tests that kill it
// there. Empty in a release.

#include "base/failpoint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef SKR_FAILPOINTS

static void
hold_for_ever(void)
{
    const char *path = getenv("SKIRNIR_FAILPOINT_FILE");
    FILE *file = path == NULL ? NULL : fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    // The signal comes from the test, so the process dies as a crash would
    // kill it: nothing is flushed, no handler runs.
    for (;;)
        pause();
}

void
skr_failpoint(const char *name)
{
    static atomic_long visits;
    const char *wanted = getenv("SKIRNIR_FAILPOINT");
    size_t length = strlen(name);
    if (wanted == NULL || strncmp(wanted, name, length) != 0 ||
        (wanted[length] != '\0' && wanted[length] != ':'))
        return;
    long turn = wanted[length] == ':' ? atol(wanted + length + 1) : 1;
    if (atomic_fetch_add(&visits, 1) + 1 == turn)
        hold_for_ever();
}

#endif
