// SPDX-License-Identifier: MIT
// Reading with as few statements as can be, where little is to be read. One
// statement is a snapshot by itself: it reads whole rows from the low-water
// mark on, so that what committed late and what is new come together, and rows
// that are in hand are passed over. A full scan is for everything else: for
// backlogs, passes and sweeps.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/horizon.h"
#include "store/messenger/layout.h"

enum {
    MOST_IN_HAND = 64,  // rows that are read again and passed over
    MOST_BYTES_IN_HAND = 256 * 1024,  // the same in bytes
    REST_MS = 100,   // how often to ask what else there is, at most
    STEADY_MS = 50,  // so soon after a row the next one is expected
};

struct glance {
    const struct skr_messenger *messenger;
    struct skr_position position;
    const struct skr_read *read;
    struct skr_batch *batch;
    size_t seen;
    size_t seen_bytes;
    bool is_full;
};

static enum skr_code
take(const struct skr_value *columns, size_t count, void *user,
     struct skr_error *error)
{
    (void)count;
    struct glance *glance = user;
    struct skr_batch *batch = glance->batch;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    glance->seen++;
    glance->seen_bytes += size;
    if (skr_messenger_is_in_hand(glance->read, row) ||
        (row <= glance->position.cursor &&
         skr_messenger_is_waiting(glance->read, row)))
        return SKR_OK;
    bool has_company = batch->count > 0 || glance->read->in_hand_count > 0;
    glance->is_full =
        batch->count == batch->capacity ||
        batch->count == glance->read->max_rows ||
        (has_company && size > skr_messenger_room(glance->read, batch));
    if (glance->is_full)
        return SKR_STOPPED;
    enum skr_code code =
        skr_messenger_take_row(glance->messenger, glance->position.id_namespace,
                               columns, batch, error);
    if (code == SKR_OK && row > glance->position.cursor)
        skr_horizon_move(&glance->position, row);
    return code;
}

// How many rows a glance may bring, in hand or not; 0: it is none.
static size_t
choose_limit(const struct skr_position *position, const struct skr_read *read)
{
    size_t rows = skr_messenger_rows_for(position, read->max_bytes);
    rows = rows < read->max_rows ? rows : read->max_rows;
    size_t passed = skr_messenger_count_known(read) + read->waiting_count;
    if (rows == 0 || passed > MOST_IN_HAND ||
        passed * position->row_size > MOST_BYTES_IN_HAND)
        return 0;
    return rows + passed;
}

static enum skr_code
glance_at(struct glance *glance, struct skr_tx tx, size_t limit, int64_t now_ms,
          struct skr_error *error)
{
    const struct skr_messenger *messenger = glance->messenger;
    struct skr_position *position = &glance->position;
    bool may_be_late =
        skr_horizon_is_late_possible(messenger->sql.horizon, position);
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        skr_messenger_bind_cursor(may_be_late ? position->low_water
                                              : position->cursor),
        skr_bind_integer(messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)limit),
    };
    enum skr_code code =
        skr_tx_run(tx,
                   &(struct skr_statement){.sql = messenger->sql.scan.beyond,
                                           .values = values,
                                           .value_count = SKR_COUNT_OF(values),
                                           .each_row = take,
                                           .user = glance},
                   error);
    skr_messenger_note_sizes(position, glance->seen, glance->seen_bytes);
    if (code == SKR_STOPPED && glance->is_full)
        code = SKR_OK;
    position->has_more = glance->is_full || glance->seen == limit;
    // What was not seen is still behind: the mark must not pass it.
    if (code != SKR_OK || position->has_more || !may_be_late)
        return code;
    return skr_horizon_follow(messenger->sql.horizon, messenger->is_ordered, tx,
                              now_ms, position, error);
}

// While rows may be late a glance is needed anyway. In a steady stream every
// other look finds something: a glance alone is one statement then, and to ask
// first would be two.
static bool
is_glance_due(const struct skr_messenger *messenger, int64_t now_ms,
              const struct skr_position *position)
{
    return skr_horizon_is_late_possible(messenger->sql.horizon, position) ||
           (!messenger->is_ordered &&
            now_ms - position->glanced_row_ms < STEADY_MS);
}

// Whether there may be something to read. *is_worth stays as it is where one
// statement more would tell less than a glance does; what else there is gets
// asked now and then in place of one.
static enum skr_code
ask_rest(const struct skr_messenger *messenger, struct skr_tx tx,
         int64_t now_ms, struct skr_position *position, bool *is_worth,
         struct skr_error *error)
{
    if (is_glance_due(messenger, now_ms, position) &&
        (!position->has_glanced || now_ms < position->next_rest_ms))
        return SKR_OK;
    int64_t last = 0;
    enum skr_code code =
        skr_messenger_ask_rest(messenger, tx, now_ms, position, &last, error);
    if (code != SKR_OK)
        return code;
    position->next_rest_ms = now_ms + REST_MS;
    position->has_glanced = false;
    *is_worth =
        last > position->cursor || skr_messenger_is_pass_due(position, now_ms);
    return code;
}

// *is_enough: there is no need for a full scan.
static enum skr_code
look_briefly(const struct skr_messenger *messenger, struct skr_db *db,
             struct skr_position *position, const struct skr_read *read,
             struct skr_batch *batch, bool *is_enough, struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    struct skr_tx tx = skr_db_tx(db);
    size_t limit = choose_limit(position, read);
    bool may_be_late =
        skr_horizon_is_late_possible(messenger->sql.horizon, position);
    // A glance does not tell what is late from what is new; order needs that.
    if (messenger->is_ordered)
        limit = 0;
    if (messenger->sql.horizon[0] == '\0' || position->cursor == 0 ||
        position->has_more || (may_be_late && limit == 0) ||
        skr_messenger_is_pass_due(position, now_ms))
        return SKR_OK;
    // Without room for a glance it is no use to expect something of it.
    if (limit == 0)
        position->glanced_row_ms = 0;
    bool is_worth = true;
    enum skr_code code =
        ask_rest(messenger, tx, now_ms, position, &is_worth, error);
    *is_enough = code == SKR_OK && !is_worth;
    if (code != SKR_OK || !is_worth || limit == 0 ||
        skr_messenger_is_pass_due(position, now_ms))
        return code;
    struct glance glance = {.messenger = messenger,
                            .position = *position,
                            .read = read,
                            .batch = batch};
    code = glance_at(&glance, tx, limit, now_ms, error);
    if (code != SKR_OK) {
        skr_batch_clear(batch);
        return code;
    }
    // If there was said to be something and none of it is for us, then rows of
    // others, or rows that wait, are there: the cursor has to pass them.
    bool was_asked = position->next_rest_ms == now_ms + REST_MS;
    *position = glance.position;
    if (batch->count > 0)
        position->glanced_row_ms = now_ms;
    skr_messenger_settle_mark(messenger, position);
    position->has_glanced = true;
    *is_enough = batch->count > 0 || !was_asked;
    return SKR_OK;
}

enum skr_code
skr_messenger_read(const struct skr_store *table, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    bool is_enough = false;
    int64_t cursor = position->cursor;
    enum skr_code code = skr_messenger_follow(messenger, db, error);
    if (code == SKR_OK)
        code = skr_messenger_learn(messenger, db, position, error);
    if (code == SKR_OK && read->only == NULL)
        code = look_briefly(messenger, db, position, read, batch, &is_enough,
                            error);
    if (code == SKR_OK && !is_enough)
        code = skr_messenger_look(messenger, SKR_SCAN_READ, db, position, read,
                                  batch, error);
    // Rows of other shards tell of the pace at which rows come: whose shard the
    // next one is of is chance.
    if (batch->count > 0 ||
        (messenger->owner != NULL && position->cursor > cursor))
        db->found_rows = true;
    return code;
}
