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
