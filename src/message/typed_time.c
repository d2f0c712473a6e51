// SPDX-License-Identifier: MIT
// Formats and parses RFC 3339 times of the years 0 to 9999.

#include "message/typed_time.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const int64_t second_us = 1000000;
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
take_date(const char **at, int64_t *date_s)
{
    int64_t year, month, day;
    if (!take_number(at, 4, 0, 9999, &year) || !take_one_of(at, "-") ||
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
    int64_t date_s, hour, minute, second, fraction_us, offset_s;
    if (!take_date(&at, &date_s) || !take_one_of(&at, "Tt ") ||
        !take_number(&at, 2, 0, 23, &hour) || !take_one_of(&at, ":") ||
        !take_number(&at, 2, 0, 59, &minute) || !take_one_of(&at, ":") ||
        !take_number(&at, 2, 0, 60, &second) ||
        !take_fraction(&at, &fraction_us) || !take_offset(&at, &offset_s) ||
        *at != '\0')
        return false;
    int64_t time_s = date_s + hour * 3600 + minute * 60 + second - offset_s;
    // Leap seconds are put in at the end of a day in UTC and nowhere else.
    if (second == 60 && time_s % day_s != 0)
        return false;
    if (!is_in_range(time_s))
        return false;
    *time_us = time_s * second_us + fraction_us;
    return true;
}
