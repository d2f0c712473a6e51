// SPDX-License-Identifier: MIT
// What must not appear in a log or on a screen.

#ifndef SKR_BASE_SECRET_H
#define SKR_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

// Whether a setting, an option or a variable of this name holds a secret:
// "sasl.password", "API_TOKEN", "db-pass", "ssl.key.pem".
bool skr_secret_is_name(const char *name, size_t size);

// Whether the text is or has a private key in PEM.
bool skr_secret_is_key(const char *text);

#endif
