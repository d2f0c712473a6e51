// SPDX-License-Identifier: MIT
// A broker that is being connected to by a thread of its own: a server that
// does not answer holds up that thread alone.

#ifndef SKR_RELAY_OPENING_H
#define SKR_RELAY_OPENING_H

#include "broker/broker.h"

struct skr_opening;

// The options are borrowed until the end. Their wake_fd is the broker's once it
// is open.
SKR_MUST_CHECK enum skr_code
skr_opening_start(const struct skr_broker_ops *ops,
                  const struct skr_broker_options *options,
                  struct skr_opening **opening, struct skr_error *error);
// Whether it has come to its end, which is waited for up to timeout_ms.
bool skr_opening_wait(const struct skr_opening *opening, uint32_t timeout_ms);
// What came of it, as skr_broker_open() has it; waits for the end.
SKR_MUST_CHECK enum skr_code
skr_opening_finish(struct skr_opening *opening, struct skr_broker **broker,
                   struct skr_error *error);
// The caller does not want it any more. Takes NULL.
void skr_opening_cancel(struct skr_opening *opening);

#endif
