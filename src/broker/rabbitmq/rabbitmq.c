// SPDX-License-Identifier: MIT
// RabbitMQ as a broker: connecting, the turns that keep the connection going,
// and which frame is for which part of the driver.

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "base/url.h"
#include "broker/rabbitmq/driver.h"

#include <skirnir/rabbitmq.h>
#include <stdio.h>
#include <string.h>

enum {
    LONGEST_WAIT_MS = 250,  // short enough for heartbeats
    OPENING_WAIT_MS = 100,
};

enum skr_code
skr_rabbit_fail_unexpected(const struct rabbit_broker *broker, const char *what,
                           struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s sent what was not expected: %s",
                    broker->amqp.stream.peer, what);
}

enum skr_code
skr_rabbit_check_silence(const struct rabbit_broker *broker, int64_t since_ms,
                         struct skr_error *error)
{
    const char *peer = broker->amqp.stream.peer;
    int64_t waited_ms = skr_clock_ms() - since_ms;
    if (waited_ms <= broker->options.confirm_timeout_ms)
        return SKR_OK;
    skr_silence_note(peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s has not answered for %lld ms "
                    "(confirm_timeout)",
                    peer, (long long)waited_ms);
}

enum skr_code
skr_rabbit_check_stop(const struct rabbit_broker *broker,
                      struct skr_error *error)
{
    if (broker->base.wake_fd < 0 || !skr_clock_sleep(broker->base.wake_fd, 0))
        return SKR_OK;
    return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stop was requested");
}

static enum skr_code
on_connection_close(struct rabbit_broker *broker,
                    const struct skr_amqp_frame *frame, struct skr_error *error)
{
    struct skr_error reason = {0};
    const char *peer = broker->amqp.stream.peer;
    enum skr_code code =
        skr_amqp_accept_close(&broker->amqp, frame, &reason, error);
    if (code != SKR_OK)
        return code;
    if (!skr_rabbit_publisher_on_close(broker, frame->reply.code, &reason))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s closed the connection: %s", peer,
                        reason.text);
    skr_log(&broker->log, SKR_LOG_WARNING, "amqp.connection_closed",
            SKR_LOG_TEXT("broker", peer), SKR_LOG_TEXT("reason", reason.text));
    return SKR_OK;
}

static void
on_blocked(struct rabbit_broker *broker, const struct skr_amqp_frame *frame)
{
    char reason[SKR_AMQP_SHORT_SIZE];
    skr_amqp_copy_short(frame->text, reason);
    if (!broker->publisher.is_blocked)
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.blocked",
                SKR_LOG_TEXT("broker", broker->amqp.stream.peer),
                SKR_LOG_TEXT("reason", reason));
    broker->publisher.is_blocked = true;
}

static void
on_unblocked(struct rabbit_broker *broker)
{
    skr_log(&broker->log, SKR_LOG_INFO, "amqp.unblocked",
            SKR_LOG_TEXT("broker", broker->amqp.stream.peer));
    broker->publisher.is_blocked = false;
    broker->publisher.unblocked_ms = skr_clock_ms();
}

enum skr_code
skr_rabbit_handle(struct rabbit_broker *broker,
                  const struct skr_amqp_frame *frame, struct skr_error *error)
{
    switch (frame->channel) {
    case 0: break;
    case RABBIT_PUBLISHING:
    case RABBIT_ASKING:
        return skr_rabbit_publisher_on_frame(broker, frame, error);
    case RABBIT_DECLARING:
    case RABBIT_BINDING:
        return skr_rabbit_topology_on_frame(broker, frame, error);
    case RABBIT_CONSUMING:
        return skr_rabbit_consumer_on_frame(broker, frame, error);
    default:
        return skr_rabbit_fail_unexpected(broker, "an unknown channel", error);
    }
    switch (frame->kind) {
    case SKR_AMQP_CONNECTION_CLOSE:
        return on_connection_close(broker, frame, error);
    case SKR_AMQP_BLOCKED: on_blocked(broker, frame); return SKR_OK;
    case SKR_AMQP_UNBLOCKED: on_unblocked(broker); return SKR_OK;
    default:
        return skr_rabbit_fail_unexpected(broker, "a method on channel 0",
                                          error);
    }
}

static enum skr_code
connect_to_server(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_setup *setup = &broker->setup;
    setup->is_open = setup->is_binding_open = setup->is_unbound = false;
    enum skr_code code =
        skr_amqp_open(&broker->amqp, &broker->options.connection,
                      broker->base.wake_fd, error);
    if (code != SKR_OK || broker->consumer.is_wanted)
        return code;
    return skr_rabbit_publisher_start(broker, error);
}

static enum skr_code
handle_all(struct rabbit_broker *broker, size_t *count, struct skr_error *error)
{
    for (;;) {
        struct skr_amqp_frame frame;
        bool found = false;
        enum skr_code code =
            skr_amqp_next(&broker->amqp, &frame, &found, error);
        if (code != SKR_OK || !found)
            return code;
        code = skr_rabbit_handle(broker, &frame, error);
        if (code != SKR_OK || broker->publisher.must_reconnect)
            return code;
        (*count)++;
    }
}

static enum skr_code
send_and_handle(struct rabbit_broker *broker, size_t *count,
                struct skr_error *error)
{
    enum skr_code code = skr_rabbit_send_waiting(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_flush(&broker->amqp, error);
    if (code == SKR_OK)
        code = handle_all(broker, count, error);
    if (code == SKR_OK && broker->publisher.must_reconnect) {
        skr_amqp_close(&broker->amqp, false);
        code = connect_to_server(broker, error);
    }
    if (code == SKR_OK && *count > 0)
        code = skr_rabbit_send_waiting(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_flush(&broker->amqp, error);
    return code;
}

enum skr_code
skr_rabbit_wait(struct rabbit_broker *broker, uint32_t timeout_ms, int wake_fd,
                struct skr_error *error)
{
    const struct skr_amqp_deadline deadline = {
        .at_ms = skr_clock_ms() +
                 (timeout_ms < LONGEST_WAIT_MS ? timeout_ms : LONGEST_WAIT_MS),
        .wake_fd = wake_fd,
    };
    return skr_amqp_wait(&broker->amqp, &deadline, error);
}

static enum skr_code
turn(struct rabbit_broker *broker, uint32_t timeout_ms, struct skr_error *error)
{
    size_t count = 0;
    enum skr_code code = send_and_handle(broker, &count, error);
    if (code == SKR_OK)
        code = skr_amqp_tick(&broker->amqp, error);
    if (code == SKR_OK && !broker->consumer.is_wanted)
        code = skr_rabbit_publisher_check(broker, error);
    if (code != SKR_OK || count > 0 || timeout_ms == 0)
        return code;
    code = skr_rabbit_wait(broker, timeout_ms, -1, error);
    if (code == SKR_TIMEOUT) {
        skr_error_clear(error);
        return SKR_OK;
    }
    return code == SKR_OK ? send_and_handle(broker, &count, error) : code;
}

enum skr_code
skr_rabbit_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                struct skr_error *error)
{
    struct skr_error *failure = &broker->failure;
    enum skr_code code = failure->code;
    if (code == SKR_OK)
        code = turn(broker, timeout_ms, failure);
    if (code != SKR_OK) {
        failure->remedy = SKR_RECONNECT;
        skr_rabbit_window_abandon(&broker->publisher.window);
        if (error != NULL)
            *error = *failure;
    }
    return code;
}

static enum skr_code
await_channels(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_publisher *publisher = &broker->publisher;
    enum skr_code code = SKR_OK;
    if (broker->consumer.is_wanted)
        return skr_rabbit_consumer_prepare(broker, error);
    while (code == SKR_OK &&
           (!publisher->is_open || !publisher->is_asking_open)) {
        code = skr_rabbit_turn(broker, OPENING_WAIT_MS, error);
        if (code == SKR_OK)
            code = skr_rabbit_check_stop(broker, error);
    }
    return code;
}

static enum skr_code
rabbit_open(struct skr_broker *base, const struct skr_url *url,
            const struct skr_broker_options *options, struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    const struct skr_amqp_options *server = &broker->options.connection;
    struct skr_host first;
    broker->amqp = SKR_AMQP_CLOSED;
    broker->log = options->log;
    broker->consumer.is_wanted = options->consumes;
    enum skr_code code =
        skr_rabbit_options_read(options->url, url, options->auto_setup,
                                &broker->log, &broker->options, error);
    if (code == SKR_OK)
        skr_host_next(server->hosts, &first);
    if (code == SKR_OK && server->tls.is_on && !server->tls.verify)
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.unverified",
                SKR_LOG_TEXT("host", first.name),
                SKR_LOG_TEXT("cure", "name the server's authority in cacert, "
                                     "and take verify out"));
    base->can.delays = broker->options.delays;
    base->can.hold_ms = broker->options.hold_timeout_ms;
    if (code == SKR_OK)
        code = skr_rabbit_window_init(&broker->publisher.window, error);
    if (code == SKR_OK)
        code = connect_to_server(broker, error);
    if (code == SKR_OK)
        code = await_channels(broker, error);
    bool publishes = !options->consumes && !options->inspects;
    if (code == SKR_OK && publishes)
        code = skr_rabbit_publishing_set_up(broker, error);
    return code;
}

static void
rabbit_close(struct skr_broker *base)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    skr_rabbit_consumer_fini(broker);
    skr_amqp_close(&broker->amqp, broker->failure.code == SKR_OK);
    skr_rabbit_publisher_fini(&broker->publisher);
    skr_arena_fini(&broker->options.arena);
}

static enum skr_code
rabbit_check_url(const char *text, const struct skr_url *url,
                 const struct skr_log *log, struct skr_error *error)
{
    struct rabbit_options options;
    enum skr_code code =
        skr_rabbit_options_read(text, url, false, log, &options, error);
    skr_arena_fini(&options.arena);
    return code;
}

// The login sends the password as it is.
static void
rabbit_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct skr_host host;
    said[0] = '\0';
    if (url->password == NULL || url->password[0] == '\0' ||
        strcmp(url->scheme, "amqps") == 0 ||
        !skr_host_find_other(url->host, &host))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "amqp:// sends the password and all messages to %.80s in "
             "plaintext; write amqps://, and name the server's authority in "
             "cacert",
             host.name);
}

static const char *const file_parameters[] = {"cacert", "cert", "key", NULL};

const struct skr_broker_ops skr_rabbitmq_broker = {
    .scheme = "amqp",
    .size = sizeof(struct rabbit_broker),
    .check_url = rabbit_check_url,
    .exposure = rabbit_exposure,
    .files = {.parameters = file_parameters},
    .open = rabbit_open,
    .close = rabbit_close,
    .submit = skr_rabbit_submit,
    .results = skr_rabbit_results,
    .receive = skr_rabbit_receive,
    .settle = skr_rabbit_settle,
    .status = skr_rabbit_status,
    .depth = skr_rabbit_depth,
    .topology = &skr_rabbit_topology,
};
