// SPDX-License-Identifier: MIT
// The time zone that other writers of a table write. Times in tables are UTC;
// where they are not, everything that is compared with them or written beside
// them is the server's clock in that zone.

#ifndef SKR_DB_ZONE_H
#define SKR_DB_ZONE_H

#include "db/sql.h"

enum {
    SKR_ZONE_SIZE = 64,
    SKR_ZONE_TEXT_SIZE = SKR_ZONE_SIZE + 16,
    SKR_ZONE_WORDS = 8,
};

// As SQL writes it: checked, so that it can stand in a statement.
struct skr_zone {
    bool is_utc;
    char name[SKR_ZONE_SIZE];
    char text[SKR_ZONE_TEXT_SIZE];
    char back[SKR_ZONE_TEXT_SIZE];  // an offset the other way round, or ""
};

// An offset such as +02:00 or a name such as Europe/Berlin; NULL or "" is UTC.
// SKR_INVALID says what is wrong, or that this database knows no names.
SKR_MUST_CHECK enum skr_code
skr_zone_read(const struct skr_dialect *dialect, const char *text,
              struct skr_zone *zone, struct skr_error *error);

// Words for templates about a table in this zone:
//   now, now_plus, now_after, now_minus   as the dialect's, in this zone
//   from_utc        a time in UTC that is bound (one parameter), in this zone
//   created_at_utc  the column in UTC; NULL where it is that already
//   zone_text, zone_back   the zone itself, for the words of the dialect
// Gives their number. The zone outlives them.
size_t skr_zone_words(const struct skr_zone *zone,
                      struct skr_word words[SKR_ZONE_WORDS]);

#endif
