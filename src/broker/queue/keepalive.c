// SPDX-License-Identifier: MIT
// A thread that renews the lease of rows in a handler's hands, with a
// connection of its own: the handler may have the consumer's for minutes.

#include "broker/queue/queue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

// A condition waits by a clock that stands still while the host is suspended;
// leases go on. The time is looked at this often.
enum { LONGEST_WAIT_MS = 1000 };

static int64_t
interval_ms(const struct queue_broker *broker)
{
    return (int64_t)broker->redeliver_timeout_s * 1000 / 3;
}

enum skr_code
skr_queue_keepalive_init(struct queue_keepalive *keepalive,
                         struct skr_error *error)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return skr_fail_memory(error);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&keepalive->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (failed)
        return skr_fail_memory(error);
    pthread_mutex_init(&keepalive->mutex, NULL);
    keepalive->is_ready = true;
    return SKR_OK;
}

// On an SQLite file that the handler itself has locked the renewal cannot get
// through. That is harmless: no other consumer can claim the rows either.
static void
log_failure(struct queue_broker *broker, const struct skr_error *error)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    bool busy = error->code == SKR_CONFLICT;
    if (busy && keepalive->said_busy)
        return;
    keepalive->said_busy = keepalive->said_busy || busy;
    skr_log(&broker->log, busy ? SKR_LOG_DEBUG : SKR_LOG_WARNING,
            "queue.not_renewed", SKR_LOG_TEXT("name", broker->name),
            SKR_LOG_TEXT("error", error->text));
}

static void
renew(struct queue_broker *broker)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    struct skr_error error = {0};
    struct skr_batch *held = &keepalive->held;
    enum skr_code code = SKR_OK;
    if (keepalive->db == NULL)
        code = skr_db_open(broker->database, broker->database_url,
                           &keepalive->db, &error);
    if (code == SKR_OK)
        code = broker->table->leases->renew(broker->table, keepalive->db, held,
                                            &error);
    if (code != SKR_OK) {
        log_failure(broker, &error);
        if (error.remedy == SKR_RECONNECT) {
            skr_db_close(keepalive->db);
            keepalive->db = NULL;
        }
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < held->count; i++)
        if (!held->items[i].lost)
            held->items[kept++] = held->items[i];
    size_t lost = held->count - kept;
    if (lost == 0)
        return;
    held->count = kept;
    keepalive->has_lost = true;
    skr_queue_log_lost(broker, lost);
}

static void
wait_for_work(struct queue_keepalive *keepalive, int64_t delay_ms)
{
    struct timespec until = skr_clock_deadline(
        delay_ms < LONGEST_WAIT_MS ? delay_ms : LONGEST_WAIT_MS);
    pthread_cond_timedwait(&keepalive->wake, &keepalive->mutex, &until);
}

static void *
keep_alive(void *user)
{
    struct queue_broker *broker = user;
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    while (!keepalive->stopping) {
        keepalive->is_idle = keepalive->held.count == 0;
        if (keepalive->is_idle) {
            pthread_cond_wait(&keepalive->wake, &keepalive->mutex);
            continue;
        }
        int64_t delay_ms = keepalive->renew_at_ms - skr_clock_ms();
        if (delay_ms > 0) {
            wait_for_work(keepalive, delay_ms);
            continue;
        }
        renew(broker);
        keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
    }
    pthread_mutex_unlock(&keepalive->mutex);
    skr_db_close(keepalive->db);
    return NULL;
}

enum skr_code
skr_queue_keepalive_start(struct queue_broker *broker, size_t capacity,
                          struct skr_error *error)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    struct skr_batch *held = &keepalive->held;
    bool has_room = skr_vec_reserve(&held->items, &held->capacity, capacity,
                                    sizeof(*held->items));
    pthread_mutex_unlock(&keepalive->mutex);
    if (!has_room)
        return skr_fail_memory(error);
    if (keepalive->is_running)
        return SKR_OK;
    int failed = skr_thread_start(&keepalive->thread, keep_alive, broker);
    if (failed != 0)
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot start the keepalive thread: %s",
                        strerror(failed));
    keepalive->is_running = true;
    return SKR_OK;
}

void
skr_queue_keepalive_fini(struct queue_keepalive *keepalive)
{
    if (keepalive->is_running) {
        pthread_mutex_lock(&keepalive->mutex);
        keepalive->stopping = true;
        pthread_cond_signal(&keepalive->wake);
        pthread_mutex_unlock(&keepalive->mutex);
        pthread_join(keepalive->thread, NULL);
    }
    if (keepalive->is_ready) {
        pthread_cond_destroy(&keepalive->wake);
        pthread_mutex_destroy(&keepalive->mutex);
    }
    skr_batch_fini(&keepalive->held);
}

void
skr_queue_keepalive_hold(struct queue_broker *broker,
                         const struct skr_batch *batch, size_t count)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    struct skr_batch *held = &keepalive->held;
    for (size_t i = 0; i < count; i++)
        held->items[i] = (struct skr_batch_item){.row = batch->items[i].row};
    held->count = count;
    held->claim = batch->claim;
    held->lease = batch->lease;
    keepalive->has_lost = false;
    keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
    // Once a second at most: after that the thread looks by itself.
    if (keepalive->is_idle)
        pthread_cond_signal(&keepalive->wake);
    keepalive->is_idle = false;
    pthread_mutex_unlock(&keepalive->mutex);
}

struct skr_lease
skr_queue_keepalive_lock(struct queue_keepalive *keepalive)
{
    pthread_mutex_lock(&keepalive->mutex);
    return keepalive->held.lease;
}

void
skr_queue_keepalive_unlock(struct queue_keepalive *keepalive)
{
    pthread_mutex_unlock(&keepalive->mutex);
}

void
skr_queue_keepalive_drop(struct queue_keepalive *keepalive, int64_t row)
{
    struct skr_batch *held = &keepalive->held;
    for (size_t i = 0; i < held->count; i++)
        if (held->items[i].row == row) {
            held->items[i] = held->items[--held->count];
            return;
        }
}

bool
skr_queue_keepalive_holds(const struct queue_keepalive *keepalive, int64_t row)
{
    if (!keepalive->has_lost)
        return true;
    for (size_t i = 0; i < keepalive->held.count; i++)
        if (keepalive->held.items[i].row == row)
            return true;
    return false;
}
