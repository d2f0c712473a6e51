// SPDX-License-Identifier: MIT
// One call for each kind of JSON member, with null for a number that is not
// known.

#include "app/parts/members.h"

#include "base/text.h"
#include "message/json.h"

#include <string.h>

void
skr_member_text(struct skr_json_writer *json, const char *name,
                const char *text)
{
    struct skr_text storable = {0};
    skr_json_write_name(json, name);
    if (text == NULL) {
        skr_json_write_null(json);
        return;
    }
    skr_text_add_storable(&storable, text, strlen(text));
    json->text.broken |= storable.broken;
    skr_json_write_text(json, storable.size > 0 ? storable.bytes : "",
                        storable.size);
    skr_text_fini(&storable);
}

void
skr_member_number(struct skr_json_writer *json, const char *name,
                  uint64_t number)
{
    skr_member_known(json, name, true, number);
}

void
skr_member_known(struct skr_json_writer *json, const char *name, bool is_known,
                 uint64_t number)
{
    skr_json_write_name(json, name);
    if (is_known)
        skr_json_write_unsigned(json, number);
    else
        skr_json_write_null(json);
}

void
skr_member_truth(struct skr_json_writer *json, const char *name, bool truth)
{
    skr_json_write_name(json, name);
    skr_json_write_boolean(json, truth);
}
