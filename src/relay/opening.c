// SPDX-License-Identifier: MIT
// Opens a broker in a thread with a cancel and a done descriptor, so that the
// relay's loop can wait for it or give it up.

#include "relay/opening.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct skr_opening {
    const struct skr_broker_ops *ops;
    struct skr_broker_options options;
    pthread_t thread;
    int wake_fd;  // the caller's
    int cancel_fd, done_fd;
    // What came of it: the thread's until it is joined.
    struct skr_broker *broker;
    enum skr_code code;
    struct skr_error error;
};

static void *
run(void *user)
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

enum skr_code
skr_opening_start(const struct skr_broker_ops *ops,
                  const struct skr_broker_options *options,
                  struct skr_opening **opening, struct skr_error *error)
{
    struct skr_opening *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->ops = ops;
    made->options = *options;
    made->wake_fd = options->wake_fd;
    made->cancel_fd = eventfd(0, EFD_CLOEXEC);
    made->done_fd = eventfd(0, EFD_CLOEXEC);
    made->options.wake_fd = made->cancel_fd;
    int failure = made->cancel_fd < 0 || made->done_fd < 0
                      ? errno
                      : skr_thread_start(&made->thread, run, made);
    if (failure != 0) {
        free_opening(made);
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "cannot start a thread: %s", strerror(failure));
    }
    *opening = made;
    return SKR_OK;
}

bool
skr_opening_wait(const struct skr_opening *opening, uint32_t timeout_ms)
{
    return skr_clock_sleep(opening->done_fd, timeout_ms);
}

enum skr_code
skr_opening_finish(struct skr_opening *opening, struct skr_broker **broker,
                   struct skr_error *error)
{
    pthread_join(opening->thread, NULL);
    enum skr_code code = opening->code;
    if (code == SKR_OK) {
        *broker = opening->broker;
        // It may connect anew later, when cancel_fd is another file's number.
        (*broker)->wake_fd = opening->wake_fd;
    } else if (error != NULL) {
        *error = opening->error;
    }
    free_opening(opening);
    return code;
}

void
skr_opening_cancel(struct skr_opening *opening)
{
    struct skr_broker *broker = NULL;
    if (opening == NULL)
        return;
    eventfd_write(opening->cancel_fd, 1);
    if (skr_opening_finish(opening, &broker, NULL) == SKR_OK)
        skr_broker_close(broker);
}
