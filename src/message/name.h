// SPDX-License-Identifier: MIT
// Message names, and the classes that other languages know them by.

#ifndef SKR_MESSAGE_NAME_H
#define SKR_MESSAGE_NAME_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

// Words of lower case letters and digits that begin with a letter, joined by
// dots, at least two: "order.placed". SKR_INVALID says what is wrong with it.
SKR_MUST_CHECK enum skr_code
skr_name_check(const char *name, struct skr_error *error);

// A type as other programs write it, a topic, a class or a word, or a pattern
// of such: not empty, without control characters or blanks around it.
// SKR_INVALID says what is wrong with it.
SKR_MUST_CHECK enum skr_code
skr_type_check(const char *type, struct skr_error *error);

// How well a handler's name fits a message; of several the greatest is its
// handler, and of equal ones the first. The message's own name goes before its
// class, which may be NULL, both before any pattern, and a longer pattern
// before a shorter one. In a pattern each * stands for any number of
// characters, so that "*" alone fits everything and comes last. 0: it does not
// fit.
size_t skr_name_rank(const char *handler_name, const char *name,
                     const char *class_name);

// PHP class names hold a backslash; message names never do.
bool skr_name_is_class(const char *name);

// message_types of the configuration: borrowed, sorted in no way, small. The
// class is whatever other programs call the message by.
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

#endif
