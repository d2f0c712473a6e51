// SPDX-License-Identifier: MIT
// Searches the tables for queues that no transport reads, once for `skirnir
// stats` and periodically in a thread beside workers.

#include "app/parts/unread.h"

#include "app/parts/cleaner.h"
#include "app/parts/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "store/messenger/inspect.h"

#include <string.h>

enum { INTERVAL_S = 3600, MOST_UNREAD = 20, NAME_SIZE = 4 * 190 + 1 };

struct looking {
    const struct skr_config *config;
    const struct skr_config_transport *transport;
    char names[MOST_UNREAD][NAME_SIZE];
    size_t count;
};

// A name that is made of another and an ending.
static bool
is_made_of(const char *name, const char *stem, const char *ending)
{
    size_t size = strlen(stem);
    return strncmp(name, stem, size) == 0 && strcmp(name + size, ending) == 0;
}

// In whichever database: two may be one under two names.
static bool
is_read_by(const struct skr_config_transport *transport, const char *table,
           const char *queue)
{
    return transport->kind != SKR_TRANSPORT_OTHER &&
           strcmp(transport->table_name, table) == 0 &&
           (is_made_of(queue, transport->queue_name, "") ||
            is_made_of(queue, transport->queue_name, ".sent"));
}

static bool
is_known(const struct skr_config *config, const char *table, const char *queue)
{
    struct skr_failed_place failed = skr_transport_failed_place(config);
    bool is_failed = strcmp(failed.table, table) == 0;
    if (skr_text_starts_with(queue, "skirnir.test.") ||
        (is_failed && (is_made_of(queue, failed.queue, "") ||
                       is_made_of(queue, failed.queue, ".skirnir"))))
        return true;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (is_read_by(transport, table, queue) ||
            (is_failed && is_made_of(queue, transport->name, ".retry")))
            return true;
    }
    return false;
}

static enum skr_code
note_name(const char *queue, void *user, struct skr_error *error)
{
    struct looking *looking = user;
    (void)error;
    if (looking->count < MOST_UNREAD && strlen(queue) < NAME_SIZE &&
        !is_known(looking->config, looking->transport->table_name, queue))
        strcpy(looking->names[looking->count++], queue);
    return SKR_OK;
}

// What is done is of no concern, and a row may have gone since.
static void
tell(const struct looking *looking, struct skr_db *db, const char *queue,
     skr_unread_fn *each, void *user)
{
    const struct skr_config_transport *transport = looking->transport;
    const struct skr_queue_place place = {
        .table = transport->table_name,
        .queue = queue,
        .redeliver_timeout_s = transport->redeliver_timeout_s,
        .time_zone = transport->time_zone,
    };
    struct skr_queue_counts counts;
    if (skr_queue_count(db, &place, &counts, NULL) == SKR_OK &&
        counts.depth > 0)
        each(
            &(struct skr_unread_queue){
                .database = transport->database->name,
                .table = transport->table_name,
                .queue = queue,
                .rows = counts.depth,
                .is_estimate = counts.depth_is_estimate,
            },
            user);
}

static bool
is_wanted(const struct skr_config_transport *transport, const char *const *only,
          size_t only_count)
{
    for (size_t i = 0; i < only_count; i++)
        if (strcmp(only[i], transport->name) == 0)
            return true;
    return only_count == 0;
}

// Several transports may share a table, which is looked at once.
static bool
is_first_of_table(const struct skr_config *config, size_t which,
                  const char *const *only, size_t only_count)
{
    const struct skr_config_transport *transport = &config->transports[which];
    if (transport->kind == SKR_TRANSPORT_OTHER || transport->database == NULL ||
        !is_wanted(transport, only, only_count))
        return false;
    for (size_t i = 0; i < which; i++) {
        const struct skr_config_transport *other = &config->transports[i];
        if (other->kind != SKR_TRANSPORT_OTHER &&
            other->database == transport->database &&
            strcmp(other->table_name, transport->table_name) == 0 &&
            is_wanted(other, only, only_count))
            return false;
    }
    return true;
}

void
skr_unread_find(const struct skr_config *config, const char *const *only,
                size_t only_count, skr_unread_fn *each, void *user)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        struct looking looking = {.config = config,
                                  .transport = &config->transports[i]};
        struct skr_db *db = NULL;
        if (!is_first_of_table(config, i, only, only_count) ||
            skr_transport_open_database(looking.transport->database, &db,
                                        NULL) != SKR_OK)
            continue;
        if (skr_queue_each_name(db, looking.transport->table_name, note_name,
                                &looking, NULL) == SKR_OK)
            for (size_t k = 0; k < looking.count; k++)
                tell(&looking, db, looking.names[k], each, user);
        skr_db_close(db);
    }
}

struct listing {
    struct skr_unread_list *list;
    enum skr_code code;
};

static void
add(const struct skr_unread_queue *unread, void *user)
{
    struct listing *listing = user;
    struct skr_unread_list *list = listing->list;
    if (list->count == SKR_UNREAD_MAX)
        return;
    struct skr_unread_queue *item = &list->items[list->count];
    *item = *unread;
    item->queue =
        skr_arena_text(&list->arena, unread->queue, strlen(unread->queue));
    if (item->queue == NULL)
        listing->code = SKR_NO_MEMORY;
    else
        list->count++;
}

enum skr_code
skr_unread_list(const struct skr_config *config, const char *const *only,
                size_t only_count, struct skr_unread_list *list,
                struct skr_error *error)
{
    struct listing listing = {.list = list, .code = SKR_OK};
    *list = (struct skr_unread_list){.count = 0};
    skr_unread_find(config, only, only_count, add, &listing);
    return listing.code == SKR_OK ? SKR_OK : skr_fail_memory(error);
}

void
skr_unread_fini(struct skr_unread_list *list)
{
    skr_arena_fini(&list->arena);
    list->count = 0;
}

static void
warn(const struct skr_unread_queue *unread, void *user)
{
    const struct skr_log *log = user;
    skr_log(log, SKR_LOG_WARNING, "config.unread_queue",
            SKR_LOG_TEXT("database", unread->database),
            SKR_LOG_TEXT("table", unread->table),
            SKR_LOG_TEXT("queue", unread->queue),
            SKR_LOG_NUMBER("rows", unread->rows),
            SKR_LOG_TEXT("cure", "no transport of this configuration reads "
                                 "them: correct the queue_name of the rows, or "
                                 "add a transport"));
}

static void
look(struct skr_cleaner *cleaner, const void *user)
{
    const struct skr_unread_watch *watch = user;
    struct skr_log log = watch->log;
    (void)cleaner;
    skr_unread_find(watch->config, watch->names, watch->name_count, warn, &log);
}

struct skr_cleaner *
skr_unread_start(const struct skr_unread_watch *watch)
{
    struct skr_cleaner *started = NULL;
    struct skr_error error;
    return skr_cleaner_start(
               &(struct skr_cleaner_options){
                   .interval_s = INTERVAL_S,
                   .log = watch->log,
                   .clean = look,
                   .user = watch,
               },
               &started, &error) == SKR_OK
               ? started
               : NULL;
}
