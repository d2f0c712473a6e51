// SPDX-License-Identifier: MIT
// The table of a consumer's handlers, searched by the name or class of a
// message.

#include "base/error.h"
#include "base/vec.h"
#include "inbox/child.h"
#include "inbox/inside.h"
#include "inbox/library.h"

#include <stdlib.h>
#include <string.h>

struct handler *
skr_handlers_find(const struct handlers *handlers, const char *name,
                  const char *class_name)
{
    struct handler *found = NULL;
    size_t best = 0;
    for (size_t i = 0; i < handlers->count; i++) {
        size_t rank =
            skr_name_rank(handlers->items[i].message_name, name, class_name);
        if (rank > best) {
            best = rank;
            found = &handlers->items[i];
        }
    }
    return found;
}

static bool
has_handler(const struct handlers *handlers, const char *message_name)
{
    for (size_t i = 0; i < handlers->count; i++)
        if (strcmp(handlers->items[i].message_name, message_name) == 0)
            return true;
    return false;
}

enum skr_code
skr_handlers_add(struct handlers *handlers, const char *message_name,
                 const struct handler *handler, struct skr_error *error)
{
    if (message_name == NULL || message_name[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a handler needs the name of a message");
    if (handler->run == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the handler of %s is no function", message_name);
    if (has_handler(handlers, message_name))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s has a handler already", message_name);
    struct handler added = *handler;
    added.backoff = (struct skr_backoff){.first_ms = 100, .longest_ms = 30000};
    added.message_name = strdup(message_name);
    if (added.message_name == NULL ||
        !skr_vec_insert(&handlers->items, &handlers->count, &handlers->capacity,
                        handlers->count, &added, sizeof(added))) {
        free(added.message_name);
        return skr_fail_memory(error);
    }
    return SKR_OK;
}

void
skr_handlers_rest(struct handlers *handlers)
{
    for (size_t i = 0; i < handlers->count; i++)
        skr_child_end(handlers->items[i].child);
}

void
skr_handlers_fini(struct handlers *handlers)
{
    for (size_t i = 0; i < handlers->count; i++) {
        free(handlers->items[i].message_name);
        skr_sql_handler_free(handlers->items[i].sql);
        skr_child_free(handlers->items[i].child);
        skr_library_close(handlers->items[i].library);
    }
    free(handlers->items);
}
