// SPDX-License-Identifier: MIT
// Handlers in shared objects.

#ifndef SKR_INBOX_LIBRARY_H
#define SKR_INBOX_LIBRARY_H

#include <skirnir/skirnir.h>

// What would be said of the object's file, which has a slash in its name, if it
// were loaded, without doing so: nothing in it runs. SKR_INVALID says what is
// wrong and what helps: the object cannot be loaded, it was made for another
// version, it has no such function. What it needs besides itself is not looked
// for.
SKR_MUST_CHECK enum skr_code
skr_library_look(const char *path, const char *function,
                 struct skr_error *error);

#endif
