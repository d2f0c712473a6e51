// SPDX-License-Identifier: MIT
// Counts confirmed messages, and decides whether a message's age is a latency:
// of a scheduled one it is not.

#include "relay/tally.h"

#include "base/clock.h"
#include "message/batch.h"
#include "message/id.h"

enum { SECOND_US = 1000000 };

bool
skr_tally_latency(const struct skr_batch_item *item, int64_t now_us,
                  int64_t *latency_us)
{
    const struct skr_message *message = &item->envelope.message;
    int64_t began_us = message->created_at_us;
    int64_t made_us = skr_id_time_us(message->id);
    // What was refused had to wait for that; what was scheduled, on purpose.
    bool was_scheduled = item->had_to_wait && item->envelope.retry_count == 0;
    if (began_us <= 0 || was_scheduled)
        return false;
    // An id of another second is as old as its maker's clock says, or as the
    // time that it was kept for: neither tells when the row was written.
    if (made_us >= began_us && made_us < began_us + SECOND_US)
        began_us = made_us;
    *latency_us = now_us > began_us ? now_us - began_us : 0;
    return true;
}

void
skr_tally_confirm(struct skr_relay_tally *tally,
                  const struct skr_batch_item *item)
{
    int64_t latency_us = 0;
    atomic_fetch_add_explicit(&tally->confirmed, 1, memory_order_relaxed);
    if (skr_tally_latency(item, skr_clock_wall_us(), &latency_us))
        skr_histogram_add(&tally->latency, latency_us);
}
