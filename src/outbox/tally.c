// SPDX-License-Identifier: MIT
#include "outbox/tally.h"

#include "base/clock.h"
#include "message/batch.h"

enum { SECOND_US = 1000000 };

// Microseconds since 1970; 0: the id does not tell.
static int64_t
id_time_us(const struct skr_id *id)
{
    int64_t time_ms = 0;
    if (id->bytes[6] >> 4 != 7 || id->bytes[8] >> 6 != 2)
        return 0;
    for (int i = 0; i < 6; i++)
        time_ms = time_ms << 8 | id->bytes[i];
    return time_ms * 1000;
}

bool
skr_tally_latency(const struct skr_batch_item *item, int64_t now_us,
                  int64_t *latency_us)
{
    const struct skr_message *message = &item->envelope.message;
    int64_t began_us = message->created_at_us;
    int64_t made_us = id_time_us(&message->id);
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
