// SPDX-License-Identifier: MIT
// Filling struct skr_error. Every function tolerates error == NULL.

#ifndef SKR_BASE_ERROR_H
#define SKR_BASE_ERROR_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

// Returns code, so that a failing path is one line: return skr_fail(error, …).
// The text is UTF-8 whatever the arguments held.
enum skr_code
skr_fail(struct skr_error *error, enum skr_code code, enum skr_remedy remedy,
         const char *format, ...) __attribute__((format(printf, 4, 5)));

enum skr_code skr_fail_memory(struct skr_error *error);
// Tells what went wrong before, and gives its code.
enum skr_code
skr_fail_with(struct skr_error *error, const struct skr_error *reason);

// Puts "context: " before the text of an error, as far as there is room.
void skr_error_prefix(struct skr_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Puts "; advice" behind it, and cuts the text where there is no room. NULL:
// none.
void skr_error_advise(struct skr_error *error, const char *advice);

void skr_error_set_native(struct skr_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Whether it is a mistake, which waiting does not mend: a wrong password, a
// database or a table that is not there.
bool skr_error_is_lasting(const struct skr_error *error);

void skr_error_clear(struct skr_error *error);

#endif
