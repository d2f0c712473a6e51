// SPDX-License-Identifier: MIT
// The thread that tells systemd of readiness, status, reloads and the watchdog.

#include "app/service/notifier.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    LOOK_FOR_READY_MS = 50,
    EXTEND_MS = 10000,
    STATUS_SIZE = 400,
};

struct skr_notifier {
    struct skr_health *health;
    int socket_fd;
    struct sockaddr_un address;
    socklen_t address_size;
    int stop_fd;
    int64_t watchdog_ms;  // between two signs of life; 0: none are wanted
    bool is_ready;        // and that was told
    int64_t extend_ms;    // when to ask for more time
    pthread_t thread;
};

static bool
read_address(struct skr_notifier *notifier)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t size = path == NULL ? 0 : strlen(path);
    struct sockaddr_un *address = &notifier->address;
    if (size < 2 || size >= sizeof(address->sun_path) ||
        (path[0] != '/' && path[0] != '@'))
        return false;
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, size);
    // An abstract name begins with a zero.
    if (path[0] == '@')
        address->sun_path[0] = '\0';
    notifier->address_size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    return true;
}

// Half the time within which it has to hear of us, if it is for this process.
static int64_t
read_watchdog_ms(void)
{
    const char *time = getenv("WATCHDOG_USEC");
    const char *process = getenv("WATCHDOG_PID");
    int64_t microseconds = 0, id = 0;
    if (time == NULL || !skr_text_number(time, 1, INT64_MAX, &microseconds) ||
        (process != NULL &&
         (!skr_text_number(process, 1, INT32_MAX, &id) || id != getpid())))
        return 0;
    return microseconds / 2000 > 0 ? microseconds / 2000 : 1;
}

// One that does not listen is no reason to stop working, or never to end.
// False: it has no room for more, and had none for a while.
static bool
tell(const struct skr_notifier *notifier, const char *text)
{
    return sendto(notifier->socket_fd, text, strlen(text), MSG_NOSIGNAL,
                  (const struct sockaddr *)&notifier->address,
                  notifier->address_size) >= 0 ||
           errno != EAGAIN;
}

// With the time that tells it from an earlier one.
static void
tell_reloading(const struct skr_notifier *notifier)
{
    struct timespec now;
    char text[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    tell(notifier, text);
}

static void
tell_status(const struct skr_notifier *notifier, char last[STATUS_SIZE])
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(notifier->health, entries);
    char status[STATUS_SIZE] = "STATUS=";
    size_t used = strlen(status);
    for (size_t i = 0; i < count && used < sizeof(status); i++)
        used += (size_t)snprintf(status + used, sizeof(status) - used,
                                 "%s%s: %s", i == 0 ? "" : ", ",
                                 entries[i].name, skr_health_text(&entries[i]));
    if (strcmp(status, last) == 0)
        return;
    memcpy(last, status, sizeof(status));
    tell(notifier, status);
}

// Not where a worker stands still: then it is for the service manager to end
// this process and start another.
static void
tell_alive(const struct skr_notifier *notifier)
{
    if (skr_health_is_turning(notifier->health, 2 * notifier->watchdog_ms))
        tell(notifier, "WATCHDOG=1");
}

static bool
are_ready(struct skr_health *health)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(health, entries);
    bool are_all = true;
    for (size_t i = 0; i < count; i++)
        are_all &= skr_health_is_ready(&entries[i]);
    return are_all;
}

// A server may be away for longer than a service manager waits by itself.
static void
tell_ready(struct skr_notifier *notifier, int64_t now_ms)
{
    if (notifier->is_ready)
        return;
    if (are_ready(notifier->health)) {
        notifier->is_ready = tell(notifier, "READY=1");
    } else if (now_ms >= notifier->extend_ms) {
        notifier->extend_ms = now_ms + EXTEND_MS;
        tell(notifier, "EXTEND_TIMEOUT_USEC=60000000");
    }
}

static void *
run(void *user)
{
    struct skr_notifier *notifier = user;
    int64_t next_sign_ms = skr_clock_ms();
    char last[STATUS_SIZE] = "";
    for (;;) {
        int64_t now_ms = skr_clock_ms();
        tell_ready(notifier, now_ms);
        int64_t wait_ms = notifier->is_ready ? LOOK_MS : LOOK_FOR_READY_MS;
        tell_status(notifier, last);
        if (notifier->watchdog_ms > 0 && now_ms >= next_sign_ms) {
            tell_alive(notifier);
            next_sign_ms = now_ms + notifier->watchdog_ms;
        }
        if (notifier->watchdog_ms > 0 && next_sign_ms - now_ms < wait_ms)
            wait_ms = next_sign_ms - now_ms;
        if (skr_clock_sleep(notifier->stop_fd, wait_ms))
            return NULL;
    }
}

struct skr_notifier *
skr_notifier_start(struct skr_health *health, bool were_ready)
{
    struct skr_notifier *made = calloc(1, sizeof(*made));
    if (made == NULL || !read_address(made)) {
        free(made);
        return NULL;
    }
    made->health = health;
    made->watchdog_ms = read_watchdog_ms();
    made->socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    made->stop_fd = eventfd(0, EFD_CLOEXEC);
    const struct timeval most = {.tv_sec = 1};
    setsockopt(made->socket_fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
    made->is_ready = were_ready && tell(made, "READY=1");
    if (made->socket_fd < 0 || made->stop_fd < 0 ||
        skr_thread_start(&made->thread, run, made) != 0) {
        close(made->socket_fd);
        close(made->stop_fd);
        free(made);
        return NULL;
    }
    return made;
}

void
skr_notifier_stop(struct skr_notifier *notifier, bool is_reloading)
{
    if (notifier == NULL)
        return;
    if (is_reloading)
        tell_reloading(notifier);
    else
        tell(notifier, "STOPPING=1");
    eventfd_write(notifier->stop_fd, 1);
    pthread_join(notifier->thread, NULL);
    close(notifier->socket_fd);
    close(notifier->stop_fd);
    free(notifier);
}
