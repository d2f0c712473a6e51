// SPDX-License-Identifier: MIT
// Handlers in shared objects.

#ifndef SKR_INBOX_LIBRARY_H
#define SKR_INBOX_LIBRARY_H

#include <skirnir/skirnir.h>

// Loads the object and finds the function. SKR_INVALID says which of these is
// wrong and what helps: the object cannot be loaded, it was made for another
// version, it has no such function. skr_library_close() takes NULL.
SKR_MUST_CHECK enum skr_code
skr_library_open(const char *path, const char *function, void **library,
                 skr_handler_fn **handler, struct skr_error *error);
void skr_library_close(void *library);

// Says the same of the object's file, which has a slash in its name, without
// loading it: nothing in it runs. What it needs besides itself is not looked
// for.
SKR_MUST_CHECK enum skr_code
skr_library_look(const char *path, const char *function,
                 struct skr_error *error);

// What both find wrong. abi: NULL when there is none.
SKR_MUST_CHECK enum skr_code
skr_library_check_version(const char *path, const uint32_t *abi,
                          struct skr_error *error);
enum skr_code skr_library_fail_function(const char *path, const char *function,
                                        struct skr_error *error);

#endif
