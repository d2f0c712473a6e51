// SPDX-License-Identifier: MIT
// Checks a time zone's text and gives the words by which templates convert
// times to and from it.

#include "db/zone.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_HOURS = 14 };

static bool
is_offset(const char *text)
{
    static const char digits[] = "0123456789";
    if (strlen(text) != 6 || strchr("+-", text[0]) == NULL ||
        strspn(text + 1, digits) != 2 || text[3] != ':' ||
        strspn(text + 4, digits) != 2)
        return false;
    int hours = (text[1] - '0') * 10 + text[2] - '0';
    int minutes = (text[4] - '0') * 10 + text[5] - '0';
    return minutes < 60 && hours * 60 + minutes <= MOST_HOURS * 60;
}

// Letters, digits and what stands between them in the names of zones: nothing
// that means something to SQL.
static bool
is_name(const char *text)
{
    size_t size = strlen(text);
    if (size == 0 || size >= SKR_ZONE_SIZE)
        return false;
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz";
    static const char inner[] = "0123456789_/+-";
    for (size_t i = 0; i < size; i++)
        if (strchr(letters, text[i]) == NULL &&
            (i == 0 || strchr(inner, text[i]) == NULL))
            return false;
    return true;
}

static bool
is_utc(const char *text)
{
    static const char *const names[] = {"", "UTC", "Etc/UTC", "GMT", "Z"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++)
        if (strcasecmp(text, names[i]) == 0)
            return true;
    return strcmp(text, "+00:00") == 0 || strcmp(text, "-00:00") == 0;
}

enum skr_code
skr_zone_read(const struct skr_dialect *dialect, const char *text,
              struct skr_zone *zone, struct skr_error *error)
{
    *zone = (struct skr_zone){.is_utc = text == NULL || is_utc(text)};
    snprintf(zone->name, sizeof(zone->name), "%s", zone->is_utc ? "UTC" : text);
    if (zone->is_utc)
        return SKR_OK;
    if (is_offset(text)) {
        const char *before = skr_sql_word(dialect, "zone_offset");
        snprintf(zone->text, sizeof(zone->text), "%s'%s'", before, text);
        snprintf(zone->back, sizeof(zone->back), "%s'%c%s'", before,
                 text[0] == '+' ? '-' : '+', text + 1);
        return SKR_OK;
    }
    if (!is_name(text))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "time_zone '%.80s' is neither an offset such as +02:00 "
                        "nor the name of a zone such as Europe/Berlin",
                        text);
    if (skr_sql_word(dialect, "zone_names")[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "time_zone %s: %s knows no zones by name; give an "
                        "offset such as +02:00",
                        text, dialect->product);
    snprintf(zone->text, sizeof(zone->text), "'%s'", text);
    return SKR_OK;
}

size_t
skr_zone_words(const struct skr_zone *zone,
               struct skr_word words[SKR_ZONE_WORDS])
{
    if (zone->is_utc) {
        words[0] = (struct skr_word){"from_utc", "?"};
        words[1] = (struct skr_word){"created_at_utc", "NULL"};
        return 2;
    }
    const struct skr_word in_zone[] = {
        {"now", "{zone_now}"},
        {"now_plus", "{zone_now_plus}"},
        {"now_after", "{zone_now_after}"},
        {"now_minus", "{zone_now_minus}"},
        {"from_utc", "{zone_from_utc}"},
        {"created_at_utc", "{zone_created_at}"},
        {"zone_text", zone->text},
        {"zone_back", zone->back},
    };
    memcpy(words, in_zone, sizeof(in_zone));
    return SKR_COUNT_OF(in_zone);
}
