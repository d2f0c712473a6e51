// SPDX-License-Identifier: MIT
#include "outbox/passing.h"

#include <stdlib.h>
#include <string.h>

// Whoever has more than half of all votes is left over in the end.
void
skr_passing_vote(struct skr_passing_vote *vote, const char *key)
{
    if (vote->votes == 0)
        vote->key = key;
    if (strcmp(vote->key, key) == 0)
        vote->votes++;
    else
        vote->votes--;
}

static bool
is_known(const struct skr_passing *passing, const char *key)
{
    for (size_t i = 0; i < passing->count; i++)
        if (strcmp(passing->keys[i], key) == 0)
            return true;
    return false;
}

void
skr_passing_add(struct skr_passing *passing, const char *key)
{
    char *copy = is_known(passing, key) ? NULL : strdup(key);
    if (copy == NULL)
        return;
    if (passing->count == SKR_MOST_PASSED) {
        free(passing->keys[0]);
        passing->count--;
        memmove(passing->keys, passing->keys + 1,
                passing->count * sizeof(passing->keys[0]));
    }
    passing->keys[passing->count++] = copy;
}

void
skr_passing_review(struct skr_passing *passing, const struct skr_order *order)
{
    size_t kept = 0;
    for (size_t i = 0; i < passing->count; i++) {
        uint64_t partition = skr_order_partition(passing->keys[i]);
        if (skr_order_is_blocked(order, partition) &&
            !skr_order_is_in_hand(order, partition))
            passing->keys[kept++] = passing->keys[i];
        else
            free(passing->keys[i]);
    }
    passing->count = kept;
}

void
skr_passing_clear(struct skr_passing *passing)
{
    for (size_t i = 0; i < passing->count; i++)
        free(passing->keys[i]);
    *passing = (struct skr_passing){.count = 0};
}
