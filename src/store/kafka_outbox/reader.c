// SPDX-License-Identifier: MIT
// Finding the next rows: whole rows beyond the cursor in the order of their
// ids, and behind it those that committed late, were another's, or wait for
// what was. All of it in one snapshot, as with two a row could pass its
// predecessor.
//
// Rows that another relay has claimed and not finished, or that wait for their
// next try, hold back what follows them in their partition. Few
// rows are claimed, and they lie close together: where they begin and end is
// found now and then, and between these they are read each time.

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/vec.h"
#include "db/run.h"
#include "message/json.h"
#include "store/identity.h"
#include "store/kafka_outbox/layout.h"

#include <stdlib.h>
#include <string.h>

// What a row says: a record of Kafka, or the reason why it is none.

struct header_list {
    struct skr_arena *arena;
    struct skr_headers *headers;
};

// Text as it is, null as no value at all, anything else as its JSON.
static enum skr_code
add_header(void *user, const struct skr_json *member, struct skr_error *error)
{
    struct header_list *list = user;
    struct skr_headers *headers = list->headers;
    if (member->name == NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "they are JSON but not an object");
    enum skr_code code = skr_headers_take(list->arena, member, headers, error);
    if (code != SKR_OK || member->kind != SKR_JSON_NULL)
        return code;
    // A list of headers is given no NULL for a value, and can hold one.
    for (size_t i = 0; i < headers->count; i++)
        if (strcmp(headers->items[i].name, member->name) == 0)
            headers->items[i].value = NULL;
    return SKR_OK;
}

static enum skr_code
read_headers(struct skr_arena *arena, const struct skr_value *column,
             struct skr_headers *headers, struct skr_error *error)
{
    struct header_list list = {.arena = arena, .headers = headers};
    enum skr_json_kind kind = SKR_JSON_NULL;
    if (column->kind == SKR_NULL || column->size == 0)
        return SKR_OK;
    enum skr_code code = skr_headers_check_size(column->size, error);
    if (code == SKR_OK)
        code = skr_json_walk(&(struct skr_json_walker){.arena = arena,
                                                       .take = add_header,
                                                       .user = &list},
                             column->bytes, column->size, &kind, error);
    if (code == SKR_OK && kind != SKR_JSON_OBJECT && kind != SKR_JSON_NULL &&
        kind != SKR_JSON_ARRAY)
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "they are JSON but not an object");
    if (code == SKR_MALFORMED)
        skr_error_prefix(error, "error unmarshalling message headers for "
                                "publishing to Kafka");
    return code;
}

// "" is as good as none.
static enum skr_code
keep_text(struct skr_arena *arena, const struct skr_value *column,
          const char **text, struct skr_error *error)
{
    *text = NULL;
    if (column->kind == SKR_NULL || column->size == 0)
        return SKR_OK;
    *text = skr_arena_text(arena, column->bytes, column->size);
    return *text == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
read_place(struct skr_arena *arena, const struct skr_value *columns,
           struct skr_route *route, struct skr_error *error)
{
    enum skr_code code =
        keep_text(arena, &columns[KAFKA_OUTBOX_TOPIC], &route->topic, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[KAFKA_OUTBOX_KEY], &route->key, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[KAFKA_OUTBOX_PARTITION_KEY],
                         &route->partition_key, error);
    if (route->partition_key == NULL)
        route->partition_key = route->key;
    if (route->topic == NULL)
        route->topic = "";
    route->exchange = route->topic;
    route->routing_key = "";
    return code;
}

static bool
read_partition(const struct skr_value *columns, struct skr_hash *partition)
{
    const struct skr_value *topic = &columns[KAFKA_OUTBOX_TOPIC];
    const struct skr_value *key = &columns[KAFKA_OUTBOX_PARTITION_KEY];
    if (key->kind == SKR_NULL || key->size == 0)
        key = &columns[KAFKA_OUTBOX_KEY];
    if (key->kind == SKR_NULL || key->size == 0)
        return false;
    *partition = skr_hash_add(skr_hash_start(), topic->bytes, topic->size);
    *partition = skr_hash_add(*partition, "", 1);
    *partition = skr_hash_add(*partition, key->bytes, key->size);
    return true;
}

static size_t
size_of_row(const struct skr_value *columns)
{
    return columns[KAFKA_OUTBOX_PAYLOAD].size +
           columns[KAFKA_OUTBOX_HEADERS].size;
}

static enum skr_code
read_payload(const struct skr_kafka_outbox *outbox, struct skr_arena *arena,
             const struct skr_value *column, struct skr_message *message,
             struct skr_error *error)
{
    if (column->kind == SKR_NULL)
        return outbox->publishes_tombstones
                   ? SKR_OK
                   : skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                              "payload_json is NULL: as a record without a "
                              "value it would delete what Kafka has of its "
                              "key; --publish-tombstones publishes such rows");
    message->body = skr_arena_text(arena, column->bytes, column->size);
    message->body_size = column->size;
    return message->body == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
decode_row(const struct skr_kafka_outbox *outbox, struct skr_batch *batch,
           const struct skr_value *columns, struct skr_error *error)
{
    int64_t attempts = columns[KAFKA_OUTBOX_ATTEMPTS].integer;
    struct skr_arena *arena = &batch->arena;
    struct skr_batch_item *item = &batch->items[batch->count];
    struct skr_headers headers = {0};
    *item = (struct skr_batch_item){
        .row = columns[KAFKA_OUTBOX_ID].integer,
        .size = size_of_row(columns),
        .created_at =
            skr_identity_take(arena, &columns[KAFKA_OUTBOX_CREATED_AT]),
        .envelope.retry_count = attempts > 0 ? (uint32_t)attempts : 0,
    };
    if (item->created_at == NULL)
        return skr_fail_memory(error);
    struct skr_message *message = &item->envelope.message;
    enum skr_code code = read_place(arena, columns, &item->route, error);
    if (code != SKR_OK)
        return code;
    code = read_payload(outbox, arena, &columns[KAFKA_OUTBOX_PAYLOAD], message,
                        &item->reason);
    if (code == SKR_OK)
        code = read_headers(arena, &columns[KAFKA_OUTBOX_HEADERS], &headers,
                            &item->reason);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        item->state = SKR_DEAD;
    message->name = item->route.topic;
    message->content_type = "";
    message->headers = headers.items;
    message->header_count = headers.count;
    batch->count++;
    batch->bytes += item->size;
    return SKR_OK;
}

// Which rows are next.

enum {
    FULL_SCAN_MS = 10000,
    SCAN_PAUSE = 20,
    CLAIMS_MS = 1000,  // whether what is claimed still is
};

// A partition of which a row is claimed by another, or cannot be settled, as
// one snapshot shows it: later rows of the partition wait.
struct blocker {
    struct skr_hash partition;
    int64_t row;  // the first
};

struct blockers {
    struct blocker *items;  // in the order of partitions
    size_t count, capacity;
    int64_t rows;  // those without a key among them
};

struct reading {
    const struct skr_kafka_outbox *outbox;
    struct skr_tx tx;
    const struct skr_read *read;
    struct skr_batch *batch;
    struct kafka_outbox_cursor at;
    struct blockers foreign;    // by others
    struct blockers unsettled;  // by rows that cannot be settled
    int64_t now_ms;
    bool has_snapshot;  // of several statements
    bool skips_waiting;
    bool moves_cursor;
    bool is_full;
    size_t seen;     // rows of the last statement
    int64_t last;    // the last of them
    int64_t *found;  // room for max_rows
    size_t found_count;
    size_t max_rows;
};

// Finds out where such rows begin and end.
static enum skr_code
find_claims(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
            struct kafka_outbox_cursor *at, struct skr_error *error)
{
    struct skr_value columns[3];
    struct skr_row row = {.columns = columns, .count = SKR_COUNT_OF(columns)};
    enum skr_code code =
        skr_sql_row(tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_CLAIM_BOUNDS),
                    skr_values("%jd", outbox->lease_s), &row, error);
    if (code != SKR_OK)
        return code;
    at->claimed_from = columns[0].integer;
    at->claimed_to = columns[1].integer;
    at->claimed_count = columns[2].integer;
    return SKR_OK;
}

static enum skr_code
add_blocker(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    struct blockers *blockers = user;
    struct skr_value all[KAFKA_OUTBOX_COLUMN_COUNT] = {{0}};
    struct blocker blocker = {.row = columns[0].integer};
    (void)count;
    all[KAFKA_OUTBOX_TOPIC] = columns[1];
    all[KAFKA_OUTBOX_KEY] = columns[2];
    all[KAFKA_OUTBOX_PARTITION_KEY] = columns[3];
    blockers->rows++;
    if (!read_partition(all, &blocker.partition))
        return SKR_OK;
    if (!skr_vec_insert(&blockers->items, &blockers->count, &blockers->capacity,
                        blockers->count, &blocker, sizeof(blocker)))
        return skr_fail_memory(error);
    return SKR_OK;
}

static int
compare_partitions(const struct skr_hash *a, const struct skr_hash *b)
{
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    return (a->low > b->low) - (a->low < b->low);
}

static int
compare_blockers(const void *left, const void *right)
{
    const struct blocker *a = left, *b = right;
    int order = compare_partitions(&a->partition, &b->partition);
    return order != 0 ? order : (a->row > b->row) - (a->row < b->row);
}

// Of each partition the first row holds back what the others do.
static void
keep_first_of_partitions(struct blockers *blockers)
{
    size_t kept = 0;
    if (blockers->count > 0)
        qsort(blockers->items, blockers->count, sizeof(blockers->items[0]),
              compare_blockers);
    for (size_t i = 0; i < blockers->count; i++)
        if (kept == 0 ||
            compare_partitions(&blockers->items[kept - 1].partition,
                               &blockers->items[i].partition) != 0)
            blockers->items[kept++] = blockers->items[i];
    blockers->count = kept;
}

// Reads those that were there, as far as they still are.
static enum skr_code
read_claims(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
            const struct kafka_outbox_cursor *at, struct blockers *blockers,
            struct skr_error *error)
{
    if (at->claimed_count == 0)
        return SKR_OK;
    enum skr_code code = skr_sql_each(
        tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_CLAIMED_ROWS),
        skr_values("%jd %jd %jd", at->claimed_from, at->claimed_to,
                   outbox->lease_s),
        add_blocker, blockers, error);
    keep_first_of_partitions(blockers);
    return code;
}

// Reads those of these rows that are not finished, by their ids.
static enum skr_code
read_unsettled(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
               const int64_t *rows, size_t count, struct blockers *blockers,
               struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = &outbox->sql[KAFKA_OUTBOX_PLACES],
        .rows = rows,
        .count = count,
        .each_row = add_blocker,
        .user = blockers,
    };
    enum skr_code code = skr_list_run(tx, &run, error);
    keep_first_of_partitions(blockers);
    return code;
}

static int
compare_with_partition(const void *key, const void *item)
{
    const struct blocker *blocker = item;
    return compare_partitions(key, &blocker->partition);
}

static bool
is_held_back(const struct blockers *blockers, const struct skr_value *columns)
{
    struct skr_hash partition;
    if (blockers->count == 0 || !read_partition(columns, &partition))
        return false;
    const struct blocker *blocker =
        bsearch(&partition, blockers->items, blockers->count,
                sizeof(blockers->items[0]), compare_with_partition);
    return blocker != NULL && blocker->row < columns[KAFKA_OUTBOX_ID].integer;
}

static bool
is_passed_over(const struct reading *reading, const struct skr_value *columns)
{
    const struct skr_read *read = reading->read;
    int64_t row = columns[KAFKA_OUTBOX_ID].integer;
    return skr_is_among_rows(row, read->in_flight, read->in_flight_count) ||
           skr_is_among_rows(row, read->parked, read->parked_count) ||
           (reading->skips_waiting &&
            skr_is_among_rows(row, read->waiting, read->waiting_count)) ||
           is_held_back(&reading->foreign, columns) ||
           is_held_back(&reading->unsettled, columns);
}

static enum skr_code
stop_full(struct reading *reading, struct skr_error *error)
{
    reading->is_full = true;
    return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "full");
}

static enum skr_code
take_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct reading *reading = user;
    struct skr_batch *batch = reading->batch;
    (void)count;
    reading->seen++;
    reading->last = columns[KAFKA_OUTBOX_ID].integer;
    if (is_passed_over(reading, columns)) {
        if (reading->moves_cursor)
            skr_low_watermark_move(&reading->at.mark, reading->last);
        return SKR_OK;
    }
    if (batch->count == reading->max_rows ||
        (batch->count > 0 &&
         batch->bytes + size_of_row(columns) > reading->read->max_bytes))
        return stop_full(reading, error);
    enum skr_code code = decode_row(reading->outbox, batch, columns, error);
    if (code == SKR_OK && reading->moves_cursor)
        skr_low_watermark_move(&reading->at.mark, reading->last);
    return code;
}

static enum skr_code
note_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct reading *reading = user;
    (void)count;
    if (!is_passed_over(reading, columns)) {
        if (reading->batch->count + reading->found_count == reading->max_rows)
            return stop_full(reading, error);
        reading->found[reading->found_count++] =
            columns[KAFKA_OUTBOX_ID].integer;
    }
    reading->seen++;
    reading->last = columns[KAFKA_OUTBOX_ID].integer;
    return SKR_OK;
}

static enum skr_code
run(struct reading *reading, const char *sql, struct skr_values values,
    skr_row_fn *each_row, struct skr_error *error)
{
    reading->seen = 0;
    enum skr_code code =
        skr_sql_each(reading->tx, sql, values, each_row, reading, error);
    return code == SKR_STOPPED && reading->is_full ? SKR_OK : code;
}

static enum skr_code
fetch_found(struct reading *reading, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = &reading->outbox->sql[KAFKA_OUTBOX_BY_ID],
        .rows = reading->found,
        .count = reading->found_count,
        .each_row = take_row,
        .user = reading,
    };
    return skr_list_run(reading->tx, &run, error);
}

// Takes what there is behind *from up to a row; *from moves on to where nothing
// was left.
static enum skr_code
find_between(struct reading *reading, int64_t *from, int64_t to,
             struct skr_error *error)
{
    size_t limit = reading->max_rows + reading->read->in_flight_count +
                   reading->read->parked_count + reading->read->waiting_count;
    enum skr_code code = SKR_OK;
    do {
        reading->found_count = 0;
        reading->last = *from;
        code = run(reading,
                   skr_kafka_outbox_sql(reading->outbox, KAFKA_OUTBOX_BEHIND),
                   skr_values("%jd %jd %jd %jd", *from, to,
                              reading->outbox->lease_s, (int64_t)limit),
                   note_row, error);
        bool saw_all = reading->seen < limit && !reading->is_full;
        int64_t last = reading->last;
        if (code == SKR_OK && reading->found_count > 0)
            code = fetch_found(reading, error);
        // Too many bytes: those that were found and not taken come again.
        if (code == SKR_STOPPED && reading->is_full)
            return SKR_OK;
        if (code != SKR_OK || saw_all)
            return code;
        *from = last;
    } while (!reading->is_full);
    return SKR_OK;
}

// A full scan of everything behind the cursor begins when its time has come,
// and when a row that was another's has become free or is finished: those that
// waited for it come before any that are beyond the cursor.
static enum skr_code
begin_scan(struct reading *reading, bool *scans, struct skr_error *error)
{
    struct kafka_outbox_cursor *at = &reading->at;
    enum skr_code code =
        read_claims(reading->outbox, reading->tx, at, &reading->foreign, error);
    bool has_changed = reading->foreign.rows != at->claimed_count;
    *scans = has_changed || at->next_full_scan_ms <= reading->now_ms;
    if (code != SKR_OK || !*scans || (!has_changed && at->scan_cursor != 0))
        return code;
    at->scan_cursor = INT64_MIN;
    at->next_full_scan_ms = reading->now_ms;
    code = find_claims(reading->outbox, reading->tx, at, error);
    reading->foreign.count = 0;
    reading->foreign.rows = 0;
    if (code == SKR_OK)
        code = read_claims(reading->outbox, reading->tx, at, &reading->foreign,
                           error);
    return code;
}

// In as many reads as it takes.
static enum skr_code
full_scan(struct reading *reading, struct skr_error *error)
{
    struct kafka_outbox_cursor *at = &reading->at;
    enum skr_code code =
        find_between(reading, &at->scan_cursor, at->mark.cursor, error);
    if (code != SKR_OK || reading->is_full)
        return code;
    at->scan_cursor = 0;
    int64_t took_ms = skr_clock_ms() - reading->now_ms;
    at->next_full_scan_ms =
        reading->now_ms + FULL_SCAN_MS + SCAN_PAUSE * took_ms;
    return SKR_OK;
}

// Rows that committed after the cursor, or a scan, had passed their ids. Each
// time, as nothing may pass what has just appeared.
static enum skr_code
read_late(struct reading *reading, int64_t to, struct skr_error *error)
{
    int64_t from = reading->at.mark.low;
    if (to > reading->at.mark.contiguous_from)
        to = reading->at.mark.contiguous_from;
    if (from >= to)
        return SKR_OK;
    reading->skips_waiting = true;
    enum skr_code code = find_between(reading, &from, to, error);
    reading->skips_waiting = false;
    return code;
}

// What is left behind the cursor, in the order of ids.
static enum skr_code
read_behind(struct reading *reading, struct skr_error *error)
{
    struct kafka_outbox_cursor *at = &reading->at;
    bool may_be_late = skr_low_watermark_may_be_late(&at->mark);
    bool scans = false;
    enum skr_code code = begin_scan(reading, &scans, error);
    if (code == SKR_OK && may_be_late)
        code = read_late(reading, scans ? at->scan_cursor : at->mark.cursor,
                         error);
    if (code == SKR_OK && scans && !reading->is_full)
        code = full_scan(reading, error);
    if (code != SKR_OK || reading->is_full || !may_be_late)
        return code;
    return skr_low_watermark_follow(&at->mark, reading->tx, reading->now_ms,
                                    error);
}

static enum skr_code
read_beyond(struct reading *reading, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t limit;
    reading->moves_cursor = true;
    do {
        limit = reading->max_rows - reading->batch->count;
        if (reading->is_full || limit == 0) {
            reading->is_full = true;
            break;
        }
        code = run(reading,
                   skr_kafka_outbox_sql(reading->outbox, KAFKA_OUTBOX_BEYOND),
                   skr_values("%jd %jd %jd", reading->at.mark.cursor,
                              reading->outbox->lease_s, (int64_t)limit),
                   take_row, error);
        if (!reading->has_snapshot && reading->seen == limit)
            reading->is_full = true;
    } while (code == SKR_OK && reading->has_snapshot && reading->seen == limit);
    reading->moves_cursor = false;
    return code;
}

static enum skr_code
read_one(struct reading *reading, struct skr_error *error)
{
    enum skr_code code = read_claims(reading->outbox, reading->tx, &reading->at,
                                     &reading->foreign, error);
    if (code != SKR_OK)
        return code;
    return run(
        reading, skr_kafka_outbox_sql(reading->outbox, KAFKA_OUTBOX_ONLY),
        skr_values("%jd %jd", *reading->read->only, reading->outbox->lease_s),
        take_row, error);
}

static enum skr_code
fill_batch(struct reading *reading, struct skr_error *error)
{
    struct kafka_outbox_cursor *at = &reading->at;
    int64_t cursor = at->mark.cursor;
    enum skr_code code = read_behind(reading, error);
    bool found_some = reading->batch->count > 0;
    if (code == SKR_OK)
        code = read_beyond(reading, error);
    if (code != SKR_OK)
        return code;
    if (found_some && !reading->is_full && at->mark.cursor == cursor &&
        at->claimed_count == 0 && at->mark.low == cursor)
        // The table may have been emptied, and its ids begin anew. Where it was
        // something else this does no harm.
        skr_low_watermark_restart(&at->mark, INT64_MIN);
    skr_low_watermark_settle(&at->mark);
    at->next_claims_ms = reading->now_ms + CLAIMS_MS;
    at->has_more = reading->is_full;
    return SKR_OK;
}

static enum skr_code
open_reader(const struct skr_store *table, struct skr_db *db, bool derives_ids,
            struct skr_reader **reader, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    (void)derives_ids;
    struct kafka_outbox_reader *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->base = (struct skr_reader){.store = table, .db = db};
    struct kafka_outbox_cursor *at = &made->at;
    skr_low_watermark_start(
        &at->mark, db,
        skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_OPEN_TRANSACTIONS), true);
    skr_low_watermark_restart(&at->mark, INT64_MIN);
    at->next_full_scan_ms = skr_clock_ms() + FULL_SCAN_MS;
    enum skr_code code = find_claims(outbox, skr_db_tx(db), at, error);
    if (code == SKR_OK)
        *reader = &made->base;
    else
        free(made);
    return code;
}

static struct skr_reader_status
status_of(const struct skr_reader *reader)
{
    const struct kafka_outbox_cursor *at =
        &((const struct kafka_outbox_reader *)reader)->at;
    int64_t wake_ms = at->next_full_scan_ms;
    if (at->claimed_from != 0)
        wake_ms = skr_clock_earlier(wake_ms, at->next_claims_ms);
    return (struct skr_reader_status){
        .cursor = at->mark.cursor,
        .low_watermark = at->mark.low,
        .has_more = at->has_more,
        .wake_ms = wake_ms,
        .next_full_scan_ms = at->next_full_scan_ms,
        .is_scanning = at->scan_cursor != 0,
        .hides_open = at->mark.hides_open,
        .is_cluster = at->mark.is_cluster,
    };
}

static void
plan_scan(struct skr_reader *reader, int64_t at_ms)
{
    ((struct kafka_outbox_reader *)reader)->at.next_full_scan_ms = at_ms;
}

// One statement is a snapshot by itself. More than one are needed for what lies
// behind the cursor, and where some rows hold back others.
static bool
needs_snapshot(const struct reading *reading)
{
    const struct kafka_outbox_cursor *at = &reading->at;
    return reading->read->only != NULL || reading->read->unsettled_count > 0 ||
           at->claimed_count > 0 || at->next_full_scan_ms <= reading->now_ms ||
           (at->mark.sql[0] != '\0' && at->mark.low < at->mark.contiguous_from);
}

static enum skr_code
read_next(struct skr_reader *reader, const struct skr_read *read,
          struct skr_batch *batch, struct skr_error *error)
{
    struct skr_db *db = reader->db;
    struct kafka_outbox_cursor *at =
        &((struct kafka_outbox_reader *)reader)->at;
    struct reading reading = {
        .outbox = skr_kafka_outbox_of(reader->store),
        .tx = skr_db_tx(db),
        .read = read,
        .batch = batch,
        .at = *at,
        .now_ms = skr_clock_ms(),
        .max_rows =
            read->max_rows < batch->capacity ? read->max_rows : batch->capacity,
    };
    enum skr_code code =
        db->ops->follow(db, reading.outbox->table.name, "", error);
    if (code != SKR_OK)
        return code;
    reading.found = calloc(reading.max_rows, sizeof(*reading.found));
    if (reading.found == NULL)
        return skr_fail_memory(error);
    reading.has_snapshot = needs_snapshot(&reading);
    if (reading.has_snapshot)
        code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code == SKR_OK && read->unsettled_count > 0)
        code = read_unsettled(reading.outbox, reading.tx, read->unsettled,
                              read->unsettled_count, &reading.unsettled, error);
    if (code == SKR_OK)
        code = read->only != NULL ? read_one(&reading, error)
                                  : fill_batch(&reading, error);
    if (reading.has_snapshot)
        skr_db_rollback(db);
    free(reading.found);
    free(reading.foreign.items);
    free(reading.unsettled.items);
    if (code != SKR_OK) {
        skr_batch_clear(batch);
        return code;
    }
    *at = reading.at;
    if (batch->count > 0)
        db->found_rows = true;
    return SKR_OK;
}

const struct skr_source_ops skr_kafka_outbox_source = {
    .keeps_keys = true,
    .open = open_reader,
    .read = read_next,
    .status = status_of,
    .plan_scan = plan_scan,
};
