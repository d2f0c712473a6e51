// SPDX-License-Identifier: MIT
// Whether a message is there already. Ids stand in headers, in several forms:
// rows are read and understood, a page at a time.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/layout.h"

#include <string.h>

enum { PAGE = 200 };

// A row that Symfony is done with and has not deleted is not there any more:
// the message may have failed once more since. Parameters: queue, id.
static const char page_sql[] =
    "SELECT id, queue_name, headers FROM {table} "
    "WHERE queue_name = ? AND id < ? AND " SKR_MESSENGER_UNFINISHED_UNINDEXED
    " ORDER BY id DESC LIMIT 200";

// Parameter: queue.
static const char any_sql[] =
    "SELECT {now_milliseconds} FROM {table} WHERE queue_name = ? LIMIT 1";

bool
skr_messenger_fill_find(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, page_sql, &messenger->sql.page) &&
           skr_messenger_fill(messenger, any_sql, &messenger->sql.any);
}

enum skr_code
skr_messenger_has_rows(const struct skr_store *table, struct skr_tx tx,
                       const char *queue, bool *has_rows, int64_t *second_ms,
                       struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code = skr_sql_row(tx, skr_messenger_of(table)->sql.any,
                                     skr_values("%s", queue), &row, error);
    if (code == SKR_OK) {
        *has_rows = row.found;
        *second_ms = column.integer;
    }
    return code;
}

struct search {
    const struct skr_messenger *messenger;
    const char *queue;
    const struct skr_sought *sought;
    struct skr_arena arena;  // for one row
    int64_t last_row;
    size_t rows;
    bool found;
};

static enum skr_code
is_from_transport(struct search *search, const struct skr_headers *headers,
                  bool *is_from, struct skr_error *error)
{
    const char *name = NULL;
    const char *transport = search->sought->transport;
    *is_from = transport == NULL;
    const char *stamp = skr_headers_find(headers->items, headers->count,
                                         SKR_HEADER_SENT_TO_FAILURE);
    if (*is_from || stamp == NULL)
        return SKR_OK;
    enum skr_code code = skr_stamp_read(&search->arena, stamp,
                                        "originalReceiverName", &name, error);
    *is_from = name != NULL && strcmp(name, transport) == 0;
    return code;
}

// What cannot be understood is another message.
static enum skr_code
is_sought(struct search *search, const struct skr_headers *headers,
          bool *is_sought, struct skr_error *error)
{
    const struct skr_sought *sought = search->sought;
    struct skr_envelope envelope = {0};
    if (sought->digest != NULL) {
        const char *digest =
            skr_headers_find(headers->items, headers->count, SKR_HEADER_DIGEST);
        *is_sought = digest != NULL && strcmp(digest, sought->digest) == 0;
        return SKR_OK;
    }
    enum skr_code code =
        skr_envelope_read(&search->arena, headers, NULL,
                          search->messenger->names, &envelope, NULL);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    *is_sought = code == SKR_OK && envelope.has_id &&
                 memcmp(envelope.message.id.bytes, sought->id.bytes,
                        sizeof(sought->id.bytes)) == 0;
    return SKR_OK;
}

static enum skr_code
look_at(const struct skr_value *columns, size_t count, void *user,
        struct skr_error *error)
{
    (void)count;
    struct search *search = user;
    search->last_row = columns[0].integer;
    search->rows++;
    // A collation may take two names for the same.
    if (search->found || columns[1].size != strlen(search->queue) ||
        memcmp(columns[1].bytes, search->queue, columns[1].size) != 0)
        return SKR_OK;
    struct skr_headers headers = {0};
    bool is_it = false;
    skr_arena_reset(&search->arena);
    enum skr_code code = skr_headers_parse(&search->arena, columns[2].bytes,
                                           columns[2].size, &headers, NULL);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        return SKR_OK;
    code = is_sought(search, &headers, &is_it, error);
    if (code == SKR_OK && is_it)
        code = is_from_transport(search, &headers, &search->found, error);
    return code;
}

enum skr_code
skr_messenger_holds(const struct skr_store *table, struct skr_tx tx,
                    const char *queue, const struct skr_sought *sought,
                    bool *holds, struct skr_error *error)
{
    struct search search = {
        .messenger = skr_messenger_of(table),
        .queue = queue,
        .sought = sought,
        .last_row = INT64_MAX,
    };
    enum skr_code code = SKR_OK;
    do {
        search.rows = 0;
        code = skr_sql_each(tx, search.messenger->sql.page,
                            skr_values("%s %jd", queue, search.last_row),
                            look_at, &search, error);
    } while (code == SKR_OK && !search.found && search.rows == PAGE);
    skr_arena_fini(&search.arena);
    if (code == SKR_OK)
        *holds = search.found;
    return code;
}

enum skr_code
skr_messenger_holds_failed(const struct skr_store *table, struct skr_tx tx,
                           const struct skr_sought *sought, bool *holds,
                           struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    enum skr_code code = skr_messenger_holds(table, tx, messenger->failed_queue,
                                             sought, holds, error);
    if (code != SKR_OK || *holds)
        return code;
    return skr_messenger_holds(table, tx, messenger->failed_aside, sought,
                               holds, error);
}
