// SPDX-License-Identifier: MIT
// Programs that run for weeks, under one configuration after the other.

#ifndef SKR_APP_SERVICE_RELOADING_H
#define SKR_APP_SERVICE_RELOADING_H

#include "app/app.h"

struct skr_reloading {
    // Loaded and found good: what runs under the present one is to end, and run
    // again under this. NULL: none.
    struct skr_config *next;
    bool has_started;  // workers run, or ran, under the present one
};

// As skr_app_run_configured(), and again under each configuration that
// skr_reloading_try() accepted. One under which nothing can be started is given
// up, and the one before it runs on.
enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run);

// Loads the configuration again, and says what comes of it. True: it is to be
// used. A bad one changes nothing.
bool skr_reloading_try(const struct skr_app *app);

// Workers run from now on under the present configuration, where there is one.
void skr_reloading_note_start(const struct skr_app *app);

// Whether what ends now begins again under another configuration.
bool skr_reloading_is_due(const struct skr_app *app);

#endif
