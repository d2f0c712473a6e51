// SPDX-License-Identifier: MIT
// RabbitMQ as a broker: connecting, and the turns that keep it going.

#include "broker/rabbitmq/rabbitmq.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/url.h"
#include "broker/rabbitmq/plan.h"

#include <skirnir/rabbitmq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WAIT_MS = 250 };

static void
forget_connection(struct rabbit_broker *broker)
{
    broker->is_publishing_open = false;
    broker->renew_ms = broker->renewed_ms = 0;
    broker->is_asking_open = false;
    broker->is_declaring_open = false;
    broker->is_unbound = false;
    broker->is_binding_open = false;
    broker->is_asking = false;
    broker->base.is_blocked = false;
    broker->must_reconnect = false;
    broker->sending = NULL;
    broker->returning = (struct rabbit_return){0};
    skr_rabbit_exchanges_forget(&broker->exchanges);
}

enum skr_code
skr_rabbit_connect(struct rabbit_broker *broker, struct skr_error *error)
{
    forget_connection(broker);
    enum skr_code code = skr_rabbit_link_open(&broker->link, &broker->settings,
                                              broker->base.wake_fd, error);
    if (code != SKR_OK || broker->consumer.is_wanted)
        return code;
    code = skr_rabbit_open_channel(broker, RABBIT_PUBLISHING, error);
    if (code == SKR_OK)
        code = skr_rabbit_open_channel(broker, RABBIT_ASKING, error);
    return code;
}

// A server that is there but does not answer is as good as none. While it
// holds us on purpose (connection.blocked) the clock stands still.
static enum skr_code
check_patience(const struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_entry *oldest =
        skr_rabbit_window_oldest(&broker->window);
    int64_t since_ms = skr_clock_ms();
    if (broker->base.is_blocked || broker->consumer.is_wanted)
        return SKR_OK;
    if (oldest != NULL)
        since_ms = oldest->sent_ms;
    // A large message on a slow line is on its way as long as bytes go.
    if (oldest != NULL && since_ms < broker->link.told_ms &&
        (broker->sending != NULL || skr_rabbit_link_unsent(&broker->link) > 0))
        since_ms = broker->link.told_ms;
    if (broker->is_asking || !broker->is_asking_open ||
        !broker->is_publishing_open)
        since_ms = since_ms < broker->channel_asked_ms
                       ? since_ms
                       : broker->channel_asked_ms;
    if (since_ms < broker->unblocked_ms)
        since_ms = broker->unblocked_ms;
    int64_t waited_ms = skr_clock_ms() - since_ms;
    if (waited_ms <= broker->settings.confirm_timeout_ms)
        return SKR_OK;
    return skr_rabbit_link_fail_silent(&broker->link, waited_ms, error);
}

static enum skr_code
handle_all(struct rabbit_broker *broker, size_t *count, struct skr_error *error)
{
    for (;;) {
        amqp_frame_t frame;
        bool found = false;
        enum skr_code code =
            skr_rabbit_link_next(&broker->link, &frame, &found, error);
        if (code != SKR_OK || !found)
            return code;
        code = skr_rabbit_handle(broker, &frame, error);
        if (code != SKR_OK || broker->must_reconnect)
            return code;
        (*count)++;
    }
}

static enum skr_code
reconnect(struct rabbit_broker *broker, struct skr_error *error)
{
    skr_rabbit_link_close(&broker->link, false);
    return skr_rabbit_connect(broker, error);
}

static enum skr_code
send_and_handle(struct rabbit_broker *broker, size_t *count,
                struct skr_error *error)
{
    enum skr_code code = skr_rabbit_send_waiting(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    if (code == SKR_OK)
        code = handle_all(broker, count, error);
    if (code == SKR_OK && broker->must_reconnect)
        code = reconnect(broker, error);
    if (code == SKR_OK && *count > 0)
        code = skr_rabbit_send_waiting(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    return code;
}

// Short enough for heartbeats.
static struct rabbit_patience
patience_of(uint32_t timeout_ms)
{
    return (struct rabbit_patience){
        .deadline_ms =
            skr_clock_ms() +
            (timeout_ms < LONGEST_WAIT_MS ? timeout_ms : LONGEST_WAIT_MS),
        .wake_fd = -1,
    };
}

enum skr_code
skr_rabbit_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                struct skr_error *error)
{
    size_t count = 0;
    struct skr_error *failure = &broker->failure;
    enum skr_code code = failure->code;
    if (code == SKR_OK)
        code = send_and_handle(broker, &count, failure);
    if (code == SKR_OK)
        code = skr_rabbit_link_tick(&broker->link, failure);
    if (code == SKR_OK)
        code = check_patience(broker, failure);
    if (code == SKR_OK && count == 0 && timeout_ms > 0) {
        struct rabbit_patience patience = patience_of(timeout_ms);
        code = skr_rabbit_link_wait(&broker->link, &patience, failure);
        if (code == SKR_TIMEOUT) {
            skr_error_clear(failure);
            return SKR_OK;
        }
        if (code == SKR_OK)
            code = send_and_handle(broker, &count, failure);
    }
    if (code != SKR_OK) {
        failure->remedy = SKR_RECONNECT;
        skr_rabbit_window_abandon(&broker->window);
        if (error != NULL)
            *error = *failure;
    }
    return code;
}

enum skr_code
skr_rabbit_outcomes(struct skr_broker *base, struct skr_outcome *outcomes,
                    size_t capacity, size_t *count, uint32_t timeout_ms,
                    struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    struct rabbit_window *window = &broker->window;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    enum skr_code code = SKR_OK;
    bool waits = true;
    while (code == SKR_OK && waits) {
        if (broker->must_mend)
            skr_rabbit_mend(broker);
        int64_t left = deadline_ms - skr_clock_ms();
        waits = left > 0 && window->outstanding > 0 &&
                window->done_first == window->done_end;
        code = skr_rabbit_turn(broker, waits ? (uint32_t)left : 0, error);
        waits = waits && window->done_first == window->done_end;
    }
    *count =
        skr_rabbit_window_give(window, &broker->failure, outcomes, capacity);
    // The error comes when there is nothing else left to tell.
    return *count > 0 ? SKR_OK : code;
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
await_channels(struct rabbit_broker *broker, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (broker->consumer.is_wanted)
        return skr_rabbit_consumer_prepare(broker, error);
    while (code == SKR_OK &&
           (!broker->is_publishing_open || !broker->is_asking_open)) {
        code = skr_rabbit_turn(broker, 100, error);
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
    broker->link.stream.fd = -1;
    broker->log = options->log;
    broker->consumer.is_wanted = options->consumes;
    enum skr_code code =
        skr_rabbit_settings_read(options->url, url, options->auto_setup,
                                 &broker->log, &broker->settings, error);
    if (code == SKR_OK && broker->settings.tls && !broker->settings.verify)
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.unverified",
                SKR_LOG_TEXT("host", broker->settings.hosts[0].name),
                SKR_LOG_TEXT("cure", "name the server's authority in cacert, "
                                     "and take verify out"));
    base->delays = broker->settings.delays;
    base->hold_ms = broker->settings.hold_timeout_ms;
    if (code == SKR_OK)
        code = skr_rabbit_window_init(&broker->window, error);
    if (code == SKR_OK)
        code = skr_rabbit_connect(broker, error);
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
    skr_rabbit_link_close(&broker->link, broker->failure.code == SKR_OK);
    skr_rabbit_window_fini(&broker->window);
    skr_rabbit_exchanges_forget(&broker->exchanges);
    skr_rabbit_settings_fini(&broker->settings);
    free(broker->headers);
}

static enum skr_code
rabbit_check_url(const char *text, const struct skr_url *url,
                 const struct skr_log *log, struct skr_error *error)
{
    struct rabbit_settings settings;
    enum skr_code code =
        skr_rabbit_settings_read(text, url, false, log, &settings, error);
    skr_rabbit_settings_fini(&settings);
    return code;
}

// The login sends the password as it is.
static void
rabbit_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct skr_host host;
    said[0] = '\0';
    if (url->password == NULL || url->password[0] == '\0' ||
        strcmp(url->scheme, "amqps") == 0 || url->host == NULL ||
        !skr_host_find_other(url->host, &host))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "amqp:// sends the password and all messages to %.80s in "
             "plaintext; write amqps://, and name the server's authority in "
             "cacert",
             host.name);
}

static const char *const file_parameters[] = {"cacert", "cert", "key", NULL};
static const struct skr_url_files files = {.parameters = file_parameters};

const struct skr_broker_ops skr_rabbitmq_broker = {
    .scheme = "amqp",
    .size = sizeof(struct rabbit_broker),
    .check_url = rabbit_check_url,
    .exposure = rabbit_exposure,
    .files = &files,
    .open = rabbit_open,
    .close = rabbit_close,
    .submit = skr_rabbit_submit,
    .outcomes = skr_rabbit_outcomes,
    .receive = skr_rabbit_receive,
    .settle = skr_rabbit_settle,
    .plan = skr_rabbit_plan,
    .declare = skr_rabbit_declare,
    .depth = skr_rabbit_depth,
};
