// SPDX-License-Identifier: MIT
// Publishing a struct: its JSON as the body, its type's name as the name.

#include "base/error.h"

#include <skirnir/typed.h>
#include <stdlib.h>

enum skr_code
skr_publish_typed(const struct skr_outbox *outbox, struct skr_tx tx,
                  const struct skr_type *type, const void *value,
                  const struct skr_message *extra, struct skr_id *id,
                  struct skr_error *error)
{
    if (type->name == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s is a part of messages and has no name of its own",
                        type->c_type);
    struct skr_message message = {.name = NULL};
    if (extra != NULL)
        message = *extra;
    if (message.name != NULL || message.body != NULL || message.body_size > 0 ||
        message.content_type != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: name, body and content type come from the struct",
                        type->name);
    char *json;
    size_t size;
    enum skr_code code = skr_encode(type, value, NULL, &json, &size, error);
    if (code != SKR_OK)
        return code;
    message.name = type->name;
    message.body = json;
    message.body_size = size;
    code = skr_publish(outbox, tx, &message, 1, id, error);
    free(json);
    return code;
}
