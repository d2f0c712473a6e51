// SPDX-License-Identifier: MIT
// New rows, as any application may write them.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/kafka_outbox/kafka_outbox.h"

static const char insert_sql[] =
    "INSERT INTO {table} (topic, payload_json, payload_headers, {key}) "
    "VALUES (?, ?, ?, ?)";

enum skr_code
skr_kafka_outbox_insert(struct skr_tx tx, const char *table,
                        const struct skr_kafka_outbox_row *rows, size_t count,
                        struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}};
    struct skr_arena arena = {0};
    const char *sql = skr_sql_fill(tx.ops->dialect, &arena, insert_sql, words,
                                   SKR_COUNT_OF(words));
    enum skr_code code = sql == NULL ? skr_fail_memory(error) : SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        const struct skr_values values = {
            4,
            {
                skr_bind_text(rows[i].topic),
                skr_bind_bytes(rows[i].payload, rows[i].payload_size),
                skr_bind_bytes(rows[i].headers, rows[i].headers_size),
                skr_bind_text(rows[i].key),
            }};
        code = skr_sql_run(tx, sql, values, NULL, error);
    }
    skr_arena_fini(&arena);
    return code;
}
