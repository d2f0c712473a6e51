// SPDX-License-Identifier: MIT
// A handler may take minutes, and the server ends a connection that is silent
// for two heartbeats. While the caller is busy this thread serves it: what
// comes is taken, as far as there is room, signs of life are sent, and what
// waits for too long is given back.

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <string.h>

enum { TURNS_A_HEARTBEAT = 4 };

static int64_t
pause_ms(const struct rabbit_broker *broker)
{
    int64_t beat_ms = broker->link.heartbeat_ms;
    int64_t hold_ms = broker->settings.hold_timeout_ms;
    return (beat_ms > 0 && beat_ms < hold_ms ? beat_ms : hold_ms) /
           TURNS_A_HEARTBEAT;
}

static void *
serve(void *user)
{
    struct rabbit_broker *broker = user;
    struct rabbit_consumer *consumer = &broker->consumer;
    struct rabbit_heartbeat *heartbeat = &consumer->heartbeat;
    pthread_mutex_lock(&consumer->mutex);
    while (!heartbeat->is_stopping) {
        struct timespec until = skr_clock_deadline((uint32_t)pause_ms(broker));
        pthread_cond_timedwait(&heartbeat->wake, &consumer->mutex, &until);
        // What goes wrong is told by the next call.
        if (!heartbeat->is_stopping &&
            (skr_rabbit_hold_review(broker, NULL) != SKR_OK ||
             skr_rabbit_consumer_turn(broker, 0, NULL) != SKR_OK))
            break;
    }
    pthread_mutex_unlock(&consumer->mutex);
    return NULL;
}

enum skr_code
skr_rabbit_heartbeat_start(struct rabbit_broker *broker,
                           struct skr_error *error)
{
    struct rabbit_heartbeat *heartbeat = &broker->consumer.heartbeat;
    pthread_condattr_t attributes;
    if (heartbeat->is_running)
        return SKR_OK;
    if (pthread_condattr_init(&attributes) != 0)
        return skr_fail_memory(error);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&heartbeat->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (failed != 0)
        return skr_fail_memory(error);
    failed = skr_thread_start(&heartbeat->thread, serve, broker);
    if (failed != 0) {
        pthread_cond_destroy(&heartbeat->wake);
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot start the heartbeat thread: %s",
                        strerror(failed));
    }
    heartbeat->is_running = true;
    return SKR_OK;
}

void
skr_rabbit_heartbeat_stop(struct rabbit_broker *broker)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    struct rabbit_heartbeat *heartbeat = &consumer->heartbeat;
    if (!heartbeat->is_running)
        return;
    pthread_mutex_lock(&consumer->mutex);
    heartbeat->is_stopping = true;
    pthread_cond_signal(&heartbeat->wake);
    pthread_mutex_unlock(&consumer->mutex);
    pthread_join(heartbeat->thread, NULL);
    pthread_cond_destroy(&heartbeat->wake);
    heartbeat->is_running = false;
}
