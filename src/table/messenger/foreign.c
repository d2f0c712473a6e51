// SPDX-License-Identifier: MIT
// Rows that are not ours to publish.

#include "base/arena.h"
#include "table/messenger/layout.h"

static const char count_php_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE {queue_is} AND " SKR_MESSENGER_PHP;

bool
skr_messenger_fill_foreign(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, count_php_sql,
                              &messenger->sql.count_php);
}

enum skr_code
skr_messenger_foreign(const struct skr_table *table, struct skr_db *db,
                      uint64_t *count, const char **cure,
                      struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_value queue = skr_bind_text(messenger->queue);
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code = skr_tx_fetch_one(
        skr_db_tx(db),
        &(struct skr_statement){.sql = messenger->sql.count_php,
                                .values = &queue,
                                .value_count = 1},
        &arena, &value, 1, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK) {
        *count = (uint64_t)value.integer;
        *cure = "these rows are PHP-serialised and stay for the Symfony "
                "worker; set `serializer: "
                "messenger.transport.symfony_serializer` on that transport";
    }
    return code;
}
