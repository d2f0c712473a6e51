// SPDX-License-Identifier: MIT
// Which properties of librdkafka a DSN may set.

#ifndef SKR_BROKER_KAFKA_PROPERTIES_H
#define SKR_BROKER_KAFKA_PROPERTIES_H

#include <skirnir/skirnir.h>

// SKR_INVALID says why the property cannot be set. Sets nothing: some
// properties run code as soon as they are set.
SKR_MUST_CHECK enum skr_code
skr_kafka_check_property(const char *name, struct skr_error *error);

#endif
