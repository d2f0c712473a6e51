// SPDX-License-Identifier: MIT
// What may have been meant by a name that is not known.

#ifndef SKR_BASE_NEAREST_H
#define SKR_BASE_NEAREST_H

#include <stddef.h>

// The name as it was written, the rest zero: nothing has been compared yet.
struct skr_nearest {
    const char *name;
    const char *meant;  // NULL: nothing was near enough
    size_t distance;    // of what is meant
};

// Compares the name with one that is known, and keeps what that one means if
// none before it was as near.
void skr_nearest_compare(struct skr_nearest *nearest, const char *known,
                         const char *meant);

#endif
