// SPDX-License-Identifier: MIT
// The texts of all statements of a table object, once for all databases.
//
// Plain and ordered queues differ in what is selected and in which order
// parameters come: the second table has what an ordered queue does otherwise.
// A reader binds by these letters, which stand in the order of parameters:
//
//   q  the queue                   t  redeliver timeout, in seconds
//   f  ids after this one          d  due times after this one
//   u  ids up to this one          n  due times up to this one
//   p  partitions that are passed  l  how many rows at most

#include "base/text.h"
#include "store/identity.h"
#include "store/messenger/layout.h"

#include <stdio.h>
#include <string.h>

#define EXPIRED "delivered_at < {now_minus}"
#define FREE "(delivered_at IS NULL OR " EXPIRED ")"
// In the year 9999 are rows that are done but not deleted.
#define LEASED                         \
    "delivered_at >= {now_minus} AND " \
    "delivered_at < '9999-12-31 00:00:00'"
#define UNFINISHED SKR_MESSENGER_UNFINISHED
#define DUE SKR_MESSENGER_DUE
// PHP's own serialisation, plain or in base64: for the Symfony worker alone.
#define PHP                                              \
    "(headers = '[]' AND (SUBSTR(body, 1, 2) = 'O:' OR " \
    "SUBSTR(body, 1, 3) = 'Tzo'))"
// Whether a row may be sent now.
#define READY FREE " AND " DUE " AND NOT " PHP

#define MARKS                                             \
    "CASE WHEN delivered_at IS NULL THEN 0 ELSE 1 END + " \
    "CASE WHEN available_at > created_at THEN 2 ELSE 0 END"
#define COLUMNS "id, body, headers, created_at, {created_at_utc}, " MARKS

// ------------------------------------------------------------- reading, plain

#define NEW(columns, queue)                                            \
    "SELECT " columns " FROM {table} "                                 \
    "WHERE " queue " AND id > ? AND " FREE " AND " DUE " AND NOT " PHP \
    "{ours} ORDER BY id LIMIT ?"

// A claim beyond the cursor locks what it finds, by the primary key, and goes
// past what others have locked: two readers that claim at once find different
// rows. What it may not take, as rows of other queues, is locked for a moment
// only.
#define CLAIM_NEW                                                              \
    "SELECT " COLUMNS " FROM {table}{by_primary_key} "                         \
    "WHERE {queue_is_beyond} AND id > ? AND " FREE " AND " DUE " AND NOT " PHP \
    " ORDER BY id LIMIT ? {lock_skip}"

// Few rows become due between two scans: by the index on their time, not by the
// much longer lists of all that wait or of the whole queue.
#define DUE_IDS(queue)                                                     \
    "SELECT id FROM {table} WHERE " queue                                  \
    " AND {no_index}id > ? AND {no_index}id <= ? "                         \
    "AND available_at > ? AND available_at <= ? AND " FREE " AND NOT " PHP \
    "{ours} ORDER BY id LIMIT ?"
#define IDS_BETWEEN(queue)                                           \
    "SELECT id FROM {table} WHERE " queue " AND id > ? AND id <= ? " \
    "AND " FREE " AND " DUE " AND NOT " PHP "{ours} ORDER BY id LIMIT ?"
// What was given back. Leases that ran out are found by their time.
#define FOREIGN                                                              \
    "SELECT id FROM {table} WHERE {queue_is_beyond} AND id > ? AND id <= ? " \
    "AND delivered_at IS NULL AND " DUE " AND NOT " PHP " ORDER BY id LIMIT ?"
// By the index on the times of claims, as few are claimed.
#define LEASED_IDS(queue) "SELECT id FROM {table} WHERE " queue " AND " LEASED
// By the same index: few have run out, however many rows wait. The oldest
// first.
#define EXPIRED_IDS                                      \
    "SELECT id FROM {table} WHERE {queue_is_unindexed} " \
    "AND " EXPIRED " AND " DUE " AND NOT " PHP           \
    " ORDER BY delivered_at LIMIT ?"
#define BY_ID \
    "SELECT " COLUMNS " FROM {table} WHERE id IN ({ids}){ours} ORDER BY id"
// What was free and due when it was found may not be any more. That is no
// condition, as an index that serves it would be locked on the way.
#define LOCK(these)                                                \
    "SELECT " COLUMNS ", CASE WHEN " FREE " AND " DUE              \
    " THEN 1 ELSE 0 END FROM {table}{by_primary_key} WHERE " these \
    " ORDER BY id {lock_skip}"

// The next time that a due scan has to look for: after the last one, not after
// now, as a row may have become due since the scan of this very snapshot. What
// was written to be sent at once has one time; another it has been given since,
// which is the earlier where the writer's clock is ahead. The last id is looked
// for beyond the cursor: from the end of the table the way leads over all rows
// that were deleted and are not cleaned away yet.
#define TAIL(queue)                                         \
    "SELECT {now}, {now_milliseconds}, "                    \
    "(SELECT MAX(id) FROM {table} WHERE id > ?), "          \
    "(SELECT available_at FROM {table} WHERE " queue        \
    " AND available_at > ? AND available_at <> created_at " \
    "ORDER BY available_at LIMIT 1)"

// ----------------------------------------------------------- reading, ordered

// A row that may not be sent now comes all the same, without its body: it holds
// back what follows it. Whether it may is asked once a row, as it is what costs
// most of all.
#define ORDERED_COLUMNS                                \
    "id, CASE WHEN " READY "{decided} THEN body END, " \
    "headers, created_at, {created_at_utc}, " MARKS    \
    "{undecided_mark}, 1, {partition_text}"
#define PASSING " AND {partition_bytes} NOT IN (?, ?, ?, ?, ?, ?, ?, ?)"
_Static_assert(SKR_MOST_PASSED == 8, "as many as PASSING asks for");
#define ORDERED_NEW(queue, else_)                          \
    "SELECT " ORDERED_COLUMNS " FROM {table} WHERE " queue \
    " AND id > ? AND " UNFINISHED "{ours}" else_ " ORDER BY id LIMIT ?"
#define BEHIND \
    "SELECT id, {partition_text}, 0{undecided_mark} FROM {table} WHERE "
// Only what had to wait: what had not was seen when the cursor passed it.
#define ORDERED_DUE(queue)                                                  \
    BEHIND queue " AND {no_index}id > ? AND {no_index}id <= ? "             \
                 "AND available_at > ? AND available_at <= ? "              \
                 "AND available_at <> created_at AND " FREE " AND NOT " PHP \
                 "{ours} ORDER BY id LIMIT ?"
#define ORDERED_FULL(queue)                           \
    BEHIND queue " AND id > ? AND id <= ? AND " READY \
                 "{ours} ORDER BY id LIMIT ?"
// What is late and not ready holds back its partition all the same.
#define ORDERED_LATE(queue, else_)                                       \
    BEHIND queue " AND id > ? AND id <= ? AND " UNFINISHED               \
                 " AND (partition_key <> '' OR (" READY ")){ours}" else_ \
                 " ORDER BY id LIMIT ?"
#define ORDERED_BY_ID                                    \
    "SELECT " COLUMNS ", CASE WHEN " READY               \
    " THEN 1 ELSE 0 END, {partition_text} FROM {table} " \
    "WHERE id IN ({ids}){ours} ORDER BY id"
// Parameters: redeliver timeout, queue, key, twice, cursor, limit.
#define PARTITION                                          \
    "{union_open}SELECT " ORDERED_COLUMNS " FROM {table} " \
    "WHERE {queue_is} AND partition_key = ? "              \
    "AND {partition_bytes} = ? AND id <= ? "               \
    "AND " SKR_MESSENGER_UNFINISHED_UNINDEXED              \
    "{ours} ORDER BY id LIMIT ?{union_close}"
_Static_assert(SKR_PARTITION_PARAMETERS *SKR_MOST_PARTITIONS <= SKR_MOST_VALUES,
               "more than a statement takes");
// Parameters: queue, key, twice.
#define OF_PARTITION                                        \
    " FROM {table} WHERE {queue_is} AND partition_key = ? " \
    "AND {partition_bytes} = ? AND " UNFINISHED

// ------------------------------------------------------------------- settling

#define MARK "UPDATE {table}{by_primary_key} SET delivered_at = ? WHERE "
#define KEEP_SENT                                                              \
    "UPDATE {table}{by_primary_key} SET queue_name = ?, delivered_at = {now} " \
    "WHERE "
#define IF_LEASED " AND delivered_at = ?"
// A row whose time is that of its creation counts as never delayed, and is not
// looked for: where the two meet it gets a second more.
// Parameters: headers if they are written, milliseconds, a second more,
// milliseconds, id, lease if it is leased.
#define RETRY(headers)                                          \
    "UPDATE {table} SET " headers "available_at = "             \
    "CASE WHEN created_at = {now_after} THEN {now_after} ELSE " \
    "{now_after} END, delivered_at = NULL WHERE id = ?"
// The head of a partition that waits for people.
// Parameters: headers if they are written, id.
#define BLOCK(headers)                                           \
    "UPDATE {table} SET " headers                                \
    "available_at = '9999-12-31 23:59:59', delivered_at = NULL " \
    "WHERE id = ?"
#define WITH_HEADERS "headers = ?, "
// The body is copied inside the database, whatever its bytes are; and so are
// the headers of a row that is too large, with what is added to them.
// Parameters: headers or what is added to them, queue, id, lease if it is
// leased.
#define COPY(headers)                                                       \
    "INSERT INTO {failed_table} "                                           \
    "(body, headers, queue_name, created_at, available_at) "                \
    "SELECT body, " headers ", ?, {failed_now}, {failed_now} FROM {table} " \
    "WHERE id = ?"
// Parameters: id, lease if it is leased.
#define REMOVE_ONE "DELETE FROM {table} WHERE id = ?"

// ----------------------------------------------------------- leases on shards

#define LEASES SKR_MESSENGER_LEASES
#define OURS "{is_owner}"
#define BY_LOCK "owner LIKE '" SKR_MESSENGER_LOCK_PREFIX "%'"
#define IS_FREE                              \
    "(owner = '' OR expires_at <= {now} OR " \
    "(" BY_LOCK " AND {owner_lock_is_free}))"
#define OF_SHARDS "WHERE queue_name = ? AND " OURS " AND slot IN ({ids})"

// ----------------------------------------------------------------- partitions

// So many rows are read, whatever becomes of them then. Parameter: queue.
#define BOUND "100001"
#define READ "FROM {table} WHERE {queue_is} LIMIT " BOUND
#define OPEN                                                              \
    "FROM (SELECT id, partition_key, created_at, delivered_at " READ ") " \
    "AS bounded WHERE partition_key <> '' AND " UNFINISHED " "
#define OLDEST "SELECT {partition_text}, id, created_at, {now} "
// By the index on times, or on queue and time: few are blocked. Their bodies
// are of no interest. Parameters: queue, then cursor and limit, or id.
#define BLOCKED_HEADS(queue_is)                                    \
    "SELECT id, '', headers, created_at, {created_at_utc}, 0, 1, " \
    "{partition_text} FROM {table} WHERE " queue_is                \
    " AND available_at = '9999-12-31 23:59:59' "                   \
    "AND partition_key <> '' AND " UNFINISHED
// A reader looks for times that have come since it last did, and are not those
// that rows were written at: this one is yet to come, by a second or two.
// Parameters: seconds, id, seconds.
#define MAKE_DUE                                                 \
    "UPDATE {table} SET available_at = {now_plus} WHERE id = ? " \
    "AND created_at <> {now_plus}"

// -------------------------------------------------------------------- the rest

struct template
{
    const char *sql;    // NULL: the queue has no such statement
    const char *binds;  // where a reader binds it
    bool is_list;       // its last parameters are ids
    const char *range;  // of such a one: the same for ids without a gap
    bool is_of_shards;  // where relays divide the queue; in UTC
    bool is_repeated;   // there is one for 1, 2, 4, .. of what it is about
};

static const struct template of_all[SKR_SQL_COUNT] = {
    [SKR_SQL_FIND_NAMESPACE] =
        {.sql = "SELECT value FROM skirnir_meta WHERE name = "
                "'id_namespace'"},
    [SKR_SQL_NOW] = {.sql = "SELECT {now}"},
    // Where order does not count rows are read outside transactions, too.
    [SKR_SQL_OPEN_TRANSACTIONS] = {.sql = "{open_transactions}"},

    [SKR_SQL_DUE] = {.sql = DUE_IDS("{queue_is_unindexed}"), "qfudntl"},
    [SKR_SQL_DUE_BY_QUEUE] = {.sql = DUE_IDS("{queue_is}"), "qfudntl"},
    [SKR_SQL_FULL] = {.sql = IDS_BETWEEN("{queue_is}"), "qfutl"},
    [SKR_SQL_FULL_ON] = {.sql = IDS_BETWEEN("{queue_is_beyond}"), "qfutl"},
    [SKR_SQL_LATE] = {.sql = IDS_BETWEEN("{queue_is_beyond}"), "qfutl"},
    [SKR_SQL_LATE_FIRST] = {.sql = IDS_BETWEEN("{queue_is_beyond}"), "qfutl"},
    [SKR_SQL_FOREIGN] = {.sql = FOREIGN, "qful"},
    [SKR_SQL_LEASED] = {.sql = LEASED_IDS("{queue_is_unindexed}"), "qt"},
    [SKR_SQL_LEASED_BY_QUEUE] = {.sql = LEASED_IDS("{queue_is}"), "qt"},
    [SKR_SQL_EXPIRED] = {.sql = EXPIRED_IDS, "qtl"},
    // From the start of the queue, before which there may be much of others.
    [SKR_SQL_FIRST] = {.sql = NEW(COLUMNS, "{queue_is}"), "qftl"},
    [SKR_SQL_FIRST_TIMED] = {.sql = NEW(COLUMNS, "{queue_is_timed}"), "qftl"},
    [SKR_SQL_FIRST_IDS] = {.sql = NEW("id", "{queue_is}"), "qftl"},
    [SKR_SQL_FIRST_TIMED_IDS] = {.sql = NEW("id", "{queue_is_timed}"), "qftl"},
    [SKR_SQL_NEW] = {.sql = NEW(COLUMNS, "{queue_is_beyond}"), "qftl"},
    [SKR_SQL_CLAIM_NEW] = {.sql = CLAIM_NEW, "qftl"},
    [SKR_SQL_BY_ID] = {BY_ID, "", .is_list = true},
    [SKR_SQL_LOCK] = {.sql = LOCK(SKR_IN_LIST), "t", true, LOCK(SKR_IN_RANGE)},
    [SKR_SQL_TAIL] = {.sql = TAIL("{queue_is_unindexed}"), "fqd"},
    [SKR_SQL_TAIL_BY_QUEUE] = {.sql = TAIL("{queue_is}"), "fqd"},

    // Parameters: lease, ids.
    [SKR_SQL_MARK] = {.sql = MARK SKR_IN_LIST, NULL, true, MARK SKR_IN_RANGE},
    [SKR_SQL_UNMARK] = {"UPDATE {table}{by_primary_key} SET delivered_at = "
                        "NULL WHERE delivered_at = ? AND id IN ({ids})",
                        .is_list = true},
    // Parameters: new lease, lease, ids.
    [SKR_SQL_RENEW] = {"UPDATE {table}{by_primary_key} SET delivered_at = ? "
                       "WHERE delivered_at = ? AND id IN ({ids})",
                       .is_list = true},
    // Parameters: lease, ids.
    [SKR_SQL_FIND_LEASED] = {"SELECT id FROM {table}{by_primary_key} "
                             "WHERE delivered_at = ? AND id IN ({ids}) "
                             "ORDER BY id {lock_skip}",
                             .is_list = true},
    // Parameters: headers, id.
    [SKR_SQL_RAISE_COUNT] = {.sql =
                                 "UPDATE {table} SET headers = ? WHERE id = ?"},

    [SKR_SQL_IDENTIFY] = {SKR_IDENTITY_SQL, .is_list = true},
    [SKR_SQL_REMOVE] = {.sql = "{remove_ids}", NULL, true, "{remove_range}"},
    // Parameters: queue, ids.
    [SKR_SQL_KEEP_SENT] = {.sql = KEEP_SENT SKR_IN_LIST,
                           NULL,
                           true,
                           KEEP_SENT SKR_IN_RANGE},
    // A row that is done and stays, as Symfony marks it: no relay sends it
    // again, and cleaning removes it.
    [SKR_SQL_MARK_DONE] = {"UPDATE {table}{by_primary_key} "
                           "SET delivered_at = '9999-12-31 23:59:59' "
                           "WHERE id IN ({ids})",
                           .is_list = true},
    [SKR_SQL_RETRY] = {.sql = RETRY(WITH_HEADERS)},
    [SKR_SQL_RETRY_LEASED] = {.sql = RETRY(WITH_HEADERS) IF_LEASED},
    [SKR_SQL_RETRY_LEAST] = {.sql = RETRY("")},
    [SKR_SQL_RETRY_LEAST_LEASED] = {.sql = RETRY("") IF_LEASED},
    [SKR_SQL_BLOCK] = {.sql = BLOCK(WITH_HEADERS)},
    [SKR_SQL_BLOCK_LEAST] = {.sql = BLOCK("")},
    [SKR_SQL_COPY] = {.sql = COPY("?")},
    [SKR_SQL_COPY_LEASED] = {.sql = COPY("?") IF_LEASED},
    [SKR_SQL_COPY_MERGED] = {.sql = COPY("{merged_headers}")},
    [SKR_SQL_COPY_MERGED_LEASED] = {.sql = COPY("{merged_headers}") IF_LEASED},
    [SKR_SQL_COPY_AS_IS] = {.sql = COPY("headers")},
    [SKR_SQL_COPY_AS_IS_LEASED] = {.sql = COPY("headers") IF_LEASED},
    [SKR_SQL_REMOVE_FAILED] = {.sql = REMOVE_ONE},
    [SKR_SQL_REMOVE_FAILED_LEASED] = {.sql = REMOVE_ONE IF_LEASED},

    // Parameters: queue, number.
    [SKR_SQL_ADD_SHARD] = {"INSERT INTO " LEASES
                           " (queue_name, slot, owner, epoch, expires_at) "
                           "VALUES (?, ?, '', 0, {now})",
                           .is_of_shards = true},
    [SKR_SQL_HOLD_OWNER_LOCK] = {"SELECT CASE WHEN {hold_owner_lock} THEN 1 "
                                 "ELSE 0 END",
                                 .is_of_shards = true},
    // Parameter: queue. What a shard is: shards.c numbers these.
    [SKR_SQL_SEE_SHARDS] = {"SELECT slot, epoch, CASE WHEN " OURS
                            " THEN 1 WHEN " IS_FREE
                            " THEN 2 WHEN {of_other_kind} THEN 4 "
                            "WHEN " BY_LOCK " THEN 3 ELSE 0 "
                            "END, expires_at, {now} FROM " LEASES
                            " WHERE queue_name = ?",
                            .is_of_shards = true},
    // Of relays that take at once only one looks for owners of the other kind:
    // the row of the first member is what they meet at. Parameter: queue.
    [SKR_SQL_GUARD] = {"SELECT slot FROM " LEASES
                       "{by_primary_key} WHERE queue_name = ? "
                       "AND slot = {shard_count} {lock_skip}",
                       .is_of_shards = true},
    // Parameter: queue.
    [SKR_SQL_OTHER_KIND] = {"SELECT COUNT(*) FROM " LEASES
                            " WHERE queue_name = ? AND NOT " IS_FREE
                            " AND {of_other_kind}",
                            .is_of_shards = true},
    // Parameter: queue.
    [SKR_SQL_OWNED] = {"SELECT COUNT(*) FROM " LEASES
                       " WHERE queue_name = ? AND NOT " IS_FREE,
                       .is_of_shards = true},
    // A relay that was frozen while it settled has its rows locked until the
    // server ends its session. No other relay waits for those.
    // Parameters: queue, numbers.
    [SKR_SQL_FIND_FREE] = {"SELECT slot FROM " LEASES
                           "{by_primary_key} WHERE queue_name = ? "
                           "AND " IS_FREE " AND slot IN ({ids}) "
                           "ORDER BY slot {lock_skip}",
                           .is_list = true, .is_of_shards = true},
    // Parameters: owner, seconds, queue, numbers.
    [SKR_SQL_TAKE] = {"UPDATE " LEASES "{by_primary_key} SET owner = ?, "
                      "epoch = epoch + 1, expires_at = {now_plus} "
                      "WHERE queue_name = ? AND slot IN ({ids})",
                      .is_list = true, .is_of_shards = true},
    // Parameters: owner, seconds, queue, numbers.
    [SKR_SQL_RENEW_SHARDS] = {"UPDATE " LEASES "{by_primary_key} SET owner = "
                              "?, expires_at = {now_plus} " OF_SHARDS,
                              .is_list = true, .is_of_shards = true},
    // Parameters: queue, numbers.
    [SKR_SQL_GIVE] = {"UPDATE " LEASES "{by_primary_key} SET owner = '', "
                      "expires_at = {now} " OF_SHARDS,
                      .is_list = true, .is_of_shards = true},
    // Parameters: queue, numbers.
    [SKR_SQL_FENCE] = {"SELECT epoch FROM " LEASES "{by_primary_key} " OF_SHARDS
                       " {lock_rows}",
                       .is_list = true, .is_of_shards = true},
    // The nodes of a Galera cluster compare what transactions write when they
    // commit, and not what they lock. A value that stays as it is is not
    // written: the end of a lease moves to and fro by a second, and is never
    // too early. Parameters: seconds, one more, seconds, queue, numbers.
    [SKR_SQL_WRITE_FENCE] = {"UPDATE " LEASES "{by_primary_key} SET expires_at "
                             "= CASE WHEN expires_at = {now_plus} THEN "
                             "{now_plus} ELSE {now_plus} END " OF_SHARDS,
                             .is_list = true, .is_of_shards = true},

    // Parameters: body, headers, queue.
    [SKR_SQL_FAIL] =
        {.sql = "INSERT INTO {failed_table} "
                "(body, headers, queue_name, created_at, available_at) "
                "VALUES (?, ?, ?, {failed_now}, {failed_now})"},
    [SKR_SQL_LAST_ROW] = {.sql = "SELECT {last_row}"},
    // A row that Symfony is done with and has not deleted is not there any
    // more. Parameters: id, queue, the other queue.
    [SKR_SQL_HOLDS] = {.sql = "SELECT 1 FROM {table} WHERE id = ? "
                              "AND queue_name IN (?, ?) AND " UNFINISHED},
    // Parameter: queue.
    [SKR_SQL_ANY] = {.sql = "SELECT {now_milliseconds} FROM {table} "
                            "WHERE queue_name = ? LIMIT 1"},

    // Parameter: queue.
    [SKR_SQL_COUNT_PHP] = {.sql =
                               "SELECT COUNT(*) FROM {table} WHERE {queue_is} "
                               "AND " PHP},
    // Among the last rows of the table: one queue may be far behind the others.
    // Parameter: queue.
    [SKR_SQL_NEWEST] =
        {.sql = "SELECT {now}, created_at FROM (SELECT id, queue_name, "
                "created_at FROM {table} ORDER BY id DESC LIMIT 1000) "
                "AS newest WHERE {queue_is_unindexed} "
                "ORDER BY id DESC LIMIT 1"},
    [SKR_SQL_OLDEST_WRITER] = {.sql = "{oldest_writer}"},
    [SKR_SQL_COUNT_LEASED] =
        {.sql =
             "SELECT COUNT(*) FROM (SELECT id FROM {table} "
             "WHERE {queue_is_unindexed} AND " LEASED " LIMIT 1000) AS leased",
         "qt"},
    // Workers that claim do so from the first row on, or keep up with the last.
    [SKR_SQL_COUNT_NEAR] =
        {.sql = "SELECT COUNT(*) FROM ({union_open}SELECT id, "
                "queue_name, delivered_at FROM {table} "
                "ORDER BY id LIMIT 250{union_close} UNION "
                "{union_open}SELECT id, queue_name, delivered_at "
                "FROM {table} WHERE id <= ? "
                "ORDER BY id DESC LIMIT 250{union_close}) AS near "
                "WHERE {queue_is_unindexed} AND " LEASED,
         "uqt"},
};

static const struct template of_ordered[SKR_SQL_COUNT] = {
    [SKR_SQL_OPEN_TRANSACTIONS] = {.sql = "{open_transactions_inside}"},
    [SKR_SQL_DUE] = {.sql = ORDERED_DUE("{queue_is_unindexed}"), "qfudntl"},
    [SKR_SQL_DUE_BY_QUEUE] = {.sql = ORDERED_DUE("{queue_is}"), "qfudntl"},
    [SKR_SQL_FULL] = {.sql = ORDERED_FULL("{queue_is}"), "qfutl"},
    [SKR_SQL_FULL_ON] = {.sql = ORDERED_FULL("{queue_is_beyond}"), "qfutl"},
    [SKR_SQL_LATE] = {.sql = ORDERED_LATE("{queue_is_beyond}", ""), "qfutl"},
    [SKR_SQL_LATE_PASSING] = {.sql = ORDERED_LATE("{queue_is_beyond}", PASSING),
                              "qfutpl"},
    // From the start of the queue, before which there may be much of others.
    [SKR_SQL_LATE_FIRST] = {.sql = ORDERED_LATE("{queue_is}", ""), "qfutl"},
    [SKR_SQL_LATE_FIRST_PASSING] = {.sql = ORDERED_LATE("{queue_is}", PASSING),
                                    "qfutpl"},
    [SKR_SQL_FIRST] = {.sql = ORDERED_NEW("{queue_is}", ""), "tqfl"},
    [SKR_SQL_FIRST_TIMED] = {.sql = ORDERED_NEW("{queue_is}", ""), "tqfl"},
    [SKR_SQL_NEW] = {.sql = ORDERED_NEW("{queue_is_beyond}", ""), "tqfl"},
    [SKR_SQL_NEW_PASSING] = {.sql = ORDERED_NEW("{queue_is_beyond}", PASSING),
                             "tqfpl"},
    [SKR_SQL_BY_ID] = {ORDERED_BY_ID, "t", .is_list = true},
    [SKR_SQL_PARTITIONS] = {PARTITION, .is_repeated = true},
    [SKR_SQL_HEAD] = {.sql = "SELECT id" OF_PARTITION " ORDER BY id LIMIT 1"},

    [SKR_SQL_WHOLE_HEAD] =
        {.sql = "SELECT " COLUMNS ", 1, {partition_text}, "
                "available_at, CASE WHEN available_at = "
                "'9999-12-31 23:59:59' THEN 1 ELSE 0 END" OF_PARTITION
                " ORDER BY id LIMIT 1"},
    [SKR_SQL_MAKE_DUE] = {.sql = MAKE_DUE},
    // What waits for its own time goes on doing so.
    [SKR_SQL_TOUCH] = {.sql = MAKE_DUE " AND " DUE},
    [SKR_SQL_SIZE] = {.sql = "SELECT COUNT(*) FROM (SELECT 1 AS one " READ
                             ") AS bounded"},
    [SKR_SQL_LARGEST] = {.sql = "SELECT {partition_text}, COUNT(*) AS length, "
                                "COUNT(*) OVER () " OPEN
                                "GROUP BY partition_key, {partition_bytes} "
                                "ORDER BY length DESC LIMIT 1"},
    [SKR_SQL_OLDEST] = {.sql = OLDEST OPEN "ORDER BY id LIMIT 1"},
    // Which rows of a large queue are read is not defined, so its oldest head
    // is looked for by itself: from the first row on, as far as ids are near
    // it. Parameters: queue; then queue, that id, and the last one to look at.
    [SKR_SQL_FIRST_ROW] = {.sql = "SELECT id FROM {table} WHERE {queue_is} "
                                  "ORDER BY id LIMIT 1"},
    [SKR_SQL_FIRST_HEAD] = {.sql = OLDEST
                            "FROM {table} WHERE {queue_is_beyond} AND id >= ? "
                            "AND id <= ? AND partition_key <> '' "
                            "AND " UNFINISHED " ORDER BY id LIMIT 1"},
    // An index on times alone has those of one time in the order of ids. The
    // other has not: those that are blocked are sorted, lest the whole queue is
    // read in that order.
    [SKR_SQL_BLOCKED] =
        {.sql = BLOCKED_HEADS(
             "{queue_is_unindexed}") " AND id > ? ORDER BY id LIMIT ?"},
    [SKR_SQL_BLOCKED_BY_QUEUE] =
        {.sql = BLOCKED_HEADS("{queue_is}") " AND {no_index}id > ? "
                                            "ORDER BY {no_index}id LIMIT ?"},
    [SKR_SQL_BLOCKED_ROW] = {.sql = BLOCKED_HEADS(
                                 "{queue_is_unindexed}") " AND id = ?"},
    [SKR_SQL_LENGTH] = {.sql =
                            "SELECT COUNT(*) FROM (SELECT 1 AS one" OF_PARTITION
                            " LIMIT " BOUND ") AS bounded"},
};

_Static_assert(SKR_SHARDS == 60, "statements know it as {shard_count}");
_Static_assert(SKR_MARK_UNDECIDED == 4, "statements know it too");

// Without an order a shard is a block of ids, so that rows of one relay lie
// side by side. Ids below 1 give a remainder below 0 on some databases.
#define SHARD_OF_ID                                \
    "((id >> 8) % {shard_count} + {shard_count}) " \
    "% {shard_count}"
// An owner of blocks of ids, by its name.
#define OF_PLAIN                                        \
    "(owner LIKE '" SKR_MESSENGER_PLAIN_PREFIX "%' OR " \
    "owner LIKE '" SKR_MESSENGER_LOCK_PREFIX SKR_MESSENGER_PLAIN_PREFIX "%')"

// What a kind of queue has in place of some statements, and words of all.
static const struct kind {
    const struct template *own;
    const char *of_other_kind;  // whether an owner divides by the other kind
    const char *shard;
    const char *decided, *undecided_mark;
} kinds[SKR_QUEUE_KINDS] = {
    [SKR_QUEUE_PLAIN] = {of_all, "NOT " OF_PLAIN, SHARD_OF_ID, "", ""},
    [SKR_QUEUE_ORDERED] = {of_ordered, OF_PLAIN, "{shard_of_key}", "", ""},
    [SKR_QUEUE_BY_COMMITS] = {of_ordered, OF_PLAIN, "{shard_of_key}",
                              " AND {is_decided}",
                              " + CASE WHEN {is_decided} THEN 0 ELSE 4 END"},
};

struct filling {
    struct skr_messenger *messenger;
    const struct skr_zone *zone;
    const char *queue_hex;  // the queue's bytes, for {queue_is}
};

static const char *
fill(void *user, const char *sql_template, const char *ids, const char *id_rows)
{
    const struct filling *filling = user;
    struct skr_messenger *messenger = filling->messenger;
    const struct kind *kind = &kinds[messenger->kind];
    bool is_sharded = messenger->owner != NULL;
    enum { OWN_WORDS = 15 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", messenger->table.name},
        {"queue_hex", filling->queue_hex},
        {"failed_table",
         messenger->failed_table == NULL ? "" : messenger->failed_table},
        {"failed_now", messenger->failed_now},
        {"ids", ids},
        {"id_rows", id_rows},
        {"owner", is_sharded ? messenger->owner : ""},
        {"lock_owner", is_sharded ? messenger->lock_owner : ""},
        {"is_owner", "owner IN ('{owner}', '{lock_owner}')"},
        {"of_other_kind", kind->of_other_kind},
        {"shard", kind->shard},
        {"shard_count", "60"},
        {"ours", is_sharded ? " AND {is_in_share}" : ""},
        {"decided", kind->decided},
        {"undecided_mark", kind->undecided_mark},
    };
    size_t count = OWN_WORDS + skr_zone_words(filling->zone, words + OWN_WORDS);
    return skr_sql_fill(messenger->dialect, &messenger->table.arena,
                        sql_template, words, count);
}

const char *
skr_messenger_hex(struct skr_arena *arena, const char *queue)
{
    size_t size = strlen(queue);
    char *digits = skr_arena_take(arena, 2 * size + 1);
    if (digits != NULL)
        digits[0] = '\0';
    for (size_t i = 0; i < size && digits != NULL; i++)
        snprintf(digits + 2 * i, 3, "%02X", (unsigned char)queue[i]);
    return digits;
}

// For 1, 2, 4, 8, 16 and 32 of them.
static bool
fill_repeated(struct filling *filling, const char *sql_template,
              struct skr_list_sql *list)
{
    struct skr_text text = {0};
    bool ok = true;
    for (size_t i = 0, size = 1, filled = 0; ok && size <= SKR_MOST_PARTITIONS;
         i++, size *= 2) {
        for (; filled < size; filled++)
            skr_text_add_format(&text, "%s%s", filled == 0 ? "" : " UNION ALL ",
                                sql_template);
        if (!text.broken)
            list->sql[i] = fill(filling, text.bytes, "", "");
        ok = list->sql[i] != NULL;
    }
    skr_text_fini(&text);
    return ok;
}

static bool
fill_one(struct filling *filling, const struct template *template,
         struct skr_messenger_statement *statement)
{
    struct skr_messenger *messenger = filling->messenger;
    // Whatever zone the rows are in: a clock that jumps would end leases.
    static const struct skr_zone utc = {.is_utc = true};
    filling->zone = template->is_of_shards ? &utc : &messenger->zone;
    statement->binds = template->binds;
    if (template->is_repeated)
        return fill_repeated(filling, template->sql, &statement->list);
    if (template->is_list)
        return skr_list_fill(
            &(struct skr_list_filling){
                .dialect = messenger->dialect,
                .arena = &messenger->table.arena,
                .fill = fill,
                .layout = filling,
            },
            template->sql, template->range, &statement->list);
    statement->list.sql[0] = fill(filling, template->sql, "", "");
    return statement->list.sql[0] != NULL;
}

bool
skr_messenger_fill_all(struct skr_messenger *messenger)
{
    struct filling filling = {
        .messenger = messenger,
        .queue_hex =
            skr_messenger_hex(&messenger->table.arena, messenger->table.queue)};
    const struct template *own = kinds[messenger->kind].own;
    if (filling.queue_hex == NULL)
        return false;
    for (size_t i = 0; i < SKR_SQL_COUNT; i++) {
        const struct template *template =
            own[i].sql == NULL ? &of_all[i] : &own[i];
        bool is_needed = template->sql != NULL &&
                         (!template->is_of_shards || messenger->owner != NULL);
        if (is_needed && !fill_one(&filling, template, &messenger->sql[i]))
            return false;
    }
    return true;
}
