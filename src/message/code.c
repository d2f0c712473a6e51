// SPDX-License-Identifier: MIT
// Names of codes, and the version: what the public header promises of itself.

#include <skirnir/skirnir.h>

#include "base/text.h"

static const struct {
    const char *name;
    const char *text;
} codes[] = {
#define SKR_CODE_ENTRY(name, text) {#name, text},
    SKR_CODES(SKR_CODE_ENTRY)
#undef SKR_CODE_ENTRY
};

const char *
skr_version(void)
{
    return SKR_VERSION;
}

const char *
skr_code_name(enum skr_code code)
{
    return (size_t)code < SKR_COUNT_OF(codes) ? codes[code].name : "UNKNOWN";
}

const char *
skr_code_text(enum skr_code code)
{
    return (size_t)code < SKR_COUNT_OF(codes) ? codes[code].text
                                              : "unknown code";
}
