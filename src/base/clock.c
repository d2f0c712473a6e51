// SPDX-License-Identifier: MIT
// The only place that reads the system's clocks; then times as texts: those
// that tables hold, and those of RFC 3339 in the years 0 to 9999.

#include "base/clock.h"

#include "base/beat.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const int64_t second_us = 1000000;

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

// Exactly so many digits, and moves on.
static bool
take_number(const char **at, int digits, int least, int most, int64_t *number)
{
    int64_t value = 0;
    for (int i = 0; i < digits; i++) {
        char c = (*at)[i];
        if (c < '0' || c > '9')
            return false;
        value = value * 10 + (c - '0');
    }
    *at += digits;
    *number = value;
    return value >= least && value <= most;
}

static bool
take_one_of(const char **at, const char *characters)
{
    if (**at == '\0' || strchr(characters, **at) == NULL)
        return false;
    (*at)++;
    return true;
}

// Seconds since 1970 at the beginning of the day.
static bool
take_date(const char **at, int least_year, int64_t *date_s)
{
    int64_t year, month, day;
    if (!take_number(at, 4, least_year, 9999, &year) || !take_one_of(at, "-") ||
        !take_number(at, 2, 1, 12, &month) || !take_one_of(at, "-") ||
        !take_number(at, 2, 1, 31, &day))
        return false;
    struct tm parts = {.tm_year = (int)year - 1900,
                       .tm_mon = (int)month - 1,
                       .tm_mday = (int)day};
    *date_s = (int64_t)timegm(&parts);
    // timegm() takes the 31st of February for the 3rd of March and tells so.
    return parts.tm_mday == (int)day;
}

// Seconds since the beginning of the day.
static bool
take_time(const char **at, int last_second, int64_t *time_s)
{
    int64_t hour, minute, second;
    if (!take_number(at, 2, 0, 23, &hour) || !take_one_of(at, ":") ||
        !take_number(at, 2, 0, 59, &minute) || !take_one_of(at, ":") ||
        !take_number(at, 2, 0, last_second, &second))
        return false;
    *time_s = hour * 3600 + minute * 60 + second;
    return true;
}

// Without sscanf(): a relay reads the time of every row. A year before 1000 is
// taken for a mistake.
bool
skr_clock_parse_timestamp(const char *text, int64_t *wall_us)
{
    const char *at = text;
    int64_t date_s, time_s;
    if (!take_date(&at, 1000, &date_s) || !take_one_of(&at, " ") ||
        !take_time(&at, 59, &time_s))
        return false;
    // Other writers may add a part of a second, which is dropped.
    if (take_one_of(&at, "."))
        at += strspn(at, "0123456789");
    if (*at != '\0')
        return false;
    *wall_us = (date_s + time_s) * second_us;
    return true;
}

static const int64_t day_s = 86400;
// 0000-01-01T00:00:00 and 10000-01-01T00:00:00.
static const int64_t first_s = -62167219200;
static const int64_t past_s = 253402300800;

static bool
is_in_range(int64_t time_s)
{
    return time_s >= first_s && time_s < past_s;
}

static int64_t
divide_down(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

bool
skr_time_format(int64_t time_us, char text[SKR_TIME_TEXT_SIZE])
{
    int64_t time_s = divide_down(time_us, second_us);
    if (!is_in_range(time_s))
        return false;
    int fraction_us = (int)(time_us - time_s * second_us);
    time_t when = (time_t)time_s;
    struct tm parts;
    gmtime_r(&when, &parts);
    char fraction[16] = "";
    if (fraction_us != 0) {
        int length = snprintf(fraction, sizeof(fraction), ".%06d", fraction_us);
        while (length > 1 && fraction[length - 1] == '0')
            fraction[--length] = '\0';
    }
    // The ranges are known to us and not to the compiler, which would warn
    // that the years could be longer than the text.
    char long_text[96];
    snprintf(long_text, sizeof(long_text),
             "%04d-%02d-%02dT%02d:%02d:%02d%s+00:00", parts.tm_year + 1900,
             parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
             parts.tm_sec, fraction);
    memcpy(text, long_text, SKR_TIME_TEXT_SIZE);
    text[SKR_TIME_TEXT_SIZE - 1] = '\0';
    return true;
}

static bool
take_fraction(const char **at, int64_t *fraction_us)
{
    *fraction_us = 0;
    if (!take_one_of(at, "."))
        return true;
    if (**at < '0' || **at > '9')
        return false;
    for (int64_t digit_us = second_us / 10; **at >= '0' && **at <= '9';
         (*at)++, digit_us /= 10)
        *fraction_us += (**at - '0') * digit_us;
    return true;
}

// "Z", "+02:00" and, as PHP's DATE_ISO8601 has it, "+0200".
static bool
take_offset(const char **at, int64_t *offset_s)
{
    *offset_s = 0;
    if (take_one_of(at, "Zz"))
        return true;
    bool is_west = **at == '-';
    int64_t hours, minutes;
    if (!take_one_of(at, "+-") || !take_number(at, 2, 0, 23, &hours))
        return false;
    take_one_of(at, ":");
    if (!take_number(at, 2, 0, 59, &minutes))
        return false;
    *offset_s = (hours * 3600 + minutes * 60) * (is_west ? -1 : 1);
    return true;
}

bool
skr_time_parse(const char *text, int64_t *time_us)
{
    const char *at = text;
    int64_t date_s, of_day_s, fraction_us, offset_s;
    if (!take_date(&at, 0, &date_s) || !take_one_of(&at, "Tt ") ||
        !take_time(&at, 60, &of_day_s))
        return false;
    bool is_leap = at[-2] == '6';
    if (!take_fraction(&at, &fraction_us) || !take_offset(&at, &offset_s) ||
        *at != '\0')
        return false;
    int64_t time_s = date_s + of_day_s - offset_s;
    // Leap seconds are put in at the end of a day in UTC and nowhere else.
    if ((is_leap && time_s % day_s != 0) || !is_in_range(time_s))
        return false;
    *time_us = time_s * second_us + fraction_us;
    return true;
}

int
skr_clock_poll(struct pollfd *files, size_t count, int64_t timeout_ms)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    for (;;) {
        int64_t left_ms = end_ms - skr_clock_ms();
        if (left_ms < 0)
            left_ms = 0;
        int ready =
            poll(files, count, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (ready > 0 || (ready < 0 && errno != EINTR) ||
            (ready == 0 && skr_clock_ms() >= end_ms))
            return ready;
    }
}

bool
skr_clock_await(int fd, short events, int64_t timeout_ms)
{
    struct pollfd awaited = {.fd = fd, .events = events};
    return skr_clock_poll(&awaited, 1, timeout_ms) > 0;
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
