// SPDX-License-Identifier: MIT
// Rows without a reader: queues in the tables of a configuration that none of
// its transports reads, as after a typing error in an application's INSERT.

#ifndef SKR_APP_PARTS_UNREAD_H
#define SKR_APP_PARTS_UNREAD_H

#include "app/config/config.h"
#include "base/log.h"

struct skr_unread_queue {
    const char *database;
    const char *table;
    const char *queue;
    uint64_t rows;
    bool is_estimate;
};

typedef void skr_unread_fn(const struct skr_unread_queue *unread, void *user);

// Tells of such queues in the tables of the transports that are named; none:
// of all. Cheap, whatever the size of the tables. A table that cannot be asked
// is passed over: the worker of that table logs it.
void skr_unread_find(const struct skr_config *config, const char *const *only,
                     size_t only_count, skr_unread_fn *each, void *user);

enum { SKR_UNREAD_MAX = 100 };
struct skr_unread_list {
    struct skr_arena arena;  // all texts
    struct skr_unread_queue items[SKR_UNREAD_MAX];
    size_t count;
};
// The same as a list, to be ended by skr_unread_fini().
SKR_MUST_CHECK enum skr_code
skr_unread_list(const struct skr_config *config, const char *const *only,
                size_t only_count, struct skr_unread_list *list,
                struct skr_error *error);
void skr_unread_fini(struct skr_unread_list *list);

// Looks at once and then rarely, in a thread of its own, and warns of what it
// finds. config and names outlive it. NULL: there is no thread to be had, and
// work goes on without it.
struct skr_cleaner;
struct skr_unread_watch {
    const struct skr_config *config;
    const char *const *names;
    size_t name_count;
    struct skr_log log;
};
struct skr_cleaner *skr_unread_start(const struct skr_unread_watch *watch);

#endif
