// SPDX-License-Identifier: MIT
#include "app/app.h"
#include "app/parts/transports.h"
#include "base/error.h"
#include "table/messenger/messenger.h"

#include <stdio.h>
#include <string.h>

static enum skr_code
end_block(const struct skr_config *config,
          const struct skr_config_transport *outbox, const char *key,
          bool skips, int64_t *row, struct skr_error *error)
{
    struct skr_db *db = NULL;
    struct skr_table *table = NULL;
    enum skr_code code = skr_transport_table(config, outbox, &table, error);
    if (code == SKR_OK)
        code = skr_transport_open_database(outbox->database, &db, error);
    if (code == SKR_OK)
        code = table->ops->check(table, db, error);
    if (code == SKR_OK)
        code = skr_messenger_end_block(table, db, key, skips, row, error);
    skr_db_close(db);
    skr_table_free(table);
    return code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    const char *key = arguments->positional[1];
    const struct skr_config_transport *outbox = NULL;
    int64_t row = 0;
    bool skips = strcmp(arguments->positional[0], "skip") == 0;
    enum skr_code code = skr_transport_choose_outbox(
        config, skr_arguments_find(arguments, "transport"), true, &outbox,
        error);
    if (code == SKR_OK)
        code = end_block(config, outbox, key, skips, &row, error);
    if (code != SKR_OK)
        return code;
    printf(skips ? "%s: row %lld moved to the failed table; its partition "
                   "goes on\n"
                 : "%s: row %lld is due; its partition goes on once it is "
                   "sent\n",
           outbox->name, (long long)row);
    return SKR_OK;
}

enum skr_exit
skr_command_partition(struct skr_app *app)
{
    const char *what = app->arguments->positional[0];
    if (strcmp(what, "skip") != 0 && strcmp(what, "retry") != 0)
        return skr_app_usage(app, "'%s' is unknown; skip or retry", what);
    return skr_app_run_configured(app, run);
}
