// SPDX-License-Identifier: MIT
// Setup, checks and options of the layout; reading and settling rows are
// reader.c and settle.c.

#include "store/kafka_outbox/kafka_outbox.h"

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/kafka_outbox/layout.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

static const struct skr_index indexes[] = {
    {.name = "outbox_push_completed_at", .columns = "push_completed_at"},
    {.name = "outbox_batch_query",
     .columns = "batch_id, created_at",
     .other_first = "batch_id",
     .other_second = "created_at"},
};

// As kafka-outbox-relay makes it, but that headers may be left out: then they
// are '', which is no headers.
static const struct skr_schema schema = {
    .columns = "id {unsigned_row_id},\n"
               "    batch_id CHAR(36) NULL,\n"
               "    push_started_at {timestamp} NULL,\n"
               "    push_completed_at {timestamp} NULL,\n"
               "    topic VARCHAR(255) NOT NULL,\n"
               "    payload_json {json} NOT NULL,\n"
               "    payload_headers {long_text} DEFAULT (''),\n"
               "    push_attempts SMALLINT NOT NULL DEFAULT 0,\n"
               "    errored SMALLINT NOT NULL DEFAULT 0,\n"
               "    error_reason VARCHAR(255) NOT NULL DEFAULT '',\n"
               "    created_at {timestamp} NULL DEFAULT CURRENT_TIMESTAMP,\n"
               "    partition_key VARCHAR(255) NOT NULL DEFAULT '',\n"
               "    {key} VARCHAR(255) NOT NULL DEFAULT ''",
    .needed = "id, batch_id, push_started_at, push_completed_at, topic, "
              "payload_json, payload_headers, push_attempts, errored, "
              "error_reason, partition_key, key, created_at",
    .cure = "start without skip-migrations",
    .indexes = indexes,
    .index_count = SKR_COUNT_OF(indexes),
};

// The other relay's record of what it has made: with it, it takes the table as
// it is. A column that it does not know tells that the table is ours.
#define MIGRATIONS_COLUMNS                   \
    "version BIGINT NOT NULL PRIMARY KEY,\n" \
    "    dirty BOOLEAN NOT NULL"
static const struct skr_schema migrations_schema = {
    .columns = MIGRATIONS_COLUMNS,
};
static const struct skr_schema own_migrations_schema = {
    .columns = MIGRATIONS_COLUMNS ",\n    made_by VARCHAR(16) NULL",
};
static const char add_version_sql[] =
    "INSERT INTO {table:name}_schema_migrations (version, dirty) "
    "SELECT 20220408111504, FALSE FROM (SELECT 1 AS one) AS once WHERE NOT "
    "EXISTS (SELECT 1 FROM {table:name}_schema_migrations)";

static enum skr_code
outbox_setup(const struct skr_store *table, struct skr_db *db,
             skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    const struct skr_schema_target target = {outbox->dialect, db, each, user};
    const struct skr_word words[] = {{"table", outbox->table.name}};
    struct skr_arena arena = {0};
    bool is_there = false;
    enum skr_code code = SKR_OK;
    if (db != NULL)
        code = skr_schema_has_table(skr_db_tx(db), outbox->table.name,
                                    &is_there, error);
    const char *sql =
        skr_sql_fill(outbox->dialect, &arena, add_version_sql, words, 1);
    if (code == SKR_OK && sql == NULL)
        code = skr_fail_memory(error);
    // First whose it is: where each CREATE commits by itself, a process that
    // finds the table finds that, too.
    if (code == SKR_OK)
        code = skr_schema_write(is_there ? &migrations_schema
                                         : &own_migrations_schema,
                                outbox->migrations, &target, error);
    if (code == SKR_OK)
        code = skr_schema_write(&schema, outbox->table.name, &target, error);
    if (code == SKR_OK)
        code = each(sql, user, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
outbox_complete(const struct skr_store *table, struct skr_db *db,
                skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    return skr_schema_complete(&schema, db, table->name, each, user, error);
}

static enum skr_code
outbox_check(const struct skr_store *table, struct skr_db *db,
             struct skr_error *error)
{
    const char *name = table->name;
    const struct skr_needs needs = {name, schema.needed, schema.cure};
    enum skr_code code = skr_schema_check(skr_db_tx(db), &needs, error);
    return code == SKR_OK
               ? skr_schema_check_ids(skr_db_tx(db), name, "its columns",
                                      "skirnir kafka-relay", error)
               : code;
}

enum skr_code
skr_kafka_outbox_find_maker(const struct skr_store *table, struct skr_db *db,
                            bool *is_there, bool *is_ours,
                            struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    struct skr_tx tx = skr_db_tx(db);
    enum skr_code code =
        skr_schema_has_table(tx, outbox->table.name, is_there, error);
    // A column of the table of what was made tells.
    if (code == SKR_OK)
        code = skr_schema_has_column(tx, outbox->migrations, "made_by", is_ours,
                                     error);
    return code;
}

// No relay of this table sleeps until it is told of rows: the other relay's
// application knows no such signal.
static enum skr_code
outbox_notify(const struct skr_store *table, struct skr_db *db, bool wanted,
              skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    (void)db;
    (void)wanted;
    (void)each;
    (void)user;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "table %s: a kafka_outbox tells nothing of new rows",
                    table->name);
}

static const struct skr_admin_ops outbox_admin = {
    .setup = outbox_setup,
    .complete = outbox_complete,
    .notify = outbox_notify,
    .check = outbox_check,
};
enum skr_code
skr_kafka_outbox_new(const struct skr_kafka_outbox_options *options,
                     struct skr_store **table, struct skr_error *error)
{
    const char *name = options->table == NULL ? "kafka_outbox" : options->table;
    enum skr_code code = skr_schema_check_name(name, error);
    if (code != SKR_OK)
        return code;
    struct skr_kafka_outbox *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->table = (struct skr_store){
        .admin = &outbox_admin,
        .source = &skr_kafka_outbox_source,
        .settle = &skr_kafka_outbox_settling,
    };
    made->dialect = options->dialect;
    made->marks = options->marks;
    made->takes_over = options->takes_over;
    made->publishes_tombstones = options->publishes_tombstones;
    made->lease_s = KAFKA_OUTBOX_LEASE_S;
    made->table.queue = "";
    made->table.name = skr_arena_text(&made->table.arena, name, strlen(name));
    made->migrations =
        skr_arena_format(&made->table.arena, "%s_schema_migrations", name);
    if (made->table.name == NULL || made->migrations == NULL ||
        !skr_kafka_outbox_fill(made)) {
        skr_store_free(&made->table);
        return skr_fail_memory(error);
    }
    *table = &made->table;
    return SKR_OK;
}
