// SPDX-License-Identifier: MIT
// Recognizes secrets by the names of settings and by the head of a PEM key, so
// that logs and printed configurations can mask them.

#include "base/secret.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

// Anywhere in a name. Those of librdkafka's properties that hold a secret and
// are not called so are among them.
static const char *const parts[] = {
    "password",   "passwd",    "passphrase", "secret",     "token",
    "apikey",     "api_key",   "api-key",    "api.key",    "access_key",
    "access-key", "accesskey", "private",    "credential", "key.pem",
    "key_pem",    "key-pem",   "jaas",       "kinit.cmd",  "oauthbearer.config",
};
// Between what is no letter: "passive" and "bypass" are no passwords.
static const char *const words[] = {"pass", "pwd"};

static bool
begins_with(const char *text, size_t size, const char *part)
{
    size_t length = strlen(part);
    return size >= length && strncasecmp(text, part, length) == 0;
}

static bool
is_letter(const char *name, size_t size, size_t at)
{
    return at < size && isalpha((unsigned char)name[at]) != 0;
}

static bool
has_word_at(const char *name, size_t size, size_t at)
{
    if (at > 0 && is_letter(name, size, at - 1))
        return false;
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (begins_with(name + at, size - at, words[i]) &&
            !is_letter(name, size, at + strlen(words[i])))
            return true;
    return false;
}

bool
skr_secret_is_name(const char *name, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        if (has_word_at(name, size, at))
            return true;
        for (size_t i = 0; i < SKR_COUNT_OF(parts); i++)
            if (begins_with(name + at, size - at, parts[i]))
                return true;
    }
    return false;
}

bool
skr_secret_is_key(const char *text)
{
    return strstr(text, "PRIVATE KEY-----") != NULL;
}
