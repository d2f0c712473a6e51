// SPDX-License-Identifier: MIT
// Which hosts did not answer this process of late: a new connection that has a
// choice tries them last, as each costs a whole timeout.

#ifndef SKR_BASE_SILENCE_H
#define SKR_BASE_SILENCE_H

#include "base/host.h"

// The host, as skr_host_show() has it, was connected to, or could be, and said
// nothing.
void skr_silence_note(const char *peer);
// It has answered.
void skr_silence_end(const char *peer);

struct skr_candidate {
    struct skr_host host;
    int64_t silent_ms;  // when it was, by skr_clock_ms(); 0: not lately
    size_t place;
};
// The hosts of a list as they are best tried: those that were silent last, and
// the one that was so most lately at the very end. port is that of hosts which
// name none; 0: it stays so. spreads: from a random one on, so that many
// clients spread. NULL when memory is out; the caller frees them.
struct skr_candidate *
skr_silence_sort(const char *list, uint16_t port, bool spreads, size_t *count);

#endif
