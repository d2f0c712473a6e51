// SPDX-License-Identifier: MIT
// Signal handlers. A handler sets a flag and wakes a descriptor, or calls a
// stop function that is safe in it: the work is done by ordinary threads.

#include "app/console/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

// A handler can reach only what is static.
static void (*stop_function)(void *user);
static void *stop_user;
static atomic_bool is_stop_asked, is_reload_asked;  // free of locks
static int wake_fd = -1;

static void
set_handler(int number, void (*handler)(int number))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void
call_stop(int number)
{
    (void)number;
    int kept = errno;
    stop_function(stop_user);
    errno = kept;
}

void
skr_signals_on_stop(void (*stop)(void *user), void *user)
{
    // Ignored first, so that the handler never sees half of a change.
    set_handler(SIGTERM, SIG_IGN);
    set_handler(SIGINT, SIG_IGN);
    stop_function = stop;
    stop_user = user;
    if (stop == NULL)
        return;
    set_handler(SIGTERM, call_stop);
    set_handler(SIGINT, call_stop);
}

void
skr_signals_wake(void)
{
    const uint64_t one = 1;
    ssize_t written = write(wake_fd, &one, sizeof(one));
    (void)written;
}

static void
note(int number)
{
    int kept = errno;
    if (number == SIGHUP)
        is_reload_asked = true;
    else
        is_stop_asked = true;
    skr_signals_wake();
    errno = kept;
}

int
skr_signals_watch(void)
{
    if (wake_fd < 0)
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return -1;
    set_handler(SIGTERM, note);
    set_handler(SIGINT, note);
    set_handler(SIGHUP, note);
    return wake_fd;
}

void
skr_signals_drain(void)
{
    uint64_t count;
    ssize_t size = read(wake_fd, &count, sizeof(count));
    (void)size;
}

bool
skr_signals_ask_stop(void)
{
    return is_stop_asked;
}

bool
skr_signals_take_reload(void)
{
    return atomic_exchange(&is_reload_asked, false);
}
