// SPDX-License-Identifier: MIT
// How often to look for rows where no notification tells of them: soon after
// there were some, at the pace at which they come, and ever less often while
// there is nothing.

#ifndef SKR_DB_PACE_H
#define SKR_DB_PACE_H

#include <stdbool.h>
#include <stdint.h>

// Times are by skr_clock_ms(). Zeroed: not begun.
struct skr_pace {
    bool has_begun;
    int64_t found_at_ms;  // rows were last found
    int64_t gap_ms;       // between such times, lately
    int64_t pause_ms;     // before the next look
    int64_t next_look_ms;
    int64_t idle_pause_ms;  // while nothing comes; 0: as is usual
};

// Rows were found since the last look.
void skr_pace_found(struct skr_pace *pace, int64_t now_ms);
// A look is made now: plans the next one.
void skr_pace_look(struct skr_pace *pace, int64_t now_ms);

#endif
