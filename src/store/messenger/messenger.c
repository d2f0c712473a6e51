// SPDX-License-Identifier: MIT
// Setup, checks and options of the layout, and the object that the other files
// of this folder fill with their statements.

#include "store/messenger/messenger.h"

#include "base/error.h"
#include "base/text.h"
#include "store/horizon.h"
#include "store/messenger/layout.h"
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_REDELIVER_S = 3600,
    LEAST_REDELIVER_S = 3,  // a claim's time has a precision of one second
    DEFAULT_SWEEP_MS = 60000,
};

static const struct skr_index indexes[] = {
    {.name = "idx_queue_name", .columns = "queue_name"},
    // Newer versions of Symfony have one index on (queue_name, available_at,
    // delivered_at, id).
    {.name = "idx_available_at",
     .columns = "available_at",
     .other_first = "queue_name",
     .other_second = "available_at"},
    {.name = "idx_delivered_at", .columns = "delivered_at"},
};

#define COLUMNS                                \
    "id {row_id},\n"                           \
    "    body {long_text} NOT NULL,\n"         \
    "    headers {long_text} NOT NULL,\n"      \
    "    queue_name VARCHAR(190) NOT NULL,\n"  \
    "    created_at {timestamp} NOT NULL,\n"   \
    "    available_at {timestamp} NOT NULL,\n" \
    "    delivered_at {timestamp} DEFAULT NULL"

static const struct skr_schema messenger_schema = {
    .columns = COLUMNS,
    .indexes = indexes,
    .index_count = SKR_COUNT_OF(indexes),
};

// The rows of a partition by their ids, and the first of each partition.
static const struct skr_index ordered_indexes[] = {
    {.name = "idx_queue_name", .columns = "queue_name"},
    {.name = "idx_available_at",
     .columns = "available_at",
     .other_first = "queue_name",
     .other_second = "available_at"},
    {.name = "idx_delivered_at", .columns = "delivered_at"},
    {.name = "idx_partition_id",
     .columns = "queue_name, partition_key, id",
     .parts = {"queue_name", "partition_key", "id"}},
};

static const struct skr_column ordered_columns[] = {
    {.name = "partition_key", .definition = "{key_text} NOT NULL DEFAULT ''"},
    {.name = "transaction_id", .definition = "{writer_number}"},
};

static const struct skr_schema ordered_schema = {
    .columns = COLUMNS,
    .late_columns = ordered_columns,
    .late_column_count = 1,
    .indexes = ordered_indexes,
    .index_count = SKR_COUNT_OF(ordered_indexes),
};

static const struct skr_schema commits_schema = {
    .columns = COLUMNS,
    .late_columns = ordered_columns,
    .late_column_count = SKR_COUNT_OF(ordered_columns),
    .indexes = ordered_indexes,
    .index_count = SKR_COUNT_OF(ordered_indexes),
};

static const struct skr_schema *
schema_of(const struct skr_messenger *messenger)
{
    return messenger->by_commits   ? &commits_schema
           : messenger->is_ordered ? &ordered_schema
                                   : &messenger_schema;
}

static const struct skr_schema meta_schema = {
    .columns = "name VARCHAR(64) NOT NULL PRIMARY KEY,\n"
               "    value VARCHAR(255) NOT NULL",
};

// Ids of rows that have none are derived from a number that no other database
// has, so that they never meet.
static const char add_namespace_sql[] =
    "INSERT INTO skirnir_meta (name, value)\n"
    "SELECT 'id_namespace', {random_hex} FROM (SELECT 1 AS one) AS once\n"
    "WHERE NOT EXISTS "
    "(SELECT 1 FROM skirnir_meta WHERE name = 'id_namespace')";

static const char find_namespace_sql[] =
    "SELECT value FROM skirnir_meta WHERE name = 'id_namespace'";
static const char check_sql[] =
    "SELECT " SKR_MESSENGER_ROW " FROM {table} LIMIT 0";
static const char check_failed_sql[] =
    "SELECT " SKR_MESSENGER_ROW " FROM {failed_table} LIMIT 0";
static const char check_ordered_sql[] =
    "SELECT partition_key FROM {table} LIMIT 0";
static const char now_sql[] = "SELECT {now}";

static enum skr_code
messenger_setup(const struct skr_store *table, struct skr_db *db,
                skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_dialect *dialect = messenger->dialect;
    enum skr_code code = skr_schema_write(
        schema_of(messenger), dialect, messenger->name, db, each, user, error);
    if (code == SKR_OK && messenger->failed_table != NULL &&
        strcmp(messenger->failed_table, messenger->name) != 0)
        code = skr_schema_write(&messenger_schema, dialect,
                                messenger->failed_table, db, each, user, error);
    if (code == SKR_OK)
        code = skr_schema_write(&meta_schema, dialect, "skirnir_meta", db, each,
                                user, error);
    if (code == SKR_OK)
        code = skr_messenger_setup_leases(messenger, db, each, user, error);
    if (code != SKR_OK)
        return code;
    struct skr_arena arena = {0};
    const char *sql = skr_sql_fill(dialect, &arena, add_namespace_sql, NULL, 0);
    code = sql == NULL ? skr_fail_memory(error) : each(sql, user, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
messenger_complete(const struct skr_store *table, struct skr_db *db,
                   skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return skr_schema_complete(schema_of(messenger), db, messenger->name, each,
                               user, error);
}

enum skr_code
skr_messenger_follow(const struct skr_messenger *messenger, struct skr_db *db,
                     struct skr_error *error)
{
    return skr_db_follow(db, messenger->name, messenger->queue, error);
}

// By the first columns of the indexes there are: which statements find their
// rows without a look at all of them.
enum skr_code
skr_messenger_learn(const struct skr_messenger *messenger, struct skr_db *db,
                    struct skr_position *position, struct skr_error *error)
{
    if (position->knows_indexes)
        return SKR_OK;
    struct skr_tx tx = skr_db_tx(db);
    bool by_time = false, by_queue = false, by_claim = false;
    enum skr_code code = skr_schema_has_index(
        tx, messenger->name, "available_at", NULL, &by_time, error);
    if (code == SKR_OK)
        code = skr_schema_has_index(tx, messenger->name, "queue_name",
                                    "available_at", &by_queue, error);
    if (code == SKR_OK)
        code = skr_schema_has_index(tx, messenger->name, "delivered_at", NULL,
                                    &by_claim, error);
    if (code != SKR_OK)
        return code;
    position->dues_by_queue = !by_time && by_queue;
    position->lacks_claims = !by_claim;
    position->knows_indexes = true;
    return SKR_OK;
}

static enum skr_code
check(struct skr_db *db, const char *sql, const char *name, bool is_ordered,
      struct skr_error *error)
{
    enum skr_code code =
        skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = sql}, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no table %s; run `skirnir setup`", name);
    if (code != SKR_OK) {
        skr_error_prefix(error, "table %s", name);
        return code;
    }
    code = skr_schema_check_engine(skr_db_tx(db), name, error);
    if (code != SKR_OK)
        return code;
    return skr_schema_check_ids(skr_db_tx(db), name,
                                is_ordered ? SKR_MESSENGER_ROW ", partition_key"
                                           : SKR_MESSENGER_ROW,
                                "skirnir setup", error);
}

enum skr_code
skr_messenger_check_ordered(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error)
{
    if (!messenger->is_ordered)
        return SKR_OK;
    enum skr_code code = skr_tx_run(
        skr_db_tx(db),
        &(struct skr_statement){.sql = messenger->sql.check_ordered}, error);
    if (code == SKR_OK || error == NULL || error->remedy != SKR_GIVE_UP)
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "table %s has no column partition_key, which an ordered "
                    "outbox needs; run `skirnir setup`",
                    messenger->name);
}

// A server gives NULL for a zone that it does not know.
static enum skr_code
check_zone(const struct skr_messenger *messenger, struct skr_db *db,
           struct skr_error *error)
{
    if (messenger->zone.is_utc)
        return SKR_OK;
    char now[SKR_POSITION_TIME_SIZE] = "";
    enum skr_code code =
        skr_messenger_now(messenger, skr_db_tx(db), now, error);
    if (code == SKR_OK && now[0] != '\0')
        return SKR_OK;
    if (code != SKR_OK && error != NULL && error->remedy != SKR_GIVE_UP)
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "table %s: the server does not know the time_zone %s; give "
                    "an offset such as +02:00, or load its zones (MariaDB and "
                    "MySQL: mysql_tzinfo_to_sql)",
                    messenger->name, messenger->zone.name);
}

static enum skr_code
messenger_check(const struct skr_store *table, struct skr_db *db,
                struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    enum skr_code code = check(db, messenger->sql.check, messenger->name,
                               messenger->is_ordered, error);
    if (code == SKR_OK)
        code = skr_messenger_check_ordered(messenger, db, error);
    if (code == SKR_OK)
        code = skr_messenger_check_commits(messenger, db, error);
    if (code == SKR_OK && messenger->failed_table != NULL)
        code = check(db, messenger->sql.check_failed, messenger->failed_table,
                     false, error);
    if (code == SKR_OK)
        code = skr_messenger_check_leases(messenger, db, error);
    if (code == SKR_OK)
        code = check_zone(messenger, db, error);
    return code;
}

static enum skr_code
messenger_start(const struct skr_store *table, struct skr_db *db,
                struct skr_position *position, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code = skr_tx_fetch_one(
        skr_db_tx(db),
        &(struct skr_statement){.sql = messenger->sql.find_namespace}, &arena,
        &value, 1, &found, error);
    size_t room = sizeof(position->id_namespace) - 1;
    *position = (struct skr_position){0};
    if (code == SKR_OK && found && value.size > 0 && value.size <= room)
        memcpy(position->id_namespace, value.bytes, value.size + 1);
    else if (code == SKR_OK || code == SKR_MISSING)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "table skirnir_meta holds no id_namespace; run "
                        "`skirnir setup`");
    skr_arena_fini(&arena);
    skr_horizon_start(position, db);
    return code;
}

static void
messenger_free(struct skr_store *table)
{
    struct skr_messenger *messenger = (struct skr_messenger *)table;
    skr_arena_fini(&messenger->arena);
    free(messenger);
}

static const struct skr_admin_ops admin = {
    .setup = messenger_setup,
    .complete = messenger_complete,
    .notify = skr_messenger_notify,
    .check = messenger_check,
};
static const struct skr_source_ops source = {
    .lock_name = skr_messenger_lock_name,
    .start = messenger_start,
    .read = skr_messenger_read,
};
static const struct skr_settle_ops settle = {
    .write = skr_messenger_settle,
};
static const struct skr_partition_ops partitions = {
    .read = skr_messenger_read_partitions,
    .measure = skr_messenger_measure,
    .find_writer = skr_messenger_find_writer,
};
static const struct skr_lease_ops leases = {
    .claim = skr_messenger_claim,
    .renew = skr_messenger_renew,
    .release = skr_messenger_release,
};
static const struct skr_shard_ops shards = {
    .live = skr_messenger_live,
    .see = skr_messenger_see_shares,
    .take = skr_messenger_take_share,
    .renew = skr_messenger_renew_share,
    .give = skr_messenger_give_share,
};
static const struct skr_diagnosis_ops diagnosis = {
    .count_claimed = skr_messenger_leased,
    .foreign = skr_messenger_foreign,
    .skew = skr_messenger_skew,
};

static enum skr_code
check_options(const struct skr_messenger_options *options,
              struct skr_error *error)
{
    const char *failed_queue =
        options->failed_queue == NULL ? "failed" : options->failed_queue;
    enum skr_code code =
        skr_messenger_check_names(options->table, options->queue, error);
    if (code == SKR_OK && options->failed_table != NULL)
        code = skr_messenger_check_names(options->failed_table, failed_queue,
                                         error);
    if (code != SKR_OK)
        return code;
    if (options->redeliver_timeout_s > 0 &&
        options->redeliver_timeout_s < LEAST_REDELIVER_S)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "redeliver_timeout is at least %d seconds",
                        LEAST_REDELIVER_S);
    if (options->keeps_sent)
        code = skr_messenger_check_sent(options->queue, error);
    if (code == SKR_OK && options->by_commits)
        code = skr_messenger_know_commits(options->dialect, error);
    return code;
}

static bool
copy(struct skr_messenger *messenger, const char *text, const char **copied)
{
    *copied = skr_arena_text(&messenger->arena, text, strlen(text));
    return *copied != NULL;
}

static bool
write_hex(struct skr_messenger *messenger, const char *text, const char **hex)
{
    size_t size = strlen(text);
    char *digits = skr_arena_take(&messenger->arena, 2 * size + 1);
    if (digits == NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        snprintf(digits + 2 * i, 3, "%02X", (unsigned char)text[i]);
    digits[2 * size] = '\0';
    *hex = digits;
    return true;
}

static bool
copy_options(struct skr_messenger *messenger,
             const struct skr_messenger_options *options)
{
    const char *failed_queue =
        options->failed_queue == NULL ? "failed" : options->failed_queue;
    const char *transport =
        options->transport == NULL ? options->queue : options->transport;
    messenger->names = options->names;
    messenger->is_ordered = options->is_ordered;
    messenger->by_commits = options->is_ordered && options->by_commits;
    messenger->failed_readable = options->failed_readable;
    messenger->limits_headers = options->limits_headers;
    messenger->redeliver_timeout_s = options->redeliver_timeout_s > 0
                                         ? options->redeliver_timeout_s
                                         : DEFAULT_REDELIVER_S;
    messenger->sweep_ms =
        options->sweep_ms > 0 ? options->sweep_ms : DEFAULT_SWEEP_MS;
    messenger->failed_aside =
        skr_arena_format(&messenger->arena, "%s.skirnir", failed_queue);
    if (options->failed_table != NULL &&
        !copy(messenger, options->failed_table, &messenger->failed_table))
        return false;
    if (options->partition_header != NULL &&
        !copy(messenger, options->partition_header,
              &messenger->partition_header))
        return false;
    if (options->keeps_sent) {
        messenger->sent_queue =
            skr_arena_format(&messenger->arena, "%s.sent", options->queue);
        if (messenger->sent_queue == NULL)
            return false;
    }
    return messenger->failed_aside != NULL &&
           copy(messenger, options->table, &messenger->name) &&
           copy(messenger, options->queue, &messenger->queue) &&
           write_hex(messenger, options->queue, &messenger->queue_hex) &&
           copy(messenger, transport, &messenger->transport) &&
           copy(messenger, failed_queue, &messenger->failed_queue);
}

static enum skr_code
read_zones(struct skr_messenger *messenger,
           const struct skr_messenger_options *options, struct skr_error *error)
{
    struct skr_zone failed;
    enum skr_code code = skr_zone_read(messenger->dialect, options->time_zone,
                                       &messenger->zone, error);
    if (code == SKR_OK)
        code = skr_zone_read(messenger->dialect, options->failed_time_zone,
                             &failed, error);
    if (code != SKR_OK)
        return code;
    struct skr_word words[SKR_ZONE_WORDS];
    size_t count = skr_zone_words(&failed, words);
    messenger->failed_now =
        skr_sql_fill(messenger->dialect, &messenger->arena,
                     failed.is_utc ? "{utc_now}" : "{zone_now}", words, count);
    return messenger->failed_now == NULL ? skr_fail_memory(error) : SKR_OK;
}

static bool
fill_own(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, check_sql, &messenger->sql.check) &&
           skr_messenger_fill(messenger, check_ordered_sql,
                              &messenger->sql.check_ordered) &&
           skr_messenger_fill(messenger, check_failed_sql,
                              &messenger->sql.check_failed) &&
           skr_messenger_fill(messenger, find_namespace_sql,
                              &messenger->sql.find_namespace) &&
           skr_messenger_fill(messenger, now_sql, &messenger->sql.now);
}

static bool
fill_all(struct skr_messenger *messenger)
{
    return fill_own(messenger) && skr_messenger_fill_scan(messenger) &&
           skr_messenger_fill_rest(messenger) &&
           skr_messenger_fill_read(messenger) &&
           skr_messenger_fill_others(messenger) &&
           skr_messenger_fill_find(messenger) &&
           skr_messenger_fill_failed(messenger) &&
           skr_messenger_fill_settle(messenger) &&
           skr_messenger_fill_claim(messenger) &&
           skr_messenger_fill_lease(messenger) &&
           skr_messenger_fill_ordered(messenger) &&
           skr_messenger_fill_commits(messenger) &&
           skr_messenger_fill_partition(messenger) &&
           skr_messenger_fill_partitions(messenger) &&
           skr_messenger_fill_shares(messenger);
}

enum skr_code
skr_messenger_new(const struct skr_messenger_options *options,
                  struct skr_store **table, struct skr_error *error)
{
    enum skr_code code = check_options(options, error);
    if (code != SKR_OK)
        return code;
    struct skr_messenger *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->table = (struct skr_store){
        .admin = &admin,
        .source = &source,
        .settle = &settle,
        .free = messenger_free,
        .shards = &shards,
        .diagnosis = &diagnosis,
    };
    // Rows that are claimed one by one have no order.
    if (options->is_ordered)
        made->table.partitions = &partitions;
    else
        made->table.leases = &leases;
    made->dialect = options->dialect;
    code = read_zones(made, options, error);
    if (code == SKR_OK && !copy_options(made, options))
        code = skr_fail_memory(error);
    if (code == SKR_OK && options->is_divided)
        code = skr_messenger_name_owner(made, error);
    if (code == SKR_OK && !fill_all(made))
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        code = skr_envelope_id_header(&made->arena, options->stamp_namespace,
                                      &made->id_header, error);
    if (code != SKR_OK) {
        skr_store_free(&made->table);
        return code;
    }
    *table = &made->table;
    return SKR_OK;
}
