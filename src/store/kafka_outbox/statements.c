// SPDX-License-Identifier: MIT
// The texts of all statements of a table object, once for all databases.

#include "base/text.h"
#include "store/identity.h"
#include "store/kafka_outbox/layout.h"

#define UNFINISHED "o.push_completed_at IS NULL AND o.errored = 0"
// Parameter: seconds. {or_others}: claims of another relay are void.
#define FREE                                                          \
    "(o.batch_id IS NULL OR o.push_started_at IS NULL {or_others}OR " \
    "o.push_started_at <= {now_minus})"
#define CLAIMED UNFINISHED " AND NOT " FREE
// A word behind a dot is a name, although `key` is reserved elsewhere.
#define COLUMNS                                                 \
    "o.id, o.topic, o.payload_json, o.payload_headers, o.key, " \
    "o.partition_key, o.push_attempts, o.created_at"
#define PLACES "SELECT o.id, o.topic, o.key, o.partition_key FROM {table} o "

// The other relay's column may be a TINYINT; beyond it the statement would
// fail, for ever.
#define MOST "127"  // SKR_KAFKA_OUTBOX_MOST_ATTEMPTS
#define COUNT_UP(tries)                               \
    "push_attempts = CASE WHEN push_attempts < " MOST \
    " THEN push_attempts + " tries " ELSE push_attempts END"
#define COMPLETE                                                            \
    "UPDATE {table}{by_primary_key} SET batch_id = " KAFKA_OUTBOX_OWN_BATCH \
    ", push_started_at = {now}, push_completed_at = {now}, error_reason = " \
    "'', " COUNT_UP("1") " WHERE "
// A claim that ends when the row is due, for either relay.
// Parameters: seconds that the claim has lasted, reason and tries if they are
// written, id.
#define RETRY(reason)                                            \
    "UPDATE {table} SET batch_id = " KAFKA_OUTBOX_OWN_BATCH ", " \
    "push_started_at = {now_minus}" reason " WHERE id = ?"
// Parameters: reason if it is written, id.
#define FAIL(reason)                                              \
    "UPDATE {table} SET errored = 1, " reason "batch_id = NULL, " \
    "push_started_at = NULL WHERE id = ?"

// What is completed may be very much, and is counted up to here only.
#define BOUND "100001"
// Each condition has a flag before it. Parameters: whether there is an id, the
// id; whether they are older, by how many seconds; whether before a time, it.
#define ERRORED                                 \
    " WHERE errored = 1 AND (? = 0 OR id = ?) " \
    "AND (? = 0 OR created_at < {now_minus}) "  \
    "AND (? = 0 OR created_at < ?)"

static const struct template
{
    const char *sql;
    const char *range;  // of a list: the same for ids without a gap
    bool is_list;       // its last parameters are ids
}
templates[KAFKA_OUTBOX_SQL_COUNT] = {
    [KAFKA_OUTBOX_OPEN_TRANSACTIONS] = {.sql = "{open_transactions_inside}"},

    // Parameters: cursor, lease, limit.
    [KAFKA_OUTBOX_BEYOND] = {.sql = "SELECT " COLUMNS
                                    " FROM {table} o WHERE o.id > ? "
                                    "AND " UNFINISHED " AND " FREE
                                    " ORDER BY o.id LIMIT ?"},
    // Without payloads, as most are in flight. Parameters: from, to, lease,
    // limit.
    [KAFKA_OUTBOX_BEHIND] =
        {.sql = "SELECT o.id, o.topic, NULL, NULL, o.key, o.partition_key "
                "FROM {table} o WHERE o.id > ? AND o.id <= ? AND " UNFINISHED
                " AND " FREE " ORDER BY o.id LIMIT ?"},
    // Parameters: id, lease.
    [KAFKA_OUTBOX_ONLY] = {.sql = "SELECT " COLUMNS
                                  " FROM {table} o WHERE o.id = ? "
                                  "AND " UNFINISHED " AND " FREE},
    [KAFKA_OUTBOX_BY_ID] = {"SELECT " COLUMNS " FROM {table} o "
                            "WHERE o.id IN ({ids}) ORDER BY o.id",
                            .is_list = true},
    // NULL, which reads as 0, where there are none; COALESCE() with a signed
    // number would turn ids that are unsigned into decimals. Parameter: lease.
    [KAFKA_OUTBOX_CLAIM_BOUNDS] =
        {.sql = "SELECT MIN(o.id), MAX(o.id), COUNT(*) "
                "FROM {table} o WHERE o.batch_id IS NOT NULL AND " CLAIMED},
    // Parameters: from, to, lease.
    [KAFKA_OUTBOX_CLAIMED_ROWS] = {.sql =
                                       PLACES "WHERE o.id >= ? AND o.id <= ? "
                                              "AND " CLAIMED},
    [KAFKA_OUTBOX_PLACES] = {PLACES "WHERE " UNFINISHED " AND o.id IN ({ids})",
                             .is_list = true},

    [KAFKA_OUTBOX_IDENTIFY] = {SKR_IDENTITY_SQL, .is_list = true},
    [KAFKA_OUTBOX_REMOVE] = {.sql = "{remove_ids}", "{remove_range}", true},
    [KAFKA_OUTBOX_COMPLETE] = {.sql = COMPLETE SKR_IN_LIST,
                               COMPLETE SKR_IN_RANGE,
                               true},
    // Completed, and nothing else.
    [KAFKA_OUTBOX_COMPLETE_LEAST] = {"UPDATE {table}{by_primary_key} "
                                     "SET push_completed_at = {now} "
                                     "WHERE id IN ({ids})",
                                     .is_list = true},
    [KAFKA_OUTBOX_RETRY] = {.sql = RETRY(", error_reason = ?, " COUNT_UP("?"))},
    [KAFKA_OUTBOX_RETRY_LEAST] = {.sql = RETRY("")},
    [KAFKA_OUTBOX_FAIL] = {.sql =
                               FAIL("error_reason = ?, " COUNT_UP("1") ", ")},
    [KAFKA_OUTBOX_FAIL_LEAST] = {.sql = FAIL("")},

    [KAFKA_OUTBOX_FIND_OLD] = {.sql =
                                   "SELECT id, push_completed_at FROM {table} "
                                   "WHERE push_completed_at >= ? "
                                   "AND push_completed_at <= {now_minus} "
                                   "ORDER BY push_completed_at LIMIT ?"},
    [KAFKA_OUTBOX_COUNT_OLD] = {.sql =
                                    "SELECT COUNT(*) FROM {table} "
                                    "WHERE push_completed_at <= {now_minus}"},
    [KAFKA_OUTBOX_QUEUED] = {.sql = "SELECT COUNT(*) FROM {table} "
                                    "WHERE push_completed_at IS NULL"},
    [KAFKA_OUTBOX_ERRORED] = {.sql = "SELECT COUNT(*) FROM {table} "
                                     "WHERE push_completed_at IS NULL "
                                     "AND errored = 1"},
    [KAFKA_OUTBOX_TOTAL] = {.sql = "SELECT COUNT(*) FROM (SELECT 1 AS one "
                                   "FROM {table} LIMIT " BOUND ") AS bounded"},
    [KAFKA_OUTBOX_ESTIMATE] = {.sql = "{row_estimate}"},
    [KAFKA_OUTBOX_SHOW] = {.sql = "SELECT id, topic, error_reason, "
                                  "push_attempts, created_at "
                                  "FROM {table}" ERRORED " ORDER BY id"},
    [KAFKA_OUTBOX_REVIVE] = {.sql = "UPDATE {table} SET errored = 0, "
                                    "error_reason = '', push_attempts = 0, "
                                    "batch_id = NULL, "
                                    "push_started_at = NULL" ERRORED},
    [KAFKA_OUTBOX_DROP] = {.sql = "DELETE FROM {table}" ERRORED},
};

static const char *
fill(void *layout, const char *sql_template, const char *ids,
     const char *id_rows)
{
    struct skr_kafka_outbox *outbox = layout;
    const struct skr_word words[] = {
        {"table", outbox->table.name},
        {"ids", ids},
        {"id_rows", id_rows},
        {"or_others", outbox->takes_over
                          ? "OR o.batch_id <> " KAFKA_OUTBOX_OWN_BATCH " "
                          : ""},
    };
    return skr_sql_fill(outbox->dialect, &outbox->table.arena, sql_template,
                        words, SKR_COUNT_OF(words));
}

bool
skr_kafka_outbox_fill(struct skr_kafka_outbox *outbox)
{
    const struct skr_list_filling filling = {
        .dialect = outbox->dialect,
        .arena = &outbox->table.arena,
        .fill = fill,
        .layout = outbox,
    };
    for (size_t i = 0; i < KAFKA_OUTBOX_SQL_COUNT; i++) {
        const struct template *template = &templates[i];
        struct skr_list_sql *list = &outbox->sql[i];
        bool ok = true;
        if (template->is_list)
            ok = skr_list_fill(&filling, template->sql, template->range, list);
        else if (template->sql != NULL)
            list->sql[0] = fill(outbox, template->sql, "", "");
        // Who made the table is asked for elsewhere (kafka_outbox.c).
        ok = ok && (list->sql[0] != NULL || template->sql == NULL);
        if (!ok)
            return false;
    }
    return true;
}
