// SPDX-License-Identifier: MIT
// Finding the next rows: whole rows beyond the cursor, and ids behind it of
// those whose time has come. All of it in one snapshot, as with two a row could
// pass its predecessor. A full look is a walk through the table of probes; a
// fast read is one statement, where little is to be read.
//
// Rows that wait are looked at once, when the cursor passes them; after that
// only their time is, and their bodies are not read before they are due.
//
// On a database with several writers at once a row may commit below the cursor
// after it has moved on: the part from the low watermark to the cursor is
// looked at as well (low_watermark.h).
//
// Readers that share a queue pass over rows that others have. Such rows may
// come back, when their owner gives them back or dies: from the first of them
// to the cursor everything is looked at again every now and then.
//
// In the order of commits a row with a key is undecided while a transaction is
// open that began to write before its own: ids are given at the insert, so that
// of two transactions the one that commits last may have the smaller ids. A
// reader stops in front of the first undecided row. Rows are sent by their ids
// all the same, and not by the numbers of their transactions: where writers of
// a key wait for each other, ids follow that, and a transaction that has
// written something else before is not older for it.

#include "store/messenger/scan.h"

#include "base/clock.h"
#include "base/text.h"
#include "db/run.h"

#include <stdlib.h>
#include <string.h>

enum {
    // While batches are full the rows that wait are not needed; a look at them
    // now and then is enough.
    LOOK_AGAIN_MS = 1000,
    // A look for rows that committed late is worth a statement so often, less
    // while there is enough to send.
    LATE_LOOK_MS = 5,
    BUSY_LATE_LOOK_MS = 100,
    // Foreign claims are looked at again so often, and less often the longer
    // that takes: a look is followed by a pause so many times as long.
    FOREIGN_LOOK_MS = 500,
    FOREIGN_PAUSE = 20,
    LONGEST_FOREIGN_PAUSE_MS = 60000,
    // A few rows tell whether one is still undecided. A look is followed by a
    // pause of a part of the time that it has waited so far.
    FEW_ROWS = 8,
    LEAST_UNDECIDED_PAUSE_MS = 5,
    LONGEST_UNDECIDED_PAUSE_MS = 500,
    UNDECIDED_PAUSE_PART = 4,
    // Fast reads: rows that are read again and passed over, the same in bytes,
    // how often to ask what else there is, and how soon after a row the next
    // one is expected.
    MOST_PASSED_OVER = 64,
    MOST_BYTES_PASSED_OVER = 256 * 1024,
    TAIL_MS = 100,
    STEADY_MS = 50,
};

static const struct access accesses[] = {
    [SKR_LOOK_READ] = {.first = SKR_SQL_FIRST,
                       SKR_SQL_FIRST_TIMED,
                       SKR_SQL_NEW,
                       SKR_SQL_BY_ID},
    [SKR_LOOK_PEEK] = {SKR_SQL_FIRST, SKR_SQL_FIRST_TIMED, SKR_SQL_NEW,
                       SKR_SQL_BY_ID, .minds_foreign = true},
    [SKR_LOOK_CLAIM] = {SKR_SQL_FIRST_IDS, SKR_SQL_FIRST_TIMED_IDS,
                        SKR_SQL_CLAIM_NEW, SKR_SQL_LOCK, .locks = true,
                        .minds_foreign = true},
};

// --------------------------------------------------------------------- probes

// How many rows of those that a statement finds may be none to be given.
static size_t
count_known(const struct skr_read *read)
{
    return read->in_flight_count + read->parked_count;
}

// Partitions that wait are passed where it need not be known whether what lies
// there has been decided upon.
static bool
passes_some(const struct skr_scan *scan)
{
    return scan->queue->passes_partitions && scan->read->passed_count > 0;
}

// What a probe looks for by ids behind the cursor.
struct finding {
    enum skr_messenger_sql id;
    struct skr_bounds bounds;
    int64_t *mark;       // moves on with every id that is dealt with; or NULL
    bool skips_waiting;  // rows that the relay knows of
    bool saw_all;        // what was found is all there is, and is dealt with
    bool is_stopped;     // the batch was full before all of it was fetched
};

struct probe {
    bool (*is_due)(const struct skr_scan *scan);  // NULL: always
    // What to find, of which the rows are fetched. NULL: end() does all.
    enum skr_code (*begin)(struct skr_scan *scan, struct finding *finding,
                           struct skr_error *error);
    enum skr_code (*end)(struct skr_scan *scan, const struct finding *finding,
                         struct skr_error *error);
};

// Rows that are known are skipped, so that many more may have to be asked for.
static size_t
count_wanted(const struct skr_scan *scan, bool skips_waiting)
{
    return scan->max_rows + count_known(scan->read) +
           (skips_waiting ? scan->read->waiting_count : 0);
}

static enum skr_code
run_probe(struct skr_scan *scan, const struct probe *probe,
          struct skr_error *error)
{
    struct finding finding = {.mark = NULL};
    size_t max_rows = scan->max_rows;
    if (probe->is_due != NULL && !probe->is_due(scan))
        return SKR_OK;
    if (probe->begin == NULL)
        return probe->end(scan, &finding, error);
    enum skr_code code = probe->begin(scan, &finding, error);
    if (code != SKR_OK)
        return code;
    finding.bounds.limit = count_wanted(scan, finding.skips_waiting);
    finding.bounds.read = scan->read;
    scan->skips_waiting = finding.skips_waiting;
    code = skr_scan_find(scan, finding.id, &finding.bounds, error);
    scan->skips_waiting = false;
    if (code != SKR_OK)
        return code;
    finding.saw_all = scan->seen < finding.bounds.limit &&
                      scan->id_count < scan->max_rows && !scan->is_cut;
    code = skr_scan_fetch(scan, finding.mark, error);
    scan->max_rows = max_rows;
    finding.is_stopped = code == SKR_STOPPED;
    if (finding.is_stopped)
        finding.saw_all = false;
    else
        scan->is_full = scan->is_full || scan->is_cut;
    if (code != SKR_OK && !finding.is_stopped)
        return code;
    return probe->end(scan, &finding, error);
}

bool
skr_cursor_is_scan_due(const struct skr_cursor *at, int64_t now_ms)
{
    return at->scan_until[0] != '\0' || at->next_full_scan_ms <= now_ms ||
           (at->next_due_ms > 0 && at->next_due_ms <= now_ms);
}

static bool
is_scan_due(const struct skr_scan *scan)
{
    return skr_cursor_is_scan_due(scan->at, scan->now_ms);
}

static bool
is_full_scan(const struct skr_scan *scan)
{
    return scan->at->due_until[0] == '\0';
}

// Where order counts a full scan only tells of partitions, however many rows
// there are behind a head that waits: what is new is read beside it.
static bool
takes_part(const struct skr_scan *scan)
{
    return is_full_scan(scan) && scan->queue->full_scan_part > 1 &&
           scan->max_rows > 1;
}

static enum skr_code
begin_scan(struct skr_scan *scan, struct finding *finding,
           struct skr_error *error)
{
    struct skr_cursor *at = scan->at;
    if (at->scan_until[0] == '\0') {
        at->scan_cursor = 0;
        if (at->next_full_scan_ms <= scan->now_ms) {
            at->due_until[0] = '\0';
            at->next_full_scan_ms =
                scan->now_ms + scan->messenger->full_scan_ms;
        }
        enum skr_code code =
            skr_messenger_now(scan->messenger, scan->tx, at->scan_until, error);
        if (code != SKR_OK)
            return code;
    }
    if (!is_full_scan(scan))
        finding->id = scan->reader->indexes.dues_by_queue ? SKR_SQL_DUE_BY_QUEUE
                                                          : SKR_SQL_DUE;
    else
        finding->id = at->scan_cursor == 0 ? SKR_SQL_FULL : SKR_SQL_FULL_ON;
    finding->bounds.after = at->scan_cursor;
    finding->bounds.up_to = at->mark.cursor;
    finding->mark = &at->scan_cursor;
    if (takes_part(scan))
        scan->max_rows /= scan->queue->full_scan_part;
    return SKR_OK;
}

static enum skr_code
end_scan(struct skr_scan *scan, const struct finding *finding,
         struct skr_error *error)
{
    (void)error;
    struct skr_cursor *at = scan->at;
    const struct skr_batch *batch = scan->batch;
    scan->scanned_some = is_full_scan(scan) && batch->count > 0 &&
                         batch->items[batch->count - 1].row < at->mark.cursor;
    if (finding->is_stopped)
        return SKR_OK;
    if (takes_part(scan)) {
        scan->goes_on = !finding->saw_all;
        scan->is_full = false;
    }
    if (finding->saw_all) {
        memcpy(at->due_until, at->scan_until, sizeof(at->due_until));
        at->scan_until[0] = '\0';
        at->scan_cursor = 0;
    } else if (scan->queue->has_partitions) {
        at->scan_cursor = scan->last_id;
    }
    return SKR_OK;
}

bool
skr_cursor_is_foreign_due(const struct skr_cursor *at, int64_t now_ms)
{
    return at->foreign_from != 0 && at->next_foreign_ms <= now_ms;
}

static bool
is_foreign_due(const struct skr_scan *scan)
{
    return scan->access->minds_foreign &&
           skr_cursor_is_foreign_due(scan->at, scan->now_ms);
}

// Rows that others had when the cursor passed them.
static enum skr_code
begin_foreign(struct skr_scan *scan, struct finding *finding,
              struct skr_error *error)
{
    (void)error;
    finding->id = SKR_SQL_FOREIGN;
    finding->bounds.after = scan->at->foreign_from - 1;
    finding->bounds.up_to = scan->at->mark.cursor;
    finding->skips_waiting = true;
    scan->at->foreign_from = 0;
    return SKR_OK;
}

static enum skr_code
note_leased(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_scan *scan = user;
    int64_t row = columns[0].integer;
    if (row <= scan->at->mark.cursor && !skr_read_knows(scan->read, row))
        skr_scan_pass_over(scan, row);
    return SKR_OK;
}

static enum skr_code
find_leased(struct skr_scan *scan, struct skr_error *error)
{
    return skr_scan_run(scan,
                        scan->reader->indexes.lacks_claims
                            ? SKR_SQL_LEASED_BY_QUEUE
                            : SKR_SQL_LEASED,
                        &(struct skr_bounds){.after = 0}, note_leased, error);
}

static enum skr_code
end_foreign(struct skr_scan *scan, const struct finding *finding,
            struct skr_error *error)
{
    struct skr_cursor *at = scan->at;
    if (!finding->saw_all) {
        at->foreign_from = finding->bounds.after + 1;
        if (!scan->is_full)
            at->next_foreign_ms = scan->now_ms + FOREIGN_LOOK_MS;
        return SKR_OK;
    }
    enum skr_code code = find_leased(scan, error);
    int64_t now_ms = skr_clock_ms();
    int64_t pause_ms = (now_ms - scan->now_ms) * FOREIGN_PAUSE;
    if (pause_ms > LONGEST_FOREIGN_PAUSE_MS)
        pause_ms = LONGEST_FOREIGN_PAUSE_MS;
    at->next_foreign_ms =
        now_ms + (pause_ms > FOREIGN_LOOK_MS ? pause_ms : FOREIGN_LOOK_MS);
    return code;
}

// Where order counts nothing may pass what has just appeared.
static bool
is_late_due(const struct skr_scan *scan)
{
    const struct skr_cursor *at = scan->at;
    int64_t look_ms = at->next_late_ms + (at->has_more ? BUSY_LATE_LOOK_MS : 0);
    return skr_low_watermark_may_be_late(&at->mark) &&
           (scan->queue->has_partitions || scan->now_ms >= look_ms);
}

// Rows that committed after the cursor had passed their ids.
static enum skr_code
begin_late(struct skr_scan *scan, struct finding *finding,
           struct skr_error *error)
{
    (void)error;
    const struct skr_low_watermark *mark = &scan->at->mark;
    bool passes = passes_some(scan);
    if (mark->low == 0)
        finding->id = passes ? SKR_SQL_LATE_FIRST_PASSING : SKR_SQL_LATE_FIRST;
    else
        finding->id = passes ? SKR_SQL_LATE_PASSING : SKR_SQL_LATE;
    finding->bounds.after = mark->low;
    finding->bounds.up_to = mark->contiguous_from;
    finding->skips_waiting = true;
    return SKR_OK;
}

static enum skr_code
end_late(struct skr_scan *scan, const struct finding *finding,
         struct skr_error *error)
{
    // What found no room is still behind: the watermark must not pass it.
    if (!finding->saw_all)
        return SKR_OK;
    // Where much lies between watermark and cursor, a look takes its time.
    scan->at->next_late_ms =
        scan->now_ms + LATE_LOOK_MS + 10 * (skr_clock_ms() - scan->now_ms);
    return skr_low_watermark_follow(&scan->at->mark, scan->tx, scan->now_ms,
                                    error);
}

// The first claim of a reader finds ids and locks them.
static enum skr_code
claim_first(struct skr_scan *scan, enum skr_messenger_sql id,
            const struct skr_bounds *bounds, struct skr_error *error)
{
    struct skr_low_watermark *mark = &scan->at->mark;
    enum skr_code code = skr_scan_find(scan, id, bounds, error);
    if (code != SKR_OK || scan->seen == 0)
        return code;
    int64_t last_id = scan->last_id;
    code = skr_scan_fetch(scan, &mark->cursor, error);
    // Not all ids before it were seen, even if it finds no room for all rows.
    skr_low_watermark_skip(mark, code == SKR_OK ? last_id : mark->cursor);
    return code;
}

static enum skr_code
read_some(struct skr_scan *scan, size_t limit, struct skr_error *error)
{
    const struct access *access = scan->access;
    const struct skr_bounds bounds = {
        .after = scan->at->mark.cursor, .limit = limit, .read = scan->read};
    if (bounds.after != 0)
        return skr_scan_run_whole(
            scan, passes_some(scan) ? SKR_SQL_NEW_PASSING : access->next,
            &bounds, error);
    enum skr_messenger_sql id = scan->reader->indexes.dues_by_queue
                                    ? access->first_timed
                                    : access->first;
    return access->locks ? claim_first(scan, id, &bounds, error)
                         : skr_scan_run_whole(scan, id, &bounds, error);
}

// Keeps what stopped the reader, and when to look again; or that nothing did.
static void
note_undecided(struct skr_scan *scan)
{
    struct skr_cursor *at = scan->at;
    int64_t row = scan->undecided_row;
    if (row == 0) {
        at->undecided_row = 0;
        at->undecided_ms = 0;
        at->next_undecided_ms = 0;
        return;
    }
    if (at->undecided_row != row || at->undecided_ms == 0) {
        at->undecided_row = row;
        at->undecided_ms = scan->now_ms;
    }
    int64_t pause_ms = (scan->now_ms - at->undecided_ms) / UNDECIDED_PAUSE_PART;
    if (pause_ms < LEAST_UNDECIDED_PAUSE_MS)
        pause_ms = LEAST_UNDECIDED_PAUSE_MS;
    if (pause_ms > LONGEST_UNDECIDED_PAUSE_MS)
        pause_ms = LONGEST_UNDECIDED_PAUSE_MS;
    at->next_undecided_ms = scan->now_ms + pause_ms;
}

// Asks for rows, or for ids to lock, until there are no more or the batch is
// full.
static enum skr_code
read_new(struct skr_scan *scan, const struct finding *finding,
         struct skr_error *error)
{
    (void)finding;
    bool was_undecided = scan->at->undecided_row != 0;
    size_t limit;
    do {
        limit = scan->max_rows - scan->batch->count;
        if (was_undecided && limit > FEW_ROWS)
            limit = FEW_ROWS;
        was_undecided = false;
        scan->is_full = limit == 0;
        // Ids are small; a first claim asks for what there is room for when it
        // locks them.
        if (!scan->access->locks || scan->at->mark.cursor != 0)
            limit = skr_scan_limit(scan, limit);
        if (limit == 0)
            return SKR_OK;
        enum skr_code code = read_some(scan, limit, error);
        if (code == SKR_STOPPED && (scan->is_full || scan->undecided_row != 0))
            break;
        if (code != SKR_OK)
            return code;
        // As many as were asked for, some of them known: there may be more.
    } while (scan->seen == limit);
    note_undecided(scan);
    return SKR_OK;
}

struct tail {
    struct skr_cursor *at;
    int64_t now_ms;
    int64_t last;
};

// When the next row is due, as far as the last scan has not looked.
static enum skr_code
note_tail(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct tail *tail = user;
    if (columns[2].kind == SKR_INTEGER)
        tail->last = columns[2].integer;
    tail->at->next_due_ms = 0;
    int64_t left_us = 0;
    // Both by the server's clock; only the distance is carried over to ours.
    if (skr_messenger_measure(&columns[0], &columns[3], &left_us)) {
        int64_t due_ms = tail->now_ms + left_us / 1000 - columns[1].integer + 1;
        tail->at->next_due_ms = due_ms > tail->now_ms ? due_ms : tail->now_ms;
    }
    return SKR_OK;
}

enum skr_code
skr_reader_ask_tail(const struct skr_messenger_reader *reader,
                    struct skr_cursor *at, int64_t now_ms, int64_t *last,
                    struct skr_error *error)
{
    struct tail tail = {.at = at, .now_ms = now_ms, .last = at->mark.cursor};
    enum skr_messenger_sql id =
        reader->indexes.dues_by_queue ? SKR_SQL_TAIL_BY_QUEUE : SKR_SQL_TAIL;
    const struct skr_bounds bounds = {.after = at->mark.cursor};
    enum skr_code code = skr_sql_each(
        skr_db_tx(reader->base.db),
        skr_messenger_sql(skr_messenger_of(reader->base.store), id),
        skr_reader_bind(reader, at, id, &bounds), note_tail, &tail, error);
    *last = tail.last;
    return code;
}

static bool
is_tail_due(const struct skr_scan *scan)
{
    return !scan->goes_on;
}

// Nothing more can be read now: what is left are rows of other queues, others'
// rows and rows that wait.
static enum skr_code
skip_tail(struct skr_scan *scan, const struct finding *finding,
          struct skr_error *error)
{
    (void)finding;
    struct skr_low_watermark *mark = &scan->at->mark;
    int64_t last = 0;
    enum skr_code code =
        skr_reader_ask_tail(scan->reader, scan->at, scan->now_ms, &last, error);
    if (code == SKR_OK && last > mark->cursor && scan->undecided_row == 0)
        skr_low_watermark_skip(mark, last);
    scan->is_at_end = code == SKR_OK;
    return code;
}

// In this order, until the batch is full.
static const struct probe probes[] = {
    {is_scan_due, begin_scan, end_scan},           // due scan, full scan
    {is_foreign_due, begin_foreign, end_foreign},  // foreign claims
    {is_late_due, begin_late, end_late},           // late commits
    {NULL, NULL, read_new},                        // beyond the cursor
    {is_tail_due, NULL, skip_tail},
};

// --------------------------------------------------------------------- a look

static const struct queue_kind kinds[SKR_QUEUE_KINDS] = {
    [SKR_QUEUE_PLAIN] = {.reads_fast = true, .full_scan_part = 1},
    [SKR_QUEUE_ORDERED] = {.has_partitions = true,
                           .passes_partitions = true,
                           .full_scan_part = 2},
    [SKR_QUEUE_BY_COMMITS] = {.has_partitions = true, .full_scan_part = 2},
};

static struct skr_scan
make_scan(struct skr_look *look)
{
    const struct skr_messenger *messenger =
        skr_messenger_of(look->reader->base.store);
    size_t max_rows = look->read->max_rows;
    return (struct skr_scan){
        .reader = look->reader,
        .messenger = messenger,
        .queue = &kinds[messenger->kind],
        .access = &accesses[look->kind],
        .read = look->read,
        .batch = look->batch,
        .tx = skr_db_tx(look->reader->base.db),
        .at = &look->at,
        .max_rows =
            max_rows < look->batch->capacity ? max_rows : look->batch->capacity,
        .now_ms = skr_clock_ms(),
    };
}

static enum skr_code
fill_batch(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_cursor *at = scan->at;
    enum skr_code code = SKR_OK;
    if (at->next_full_scan_ms == 0) {
        // The first look sees every row once: all that can become due later
        // has a later time than this.
        at->next_full_scan_ms = scan->now_ms + scan->messenger->full_scan_ms;
        code =
            skr_messenger_now(scan->messenger, scan->tx, at->due_until, error);
    }
    for (size_t i = 0;
         i < SKR_COUNT_OF(probes) && code == SKR_OK && !scan->is_full; i++)
        code = run_probe(scan, &probes[i], error);
    if (code != SKR_OK || scan->is_at_end)
        return code;
    int64_t next_ms = scan->now_ms + LOOK_AGAIN_MS;
    if (at->next_due_ms <= scan->now_ms || at->next_due_ms > next_ms)
        at->next_due_ms = next_ms;
    return SKR_OK;
}

// Keeps the one row of the batch if it is the head of its partition.
static enum skr_code
keep_head(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_batch *batch = scan->batch;
    if (batch->count == 0 || !skr_has_order(&batch->items[0]))
        return SKR_OK;
    const char *key = batch->items[0].partition_key;
    struct skr_value head;
    struct skr_row row = {.columns = &head, .count = 1};
    enum skr_code code = skr_sql_row(
        scan->tx, skr_messenger_sql(scan->messenger, SKR_SQL_HEAD),
        skr_values("%s %s %s", scan->messenger->table.queue, key, key), &row,
        error);
    if (code == SKR_OK && (!row.found || head.integer != batch->items[0].row)) {
        batch->count = 0;
        batch->bytes = 0;
    }
    return code;
}

// Takes the one row that is asked for. Where the reader stands, and what is
// left to read, stays as it was.
static enum skr_code
fetch_only(struct skr_scan *scan, struct skr_error *error)
{
    enum skr_code code = skr_scan_begin_ids(scan, error);
    if (code != SKR_OK || scan->max_rows == 0)
        return code;
    if (!skr_read_knows(scan->read, *scan->read->only))
        scan->ids[scan->id_count++] = *scan->read->only;
    code = skr_scan_fetch(scan, NULL, error);
    scan->is_full = scan->at->has_more;
    if (code == SKR_OK)
        code = keep_head(scan, error);
    return code == SKR_STOPPED ? SKR_OK : code;
}

// The cursor has moved on from there: what others had beyond it was not seen.
static enum skr_code
note_passed(struct skr_scan *scan, int64_t cursor, struct skr_error *error)
{
    if (!scan->access->minds_foreign || scan->at->mark.cursor == cursor)
        return SKR_OK;
    // From the start of the queue the way would be long.
    if (cursor == 0)
        return find_leased(scan, error);
    skr_scan_pass_over(scan, cursor + 1);
    return SKR_OK;
}

// That open transactions cannot be asked for is found out, and told, before it
// counts.
static void
settle_watermark(struct skr_low_watermark *mark)
{
    if (mark->sql[0] == '\0' || mark->oldest_ms != 0 || mark->hides_open)
        skr_low_watermark_settle(mark);
}

enum skr_code
skr_look_run(struct skr_look *look, struct skr_error *error)
{
    struct skr_scan scan = make_scan(look);
    struct skr_cursor *at = &look->at;
    int64_t cursor = at->mark.cursor;
    enum skr_code code = look->read->only == NULL ? fill_batch(&scan, error)
                                                  : fetch_only(&scan, error);
    if (code == SKR_OK)
        code = note_passed(&scan, cursor, error);
    if (code != SKR_OK) {
        skr_batch_clear(look->batch);
        return code;
    }
    // Rows lie behind the cursor, and none at it or beyond: the table may have
    // been emptied, and its ids begin anew. Until they reach the cursor each
    // would wait for a full scan, so that the reader begins anew as well. Where
    // it was something else that does no harm. In an ordered queue what waits
    // behind the cursor is no sign of that.
    if (!scan.queue->has_partitions && scan.scanned_some && scan.is_at_end &&
        at->mark.cursor == cursor) {
        skr_low_watermark_restart(&at->mark, 0);
        at->foreign_from = 0;
    }
    settle_watermark(&at->mark);
    at->has_more = scan.is_full || scan.goes_on;
    return SKR_OK;
}

enum skr_code
skr_look_run_alone(struct skr_look *look, struct skr_error *error)
{
    struct skr_db *db = look->reader->base.db;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = skr_look_run(look, error);
    skr_db_rollback(db);
    if (look->batch->count > 0)
        db->found_rows = true;
    return code;
}

// ------------------------------------------------------------------ fast reads

// One statement is a snapshot by itself: it reads whole rows from the low
// watermark on, so that what committed late and what is new come together, and
// rows that are known are passed over. 0: that would be too many.
static size_t
choose_fast_limit(const struct skr_scan *scan)
{
    const struct skr_read *read = scan->read;
    size_t rows = skr_cursor_rows_for(scan->at, read->max_bytes);
    rows = rows < read->max_rows ? rows : read->max_rows;
    size_t known = count_known(read) + read->waiting_count;
    if (!scan->queue->reads_fast || rows == 0 || known > MOST_PASSED_OVER ||
        known * scan->at->row_size > MOST_BYTES_PASSED_OVER)
        return 0;
    return rows + known;
}

// While rows may be late a fast read is needed anyway. In a steady stream every
// other look finds something: a fast read alone is one statement then, and to
// ask first would be two. What else there is gets asked now and then in place
// of one.
static bool
asks_first(const struct skr_scan *scan, bool may_be_late)
{
    const struct skr_cursor *at = scan->at;
    bool expects_row =
        may_be_late ||
        (scan->queue->reads_fast && scan->now_ms - at->fast_row_ms < STEADY_MS);
    return !expects_row ||
           (at->has_read_fast && scan->now_ms >= at->next_tail_ms);
}

static enum skr_code
read_rows_fast(struct skr_scan *scan, size_t limit, bool may_be_late,
               struct skr_error *error)
{
    struct skr_cursor *at = scan->at;
    const struct skr_bounds bounds = {
        .after = may_be_late ? at->mark.low : at->mark.cursor, .limit = limit};
    enum skr_code code = skr_scan_run_whole(scan, SKR_SQL_NEW, &bounds, error);
    if (code == SKR_STOPPED && scan->is_full)
        code = SKR_OK;
    at->has_more = scan->is_full || scan->seen == limit;
    // What was not seen is still behind: the watermark must not pass it.
    if (code == SKR_OK && !at->has_more && may_be_late)
        code =
            skr_low_watermark_follow(&at->mark, scan->tx, scan->now_ms, error);
    if (code != SKR_OK) {
        skr_batch_clear(scan->batch);
        return code;
    }
    if (scan->batch->count > 0)
        at->fast_row_ms = scan->now_ms;
    settle_watermark(&at->mark);
    at->has_read_fast = true;
    return SKR_OK;
}

// *is_enough: there is no need for a full look, which is for backlogs and
// scans.
enum skr_code
skr_look_fast(struct skr_look *look, bool *is_enough, struct skr_error *error)
{
    struct skr_scan scan = make_scan(look);
    struct skr_cursor *at = scan.at;
    size_t limit = choose_fast_limit(&scan);
    bool may_be_late = skr_low_watermark_may_be_late(&at->mark);
    if (at->mark.sql[0] == '\0' || at->mark.cursor == 0 || at->has_more ||
        (may_be_late && limit == 0) || is_scan_due(&scan))
        return SKR_OK;
    // Without room for a fast read it is no use to expect something of it.
    if (limit == 0)
        at->fast_row_ms = 0;
    bool was_asked = asks_first(&scan, may_be_late);
    if (was_asked) {
        int64_t last = 0;
        enum skr_code code =
            skr_reader_ask_tail(look->reader, at, scan.now_ms, &last, error);
        if (code != SKR_OK)
            return code;
        at->next_tail_ms = scan.now_ms + TAIL_MS;
        at->has_read_fast = false;
        *is_enough = last <= at->mark.cursor && !is_scan_due(&scan);
    }
    if (*is_enough || limit == 0 || is_scan_due(&scan))
        return SKR_OK;
    enum skr_code code = read_rows_fast(&scan, limit, may_be_late, error);
    // If there was said to be something and none of it is for us, then rows of
    // others, or rows that wait, are there: the cursor has to pass them.
    *is_enough = code == SKR_OK && (look->batch->count > 0 || !was_asked);
    return code;
}
