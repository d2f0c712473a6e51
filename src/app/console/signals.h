// SPDX-License-Identifier: MIT
// What the outside asks of the program: to stop, and to read its configuration
// again.

#ifndef SKR_APP_CONSOLE_SIGNALS_H
#define SKR_APP_CONSOLE_SIGNALS_H

#include <stdbool.h>

// SIGTERM and SIGINT call stop(user), which must be safe in a handler; with
// NULL they are ignored, while the program puts its things away.
void skr_signals_on_stop(void (*stop)(void *user), void *user);

// From now on SIGTERM, SIGINT and SIGHUP are noted, and make this descriptor
// readable. Negative: the system gives none, and nothing is noted.
int skr_signals_watch(void);
// Makes it readable, from any thread.
void skr_signals_wake(void);
// Makes it unreadable.
void skr_signals_drain(void);

// A stop stays asked for; a reload is given once.
bool skr_signals_ask_stop(void);
bool skr_signals_take_reload(void);

#endif
