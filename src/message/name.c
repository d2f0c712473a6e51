// SPDX-License-Identifier: MIT
#include "message/name.h"

#include "base/error.h"

#include <string.h>

bool
skr_name_is_valid(const char *name)
{
    size_t words = 0;
    const char *at = name;
    for (;;) {
        if (*at < 'a' || *at > 'z')
            return false;
        while ((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9'))
            at++;
        words++;
        if (*at == '\0')
            return words >= 2 && at - name <= 255;
        if (*at++ != '.')
            return false;
    }
}

enum skr_code
skr_name_check(const char *name, struct skr_error *error)
{
    if (name == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the message has no name; give one such as "
                        "order.placed");
    if (!skr_name_is_valid(name))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message name '%.120s': lower case words and digits "
                        "joined by single dots are needed, at least two, as "
                        "in order.placed",
                        name);
    return SKR_OK;
}

bool
skr_name_is_class(const char *name)
{
    return strchr(name, '\\') != NULL;
}

const char *
skr_names_find_class(const struct skr_names *names, const char *name)
{
    for (size_t i = 0; names != NULL && i < names->count; i++)
        if (strcmp(names->pairs[i].name, name) == 0)
            return names->pairs[i].class_name;
    return NULL;
}

const char *
skr_names_find_name(const struct skr_names *names, const char *class_name)
{
    for (size_t i = 0; names != NULL && i < names->count; i++)
        if (strcmp(names->pairs[i].class_name, class_name) == 0)
            return names->pairs[i].name;
    return NULL;
}
