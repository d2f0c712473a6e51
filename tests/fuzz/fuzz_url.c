// SPDX-License-Identifier: MIT
// DSNs come from files and environments, and passwords in them must never show.
#include "fuzz.h"

#include "base/text.h"
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

static void
check_parsed(const struct skr_url *url)
{
    if (url->scheme == NULL || url->parameter_count > SKR_URL_MAX_PARAMETERS)
        abort();
    for (size_t i = 0; i < url->parameter_count; i++) {
        int64_t number = 0;
        struct skr_error error;
        const char *name = url->parameters[i].name;
        if (skr_url_find(url, name) == NULL)
            abort();
        if (skr_url_number(url, name, 1, 9, &number, &error) == SKR_OK &&
            (number < 1 || number > 9))
            abort();
    }
}

// A password that parses is not in the masked text, unless other parts of the
// text hold it too or it is no longer than what could stand there by chance.
static void
check_masked(const char *text, const struct skr_url *url, const char *masked)
{
    if (url->password == NULL || strlen(url->password) < 8)
        return;
    const char *first = strstr(text, url->password);
    if (first == NULL || strstr(first + 1, url->password) != NULL)
        return;
    if (strstr(masked, url->password) != NULL)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';

    char *masked = skr_url_mask(text);
    if (masked == NULL)
        abort();
    struct skr_url url;
    struct skr_error error = {0};
    if (skr_url_parse(text, &url, &error) == SKR_OK) {
        check_parsed(&url);
        check_masked(text, &url, masked);
        skr_url_fini(&url);
    } else if (error.text[0] == '\0' ||
               !skr_text_is_storable(error.text, strlen(error.text))) {
        abort();
    }
    free(masked);
    free(text);
    return 0;
}
