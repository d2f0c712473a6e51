// SPDX-License-Identifier: MIT
// Values of a configuration as people may see them.

#ifndef SKR_APP_CONFIG_MASK_H
#define SKR_APP_CONFIG_MASK_H

#include "app/config/config.h"

// With "***" in place of a private key, of what is secret in a DSN, and of each
// variable of the environment that is in it and has the name of a secret. NULL:
// memory is out; the caller frees it.
char *skr_config_mask(const struct skr_config *config, const char *text);

#endif
