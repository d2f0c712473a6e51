// SPDX-License-Identifier: MIT
// The polling interval as a function of when rows were found. It has no clock,
// so that it can be tested with any times.

#include "db/pace.h"

enum {
    LEAST_PAUSE_MS = 1,
    STEADY_PAUSE_MS = 7,   // at most, while rows keep coming
    LIVELY_PAUSE_MS = 20,  // at most, while the last row is fresh
    LIVELY_MS = 5000,
    QUIET_PAUSE_MS = 1000,
    STEADY_GAP_MS = 50,  // rarer than that, each row counts as the first
    SILENT_MS = 60000,   // after which every query counts
    SILENT_PAUSE_MS = 1500,
};

void
skr_pace_found(struct skr_pace *pace, int64_t now_ms)
{
    int64_t gap_ms = now_ms - pace->found_at_ms;
    if (!pace->has_begun || gap_ms > STEADY_GAP_MS)
        gap_ms = 0;
    pace->has_begun = true;
    pace->gap_ms = (3 * pace->gap_ms + gap_ms) / 4;
    pace->found_at_ms = now_ms;
    // Not much more often than rows are expected: that would be in vain.
    int64_t pause_ms = pace->gap_ms * 2 / 3;
    pause_ms = pause_ms < STEADY_PAUSE_MS ? pause_ms : STEADY_PAUSE_MS;
    pace->pause_ms = pause_ms > LEAST_PAUSE_MS ? pause_ms : LEAST_PAUSE_MS;
    if (pace->next_look_ms > now_ms + pace->pause_ms)
        pace->next_look_ms = now_ms + pace->pause_ms;
}

static int64_t
longest_pause_ms(const struct skr_pace *pace, int64_t quiet_ms)
{
    // As long as it may well be chance that nothing came.
    if (quiet_ms < 3 * pace->gap_ms && pace->pause_ms <= STEADY_PAUSE_MS)
        return pace->pause_ms;
    if (quiet_ms < LIVELY_MS)
        return LIVELY_PAUSE_MS;
    if (pace->idle_pause_ms > 0)
        return pace->idle_pause_ms;
    return quiet_ms < SILENT_MS ? QUIET_PAUSE_MS : SILENT_PAUSE_MS;
}

void
skr_pace_look(struct skr_pace *pace, int64_t now_ms)
{
    int64_t most_ms = longest_pause_ms(pace, now_ms - pace->found_at_ms);
    pace->pause_ms =
        pace->pause_ms * 2 < most_ms ? pace->pause_ms * 2 : most_ms;
    pace->next_look_ms = now_ms + pace->pause_ms;
}
