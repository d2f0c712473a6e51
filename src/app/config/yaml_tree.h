// SPDX-License-Identifier: MIT
// YAML as a small tree that keeps its lines. Anchors, aliases and merge keys
// (<<) are resolved: every node stands in the tree once, as a copy.

#ifndef SKR_APP_CONFIG_YAML_TREE_H
#define SKR_APP_CONFIG_YAML_TREE_H

#include "base/arena.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

// Bounds against aliases that multiply and against nesting that exhausts the
// stack of a function that walks the tree.
enum { SKR_YAML_MAX_DEPTH = 32, SKR_YAML_MAX_NODES = 20000 };

enum skr_yaml_kind {
    SKR_YAML_NULL,
    SKR_YAML_TEXT,
    SKR_YAML_LIST,
    SKR_YAML_MAP
};

struct skr_yaml_node {
    enum skr_yaml_kind kind;
    int line;
    bool is_plain;                   // not quoted
    const char *text;                // of SKR_YAML_TEXT; never holds a zero;
                                     // a plain True or TRUE is "true"
    struct skr_yaml_entry *entries;  // of a list or a map
    size_t count;
};

struct skr_yaml_entry {
    const char *key;  // NULL in a list
    int line;         // of the key, or of the item
    struct skr_yaml_node *value;
};

// The tree lives in the arena; *root is NULL when there is no document. On
// SKR_MALFORMED *line says where. A key that stands twice in a map is kept
// twice: only the reader knows how to name it.
SKR_MUST_CHECK enum skr_code
skr_yaml_parse(const char *bytes, size_t size, struct skr_arena *arena,
               struct skr_yaml_node **root, int *line, struct skr_error *error);

// The first entry with this key; NULL when there is none or node is no map.
const struct skr_yaml_entry *
skr_yaml_find(const struct skr_yaml_node *node, const char *key);
// Its value, and the text that this is; NULL: there is none.
const struct skr_yaml_node *
skr_yaml_value(const struct skr_yaml_node *node, const char *key);
const char *skr_yaml_text(const struct skr_yaml_node *node, const char *key);

#endif
