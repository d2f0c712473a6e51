// SPDX-License-Identifier: MIT
#include "outbox/heads.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

static struct skr_head *
at(const struct skr_heads *heads, size_t index)
{
    return &heads->items[(heads->first + index) & (heads->capacity - 1)];
}

static enum skr_code
grow(struct skr_heads *heads, struct skr_error *error)
{
    size_t capacity =
        heads->capacity == 0 ? FIRST_CAPACITY : heads->capacity * 2;
    struct skr_head *items = calloc(capacity, sizeof(*items));
    if (items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < heads->count; i++)
        items[i] = *at(heads, i);
    free(heads->items);
    heads->items = items;
    heads->first = 0;
    heads->capacity = capacity;
    return SKR_OK;
}

enum skr_code
skr_heads_add(struct skr_heads *heads, const char *key, int64_t not_before_ms,
              struct skr_error *error)
{
    if (heads->count == heads->capacity) {
        enum skr_code code = grow(heads, error);
        if (code != SKR_OK)
            return code;
    }
    char *copy = strdup(key);
    if (copy == NULL)
        return skr_fail_memory(error);
    *at(heads, heads->count++) =
        (struct skr_head){.key = copy, .not_before_ms = not_before_ms};
    return SKR_OK;
}

// Few wait for their time, and not for long: they go to the end meanwhile.
char *
skr_heads_take(struct skr_heads *heads, int64_t now_ms)
{
    for (size_t i = 0, count = heads->count; i < count; i++) {
        struct skr_head head = *at(heads, 0);
        heads->first = (heads->first + 1) & (heads->capacity - 1);
        heads->count--;
        if (head.not_before_ms <= now_ms)
            return head.key;
        *at(heads, heads->count++) = head;
    }
    return NULL;
}

int64_t
skr_heads_next_ms(const struct skr_heads *heads)
{
    int64_t next_ms = 0;
    for (size_t i = 0; i < heads->count; i++) {
        int64_t at_ms = at(heads, i)->not_before_ms;
        if (next_ms == 0 || at_ms < next_ms)
            next_ms = at_ms;
        // Most of them can be taken at once.
        if (next_ms <= 1)
            break;
    }
    return next_ms;
}

void
skr_heads_clear(struct skr_heads *heads)
{
    for (size_t i = 0; i < heads->count; i++)
        free(at(heads, i)->key);
    heads->count = 0;
}

void
skr_heads_fini(struct skr_heads *heads)
{
    skr_heads_clear(heads);
    free(heads->items);
    *heads = (struct skr_heads){.items = NULL};
}
