// SPDX-License-Identifier: MIT
// Reading a queue for one relay: what was given and what became of it, over the
// operations of a table's layout.

#include "store/source.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/row_set.h"

#include <stdlib.h>

enum {
    SPARE_SCAN_MS = 300000,
    CONFLICT_PAUSE_MS = 10,
    // Eight megabytes. So many rows are known to be left only while the low
    // watermark stays where it is: beside a transaction that is open for long.
    // Those that have left their table by then are not told from those that
    // wait, and all are found again that do.
    MOST_LEFT = 1 << 20,
};

struct skr_source {
    const struct skr_store *table;
    const struct skr_parked *rows_parked;
    bool claims_rows;
    struct skr_db *db;
    struct skr_reader *reader;  // NULL: it is not open
    struct skr_row_set given, published, left;
    // Of each read, where rows are parked.
    struct skr_row_set parked, done, unsettled;
    bool may_have_more;
    bool restarts;           // from the start, once nothing is given
    int64_t spare_until_ms;  // no full scan before, while rows wait
};

enum skr_code
skr_source_new(const struct skr_store *table, const struct skr_parked *parked,
               bool claims_rows, struct skr_source **source,
               struct skr_error *error)
{
    struct skr_source *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->table = table;
    made->rows_parked = parked;
    made->claims_rows = claims_rows;
    made->left.most = MOST_LEFT;
    *source = made;
    return SKR_OK;
}

void
skr_source_free(struct skr_source *source)
{
    if (source == NULL)
        return;
    free(source->reader);
    skr_row_set_fini(&source->given);
    skr_row_set_fini(&source->published);
    skr_row_set_fini(&source->left);
    skr_row_set_fini(&source->parked);
    skr_row_set_fini(&source->done);
    skr_row_set_fini(&source->unsettled);
    free(source);
}

enum skr_code
skr_source_open(struct skr_source *source, struct skr_db *db,
                struct skr_error *error)
{
    const struct skr_store *table = source->table;
    struct skr_reader *reader = NULL;
    source->db = db;
    source->may_have_more = true;
    skr_row_set_clear(&source->left);
    enum skr_code code = table->source->open(table, db, true, &reader, error);
    source->restarts = code != SKR_OK;
    if (code != SKR_OK)
        return code;
    free(source->reader);
    source->reader = reader;
    return SKR_OK;
}

// All 0 where it is not open.
static struct skr_reader_status
status_of(const struct skr_source *source)
{
    if (source->reader == NULL)
        return (struct skr_reader_status){.cursor = 0};
    return source->table->source->status(source->reader);
}

static bool
is_full_scan_due(const struct skr_source *source)
{
    int64_t next_ms = status_of(source).next_full_scan_ms;
    return next_ms != 0 && next_ms <= skr_clock_ms();
}

// Not where nothing else would find a row of a transaction that was long. A
// full scan that is due begins when the due scan under way is over.
static void
spare_full_scan(struct skr_source *source)
{
    const struct skr_reader_status status = status_of(source);
    if (!status.hides_open && is_full_scan_due(source) && !status.is_scanning &&
        skr_clock_ms() < source->spare_until_ms)
        source->table->source->plan_scan(source->reader,
                                         source->spare_until_ms);
}

// What a read is told of parked rows: which not to give, which are published,
// and which hold back their key.
static bool
list_parked(struct skr_source *source)
{
    const struct skr_parked *parked = source->rows_parked;
    skr_row_set_clear(&source->parked);
    skr_row_set_clear(&source->unsettled);
    skr_row_set_clear(&source->done);
    if (parked->count == 0)
        return true;
    bool ok = skr_parked_list(parked, &source->parked);
    for (size_t i = 0; i < source->published.count && ok; i++)
        ok = skr_row_set_add(&source->done, source->published.rows[i]);
    for (size_t i = 0; i < parked->count && ok; i++)
        ok = skr_row_set_add(parked->rows[i].is_published ? &source->done
                                                          : &source->unsettled,
                             parked->rows[i].row);
    return ok;
}

static enum skr_code
describe(struct skr_source *source, const struct skr_source_request *request,
         struct skr_read *read, struct skr_error *error)
{
    if (!list_parked(source))
        return skr_fail_memory(error);
    bool is_some_parked = source->rows_parked->count > 0;
    const struct skr_row_set *done =
        is_some_parked ? &source->done : &source->published;
    skr_row_set_remove_up_to(&source->left, status_of(source).low_watermark);
    *read = (struct skr_read){
        .max_rows = request->rows,
        .max_bytes = request->bytes,
        .in_flight = source->given.rows,
        .in_flight_count = source->given.count,
        .done = done->rows,
        .done_count = done->count,
        .waiting = source->left.rows,
        .waiting_count = source->left.count,
        .parked = source->parked.rows,
        .parked_count = source->parked.count,
        .passed = request->passed,
        .passed_count = request->passed_count,
    };
    if (source->table->source->keeps_keys) {
        read->unsettled = source->unsettled.rows;
        read->unsettled_count = source->unsettled.count;
    }
    return SKR_OK;
}

// Rows that stay where they are come without being given.
static bool
is_given(const struct skr_batch_item *item)
{
    return item->state != SKR_BEHIND && item->state != SKR_NOT_READY &&
           item->write != SKR_WRITE_REFUSED;
}

static enum skr_code
note_given(struct skr_source *source, const struct skr_batch *batch,
           struct skr_error *error)
{
    bool ok = true;
    for (size_t i = 0; i < batch->count && ok; i++)
        ok = !is_given(&batch->items[i]) ||
             skr_row_set_add(&source->given, batch->items[i].row);
    if (ok)
        return SKR_OK;
    skr_source_release(source, batch);
    return skr_fail_memory(error);
}

static enum skr_code
read_rows(struct skr_source *source, const struct skr_read *read,
          struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_store *table = source->table;
    struct skr_error failure = {0};
    enum skr_code code =
        source->claims_rows
            ? table->leases->claim(source->reader, read, batch, &failure)
            : table->source->read(source->reader, read, batch, &failure);
    // Others were in the way: there is something to claim, and soon.
    if (code != SKR_OK && source->claims_rows &&
        failure.remedy == SKR_TRY_AGAIN) {
        skr_clock_sleep(-1, CONFLICT_PAUSE_MS);
        return SKR_OK;
    }
    if (code != SKR_OK)
        return skr_fail_with(error, &failure);
    return note_given(source, batch, error);
}

// Rows that are given may hold back others of their key once they are settled:
// until then others would pass.
static enum skr_code
restart(struct skr_source *source, struct skr_error *error)
{
    if (source->given.count > 0)
        return SKR_OK;
    return skr_source_open(source, source->db, error);
}

enum skr_code
skr_source_next(struct skr_source *source,
                const struct skr_source_request *request,
                struct skr_batch *batch, struct skr_error *error)
{
    struct skr_read read;
    enum skr_code code = SKR_OK;
    if (source->restarts)
        code = restart(source, error);
    if (code != SKR_OK || source->restarts)
        return code;
    code = describe(source, request, &read, error);
    if (code != SKR_OK)
        return code;
    if (request->spares_full_scans)
        spare_full_scan(source);
    bool was_due = is_full_scan_due(source);
    code = read_rows(source, &read, batch, error);
    if (was_due && !is_full_scan_due(source) && request->spares_full_scans)
        source->spare_until_ms = skr_clock_ms() + SPARE_SCAN_MS;
    if (code == SKR_OK)
        source->may_have_more = status_of(source).has_more;
    return code;
}

enum skr_code
skr_source_fetch(struct skr_source *source,
                 const struct skr_source_request *request, int64_t row,
                 struct skr_batch *batch, struct skr_error *error)
{
    struct skr_read read;
    enum skr_code code = describe(source, request, &read, error);
    read.only = &row;
    return code == SKR_OK ? read_rows(source, &read, batch, error) : code;
}

enum skr_code
skr_source_fetch_partitions(struct skr_source *source,
                            const struct skr_source_request *request,
                            struct skr_partition_read *partitions, size_t count,
                            struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_store *table = source->table;
    struct skr_read read;
    enum skr_code code = describe(source, request, &read, error);
    if (code == SKR_OK)
        code = table->partitions->read(source->reader, &read, partitions, count,
                                       batch, error);
    return code == SKR_OK ? note_given(source, batch, error) : code;
}

bool
skr_source_is_restarting(const struct skr_source *source)
{
    return source->restarts;
}

bool
skr_source_may_have_more(const struct skr_source *source)
{
    return source->may_have_more;
}

enum skr_code
skr_source_wait(struct skr_source *source, int wake_fd, uint32_t timeout_ms,
                struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code =
        source->db->ops->wait(source->db, wake_fd, timeout_ms, error);
    skr_beat_resume();
    if (code != SKR_OK && code != SKR_TIMEOUT)
        return code;
    int64_t wake_ms = status_of(source).wake_ms;
    if (code == SKR_OK || (wake_ms > 0 && wake_ms <= skr_clock_ms()))
        source->may_have_more = true;
    return SKR_OK;
}

void
skr_source_published(struct skr_source *source,
                     const struct skr_batch_item *item)
{
    // Without memory its partition is read again a moment later.
    if (skr_has_order(item))
        (void)skr_row_set_add(&source->published, item->row);
}

void
skr_source_left(struct skr_source *source, const struct skr_batch_item *item)
{
    // Without memory the row may be read again in vain.
    (void)skr_row_set_add(&source->left, item->row);
}

void
skr_source_returned(struct skr_source *source,
                    const struct skr_batch_item *item)
{
    skr_row_set_remove(&source->given, item->row);
    // Where nothing else tells when it may be sent it is found again.
    if (!item->is_untold)
        skr_source_left(source, item);
}

void
skr_source_release(struct skr_source *source, const struct skr_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        skr_row_set_remove(&source->given, batch->items[i].row);
        skr_row_set_remove(&source->published, batch->items[i].row);
    }
}

void
skr_source_refused(struct skr_source *source, bool is_held_back)
{
    if (is_held_back ? source->table->partitions != NULL
                     : !source->table->source->keeps_keys)
        return;
    source->restarts = true;
    source->may_have_more = true;
}

bool
skr_source_rescan(struct skr_source *source, bool is_settling)
{
    bool keeps_keys = source->table->source->keeps_keys;
    if (is_settling && !keeps_keys)
        return false;
    if (source->reader != NULL)
        source->table->source->plan_scan(source->reader, skr_clock_ms());
    source->spare_until_ms = 0;
    source->may_have_more = true;
    source->restarts = source->restarts || keeps_keys;
    return true;
}

struct skr_source_status
skr_source_status(const struct skr_source *source)
{
    const struct skr_reader_status status = status_of(source);
    const struct skr_store *store = source->table;
    bool order_counts = store->partitions != NULL || store->source->keeps_keys;
    return (struct skr_source_status){
        .cursor = status.cursor,
        .has_due =
            status.next_due_ms > 0 && status.next_due_ms <= skr_clock_ms(),
        .hides_open = status.hides_open && !status.is_cluster && order_counts,
        .undecided_row = status.undecided_row,
        .undecided_ms = status.undecided_ms,
        .wake_ms = status.wake_ms,
    };
}

enum skr_code
skr_source_count_claimed(struct skr_source *source, uint64_t *count,
                         struct skr_error *error)
{
    const struct skr_store *table = source->table;
    *count = 0;
    if (table->diagnosis == NULL)
        return SKR_OK;
    return table->diagnosis->count_claimed(source->reader, count, error);
}
