// SPDX-License-Identifier: MIT
// Threads of the library's own.

#ifndef SKR_BASE_THREAD_H
#define SKR_BASE_THREAD_H

#include <pthread.h>

// As pthread_create(), with every signal blocked in the new thread: signals
// are the application's, and reach its own threads alone. 0, or an errno.
int skr_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

// A condition whose timed waits go by the monotonic clock. 0, or an errno.
int skr_condition_init(pthread_cond_t *condition);

#endif
