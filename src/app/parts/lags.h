// SPDX-License-Identifier: MIT
// How far the consumers of a log are behind, by partition, for people and for
// programs.

#ifndef SKR_APP_PARTS_LAGS_H
#define SKR_APP_PARTS_LAGS_H

#include "broker/broker.h"

#include <stdio.h>

struct skr_json_writer;

// Below what else is said of a transport: a line, and a table of those that are
// furthest behind; nothing of a broker that has no partitions. width: of a
// terminal; 0: it is none.
SKR_MUST_CHECK enum skr_code
skr_lags_print(const char *transport, const struct skr_depth *depth,
               size_t width, FILE *out, struct skr_error *error);
// A member of the object that is begun: "lags".
void
skr_lags_write(const struct skr_depth *depth, struct skr_json_writer *json);

#endif
