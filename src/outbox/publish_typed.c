// SPDX-License-Identifier: MIT
// Publishing a struct: its JSON as the body, its type's name as the name.

#include "base/error.h"
#include "message/route.h"

#include <skirnir/typed.h>
#include <stdlib.h>
#include <string.h>

// The relay sees rows, not types: the type's route travels in headers of the
// row, which never reach the broker. *headers is to be freed.
static enum skr_code
add_route(const struct skr_type *type, struct skr_message *message,
          struct skr_header **headers, struct skr_error *error)
{
    *headers = NULL;
    if (type->exchange == NULL && type->routing_key == NULL)
        return SKR_OK;
    size_t count = message->header_count;
    struct skr_header *made = calloc(count + 2, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    if (count > 0)
        memcpy(made, message->headers, count * sizeof(*made));
    if (type->exchange != NULL)
        made[count++] =
            (struct skr_header){SKR_HEADER_TYPE_EXCHANGE, type->exchange};
    if (type->routing_key != NULL)
        made[count++] =
            (struct skr_header){SKR_HEADER_TYPE_ROUTING_KEY, type->routing_key};
    message->headers = *headers = made;
    message->header_count = count;
    return SKR_OK;
}

enum skr_code
skr_publish_typed(const struct skr_outbox *outbox, struct skr_tx tx,
                  const struct skr_typed_message *typed, struct skr_id *id,
                  struct skr_error *error)
{
    const struct skr_type *type = typed->type;
    if (type->name == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s is a part of messages and has no name of its own",
                        type->c_type);
    struct skr_message message = {.name = NULL};
    if (typed->extra != NULL)
        message = *typed->extra;
    if (message.name != NULL || message.body != NULL || message.body_size > 0 ||
        message.content_type != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: name, body and content type come from the struct",
                        type->name);
    char *json;
    size_t size;
    enum skr_code code =
        skr_encode(type, typed->value, NULL, &json, &size, error);
    if (code != SKR_OK)
        return code;
    message.name = type->name;
    message.body = json;
    message.body_size = size;
    struct skr_header *headers = NULL;
    code = add_route(type, &message, &headers, error);
    if (code == SKR_OK)
        code = skr_publish(outbox, tx, &message, 1, id, error);
    free(headers);
    free(json);
    return code;
}
