// SPDX-License-Identifier: MIT
// The settler's thread, and the two queues between it and the session.

#include "relay/settler.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "relay/ownership.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 5000,
    STOP_WAIT_MS = 100,
};

// First in, first out.
struct jobs {
    struct skr_job *first, *last;
};

struct skr_settler {
    struct skr_settler_options options;
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

// A relay that has lost the queue's lock may still say that what the broker has
// stored is done. Anything else is for the next owner to write.
static void
leave_to_owner(const struct skr_settler *settler, struct skr_batch *batch)
{
    if (batch->claim != SKR_CLAIM_NONE ||
        skr_ownership_is_proven(settler->options.ownership))
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
        skr_db_open(settler->options.database, settler->options.database_url,
                    &settler->db, error);
    if (code != SKR_OK || settler->db->ops->plan_by_index == NULL)
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
        unsettled += skr_has_outcome(&batch->items[i]) &&
                     batch->items[i].write != SKR_WRITE_DONE;
        batch->items[i].state = SKR_READ;
    }
    if (unsettled > 0)
        skr_log(settler->options.log, SKR_LOG_WARNING, "relay.server_changed",
                SKR_LOG_TEXT("name", settler->options.name),
                SKR_LOG_NUMBER("unsettled", unsettled));
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
        if (!skr_has_outcome(item) || item->state == SKR_DONE ||
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
    const struct skr_store *table = settler->options.table;
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
// sent again. So the settler tries until it succeeds or is told to give up.
static bool
settle(struct skr_settler *settler, struct skr_job *job)
{
    struct skr_backoff backoff = {.first_ms = FIRST_PAUSE_MS,
                                  .longest_ms = LONGEST_PAUSE_MS};
    const struct skr_settler_options *options = &settler->options;
    while (!is_of_another_server(settler, &job->batch)) {
        struct skr_error error = {0};
        job->has_failed = settle_once(settler, job, &error) != SKR_OK;
        if (!job->has_failed)
            break;
        if (job->tries_once)
            return true;
        job->batch.is_late = true;
        skr_trouble_report(&settler->trouble, options->log,
                           "relay.settle_trouble", options->name, &error);
        if (skr_clock_sleep(settler->give_up_fd, skr_backoff_next(&backoff)))
            return false;
    }
    skr_trouble_end(&settler->trouble, options->log, "relay.settle_recovered",
                    options->name);
    skr_failpoint("relay.settled");
    return true;
}

static void *
run(void *user)
{
    struct skr_settler *settler = user;
    struct skr_job *job;
    skr_beat_begin(settler->options.beat);
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

static void
init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum skr_code
skr_settler_start(const struct skr_settler_options *options,
                  struct skr_settler **settler, struct skr_error *error)
{
    struct skr_settler *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = *options;
    made->give_up_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&made->lock, NULL);
    init_condition(&made->changed);
    int failure = made->give_up_fd < 0
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
    pthread_mutex_lock(&settler->lock);
    settler->server = server;
    pthread_mutex_unlock(&settler->lock);
}

void
skr_settler_put(struct skr_settler *settler, struct skr_job *job)
{
    pthread_mutex_lock(&settler->lock);
    push(&settler->waiting, job);
    pthread_cond_broadcast(&settler->changed);
    pthread_mutex_unlock(&settler->lock);
}

struct skr_job *
skr_settler_take(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    struct skr_job *job = pop(&settler->settled);
    pthread_mutex_unlock(&settler->lock);
    return job;
}

static bool
is_idle(const struct skr_settler *settler)
{
    return settler->waiting.first == NULL && !settler->is_busy;
}

void
skr_settler_wait(struct skr_settler *settler, uint32_t timeout_ms)
{
    struct timespec deadline = skr_clock_deadline(timeout_ms);
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
    free(settler);
}
