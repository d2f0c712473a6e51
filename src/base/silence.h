// SPDX-License-Identifier: MIT
// Which hosts did not answer this process of late: a new connection that has a
// choice tries them last, as each costs a whole timeout.

#ifndef SKR_BASE_SILENCE_H
#define SKR_BASE_SILENCE_H

#include <stdint.h>

enum { SKR_SILENCE_PEER_SIZE = 264 };

// The host, as "host:port", was connected to, or could be, and said nothing.
void skr_silence_note(const char *peer);
// It has answered.
void skr_silence_end(const char *peer);
// When it was silent, by skr_clock_ms(); 0: not lately.
int64_t skr_silence_ms(const char *peer);

#endif
