// SPDX-License-Identifier: MIT
#include "broker/rabbitmq/link.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    FRAME_HEAD = 7,  // type, channel, size
    FRAME_REST = 8,  // head and end mark
    FRAME_END = 0xCE,
    METHOD_HEAD = 4,       // its number
    PROPERTIES_HEAD = 12,  // class, weight, body size
    FIRST_FRAME_MAX = 65536,
    INPUT_SIZE = 65536,
    GOODBYE_MS = 1000,
};

enum skr_code
skr_rabbit_link_start(struct rabbit_link *link, struct skr_error *error)
{
    link->frame_max = FIRST_FRAME_MAX;
    link->heard_ms = link->told_ms = skr_clock_ms();
    link->decoder = amqp_new_connection();
    link->in.bytes = malloc(INPUT_SIZE);
    link->in.capacity = INPUT_SIZE;
    if (link->decoder == NULL || link->in.bytes == NULL)
        return skr_fail_memory(error);
    return SKR_OK;
}

enum skr_code
skr_rabbit_link_tune(struct rabbit_link *link, uint32_t frame_max,
                     uint16_t heartbeat_s, struct skr_error *error)
{
    // The decoder sends nothing, so that heartbeats are no business of its.
    if (amqp_tune_connection(link->decoder, 0, (int)frame_max, 0) !=
        AMQP_STATUS_OK)
        return skr_fail_memory(error);
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
    if (link->decoder != NULL)
        amqp_destroy_connection(link->decoder);
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
    size_t capacity = (out->end + size) * 2;
    char *bytes = realloc(out->bytes, capacity);
    if (bytes == NULL)
        return skr_fail_memory(error);
    out->bytes = bytes;
    out->capacity = capacity;
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

static enum skr_code
decode(struct rabbit_link *link, amqp_frame_t *frame, struct skr_error *error)
{
    struct rabbit_bytes *in = &link->in;
    frame->frame_type = 0;
    while (in->start < in->end && frame->frame_type == 0) {
        int used =
            amqp_handle_input(link->decoder,
                              (amqp_bytes_t){.len = in->end - in->start,
                                             .bytes = in->bytes + in->start},
                              frame);
        if (used == AMQP_STATUS_NO_MEMORY)
            return skr_fail_memory(error);
        if (used < 0)
            return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                            "%s does not speak AMQP as expected: %s",
                            link->stream.peer, amqp_error_string2(used));
        in->start += (size_t)used;
    }
    return SKR_OK;
}

enum skr_code
skr_rabbit_link_next(struct rabbit_link *link, amqp_frame_t *frame, bool *found,
                     struct skr_error *error)
{
    *found = false;
    amqp_maybe_release_buffers(link->decoder);
    for (;;) {
        enum skr_code code = decode(link, frame, error);
        *found = code == SKR_OK && frame->frame_type != 0;
        if (code != SKR_OK || *found)
            return code;
        size_t count = 0;
        code = skr_rabbit_stream_read(&link->stream, link->in.bytes,
                                      link->in.capacity, &count, error);
        if (code != SKR_OK || count == 0)
            return code;
        link->in.start = 0;
        link->in.end = count;
        link->heard_ms = skr_clock_ms();
    }
}

enum skr_code
skr_rabbit_link_tick(struct rabbit_link *link, struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (link->heartbeat_ms == 0)
        return SKR_OK;
    if (now - link->heard_ms > 2 * link->heartbeat_ms)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "%s has shown no sign of life for %lld s",
                        link->stream.peer,
                        (long long)((now - link->heard_ms) / 1000));
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
