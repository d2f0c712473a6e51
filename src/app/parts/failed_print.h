// SPDX-License-Identifier: MIT
// How one failed message, or the head of a blocked partition, is shown.

#ifndef SKR_APP_PARTS_FAILED_PRINT_H
#define SKR_APP_PARTS_FAILED_PRINT_H

#include "app/parts/failed.h"

struct skr_json_writer;

// Everything about it but headers and body; with a detail of 1 or more, these
// too, the body in lines if it is JSON.
void skr_failed_print(const struct skr_failed_found *found, size_t detail);

// The same as an object; the body is in it where it was read.
void skr_failed_write_json(const struct skr_failed_found *found,
                           struct skr_json_writer *json);

#endif
