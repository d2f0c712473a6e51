// SPDX-License-Identifier: MIT
// Filling templates, and what all statements share.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/messenger/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 5, LONGEST_TRYING_MS = 1000 };

_Static_assert(SKR_SLOTS == 60, "statements know it as {slot_count}");
_Static_assert(SKR_MARK_UNDECIDED == 4, "statements know it too");

// Without an order a shard is a block of ids, so that rows of one share lie
// side by side. Ids below 1 give a remainder below 0 on some databases.
#define SHARD_OF_ID                              \
    "((id >> 8) % {slot_count} + {slot_count}) " \
    "% {slot_count}"

static const char *
fill(void *layout, const char *sql_template, const char *ids,
     const char *id_rows)
{
    struct skr_messenger *messenger = layout;
    enum { OWN_WORDS = 14 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", messenger->name},
        {"queue_hex", messenger->queue_hex},
        {"failed_table",
         messenger->failed_table == NULL ? "" : messenger->failed_table},
        {"failed_now", messenger->failed_now},
        {"ids", ids},
        {"id_rows", id_rows},
        {"owner", messenger->owner == NULL ? "" : messenger->owner},
        {"lock_owner", messenger->owner == NULL ? "" : messenger->lock_owner},
        {"is_owner", "owner IN ('{owner}', '{lock_owner}')"},
        {"shard", messenger->is_ordered ? "{shard_of_key}" : SHARD_OF_ID},
        {"slot_count", "60"},
        {"ours", messenger->owner == NULL ? "" : " AND {is_in_share}"},
        {"decided", messenger->by_commits ? " AND {is_decided}" : ""},
        {"undecided_mark", messenger->by_commits
                               ? " + CASE WHEN {is_decided} THEN 0 ELSE 4 END"
                               : ""},
    };
    size_t count =
        OWN_WORDS + skr_zone_words(&messenger->zone, words + OWN_WORDS);
    return skr_sql_fill(messenger->dialect, &messenger->arena, sql_template,
                        words, count);
}

bool
skr_messenger_fill(struct skr_messenger *messenger, const char *sql_template,
                   const char **sql)
{
    *sql = fill(messenger, sql_template, "", "");
    return *sql != NULL;
}

bool
skr_messenger_fill_ranged(struct skr_messenger *messenger,
                          const char *list_template, const char *range_template,
                          struct skr_list_sql *list)
{
    return skr_list_fill(
        &(struct skr_list_filling){
            .dialect = messenger->dialect,
            .arena = &messenger->arena,
            .fill = fill,
            .layout = messenger,
        },
        list_template, range_template, list);
}

bool
skr_messenger_fill_list(struct skr_messenger *messenger,
                        const char *sql_template, struct skr_list_sql *list)
{
    return skr_messenger_fill_ranged(messenger, sql_template, NULL, list);
}

bool
skr_messenger_may_try_again(struct skr_tries *tries, enum skr_code code,
                            const struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    tries->failed++;
    if (code != SKR_CONFLICT || error->remedy != SKR_TRY_AGAIN ||
        tries->failed > MOST_TRIES ||
        now_ms - tries->started_ms > LONGEST_TRYING_MS)
        return false;
    skr_clock_sleep(-1, tries->failed);
    return true;
}

void
skr_messenger_copy_time(const struct skr_value *value,
                        char time[SKR_POSITION_TIME_SIZE])
{
    // Without a part of a second, should the server give one.
    size_t size = value->size < SKR_POSITION_TIME_SIZE
                      ? value->size
                      : SKR_POSITION_TIME_SIZE - 1;
    if (value->bytes == NULL)
        size = 0;
    else
        memcpy(time, value->bytes, size);
    time[size] = '\0';
}

static enum skr_code
keep_time(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    skr_messenger_copy_time(&columns[0], user);
    return SKR_OK;
}

enum skr_code
skr_messenger_now(const struct skr_messenger *messenger, struct skr_tx tx,
                  char time[SKR_POSITION_TIME_SIZE], struct skr_error *error)
{
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = messenger->sql.now,
                                              .each_row = keep_time,
                                              .user = time},
                      error);
}
