// SPDX-License-Identifier: MIT
#include "support/fake_broker.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/url.h"
#include "message/route.h"

#include <stdio.h>
#include <string.h>

static struct skr_fake *the_fake;

struct fake_connection {
    struct skr_broker broker;
    struct skr_broker_status status;
    char host[16];
    bool is_other;
    uint64_t tags[SKR_FAKE_CAPACITY];
    size_t messages[SKR_FAKE_CAPACITY];  // index in got
    size_t first, last;
    bool lost;
};

void
skr_fake_init(struct skr_fake *fake)
{
    memset(fake, 0, sizeof(*fake));
    pthread_mutex_init(&fake->lock, NULL);
    the_fake = fake;
}

void
skr_fake_fini(struct skr_fake *fake)
{
    pthread_mutex_destroy(&fake->lock);
    the_fake = NULL;
}

size_t
skr_fake_got(struct skr_fake *fake)
{
    pthread_mutex_lock(&fake->lock);
    size_t count = fake->got_count;
    pthread_mutex_unlock(&fake->lock);
    return count;
}

void
skr_fake_set(struct skr_fake *fake, bool *flag, bool value)
{
    pthread_mutex_lock(&fake->lock);
    *flag = value;
    pthread_mutex_unlock(&fake->lock);
}

void
skr_fake_hold_back(struct skr_fake *fake, bool holds_back)
{
    skr_fake_set(fake, &fake->holds_back, holds_back);
}

void
skr_fake_set_down(struct skr_fake *fake, bool is_down)
{
    skr_fake_set(fake, &fake->is_down, is_down);
}

static bool
get(const bool *flag)
{
    pthread_mutex_lock(&the_fake->lock);
    bool value = *flag;
    pthread_mutex_unlock(&the_fake->lock);
    return value;
}

static enum skr_code
fake_open(struct skr_broker *broker, const struct skr_url *url,
          const struct skr_broker_options *options, struct skr_error *error)
{
    struct fake_connection *connection = (struct fake_connection *)broker;
    bool is_other = strcmp(url->host, "other") == 0;
    snprintf(connection->host, sizeof(connection->host), "%s", url->host);
    connection->is_other = is_other;
    while (is_other && get(&the_fake->other_hangs))
        if (skr_clock_sleep(options->wake_fd, 10))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    bool is_down =
        get(&the_fake->is_down) || (is_other && get(&the_fake->other_is_down));
    return is_down ? skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                              "the fake broker is down")
                   : SKR_OK;
}

static void
fake_close(struct skr_broker *broker)
{
    (void)broker;
}

static enum skr_code
fake_submit(struct skr_broker *broker, const struct skr_message *message,
            const struct skr_route *route, uint64_t tag,
            struct skr_error *error)
{
    struct fake_connection *connection = (struct fake_connection *)broker;
    pthread_mutex_lock(&the_fake->lock);
    if (the_fake->got_count == SKR_FAKE_CAPACITY ||
        connection->last == SKR_FAKE_CAPACITY) {
        pthread_mutex_unlock(&the_fake->lock);
        return skr_fail(error, SKR_REFUSED, SKR_RECONNECT, "fake is full");
    }
    struct skr_fake_message *got = &the_fake->got[the_fake->got_count];
    got->id = message->id;
    snprintf(got->name, sizeof(got->name), "%s", message->name);
    snprintf(got->exchange, sizeof(got->exchange), "%s",
             route == NULL ? "" : route->exchange);
    snprintf(got->sender, sizeof(got->sender), "%s", connection->host);
    snprintf(got->body, sizeof(got->body), "%.*s", (int)message->body_size,
             (const char *)message->body);
    connection->tags[connection->last] = tag;
    connection->messages[connection->last++] = the_fake->got_count++;
    if (connection->is_other)
        the_fake->other_wake_fd = broker->wake_fd;
    else
        the_fake->wake_fd = broker->wake_fd;
    if (++the_fake->unanswered > the_fake->most_unanswered)
        the_fake->most_unanswered = the_fake->unanswered;
    pthread_mutex_unlock(&the_fake->lock);
    return SKR_OK;
}

static size_t
times_seen(const struct skr_fake *fake, size_t index)
{
    size_t count = 0;
    for (size_t i = 0; i <= index; i++)
        count += strcmp(fake->got[i].body, fake->got[index].body) == 0;
    return count;
}

static void
decide(struct fake_connection *connection, struct skr_published *published)
{
    size_t index = connection->messages[connection->first];
    *published = (struct skr_published){
        .tag = connection->tags[connection->first++],
        .result = SKR_CONFIRMED,
    };
    the_fake->unanswered--;
    if (the_fake->result != NULL)
        published->result = the_fake->result(
            &the_fake->got[index], times_seen(the_fake, index), the_fake->user);
    // Once lost, a connection says nothing certain any more.
    if (connection->lost)
        published->result = SKR_UNCERTAIN;
    connection->lost = published->result == SKR_UNCERTAIN;
    if (published->result == SKR_CONFIRMED)
        the_fake->confirmed++;
    else
        skr_fail(&published->reason, SKR_REFUSED, SKR_TRY_AGAIN,
                 "the fake broker refuses %s", the_fake->got[index].body);
}

// Puts messages that have to wait behind the others. False: no other is there.
static bool
has_next(struct fake_connection *connection)
{
    for (size_t left = connection->last - connection->first; left > 0; left--) {
        size_t at = connection->first;
        const char *body = the_fake->got[connection->messages[at]].body;
        if (!the_fake->withholds || strstr(body, "slow") == NULL)
            return true;
        if (connection->last == SKR_FAKE_CAPACITY)
            return false;
        connection->tags[connection->last] = connection->tags[at];
        connection->messages[connection->last++] = connection->messages[at];
        connection->first++;
    }
    return false;
}

static enum skr_code
fake_results(struct skr_broker *broker, struct skr_published *results,
             size_t capacity, size_t *count, uint32_t timeout_ms,
             struct skr_error *error)
{
    struct fake_connection *connection = (struct fake_connection *)broker;
    *count = 0;
    pthread_mutex_lock(&the_fake->lock);
    the_fake->asked++;
    bool is_blocked = connection->is_other && the_fake->other_is_blocked;
    connection->status.is_blocked = is_blocked;
    bool holds_back = the_fake->holds_back || is_blocked ||
                      (connection->is_other && the_fake->other_is_silent);
    while (!holds_back && *count < capacity && has_next(connection))
        decide(connection, &results[(*count)++]);
    pthread_mutex_unlock(&the_fake->lock);
    if (*count > 0)
        return SKR_OK;
    if (connection->lost)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the fake broker went away");
    if (holds_back || connection->first < connection->last)
        skr_clock_sleep(-1, timeout_ms);
    return SKR_TIMEOUT;
}

static struct skr_broker_status
fake_status(struct skr_broker *broker)
{
    return ((struct fake_connection *)broker)->status;
}

const struct skr_broker_ops skr_fake_broker = {
    .scheme = "fake",
    .size = sizeof(struct fake_connection),
    .open = fake_open,
    .close = fake_close,
    .submit = fake_submit,
    .results = fake_results,
    .status = fake_status,
};
