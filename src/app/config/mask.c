// SPDX-License-Identifier: MIT
// Masks secrets in values that are printed: passwords of DSNs, values that came
// from the environment or from files, and words behind an option such as
// --token.

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

#define BLANKS " \t\r\n;"

// Bytes of a value at text: up to a blank, or to the quote that it begins with.
static size_t
value_size(const char *text)
{
    if (*text != '"' && *text != '\'')
        return strcspn(text, BLANKS "\"'");
    const char *end = strchr(text + 1, *text);
    return end == NULL ? strlen(text) : (size_t)(end + 1 - text);
}

// One piece of a word, without blanks; what follows it may be its value.
static size_t
add_piece(struct skr_text *masked, const char *text, bool *is_next)
{
    size_t size = strcspn(text, BLANKS "\"'");
    size_t dashes = strspn(text, "-");
    size_t name = strcspn(text, "=" BLANKS "\"'");
    if (*is_next) {
        *is_next = false;
        skr_text_add_string(masked, MASK);
        return value_size(text);
    }
    bool is_secret =
        name > dashes && skr_secret_is_name(text + dashes, name - dashes);
    if (!is_secret || (text[name] != '=' && dashes == 0)) {
        // A quote alone is a piece as well.
        size = size == 0 ? 1 : size;
        skr_text_add(masked, text, size);
        return size;
    }
    if (text[name] != '=') {
        *is_next = true;
        skr_text_add(masked, text, name);
        return name;
    }
    skr_text_add(masked, text, name + 1);
    skr_text_add_string(masked, MASK);
    return name + 1 + value_size(text + name + 1);
}

char *
skr_config_mask_word(const struct skr_config *config, const char *word,
                     bool *is_next)
{
    struct skr_text masked = {0};
    skr_text_add(&masked, "", 0);
    while (*word != '\0') {
        size_t blanks = strspn(word, BLANKS);
        skr_text_add(&masked, word, blanks);
        word += blanks;
        if (*word != '\0')
            word += add_piece(&masked, word, is_next);
    }
    char *text = skr_text_take(&masked);
    char *shown = text == NULL ? NULL : skr_config_mask(config, text);
    free(text);
    return shown;
}
