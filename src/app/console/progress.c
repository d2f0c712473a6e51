// SPDX-License-Identifier: MIT
// Draws a progress bar, keeps to a rate, stops at a signal, and asks yes or no.

#include "app/console/progress.h"

#include "app/console/signals.h"
#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { REDRAW_MS = 100, WIDTH = 20 };

static volatile sig_atomic_t is_stopped;

static void
note_stop(void *user)
{
    (void)user;
    is_stopped = 1;
}

void
skr_progress_catch_signals(void)
{
    skr_signals_on_stop(note_stop, NULL);
}

bool
skr_progress_is_stopped(void)
{
    return is_stopped != 0;
}

static void
draw(const struct skr_progress *progress)
{
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%llu", (unsigned long long)progress->done);
        return;
    }
    uint64_t done =
        progress->done < progress->total ? progress->done : progress->total;
    int filled = (int)(done * WIDTH / progress->total);
    fprintf(stderr, "\r\033[K[%.*s%*s] %llu/%llu", filled,
            "####################", WIDTH - filled, "",
            (unsigned long long)progress->done,
            (unsigned long long)progress->total);
}

void
skr_progress_begin(struct skr_progress *progress, uint64_t total, uint32_t rate)
{
    *progress = (struct skr_progress){
        .total = total,
        .rate = rate,
        .is_shown = isatty(STDERR_FILENO) != 0,
    };
}

static void
keep_rate(struct skr_progress *progress, uint64_t steps)
{
    if (progress->rate == 0)
        return;
    // Time that was lost is not made up for: that would be faster than allowed.
    int64_t now_us = skr_clock_us(), wait_us;
    if (progress->next_step_us < now_us)
        progress->next_step_us = now_us;
    progress->next_step_us += (int64_t)(steps * 1000000 / progress->rate);
    // In slices: a signal is heeded between them. What is less than a
    // millisecond is waited for with the next step.
    while (!is_stopped &&
           (wait_us = progress->next_step_us - skr_clock_us()) >= 1000)
        skr_clock_sleep(-1, wait_us < REDRAW_MS * 1000 ? wait_us / 1000
                                                       : REDRAW_MS);
}

bool
skr_progress_step(struct skr_progress *progress, uint64_t steps)
{
    progress->done += steps;
    int64_t now_ms = skr_clock_ms();
    if (progress->is_shown && now_ms >= progress->next_ms) {
        progress->next_ms = now_ms + REDRAW_MS;
        draw(progress);
    }
    keep_rate(progress, steps);
    return !is_stopped;
}

void
skr_progress_clear(struct skr_progress *progress)
{
    if (progress->is_shown)
        fprintf(stderr, "\r\033[K");
    progress->next_ms = 0;
}

void
skr_progress_end(struct skr_progress *progress)
{
    skr_progress_clear(progress);
    progress->is_shown = false;
}

bool
skr_ask(const char *question)
{
    fprintf(stderr, "%s [y/N] ", question);
    int answer = getchar();
    for (int c = answer; c != '\n' && c != EOF;)
        c = getchar();
    return answer == 'y' || answer == 'Y';
}
