// SPDX-License-Identifier: MIT
// A thread that renews the lease of rows in a handler's hands, with a
// connection of its own: the handler may have the consumer's for minutes.

#include "broker/queue/queue.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
// through. That is harmless: nobody else can claim the rows either.
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
    uint64_t kept = 0;
    enum skr_code code = SKR_OK;
    if (keepalive->db == NULL)
        code = skr_db_open(broker->database, broker->database_url,
                           &keepalive->db, &error);
    if (code == SKR_OK)
        code = skr_messenger_keep(broker->table, keepalive->db, keepalive->rows,
                                  keepalive->count, &keepalive->lease, &kept,
                                  &error);
    if (code != SKR_OK) {
        log_failure(broker, &error);
        if (error.remedy == SKR_RECONNECT) {
            skr_db_close(keepalive->db);
            keepalive->db = NULL;
        }
        return;
    }
    if (kept < keepalive->count)
        skr_log(&broker->log, SKR_LOG_WARNING, "queue.lease_lost",
                SKR_LOG_TEXT("name", broker->name),
                SKR_LOG_NUMBER("rows", keepalive->count - kept));
}

static void
wait_until(struct queue_keepalive *keepalive, int64_t delay_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += delay_ms / 1000;
    until.tv_nsec += delay_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&keepalive->wake, &keepalive->mutex, &until);
}

static void *
keep_alive(void *user)
{
    struct queue_broker *broker = user;
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    while (!keepalive->stopping) {
        // Whatever is held next is not renewed before a whole interval, so
        // nobody needs to wake this thread for it.
        int64_t delay_ms = interval_ms(broker);
        if (keepalive->count > 0) {
            delay_ms = keepalive->renew_at_ms - skr_clock_ms();
            if (delay_ms <= 0) {
                renew(broker);
                keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
                continue;
            }
        }
        wait_until(keepalive, delay_ms);
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
    if (keepalive->capacity < capacity) {
        int64_t *grown = realloc(keepalive->rows, capacity * sizeof(*grown));
        if (grown != NULL) {
            keepalive->rows = grown;
            keepalive->capacity = capacity;
        }
    }
    bool has_room = keepalive->capacity >= capacity;
    pthread_mutex_unlock(&keepalive->mutex);
    if (!has_room)
        return skr_fail_memory(error);
    if (keepalive->is_running)
        return SKR_OK;
    int failed = pthread_create(&keepalive->thread, NULL, keep_alive, broker);
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
    free(keepalive->rows);
}

void
skr_queue_keepalive_hold(struct queue_broker *broker,
                         const struct skr_batch *batch, size_t count,
                         const struct skr_lease *lease)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    for (size_t i = 0; i < count; i++)
        keepalive->rows[i] = batch->items[i].row;
    keepalive->count = count;
    keepalive->lease = *lease;
    keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
    pthread_mutex_unlock(&keepalive->mutex);
}

struct skr_lease
skr_queue_keepalive_lock(struct queue_keepalive *keepalive)
{
    pthread_mutex_lock(&keepalive->mutex);
    return keepalive->lease;
}

void
skr_queue_keepalive_unlock(struct queue_keepalive *keepalive)
{
    pthread_mutex_unlock(&keepalive->mutex);
}

void
skr_queue_keepalive_drop(struct queue_keepalive *keepalive, int64_t row)
{
    for (size_t i = 0; i < keepalive->count; i++)
        if (keepalive->rows[i] == row) {
            // Settled in the order they came, mostly: found at once.
            memmove(&keepalive->rows[i], &keepalive->rows[i + 1],
                    (keepalive->count - i - 1) * sizeof(keepalive->rows[0]));
            keepalive->count--;
            return;
        }
}
