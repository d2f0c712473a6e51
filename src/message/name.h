// SPDX-License-Identifier: MIT
// Message names, and the classes that other languages know them by.

#ifndef SKR_MESSAGE_NAME_H
#define SKR_MESSAGE_NAME_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

// Words of lower case letters and digits that begin with a letter, joined by
// dots, at least two: "order.placed".
bool skr_name_is_valid(const char *name);

// The same as an error that says what is wrong with this one.
SKR_MUST_CHECK enum skr_code
skr_name_check(const char *name, struct skr_error *error);

// PHP class names hold a backslash; message names never do.
bool skr_name_is_class(const char *name);

// message_types of the configuration: borrowed, sorted in no way, small.
struct skr_name_pair {
    const char *name;
    const char *class_name;
};

struct skr_names {
    const struct skr_name_pair *pairs;
    size_t count;
};

// NULL when unknown; names may be NULL.
const char *
skr_names_find_class(const struct skr_names *names, const char *name);
const char *
skr_names_find_name(const struct skr_names *names, const char *class_name);

#endif
