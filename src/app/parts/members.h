// SPDX-License-Identifier: MIT
// Members of a JSON object, name and value at once.

#ifndef SKR_APP_PARTS_MEMBERS_H
#define SKR_APP_PARTS_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

struct skr_json_writer;

// NULL becomes null, and bytes that JSON cannot hold question marks: a program
// that reads the numbers is not to lose them because of one bad text.
void skr_member_text(struct skr_json_writer *json, const char *name,
                     const char *text);
void skr_member_number(struct skr_json_writer *json, const char *name,
                       uint64_t number);
// Null where it is not known.
void skr_member_known(struct skr_json_writer *json, const char *name,
                      bool is_known, uint64_t number);
void
skr_member_truth(struct skr_json_writer *json, const char *name, bool truth);

#endif
