// SPDX-License-Identifier: MIT
// A queue of its own for a trial on a configured transport: identical messages
// go into it, and nothing of the application's comes near it.

#ifndef SKR_APP_COMMANDS_TRIAL_QUEUE_H
#define SKR_APP_COMMANDS_TRIAL_QUEUE_H

#include "app/app.h"
#include "broker/broker.h"

#define SKR_TRIAL_MESSAGE "skirnir.test"

// How many identical messages are published.
enum { SKR_TRIAL_COPIES = 3 };

struct skr_trial_queue {
    const struct skr_app *app;
    struct skr_id id;  // of the messages
    char name[sizeof("skirnir.test.") + SKR_ID_TEXT_SIZE];
    struct skr_config_transport transport;  // with this queue alone
    char *dsn;                              // owned; NULL: the transport's
    char retries_name[sizeof("skirnir.test..retry") + SKR_ID_TEXT_SIZE];
    struct skr_config_transport retries;  // zeroes: the queue holds its own
};

// Whether a queue can be had there: in a table by its name alone, on a server
// that makes queues. SKR_INVALID says why not.
SKR_MUST_CHECK enum skr_code
skr_trial_queue_check(const struct skr_config_transport *transport,
                      struct skr_error *error);

// Begins with zeroes, app and id. In a table the name of a queue is enough; on
// a server it is declared before the messages are published, and bound to
// nothing.
SKR_MUST_CHECK enum skr_code
skr_trial_queue_init(struct skr_trial_queue *queue,
                     const struct skr_config *config,
                     const struct skr_config_transport *transport,
                     struct skr_error *error);
void skr_trial_queue_fini(struct skr_trial_queue *queue);

// Returns when the broker has confirmed all copies.
SKR_MUST_CHECK enum skr_code
skr_trial_queue_publish(const struct skr_trial_queue *queue,
                        struct skr_error *error);
// Takes so many that are left, in the queue or as retries beside it, if they
// come within a few seconds.
SKR_MUST_CHECK enum skr_code
skr_trial_queue_drain(const struct skr_trial_queue *queue, uint64_t left,
                      struct skr_error *error);

#endif
