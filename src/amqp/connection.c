// SPDX-License-Identifier: MIT
// Frames over a stream: encoding, decoding, buffering and heartbeats. Then the
// login: a host that answers, a user that it knows, a vhost.

#include "amqp/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "base/vec.h"

#include <amqp.h>
#include <amqp_framing.h>
#include <stdlib.h>
#include <string.h>

// What the reply codes of AMQP mean, and what helps.
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

enum {
    FRAME_HEAD = 7,  // type, channel, size
    FRAME_REST = 8,  // head and end mark
    FRAME_END = 0xCE,
    METHOD_HEAD = 4,       // its number
    PROPERTIES_HEAD = 12,  // class, weight, body size
    FIRST_FRAME_MAX = 65536,
    FRAME_MAX = 131072,
    LEAST_FRAME_MAX = 4096,  // the protocol's
    POOL_PAGE_SIZE = 4096,
    GOODBYE_MS = 1000,
    TLS_ALERT = 21,  // the first byte of a TLS server that is not spoken to so
};

// Room for size more bytes at out.end.
static enum skr_code
make_room(struct skr_amqp *amqp, size_t size, struct skr_error *error)
{
    struct skr_amqp_buffer *out = &amqp->out;
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
close_frame(struct skr_amqp *amqp, uint8_t type, uint16_t channel,
            size_t payload_size)
{
    char *at = amqp->out.bytes + amqp->out.end;
    put_number(at, type, 1);
    put_number(at + 1, channel, 2);
    put_number(at + 3, payload_size, 4);
    put_number(at + FRAME_HEAD + payload_size, FRAME_END, 1);
    amqp->out.end += payload_size + FRAME_REST;
}

static enum skr_code
send_raw(struct skr_amqp *amqp, const void *bytes, size_t size,
         struct skr_error *error)
{
    enum skr_code code = make_room(amqp, size, error);
    if (code != SKR_OK)
        return code;
    memcpy(amqp->out.bytes + amqp->out.end, bytes, size);
    amqp->out.end += size;
    return SKR_OK;
}

enum skr_code
skr_amqp_send(struct skr_amqp *amqp, uint16_t channel, uint32_t method,
              void *fields, struct skr_error *error)
{
    enum skr_code code = make_room(amqp, amqp->frame_max, error);
    if (code != SKR_OK)
        return code;
    char *payload = amqp->out.bytes + amqp->out.end + FRAME_HEAD;
    amqp_bytes_t room = {.len = amqp->frame_max - FRAME_REST - METHOD_HEAD,
                         .bytes = payload + METHOD_HEAD};
    put_number(payload, method, METHOD_HEAD);
    int size = amqp_encode_method(method, fields, room);
    if (size < 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this does not fit into an AMQP frame: %s",
                        amqp_error_string2(size));
    close_frame(amqp, AMQP_FRAME_METHOD, channel, METHOD_HEAD + (size_t)size);
    return SKR_OK;
}

enum skr_code
skr_amqp_send_properties(struct skr_amqp *amqp, uint16_t channel,
                         size_t body_size, struct skr_amqp_piece properties,
                         struct skr_error *error)
{
    size_t size = properties.size;
    enum skr_code code =
        make_room(amqp, size + PROPERTIES_HEAD + FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    char *payload = amqp->out.bytes + amqp->out.end + FRAME_HEAD;
    put_number(payload, AMQP_BASIC_CLASS, 2);
    put_number(payload + 2, 0, 2);
    put_number(payload + 4, body_size, 8);
    memcpy(payload + PROPERTIES_HEAD, properties.bytes, size);
    close_frame(amqp, AMQP_FRAME_HEADER, channel, PROPERTIES_HEAD + size);
    return SKR_OK;
}

enum skr_code
skr_amqp_send_body(struct skr_amqp *amqp, uint16_t channel, const void *bytes,
                   size_t *size, struct skr_error *error)
{
    if (*size > amqp->frame_max - FRAME_REST)
        *size = amqp->frame_max - FRAME_REST;
    enum skr_code code = make_room(amqp, *size + FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    memcpy(amqp->out.bytes + amqp->out.end + FRAME_HEAD, bytes, *size);
    close_frame(amqp, AMQP_FRAME_BODY, channel, *size);
    return SKR_OK;
}

size_t
skr_amqp_unsent(const struct skr_amqp *amqp)
{
    return amqp->out.end - amqp->out.start;
}

enum skr_code
skr_amqp_flush(struct skr_amqp *amqp, struct skr_error *error)
{
    struct skr_amqp_buffer *out = &amqp->out;
    while (out->start < out->end) {
        size_t count = 0;
        enum skr_code code =
            skr_amqp_stream_write(&amqp->stream, out->bytes + out->start,
                                  out->end - out->start, &count, error);
        if (code != SKR_OK || count == 0)
            return code;
        out->start += count;
        amqp->last_sent_ms = skr_clock_ms();
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
fail_language(const struct skr_amqp *amqp, const char *what,
              struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "%s, where RabbitMQ should be, does not speak AMQP as "
                    "expected: %s",
                    amqp->stream.peer, what);
}

static enum skr_code
decode_method(struct skr_amqp *amqp, const char *payload, size_t size,
              amqp_method_t *method, struct skr_error *error)
{
    if (size < METHOD_HEAD)
        return fail_language(amqp, "a method without a number", error);
    method->id = (amqp_method_number_t)get_number(payload, METHOD_HEAD);
    amqp_bytes_t fields = {.len = size - METHOD_HEAD,
                           .bytes = amqp->in.bytes + amqp->in.start +
                                    FRAME_HEAD + METHOD_HEAD};
    int status =
        amqp_decode_method(method->id, amqp->pool, fields, &method->decoded);
    if (status == AMQP_STATUS_NO_MEMORY)
        return skr_fail_memory(error);
    if (status < 0)
        return fail_language(amqp, amqp_error_string2(status), error);
    return SKR_OK;
}

// A whole frame lies at in.start.
static enum skr_code
decode(struct skr_amqp *amqp, size_t size, amqp_frame_t *frame,
       struct skr_error *error)
{
    char *payload = amqp->in.bytes + amqp->in.start + FRAME_HEAD;
    uint8_t type = (uint8_t)payload[-FRAME_HEAD];
    *frame = (amqp_frame_t){
        .frame_type = type,
        .channel = (uint16_t)get_number(payload - FRAME_HEAD + 1, 2),
    };
    if ((unsigned char)payload[size] != FRAME_END)
        return fail_language(amqp, "a frame without an end", error);
    switch (type) {
    case AMQP_FRAME_METHOD:
        return decode_method(amqp, payload, size, &frame->payload.method,
                             error);
    case AMQP_FRAME_HEADER:
        if (size < PROPERTIES_HEAD)
            return fail_language(amqp, "properties that are cut short", error);
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
    default: return fail_language(amqp, "an unknown kind of frame", error);
    }
}

// *size becomes that of the payload.
static enum skr_code
find_frame(const struct skr_amqp *amqp, size_t *size, bool *is_whole,
           struct skr_error *error)
{
    const struct skr_amqp_buffer *in = &amqp->in;
    size_t got = in->end - in->start;
    *is_whole = false;
    // What greets us with a text is told apart by its first byte.
    if (got > 0 && (unsigned char)in->bytes[in->start] == TLS_ALERT &&
        amqp->stream.tls == NULL)
        return fail_language(amqp,
                             "it wants TLS; is this the TLS port? That needs "
                             "amqps://",
                             error);
    if (got > 0 && (unsigned char)in->bytes[in->start] > AMQP_FRAME_HEARTBEAT)
        return fail_language(amqp, "an unknown kind of frame", error);
    if (got < FRAME_HEAD)
        return SKR_OK;
    *size = (size_t)get_number(in->bytes + in->start + 3, 4);
    // The sum of the two may be more than a size_t holds.
    if (*size > in->capacity - FRAME_REST)
        return fail_language(amqp, "a frame that is too large", error);
    *is_whole = got >= *size + FRAME_REST;
    return SKR_OK;
}

static enum skr_code
read_more(struct skr_amqp *amqp, size_t *count, struct skr_error *error)
{
    struct skr_amqp_buffer *in = &amqp->in;
    if (in->start > 0)
        memmove(in->bytes, in->bytes + in->start, in->end - in->start);
    in->end -= in->start;
    in->start = 0;
    enum skr_code code =
        skr_amqp_stream_read(&amqp->stream, in->bytes + in->end,
                             in->capacity - in->end, count, error);
    if (code == SKR_OK && *count > 0)
        amqp->last_received_ms = skr_clock_ms();
    in->end += *count;
    return code;
}

// The next frame as librabbitmq has it, a heartbeat too.
static enum skr_code
take_frame(struct skr_amqp *amqp, amqp_frame_t *frame, bool *found,
           struct skr_error *error)
{
    *found = false;
    recycle_amqp_pool(amqp->pool);
    for (;;) {
        size_t size = 0;
        bool is_whole = false;
        enum skr_code code = find_frame(amqp, &size, &is_whole, error);
        if (code == SKR_OK && is_whole)
            code = decode(amqp, size, frame, error);
        if (code != SKR_OK)
            return code;
        if (is_whole) {
            amqp->in.start += size + FRAME_REST;
            *found = true;
            return SKR_OK;
        }
        size_t count = 0;
        code = read_more(amqp, &count, error);
        if (code != SKR_OK || count == 0)
            return code;
    }
}

static struct skr_amqp_piece
piece_of(amqp_bytes_t bytes)
{
    return (struct skr_amqp_piece){.bytes = bytes.bytes, .size = bytes.len};
}

static struct skr_amqp_reply
reply_of(uint16_t code, amqp_bytes_t text)
{
    return (struct skr_amqp_reply){.code = code, .text = piece_of(text)};
}

// Those about messages.
static void
translate_basic(const amqp_method_t *from, struct skr_amqp_frame *frame)
{
    switch (from->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = from->decoded;
        frame->confirm.tag = ack->delivery_tag;
        frame->confirm.multiple = ack->multiple;
        return;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = from->decoded;
        frame->confirm.tag = nack->delivery_tag;
        frame->confirm.multiple = nack->multiple;
        return;
    }
    case AMQP_BASIC_RETURN_METHOD: {
        const amqp_basic_return_t *back = from->decoded;
        frame->returned.reply = reply_of(back->reply_code, back->reply_text);
        frame->returned.exchange = piece_of(back->exchange);
        frame->returned.routing_key = piece_of(back->routing_key);
        return;
    }
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *deliver = from->decoded;
        frame->delivery.consumer_tag = piece_of(deliver->consumer_tag);
        frame->delivery.tag = deliver->delivery_tag;
        frame->delivery.redelivered = deliver->redelivered;
        return;
    }
    case AMQP_BASIC_CANCEL_METHOD: {
        const amqp_basic_cancel_t *cancel = from->decoded;
        frame->text = piece_of(cancel->consumer_tag);
        return;
    }
    default: return;
    }
}

// What a method says, of those that say something.
static void
translate(const amqp_method_t *from, struct skr_amqp_frame *frame)
{
    frame->kind = from->id;
    switch (from->id) {
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = from->decoded;
        frame->reply = reply_of(close->reply_code, close->reply_text);
        return;
    }
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = from->decoded;
        frame->reply = reply_of(close->reply_code, close->reply_text);
        return;
    }
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *blocked = from->decoded;
        frame->text = piece_of(blocked->reason);
        return;
    }
    case AMQP_CONNECTION_TUNE_METHOD: {
        const amqp_connection_tune_t *tune = from->decoded;
        frame->tune.frame_max = tune->frame_max;
        frame->tune.channel_max = tune->channel_max;
        frame->tune.heartbeat_s = tune->heartbeat;
        return;
    }
    case AMQP_QUEUE_DECLARE_OK_METHOD: {
        const amqp_queue_declare_ok_t *queue = from->decoded;
        frame->queue.messages = queue->message_count;
        frame->queue.consumers = queue->consumer_count;
        return;
    }
    default: translate_basic(from, frame); return;
    }
}

enum skr_code
skr_amqp_next(struct skr_amqp *amqp, struct skr_amqp_frame *frame, bool *found,
              struct skr_error *error)
{
    amqp_frame_t raw;
    enum skr_code code;
    do
        code = take_frame(amqp, &raw, found, error);
    while (code == SKR_OK && *found && raw.frame_type == AMQP_FRAME_HEARTBEAT);
    if (code != SKR_OK || !*found)
        return code;
    *frame =
        (struct skr_amqp_frame){.kind = raw.frame_type, .channel = raw.channel};
    if (raw.frame_type == AMQP_FRAME_METHOD) {
        translate(&raw.payload.method, frame);
    } else if (raw.frame_type == AMQP_FRAME_HEADER) {
        frame->content.properties = piece_of(raw.payload.properties.raw);
        frame->content.body_size = raw.payload.properties.body_size;
    } else {
        frame->text = piece_of(raw.payload.body_fragment);
    }
    return SKR_OK;
}

enum skr_code
skr_amqp_accept_close(struct skr_amqp *amqp, const struct skr_amqp_frame *frame,
                      struct skr_error *reason, struct skr_error *error)
{
    amqp_channel_close_ok_t channel_method = {0};
    amqp_connection_close_ok_t method = {0};
    skr_amqp_fail_reply(reason, frame->reply);
    if (frame->channel > 0)
        return skr_amqp_send(amqp, frame->channel, AMQP_CHANNEL_CLOSE_OK_METHOD,
                             &channel_method, error);
    enum skr_code code =
        skr_amqp_send(amqp, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &method, error);
    return code == SKR_OK ? skr_amqp_flush(amqp, error) : code;
}

enum skr_code
skr_amqp_tick(struct skr_amqp *amqp, struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (amqp->heartbeat_ms == 0)
        return SKR_OK;
    if (now - amqp->last_received_ms > 2 * amqp->heartbeat_ms) {
        skr_silence_note(amqp->stream.peer);
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s has shown no sign of life for %lld s",
                        amqp->stream.peer,
                        (long long)((now - amqp->last_received_ms) / 1000));
    }
    if (now - amqp->last_sent_ms < amqp->heartbeat_ms / 2 ||
        skr_amqp_unsent(amqp) > 0)
        return SKR_OK;
    enum skr_code code = make_room(amqp, FRAME_REST, error);
    if (code != SKR_OK)
        return code;
    close_frame(amqp, AMQP_FRAME_HEARTBEAT, 0, 0);
    return skr_amqp_flush(amqp, error);
}

enum skr_code
skr_amqp_wait(struct skr_amqp *amqp, const struct skr_amqp_deadline *deadline,
              struct skr_error *error)
{
    enum skr_code code = skr_amqp_flush(amqp, error);
    if (code != SKR_OK)
        return code;
    return skr_amqp_stream_wait(&amqp->stream, skr_amqp_unsent(amqp) > 0,
                                deadline, error);
}

static enum skr_code
start(struct skr_amqp *amqp, struct skr_error *error)
{
    amqp->frame_max = FIRST_FRAME_MAX;
    amqp->last_received_ms = amqp->last_sent_ms = skr_clock_ms();
    amqp->pool = malloc(sizeof(*amqp->pool));
    if (amqp->pool == NULL)
        return skr_fail_memory(error);
    init_amqp_pool(amqp->pool, POOL_PAGE_SIZE);
    amqp->in.bytes = malloc(FIRST_FRAME_MAX);
    amqp->in.capacity = FIRST_FRAME_MAX;
    return amqp->in.bytes == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
tune(struct skr_amqp *amqp, uint32_t frame_max, uint16_t heartbeat_s,
     struct skr_error *error)
{
    if (frame_max > amqp->in.capacity) {
        char *bytes = realloc(amqp->in.bytes, frame_max);
        if (bytes == NULL)
            return skr_fail_memory(error);
        amqp->in.bytes = bytes;
        amqp->in.capacity = frame_max;
    }
    amqp->frame_max = frame_max;
    amqp->heartbeat_ms = (int64_t)heartbeat_s * 1000;
    return SKR_OK;
}

static void
say_goodbye(struct skr_amqp *amqp)
{
    struct skr_amqp_deadline deadline = {.at_ms = skr_clock_ms() + GOODBYE_MS,
                                         .wake_fd = -1};
    amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS};
    enum skr_code code =
        skr_amqp_send(amqp, 0, AMQP_CONNECTION_CLOSE_METHOD, &close, NULL);
    while (code == SKR_OK) {
        amqp_frame_t frame;
        bool found = false;
        code = skr_amqp_wait(amqp, &deadline, NULL);
        while (code == SKR_OK) {
            code = take_frame(amqp, &frame, &found, NULL);
            if (code != SKR_OK || !found)
                break;
            if (frame.frame_type == AMQP_FRAME_METHOD &&
                frame.payload.method.id == AMQP_CONNECTION_CLOSE_OK_METHOD)
                return;
        }
    }
}

void
skr_amqp_close(struct skr_amqp *amqp, bool is_alive)
{
    if (is_alive && amqp->stream.fd >= 0)
        say_goodbye(amqp);
    if (amqp->stream.fd >= 0)
        skr_amqp_stream_close(&amqp->stream);
    if (amqp->pool != NULL)
        empty_amqp_pool(amqp->pool);
    free(amqp->pool);
    free(amqp->in.bytes);
    free(amqp->out.bytes);
    *amqp = SKR_AMQP_CLOSED;
}

static amqp_table_entry_t
text_entry(const char *name, const char *text)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                  .value.bytes = amqp_cstring_bytes(text)},
    };
}

static amqp_table_entry_t
switch_entry(const char *name)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1},
    };
}

// Waits for a method of the connection; the server closing it is an error.
static enum skr_code
await(struct skr_amqp *amqp, amqp_method_number_t expected,
      const struct skr_amqp_deadline *deadline, struct skr_amqp_frame *frame,
      struct skr_error *error)
{
    bool found = false;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !found) {
        code = skr_amqp_next(amqp, frame, &found, error);
        if (code == SKR_OK && !found)
            code = skr_amqp_wait(amqp, deadline, error);
    }
    if (code != SKR_OK || frame->kind == expected)
        return code;
    if (frame->kind != SKR_AMQP_CONNECTION_CLOSE)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "%s, where RabbitMQ should be, does not speak AMQP "
                        "0-9-1",
                        amqp->stream.peer);
    // Whether the server hears that it was understood makes no difference.
    struct skr_error reason = {0};
    code = skr_amqp_accept_close(amqp, frame, &reason, NULL);
    return skr_fail_with(error, &reason);
}

static enum skr_code
send_credentials(struct skr_amqp *amqp, const struct skr_amqp_options *options,
                 struct skr_error *error)
{
    // Without these a consumer is not told that its queue is gone, a publisher
    // not that it is being held, and no client why its login failed.
    amqp_table_entry_t capabilities[] = {
        switch_entry("publisher_confirms"),
        switch_entry("basic.nack"),
        switch_entry("consumer_cancel_notify"),
        switch_entry("connection.blocked"),
        switch_entry("authentication_failure_close"),
    };
    amqp_table_entry_t properties[] = {
        text_entry("product", options->product),
        text_entry("version", options->version),
        text_entry("platform", "C"),
        text_entry("connection_name", options->connection_name),
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value.table = {.num_entries = SKR_COUNT_OF(capabilities),
                                   .entries = capabilities}}},
    };
    struct skr_text response = {0};
    skr_text_add(&response, "", 1);
    skr_text_add(&response, options->user, strlen(options->user) + 1);
    skr_text_add_string(&response, options->password);
    if (response.broken) {
        skr_text_fini(&response);
        return skr_fail_memory(error);
    }
    amqp_connection_start_ok_t answer = {
        .client_properties = {.num_entries = SKR_COUNT_OF(properties),
                              .entries = properties},
        .mechanism = amqp_cstring_bytes("PLAIN"),
        .response = {.len = response.size, .bytes = response.bytes},
        .locale = amqp_cstring_bytes("en_US"),
    };
    enum skr_code code =
        skr_amqp_send(amqp, 0, AMQP_CONNECTION_START_OK_METHOD, &answer, error);
    skr_text_fini(&response);
    return code;
}

static enum skr_code
agree(struct skr_amqp *amqp, const struct skr_amqp_options *options,
      const struct skr_amqp_frame *offer, struct skr_error *error)
{
    amqp_connection_tune_ok_t answer = {
        .channel_max = offer->tune.channel_max,
        .frame_max = offer->tune.frame_max,
        .heartbeat = options->heartbeat_s,
    };
    if (answer.frame_max == 0 || answer.frame_max > FRAME_MAX)
        answer.frame_max = FRAME_MAX;
    if (answer.frame_max < LEAST_FRAME_MAX)
        answer.frame_max = LEAST_FRAME_MAX;
    if (offer->tune.heartbeat_s > 0 &&
        answer.heartbeat > offer->tune.heartbeat_s)
        answer.heartbeat = offer->tune.heartbeat_s;
    amqp_connection_open_t open = {.virtual_host =
                                       amqp_cstring_bytes(options->vhost)};
    enum skr_code code =
        skr_amqp_send(amqp, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &answer, error);
    if (code == SKR_OK)
        code = tune(amqp, answer.frame_max, answer.heartbeat, error);
    if (code == SKR_OK)
        code =
            skr_amqp_send(amqp, 0, AMQP_CONNECTION_OPEN_METHOD, &open, error);
    return code;
}

static enum skr_code
log_in(struct skr_amqp *amqp, const struct skr_amqp_options *options,
       const struct skr_amqp_deadline *deadline, struct skr_error *error)
{
    struct skr_amqp_frame frame;
    enum skr_code code = send_raw(amqp, "AMQP\0\0\x09\x01", 8, error);
    if (code == SKR_OK)
        code =
            await(amqp, AMQP_CONNECTION_START_METHOD, deadline, &frame, error);
    if (code == SKR_UNAVAILABLE || code == SKR_TIMEOUT)
        skr_error_advise(error, SKR_AMQP_LOOK);
    if (code == SKR_OK)
        code = send_credentials(amqp, options, error);
    if (code != SKR_OK)
        return code;
    code = await(amqp, AMQP_CONNECTION_TUNE_METHOD, deadline, &frame, error);
    if (code != SKR_OK && code != SKR_STOPPED && code != SKR_TIMEOUT)
        skr_error_prefix(
            error,
            "RabbitMQ at %s: user %.60s cannot log in (check user and "
            "password in the DSN)",
            amqp->stream.peer, options->user);
    if (code == SKR_OK)
        code = agree(amqp, options, &frame, error);
    if (code != SKR_OK)
        return code;
    code = await(amqp, AMQP_CONNECTION_OPEN_OK_METHOD, deadline, &frame, error);
    // A connection that was cut says nothing of the vhost: a server that
    // refuses it says so by a code.
    if (code != SKR_OK && error != NULL && error->native[0] != '\0')
        skr_error_prefix(
            error,
            "RabbitMQ at %s: vhost %.80s cannot be opened (correct it in the "
            "DSN, or create it and give the user rights there)",
            amqp->stream.peer, options->vhost);
    return code;
}

static enum skr_code
try_host(struct skr_amqp *amqp, const struct skr_amqp_options *options,
         struct skr_host *host, int wake_fd, struct skr_error *error)
{
    const struct skr_amqp_deadline deadline = {
        .at_ms = skr_clock_ms() + options->connect_timeout_ms,
        .wake_fd = wake_fd,
    };
    enum skr_code code = skr_amqp_stream_open(&amqp->stream, host,
                                              &options->tls, &deadline, error);
    if (code == SKR_OK)
        code = start(amqp, error);
    if (code == SKR_OK)
        code = log_in(amqp, options, &deadline, error);
    char peer[SKR_HOST_PEER_SIZE];
    skr_host_show(host, peer);
    if (code == SKR_OK) {
        skr_silence_end(peer);
        return SKR_OK;
    }
    skr_amqp_close(amqp, false);
    if (code != SKR_TIMEOUT)
        return code;
    skr_silence_note(peer);
    // To the caller the server is not there.
    if (error != NULL) {
        error->code = SKR_UNAVAILABLE;
        error->remedy = SKR_RECONNECT;
    }
    return SKR_UNAVAILABLE;
}

// A server that answers and refuses speaks for all of them.
enum skr_code
skr_amqp_open(struct skr_amqp *amqp, const struct skr_amqp_options *options,
              int wake_fd, struct skr_error *error)
{
    struct skr_text troubles = {0};
    enum skr_code code = SKR_UNAVAILABLE;
    size_t count = 0;
    struct skr_candidate *candidates =
        skr_silence_sort(options->hosts, options->port, true, &count);
    if (candidates == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        struct skr_error trouble = {0};
        *amqp = SKR_AMQP_CLOSED;
        code = try_host(amqp, options, &candidates[i].host, wake_fd, &trouble);
        if (code == SKR_OK)
            break;
        if (error != NULL)
            *error = trouble;
        if (code != SKR_UNAVAILABLE)
            break;
        skr_text_add_format(&troubles, "%s%s", i == 0 ? "" : "; ",
                            trouble.text);
    }
    if (code == SKR_UNAVAILABLE && !troubles.broken)
        skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, "%s", troubles.bytes);
    skr_text_fini(&troubles);
    free(candidates);
    return code;
}
