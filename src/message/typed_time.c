// SPDX-License-Identifier: MIT
// Formats and parses RFC 3339 times of the years 0 to 9999, with a calendar of
// its own.

#include "message/typed_time.h"

#include <stdio.h>
#include <string.h>

static const int64_t second_us = 1000000;
static const int64_t day_s = 86400;
// 0000-01-01T00:00:00 and 10000-01-01T00:00:00.
static const int64_t first_s = -62167219200;
static const int64_t past_s = 253402300800;

// Days since 1970-01-01 of a date in the Gregorian calendar. Years are counted
// from March, so that the leap day is the last of its year; an era is the 400
// years after which the calendar repeats.
static int64_t
days_of_date(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    int64_t day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void
date_of_days(int64_t days, int *year, int *month, int *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
                           day_of_era / 146096) /
                          365;
    int64_t day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * day_of_year + 2) / 153;
    *day = (int)(day_of_year - (153 * from_march + 2) / 5 + 1);
    *month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
    *year = (int)(year_of_era + era * 400 + (*month <= 2));
}

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
    int64_t days = divide_down(time_s, day_s);
    int of_day = (int)(time_s - days * day_s);
    int year, month, day;
    date_of_days(days, &year, &month, &day);
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
             "%04d-%02d-%02dT%02d:%02d:%02d%s+00:00", year, month, day,
             of_day / 3600, of_day / 60 % 60, of_day % 60, fraction);
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

static bool
take_date(const char **at, int64_t *days)
{
    static const int month_days[] = {31, 29, 31, 30, 31, 30,
                                     31, 31, 30, 31, 30, 31};
    int64_t year, month, day;
    if (!take_number(at, 4, 0, 9999, &year) || !take_one_of(at, "-") ||
        !take_number(at, 2, 1, 12, &month) || !take_one_of(at, "-") ||
        !take_number(at, 2, 1, month_days[month - 1], &day))
        return false;
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month == 2 && day == 29 && !is_leap)
        return false;
    *days = days_of_date(year, month, day);
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
    int64_t days, hour, minute, second, fraction_us, offset_s;
    if (!take_date(&at, &days) || !take_one_of(&at, "Tt ") ||
        !take_number(&at, 2, 0, 23, &hour) || !take_one_of(&at, ":") ||
        !take_number(&at, 2, 0, 59, &minute) || !take_one_of(&at, ":") ||
        !take_number(&at, 2, 0, 60, &second) ||
        !take_fraction(&at, &fraction_us) || !take_offset(&at, &offset_s) ||
        *at != '\0')
        return false;
    int64_t time_s =
        days * day_s + hour * 3600 + minute * 60 + second - offset_s;
    // Leap seconds are put in at the end of a day in UTC and nowhere else.
    if (second == 60 && time_s % day_s != 0)
        return false;
    if (!is_in_range(time_s))
        return false;
    *time_us = time_s * second_us + fraction_us;
    return true;
}
