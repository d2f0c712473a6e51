// SPDX-License-Identifier: MIT
// What an id tells beside which message it is.

#ifndef SKR_MESSAGE_ID_H
#define SKR_MESSAGE_ID_H

#include "base/hash.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

// All bytes are zero, as where none was ever given.
bool skr_id_is_unset(struct skr_id id);

// As text; "" where it is unset.
const char *skr_id_show(struct skr_id id, char text[SKR_ID_TEXT_SIZE]);

// When it was made, in microseconds since 1970 by its maker's clock: a UUIDv7
// tells that to the millisecond. 0: an id of another kind, which does not tell.
int64_t skr_id_time_us(struct skr_id id);

// A UUIDv8 of what makes a message unique and never changes.
struct skr_id skr_id_of_hash(struct skr_hash hash);

#endif
