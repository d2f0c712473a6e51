// SPDX-License-Identifier: MIT
#include "outbox/settler.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 5000,
    AGAIN_PAUSE = 4,   // times as long as trying parked rows took
    OWNED_MS = 10000,  // how long a proof that the queue is ours will do
};

static struct skr_slot *
find_next(struct skr_settler *settler)
{
    struct skr_slot *next = NULL;
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        struct skr_slot *slot = &settler->slots[i];
        if (slot->state == SKR_SLOT_SETTLING &&
            (next == NULL || slot->turn < next->turn))
            next = slot;
    }
    return next;
}

// Whether it is time to try published rows again that are parked.
static bool
is_again_due(const struct skr_settler *settler)
{
    int64_t due_ms = skr_parked_due_ms(&settler->parked);
    return due_ms > 0 && due_ms <= skr_clock_ms();
}

static void
wait_for_change(struct skr_settler *settler)
{
    int64_t due_ms = skr_parked_due_ms(&settler->parked);
    if (due_ms == 0) {
        pthread_cond_wait(&settler->changed, &settler->lock);
        return;
    }
    int64_t wait_ms = due_ms - skr_clock_ms();
    struct timespec until =
        skr_clock_deadline(wait_ms > 0 ? (uint32_t)wait_ms : 0);
    pthread_cond_timedwait(&settler->changed, &settler->lock, &until);
}

// False when it is time to end. *slot is the next to settle; NULL: there are
// only parked rows to try.
static bool
wait_for_work(struct skr_settler *settler, struct skr_slot **slot)
{
    pthread_mutex_lock(&settler->lock);
    *slot = find_next(settler);
    while (*slot == NULL && !settler->ending && !is_again_due(settler)) {
        skr_beat_wait();
        wait_for_change(settler);
        skr_beat_resume();
        *slot = find_next(settler);
    }
    bool goes_on = !settler->given_up && (*slot != NULL || !settler->ending);
    pthread_mutex_unlock(&settler->lock);
    return goes_on;
}

// Whoever has lost the lock has no say in anything but that what the broker
// has stored is done: the row may be in other hands.
static void
leave_to_others(const struct skr_settler *settler, struct skr_batch *batch)
{
    int64_t owned_ms = atomic_load(&settler->owned_ms);
    if (batch->claim != SKR_CLAIM_NONE ||
        (owned_ms > 0 && skr_clock_ms() - owned_ms < OWNED_MS))
        return;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state != SKR_DONE)
            batch->items[i].state = SKR_READ;
}

static enum skr_code
open_database(const struct skr_settler *settler, struct skr_db **db,
              struct skr_error *error)
{
    enum skr_code code =
        skr_db_open(settler->database, settler->database_url, db, error);
    if (code != SKR_OK || (*db)->ops->plan_by_index == NULL)
        return code;
    code = (*db)->ops->plan_by_index(*db, error);
    if (code != SKR_OK) {
        skr_db_close(*db);
        *db = NULL;
    }
    return code;
}

// A connection to the server that the rows are of.
static enum skr_code
connect_for(const struct skr_settler *settler, const struct skr_batch *batch,
            struct skr_db **db, struct skr_error *error)
{
    if (*db != NULL && (*db)->server != batch->server) {
        skr_db_close(*db);
        *db = NULL;
    }
    enum skr_code code =
        *db == NULL ? open_database(settler, db, error) : SKR_OK;
    if (code != SKR_OK || (*db)->server == batch->server)
        return code;
    skr_db_close(*db);
    *db = NULL;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the DSN leads to another server than the one that is "
                    "read; nothing is settled there");
}

static void
log_forgotten(const struct skr_settler *settler, size_t rows)
{
    skr_log(settler->log, SKR_LOG_WARNING, "relay.server_changed",
            SKR_LOG_TEXT("name", settler->name),
            SKR_LOG_NUMBER("unsettled", rows));
}

// What became of rows of a server that is no longer read. Where the new one has
// them too they are sent again.
static bool
is_forgotten(struct skr_settler *settler, struct skr_batch *batch)
{
    size_t unsettled = 0;
    pthread_mutex_lock(&settler->lock);
    bool is_other = batch->server != settler->server;
    pthread_mutex_unlock(&settler->lock);
    if (!is_other)
        return false;
    for (size_t i = 0; i < batch->count; i++) {
        unsettled += skr_has_outcome(&batch->items[i]) &&
                     batch->items[i].write != SKR_WRITE_DONE;
        batch->items[i].state = SKR_READ;
    }
    if (unsettled > 0)
        log_forgotten(settler, unsettled);
    return true;
}

static enum skr_code
settle_batch(struct skr_settler *settler, struct skr_db **db,
             struct skr_batch *batch, struct skr_error *error)
{
    enum skr_code code = connect_for(settler, batch, db, error);
    if (code != SKR_OK)
        return code;
    leave_to_others(settler, batch);
    skr_failpoint("relay.settling");
    code = settler->table->ops->settle(settler->table, *db, batch, error);
    if (code != SKR_OK && error->remedy == SKR_GIVE_UP)
        skr_settler_leave_unpublished(settler, batch);
    if (code != SKR_OK && error->remedy != SKR_TRY_AGAIN) {
        skr_db_close(*db);
        *db = NULL;
    }
    return code;
}

// Published rows that are parked and due, as a batch.
static void
list_again(struct skr_settler *settler)
{
    struct skr_batch *batch = &settler->again;
    const struct skr_parked_row *rows = settler->again_rows;
    int64_t now_ms = skr_clock_ms();
    skr_batch_clear(batch);
    pthread_mutex_lock(&settler->lock);
    batch->count =
        skr_parked_take_due(&settler->parked, now_ms, now_ms + settler->park_ms,
                            settler->again_rows, SKR_MOST_AGAIN);
    batch->server = settler->server;
    pthread_mutex_unlock(&settler->lock);
    // What is done may go, whoever has it now; a share of the queue is fenced.
    batch->claim =
        settler->claim == SKR_CLAIM_SLOTS ? SKR_CLAIM_SLOTS : SKR_CLAIM_NONE;
    batch->lease = settler->lease;
    batch->is_late = true;
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i] = (struct skr_batch_item){
            .row = rows[i].row,
            .created_at = rows[i].created_at,
            .state = SKR_DONE,
        };
}

// Tries published rows that are parked, as many as go together. The rest of
// those that are due come next, unless the database can do nothing now.
static void
settle_again(struct skr_settler *settler, struct skr_db **db)
{
    struct skr_error error = {0};
    size_t settled = 0;
    int64_t began_ms = skr_clock_ms();
    list_again(settler);
    enum skr_code code = settle_batch(settler, db, &settler->again, &error);
    if (code == SKR_OK)
        settled = skr_settler_unpark(settler);
    int64_t now_ms = skr_clock_ms();
    pthread_mutex_lock(&settler->lock);
    if (code != SKR_OK)
        skr_parked_put_off(&settler->parked, now_ms + settler->park_ms);
    skr_settler_tell(settler);
    pthread_mutex_unlock(&settler->lock);
    settler->again_ms = now_ms + AGAIN_PAUSE * (now_ms - began_ms);
    if (settled > 0)
        skr_log(settler->log, SKR_LOG_INFO, "relay.unparked",
                SKR_LOG_TEXT("name", settler->name),
                SKR_LOG_NUMBER("rows", settled));
}

// Beside batches, and while one waits for room among the parked rows, as those
// that can be settled by now make the room. Many that are refused one by one
// take long: batches have the larger part of the time.
static void
settle_again_if_due(struct skr_settler *settler, struct skr_db **db)
{
    pthread_mutex_lock(&settler->lock);
    bool is_due = !settler->ending && is_again_due(settler);
    pthread_mutex_unlock(&settler->lock);
    if (is_due && settler->again_ms <= skr_clock_ms())
        settle_again(settler, db);
}

// Outcomes are known and must not be forgotten: what is confirmed would be
// sent again. So it tries until it succeeds or is told to give up.
static bool
settle(struct skr_settler *settler, struct skr_db **db, struct skr_slot *slot)
{
    for (uint32_t pause_ms = FIRST_PAUSE_MS;
         !is_forgotten(settler, &slot->batch);) {
        struct skr_error error = {0};
        enum skr_code code = settle_batch(settler, db, &slot->batch, &error);
        if (code == SKR_OK)
            code = skr_settler_reserve_parked(settler, &slot->batch, &error);
        if (code == SKR_OK)
            break;
        slot->batch.is_late = true;
        skr_trouble_report(&settler->trouble, settler->log,
                           "relay.settle_trouble", settler->name, &error);
        if (skr_clock_sleep(settler->give_up_fd, pause_ms))
            return false;
        settle_again_if_due(settler, db);
        pause_ms =
            pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
    }
    skr_trouble_end(&settler->trouble, settler->log, "relay.settle_recovered",
                    settler->name);
    skr_failpoint("relay.settled");
    return true;
}

static void
settle_slot(struct skr_settler *settler, struct skr_db *db,
            struct skr_slot *slot)
{
    skr_settler_park_refused(settler, &slot->batch);
    skr_settler_log_outcomes(settler, db, &slot->batch);
    settler->claim = slot->batch.claim;
    settler->lease = slot->batch.lease;
    pthread_mutex_lock(&settler->lock);
    skr_settler_count(settler, &slot->batch);
    skr_settler_tell(settler);
    skr_batch_clear(&slot->batch);
    slot->state = SKR_SLOT_FREE;
    pthread_cond_broadcast(&settler->changed);
    pthread_mutex_unlock(&settler->lock);
}

static void *
run(void *user)
{
    struct skr_settler *settler = user;
    struct skr_db *db = NULL;
    struct skr_slot *slot;
    skr_beat_begin(&settler->beat);
    while (wait_for_work(settler, &slot)) {
        if (slot == NULL) {
            settle_again(settler, &db);
            continue;
        }
        settle_again_if_due(settler, &db);
        if (!settle(settler, &db, slot))
            break;
        settle_slot(settler, db, slot);
    }
    skr_db_close(db);
    skr_beat_end();
    return NULL;
}

static enum skr_code
make_slot(struct skr_slot *slot, size_t capacity, struct skr_error *error)
{
    slot->passages = calloc(capacity, sizeof(slot->passages[0]));
    slot->links = calloc(capacity, sizeof(slot->links[0]));
    slot->done = calloc(capacity, sizeof(slot->done[0]));
    if (slot->passages == NULL || slot->links == NULL || slot->done == NULL)
        return skr_fail_memory(error);
    return skr_batch_init(&slot->batch, capacity, error);
}

static void
free_slots(struct skr_settler *settler)
{
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        skr_batch_fini(&settler->slots[i].batch);
        free(settler->slots[i].passages);
        free(settler->slots[i].links);
        free(settler->slots[i].done);
    }
    skr_batch_fini(&settler->again);
    skr_parked_fini(&settler->parked);
}

enum skr_code
skr_settler_start(struct skr_settler *settler, size_t batch_capacity,
                  struct skr_error *error)
{
    enum skr_code code = skr_batch_init(&settler->again, SKR_MOST_AGAIN, error);
    for (size_t i = 0; i < SKR_MAX_SLOTS && code == SKR_OK; i++)
        code = make_slot(&settler->slots[i], batch_capacity, error);
    if (code != SKR_OK)
        goto free_slots;
    settler->give_up_fd = eventfd(0, EFD_CLOEXEC);
    if (settler->give_up_fd < 0) {
        code = skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN, "eventfd: %s",
                        strerror(errno));
        goto free_slots;
    }
    pthread_mutex_init(&settler->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&settler->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failure = skr_thread_start(&settler->thread, run, settler);
    if (failure != 0) {
        code = skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "cannot start a thread: %s", strerror(failure));
        goto close_fd;
    }
    settler->running = true;
    return SKR_OK;
close_fd:
    pthread_cond_destroy(&settler->changed);
    pthread_mutex_destroy(&settler->lock);
    close(settler->give_up_fd);
free_slots:
    free_slots(settler);
    return code;
}

enum skr_slot_state
skr_settler_state(struct skr_settler *settler, const struct skr_slot *slot)
{
    pthread_mutex_lock(&settler->lock);
    enum skr_slot_state state = slot->state;
    pthread_mutex_unlock(&settler->lock);
    return state;
}

static struct skr_slot *
find_in_state(struct skr_settler *settler, enum skr_slot_state state)
{
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++)
        if (settler->slots[i].state == state)
            return &settler->slots[i];
    return NULL;
}

void
skr_settler_work_on(struct skr_settler *settler, uint64_t server)
{
    size_t published = 0;
    pthread_mutex_lock(&settler->lock);
    if (settler->server != server) {
        published = settler->parked.published;
        skr_parked_clear(&settler->parked);
    }
    settler->server = server;
    pthread_mutex_unlock(&settler->lock);
    if (published > 0)
        log_forgotten(settler, published);
}

struct skr_slot *
skr_settler_take_free(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    struct skr_slot *slot = find_in_state(settler, SKR_SLOT_FREE);
    if (slot != NULL) {
        slot->state = SKR_SLOT_OPEN;
        slot->batch.server = settler->server;
    }
    pthread_mutex_unlock(&settler->lock);
    return slot;
}

struct skr_slot *
skr_settler_find_open(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    struct skr_slot *slot = find_in_state(settler, SKR_SLOT_OPEN);
    pthread_mutex_unlock(&settler->lock);
    return slot;
}

void
skr_settler_put_back(struct skr_settler *settler, struct skr_slot *slot)
{
    skr_batch_clear(&slot->batch);
    pthread_mutex_lock(&settler->lock);
    slot->state = SKR_SLOT_FREE;
    pthread_mutex_unlock(&settler->lock);
}

static size_t
list_done(const struct skr_batch *batch, int64_t *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state == SKR_DONE)
            rows[count++] = batch->items[i].row;
    return count;
}

void
skr_settler_hand_over(struct skr_settler *settler, struct skr_slot *slot)
{
    slot->done_count = list_done(&slot->batch, slot->done);
    pthread_mutex_lock(&settler->lock);
    slot->turn = settler->next_turn++;
    slot->state = SKR_SLOT_SETTLING;
    pthread_cond_broadcast(&settler->changed);
    pthread_mutex_unlock(&settler->lock);
}

size_t
skr_settler_list_rows(struct skr_settler *settler, int64_t *rows)
{
    size_t count = 0;
    pthread_mutex_lock(&settler->lock);
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        const struct skr_slot *slot = &settler->slots[i];
        if (slot->state == SKR_SLOT_FREE)
            continue;
        for (size_t item = 0; item < slot->batch.count; item++)
            rows[count++] = slot->batch.items[item].row;
    }
    pthread_mutex_unlock(&settler->lock);
    qsort(rows, count, sizeof(*rows), skr_compare_rows);
    return count;
}

size_t
skr_settler_list_done(struct skr_settler *settler, int64_t *rows)
{
    size_t count = 0;
    pthread_mutex_lock(&settler->lock);
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        const struct skr_slot *slot = &settler->slots[i];
        switch (slot->state) {
        case SKR_SLOT_FREE: break;
        case SKR_SLOT_OPEN:
            count += list_done(&slot->batch, rows + count);
            break;
        case SKR_SLOT_SETTLING:
            // What becomes of the batch is the settler's business now.
            memcpy(rows + count, slot->done,
                   slot->done_count * sizeof(rows[0]));
            count += slot->done_count;
            break;
        }
    }
    count += skr_parked_list_published(&settler->parked, true, rows + count);
    pthread_mutex_unlock(&settler->lock);
    qsort(rows, count, sizeof(*rows), skr_compare_rows);
    return count;
}

bool
skr_settler_wait(struct skr_settler *settler, uint32_t timeout_ms)
{
    struct timespec deadline = skr_clock_deadline(timeout_ms);
    pthread_mutex_lock(&settler->lock);
    if (find_next(settler) != NULL)
        pthread_cond_timedwait(&settler->changed, &settler->lock, &deadline);
    bool idle = find_next(settler) == NULL;
    pthread_mutex_unlock(&settler->lock);
    return idle;
}

struct skr_settler_counts
skr_settler_counts(struct skr_settler *settler)
{
    if (!settler->running)
        return settler->counts;
    pthread_mutex_lock(&settler->lock);
    struct skr_settler_counts counts = settler->counts;
    pthread_mutex_unlock(&settler->lock);
    return counts;
}

void
skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms)
{
    if (!settler->running)
        return;
    int64_t end = skr_clock_ms() + timeout_ms;
    while (!skr_settler_wait(settler, 100) && skr_clock_ms() < end)
        ;
    pthread_mutex_lock(&settler->lock);
    settler->ending = true;
    settler->given_up = find_next(settler) != NULL;
    pthread_cond_broadcast(&settler->changed);
    bool given_up = settler->given_up;
    pthread_mutex_unlock(&settler->lock);
    if (given_up)
        eventfd_write(settler->give_up_fd, 1);
    pthread_join(settler->thread, NULL);
    settler->running = false;
    pthread_cond_destroy(&settler->changed);
    pthread_mutex_destroy(&settler->lock);
    close(settler->give_up_fd);
    free_slots(settler);
}
