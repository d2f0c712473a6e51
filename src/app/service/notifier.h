// SPDX-License-Identifier: MIT
// What systemd wants to hear of a service (sd_notify(3)): that it runs, how it
// is, and that it is alive. The protocol is a few words on a socket, so that no
// library is needed for it.

#ifndef SKR_APP_SERVICE_NOTIFIER_H
#define SKR_APP_SERVICE_NOTIFIER_H

#include "app/service/health.h"

struct skr_notifier;

// NULL where there is no service manager: NOTIFY_SOCKET is not set. A thread
// says READY=1 when all workers are ready for the first time, or at once if
// they were before, and asks for more time until then. It tells changes of
// health, and WATCHDOG=1 in good time where the service manager asks for it and
// all workers turn.
struct skr_notifier *
skr_notifier_start(struct skr_health *health, bool were_ready);
// Says STOPPING=1 first, or RELOADING=1 where another is started soon. NULL is
// harmless.
void skr_notifier_stop(struct skr_notifier *notifier, bool is_reloading);

#endif
