// SPDX-License-Identifier: MIT
// Claims of single rows, by a lease (lease.c says how that works): rows are
// locked by their primary key (scan.c, fetch.c), and the lease is written into
// them and committed.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/horizon.h"
#include "store/messenger/scan.h"

// Parameters: lease, ids.
#define MARK "UPDATE {table}{by_primary_key} SET delivered_at = ? WHERE "
// By the index on the times of claims: few have run out, however many rows
// wait. The oldest first.
// Parameters: queue, redeliver timeout, limit.
static const char find_expired_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_EXPIRED " AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY delivered_at LIMIT ?";
// Parameters: headers, id.
static const char raise_count_sql[] =
    "UPDATE {table} SET headers = ? WHERE id = ?";

// Leases that ran out are looked for so often, and those that last long less
// often: each look is a statement that an idle queue costs.
enum { EXPIRED_LOOK_MS = 5000, EXPIRED_LOOKS = 120 };

bool
skr_messenger_fill_claim(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, find_expired_sql,
                              &messenger->sql.find_expired) &&
           skr_messenger_fill_ranged(messenger, MARK SKR_IN_LIST,
                                     MARK SKR_IN_RANGE, &messenger->sql.mark) &&
           skr_messenger_fill(messenger, raise_count_sql,
                              &messenger->sql.raise_count);
}

// Rows whose tries cannot be counted, as the database refuses to change them.
enum { MOST_UNCOUNTED = 8 };

struct claiming {
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_position *position;
    const struct skr_read *read;
    struct skr_batch *batch;
    int64_t uncounted[MOST_UNCOUNTED];
    size_t uncounted_count;
    bool is_refused;  // one of them was found
    struct skr_error refusal;
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
        const struct skr_value values[] = {
            skr_bind_bytes(json.bytes, json.size),
            skr_bind_integer(item->row),
        };
        code = skr_tx_run(tx,
                          &(struct skr_statement){
                              .sql = messenger->sql.raise_count,
                              .values = values,
                              .value_count = SKR_COUNT_OF(values),
                          },
                          error);
    }
    skr_text_fini(&json);
    if (code == SKR_OK)
        envelope->retry_count++;
    return code;
}

static bool
is_any(const struct skr_batch_item *item)
{
    (void)item;
    return true;
}

// One that is refused is noted, and the claim done again without its count. A
// message that may have killed its consumer, and cannot run out of tries, is
// not handled: it has failed.
static enum skr_code
count_try(struct claiming *claiming, struct skr_batch_item *item,
          struct skr_error *error)
{
    struct skr_batch *batch = claiming->batch;
    for (size_t i = 0; i < claiming->uncounted_count; i++)
        if (claiming->uncounted[i] == item->row) {
            item->state = SKR_HOPELESS;
            skr_fail(&item->reason, SKR_REFUSED, SKR_GIVE_UP,
                     "its tries cannot be counted: %.300s",
                     claiming->refusal.text);
            return SKR_OK;
        }
    enum skr_code code =
        raise_count(claiming->messenger, skr_db_tx(claiming->db), &batch->arena,
                    item, &claiming->refusal);
    if (code == SKR_OK)
        return SKR_OK;
    bool is_noted = claiming->refusal.remedy == SKR_GIVE_UP &&
                    claiming->uncounted_count < MOST_UNCOUNTED;
    if (error != NULL)
        *error = claiming->refusal;
    if (is_noted) {
        claiming->uncounted[claiming->uncounted_count++] = item->row;
        claiming->is_refused = true;
    }
    return code;
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
        .sql = &messenger->sql.mark,
        .first = {skr_bind_text(lease->time)},
        .first_count = 1,
    };
    code = skr_list_run_items(tx, &run, batch, is_any, NULL, error);
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
    if (has_rows)
        code = write_lease(claiming, &lease, error);
    if (has_rows && code == SKR_OK)
        code = skr_db_commit(claiming->db, error);
    if (has_rows && code == SKR_OK) {
        batch->claim = SKR_CLAIM_LEASED;
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
        !skr_messenger_is_parked(found->read, columns[0].integer))
        found->rows[found->count++] = columns[0].integer;
    return SKR_OK;
}

static enum skr_code
find_expired(const struct claiming *claiming, struct found *found,
             struct skr_error *error)
{
    const struct skr_messenger *messenger = claiming->messenger;
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        skr_bind_integer(messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)(found->most + found->read->parked_count)),
    };
    return skr_tx_run(skr_db_tx(claiming->db),
                      &(struct skr_statement){
                          .sql = messenger->sql.find_expired,
                          .values = values,
                          .value_count = SKR_COUNT_OF(values),
                          .each_row = keep_row,
                          .user = found,
                      },
                      error);
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
        batch->count == 0 || size <= skr_messenger_room(claiming->read, batch);
    skr_messenger_note_sizes(claiming->position, 1, size);
    if (!is_free || !has_room)
        return SKR_OK;
    return skr_messenger_take_row(claiming->messenger,
                                  claiming->position->id_namespace, columns,
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
        .sql = &messenger->sql.scan.lock_ids,
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
    size_t room = skr_messenger_rows_for(claiming->position, read->max_bytes);
    if (read->counts_tries || room == 0)
        room = 1;
    return limit < room ? limit : room;
}

// Rows whose lease has run out.
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
is_worth_peeking(const struct claiming *claiming, struct skr_position *position,
                 bool *is_worth, struct skr_error *error)
{
    const struct skr_messenger *messenger = claiming->messenger;
    int64_t now_ms = skr_clock_ms(), last = 0;
    *is_worth = claiming->read->only != NULL ||
                messenger->sql.horizon[0] == '\0' || position->cursor == 0 ||
                position->has_more ||
                skr_messenger_is_pass_due(position, now_ms) ||
                skr_scan_is_held_due(position, now_ms) ||
                skr_horizon_is_late_possible(messenger->sql.horizon, position);
    if (*is_worth)
        return SKR_OK;
    enum skr_code code = skr_messenger_ask_rest(
        messenger, skr_db_tx(claiming->db), now_ms, position, &last, error);
    *is_worth =
        last > position->cursor || skr_messenger_is_pass_due(position, now_ms);
    return code;
}

// Looks without a lock first: those with nothing to do write nothing.
static enum skr_code
peek(const struct claiming *claiming, bool *is_empty, struct skr_error *error)
{
    struct skr_position looked = *claiming->position;
    struct skr_read one = *claiming->read;
    bool is_worth = false;
    if (one.max_rows > 1)
        one.max_rows = 1;
    enum skr_code code = is_worth_peeking(claiming, &looked, &is_worth, error);
    if (code == SKR_OK && is_worth)
        code =
            skr_messenger_look(claiming->messenger, SKR_SCAN_PEEK, claiming->db,
                               &looked, &one, claiming->batch, error);
    if (code != SKR_OK)
        return code;
    *is_empty = claiming->batch->count == 0;
    if (*is_empty)
        *claiming->position = looked;
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

static enum skr_code
claim_once(struct claiming *claiming, struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    int64_t now_ms = skr_clock_ms();
    bool is_empty = false;
    enum skr_code code =
        skr_messenger_learn(claiming->messenger, claiming->db, position, error);
    if (code != SKR_OK)
        return code;
    // Without an index the sweep finds them.
    if (position->next_expired_ms <= now_ms && !position->lacks_claims &&
        claiming->read->only == NULL) {
        code = claim_expired(claiming, error);
        // Others were not looked for.
        if (claiming->batch->count > 0)
            position->has_more = true;
        if (code != SKR_OK || claiming->batch->count > 0)
            return code;
        position->next_expired_ms =
            now_ms + expired_interval_ms(claiming->messenger);
    }
    // A full batch leaves no doubt that there is more to try for.
    if (!position->has_more)
        code = peek(claiming, &is_empty, error);
    if (code != SKR_OK || is_empty)
        return code;
    code = skr_db_begin(claiming->db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    struct skr_position moved = *position;
    code = skr_messenger_scan(claiming->messenger, SKR_SCAN_CLAIM,
                              skr_db_tx(claiming->db), &moved, claiming->read,
                              claiming->batch, error);
    code = end_claim(claiming, code, error);
    if (code == SKR_OK)
        *position = moved;
    return code;
}

static enum skr_code
claim_rows(struct claiming *claiming, struct skr_error *error)
{
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct skr_error failure = {0};
    enum skr_code code;
    do {
        claiming->is_refused = false;
        code = claim_once(claiming, &failure);
    } while (code != SKR_OK &&
             (claiming->is_refused ||
              skr_messenger_may_try_again(&tries, code, &failure)));
    if (code != SKR_OK && error != NULL)
        *error = failure;
    return code;
}

enum skr_code
skr_messenger_claim(const struct skr_store *table, struct skr_db *db,
                    struct skr_position *position, const struct skr_read *read,
                    struct skr_batch *batch, struct skr_error *error)
{
    struct claiming claiming = {
        .messenger = skr_messenger_of(table),
        .db = db,
        .position = position,
        .read = read,
        .batch = batch,
    };
    enum skr_code code = skr_messenger_follow(claiming.messenger, db, error);
    if (code != SKR_OK)
        return code;
    return claim_rows(&claiming, error);
}
