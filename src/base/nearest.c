// SPDX-License-Identifier: MIT
// Suggestions for mistyped commands, options and configuration keys, by their
// edit distance.

#include "base/nearest.h"

#include <string.h>

enum { LONGEST_COMPARED = 40 };

// How many letters to insert, remove, replace or swap with their neighbour.
static size_t
edit_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][LONGEST_COMPARED + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_size; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = above[j] < row[j - 1] ? above[j] + 1 : row[j - 1] + 1;
            if (replaced < row[j])
                row[j] = replaced;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *reused = before;
        before = above;
        above = row;
        row = reused;
    }
    return above[b_size];
}

void
skr_nearest_compare(struct skr_nearest *nearest, const char *known,
                    const char *meant)
{
    size_t name_size = strlen(nearest->name), known_size = strlen(known);
    if (name_size > LONGEST_COMPARED || known_size > LONGEST_COMPARED)
        return;
    size_t distance =
        edit_distance(nearest->name, name_size, known, known_size);
    size_t longer = name_size > known_size ? name_size : known_size;
    if (distance > (longer + 2) / 3 || distance == longer ||
        (nearest->meant != NULL && distance >= nearest->distance))
        return;
    nearest->meant = meant;
    nearest->distance = distance;
}
