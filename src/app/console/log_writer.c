// SPDX-License-Identifier: MIT
// The thread, its lock and its conditions around a log_ring. A line is written
// without the lock.

#include "app/console/log_writer.h"

#include "app/console/log_ring.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct skr_log_writer {
    int fd;
    struct skr_log_form form;
    pthread_t thread;
    pthread_mutex_t lock;  // of all below
    pthread_cond_t filled;
    pthread_cond_t ended;
    struct skr_log_ring ring;
    bool is_ending, has_ended;
    char bytes[SKR_LOG_WRITER_BYTES];
};

// The descriptor is shared with other processes: it is not made non-blocking,
// but another process may have made it so.
static bool
write_all(int fd, const struct skr_text *line)
{
    for (size_t at = 0; at < line->size;) {
        ssize_t written = write(fd, line->bytes + at, line->size - at);
        if (written >= 0) {
            at += (size_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return !line->broken;
}

static bool
write_dropped(const struct skr_log_writer *writer, uint64_t dropped)
{
    struct skr_text line = {0};
    const struct skr_log_field lines = {.name = "lines",
                                        .number = (int64_t)dropped};
    skr_log_line_write(&writer->form, &line, SKR_LOG_WARNING, "output.dropped",
                       &lines, 1);
    bool ok = write_all(writer->fd, &line);
    skr_text_fini(&line);
    return ok;
}

// Whether there is a line, or it is time to end.
static bool
wait_for_line(struct skr_log_writer *writer, struct skr_text *line)
{
    while (!skr_log_ring_take(&writer->ring, line)) {
        if (writer->is_ending)
            return false;
        pthread_cond_wait(&writer->filled, &writer->lock);
    }
    return true;
}

static void
write_unlocked(struct skr_log_writer *writer, const struct skr_text *line)
{
    uint64_t dropped = writer->ring.dropped;
    pthread_mutex_unlock(&writer->lock);
    bool is_told = dropped == 0 || write_dropped(writer, dropped);
    bool is_written = write_all(writer->fd, line);
    pthread_mutex_lock(&writer->lock);
    if (is_told)
        writer->ring.dropped -= dropped;
    // On a full disk, for example: the next line that gets through says so.
    writer->ring.dropped += is_written ? 0 : 1;
}

static void *
run(void *user)
{
    struct skr_log_writer *writer = user;
    struct skr_text line = {0};
    pthread_mutex_lock(&writer->lock);
    while (wait_for_line(writer, &line))
        write_unlocked(writer, &line);
    // Lines that were dropped last have none behind them.
    skr_text_clear(&line);
    write_unlocked(writer, &line);
    writer->has_ended = true;
    pthread_cond_signal(&writer->ended);
    pthread_mutex_unlock(&writer->lock);
    skr_text_fini(&line);
    return NULL;
}

static void
free_writer(struct skr_log_writer *writer)
{
    pthread_cond_destroy(&writer->filled);
    pthread_cond_destroy(&writer->ended);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

enum skr_code
skr_log_writer_start(int fd, const struct skr_log_form *form,
                     struct skr_log_writer **writer, struct skr_error *error)
{
    struct skr_log_writer *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->fd = fd;
    made->form = *form;
    if (skr_condition_init(&made->filled) != 0 ||
        skr_condition_init(&made->ended) != 0) {
        free(made);
        return skr_fail_memory(error);
    }
    pthread_mutex_init(&made->lock, NULL);
    skr_log_ring_init(&made->ring, made->bytes, sizeof(made->bytes));
    int failure = skr_thread_start(&made->thread, run, made);
    if (failure != 0) {
        free_writer(made);
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "cannot start a thread: %s", strerror(failure));
    }
    *writer = made;
    return SKR_OK;
}

void
skr_log_writer_put(struct skr_log_writer *writer, const char *line, size_t size)
{
    pthread_mutex_lock(&writer->lock);
    skr_log_ring_add(&writer->ring, line, size);
    pthread_cond_signal(&writer->filled);
    pthread_mutex_unlock(&writer->lock);
}

bool
skr_log_writer_end(struct skr_log_writer *writer)
{
    struct timespec end = skr_clock_deadline(SKR_LOG_WRITER_END_MS);
    int waited = 0;
    pthread_mutex_lock(&writer->lock);
    writer->is_ending = true;
    pthread_cond_signal(&writer->filled);
    while (!writer->has_ended && waited == 0)
        waited = pthread_cond_timedwait(&writer->ended, &writer->lock, &end);
    bool has_ended = writer->has_ended;
    pthread_mutex_unlock(&writer->lock);
    return has_ended;
}

void
skr_log_writer_stop(struct skr_log_writer *writer)
{
    if (!skr_log_writer_end(writer)) {
        pthread_detach(writer->thread);
        return;
    }
    pthread_join(writer->thread, NULL);
    free_writer(writer);
}
