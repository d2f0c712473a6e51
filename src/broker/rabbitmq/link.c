// SPDX-License-Identifier: MIT
// AMQP frames over a stream: encoding, decoding, buffering and heartbeats. Of
// channels and methods it knows only how they are framed.

#include "broker/rabbitmq/link.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

enum {
    FRAME_HEAD = 7,  // type, channel, size
    FRAME_REST = 8,  // head and end mark
    FRAME_END = 0xCE,
    METHOD_HEAD = 4,       // its number
    PROPERTIES_HEAD = 12,  // class, weight, body size
    FIRST_FRAME_MAX = 65536,
    POOL_PAGE_SIZE = 4096,
    GOODBYE_MS = 1000,
    TLS_ALERT = 21,  // the first byte of a TLS server that is not spoken to so
};

enum skr_code
skr_rabbit_link_start(struct rabbit_link *link, struct skr_error *error)
{
    link->frame_max = FIRST_FRAME_MAX;
    link->heard_ms = link->told_ms = skr_clock_ms();
    init_amqp_pool(&link->pool, POOL_PAGE_SIZE);
    link->in.bytes = malloc(FIRST_FRAME_MAX);
    link->in.capacity = FIRST_FRAME_MAX;
    return link->in.bytes == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_rabbit_link_tune(struct rabbit_link *link, uint32_t frame_max,
                     uint16_t heartbeat_s, struct skr_error *error)
{
    if (frame_max > link->in.capacity) {
        char *bytes = realloc(link->in.bytes, frame_max);
        if (bytes == NULL)
            return skr_fail_memory(error);
        link->in.bytes = bytes;
        link->in.capacity = frame_max;
    }
    link->frame_max = frame_max;
    link->heartbeat_ms = (int64_t)heartbeat_s * 1000;
    return SKR_OK;
}

static void
say_goodbye(struct rabbit_link *link)
{
    struct rabbit_patience patience = {
        .deadline_ms = skr_clock_ms() + GOODBYE_MS, .wake_fd = -1};
    amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS};
    enum skr_code code = skr_rabbit_link_send(
        link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close, NULL);
    while (code == SKR_OK) {
        amqp_frame_t frame;
        bool found = false;
        code = skr_rabbit_link_wait(link, &patience, NULL);
        while (code == SKR_OK) {
            code = skr_rabbit_link_next(link, &frame, &found, NULL);
            if (code != SKR_OK || !found)
                break;
            if (frame.frame_type == AMQP_FRAME_METHOD &&
                frame.payload.method.id == AMQP_CONNECTION_CLOSE_OK_METHOD)
                return;
        }
    }
}

void
skr_rabbit_link_close(struct rabbit_link *link, bool is_alive)
{
    if (is_alive && link->stream.fd >= 0)
        say_goodbye(link);
    if (link->stream.fd >= 0)
        skr_rabbit_stream_close(&link->stream);
    if (link->in.bytes != NULL)
        empty_amqp_pool(&link->pool);
    free(link->in.bytes);
    free(link->out.bytes);
    *link = (struct rabbit_link){.stream.fd = -1};
}

// Room for size more bytes at out.end.
static enum skr_code
make_room(struct rabbit_link *link, size_t size, struct skr_error *error)
{
    struct rabbit_bytes *out = &link->out;
    if (out->capacity - out->end >= size)
        return SKR_OK;
    if (out->start > 0) {
        memmove(out->bytes, out->bytes + out->start, out->end - out->start);
        out->end -= out->start;
        out->start = 0;
    }
    if (out->capacity - out->end >= size)
        return SKR_OK;
    if (!skr_vec_reserve(&out->bytes, &out->capacity, out->end + size, 1))
        return skr_fail_memory(error);
    return SKR_OK;
}

static void
put_number(char *at, uint64_t number, size_t size)
{
    while (size > 0) {
        at[--size] = (char)(number & 0xFF);
        number >>= 8;
    }
}

// A payload has been written at out.end + FRAME_HEAD.
static void
close_frame(struct rabbit_link *link, uint8_t type, amqp_channel_t channel,
            size_t payload_size)
{
    char *at = link->out.bytes + link->out.end;
    put_number(at, type, 1);
    put_number(at + 1, channel, 2);
    put_number(at + 3, payload_size, 4);
    put_number(at + FRAME_HEAD + payload_size, FRAME_END, 1);
    link->out.end += payload_size + FRAME_REST;
}

enum skr_code
skr_rabbit_link_send_raw(struct rabbit_link *link, const void *bytes,
                         size_t size, struct skr_error *error)
{
    enum skr_code code = make_room(link, size, error);
    if (code != SKR_OK)
        return code;
    memcpy(link->out.bytes + link->out.end, bytes, size);
    link->out.end += size;
    return SKR_OK;
}

enum skr_code
skr_rabbit_check_short(const char *what, const char *text,
                       struct skr_error *error)
{
    size_t size = strlen(text);
    if (size <= UINT8_MAX)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s %.60s... is %zu bytes; AMQP carries at most %d", what,
                    text, size, UINT8_MAX);
}

static enum skr_code
fail_encoding(struct skr_error *error, int status)
{
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "this does not fit into an AMQP frame: %s",
                    amqp_error_string2(status));
}

enum skr_code
skr_rabbit_link_send(struct rabbit_link *link, amqp_channel_t channel,
                     amqp_method_number_t method, void *fields,
                     struct skr_error *error)
{
    enum skr_code code = make_room(link, link->frame_max, error);
    if (code != SKR_OK)
        return code;
    char *payload = link->out.bytes + link->out.end + FRAME_HEAD;
    amqp_bytes_t room = {.len = link->frame_max - FRAME_REST - METHOD_HEAD,
                         .bytes = payload + METHOD_HEAD};
    put_number(payload, method, METHOD_HEAD);
    int size = amqp_encode_method(method, fields, room);
    if (size < 0)
        return fail_encoding(error, size);
    close_frame(link, AMQP_FRAME_METHOD, channel, METHOD_HEAD + (size_t)size);
    return SKR_OK;
}

enum skr_code
skr_rabbit_link_send_raw_properties(struct rabbit_link *link,
                                    amqp_channel_t channel, size_t body_size,
                                    const void *bytes, size_t size,
                                    struct skr_error *error)
{
    enum skr_code code =
        make_room(link, size + PROPERTIES_HEAD + FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    char *payload = link->out.bytes + link->out.end + FRAME_HEAD;
    put_number(payload, AMQP_BASIC_CLASS, 2);
    put_number(payload + 2, 0, 2);
    put_number(payload + 4, body_size, 8);
    memcpy(payload + PROPERTIES_HEAD, bytes, size);
    close_frame(link, AMQP_FRAME_HEADER, channel, PROPERTIES_HEAD + size);
    return SKR_OK;
}

enum skr_code
skr_rabbit_link_send_properties(struct rabbit_link *link,
                                amqp_channel_t channel, size_t body_size,
                                amqp_basic_properties_t *properties,
                                struct skr_error *error)
{
    enum skr_code code = make_room(link, link->frame_max, error);
    if (code != SKR_OK)
        return code;
    char *payload = link->out.bytes + link->out.end + FRAME_HEAD;
    amqp_bytes_t room = {.len = link->frame_max - FRAME_REST - PROPERTIES_HEAD,
                         .bytes = payload + PROPERTIES_HEAD};
    put_number(payload, AMQP_BASIC_CLASS, 2);
    put_number(payload + 2, 0, 2);
    put_number(payload + 4, body_size, 8);
    int size = amqp_encode_properties(AMQP_BASIC_CLASS, properties, room);
    if (size < 0)
        return fail_encoding(error, size);
    close_frame(link, AMQP_FRAME_HEADER, channel,
                PROPERTIES_HEAD + (size_t)size);
    return SKR_OK;
}

enum skr_code
skr_rabbit_link_send_body(struct rabbit_link *link, amqp_channel_t channel,
                          const void *bytes, size_t *size,
                          struct skr_error *error)
{
    if (*size > link->frame_max - FRAME_REST)
        *size = link->frame_max - FRAME_REST;
    enum skr_code code = make_room(link, *size + FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    memcpy(link->out.bytes + link->out.end + FRAME_HEAD, bytes, *size);
    close_frame(link, AMQP_FRAME_BODY, channel, *size);
    return SKR_OK;
}

size_t
skr_rabbit_link_unsent(const struct rabbit_link *link)
{
    return link->out.end - link->out.start;
}

enum skr_code
skr_rabbit_link_flush(struct rabbit_link *link, struct skr_error *error)
{
    struct rabbit_bytes *out = &link->out;
    while (out->start < out->end) {
        size_t count = 0;
        enum skr_code code =
            skr_rabbit_stream_write(&link->stream, out->bytes + out->start,
                                    out->end - out->start, &count, error);
        if (code != SKR_OK || count == 0)
            return code;
        out->start += count;
        link->told_ms = skr_clock_ms();
    }
    out->start = out->end = 0;
    return SKR_OK;
}

static uint64_t
get_number(const char *at, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | (unsigned char)at[i];
    return number;
}

static enum skr_code
fail_language(const struct rabbit_link *link, const char *what,
              struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "%s, where RabbitMQ should be, does not speak AMQP as "
                    "expected: %s",
                    link->stream.peer, what);
}

static enum skr_code
decode_method(struct rabbit_link *link, const char *payload, size_t size,
              amqp_method_t *method, struct skr_error *error)
{
    if (size < METHOD_HEAD)
        return fail_language(link, "a method without a number", error);
    method->id = (amqp_method_number_t)get_number(payload, METHOD_HEAD);
    amqp_bytes_t fields = {.len = size - METHOD_HEAD,
                           .bytes = link->in.bytes + link->in.start +
                                    FRAME_HEAD + METHOD_HEAD};
    int status =
        amqp_decode_method(method->id, &link->pool, fields, &method->decoded);
    if (status == AMQP_STATUS_NO_MEMORY)
        return skr_fail_memory(error);
    if (status < 0)
        return fail_language(link, amqp_error_string2(status), error);
    return SKR_OK;
}

// A whole frame lies at in.start.
static enum skr_code
decode(struct rabbit_link *link, size_t size, amqp_frame_t *frame,
       struct skr_error *error)
{
    char *payload = link->in.bytes + link->in.start + FRAME_HEAD;
    uint8_t type = (uint8_t)payload[-FRAME_HEAD];
    *frame = (amqp_frame_t){
        .frame_type = type,
        .channel = (amqp_channel_t)get_number(payload - FRAME_HEAD + 1, 2),
    };
    if ((unsigned char)payload[size] != FRAME_END)
        return fail_language(link, "a frame without an end", error);
    switch (type) {
    case AMQP_FRAME_METHOD:
        return decode_method(link, payload, size, &frame->payload.method,
                             error);
    case AMQP_FRAME_HEADER:
        if (size < PROPERTIES_HEAD)
            return fail_language(link, "properties that are cut short", error);
        frame->payload.properties.class_id = (uint16_t)get_number(payload, 2);
        frame->payload.properties.body_size = get_number(payload + 4, 8);
        frame->payload.properties.raw = (amqp_bytes_t){
            .len = size - PROPERTIES_HEAD, .bytes = payload + PROPERTIES_HEAD};
        return SKR_OK;
    case AMQP_FRAME_BODY:
        frame->payload.body_fragment =
            (amqp_bytes_t){.len = size, .bytes = payload};
        return SKR_OK;
    case AMQP_FRAME_HEARTBEAT: return SKR_OK;
    default: return fail_language(link, "an unknown kind of frame", error);
    }
}

// *size becomes that of the payload.
static enum skr_code
find_frame(const struct rabbit_link *link, size_t *size, bool *is_whole,
           struct skr_error *error)
{
    const struct rabbit_bytes *in = &link->in;
    size_t got = in->end - in->start;
    *is_whole = false;
    // What greets us with a text is told apart by its first byte.
    if (got > 0 && (unsigned char)in->bytes[in->start] == TLS_ALERT &&
        link->stream.tls == NULL)
        return fail_language(link,
                             "it wants TLS; is this the TLS port? That needs "
                             "amqps://",
                             error);
    if (got > 0 && (unsigned char)in->bytes[in->start] > AMQP_FRAME_HEARTBEAT)
        return fail_language(link, "an unknown kind of frame", error);
    if (got < FRAME_HEAD)
        return SKR_OK;
    *size = (size_t)get_number(in->bytes + in->start + 3, 4);
    // The sum of the two may be more than a size_t holds.
    if (*size > in->capacity - FRAME_REST)
        return fail_language(link, "a frame that is too large", error);
    *is_whole = got >= *size + FRAME_REST;
    return SKR_OK;
}

static enum skr_code
read_more(struct rabbit_link *link, size_t *count, struct skr_error *error)
{
    struct rabbit_bytes *in = &link->in;
    if (in->start > 0)
        memmove(in->bytes, in->bytes + in->start, in->end - in->start);
    in->end -= in->start;
    in->start = 0;
    enum skr_code code =
        skr_rabbit_stream_read(&link->stream, in->bytes + in->end,
                               in->capacity - in->end, count, error);
    if (code == SKR_OK && *count > 0)
        link->heard_ms = skr_clock_ms();
    in->end += *count;
    return code;
}

enum skr_code
skr_rabbit_link_next(struct rabbit_link *link, amqp_frame_t *frame, bool *found,
                     struct skr_error *error)
{
    *found = false;
    recycle_amqp_pool(&link->pool);
    for (;;) {
        size_t size = 0;
        bool is_whole = false;
        enum skr_code code = find_frame(link, &size, &is_whole, error);
        if (code == SKR_OK && is_whole)
            code = decode(link, size, frame, error);
        if (code != SKR_OK)
            return code;
        if (is_whole) {
            link->in.start += size + FRAME_REST;
            *found = true;
            return SKR_OK;
        }
        size_t count = 0;
        code = read_more(link, &count, error);
        if (code != SKR_OK || count == 0)
            return code;
    }
}

enum skr_code
skr_rabbit_link_fail_silent(const struct rabbit_link *link, int64_t waited_ms,
                            struct skr_error *error)
{
    skr_silence_note(link->stream.peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s has not answered for %lld ms "
                    "(confirm_timeout)",
                    link->stream.peer, (long long)waited_ms);
}

enum skr_code
skr_rabbit_link_tick(struct rabbit_link *link, struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (link->heartbeat_ms == 0)
        return SKR_OK;
    if (now - link->heard_ms > 2 * link->heartbeat_ms) {
        skr_silence_note(link->stream.peer);
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s has shown no sign of life for %lld s",
                        link->stream.peer,
                        (long long)((now - link->heard_ms) / 1000));
    }
    if (now - link->told_ms < link->heartbeat_ms / 2 ||
        skr_rabbit_link_unsent(link) > 0)
        return SKR_OK;
    enum skr_code code = make_room(link, FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    close_frame(link, AMQP_FRAME_HEARTBEAT, 0, 0);
    return skr_rabbit_link_flush(link, error);
}

enum skr_code
skr_rabbit_link_wait(struct rabbit_link *link,
                     const struct rabbit_patience *patience,
                     struct skr_error *error)
{
    enum skr_code code = skr_rabbit_link_flush(link, error);
    if (code != SKR_OK)
        return code;
    return skr_rabbit_stream_wait(
        &link->stream, skr_rabbit_link_unsent(link) > 0, patience, error);
}
