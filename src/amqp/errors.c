// SPDX-License-Identifier: MIT
// Maps the reply codes of AMQP to errors and their remedies, by one table.

#include "amqp/errors.h"

#include "base/error.h"

static const struct meaning {
    uint16_t code;
    enum skr_code meaning;
    enum skr_remedy remedy;
    bool blames_client;
} meanings[] = {
    {311, SKR_REFUSED, SKR_GIVE_UP, false},  // content too large
    {SKR_AMQP_NO_ROUTE, SKR_REFUSED, SKR_GIVE_UP, false},
    {313, SKR_REFUSED, SKR_GIVE_UP, false},  // no consumers
    // The server stops, or an operator closed the connection.
    {320, SKR_UNAVAILABLE, SKR_RECONNECT, false},
    {SKR_AMQP_ACCESS_REFUSED, SKR_REFUSED, SKR_GIVE_UP, false},
    {SKR_AMQP_NOT_FOUND, SKR_MISSING, SKR_GIVE_UP, false},
    {406, SKR_REFUSED, SKR_GIVE_UP, false},  // precondition failed
    {501, SKR_REFUSED, SKR_GIVE_UP, true},   // frame error
    {502, SKR_REFUSED, SKR_GIVE_UP, true},   // syntax error
    {503, SKR_REFUSED, SKR_GIVE_UP, true},   // command invalid
    {504, SKR_REFUSED, SKR_GIVE_UP, true},   // channel error
    {505, SKR_REFUSED, SKR_GIVE_UP, true},   // unexpected frame
    {SKR_AMQP_NOT_ALLOWED, SKR_REFUSED, SKR_GIVE_UP, false},
    {540, SKR_REFUSED, SKR_GIVE_UP, true},  // not implemented
    // An internal error: the message that met it need not be wrong.
    {541, SKR_REFUSED, SKR_TRY_AGAIN, true},
};

static const struct meaning *
find_meaning(uint16_t code)
{
    // Any other, as 405 (resource locked) and 506 (resource error), may pass.
    static const struct meaning other = {0, SKR_REFUSED, SKR_TRY_AGAIN, false};
    for (size_t i = 0; i < SKR_COUNT_OF(meanings); i++)
        if (meanings[i].code == code)
            return &meanings[i];
    return &other;
}

enum skr_code
skr_amqp_fail_reply(struct skr_error *error, struct skr_amqp_reply reply)
{
    const struct meaning *found = find_meaning(reply.code);
    skr_fail(error, found->meaning, found->remedy, "RabbitMQ says %u: %.*s",
             reply.code, (int)reply.text.size,
             reply.text.size == 0 ? "" : (const char *)reply.text.bytes);
    skr_error_set_native(error, "%u", reply.code);
    return found->meaning;
}

bool
skr_amqp_blames_client(uint16_t code)
{
    return find_meaning(code)->blames_client;
}
