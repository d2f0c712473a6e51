// SPDX-License-Identifier: MIT
// Setup, checks and options of the layout, and what its files share.

#include "store/messenger/messenger.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/layout.h"
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_REDELIVER_S = 3600,
    LEAST_REDELIVER_S = 3,  // a claim's time has a precision of one second
    DEFAULT_SCAN_MS = 60000,
    MOST_TRIES = 5,
    LONGEST_TRYING_MS = 1000,
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
    // Of an ordered queue alone: the rows of a partition by their ids, and the
    // first of each partition.
    {.name = "idx_partition_id",
     .columns = "queue_name, partition_key, id",
     .parts = {"queue_name", "partition_key", "id"}},
};

#define COLUMNS                                \
    "id {row_id},\n"                           \
    "    body {long_text} NOT NULL,\n"         \
    "    headers {long_text} NOT NULL,\n"      \
    "    queue_name VARCHAR(190) NOT NULL,\n"  \
    "    created_at {timestamp} NOT NULL,\n"   \
    "    available_at {timestamp} NOT NULL,\n" \
    "    delivered_at {timestamp} DEFAULT NULL"

static const struct skr_column ordered_columns[] = {
    {.name = "partition_key", .definition = "{key_text} NOT NULL DEFAULT ''"},
    {.name = "transaction_id", .definition = "{writer_number}"},
};

#define CURE "run `skirnir setup`"
#define ORDERED_ROW SKR_MESSENGER_ROW ", partition_key"

#define TABLE(late_count, unused_indexes)                                   \
    {                                                                       \
        .columns = COLUMNS, .needed = SKR_MESSENGER_ROW, .cure = CURE,      \
        .late_columns = ordered_columns, .late_column_count = (late_count), \
        .indexes = indexes,                                                 \
        .index_count = SKR_COUNT_OF(indexes) - (unused_indexes),            \
    }

static const struct kind {
    struct skr_schema schema;
    const char *row;  // its columns
} kinds[SKR_QUEUE_KINDS] = {
    [SKR_QUEUE_PLAIN] = {TABLE(0, 1), SKR_MESSENGER_ROW},
    [SKR_QUEUE_ORDERED] = {TABLE(1, 0), ORDERED_ROW},
    [SKR_QUEUE_BY_COMMITS] = {TABLE(2, 0), ORDERED_ROW},
};

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

static enum skr_code
give(const struct skr_messenger *messenger, const char *sql_template,
     skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", messenger->table.name}};
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(messenger->dialect, &arena, sql_template, words, 1);
    enum skr_code code =
        sql == NULL ? skr_fail_memory(error) : each(sql, user, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
messenger_setup(const struct skr_store *table, struct skr_db *db,
                skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_schema_target target = {messenger->dialect, db, each,
                                             user};
    enum skr_code code = skr_schema_write(
        &kinds[messenger->kind].schema, messenger->table.name, &target, error);
    if (code == SKR_OK && messenger->failed_table != NULL &&
        !skr_sql_same_table(messenger->dialect, messenger->failed_table,
                            messenger->table.name))
        code = skr_schema_write(&kinds[SKR_QUEUE_PLAIN].schema,
                                messenger->failed_table, &target, error);
    if (code == SKR_OK)
        code = skr_schema_write(&meta_schema, "skirnir_meta", &target, error);
    if (code == SKR_OK)
        code = skr_messenger_setup_leases(messenger, &target, error);
    return code == SKR_OK
               ? give(messenger, add_namespace_sql, each, user, error)
               : code;
}

static enum skr_code
messenger_complete(const struct skr_store *table, struct skr_db *db,
                   skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return skr_schema_complete(&kinds[messenger->kind].schema, db,
                               messenger->table.name, each, user, error);
}

enum skr_code
skr_messenger_know_commits(const struct skr_dialect *dialect,
                           struct skr_error *error)
{
    if (skr_sql_word(dialect, "is_decided")[0] != '\0')
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "commit_order needs PostgreSQL: %s does not tell which "
                    "transactions are over; let writers of a key wait for "
                    "each other",
                    dialect->product);
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
skr_messenger_copy_time(const struct skr_value *value, char time[SKR_TIME_SIZE])
{
    // Without a part of a second, should the server give one.
    size_t size = value->size < SKR_TIME_SIZE ? value->size : SKR_TIME_SIZE - 1;
    if (value->bytes == NULL)
        size = 0;
    else
        memcpy(time, value->bytes, size);
    time[size] = '\0';
}

bool
skr_messenger_measure(const struct skr_value *from, const struct skr_value *to,
                      int64_t *distance_us)
{
    char begin[SKR_TIME_SIZE], end[SKR_TIME_SIZE];
    int64_t begin_us = 0, end_us = 0;
    skr_messenger_copy_time(from, begin);
    skr_messenger_copy_time(to, end);
    bool ok = skr_clock_parse_timestamp(begin, &begin_us) &&
              skr_clock_parse_timestamp(end, &end_us);
    *distance_us = ok ? end_us - begin_us : 0;
    return ok;
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
                  char time[SKR_TIME_SIZE], struct skr_error *error)
{
    return skr_sql_each(tx, skr_messenger_sql(messenger, SKR_SQL_NOW),
                        SKR_NO_VALUES, keep_time, time, error);
}

enum skr_code
skr_messenger_follow(const struct skr_messenger *messenger, struct skr_db *db,
                     struct skr_error *error)
{
    return db->ops->follow(db, messenger->table.name, messenger->table.queue,
                           error);
}

// By the first columns of the indexes there are: which statements find their
// rows without a look at all of them.
enum skr_code
skr_messenger_learn(const struct skr_messenger *messenger, struct skr_db *db,
                    struct skr_messenger_indexes *learned,
                    struct skr_error *error)
{
    if (learned->are_known)
        return SKR_OK;
    struct skr_tx tx = skr_db_tx(db);
    bool by_time = false, by_queue = false, by_claim = false;
    enum skr_code code = skr_schema_has_index(
        tx, messenger->table.name, "available_at", NULL, &by_time, error);
    if (code == SKR_OK)
        code = skr_schema_has_index(tx, messenger->table.name, "queue_name",
                                    "available_at", &by_queue, error);
    if (code == SKR_OK)
        code = skr_schema_has_index(tx, messenger->table.name, "delivered_at",
                                    NULL, &by_claim, error);
    if (code != SKR_OK)
        return code;
    *learned = (struct skr_messenger_indexes){
        .are_known = true,
        .dues_by_queue = !by_time && by_queue,
        .lacks_claims = !by_claim,
    };
    return SKR_OK;
}

enum skr_code
skr_messenger_check_table(struct skr_tx tx, const char *name, const char *row,
                          struct skr_error *error)
{
    enum skr_code code = skr_schema_check(
        tx, &(struct skr_needs){name, SKR_MESSENGER_ROW, CURE}, error);
    return code == SKR_OK
               ? skr_schema_check_ids(tx, name, row, "skirnir setup", error)
               : code;
}

// As ordered_columns.
static const char *const column_uses[] = {"an ordered outbox", "commit_order"};

enum skr_code
skr_messenger_check_columns(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error)
{
    const struct skr_schema *schema = &kinds[messenger->kind].schema;
    bool has = true;
    for (size_t i = 0; i < schema->late_column_count; i++) {
        const char *name = schema->late_columns[i].name;
        enum skr_code code = skr_schema_has_column(
            skr_db_tx(db), messenger->table.name, name, &has, error);
        if (code != SKR_OK)
            return code;
        if (!has)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "table %s has no column %s, which %s needs; run "
                            "`skirnir setup`",
                            messenger->table.name, name, column_uses[i]);
    }
    return SKR_OK;
}

// A server gives NULL for a zone that it does not know.
static enum skr_code
check_zone(const struct skr_messenger *messenger, struct skr_db *db,
           struct skr_error *error)
{
    if (messenger->zone.is_utc)
        return SKR_OK;
    char now[SKR_TIME_SIZE] = "";
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
                    messenger->table.name, messenger->zone.name);
}

static enum skr_code
messenger_check(const struct skr_store *table, struct skr_db *db,
                struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    enum skr_code code =
        skr_messenger_check_table(skr_db_tx(db), messenger->table.name,
                                  kinds[messenger->kind].row, error);
    if (code == SKR_OK)
        code = skr_messenger_check_columns(messenger, db, error);
    if (code == SKR_OK && messenger->failed_table != NULL)
        code = skr_messenger_check_table(skr_db_tx(db), messenger->failed_table,
                                         SKR_MESSENGER_ROW, error);
    if (code == SKR_OK)
        code = skr_messenger_check_leases(messenger, db, error);
    if (code == SKR_OK)
        code = check_zone(messenger, db, error);
    return code;
}

enum skr_code
skr_messenger_find_namespace(const struct skr_messenger *messenger,
                             struct skr_tx tx, char found[SKR_NAMESPACE_SIZE],
                             struct skr_error *error)
{
    enum skr_code code =
        skr_sql_text(tx, skr_messenger_sql(messenger, SKR_SQL_FIND_NAMESPACE),
                     SKR_NO_VALUES, found, SKR_NAMESPACE_SIZE, error);
    if ((code == SKR_OK && found[0] == '\0') || code == SKR_MISSING)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "table skirnir_meta holds no id_namespace; run "
                        "`skirnir setup`");
    return code;
}

// A trigger that is there stays: to replace it the table would be locked.
static enum skr_code
messenger_notify(const struct skr_store *table, struct skr_db *db, bool wanted,
                 skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_row trigger = {.count = 0};
    if (skr_sql_word(messenger->dialect, "notify_function")[0] == '\0')
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s cannot tell a relay of new rows, as only "
                        "PostgreSQL has LISTEN and NOTIFY; relays look for "
                        "rows by themselves there",
                        messenger->dialect->product);
    enum skr_code code =
        give(messenger, wanted ? "{notify_function}" : "{drop_notify_trigger}",
             each, user, error);
    if (code == SKR_OK && wanted && db != NULL)
        code = skr_sql_ask_table(skr_db_tx(db), "{find_notify}",
                                 messenger->table.name, &trigger, error);
    if (code != SKR_OK || trigger.found)
        return code;
    return give(messenger,
                wanted ? "{notify_trigger}" : "{drop_notify_function}", each,
                user, error);
}

static enum skr_queue_kind
kind_of(const struct skr_messenger_options *options)
{
    static const enum skr_queue_kind of[2][2] = {
        {SKR_QUEUE_PLAIN, SKR_QUEUE_PLAIN},
        {SKR_QUEUE_ORDERED, SKR_QUEUE_BY_COMMITS},
    };
    return of[options->is_ordered][options->by_commits];
}

static const struct skr_admin_ops admin = {
    .setup = messenger_setup,
    .complete = messenger_complete,
    .notify = messenger_notify,
    .check = messenger_check,
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
    if (code == SKR_OK && kind_of(options) == SKR_QUEUE_BY_COMMITS)
        code = skr_messenger_know_commits(options->dialect, error);
    return code;
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
    messenger->failed_readable = options->failed_readable;
    messenger->limits_headers = options->limits_headers;
    messenger->redeliver_timeout_s = options->redeliver_timeout_s > 0
                                         ? options->redeliver_timeout_s
                                         : DEFAULT_REDELIVER_S;
    messenger->full_scan_ms =
        options->full_scan_ms > 0 ? options->full_scan_ms : DEFAULT_SCAN_MS;
    messenger->failed_aside =
        skr_arena_format(&messenger->table.arena, "%s.skirnir", failed_queue);
    if (options->keeps_sent)
        messenger->sent_queue = skr_arena_format(&messenger->table.arena,
                                                 "%s.sent", options->queue);
    if (messenger->failed_aside == NULL ||
        (options->keeps_sent && messenger->sent_queue == NULL))
        return false;
    const struct {
        const char *text;
        const char **copied;
    } texts[] = {
        {options->table, &messenger->table.name},
        {options->queue, &messenger->table.queue},
        {transport, &messenger->transport},
        {failed_queue, &messenger->failed_queue},
        {options->failed_table, &messenger->failed_table},
        {options->partition_header, &messenger->partition_header},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        if (texts[i].text == NULL)
            continue;
        *texts[i].copied = skr_arena_text(&messenger->table.arena,
                                          texts[i].text, strlen(texts[i].text));
        if (*texts[i].copied == NULL)
            return false;
    }
    return true;
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
        skr_sql_fill(messenger->dialect, &messenger->table.arena,
                     failed.is_utc ? "{utc_now}" : "{zone_now}", words, count);
    return messenger->failed_now == NULL ? skr_fail_memory(error) : SKR_OK;
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
        .source = &skr_messenger_source,
        .settle = &skr_messenger_settling,
        .shards = &skr_messenger_shards,
        .diagnosis = &skr_messenger_diagnosis,
    };
    made->kind = kind_of(options);
    // Rows that are claimed one by one have no order.
    if (made->kind == SKR_QUEUE_PLAIN)
        made->table.leases = &skr_messenger_leases;
    else
        made->table.partitions = &skr_messenger_partitions;
    made->dialect = options->dialect;
    code = read_zones(made, options, error);
    if (code == SKR_OK && !copy_options(made, options))
        code = skr_fail_memory(error);
    if (code == SKR_OK && options->is_sharded)
        code = skr_messenger_name_owner(made, error);
    if (code == SKR_OK && !skr_messenger_fill_all(made))
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        code =
            skr_envelope_id_header(&made->table.arena, options->stamp_namespace,
                                   &made->id_header, error);
    if (code != SKR_OK) {
        skr_store_free(&made->table);
        return code;
    }
    *table = &made->table;
    return SKR_OK;
}
