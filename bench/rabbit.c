// SPDX-License-Identifier: MIT
#include "rabbit.h"

#include "base/url.h"
#include "bench.h"

#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { CHANNEL = 1, FRAME_MAX = 131072, ID_TEXT_SIZE = 37 };

static void
check(amqp_rpc_reply_t reply, const char *what)
{
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        skr_bench_die(what, amqp_error_string2(reply.library_error));
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION)
        skr_bench_die(what, "RabbitMQ refused it");
}

static void
check_status(int status, const char *what)
{
    if (status != AMQP_STATUS_OK)
        skr_bench_die(what, amqp_error_string2(status));
}

void
skr_bench_rabbit_open(struct skr_bench_rabbit *rabbit, const char *text)
{
    struct skr_url url;
    struct skr_error error = {0};
    if (skr_url_parse(text, &url, &error) != SKR_OK)
        skr_bench_die("broker", error.text);
    *rabbit = (struct skr_bench_rabbit){
        .state = amqp_new_connection(), .next_tag = 1, .lowest_tag = 1};
    check_status(amqp_socket_open(amqp_tcp_socket_new(rabbit->state), url.host,
                                  url.port),
                 "connect");
    check(amqp_login(rabbit->state, url.path, 0, FRAME_MAX, 0,
                     AMQP_SASL_METHOD_PLAIN, url.user, url.password),
          "log in");
    amqp_channel_open(rabbit->state, CHANNEL);
    check(amqp_get_rpc_reply(rabbit->state), "open a channel");
    skr_url_fini(&url);
}

void
skr_bench_rabbit_close(struct skr_bench_rabbit *rabbit)
{
    check(amqp_connection_close(rabbit->state, AMQP_REPLY_SUCCESS), "close");
    amqp_destroy_connection(rabbit->state);
}

void
skr_bench_rabbit_confirm(struct skr_bench_rabbit *rabbit)
{
    amqp_confirm_select(rabbit->state, CHANNEL);
    check(amqp_get_rpc_reply(rabbit->state), "confirms");
}

static void
dress(const unsigned char *id, amqp_basic_properties_t *properties,
      amqp_table_entry_t entries[2], char texts[2][80])
{
    skr_bench_write_id(id, texts[0]);
    snprintf(texts[1], sizeof(texts[1]), "[{\"messageId\":\"%.36s\"}]",
             texts[0]);
    static const char *const names[2] = {
        "X-Message-Id",
        "X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp"};
    for (int i = 0; i < 2; i++)
        entries[i] = (amqp_table_entry_t){
            .key = amqp_cstring_bytes(names[i]),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes = amqp_cstring_bytes(texts[i])}};
    properties->_flags |= AMQP_BASIC_CONTENT_TYPE_FLAG |
                          AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                          AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG;
    properties->content_type = amqp_cstring_bytes("application/json");
    properties->message_id = amqp_cstring_bytes(texts[0]);
    properties->timestamp = (uint64_t)time(NULL);
    properties->type = amqp_cstring_bytes("order.placed");
    properties->headers = (amqp_table_t){.num_entries = 2, .entries = entries};
}

void
skr_bench_rabbit_publish(struct skr_bench_rabbit *rabbit,
                         const struct skr_bench_publication *publication)
{
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
        .delivery_mode = AMQP_DELIVERY_PERSISTENT};
    amqp_table_entry_t entries[2];
    char texts[2][80];
    if (publication->id != NULL)
        dress(publication->id, &properties, entries, texts);
    skr_bench_rabbit_await(rabbit, SKR_BENCH_WINDOW - 1);
    check_status(
        amqp_basic_publish(
            rabbit->state, CHANNEL, amqp_cstring_bytes(publication->exchange),
            amqp_cstring_bytes(publication->routing_key),
            publication->id != NULL, 0, &properties, publication->body),
        "publish");
    rabbit->confirmed[rabbit->next_tag++ % SKR_BENCH_WINDOW] = false;
}

uint64_t
skr_bench_rabbit_unconfirmed(const struct skr_bench_rabbit *rabbit)
{
    return rabbit->next_tag - rabbit->lowest_tag;
}

static void
take_ack(struct skr_bench_rabbit *rabbit, const amqp_frame_t *frame)
{
    if (frame->frame_type != AMQP_FRAME_METHOD ||
        frame->payload.method.id != AMQP_BASIC_ACK_METHOD)
        skr_bench_die("publish", "RabbitMQ answers with something else than "
                                 "an ack");
    const amqp_basic_ack_t *ack = frame->payload.method.decoded;
    uint64_t from = ack->multiple ? rabbit->lowest_tag : ack->delivery_tag;
    for (uint64_t tag = from; tag <= ack->delivery_tag; tag++)
        rabbit->confirmed[tag % SKR_BENCH_WINDOW] = true;
    while (rabbit->lowest_tag < rabbit->next_tag &&
           rabbit->confirmed[rabbit->lowest_tag % SKR_BENCH_WINDOW])
        rabbit->lowest_tag++;
}

// False: no frame came in time.
static bool
take_frame(struct skr_bench_rabbit *rabbit, const struct timeval *timeout)
{
    amqp_frame_t frame;
    int status = amqp_simple_wait_frame_noblock(rabbit->state, &frame, timeout);
    if (status == AMQP_STATUS_TIMEOUT)
        return false;
    check_status(status, "confirmation");
    take_ack(rabbit, &frame);
    return true;
}

void
skr_bench_rabbit_look(struct skr_bench_rabbit *rabbit)
{
    const struct timeval now = {0};
    while (skr_bench_rabbit_unconfirmed(rabbit) > 0 && take_frame(rabbit, &now))
        ;
    amqp_maybe_release_buffers(rabbit->state);
}

void
skr_bench_rabbit_await(struct skr_bench_rabbit *rabbit, uint64_t most)
{
    const struct timeval timeout = {.tv_sec = 60};
    if (skr_bench_rabbit_unconfirmed(rabbit) <= most)
        return;
    while (skr_bench_rabbit_unconfirmed(rabbit) > most)
        if (!take_frame(rabbit, &timeout))
            skr_bench_die("confirmation", "none came in 60 s");
    // Those that have come along are taken without asking the socket.
    while (amqp_frames_enqueued(rabbit->state) ||
           amqp_data_in_buffer(rabbit->state))
        if (!take_frame(rabbit, &timeout))
            break;
    amqp_maybe_release_buffers(rabbit->state);
}

uint64_t
skr_bench_rabbit_waiting(struct skr_bench_rabbit *rabbit, const char *queue)
{
    const amqp_queue_declare_ok_t *found =
        amqp_queue_declare(rabbit->state, CHANNEL, amqp_cstring_bytes(queue), 1,
                           0, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(rabbit->state), queue);
    uint64_t count = found->message_count;
    amqp_maybe_release_buffers(rabbit->state);
    return count;
}

uint64_t
skr_bench_rabbit_purge(struct skr_bench_rabbit *rabbit, const char *queue)
{
    amqp_queue_declare(rabbit->state, CHANNEL, amqp_cstring_bytes(queue), 0, 1,
                       0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(rabbit->state), queue);
    const amqp_queue_purge_ok_t *purged =
        amqp_queue_purge(rabbit->state, CHANNEL, amqp_cstring_bytes(queue));
    check(amqp_get_rpc_reply(rabbit->state), queue);
    return purged->message_count;
}

void
skr_bench_rabbit_consume(struct skr_bench_rabbit *rabbit, const char *queue,
                         uint16_t prefetch)
{
    amqp_basic_qos(rabbit->state, CHANNEL, 0, prefetch, 0);
    check(amqp_get_rpc_reply(rabbit->state), "prefetch");
    amqp_basic_consume(rabbit->state, CHANNEL, amqp_cstring_bytes(queue),
                       amqp_empty_bytes, 0, prefetch == 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(rabbit->state), "consume");
}

bool
skr_bench_rabbit_receive(struct skr_bench_rabbit *rabbit, int timeout_ms,
                         amqp_envelope_t *envelope)
{
    const struct timeval timeout = {.tv_sec = timeout_ms / 1000,
                                    .tv_usec = timeout_ms % 1000 * 1000};
    amqp_maybe_release_buffers(rabbit->state);
    amqp_rpc_reply_t reply =
        amqp_consume_message(rabbit->state, envelope, &timeout, 0);
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_TIMEOUT)
        return false;
    check(reply, "receive");
    return true;
}

void
skr_bench_rabbit_acknowledge(struct skr_bench_rabbit *rabbit, uint64_t tag)
{
    check_status(amqp_basic_ack(rabbit->state, CHANNEL, tag, 1), "ack");
}

void
skr_bench_make_id(unsigned char id[SKR_BENCH_ID_SIZE], unsigned publisher,
                  long number)
{
    static const unsigned char form[SKR_BENCH_ID_SIZE] = {
        [6] = 0x70, [8] = 0x80};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    memcpy(id, form, sizeof(form));
    for (int i = 0; i < 6; i++)
        id[i] = (unsigned char)(ms >> (40 - 8 * i));
    id[9] = (unsigned char)publisher;
    for (int i = 0; i < 6; i++)
        id[10 + i] = (unsigned char)((uint64_t)number >> (40 - 8 * i));
}

void
skr_bench_write_id(const unsigned char id[SKR_BENCH_ID_SIZE], char *text)
{
    for (int i = 0; i < SKR_BENCH_ID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        text += snprintf(text, 3, "%02x", id[i]);
    }
}

static unsigned char
read_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return (unsigned char)(digit - '0');
    if (digit >= 'a' && digit <= 'f')
        return (unsigned char)(digit - 'a' + 10);
    skr_bench_die("message id", "not a UUID");
}

void
skr_bench_read_id(const amqp_basic_properties_t *properties,
                  unsigned char id[SKR_BENCH_ID_SIZE])
{
    const char *text = properties->message_id.bytes;
    if ((properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) == 0 ||
        properties->message_id.len != ID_TEXT_SIZE - 1)
        skr_bench_die("message id", "there is none");
    for (int i = 0; i < SKR_BENCH_ID_SIZE; i++) {
        text += *text == '-';
        id[i] = (unsigned char)(read_digit(text[0]) << 4 | read_digit(text[1]));
        text += 2;
    }
}
