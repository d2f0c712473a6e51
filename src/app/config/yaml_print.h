// SPDX-License-Identifier: MIT
// Prints a tree as YAML for people, such that it reads back the same.

#ifndef SKR_APP_CONFIG_YAML_PRINT_H
#define SKR_APP_CONFIG_YAML_PRINT_H

#include <jansson.h>
#include <stdio.h>

// tree is an object. Texts that the configuration's reader would take for
// %env()% are escaped as %%.
void skr_yaml_print(const json_t *tree, FILE *out);

#endif
