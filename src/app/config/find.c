// SPDX-License-Identifier: MIT
// Finding keys in the table: what a name in the file means, and what it may
// have meant when it means nothing.
#include "app/config/keys.h"
#include "base/nearest.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

bool
skr_config_is_child(const struct skr_config_key *parent,
                    const struct skr_config_key *key)
{
    const char *name = key->path;
    if (parent != NULL) {
        size_t length = strlen(parent->path);
        if (strncmp(key->path, parent->path, length) != 0 ||
            key->path[length] != '.')
            return false;
        name += length + 1;
    }
    return strchr(name, '.') == NULL;
}

const char *
skr_config_key_name(const struct skr_config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot == NULL ? key->path : dot + 1;
}

static bool
is_pattern(const char *name)
{
    return skr_text_ends_with(name, "*");
}

static bool
fits(const char *pattern, const char *name)
{
    return strncmp(pattern, name, strlen(pattern) - 1) == 0;
}

const struct skr_config_key *
skr_config_find_child(const struct skr_config_key *parent, const char *name,
                      bool other_driver)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    // Patterns stand last among their siblings, so that an exact name wins.
    for (size_t i = 0; i < count; i++) {
        if (!skr_config_is_child(parent, &keys[i]))
            continue;
        if (other_driver ? keys[i].table_only : keys[i].other_only)
            continue;
        const char *child = skr_config_key_name(&keys[i]);
        if (is_pattern(child) ? fits(child, name) : strcmp(child, name) == 0)
            return &keys[i];
    }
    return NULL;
}

static bool
is_offered(const struct skr_config_key *parent,
           const struct skr_config_key *key)
{
    return skr_config_is_child(parent, key) &&
           !is_pattern(skr_config_key_name(key)) &&
           key->type != SKR_TYPE_IGNORED && !key->unoffered;
}

// Whether a key beside the parent has this name.
static bool
is_known_outside(const struct skr_config_key *parent, const char *name)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    size_t outside = parent == NULL
                         ? 0
                         : (size_t)(skr_config_key_name(parent) - parent->path);
    for (size_t i = 0; i < count && outside > 0; i++)
        if (strncmp(keys[i].path, parent->path, outside) == 0 &&
            strcmp(keys[i].path + outside, name) == 0)
            return keys[i].type != SKR_TYPE_IGNORED;
    return false;
}

void
skr_config_suggest(const struct skr_config_key *parent, const char *name,
                   char *text, size_t size)
{
    if (is_known_outside(parent, name)) {
        snprintf(text, size, "it belongs beside '%s', not into it",
                 skr_config_key_name(parent));
        return;
    }
    struct skr_nearest nearest = {.name = name};
    int used = snprintf(text, size, "known here:");
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_offered(parent, &keys[i]))
            continue;
        const char *known = skr_config_key_name(&keys[i]);
        skr_nearest_compare(&nearest, known, known);
        if (used > 0 && (size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, "%s %s",
                             text[used - 1] == ':' ? "" : ",", known);
    }
    if (nearest.meant != NULL)
        snprintf(text, size, "did you mean '%s'?", nearest.meant);
}
