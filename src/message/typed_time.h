// SPDX-License-Identifier: MIT
// Times as RFC 3339 writes them.

#ifndef SKR_MESSAGE_TYPED_TIME_H
#define SKR_MESSAGE_TYPED_TIME_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

enum { SKR_TIME_TEXT_SIZE = 33 };

// "2025-10-08T13:30:00+00:00", with up to six digits of a second if it has a
// fraction. False outside of the years 0000 to 9999.
SKR_MUST_CHECK bool
skr_time_format(int64_t time_us, char text[SKR_TIME_TEXT_SIZE]);

// Any offset; digits past the microsecond are dropped; a leap second counts as
// the second after it. False when it is no such time.
SKR_MUST_CHECK bool skr_time_parse(const char *text, int64_t *time_us);

#endif
