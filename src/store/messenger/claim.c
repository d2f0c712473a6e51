// SPDX-License-Identifier: MIT
// Claims of single rows, by a lease: rows are locked by their primary key
// (probes.c, fetch.c), and the lease is written into them and committed.
//
// The time of the claim in delivered_at, of one second's precision,
// tells whose a row is. That is enough because of two rules:
// - A row changes hands only when its owner gives it back, after which that
//   owner has no say in it, or when its lease has run out. A lease lasts three
//   seconds or more, so that the next owner's time is always a later one.
// - An owner's time moves on only together with the row's. When leases are
//   renewed the owner lets go of every row that was not: another may have
//   claimed it in the very second that the others now carry.
//
// A row that the database refuses to change holds up no other: a claim is tried
// for half as many rows until that one is alone, and a renewal is halved, too.
// The claims after it begin with one row, and double: such rows seldom come
// alone.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/apart.h"
#include "store/messenger/reader.h"

#include <stdlib.h>
#include <string.h>

// Leases that ran out are looked for so often, and those that last long less
// often: each look is a statement that an idle queue costs.
enum { EXPIRED_LOOK_MS = 5000, EXPIRED_LOOKS = 120, MOST_DOUBLED = 1024 };

struct claiming {
    struct skr_messenger_reader *reader;
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_read *read;
    struct skr_batch *batch;
    size_t locked;  // rows of the last try, of which the first is
    int64_t first_row;
    bool cannot_count;  // a try of one of them
    int64_t uncounted;  // row that is given all the same; 0: none
    struct skr_error uncounted_for;
};

// Counted at the claim, not at a failure: a consumer that dies leaves no other
// trace, and a message that kills its consumer must still run out of attempts.
static enum skr_code
raise_count(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_arena *arena, struct skr_batch_item *item,
            struct skr_error *error)
{
    struct skr_envelope *envelope = &item->envelope;
    // Headers that cannot be parsed have no place for a count.
    if (envelope->headers.count == 0)
        return SKR_OK;
    struct skr_error reason = {0};
    skr_fail(&reason, SKR_TIMEOUT, SKR_TRY_AGAIN,
             "the consumer that had it did not settle it in time");
    struct skr_text json = {0};
    enum skr_code code = skr_failure_mark_retry(
        arena, &envelope->headers, envelope->retry_count + 1, &reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(envelope->headers.items,
                                 envelope->headers.count, &json, error);
    if (code == SKR_OK) {
        const struct skr_values values = {
            2,
            {skr_bind_bytes(json.bytes, json.size),
             skr_bind_integer(item->row)}};
        code =
            skr_sql_run(tx, skr_messenger_sql(messenger, SKR_SQL_RAISE_COUNT),
                        values, NULL, error);
    }
    skr_text_fini(&json);
    if (code == SKR_OK)
        envelope->retry_count++;
    return code;
}

// A message that may have killed its consumer, and cannot run out of tries, is
// not handled: it has failed.
static enum skr_code
count_try(struct claiming *claiming, struct skr_batch_item *item,
          struct skr_error *error)
{
    if (claiming->uncounted == item->row) {
        item->state = SKR_DEAD;
        skr_fail(&item->reason, SKR_REFUSED, SKR_GIVE_UP,
                 "its tries cannot be counted: %.300s",
                 claiming->uncounted_for.text);
        return SKR_OK;
    }
    enum skr_code code =
        raise_count(claiming->messenger, skr_db_tx(claiming->db),
                    &claiming->batch->arena, item, error);
    claiming->cannot_count = code != SKR_OK;
    return code;
}

// The same statement about no row: what it is refused for is no row's fault.
static enum skr_code
mark_no_row(const struct claiming *claiming, struct skr_error *error)
{
    static const int64_t no_row = SKR_NO_ROW;
    const struct skr_list_run run = {
        .sql = skr_messenger_list(claiming->messenger, SKR_SQL_MARK),
        .first = {{.kind = SKR_NULL}},
        .first_count = 1,
        .rows = &no_row,
        .count = 1,
    };
    return skr_list_run(skr_db_tx(claiming->db), &run, error);
}

static enum skr_code
write_lease(struct claiming *claiming, struct skr_lease *lease,
            struct skr_error *error)
{
    const struct skr_messenger *messenger = claiming->messenger;
    struct skr_batch *batch = claiming->batch;
    struct skr_tx tx = skr_db_tx(claiming->db);
    enum skr_code code = skr_messenger_now(messenger, tx, lease->time, error);
    if (code != SKR_OK)
        return code;
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_MARK),
        .first = {skr_bind_text(lease->time)},
        .first_count = 1,
    };
    code = skr_list_run_items(tx, &run, batch, NULL, NULL, error);
    bool counts = claiming->read->counts_tries;
    for (size_t i = 0; counts && code == SKR_OK && i < batch->count; i++)
        if (batch->items[i].redelivered)
            code = count_try(claiming, &batch->items[i], error);
    return code;
}

// Ends what began a transaction and locked rows in it, with the code that this
// had. Without rows nothing stays open.
static enum skr_code
end_claim(struct claiming *claiming, enum skr_code code,
          struct skr_error *error)
{
    struct skr_batch *batch = claiming->batch;
    struct skr_lease lease = {.time = ""};
    bool has_rows = code == SKR_OK && batch->count > 0;
    claiming->locked = has_rows ? batch->count : 0;
    claiming->first_row = has_rows ? batch->items[0].row : 0;
    if (has_rows)
        code = write_lease(claiming, &lease, error);
    if (has_rows && code == SKR_OK)
        code = skr_db_commit(claiming->db, error);
    if (has_rows && code == SKR_OK) {
        batch->lease = lease;
        claiming->db->found_rows = true;
        return SKR_OK;
    }
    skr_db_rollback(claiming->db);
    skr_batch_clear(batch);
    return code;
}

struct found {
    const struct skr_read *read;
    int64_t *rows;
    size_t count, most;
};

static enum skr_code
keep_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    (void)count;
    (void)error;
    struct found *found = user;
    if (found->count < found->most &&
        !skr_read_parks(found->read, columns[0].integer))
        found->rows[found->count++] = columns[0].integer;
    return SKR_OK;
}

static enum skr_code
find_expired(const struct claiming *claiming, struct found *found,
             struct skr_error *error)
{
    const struct skr_bounds bounds = {.limit = found->most +
                                               found->read->parked_count};
    return skr_sql_each(skr_db_tx(claiming->db),
                        skr_messenger_sql(claiming->messenger, SKR_SQL_EXPIRED),
                        skr_reader_bind(claiming->reader, &claiming->reader->at,
                                        SKR_SQL_EXPIRED, &bounds),
                        keep_row, found, error);
}

// What finds no room stays locked until the end of the claim, and expired.
static enum skr_code
take_expired(const struct skr_value *columns, size_t count, void *user,
             struct skr_error *error)
{
    (void)count;
    const struct claiming *claiming = user;
    struct skr_batch *batch = claiming->batch;
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    bool is_free = columns[SKR_COLUMN_IS_FREE].integer != 0;
    bool has_room =
        batch->count == 0 || size <= skr_batch_room(claiming->read, batch);
    skr_cursor_note_sizes(&claiming->reader->at, 1, size);
    if (!is_free || !has_room)
        return SKR_OK;
    return skr_messenger_take_row(claiming->messenger,
                                  claiming->reader->id_namespace, columns,
                                  batch, error);
}

static enum skr_code
lock_expired(struct claiming *claiming, const struct found *found,
             struct skr_error *error)
{
    const struct skr_messenger *messenger = claiming->messenger;
    enum skr_code code = skr_db_begin(claiming->db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_LOCK),
        .first = {skr_bind_integer(messenger->redeliver_timeout_s)},
        .first_count = 1,
        .rows = found->rows,
        .count = found->count,
        .each_row = take_expired,
        .user = claiming,
    };
    code = skr_list_run(skr_db_tx(claiming->db), &run, error);
    return end_claim(claiming, code, error);
}

// No more than there is room for. Where tries are counted one at a time: each
// may be what killed its owner.
static size_t
most_expired(const struct claiming *claiming)
{
    const struct skr_read *read = claiming->read;
    size_t limit = read->max_rows;
    if (limit > claiming->batch->capacity)
        limit = claiming->batch->capacity;
    size_t room = skr_cursor_rows_for(&claiming->reader->at, read->max_bytes);
    if (read->counts_tries || room == 0)
        room = 1;
    return limit < room ? limit : room;
}

static enum skr_code
claim_expired(struct claiming *claiming, struct skr_error *error)
{
    size_t limit = most_expired(claiming);
    struct skr_arena arena = {0};
    struct found found = {
        .read = claiming->read,
        .rows = skr_arena_take(&arena, (limit + 1) * sizeof(found.rows[0])),
        .most = limit,
    };
    enum skr_code code = found.rows == NULL
                             ? skr_fail_memory(error)
                             : find_expired(claiming, &found, error);
    if (code == SKR_OK && found.count > 0)
        code = lock_expired(claiming, &found, error);
    skr_arena_fini(&arena);
    return code;
}

// By one small statement, where commits are not seen by other means.
static enum skr_code
is_worth_peeking(struct skr_look *look, bool *is_worth, struct skr_error *error)
{
    struct skr_cursor *at = &look->at;
    int64_t now_ms = skr_clock_ms(), last = 0;
    *is_worth = look->read->only != NULL || at->mark.sql[0] == '\0' ||
                at->mark.cursor == 0 || at->has_more ||
                skr_cursor_is_scan_due(at, now_ms) ||
                skr_cursor_is_foreign_due(at, now_ms) ||
                skr_low_watermark_may_be_late(&at->mark);
    if (*is_worth)
        return SKR_OK;
    enum skr_code code =
        skr_reader_ask_tail(look->reader, at, now_ms, &last, error);
    *is_worth = last > at->mark.cursor || skr_cursor_is_scan_due(at, now_ms);
    return code;
}

// Looks without a lock first: those with nothing to do write nothing.
static enum skr_code
peek(const struct claiming *claiming, bool *is_empty, struct skr_error *error)
{
    struct skr_read one = *claiming->read;
    struct skr_look look = {
        .reader = claiming->reader,
        .kind = SKR_LOOK_PEEK,
        .read = &one,
        .batch = claiming->batch,
        .at = claiming->reader->at,
    };
    bool is_worth = false;
    if (one.max_rows > 1)
        one.max_rows = 1;
    enum skr_code code = is_worth_peeking(&look, &is_worth, error);
    if (code == SKR_OK && is_worth)
        code = skr_look_run_alone(&look, error);
    if (code != SKR_OK)
        return code;
    *is_empty = claiming->batch->count == 0;
    if (*is_empty)
        claiming->reader->at = look.at;
    skr_batch_clear(claiming->batch);
    return SKR_OK;
}

static int64_t
expired_interval_ms(const struct skr_messenger *messenger)
{
    int64_t lease_ms = (int64_t)messenger->redeliver_timeout_s * 1000;
    int64_t soon_ms = lease_ms / 4, seldom_ms = lease_ms / EXPIRED_LOOKS;
    soon_ms = soon_ms < EXPIRED_LOOK_MS ? soon_ms : EXPIRED_LOOK_MS;
    return soon_ms > seldom_ms ? soon_ms : seldom_ms;
}

// Rows whose lease has run out come first. Without an index the full scan finds
// them.
static enum skr_code
claim_expired_now(struct claiming *claiming, struct skr_error *error)
{
    struct skr_messenger_reader *reader = claiming->reader;
    int64_t now_ms = skr_clock_ms();
    if (reader->at.next_expired_ms > now_ms || reader->indexes.lacks_claims ||
        claiming->read->only != NULL)
        return SKR_OK;
    enum skr_code code = claim_expired(claiming, error);
    // Others were not looked for.
    if (claiming->batch->count > 0)
        reader->at.has_more = true;
    else if (code == SKR_OK)
        reader->at.next_expired_ms =
            now_ms + expired_interval_ms(claiming->messenger);
    return code;
}

static enum skr_code
claim_once(struct claiming *claiming, struct skr_error *error)
{
    struct skr_messenger_reader *reader = claiming->reader;
    bool is_empty = false;
    enum skr_code code = skr_messenger_learn(claiming->messenger, claiming->db,
                                             &reader->indexes, error);
    if (code == SKR_OK)
        code = claim_expired_now(claiming, error);
    if (code != SKR_OK || claiming->batch->count > 0)
        return code;
    // A full batch leaves no doubt that there is more to try for.
    if (!reader->at.has_more)
        code = peek(claiming, &is_empty, error);
    if (code != SKR_OK || is_empty)
        return code;
    code = skr_db_begin(claiming->db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    struct skr_look look = {
        .reader = reader,
        .kind = SKR_LOOK_CLAIM,
        .read = claiming->read,
        .batch = claiming->batch,
        .at = reader->at,
    };
    code = end_claim(claiming, skr_look_run(&look, error), error);
    if (code == SKR_OK)
        reader->at = look.at;
    return code;
}

// Some of the rows were refused: fewer are tried. One that is alone may be
// given without its count.
static bool
may_try_otherwise(struct claiming *claiming, const struct skr_error *failure)
{
    if (failure->remedy != SKR_GIVE_UP || claiming->locked == 0)
        return false;
    if (claiming->locked > 1) {
        claiming->read->max_rows = claiming->locked / 2;
        return true;
    }
    if (!claiming->cannot_count || claiming->uncounted != 0)
        return false;
    claiming->uncounted = claiming->first_row;
    claiming->uncounted_for = *failure;
    return true;
}

// The one row that was tried.
static enum skr_code
give_refused(struct claiming *claiming, const struct skr_error *refusal,
             struct skr_error *error)
{
    struct skr_batch *batch = claiming->batch;
    enum skr_code code = mark_no_row(claiming, error);
    if (code != SKR_OK)
        return code;
    batch->items[0] = (struct skr_batch_item){
        .row = claiming->first_row,
        .write = SKR_WRITE_REFUSED,
        .refusal =
            skr_arena_text(&batch->arena, refusal->text, strlen(refusal->text)),
    };
    if (batch->items[0].refusal == NULL)
        return skr_fail_memory(error);
    batch->count = 1;
    claiming->reader->at.has_more = true;
    claiming->reader->most_claimed = 1;
    return SKR_OK;
}

static enum skr_code
claim_rows(struct claiming *claiming, struct skr_error *error)
{
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct skr_error failure = {0};
    size_t *most = &claiming->reader->most_claimed;
    enum skr_code code;
    if (*most > 0 && claiming->read->max_rows > *most)
        claiming->read->max_rows = *most;
    do {
        claiming->cannot_count = false;
        claiming->locked = 0;
        code = claim_once(claiming, &failure);
    } while (code != SKR_OK &&
             (may_try_otherwise(claiming, &failure) ||
              skr_messenger_may_try_again(&tries, code, &failure)));
    if (code != SKR_OK && failure.remedy == SKR_GIVE_UP &&
        claiming->locked == 1)
        return give_refused(claiming, &failure, error);
    if (code == SKR_OK)
        *most = *most < MOST_DOUBLED ? *most * 2 : 0;
    // Others were in the way: there is something to claim, and soon.
    if (code != SKR_OK && failure.remedy == SKR_TRY_AGAIN)
        claiming->reader->at.has_more = true;
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &failure);
}

static enum skr_code
claim(struct skr_reader *reader, const struct skr_read *read,
      struct skr_batch *batch, struct skr_error *error)
{
    struct skr_read some = *read;
    struct claiming claiming = {
        .reader = (struct skr_messenger_reader *)reader,
        .messenger = skr_messenger_of(reader->store),
        .db = reader->db,
        .read = &some,
        .batch = batch,
    };
    enum skr_code code =
        skr_messenger_follow(claiming.messenger, reader->db, error);
    return code == SKR_OK ? claim_rows(&claiming, error) : code;
}

static void
rewind_to(struct skr_reader *reader, int64_t row)
{
    struct skr_cursor *at = &((struct skr_messenger_reader *)reader)->at;
    skr_low_watermark_rewind(&at->mark, row);
}

struct renewal {
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_batch *batch;
    struct skr_lease renewed;
    bool is_trial;  // nothing is committed
};

static bool
is_ours(const struct skr_batch_item *item)
{
    return !item->lost && skr_is_written_now(item);
}

// False in *is_whole: some rows are not ours any more.
static enum skr_code
move_lease(const struct renewal *renewal, struct skr_tx tx, bool *is_whole,
           struct skr_error *error)
{
    uint64_t affected = 0, wanted = 0;
    const struct skr_list_run run = {
        .sql = skr_messenger_list(renewal->messenger, SKR_SQL_RENEW),
        .first = {skr_bind_text(renewal->renewed.time),
                  skr_bind_text(renewal->batch->lease.time)},
        .first_count = 2,
        .affected = &affected,
    };
    enum skr_code code =
        skr_list_run_items(tx, &run, renewal->batch, is_ours, &wanted, error);
    *is_whole = affected == wanted;
    return code;
}

static enum skr_code
mark_ours(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_batch *batch = user;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].row == columns[0].integer)
            batch->items[i].lost = false;
    return SKR_OK;
}

// Asks which rows are still ours before it renews them: afterwards they could
// not be told from those that another has claimed in this very second.
static enum skr_code
find_lost(const struct renewal *renewal, struct skr_tx tx,
          struct skr_error *error)
{
    struct skr_batch *batch = renewal->batch;
    int64_t *rows = calloc(batch->count + 1, sizeof(*rows));
    if (rows == NULL)
        return skr_fail_memory(error);
    struct skr_list_run run = {
        .sql = skr_messenger_list(renewal->messenger, SKR_SQL_FIND_LEASED),
        .first = {skr_bind_text(batch->lease.time)},
        .first_count = 1,
        .rows = rows,
        .each_row = mark_ours,
        .user = batch,
    };
    for (size_t i = 0; i < batch->count; i++)
        if (is_ours(&batch->items[i])) {
            rows[run.count++] = batch->items[i].row;
            batch->items[i].lost = true;
        }
    enum skr_code code = skr_list_run(tx, &run, error);
    if (code != SKR_OK)
        // Nothing is known, and nothing was renewed.
        for (size_t i = 0; i < run.count; i++) {
            const struct skr_value row = skr_bind_integer(rows[i]);
            (void)mark_ours(&row, 1, batch, NULL);
        }
    free(rows);
    return code;
}

static enum skr_code
renew(const struct renewal *renewal, bool asks_first, bool *is_whole,
      struct skr_error *error)
{
    struct skr_db *db = renewal->db;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    if (asks_first)
        code = find_lost(renewal, skr_db_tx(db), error);
    if (code == SKR_OK)
        code = move_lease(renewal, skr_db_tx(db), is_whole, error);
    if (code == SKR_OK && *is_whole && !renewal->is_trial)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

static enum skr_code
renew_once(const struct renewal *renewal, struct skr_error *error)
{
    bool is_whole = false;
    enum skr_code code = renew(renewal, false, &is_whole, error);
    if (code == SKR_OK && !is_whole)
        code = renew(renewal, true, &is_whole, error);
    if (code == SKR_OK && !is_whole)
        return skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "leases changed while they were renewed");
    return code;
}

// All of it in one transaction, and at the time that the others have.
static enum skr_code
renew_some(void *user, struct skr_batch *batch, struct skr_error *error)
{
    struct renewal *renewal = user;
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    enum skr_code code;
    renewal->batch = batch;
    do
        code = renew_once(renewal, error);
    while (code != SKR_OK && skr_messenger_may_try_again(&tries, code, error));
    return code;
}

// A row that cannot be renewed is let go: who claims it next says why. Such
// rows are found first, and nothing is committed: all others get one time, or
// keep theirs.
static enum skr_code
renew_batch(const struct skr_store *table, struct skr_db *db,
            struct skr_batch *batch, struct skr_error *error)
{
    struct renewal renewal = {.messenger = skr_messenger_of(table), .db = db};
    struct skr_error failure = {0};
    if (batch->lease.time[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the batch is not leased");
    enum skr_code code = skr_messenger_now(renewal.messenger, skr_db_tx(db),
                                           renewal.renewed.time, &failure);
    if (code == SKR_OK)
        code = renew_some(&renewal, batch, &failure);
    bool has_refused = code != SKR_OK && failure.remedy == SKR_GIVE_UP;
    if (has_refused) {
        renewal.is_trial = true;
        code = skr_apart_settle(batch, renew_some, &renewal, &failure);
        renewal.is_trial = false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct skr_batch_item *item = &batch->items[i];
        item->lost |= code == SKR_OK && item->write == SKR_WRITE_REFUSED;
        item->write = SKR_WRITE_WHOLE;
        item->refusal = NULL;
    }
    if (has_refused && code == SKR_OK)
        code = renew_some(&renewal, batch, &failure);
    if (code != SKR_OK)
        return skr_fail_with(error, &failure);
    batch->lease = renewal.renewed;
    return SKR_OK;
}

static enum skr_code
release(const struct skr_store *table, struct skr_db *db,
        struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = skr_messenger_list(skr_messenger_of(table), SKR_SQL_UNMARK),
        .first = {skr_bind_text(batch->lease.time)},
        .first_count = 1,
    };
    if (batch->lease.time[0] == '\0')
        return SKR_OK;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_list_run_items(skr_db_tx(db), &run, batch, is_ours, NULL, error);
    return skr_db_end(db, code, error);
}

const struct skr_lease_ops skr_messenger_leases = {
    .claim = claim,
    .rewind = rewind_to,
    .renew = renew_batch,
    .release = release,
};
