// SPDX-License-Identifier: MIT
// The table from AMQP reply codes to errors and publish results.

#include "broker/rabbitmq/errors.h"

#include "base/error.h"
#include "base/text.h"

static const struct reply {
    uint16_t code;
    enum skr_code meaning;
    enum skr_remedy remedy;
    enum skr_fate fate;
    bool blames_us;
} replies[] = {
    // content too large
    {311, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, false},
    // no route
    {312, SKR_REFUSED, SKR_GIVE_UP, SKR_UNROUTABLE, false},
    // no consumers
    {313, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, false},
    // the server stops, or an operator closed the connection
    {320, SKR_UNAVAILABLE, SKR_RECONNECT, SKR_REFUSED_ONCE, false},
    // access refused
    {403, SKR_REFUSED, SKR_GIVE_UP, SKR_ROUTE_CLOSED, false},
    // not found
    {404, SKR_MISSING, SKR_GIVE_UP, SKR_ROUTE_CLOSED, false},
    // resource locked
    {405, SKR_REFUSED, SKR_TRY_AGAIN, SKR_REFUSED_ONCE, false},
    // precondition failed
    {406, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, false},
    // frame error, syntax error, command invalid, channel error, unexpected
    // frame
    {501, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    {502, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    {503, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    {504, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    {505, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    // resource error: the server has run out of something
    {506, SKR_REFUSED, SKR_TRY_AGAIN, SKR_REFUSED_ONCE, false},
    // not allowed: the vhost
    {530, SKR_REFUSED, SKR_GIVE_UP, SKR_ROUTE_CLOSED, false},
    // not implemented
    {540, SKR_REFUSED, SKR_GIVE_UP, SKR_REFUSED_FOR_GOOD, true},
    // internal error: a message may be the cause, but not the culprit
    {541, SKR_REFUSED, SKR_TRY_AGAIN, SKR_REFUSED_ONCE, true},
};

static const struct reply *
find_reply(uint16_t code)
{
    static const struct reply unknown = {0, SKR_REFUSED, SKR_TRY_AGAIN,
                                         SKR_REFUSED_ONCE, false};
    for (size_t i = 0; i < SKR_COUNT_OF(replies); i++)
        if (replies[i].code == code)
            return &replies[i];
    return &unknown;
}

enum skr_code
skr_rabbit_fail_reply(struct skr_error *error, uint16_t reply,
                      amqp_bytes_t text)
{
    const struct reply *found = find_reply(reply);
    skr_fail(error, found->meaning, found->remedy, "RabbitMQ says %u: %.*s",
             reply, (int)text.len,
             text.len == 0 ? "" : (const char *)text.bytes);
    skr_error_set_native(error, "%u", reply);
    return found->meaning;
}

enum skr_fate
skr_rabbit_fate(uint16_t reply)
{
    return find_reply(reply)->fate;
}

bool
skr_rabbit_blames_us(uint16_t reply)
{
    return find_reply(reply)->blames_us;
}
