// SPDX-License-Identifier: MIT
#include "support/fake_rabbitmq.h"

#include <amqp.h>
#include <amqp_framing.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_MAX = 131072, MOST_HELD = 10000 };

// Over all connections, each of which is a process.
static int *bindings;

struct session {
    int fd;
    amqp_connection_state_t decoder;
    uint64_t tag;
    unsigned channels;  // that were opened to publish on, one after the other
    uint64_t held[MOST_HELD];
    size_t held_count;
    char exchange[256], key[256], id[64];
    bool is_over;
    bool is_mute;
    unsigned stuck;  // a bit for each channel that nothing is heard of
    bool is_cut;
    size_t cut_after;  // bytes that are still let through
};

static void
say(struct session *session, const void *bytes, size_t size)
{
    if (session->is_cut && size > session->cut_after) {
        size = session->cut_after;
        session->is_over = true;
    }
    if (send(session->fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        session->is_over = true;
    session->cut_after -= size;
    if (session->is_cut && session->is_over)
        shutdown(session->fd, SHUT_RDWR);
}

static void
put_number(unsigned char *at, uint64_t number, size_t size)
{
    while (size > 0) {
        at[--size] = (unsigned char)number;
        number >>= 8;
    }
}

static void
say_frame(struct session *session, uint8_t type, uint16_t channel,
          unsigned char *frame, size_t size)
{
    put_number(frame, type, 1);
    put_number(frame + 1, channel, 2);
    put_number(frame + 3, size, 4);
    frame[7 + size] = 0xCE;
    say(session, frame, size + 8);
}

static void
say_method(struct session *session, uint16_t channel, uint32_t method,
           void *fields)
{
    unsigned char frame[4096];
    amqp_bytes_t room = {.len = 2048, .bytes = frame + 11};
    int size = amqp_encode_method(method, fields, room);
    if (size < 0)
        _exit(1);
    put_number(frame + 7, method, 4);
    say_frame(session, AMQP_FRAME_METHOD, channel, frame, (size_t)size + 4);
}

static void
say_ack(struct session *session, uint64_t tag, bool multiple)
{
    amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = multiple};
    say_method(session, 1, AMQP_BASIC_ACK_METHOD, &ack);
}

static void
say_return(struct session *session, const char *id)
{
    unsigned char frame[4096];
    amqp_basic_return_t method = {
        .reply_code = 312,
        .reply_text = amqp_cstring_bytes("NO_ROUTE"),
        .exchange = amqp_cstring_bytes(session->exchange),
        .routing_key = amqp_cstring_bytes(session->key)};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG,
                                          .message_id = amqp_cstring_bytes(id)};
    say_method(session, 1, AMQP_BASIC_RETURN_METHOD, &method);
    int size = amqp_encode_properties(
        AMQP_BASIC_CLASS, &properties,
        (amqp_bytes_t){.len = 2048, .bytes = frame + 19});
    put_number(frame + 7, AMQP_BASIC_CLASS, 2);
    put_number(frame + 9, 0, 2);
    put_number(frame + 11, 6, 8);
    say_frame(session, AMQP_FRAME_HEADER, 1, frame, (size_t)size + 12);
    for (int i = 0; i < 2; i++) {
        memcpy(frame + 7, "abc", 3);
        say_frame(session, AMQP_FRAME_BODY, 1, frame, 3);
    }
}

static void
on_body(struct session *session, const char *body)
{
    int code = atoi(body);
    session->tag++;
    if (strcmp(body, "hold") == 0) {
        session->held[session->held_count++ % MOST_HELD] = session->tag;
    } else if (strcmp(body, "release") == 0) {
        say_ack(session, session->tag, false);
        while (session->held_count > 0)
            say_ack(session, session->held[--session->held_count], false);
    } else if (strcmp(body, "nack") == 0 ||
               (strcmp(body, "stale") == 0 && session->channels == 1) ||
               (strcmp(body, "full") == 0 && session->channels <= 3)) {
        amqp_basic_nack_t nack = {.delivery_tag = session->tag};
        say_method(session, 1, AMQP_BASIC_NACK_METHOD, &nack);
    } else if (strcmp(body, "all") == 0) {
        session->held_count = 0;
        say_ack(session, session->tag, true);
    } else if (strcmp(body, "return") == 0) {
        say_return(session, session->id);
        say_ack(session, session->tag, false);
    } else if (strcmp(body, "stranger") == 0) {
        say_return(session, "00000000-0000-4000-8000-000000000001");
    } else if (strcmp(body, "future") == 0) {
        say_ack(session, session->tag + 1000, false);
    } else if (strcmp(body, "zero") == 0) {
        say_ack(session, 0, true);
    } else if (strcmp(body, "garbage") == 0) {
        say(session, "\x01\x00\x01\xff\xff\xff\xffgarbage", 14);
    } else if (strcmp(body, "open") == 0) {
        amqp_basic_get_empty_t empty = {.cluster_id = amqp_empty_bytes};
        say_method(session, 1, AMQP_BASIC_GET_EMPTY_METHOD, &empty);
    } else if (code > 0) {
        amqp_connection_close_t close = {.reply_code = (uint16_t)code,
                                         .reply_text =
                                             amqp_cstring_bytes("a test")};
        say_method(session, 0, AMQP_CONNECTION_CLOSE_METHOD, &close);
        shutdown(session->fd, SHUT_WR);
        session->is_over = true;
    } else {
        say_ack(session, session->tag, false);
    }
}

static void
say_deliver(struct session *session, uint16_t channel, uint64_t tag,
            const char *consumer)
{
    amqp_basic_deliver_t deliver = {
        .consumer_tag = amqp_cstring_bytes(consumer), .delivery_tag = tag};
    say_method(session, channel, AMQP_BASIC_DELIVER_METHOD, &deliver);
}

static void
say_properties(struct session *session, uint16_t channel, uint64_t body_size,
               const void *properties, size_t size)
{
    unsigned char frame[256];
    put_number(frame + 7, AMQP_BASIC_CLASS, 2);
    put_number(frame + 9, 0, 2);
    put_number(frame + 11, body_size, 8);
    memcpy(frame + 19, properties, size);
    say_frame(session, AMQP_FRAME_HEADER, channel, frame, size + 12);
}

static void
say_piece(struct session *session, uint16_t channel, const char *text)
{
    unsigned char frame[256];
    memcpy(frame + 7, text, strlen(text));
    say_frame(session, AMQP_FRAME_BODY, channel, frame, strlen(text));
}

static void
say_messages(struct session *session, uint16_t channel, uint64_t first_tag)
{
    static const char headers[] = "\x20\x00\x00\x00\x00\x1b"
                                  "\x04typeS\x00\x00\x00\x03"
                                  "a.b"
                                  "\x01tF\x00\x00\x00\x07"
                                  "\x01nI\x00\x00\x00\x07";
    for (uint64_t i = 0; i < 20; i++) {
        say_deliver(session, channel, first_tag + i, "0");
        say_properties(session, channel, 6, headers, sizeof(headers) - 1);
        say_piece(session, channel, "abc");
        say_piece(session, channel, "def");
    }
}

static void
on_consume(struct session *session, uint16_t channel, const char *queue)
{
    amqp_basic_consume_ok_t ok = {.consumer_tag = amqp_cstring_bytes("0")};
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes("0"),
                                  .nowait = 1};
    amqp_channel_close_t close = {.reply_code = (uint16_t)atoi(queue),
                                  .reply_text = amqp_cstring_bytes("a test")};
    if (strcmp(queue, "silent") == 0)
        return;
    say_method(session, channel, AMQP_BASIC_CONSUME_OK_METHOD, &ok);
    if (strncmp(queue, "cut-", 4) == 0) {
        session->is_cut = true;
        session->cut_after = strtoul(queue + 4, NULL, 10);
        say_messages(session, channel, 1);
    } else if (strcmp(queue, "good") == 0) {
        say_messages(session, channel, 1);
    } else if (strcmp(queue, "unturned") == 0) {
        say_deliver(session, channel, 5, "0");
    } else if (strcmp(queue, "nobody") == 0) {
        say_deliver(session, channel, 1, "7");
    } else if (strcmp(queue, "twice") == 0) {
        say_deliver(session, channel, 1, "0");
        say_deliver(session, channel, 2, "0");
    } else if (strcmp(queue, "bodiless") == 0) {
        say_deliver(session, channel, 1, "0");
        say_piece(session, channel, "abc");
    } else if (strcmp(queue, "endless") == 0) {
        say_deliver(session, channel, 1, "0");
        say_properties(session, channel, 5, "\0\0", 2);
        say_piece(session, channel, "abcdef");
    } else if (strcmp(queue, "huge") == 0) {
        say_deliver(session, channel, 1, "0");
        say_properties(session, channel, UINT64_C(1) << 62, "\0\0", 2);
    } else if (strcmp(queue, "broken") == 0) {
        say_deliver(session, channel, 1, "0");
        say_properties(session, channel, 0, "\x20\0\0\0\xff\xff", 6);
        say_messages(session, channel, 2);
    } else if (strcmp(queue, "unknown") == 0) {
        say_deliver(session, channel, 1, "0");
        say_properties(session, channel, 0, "\0\1\0\0", 4);
        say_messages(session, channel, 2);
    } else if (strcmp(queue, "cancelled") == 0) {
        say_method(session, channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    } else if (close.reply_code > 0) {
        say_method(session, channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
    }
}

static void
copy_text(amqp_bytes_t bytes, char *text, size_t size)
{
    size_t count = bytes.len < size - 1 ? bytes.len : size - 1;
    memcpy(text, bytes.bytes, count);
    text[count] = '\0';
}

static bool
is_bound(const amqp_queue_bind_t *bind)
{
    char queue[256];
    copy_text(bind->queue, queue, sizeof(queue));
    if (strcmp(queue, "bound-once") == 0)
        return (*bindings)++ == 0;
    return strncmp(queue, "unbindable", 10) != 0;
}

static void
on_method(struct session *session, uint16_t channel,
          const amqp_method_t *method)
{
    union {
        amqp_connection_tune_t tune;
        amqp_connection_open_ok_t open_ok;
        amqp_channel_open_ok_t channel_open_ok;
        amqp_confirm_select_ok_t select_ok;
        amqp_exchange_declare_ok_t declare_ok;
        amqp_queue_declare_ok_t queue_ok;
        amqp_queue_bind_ok_t bind_ok;
        amqp_basic_qos_ok_t qos_ok;
        amqp_connection_close_ok_t close_ok;
    } answer = {0};
    const amqp_basic_publish_t *publish = method->decoded;
    const amqp_basic_consume_t *consume = method->decoded;
    const amqp_connection_open_t *open = method->decoded;
    char queue[256];
    if (session->is_mute)
        return;
    switch (method->id) {
    case AMQP_CONNECTION_START_OK_METHOD:
        answer.tune =
            (amqp_connection_tune_t){.channel_max = 10, .frame_max = FRAME_MAX};
        say_method(session, 0, AMQP_CONNECTION_TUNE_METHOD, &answer);
        return;
    case AMQP_CONNECTION_OPEN_METHOD:
        say_method(session, 0, AMQP_CONNECTION_OPEN_OK_METHOD, &answer);
        session->is_mute = open->virtual_host.len == 4 &&
                           memcmp(open->virtual_host.bytes, "mute", 4) == 0;
        return;
    case AMQP_CONNECTION_CLOSE_METHOD:
        say_method(session, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &answer);
        session->is_over = true;
        return;
    case AMQP_CHANNEL_OPEN_METHOD:
        session->channels += channel == 1;
        say_method(session, channel, AMQP_CHANNEL_OPEN_OK_METHOD, &answer);
        return;
    case AMQP_CHANNEL_CLOSE_METHOD:
        session->tag = 0;
        say_method(session, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &answer);
        return;
    case AMQP_CONFIRM_SELECT_METHOD:
        say_method(session, channel, AMQP_CONFIRM_SELECT_OK_METHOD, &answer);
        return;
    case AMQP_EXCHANGE_DECLARE_METHOD:
        say_method(session, channel, AMQP_EXCHANGE_DECLARE_OK_METHOD, &answer);
        return;
    case AMQP_QUEUE_DECLARE_METHOD:
        say_method(session, channel, AMQP_QUEUE_DECLARE_OK_METHOD, &answer);
        return;
    case AMQP_QUEUE_BIND_METHOD:
        if (!is_bound(method->decoded))
            session->stuck |= 1U << channel;
        else
            say_method(session, channel, AMQP_QUEUE_BIND_OK_METHOD, &answer);
        return;
    case AMQP_BASIC_QOS_METHOD:
        say_method(session, channel, AMQP_BASIC_QOS_OK_METHOD, &answer);
        return;
    case AMQP_BASIC_CONSUME_METHOD:
        copy_text(consume->queue, queue, sizeof(queue));
        on_consume(session, channel, queue);
        return;
    case AMQP_BASIC_PUBLISH_METHOD:
        copy_text(publish->exchange, session->exchange, 256);
        copy_text(publish->routing_key, session->key, 256);
        return;
    default: return;
    }
}

static void
on_frame(struct session *session, const amqp_frame_t *frame)
{
    if ((session->stuck >> frame->channel & 1) != 0)
        return;
    if (frame->frame_type == AMQP_FRAME_METHOD)
        on_method(session, frame->channel, &frame->payload.method);
    if (frame->frame_type == AMQP_FRAME_HEADER) {
        const amqp_basic_properties_t *properties =
            frame->payload.properties.decoded;
        session->id[0] = '\0';
        if ((properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0)
            copy_text(properties->message_id, session->id, sizeof(session->id));
    }
    if (frame->frame_type == AMQP_FRAME_BODY) {
        char body[64];
        copy_text(frame->payload.body_fragment, body, sizeof(body));
        on_body(session, body);
    }
}

static void
greet(struct session *session, const char *greeting)
{
    amqp_connection_start_t start = {.version_minor = 9,
                                     .mechanisms = amqp_cstring_bytes("PLAIN"),
                                     .locales = amqp_cstring_bytes("en_US")};
    char header[8];
    if (recv(session->fd, header, sizeof(header), MSG_WAITALL) !=
        sizeof(header))
        session->is_over = true;
    else if (greeting != NULL)
        say(session, greeting, strlen(greeting));
    else
        say_method(session, 0, AMQP_CONNECTION_START_METHOD, &start);
}

static void
serve(int fd, const char *greeting)
{
    static char piece[65536];
    struct session session = {.fd = fd, .decoder = amqp_new_connection()};
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    greet(&session, greeting);
    amqp_frame_t frame;
    bool is_tuned = false;
    ssize_t size;
    while (!session.is_over && (size = read(fd, piece, sizeof(piece))) > 0)
        for (ssize_t at = 0; at < size && !session.is_over;) {
            int used = amqp_handle_input(
                session.decoder,
                (amqp_bytes_t){.len = (size_t)(size - at), .bytes = piece + at},
                &frame);
            if (used < 0)
                _exit(1);
            at += used;
            if (frame.frame_type == 0)
                continue;
            on_frame(&session, &frame);
            amqp_maybe_release_buffers(session.decoder);
            if (!is_tuned)
                amqp_tune_connection(session.decoder, 0, FRAME_MAX, 0);
            is_tuned = true;
        }
    // Reads on, so that closing sends no reset in front of the last words.
    while (read(fd, piece, sizeof(piece)) > 0)
        continue;
    close(fd);
    amqp_destroy_connection(session.decoder);
}

// Each connection has a process of its own.
static void
accept_all(int listener, const char *greeting)
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener);
            serve(fd, greeting);
            _exit(0);
        }
        close(fd);
    }
}

void
skr_fake_rabbitmq_start(struct skr_fake_rabbitmq *server, const char *greeting)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        abort();
    server->port = ntohs(address.sin_port);
    bindings = mmap(NULL, sizeof(*bindings), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bindings == MAP_FAILED)
        abort();
    server->process = fork();
    if (server->process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        accept_all(listener, greeting);
    }
    munmap(bindings, sizeof(*bindings));
    close(listener);
}

void
skr_fake_rabbitmq_stop(struct skr_fake_rabbitmq *server)
{
    kill(server->process, SIGKILL);
    waitpid(server->process, NULL, 0);
}
