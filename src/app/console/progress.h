// SPDX-License-Identifier: MIT
// A bar on a terminal for what takes its time, and a limit to its rate.

#ifndef SKR_APP_CONSOLE_PROGRESS_H
#define SKR_APP_CONSOLE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

// Shown on standard error, and only if that is a terminal.
struct skr_progress {
    uint64_t total;  // 0: not known
    uint64_t done;
    uint32_t rate;         // a second; 0: as fast as it goes
    int64_t next_ms;       // when it is drawn again
    int64_t next_step_us;  // when the rate allows for the next step
    bool is_shown;
};

void skr_progress_begin(struct skr_progress *progress, uint64_t total,
                        uint32_t rate);
// Waits as the rate asks for. False: the program was told to stop.
bool skr_progress_step(struct skr_progress *progress, uint64_t steps);
// Makes room for a line of text; the next step draws the bar below it.
void skr_progress_clear(struct skr_progress *progress);
// Removes the bar.
void skr_progress_end(struct skr_progress *progress);

// SIGINT and SIGTERM are noted from now on, and heeded between two steps.
void skr_progress_catch_signals(void);
bool skr_progress_is_stopped(void);

// Asks "question [y/N]" on the terminal. False unless the answer is yes.
bool skr_ask(const char *question);

#endif
