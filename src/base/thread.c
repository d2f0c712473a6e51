// SPDX-License-Identifier: MIT
// Starts the library's own threads with all signals blocked, which are the
// application's.

#include "base/thread.h"

#include <signal.h>

int
skr_thread_start(pthread_t *thread, void *(*run)(void *user), void *user)
{
    // A thread is born with the mask of its maker.
    sigset_t all, saved;
    sigfillset(&all);
    int failed = pthread_sigmask(SIG_SETMASK, &all, &saved);
    if (failed != 0)
        return failed;
    failed = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return failed;
}

int
skr_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (failed != 0)
        return failed;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    failed = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed;
}
