// SPDX-License-Identifier: MIT
// What appenders of all layouts share: which layout it is, and the check that
// the table takes part in transactions.

#include "store/append.h"

#include "base/error.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

enum skr_code
skr_appender_new(const struct skr_outbox_options *options,
                 struct skr_appender **appender, struct skr_error *error)
{
    return options->is_kafka
               ? skr_kafka_outbox_appender_new(options, appender, error)
               : skr_messenger_appender_new(options, appender, error);
}

struct skr_appender *
skr_appender_make(const struct skr_append_ops *ops, const char *table,
                  size_t size)
{
    struct skr_appender *made = calloc(1, size);
    if (made == NULL)
        return NULL;
    made->ops = ops;
    made->table = skr_arena_text(&made->arena, table, strlen(table));
    if (made->table != NULL)
        return made;
    skr_appender_free(made);
    return NULL;
}

void
skr_appender_free(struct skr_appender *appender)
{
    if (appender == NULL)
        return;
    skr_arena_fini(&appender->arena);
    free(appender);
}

// A table that keeps what is rolled back would break the promise. Asked once:
// the answer costs a round trip where there are such tables.
static enum skr_code
check_engine(struct skr_appender *appender, struct skr_tx tx,
             struct skr_error *error)
{
    if (atomic_load(&appender->is_checked))
        return SKR_OK;
    enum skr_code code = skr_schema_check_engine(tx, appender->table, error);
    if (code == SKR_OK)
        atomic_store(&appender->is_checked, true);
    return code;
}

enum skr_code
skr_append(struct skr_appender *appender, struct skr_tx tx,
           const struct skr_append_row *rows, size_t count,
           struct skr_error *error)
{
    enum skr_code code = check_engine(appender, tx, error);
    if (code == SKR_OK)
        code = appender->ops->insert(appender, tx, rows, count, error);
    if (code == SKR_MISSING)
        skr_error_prefix(error, "%s", appender->ops->setup);
    return code;
}
