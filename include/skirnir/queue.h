// SPDX-License-Identifier: MIT
// The queue broker: a messenger table used as a broker. Part of libskirnir.

#ifndef SKIRNIR_QUEUE_H
#define SKIRNIR_QUEUE_H

#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

// URL: queue://NAME?table_name=messenger_messages&queue_name=default
//      &redeliver_timeout=60&derive_ids=false. With derive_ids a row without an
//      id gets one from its place in the table. NAME is for people; the
//      database itself is given beside the URL
//      (skr_consumer_options.queue_database).
SKR_API extern const struct skr_broker_ops skr_queue_broker;

#ifdef __cplusplus
}
#endif

#endif
