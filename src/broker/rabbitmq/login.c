// SPDX-License-Identifier: MIT
// Opening a connection: a host that answers, a user it knows, a vhost.

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "base/text.h"
#include "broker/rabbitmq/errors.h"
#include "broker/rabbitmq/link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    FRAME_MAX = 131072,
    LEAST_FRAME_MAX = 4096,  // the protocol's
};

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
await(struct rabbit_link *link, amqp_method_number_t expected,
      const struct rabbit_patience *patience, amqp_method_t *method,
      struct skr_error *error)
{
    for (;;) {
        amqp_frame_t frame;
        bool found = false;
        enum skr_code code = skr_rabbit_link_next(link, &frame, &found, error);
        if (code == SKR_OK && !found)
            code = skr_rabbit_link_wait(link, patience, error);
        if (code != SKR_OK)
            return code;
        if (!found || frame.frame_type == AMQP_FRAME_HEARTBEAT)
            continue;
        *method = frame.payload.method;
        if (frame.frame_type == AMQP_FRAME_METHOD && method->id == expected)
            return SKR_OK;
        if (frame.frame_type == AMQP_FRAME_METHOD &&
            method->id == AMQP_CONNECTION_CLOSE_METHOD) {
            const amqp_connection_close_t *close = method->decoded;
            amqp_connection_close_ok_t answer = {0};
            code = skr_rabbit_fail_reply(error, close->reply_code,
                                         close->reply_text);
            if (skr_rabbit_link_send(link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD,
                                     &answer, NULL) != SKR_OK ||
                skr_rabbit_link_flush(link, NULL) != SKR_OK)
                return code;
            return code;
        }
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "%s, where RabbitMQ should be, does not speak AMQP "
                        "0-9-1",
                        link->stream.peer);
    }
}

static enum skr_code
send_credentials(struct rabbit_link *link,
                 const struct rabbit_settings *settings,
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
        text_entry("product", "Skirnir"),
        text_entry("version", SKR_VERSION),
        text_entry("platform", "C"),
        text_entry("connection_name", settings->connection_name),
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value.table = {.num_entries = SKR_COUNT_OF(capabilities),
                                   .entries = capabilities}}},
    };
    struct skr_text response = {0};
    skr_text_add(&response, "", 1);
    skr_text_add(&response, settings->user, strlen(settings->user) + 1);
    skr_text_add_string(&response, settings->password);
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
    enum skr_code code = skr_rabbit_link_send(
        link, 0, AMQP_CONNECTION_START_OK_METHOD, &answer, error);
    skr_text_fini(&response);
    return code;
}

static enum skr_code
agree(struct rabbit_link *link, const struct rabbit_settings *settings,
      const amqp_connection_tune_t *offer, struct skr_error *error)
{
    amqp_connection_tune_ok_t answer = {
        .channel_max = offer->channel_max,
        .frame_max = offer->frame_max,
        .heartbeat = settings->heartbeat_s,
    };
    if (answer.frame_max == 0 || answer.frame_max > FRAME_MAX)
        answer.frame_max = FRAME_MAX;
    if (answer.frame_max < LEAST_FRAME_MAX)
        answer.frame_max = LEAST_FRAME_MAX;
    if (offer->heartbeat > 0 && answer.heartbeat > offer->heartbeat)
        answer.heartbeat = offer->heartbeat;
    amqp_connection_open_t open = {.virtual_host =
                                       amqp_cstring_bytes(settings->vhost)};
    enum skr_code code = skr_rabbit_link_send(
        link, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &answer, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_tune(link, answer.frame_max, answer.heartbeat,
                                    error);
    if (code == SKR_OK)
        code = skr_rabbit_link_send(link, 0, AMQP_CONNECTION_OPEN_METHOD, &open,
                                    error);
    return code;
}

static enum skr_code
log_in(struct rabbit_link *link, const struct rabbit_settings *settings,
       const struct rabbit_patience *patience, struct skr_error *error)
{
    amqp_method_t method = {0};
    enum skr_code code =
        skr_rabbit_link_send_raw(link, "AMQP\0\0\x09\x01", 8, error);
    if (code == SKR_OK)
        code =
            await(link, AMQP_CONNECTION_START_METHOD, patience, &method, error);
    if (code == SKR_OK)
        code = send_credentials(link, settings, error);
    if (code != SKR_OK)
        return code;
    code = await(link, AMQP_CONNECTION_TUNE_METHOD, patience, &method, error);
    if (code != SKR_OK && code != SKR_STOPPED && code != SKR_TIMEOUT)
        skr_error_prefix(
            error,
            "RabbitMQ at %s: user %.60s cannot log in (check user and "
            "password in the DSN)",
            link->stream.peer, settings->user);
    if (code == SKR_OK)
        code = agree(link, settings, method.decoded, error);
    if (code != SKR_OK)
        return code;
    code =
        await(link, AMQP_CONNECTION_OPEN_OK_METHOD, patience, &method, error);
    // A connection that was cut says nothing of the vhost: a server that
    // refuses it says so by a code.
    if (code != SKR_OK && error != NULL && error->native[0] != '\0')
        skr_error_prefix(
            error,
            "RabbitMQ at %s: vhost %.80s cannot be opened (correct it in the "
            "DSN, or create it and give the user rights there)",
            link->stream.peer, settings->vhost);
    return code;
}

static enum skr_code
try_host(struct rabbit_link *link, const struct rabbit_settings *settings,
         const struct rabbit_host *host, int wake_fd, struct skr_error *error)
{
    const struct rabbit_patience patience = {
        .deadline_ms = skr_clock_ms() + settings->connect_timeout_ms,
        .wake_fd = wake_fd,
    };
    enum skr_code code =
        skr_rabbit_stream_open(&link->stream, settings, host, &patience, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_start(link, error);
    if (code == SKR_OK)
        code = log_in(link, settings, &patience, error);
    char peer[RABBIT_PEER_SIZE];
    skr_rabbit_name_host(host, peer);
    if (code == SKR_OK) {
        skr_silence_end(peer);
        return SKR_OK;
    }
    skr_rabbit_link_close(link, false);
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

// A host that is to be tried, and when it was silent.
struct candidate {
    const struct rabbit_host *host;
    int64_t silent_ms;
};

static int
compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->silent_ms != b->silent_ms)
        return a->silent_ms < b->silent_ms ? -1 : 1;
    return a->host < b->host ? -1 : 1;
}

// From a random one on, so that many relays spread; those that were silent
// last, and the one that was so most lately at the very end.
static struct candidate *
sort_hosts(const struct rabbit_settings *settings)
{
    uint32_t start = 0;
    size_t count = settings->host_count;
    struct candidate *candidates = calloc(2 * count, sizeof(*candidates));
    if (candidates == NULL)
        return NULL;
    if (getrandom(&start, sizeof(start), 0) != (ssize_t)sizeof(start))
        start = (uint32_t)skr_clock_wall_us();
    size_t spoken = 0, silent = 0;
    struct candidate *silents = candidates + count;
    for (size_t i = 0; i < count; i++) {
        char peer[RABBIT_PEER_SIZE];
        struct candidate next = {.host = &settings->hosts[(start + i) % count]};
        skr_rabbit_name_host(next.host, peer);
        next.silent_ms = skr_silence_ms(peer);
        if (next.silent_ms == 0)
            candidates[spoken++] = next;
        else
            silents[silent++] = next;
    }
    qsort(silents, silent, sizeof(*silents), compare_candidates);
    memmove(candidates + spoken, silents, silent * sizeof(*silents));
    return candidates;
}

// A server that answers and refuses speaks for all of them.
enum skr_code
skr_rabbit_link_open(struct rabbit_link *link,
                     const struct rabbit_settings *settings, int wake_fd,
                     struct skr_error *error)
{
    struct skr_text troubles = {0};
    enum skr_code code = SKR_UNAVAILABLE;
    struct candidate *candidates = sort_hosts(settings);
    if (candidates == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < settings->host_count; i++) {
        struct skr_error trouble = {0};
        *link = (struct rabbit_link){.stream.fd = -1};
        code = try_host(link, settings, candidates[i].host, wake_fd, &trouble);
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
