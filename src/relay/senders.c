// SPDX-License-Identifier: MIT
// Opens the brokers of one relay, shares the waiting time for publish results
// among them, and closes a broker that gives none.

#include "relay/senders.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    // While several have results to give, none is waited for any longer.
    SHARED_WAIT_MS = 2,
    // Others wait meanwhile, and the lock on the queue is to be proven.
    OPENING_WAIT_MS = 1000,
    // A message without a result keeps its batch, and soon the window.
    MOST_SILENT_MS = 5000,
};

// A broker that is being connected to by a thread of its own: a server that
// does not answer holds up that thread alone.
struct skr_opening {
    const struct skr_broker_ops *ops;
    struct skr_broker_options options;
    pthread_t thread;
    int wake_fd;  // the broker's once it is open
    int cancel_fd, done_fd;
    // What came of it: the thread's until it is joined.
    struct skr_broker *broker;
    enum skr_code code;
    struct skr_error error;
};

static void *
run_opening(void *user)
{
    struct skr_opening *opening = user;
    opening->code = skr_broker_open(opening->ops, &opening->options,
                                    &opening->broker, &opening->error);
    eventfd_write(opening->done_fd, 1);
    return NULL;
}

static void
free_opening(struct skr_opening *opening)
{
    if (opening->cancel_fd >= 0)
        close(opening->cancel_fd);
    if (opening->done_fd >= 0)
        close(opening->done_fd);
    free(opening);
}

static enum skr_code
start_opening(struct skr_sender *sender, struct skr_error *error)
{
    struct skr_opening *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->ops = sender->options->broker;
    made->options = sender->options->options;
    made->wake_fd = made->options.wake_fd;
    made->cancel_fd = eventfd(0, EFD_CLOEXEC);
    made->done_fd = eventfd(0, EFD_CLOEXEC);
    made->options.wake_fd = made->cancel_fd;
    int failure = made->cancel_fd < 0 || made->done_fd < 0
                      ? errno
                      : skr_thread_start(&made->thread, run_opening, made);
    if (failure != 0) {
        free_opening(made);
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "cannot start a thread: %s", strerror(failure));
    }
    sender->opening = made;
    return SKR_OK;
}

// What came of it, as skr_broker_open() has it; waits for the end.
static enum skr_code
finish_opening(struct skr_sender *sender, struct skr_error *error)
{
    struct skr_opening *opening = sender->opening;
    sender->opening = NULL;
    pthread_join(opening->thread, NULL);
    enum skr_code code = opening->code;
    if (code == SKR_OK) {
        sender->broker = opening->broker;
        // It may connect anew later, when cancel_fd is another file's number.
        sender->broker->wake_fd = opening->wake_fd;
    } else if (error != NULL) {
        *error = opening->error;
    }
    free_opening(opening);
    return code;
}

// A sender beyond the first is opened beside the others' work.
static enum skr_code
open_beside(struct skr_sender *sender, struct skr_error *error)
{
    uint32_t wait_ms = 0;
    if (sender->opening == NULL) {
        enum skr_code code = start_opening(sender, error);
        if (code != SKR_OK)
            return code;
        wait_ms = OPENING_WAIT_MS;
    }
    if (!skr_clock_sleep(sender->opening->done_fd, wait_ms))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "connecting to it takes long");
    return finish_opening(sender, error);
}

static void
close_sender(struct skr_senders *senders, struct skr_sender *sender)
{
    if (sender->opening != NULL) {
        eventfd_write(sender->opening->cancel_fd, 1);
        (void)!finish_opening(sender, NULL);
    }
    skr_broker_close(sender->broker);
    sender->broker = NULL;
    senders->pending -= sender->pending;
    sender->pending = 0;
}

enum skr_code
skr_senders_open(struct skr_senders *senders,
                 const struct skr_sender_options *options, size_t count,
                 struct skr_error *error)
{
    struct skr_sender *first = &senders->items[0];
    senders->count = count;
    for (size_t i = 0; i < count; i++)
        senders->items[i].options = &options[i];
    return skr_broker_open(first->options->broker, &first->options->options,
                           &first->broker, error);
}

void
skr_senders_close(struct skr_senders *senders)
{
    for (size_t i = 0; i < senders->count; i++)
        close_sender(senders, &senders->items[i]);
}

static bool
is_blocked(const struct skr_sender *sender)
{
    return sender->broker->ops->status(sender->broker).is_blocked;
}

enum skr_code
skr_senders_submit(struct skr_senders *senders,
                   const struct skr_message *message,
                   const struct skr_route *route, uint64_t tag, bool *is_away,
                   struct skr_error *error)
{
    struct skr_sender *sender = &senders->items[route->sender];
    enum skr_code code = SKR_OK;
    if (sender->broker == NULL)
        code = open_beside(sender, error);
    else if (route->sender > 0 && is_blocked(sender))
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "its broker takes no messages (blocked)");
    if (code == SKR_OK)
        code = sender->broker->ops->submit(sender->broker, message, route, tag,
                                           error);
    *is_away = code != SKR_OK && route->sender > 0 &&
               (sender->broker == NULL || error->remedy != SKR_GIVE_UP);
    if (code != SKR_OK)
        return code;
    if (sender->pending++ == 0)
        sender->last_received_ms = skr_clock_ms();
    senders->pending++;
    return SKR_OK;
}

static enum skr_code
collect_from(struct skr_sender *sender, struct skr_published *results,
             size_t capacity, size_t *count, uint32_t timeout_ms,
             struct skr_error *error)
{
    *count = 0;
    skr_beat_wait();
    enum skr_code code = sender->broker->ops->results(
        sender->broker, results, capacity, count, timeout_ms, error);
    skr_beat_resume();
    if (*count > 0)
        sender->last_received_ms = skr_clock_ms();
    return code == SKR_TIMEOUT ? SKR_OK : code;
}

enum skr_code
skr_senders_results(struct skr_senders *senders, struct skr_published *results,
                    size_t capacity, size_t *count, uint32_t timeout_ms,
                    struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    uint32_t shared_ms = timeout_ms;
    *count = 0;
    for (size_t i = 0; i < senders->count; i++)
        if (senders->items[i].pending > 0 &&
            senders->items[i].pending < senders->pending &&
            shared_ms > SHARED_WAIT_MS)
            shared_ms = SHARED_WAIT_MS;
    for (size_t i = 0; code == SKR_OK && i < senders->count; i++) {
        struct skr_sender *sender = &senders->items[i];
        if (sender->broker == NULL || *count == capacity)
            continue;
        size_t found;
        // Those with nothing under way are asked too: it keeps their
        // connection.
        code = collect_from(sender, results + *count, capacity - *count, &found,
                            sender->pending == 0 ? 0 : shared_ms, error);
        *count += found;
        found = found < sender->pending ? found : sender->pending;
        sender->pending -= found;
        senders->pending -= found;
        // Every tag has had its result by now: the connection alone is lost.
        if (code != SKR_OK && i > 0) {
            close_sender(senders, sender);
            code = SKR_OK;
        }
    }
    return code;
}

size_t
skr_senders_close_silent(struct skr_senders *senders, struct skr_error *reason)
{
    int64_t now = skr_clock_ms();
    for (size_t i = 1; i < senders->count; i++) {
        struct skr_sender *sender = &senders->items[i];
        if (sender->pending == 0 ||
            now - sender->last_received_ms <= MOST_SILENT_MS)
            continue;
        skr_fail(reason, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "its broker has not said what became of messages for %d s%s",
                 MOST_SILENT_MS / 1000,
                 is_blocked(sender) ? ": it takes none (blocked)" : "");
        close_sender(senders, sender);
        return i;
    }
    return 0;
}
