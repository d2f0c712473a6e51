// SPDX-License-Identifier: MIT
// Programs that run for weeks, under one configuration after the other.

#ifndef SKR_APP_SERVICE_RELOADING_H
#define SKR_APP_SERVICE_RELOADING_H

#include "app/app.h"

struct skr_reloading {
    // Loaded and found good: what runs under the present one is to end, and run
    // again under this. NULL: none.
    struct skr_config *next;
    const struct skr_config *present;
    bool has_started;      // workers run, or ran, under the present one
    bool has_worked;       // under one before the present one
    int64_t next_look_ms;  // for files that have changed, by skr_clock_ms()
};

// As skr_app_run_configured(), and again under each configuration that
// skr_reloading_try() accepted. One under which nothing can be started is given
// up, and the one before it runs on.
enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run);

// Loads the configuration again, and says what comes of it. True: it is to be
// used. A bad one changes nothing.
bool skr_reloading_try(const struct skr_app *app);

// Whether a file with credentials has changed: then they are rotated, and the
// old ones may end at any time. False too when it was asked for a moment ago.
bool skr_reloading_is_needed(const struct skr_app *app);
// How long a process may sleep before it asks again; -1: for ever.
int64_t skr_reloading_pause_ms(const struct skr_app *app);

// Workers run from now on under the present configuration, where there is one.
void skr_reloading_note_start(const struct skr_app *app);

// All workers were at work under the present configuration.
void skr_reloading_note_work(const struct skr_app *app);
// Whether they were so under a configuration before the present one.
bool skr_reloading_has_worked(const struct skr_app *app);

// Whether what ends now begins again under another configuration.
bool skr_reloading_is_due(const struct skr_app *app);

#endif
