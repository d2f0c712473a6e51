// SPDX-License-Identifier: MIT
// Two clocks: monotonic for waiting, wall for timestamps.

#ifndef SKR_BASE_CLOCK_H
#define SKR_BASE_CLOCK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// Milliseconds that go on while the host is suspended (CLOCK_BOOTTIME).
int64_t skr_clock_ms(void);
// The same in microseconds, for how long something took.
int64_t skr_clock_us(void);
// Microseconds since 1970.
int64_t skr_clock_wall_us(void);

// The earlier of two times, of which 0 is never.
int64_t skr_clock_earlier(int64_t one_ms, int64_t other_ms);

enum { SKR_TIMESTAMP_SIZE = 20 };
// "2026-11-15 02:53:45" in UTC. A part of a second is dropped; what is out of
// the years 1000 to 9999 becomes the nearest time within.
void skr_clock_timestamp(int64_t wall_us, char text[SKR_TIMESTAMP_SIZE]);
// Reads such a text, with or without a part of a second, which is dropped;
// false when it is none.
bool skr_clock_parse_timestamp(const char *text, int64_t *wall_us);

// Times as RFC 3339 writes them.
enum { SKR_TIME_TEXT_SIZE = 33 };

// "2025-10-08T13:30:00+00:00", with up to six digits of a second if it has a
// fraction. False outside of the years 0000 to 9999.
bool skr_time_format(int64_t time_us, char text[SKR_TIME_TEXT_SIZE]);

// Any offset; digits past the microsecond are dropped; a leap second counts as
// the second after it. False when it is no such time.
bool skr_time_parse(const char *text, int64_t *time_us);

// As poll(), but goes on after a signal; a time that is over counts as none.
int skr_clock_poll(struct pollfd *files, size_t count, int64_t timeout_ms);
// Waits until the file is ready for these events of poll(), or has failed
// (true), or the time is over (false).
bool skr_clock_await(int fd, short events, int64_t timeout_ms);
// Sleeps until wake_fd is readable (true) or the time is over (false). A
// negative wake_fd is never readable.
bool skr_clock_sleep(int wake_fd, int64_t timeout_ms);

// timeout_ms from now by CLOCK_MONOTONIC, for a condition that waits by that
// clock. It stands still while the host is suspended, skr_clock_ms() does not:
// a wait that must end in time after that is made of short ones.
struct timespec skr_clock_deadline(int64_t timeout_ms);

#endif
