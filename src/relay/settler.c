// SPDX-License-Identifier: MIT
// The settler's thread, the two queues between it and the session, and what the
// session's thread does with what comes back: counts and logs it, parks rows
// that the database refuses to change, and has them tried again.

#include "relay/settler.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "message/id.h"
#include "relay/ownership.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 5000,
    STOP_WAIT_MS = 100,
    TAKE_WAIT_MS = 20,
    MOST_AGAIN = 64,  // parked rows that are settled together
    MOST_LINES = 5,   // about one batch
    AGAIN_PAUSE = 4,  // times as long as trying parked rows took
};

// First in, first out.
struct jobs {
    struct skr_job *first, *last;
};

// The session's thread alone has this.
struct parking {
    uint64_t server;       // that the parked rows are of
    size_t unreturned;     // jobs that were put and not taken
    struct skr_job again;  // published rows that are tried once more
    struct skr_parked_row again_rows[MOST_AGAIN];
    bool is_again_put;
    int64_t again_ms;  // not before, beside batches

    // Jobs whose refused rows find no room here, to be settled once more.
    struct skr_job *deferred;
    int64_t deferred_ms;  // when
    struct skr_backoff backoff;
    size_t deferred_count;       // jobs that wait, or are being settled again
    struct skr_trouble trouble;  // that there is no room
};

struct skr_settler {
    const struct skr_relay_settings *settings;
    const struct skr_ownership *ownership;
    struct skr_parked *parked;
    struct skr_beat *beat;
    struct parking parking;
    struct skr_db *db;  // the thread's
    struct skr_trouble trouble;
    pthread_t thread;
    bool is_running;
    int give_up_fd;

    pthread_mutex_t lock;
    pthread_cond_t changed;  // any of these:
    struct jobs waiting, settled;
    bool is_busy;     // a job is neither here nor there
    bool is_ending;   // end once nothing waits
    bool gives_up;    // end now; what is not settled will be sent again
    uint64_t server;  // that is read now
};

static void
push(struct jobs *jobs, struct skr_job *job)
{
    job->next = NULL;
    if (jobs->first == NULL)
        jobs->first = job;
    else
        jobs->last->next = job;
    jobs->last = job;
}

static struct skr_job *
pop(struct jobs *jobs)
{
    struct skr_job *job = jobs->first;
    if (job != NULL)
        jobs->first = job->next;
    return job;
}

// The next job, or NULL when it is time to end.
static struct skr_job *
wait_for_job(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    skr_beat_wait();
    while (settler->waiting.first == NULL && !settler->is_ending)
        pthread_cond_wait(&settler->changed, &settler->lock);
    skr_beat_resume();
    struct skr_job *job = settler->gives_up ? NULL : pop(&settler->waiting);
    settler->is_busy = job != NULL;
    pthread_mutex_unlock(&settler->lock);
    return job;
}

// What the broker has stored is done, whichever relay owns the row by now.
// Anything else is for the next owner to write.
static void
leave_to_owner(const struct skr_settler *settler, struct skr_batch *batch)
{
    if (skr_ownership_may_decide(settler->ownership))
        return;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state != SKR_DONE)
            batch->items[i].state = SKR_READ;
}

static void
close_database(struct skr_settler *settler)
{
    skr_db_close(settler->db);
    settler->db = NULL;
}

static enum skr_code
open_database(struct skr_settler *settler, struct skr_error *error)
{
    enum skr_code code =
        skr_db_open(settler->settings->database,
                    settler->settings->database_url, &settler->db, error);
    if (code != SKR_OK)
        return code;
    code = settler->db->ops->plan_by_index(settler->db, error);
    if (code != SKR_OK)
        close_database(settler);
    return code;
}

// A connection to the server that the rows are of.
static enum skr_code
connect_for(struct skr_settler *settler, const struct skr_batch *batch,
            struct skr_error *error)
{
    if (settler->db != NULL && settler->db->server != batch->server)
        close_database(settler);
    enum skr_code code =
        settler->db == NULL ? open_database(settler, error) : SKR_OK;
    if (code != SKR_OK || settler->db->server == batch->server)
        return code;
    close_database(settler);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the DSN leads to another server than the one that is "
                    "read; nothing is settled there");
}

static void
log_server_changed(const struct skr_settler *settler, size_t unsettled)
{
    if (unsettled > 0)
        skr_log(&settler->settings->log, SKR_LOG_WARNING,
                "relay.server_changed",
                SKR_LOG_TEXT("name", settler->settings->name),
                SKR_LOG_NUMBER("unsettled", unsettled));
}

// Rows of a server that is no longer read. Where the new one has them too they
// are sent again.
static bool
is_of_another_server(struct skr_settler *settler, struct skr_batch *batch)
{
    size_t unsettled = 0;
    pthread_mutex_lock(&settler->lock);
    bool is_other = batch->server != settler->server;
    pthread_mutex_unlock(&settler->lock);
    if (!is_other)
        return false;
    for (size_t i = 0; i < batch->count; i++) {
        unsettled += skr_has_result(&batch->items[i]) &&
                     batch->items[i].write != SKR_WRITE_DONE;
        batch->items[i].state = SKR_READ;
    }
    log_server_changed(settler, unsettled);
    return true;
}

// The table cannot be written: what is published is tried until it can, and the
// rest stays where it is, to be read again after a while.
static void
leave_unpublished(struct skr_job *job)
{
    struct skr_batch *batch = &job->batch;
    for (size_t i = 0; i < batch->count; i++) {
        struct skr_batch_item *item = &batch->items[i];
        if (!skr_has_result(item) || item->state == SKR_DONE ||
            !skr_is_written_now(item))
            continue;
        item->state = SKR_READ;
        item->is_put_back = true;
        job->refused_ms = skr_clock_ms();
    }
}

static enum skr_code
settle_once(struct skr_settler *settler, struct skr_job *job,
            struct skr_error *error)
{
    const struct skr_store *table = settler->settings->table;
    enum skr_code code = connect_for(settler, &job->batch, error);
    if (code != SKR_OK)
        return code;
    leave_to_owner(settler, &job->batch);
    skr_failpoint("relay.settling");
    code = table->settle->write(table, settler->db, &job->batch, error);
    if (code != SKR_OK && error->remedy == SKR_GIVE_UP)
        leave_unpublished(job);
    if (code != SKR_OK && error->remedy != SKR_TRY_AGAIN)
        close_database(settler);
    return code;
}

// Decisions are known and must not be forgotten: what is confirmed would be
// sent again. So the settler tries until it succeeds or is to give up.
static bool
settle(struct skr_settler *settler, struct skr_job *job)
{
    struct skr_backoff backoff = {.first_ms = FIRST_PAUSE_MS,
                                  .longest_ms = LONGEST_PAUSE_MS};
    const struct skr_relay_settings *settings = settler->settings;
    while (!is_of_another_server(settler, &job->batch)) {
        struct skr_error error = {0};
        job->has_failed = settle_once(settler, job, &error) != SKR_OK;
        if (!job->has_failed)
            break;
        if (job == &settler->parking.again)
            return true;
        job->batch.is_late = true;
        skr_trouble_report(&settler->trouble, &settings->log,
                           SKR_TROUBLE_SETTLE, "relay.settle_trouble",
                           settings->name, &error);
        if (skr_clock_sleep(settler->give_up_fd, skr_backoff_next(&backoff)))
            return false;
    }
    skr_trouble_end(&settler->trouble, &settings->log, SKR_TROUBLE_SETTLE,
                    "relay.settle_recovered", settings->name);
    skr_failpoint("relay.settled");
    return true;
}

static void *
run(void *user)
{
    struct skr_settler *settler = user;
    struct skr_job *job;
    skr_beat_begin(settler->beat);
    while ((job = wait_for_job(settler)) != NULL) {
        int64_t began_ms = skr_clock_ms();
        bool is_settled = settle(settler, job);
        job->took_ms = skr_clock_ms() - began_ms;
        pthread_mutex_lock(&settler->lock);
        if (is_settled)
            push(&settler->settled, job);
        settler->is_busy = false;
        pthread_cond_broadcast(&settler->changed);
        pthread_mutex_unlock(&settler->lock);
        if (!is_settled)
            break;
    }
    close_database(settler);
    skr_beat_end();
    return NULL;
}

enum skr_code
skr_settler_start(const struct skr_relay_settings *settings,
                  const struct skr_ownership *ownership,
                  struct skr_parked *parked, struct skr_beat *beat,
                  struct skr_settler **settler, struct skr_error *error)
{
    struct skr_settler *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->settings = settings;
    made->ownership = ownership;
    made->parked = parked;
    made->beat = beat;
    made->parking.backoff = (struct skr_backoff){
        .first_ms = FIRST_PAUSE_MS, .longest_ms = LONGEST_PAUSE_MS};
    made->give_up_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&made->lock, NULL);
    int failure = skr_condition_init(&made->changed);
    enum skr_code code =
        skr_batch_init(&made->parking.again.batch, MOST_AGAIN, error);
    if (code != SKR_OK) {
        skr_settler_free(made);
        return code;
    }
    if (failure == 0)
        failure = made->give_up_fd < 0
                      ? errno
                      : skr_thread_start(&made->thread, run, made);
    if (failure != 0) {
        skr_settler_free(made);
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "cannot start a thread: %s", strerror(failure));
    }
    made->is_running = true;
    *settler = made;
    return SKR_OK;
}

void
skr_settler_work_on(struct skr_settler *settler, uint64_t server)
{
    struct skr_parked *parked = settler->parked;
    size_t published = parked->published;
    pthread_mutex_lock(&settler->lock);
    settler->server = server;
    pthread_mutex_unlock(&settler->lock);
    if (settler->parking.server == server)
        return;
    settler->parking.server = server;
    skr_parked_clear(parked);
    log_server_changed(settler, published);
}

static void
put(struct skr_settler *settler, struct skr_job *job)
{
    pthread_mutex_lock(&settler->lock);
    push(&settler->waiting, job);
    pthread_cond_broadcast(&settler->changed);
    pthread_mutex_unlock(&settler->lock);
}

void
skr_settler_put(struct skr_settler *settler, struct skr_job *job)
{
    settler->parking.unreturned++;
    put(settler, job);
}

bool
skr_settler_is_busy(const struct skr_settler *settler)
{
    return settler->parking.unreturned > 0;
}

// What follows is on the session's thread.

static struct skr_parked_row
row_of(const struct skr_batch_item *item)
{
    struct skr_parked_row row = {.row = item->row};
    if (item->created_at != NULL)
        snprintf(row.created_at, sizeof(row.created_at), "%s",
                 item->created_at);
    return row;
}

static bool
is_refused(const struct skr_batch_item *item)
{
    return item->write == SKR_WRITE_REFUSED;
}

// Whether the published rows of the batch that were refused find room. What is
// parked is sent once more by the next relay: its number is bounded for that.
static bool
has_room(struct skr_settler *settler, const struct skr_batch *batch)
{
    size_t published = 0;
    for (size_t i = 0; i < batch->count; i++)
        published +=
            is_refused(&batch->items[i]) && batch->items[i].state == SKR_DONE;
    return published == 0 || skr_parked_reserve(settler->parked, published);
}

// The job is settled once more after a while.
static void
defer(struct skr_settler *settler, struct skr_job *job)
{
    const struct skr_relay_settings *settings = settler->settings;
    struct parking *parking = &settler->parking;
    struct skr_batch *batch = &job->batch;
    struct skr_error error = {0};
    for (size_t i = 0; i < batch->count; i++)
        if (is_refused(&batch->items[i]))
            batch->items[i].write = SKR_WRITE_WHOLE;
    batch->is_late = true;
    skr_fail(&error, SKR_REFUSED, SKR_TRY_AGAIN,
             "the database refuses to change %d published rows of the outbox, "
             "as relay.row_parked says; no more are sent",
             SKR_MOST_PARKED_PUBLISHED);
    skr_trouble_report(&parking->trouble, &settings->log, SKR_TROUBLE_SETTLE,
                       "relay.settle_trouble", settings->name, &error);
    if (parking->deferred == NULL)
        parking->deferred_ms =
            skr_clock_ms() + skr_backoff_next(&parking->backoff);
    job->next = parking->deferred;
    parking->deferred = job;
    parking->deferred_count += !job->was_deferred;
    job->was_deferred = true;
}

// The job is settled. Once all are that had found no room the trouble is over.
static void
note_settled(struct skr_settler *settler, struct skr_job *job)
{
    struct parking *parking = &settler->parking;
    parking->deferred_count -= job->was_deferred;
    job->was_deferred = false;
    if (parking->deferred_count > 0)
        return;
    skr_backoff_reset(&parking->backoff);
    skr_trouble_end(&parking->trouble, &settler->settings->log,
                    SKR_TROUBLE_SETTLE, "relay.settle_recovered",
                    settler->settings->name);
}

static void
log_refusal(const struct skr_settler *settler,
            const struct skr_batch_item *item)
{
    const char *outcome = item->state == SKR_READ ? "unclaimed" : "retry";
    char id[SKR_ID_TEXT_SIZE];
    if (item->state == SKR_DONE)
        outcome = "published";
    else if (item->state == SKR_DEAD)
        outcome = "failed";
    else if (item->state == SKR_BLOCKED)
        outcome = "blocked";
    skr_log(&settler->settings->log, SKR_LOG_WARNING,
            is_refused(item) ? "relay.row_parked" : "relay.row_stays",
            SKR_LOG_TEXT("name", settler->settings->name),
            SKR_LOG_TEXT("id", skr_id_show(item->envelope.message.id, id)),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_TEXT("outcome", outcome),
            SKR_LOG_TEXT("error", item->refusal),
            SKR_LOG_TEXT("cure",
                         is_refused(item)
                             ? "mend what refuses to change the row; until "
                               "then the row is left alone and tried now and "
                               "then"
                             : "mend what refuses to change the row; the "
                               "outcome alone was written to it"));
}

// Notes what the database refused. True: it was not known.
static bool
note_refusal(struct skr_settler *settler, const struct skr_batch_item *item)
{
    // It is gone for good, but for a retry: that may come again.
    if (!is_refused(item) && item->state != SKR_RETRY_LATER)
        return true;
    struct skr_parked_row row = row_of(item);
    row.is_published = is_refused(item) && item->state == SKR_DONE;
    if (is_refused(item))
        row.until_ms = skr_clock_ms() + settler->settings->park_ms;
    return skr_parked_add(settler->parked, row);
}

bool
skr_settler_park(struct skr_settler *settler, const struct skr_batch_item *item)
{
    bool is_new = note_refusal(settler, item);
    bool has_room = skr_parked_knows(settler->parked, item->row);
    if (is_new && has_room)
        log_refusal(settler, item);
    return has_room;
}

// Parks a row that was refused, or takes one out that no longer is. True: its
// refusal was not known.
static bool
park(struct skr_settler *settler, const struct skr_job *job,
     const struct skr_batch_item *item)
{
    struct skr_parked *parked = settler->parked;
    if (item->is_put_back) {
        struct skr_parked_row row = row_of(item);
        row.until_ms = job->refused_ms + settler->settings->park_ms;
        skr_parked_add(parked, row);
        return false;
    }
    if (!skr_has_result(item))
        return false;
    if (item->refusal != NULL)
        return note_refusal(settler, item);
    skr_parked_remove(parked, item->row);
    return false;
}

// False: there is no room, and the job stays here until it is settled once
// more.
static bool
park_refused(struct skr_settler *settler, struct skr_job *job)
{
    const struct skr_batch *batch = &job->batch;
    size_t logged = 0;
    if (!has_room(settler, batch)) {
        defer(settler, job);
        return false;
    }
    note_settled(settler, job);
    // A row of another server is none of those that are parked.
    for (size_t i = 0;
         i < batch->count && batch->server == settler->parking.server; i++)
        if (park(settler, job, &batch->items[i]) && ++logged <= MOST_LINES)
            log_refusal(settler, &batch->items[i]);
    if (logged > MOST_LINES)
        skr_log(&settler->settings->log, SKR_LOG_WARNING, "relay.refused_more",
                SKR_LOG_TEXT("name", settler->settings->name),
                SKR_LOG_NUMBER("rows", logged - MOST_LINES));
    job->refused_ms = 0;
    return true;
}

static void
count_batch(const struct skr_settler *settler, const struct skr_batch *batch)
{
    struct skr_relay_tally *tally = settler->settings->tally;
    uint64_t counts[SKR_BLOCKED + 1] = {0};
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        counts[item->state] +=
            item->state == SKR_DONE || item->write != SKR_WRITE_REFUSED;
    }
    atomic_fetch_add(&tally->published, counts[SKR_DONE]);
    atomic_fetch_add(&tally->retried, counts[SKR_RETRY_LATER]);
    atomic_fetch_add(&tally->failed, counts[SKR_DEAD]);
    atomic_fetch_add(&tally->blocked, counts[SKR_BLOCKED]);
}

// Nothing of the partition is sent before a person acts.
static void
log_blocked(const struct skr_settler *settler,
            const struct skr_batch_item *item, struct skr_db *db)
{
    const struct skr_relay_settings *settings = settler->settings;
    const struct skr_store *table = settings->table;
    uint64_t length = 0;
    char id[SKR_ID_TEXT_SIZE];
    // Of no weight: if it cannot be asked, or would be for many partitions (db
    // is NULL), the rest is logged all the same.
    if (db == NULL || table->partitions->measure(table, db, item->partition_key,
                                                 &length, NULL) != SKR_OK)
        length = 0;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.partition_blocked",
            SKR_LOG_TEXT("name", settings->name),
            SKR_LOG_TEXT("partition", item->partition_key),
            SKR_LOG_TEXT("id", skr_id_show(item->envelope.message.id, id)),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_NUMBER("length", length),
            SKR_LOG_TEXT("error", item->reason.text),
            SKR_LOG_TEXT("cure", "mend the cause and run `skirnir partition "
                                 "retry`, or `skirnir partition skip`"));
}

// Each by itself while they are few; a batch full of them is one event.
static void
log_failures(const struct skr_settler *settler, const struct skr_batch *batch,
             struct skr_db *db)
{
    const struct skr_relay_settings *settings = settler->settings;
    size_t failed = 0, blocked = 0;
    char id[SKR_ID_TEXT_SIZE];
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->write == SKR_WRITE_REFUSED)
            continue;
        if (item->state == SKR_BLOCKED)
            log_blocked(settler, item, ++blocked <= MOST_LINES ? db : NULL);
        if (item->state != SKR_DEAD || ++failed > MOST_LINES)
            continue;
        skr_log(&settings->log, SKR_LOG_WARNING, "relay.failed",
                SKR_LOG_TEXT("name", settings->name),
                SKR_LOG_TEXT("id", skr_id_show(item->envelope.message.id, id)),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", item->reason.text));
    }
    if (failed > MOST_LINES)
        skr_log(&settings->log, SKR_LOG_WARNING, "relay.failed_more",
                SKR_LOG_TEXT("name", settings->name),
                SKR_LOG_NUMBER("rows", failed - MOST_LINES));
}

// Published rows that are parked and due, as a job.
static struct skr_job *
list_again(struct skr_settler *settler)
{
    struct parking *parking = &settler->parking;
    struct skr_batch *batch = &parking->again.batch;
    const struct skr_parked_row *rows = parking->again_rows;
    int64_t now_ms = skr_clock_ms();
    skr_batch_clear(batch);
    batch->count = skr_parked_take_due(settler->parked, now_ms,
                                       now_ms + settler->settings->park_ms,
                                       parking->again_rows, MOST_AGAIN);
    batch->server = parking->server;
    skr_ownership_stamp(settler->ownership, batch);
    batch->is_late = true;
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i] = (struct skr_batch_item){
            .row = rows[i].row,
            .created_at = rows[i].created_at,
            .state = SKR_DONE,
        };
    parking->is_again_put = true;
    return &parking->again;
}

// Those rows have come back. Many that are refused one by one take long, and
// batches have the larger part of the settler's time.
static void
note_again(struct skr_settler *settler)
{
    struct parking *parking = &settler->parking;
    struct skr_parked *parked = settler->parked;
    const struct skr_batch *batch = &parking->again.batch;
    size_t settled = 0;
    int64_t now_ms = skr_clock_ms();
    parking->is_again_put = false;
    parking->again_ms = now_ms + AGAIN_PAUSE * parking->again.took_ms;
    if (parking->again.has_failed) {
        skr_parked_defer(parked, now_ms + settler->settings->park_ms);
        return;
    }
    for (size_t i = 0; i < batch->count && batch->server == parking->server;
         i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->is_replaced)
            settled += skr_parked_replace(parked, item->row);
        else if (!item->lost && !is_refused(item))
            settled += skr_parked_remove(parked, item->row);
    }
    if (settled > 0)
        skr_log(&settler->settings->log, SKR_LOG_INFO, "relay.unparked",
                SKR_LOG_TEXT("name", settler->settings->name),
                SKR_LOG_NUMBER("rows", settled));
}

// When parked rows are to be settled again; 0: never.
static int64_t
again_ms(const struct skr_settler *settler)
{
    const struct parking *parking = &settler->parking;
    if (parking->is_again_put || !skr_ownership_has_rows(settler->ownership))
        return 0;
    int64_t due_ms = skr_parked_due_ms(settler->parked);
    return due_ms > 0 && skr_settler_is_busy(settler) &&
                   due_ms < parking->again_ms
               ? parking->again_ms
               : due_ms;
}

int64_t
skr_settler_next_ms(const struct skr_settler *settler)
{
    const struct parking *parking = &settler->parking;
    return skr_clock_earlier(again_ms(settler), parking->deferred == NULL
                                                    ? 0
                                                    : parking->deferred_ms);
}

static void
put_due(struct skr_settler *settler)
{
    struct parking *parking = &settler->parking;
    int64_t now_ms = skr_clock_ms(), due_ms = again_ms(settler);
    if (due_ms > 0 && due_ms <= now_ms)
        put(settler, list_again(settler));
    while (parking->deferred != NULL && parking->deferred_ms <= now_ms) {
        struct skr_job *job = parking->deferred;
        parking->deferred = job->next;
        put(settler, job);
    }
}

static struct skr_job *
take(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    struct skr_job *job = pop(&settler->settled);
    pthread_mutex_unlock(&settler->lock);
    return job;
}

struct skr_job *
skr_settler_take(struct skr_settler *settler, struct skr_db *db)
{
    struct skr_job *job;
    while ((job = take(settler)) != NULL) {
        if (job == &settler->parking.again) {
            note_again(settler);
        } else if (park_refused(settler, job)) {
            settler->parking.unreturned--;
            log_failures(settler, &job->batch, db);
            count_batch(settler, &job->batch);
            return job;
        }
    }
    put_due(settler);
    atomic_store(&settler->settings->tally->parked,
                 skr_parked_count(settler->parked));
    return NULL;
}

static bool
is_idle(const struct skr_settler *settler)
{
    return settler->waiting.first == NULL && !settler->is_busy;
}

void
skr_settler_wait(struct skr_settler *settler, int stop_fd)
{
    struct timespec deadline = skr_clock_deadline(TAKE_WAIT_MS);
    if (settler->parking.deferred != NULL) {
        skr_clock_sleep(stop_fd, TAKE_WAIT_MS);
        return;
    }
    pthread_mutex_lock(&settler->lock);
    if (settler->settled.first == NULL && !is_idle(settler))
        pthread_cond_timedwait(&settler->changed, &settler->lock, &deadline);
    pthread_mutex_unlock(&settler->lock);
}

// Waits until it is idle, once at least; jobs that are settled meanwhile stay
// to be taken.
static void
wait_until_idle(struct skr_settler *settler, int64_t until_ms)
{
    pthread_mutex_lock(&settler->lock);
    bool has_time = true;
    while (!is_idle(settler) && has_time) {
        struct timespec deadline = skr_clock_deadline(STOP_WAIT_MS);
        pthread_cond_timedwait(&settler->changed, &settler->lock, &deadline);
        has_time = skr_clock_ms() < until_ms;
    }
    pthread_mutex_unlock(&settler->lock);
}

void
skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms)
{
    if (!settler->is_running)
        return;
    wait_until_idle(settler, skr_clock_ms() + timeout_ms);
    pthread_mutex_lock(&settler->lock);
    settler->is_ending = true;
    settler->gives_up = !is_idle(settler);
    if (settler->gives_up)
        eventfd_write(settler->give_up_fd, 1);
    pthread_cond_broadcast(&settler->changed);
    pthread_mutex_unlock(&settler->lock);
    pthread_join(settler->thread, NULL);
    settler->is_running = false;
}

void
skr_settler_free(struct skr_settler *settler)
{
    if (settler == NULL)
        return;
    pthread_cond_destroy(&settler->changed);
    pthread_mutex_destroy(&settler->lock);
    if (settler->give_up_fd >= 0)
        close(settler->give_up_fd);
    skr_batch_fini(&settler->parking.again.batch);
    free(settler);
}
