// SPDX-License-Identifier: MIT
// Finding the next rows: beyond the cursor in the order of their ids, and
// behind it what committed late, or was another's. All of it in one snapshot,
// as with two a row could pass its predecessor.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"
#include "table/kafka_outbox/layout.h"

#include <stdlib.h>
#include <string.h>

// A transaction that is open for longer than this may have its rows found, and
// published, up to a sweep later.
enum { LATE_MS = 60000, LATE_LOOK_MS = 5, MARK_MS = 1000, SWEEP_MS = 10000 };

// A word behind a dot is a name, although `key` is reserved elsewhere.
#define COLUMNS                                                 \
    "o.id, o.topic, o.payload_json, o.payload_headers, o.key, " \
    "o.partition_key, o.push_attempts"
#define UNFINISHED "o.push_completed_at IS NULL AND o.errored = 0"
// Parameter: seconds.
#define FREE                                               \
    "(o.batch_id IS NULL OR o.push_started_at IS NULL OR " \
    "o.push_started_at <= {now_minus})"

// Parameters: cursor, lease, limit.
static const char beyond_sql[] =
    "SELECT " COLUMNS " FROM {table} o WHERE o.id > ? AND " UNFINISHED
    " AND " FREE " ORDER BY o.id LIMIT ?";
// Parameters: from, cursor, lease, limit.
static const char behind_sql[] =
    "SELECT " COLUMNS " FROM {table} o WHERE o.id > ? AND o.id <= ? "
    "AND " UNFINISHED " AND " FREE " ORDER BY o.id LIMIT ?";
// Parameters: id, lease.
static const char only_sql[] =
    "SELECT " COLUMNS " FROM {table} o WHERE o.id = ? AND " UNFINISHED
    " AND " FREE;

enum column {
    COLUMN_ID,
    COLUMN_TOPIC,
    COLUMN_PAYLOAD,
    COLUMN_HEADERS,
    COLUMN_KEY,
    COLUMN_PARTITION_KEY,
    COLUMN_ATTEMPTS,
};

struct reading {
    const struct skr_kafka_outbox *outbox;
    struct skr_tx tx;
    const struct skr_read *read;
    struct skr_batch *batch;
    struct skr_position *position;
    bool skips_waiting;
    bool moves_cursor;
    bool is_full;
    size_t seen;
};

bool
skr_kafka_outbox_fill_read(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill(outbox, beyond_sql, &outbox->sql.beyond) &&
           skr_kafka_outbox_fill(outbox, behind_sql, &outbox->sql.behind) &&
           skr_kafka_outbox_fill(outbox, only_sql, &outbox->sql.only);
}

static int
compare_rows(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static bool
is_among(int64_t row, const int64_t *rows, size_t count)
{
    return count > 0 &&
           bsearch(&row, rows, count, sizeof(row), compare_rows) != NULL;
}

static bool
has_zero(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

// Text as it is, null as no value at all, anything else as its JSON.
static enum skr_code
add_header(struct skr_arena *arena, const struct skr_json *member,
           struct skr_headers *headers, struct skr_error *error)
{
    const char *value = NULL;
    if (has_zero(member->name, member->name_size) ||
        (member->kind == SKR_JSON_TEXT &&
         has_zero(member->text, member->text_size)))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "header '%.80s' holds a zero byte", member->name);
    if (headers->count == SKR_MAX_HEADERS)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "there are more than %d headers", SKR_MAX_HEADERS);
    if (member->kind == SKR_JSON_TEXT) {
        value = member->text;
    } else if (member->kind != SKR_JSON_NULL) {
        struct skr_json_writer writer = {.needs_comma = false};
        skr_json_write(&writer, member);
        value = skr_json_take_text(&writer, arena);
        if (value == NULL)
            return skr_fail_memory(error);
    }
    // A list of headers takes no NULL for a value, and can hold one.
    if (!skr_headers_set(arena, headers, member->name,
                         value == NULL ? "" : value))
        return skr_fail_memory(error);
    for (size_t i = 0; value == NULL && i < headers->count; i++)
        if (strcmp(headers->items[i].name, member->name) == 0)
            headers->items[i].value = NULL;
    return SKR_OK;
}

static enum skr_code
read_headers(struct skr_arena *arena, const struct skr_value *column,
             struct skr_headers *headers, struct skr_error *error)
{
    struct skr_json *root = NULL;
    if (column->kind == SKR_NULL || column->size == 0)
        return SKR_OK;
    enum skr_code code =
        skr_json_parse(arena, column->bytes, column->size, 0, &root, error);
    if (code == SKR_OK && root->kind != SKR_JSON_OBJECT &&
        root->kind != SKR_JSON_NULL &&
        !(root->kind == SKR_JSON_ARRAY && root->first == NULL))
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "they are JSON but not an object");
    if (code == SKR_OK && root->kind == SKR_JSON_OBJECT)
        for (const struct skr_json *member = root->first;
             member != NULL && code == SKR_OK; member = member->next)
            code = add_header(arena, member, headers, error);
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
        keep_text(arena, &columns[COLUMN_TOPIC], &route->topic, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[COLUMN_KEY], &route->key, error);
    if (code == SKR_OK)
        code = keep_text(arena, &columns[COLUMN_PARTITION_KEY],
                         &route->partition_key, error);
    if (route->partition_key == NULL)
        route->partition_key = route->key;
    if (route->topic == NULL)
        route->topic = "";
    route->exchange = route->topic;
    route->routing_key = "";
    return code;
}

static enum skr_code
take_row(struct skr_batch *batch, const struct skr_value *columns,
         struct skr_error *error)
{
    const struct skr_value *payload = &columns[COLUMN_PAYLOAD];
    struct skr_arena *arena = &batch->arena;
    struct skr_batch_item *item = &batch->items[batch->count];
    struct skr_headers headers = {0};
    *item = (struct skr_batch_item){
        .row = columns[COLUMN_ID].integer,
        .size = payload->size + columns[COLUMN_HEADERS].size,
        .envelope.retry_count = columns[COLUMN_ATTEMPTS].integer > 0
                                    ? (uint32_t)columns[COLUMN_ATTEMPTS].integer
                                    : 0,
    };
    struct skr_message *message = &item->envelope.message;
    enum skr_code code = read_place(arena, columns, &item->route, error);
    if (code == SKR_OK && payload->kind != SKR_NULL) {
        message->body = skr_arena_text(arena, payload->bytes, payload->size);
        message->body_size = payload->size;
        if (message->body == NULL)
            code = skr_fail_memory(error);
    }
    if (code != SKR_OK)
        return code;
    code =
        read_headers(arena, &columns[COLUMN_HEADERS], &headers, &item->reason);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        item->state = SKR_HOPELESS;
    message->name = item->route.topic;
    message->content_type = "";
    message->headers = headers.items;
    message->header_count = headers.count;
    batch->count++;
    batch->bytes += item->size;
    return SKR_OK;
}

static enum skr_code
each_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct reading *reading = user;
    struct skr_batch *batch = reading->batch;
    const struct skr_read *read = reading->read;
    int64_t row = columns[COLUMN_ID].integer;
    (void)count;
    reading->seen++;
    if (is_among(row, read->in_hand, read->in_hand_count) ||
        (reading->skips_waiting &&
         is_among(row, read->waiting, read->waiting_count)))
        return SKR_OK;
    size_t size = columns[COLUMN_PAYLOAD].size + columns[COLUMN_HEADERS].size;
    if (batch->count == batch->capacity || batch->count >= read->max_rows ||
        (batch->count > 0 && batch->bytes + size > read->max_bytes)) {
        reading->is_full = true;
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "full");
    }
    enum skr_code code = take_row(batch, columns, error);
    if (code == SKR_OK && reading->moves_cursor)
        reading->position->cursor = row;
    return code;
}

static enum skr_code
run(struct reading *reading, const char *sql, const struct skr_value *values,
    size_t count, struct skr_error *error)
{
    reading->seen = 0;
    enum skr_code code = skr_tx_run(reading->tx,
                                    &(struct skr_statement){
                                        .sql = sql,
                                        .values = values,
                                        .value_count = count,
                                        .each_row = each_row,
                                        .user = reading,
                                    },
                                    error);
    return code == SKR_STOPPED && reading->is_full ? SKR_OK : code;
}

// Where the cursor stood a while ago: nothing is expected behind it.
static void
move_low_water(struct skr_position *position, int64_t now_ms)
{
    struct skr_horizon_mark *marks = position->marks;
    size_t count = position->mark_count;
    if (count > 0 && now_ms - marks[0].at_ms > LATE_MS) {
        position->low_water = marks[0].cursor;
        memmove(marks, marks + 1, (count - 1) * sizeof(*marks));
        position->mark_count = --count;
    }
    if (count < SKR_HORIZON_MARKS &&
        (count == 0 ||
         now_ms - marks[count - 1].at_ms > LATE_MS / (SKR_HORIZON_MARKS - 1)))
        marks[position->mark_count++] = (struct skr_horizon_mark){
            .cursor = position->cursor, .at_ms = now_ms};
}

static enum skr_code
look_behind(struct reading *reading, struct skr_error *error)
{
    struct skr_position *position = reading->position;
    int64_t now_ms = skr_clock_ms();
    bool sweeps = now_ms >= position->next_sweep_ms;
    if (!sweeps &&
        (!reading->outbox->commits_late || now_ms < position->next_late_ms))
        return SKR_OK;
    const struct skr_read *read = reading->read;
    size_t limit = read->max_rows + read->in_hand_count + read->waiting_count;
    const struct skr_value values[] = {
        skr_bind_integer(sweeps ? INT64_MIN : position->low_water),
        skr_bind_integer(position->cursor),
        skr_bind_integer(reading->outbox->lease_s),
        skr_bind_integer((int64_t)limit),
    };
    reading->skips_waiting = !sweeps;
    enum skr_code code = run(reading, reading->outbox->sql.behind, values,
                             SKR_COUNT_OF(values), error);
    reading->skips_waiting = false;
    if (code != SKR_OK || reading->is_full || reading->seen == limit)
        return code;
    // Where much lies behind the cursor, a look takes its time.
    int64_t took_ms = skr_clock_ms() - now_ms;
    position->next_late_ms = now_ms + LATE_LOOK_MS + 10 * took_ms;
    if (sweeps)
        position->next_sweep_ms = now_ms + SWEEP_MS + 20 * took_ms;
    move_low_water(position, now_ms);
    return SKR_OK;
}

static enum skr_code
look_beyond(struct reading *reading, struct skr_error *error)
{
    struct skr_position *position = reading->position;
    if (reading->is_full || reading->batch->count >= reading->read->max_rows)
        return SKR_OK;
    size_t limit = reading->read->max_rows - reading->batch->count;
    const struct skr_value values[] = {
        skr_bind_integer(position->cursor),
        skr_bind_integer(reading->outbox->lease_s),
        skr_bind_integer((int64_t)limit),
    };
    reading->moves_cursor = true;
    enum skr_code code = run(reading, reading->outbox->sql.beyond, values,
                             SKR_COUNT_OF(values), error);
    if (reading->seen == limit)
        reading->is_full = true;
    return code;
}

static enum skr_code
look_for_one(struct reading *reading, struct skr_error *error)
{
    const struct skr_value values[] = {
        skr_bind_integer(*reading->read->only),
        skr_bind_integer(reading->outbox->lease_s),
    };
    return run(reading, reading->outbox->sql.only, values, SKR_COUNT_OF(values),
               error);
}

enum skr_code
skr_kafka_outbox_start(const struct skr_table *table, struct skr_db *db,
                       struct skr_position *position, struct skr_error *error)
{
    (void)table;
    (void)db;
    (void)error;
    *position = (struct skr_position){
        .cursor = INT64_MIN,
        .low_water = INT64_MIN,
        .next_sweep_ms = skr_clock_ms() + SWEEP_MS,
    };
    return SKR_OK;
}

enum skr_code
skr_kafka_outbox_read(const struct skr_table *table, struct skr_db *db,
                      struct skr_position *position,
                      const struct skr_read *read, struct skr_batch *batch,
                      struct skr_error *error)
{
    struct reading reading = {
        .outbox = skr_kafka_outbox_of(table),
        .tx = skr_db_tx(db),
        .read = read,
        .batch = batch,
        .position = position,
    };
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    struct skr_position before = *position;
    if (read->only != NULL) {
        code = look_for_one(&reading, error);
    } else {
        code = look_behind(&reading, error);
        if (code == SKR_OK)
            code = look_beyond(&reading, error);
        position->has_more = reading.is_full;
    }
    skr_db_rollback(db);
    if (code != SKR_OK)
        *position = before;
    if (batch->count > 0)
        db->found_rows = true;
    return code;
}
