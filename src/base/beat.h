// SPDX-License-Identifier: MIT
// Whether the loop of a thread turns. The thread says so at every turn, and
// says when it waits for something outside of the process: a server, a lock,
// a handler. Such a wait has bounds of its own, and is no standstill however
// long it takes.

#ifndef SKR_BASE_BEAT_H
#define SKR_BASE_BEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Zeroed: of a thread that has not begun. [shared]
struct skr_beat {
    atomic_int_least64_t turned_ms;  // by skr_clock_ms()
};

// From now on the calls of this thread are about this beat, until the end.
void skr_beat_begin(struct skr_beat *beat);
void skr_beat_end(void);

// Of the thread that calls; nothing happens in one that has not begun. Waits
// may lie within each other.
void skr_beat_turn(void);
void skr_beat_wait(void);
void skr_beat_resume(void);

// The beats of a worker, which live as long as it does. A place may be NULL.
enum { SKR_PULSE_MAX = 2 };
struct skr_pulse {
    const struct skr_beat *beats[SKR_PULSE_MAX];
};
// From any thread: each of them has turned within this time, or waits, or does
// not run.
bool skr_pulse_is_fresh(const struct skr_pulse *pulse, int64_t within_ms);

#endif
