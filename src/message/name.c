// SPDX-License-Identifier: MIT
// Which names and types messages may have, how handlers' patterns match them,
// and the table between semantic names and class names.

#include "message/name.h"

#include "base/error.h"

#include <stdint.h>
#include <string.h>

enum { MAX_NAME = 255 };

static bool
is_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

// What is wrong with the name; NULL: nothing.
static const char *
find_fault(const char *name)
{
    size_t words = 1;
    if (strlen(name) > MAX_NAME)
        return "it is longer than 255 bytes";
    if (!is_letter(name[0]))
        return "each of its words must begin with a lower case letter";
    for (const char *at = name; *at != '\0'; at++) {
        if (is_letter(*at) || (*at >= '0' && *at <= '9'))
            continue;
        if (*at != '.')
            return "it may hold lower case letters, digits and dots only";
        if (!is_letter(at[1]))
            return "each of its words must begin with a lower case letter";
        words++;
    }
    return words < 2 ? "it needs at least two words, joined by a dot" : NULL;
}

enum skr_code
skr_name_check(const char *name, struct skr_error *error)
{
    if (name == NULL || name[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the message has no name; give one such as "
                        "order.placed");
    const char *fault = find_fault(name);
    if (fault != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message name '%.120s': %s; order.placed would do",
                        name, fault);
    return SKR_OK;
}

// What is wrong with a type; NULL: nothing.
static const char *
find_type_fault(const char *type)
{
    size_t length = strlen(type);
    if (length == 0)
        return "it is empty";
    if (length > MAX_NAME)
        return "it is longer than 255 bytes";
    for (const char *at = type; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return "it holds a control character";
    if (type[0] == ' ' || type[length - 1] == ' ')
        return "it has a blank at its beginning or end";
    return NULL;
}

enum skr_code
skr_type_check(const char *type, struct skr_error *error)
{
    const char *fault = find_type_fault(type);
    if (fault == NULL)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "no message has such a name: %s", fault);
}

// Only the last * that was met is tried again: what those before it stand for
// need not change.
static bool
matches(const char *pattern, const char *text)
{
    const char *star = NULL, *again = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            again = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++again;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

size_t
skr_name_rank(const char *handler_name, const char *name,
              const char *class_name)
{
    if (strcmp(handler_name, name) == 0)
        return SIZE_MAX;
    if (class_name != NULL && strcmp(handler_name, class_name) == 0)
        return SIZE_MAX - 1;
    if (strchr(handler_name, '*') == NULL ||
        !(matches(handler_name, name) ||
          (class_name != NULL && matches(handler_name, class_name))))
        return 0;
    size_t rank = 1;
    for (const char *at = handler_name; *at != '\0'; at++)
        rank += *at != '*';
    return rank;
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
