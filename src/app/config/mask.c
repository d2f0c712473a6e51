// SPDX-License-Identifier: MIT
// Masks secrets in values that are printed: passwords of DSNs, and values that
// came from the environment or from files.

#include "app/config/mask.h"

#include "base/secret.h"
#include "base/text.h"
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

#define MASK "***"

// What is shorter stands in too many places to be recognized.
enum { LEAST_VALUE = 4 };

// The value of the longest variable or file that the text begins with; 0: none.
static size_t
variable_size(const struct skr_config *config, const char *text)
{
    size_t longest = 0;
    // Values that stand in files of their own are taken for secrets.
    for (size_t i = 0; i < config->file_count; i++) {
        size_t size = strlen(config->files[i].text);
        if (size >= LEAST_VALUE && size > longest &&
            strncmp(text, config->files[i].text, size) == 0)
            longest = size;
    }
    for (size_t i = 0; i < config->variable_count; i++) {
        const char *name = config->variables[i];
        const char *value = getenv(name);
        size_t size = value == NULL ? 0 : strlen(value);
        if (size >= LEAST_VALUE && size > longest &&
            skr_secret_is_name(name, strlen(name)) &&
            strncmp(text, value, size) == 0)
            longest = size;
    }
    return longest;
}

static char *
mask_variables(const struct skr_config *config, const char *text)
{
    struct skr_text masked = {0};
    skr_text_add(&masked, "", 0);
    while (*text != '\0') {
        size_t size = variable_size(config, text);
        skr_text_add(&masked, size > 0 ? MASK : text,
                     size > 0 ? strlen(MASK) : 1);
        text += size > 0 ? size : 1;
    }
    return skr_text_take(&masked);
}

// A DSN may stand in any text, not only where one is expected.
char *
skr_config_mask(const struct skr_config *config, const char *text)
{
    if (skr_secret_is_key(text))
        return strdup(MASK);
    char *masked = mask_variables(config, text);
    if (masked == NULL || strstr(masked, "://") == NULL)
        return masked;
    char *dsn = skr_url_mask(masked);
    free(masked);
    return dsn;
}
