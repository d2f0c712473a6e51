// SPDX-License-Identifier: MIT
// Searches the tables for queues that no transport reads.

#include "app/admin/unread.h"

#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "store/messenger/inspect.h"

#include <string.h>

enum { MOST_UNREAD = 20, NAME_SIZE = 4 * 190 + 1 };

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

static bool
is_its_table(const struct looking *looking, const char *table)
{
    return skr_config_same_table(looking->transport->database,
                                 looking->transport->place.table, table);
}

// In whichever database: two may be one under two names.
static bool
is_read_by(const struct skr_config_transport *transport,
           const struct looking *looking, const char *queue)
{
    return transport->kind != SKR_TRANSPORT_OTHER &&
           is_its_table(looking, transport->place.table) &&
           (is_made_of(queue, transport->place.queue, "") ||
            is_made_of(queue, transport->place.queue, ".sent"));
}

static bool
is_known(const struct looking *looking, const char *queue)
{
    const struct skr_config *config = looking->config;
    struct skr_failed_place failed = skr_transport_failed_place(config);
    bool is_failed = is_its_table(looking, failed.place.table);
    if (skr_text_starts_with(queue, "skirnir.test.") ||
        (is_failed && (is_made_of(queue, failed.place.queue, "") ||
                       is_made_of(queue, failed.place.queue, ".skirnir"))))
        return true;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (is_read_by(transport, looking, queue) ||
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
        !is_known(looking, queue))
        strcpy(looking->names[looking->count++], queue);
    return SKR_OK;
}

static const struct skr_column columns[] = {
    {"database", .kind = SKR_COLUMN_TEXT},
    {"table", .kind = SKR_COLUMN_TEXT},
    {"queue", .kind = SKR_COLUMN_TEXT},
    {"rows", .kind = SKR_COLUMN_INTEGER},
    {"rows_are_estimate", .kind = SKR_COLUMN_BOOL},
};
const struct skr_columns skr_unread_columns = {columns, SKR_COUNT_OF(columns)};

// What is done is of no concern, and a row may have gone since.
static void
add_queue(const struct looking *looking, struct skr_db *db, const char *queue,
          struct skr_report *report)
{
    const struct skr_config_transport *transport = looking->transport;
    struct skr_queue_place place = transport->place;
    struct skr_queue_counts counts;
    place.queue = queue;
    if (skr_queue_count(db, &place, &counts, NULL) != SKR_OK ||
        counts.depth == 0)
        return;
    bool is_estimate = counts.depth_is_estimate;
    skr_report_add_row(report);
    skr_report_text(report, "database", transport->database->name);
    skr_report_text(report, "table", transport->place.table);
    skr_report_text(report, "queue", queue);
    skr_report_estimate(report, "rows", counts.depth, is_estimate);
    skr_report_number(report, "rows_are_estimate", is_estimate);
}

static bool
is_wanted(const struct skr_config_transport *transport, const char *const *only,
          size_t only_count)
{
    return only_count == 0 ||
           skr_text_is_among(transport->name, only, only_count);
}

// Several transports may share a table, which is looked at once.
static bool
is_first_of_table(const struct skr_config *config, size_t which,
                  const char *const *only, size_t only_count)
{
    const struct skr_config_transport *transport = &config->transports[which];
    if (transport->kind == SKR_TRANSPORT_OTHER || transport->database == NULL ||
        transport->kafka_outbox != NULL ||
        !is_wanted(transport, only, only_count))
        return false;
    for (size_t i = 0; i < which; i++) {
        const struct skr_config_transport *other = &config->transports[i];
        if (other->kind != SKR_TRANSPORT_OTHER &&
            skr_config_share_table(other, transport) &&
            is_wanted(other, only, only_count))
            return false;
    }
    return true;
}

void
skr_unread_find(const struct skr_config *config, const char *const *only,
                size_t only_count, struct skr_report *report)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        struct looking looking = {.config = config,
                                  .transport = &config->transports[i]};
        struct skr_db *db = NULL;
        if (!is_first_of_table(config, i, only, only_count) ||
            skr_transport_open_database(looking.transport->database, &db,
                                        NULL) != SKR_OK)
            continue;
        if (skr_queue_each_name(db, looking.transport->place.table, note_name,
                                &looking, NULL) == SKR_OK)
            for (size_t k = 0; k < looking.count; k++)
                add_queue(&looking, db, looking.names[k], report);
        skr_db_close(db);
    }
}
