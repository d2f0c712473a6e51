// SPDX-License-Identifier: MIT
// The only place that reads the system's clocks, and the timestamps that tables
// hold.

#include "base/clock.h"

#include "base/beat.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

int64_t
skr_clock_ms(void)
{
    return skr_clock_us() / 1000;
}

int64_t
skr_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t
skr_clock_earlier(int64_t one_ms, int64_t other_ms)
{
    if (one_ms == 0 || other_ms == 0)
        return one_ms == 0 ? other_ms : one_ms;
    return one_ms < other_ms ? one_ms : other_ms;
}

int64_t
skr_clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
skr_clock_timestamp(int64_t wall_us, char text[SKR_TIMESTAMP_SIZE])
{
    // Floored, so that times before 1970 stay in order too.
    int64_t seconds = wall_us / 1000000 - (wall_us % 1000000 < 0);
    // A year has four digits in every database.
    const int64_t first_of_1000 = -30610224000, last_of_9999 = 253402300799;
    if (seconds < first_of_1000)
        seconds = first_of_1000;
    if (seconds > last_of_9999)
        seconds = last_of_9999;
    time_t when = (time_t)seconds;
    struct tm parts;
    gmtime_r(&when, &parts);
    if (strftime(text, SKR_TIMESTAMP_SIZE, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        text[0] = '\0';
}

// Other writers may add a part of a second, which is dropped.
static bool
has_timestamp_shape(const char *text)
{
    static const char shape[] = "0000-00-00 00:00:00";
    size_t at = 0;
    for (; shape[at] != '\0'; at++)
        if (shape[at] == '0' ? !isdigit((unsigned char)text[at])
                             : text[at] != shape[at])
            return false;
    if (text[at] == '.')
        at += 1 + strspn(text + at + 1, "0123456789");
    return text[at] == '\0';
}

static int
two_digits(const char *text)
{
    return (text[0] - '0') * 10 + (text[1] - '0');
}

// Without sscanf(): a relay reads the time of every row.
bool
skr_clock_parse_timestamp(const char *text, int64_t *wall_us)
{
    if (!has_timestamp_shape(text))
        return false;
    struct tm parts = {
        .tm_year = two_digits(text) * 100 + two_digits(text + 2) - 1900,
        .tm_mon = two_digits(text + 5) - 1,
        .tm_mday = two_digits(text + 8),
        .tm_hour = two_digits(text + 11),
        .tm_min = two_digits(text + 14),
        .tm_sec = two_digits(text + 17),
    };
    const struct tm meant = parts;
    int64_t parsed_s = (int64_t)timegm(&parts);
    // timegm() takes the 31st of February for the 3rd of March and tells so;
    // a year before 1000 is taken for a mistake.
    if (meant.tm_year < 1000 - 1900 || parts.tm_year != meant.tm_year ||
        parts.tm_mon != meant.tm_mon || parts.tm_mday != meant.tm_mday ||
        parts.tm_hour != meant.tm_hour || parts.tm_min != meant.tm_min ||
        parts.tm_sec != meant.tm_sec)
        return false;
    *wall_us = parsed_s * 1000000;
    return true;
}

bool
skr_clock_await(int fd, short events, int64_t timeout_ms)
{
    int64_t end = skr_clock_ms() + timeout_ms;
    for (;;) {
        int64_t left = end - skr_clock_ms();
        if (left < 0)
            left = 0;
        struct pollfd awaited = {.fd = fd, .events = events};
        int ready = poll(&awaited, 1, left > INT_MAX ? INT_MAX : (int)left);
        if (ready > 0)
            return true;
        if (ready == 0 && skr_clock_ms() >= end)
            return false;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

bool
skr_clock_sleep(int wake_fd, int64_t timeout_ms)
{
    if (timeout_ms <= 0)
        return skr_clock_await(wake_fd, POLLIN, 0);
    skr_beat_wait();
    bool is_woken = skr_clock_await(wake_fd, POLLIN, timeout_ms);
    skr_beat_resume();
    return is_woken;
}

struct timespec
skr_clock_deadline(int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms < 0)
        timeout_ms = 0;
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000 * 1000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}
