// SPDX-License-Identifier: MIT
// The liveness of a thread's loop, kept in thread-local state: the drivers that
// report a wait do not know which loop called them.

#include "base/beat.h"

#include "base/clock.h"

#include <stddef.h>

enum { NOT_RUNNING = 0 };
#define WAITING INT64_MAX

// A wait is known where a driver is called, far from the loop that it belongs
// to.
static _Thread_local struct skr_beat *current;
static _Thread_local unsigned waits;

static void
tell(int64_t turned_ms)
{
    if (current != NULL)
        atomic_store(&current->turned_ms, turned_ms);
}

void
skr_beat_begin(struct skr_beat *beat)
{
    current = beat;
    waits = 0;
    skr_beat_turn();
}

void
skr_beat_end(void)
{
    tell(NOT_RUNNING);
    current = NULL;
}

void
skr_beat_turn(void)
{
    if (current != NULL && waits == 0)
        tell(skr_clock_ms());
}

void
skr_beat_wait(void)
{
    if (waits++ == 0)
        tell(WAITING);
}

void
skr_beat_resume(void)
{
    if (waits > 0)
        waits--;
    skr_beat_turn();
}

bool
skr_pulse_is_fresh(const struct skr_pulse *pulse, int64_t within_ms)
{
    for (size_t i = 0; i < SKR_PULSE_MAX && pulse->beats[i] != NULL; i++) {
        int64_t turned_ms = atomic_load(&pulse->beats[i]->turned_ms);
        if (turned_ms != NOT_RUNNING && turned_ms != WAITING &&
            skr_clock_ms() - turned_ms >= within_ms)
            return false;
    }
    return true;
}
