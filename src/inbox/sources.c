// SPDX-License-Identifier: MIT
// Deliveries come from the broker, and from the queue of retries beside it,
// which is a table and has to be asked. It is asked once a second whether it
// has any rows; only then is it opened as a queue, with a connection of its own
// for the leases. Rows become due with a whole second of the server's clock: as
// long as there are any it is asked just then, so that none waits for the next
// look. While there is something in both they take turns.

#include "base/clock.h"
#include "base/error.h"
#include "inbox/inside.h"

enum {
    DEFAULT_SLEEP_MS = 1000,
    LOOK_MS = 1000,
    // Two clocks that are read one after the other are not told apart to the
    // millisecond: a look that is early costs a second, one that is late this.
    MARGIN_MS = 10,
    PAUSE_MS = 5000,  // after trouble
    // A broker that is not waited for at all may go and ask its server.
    GLANCE_MS = 1,
};

// Nothing is known of the queue on a connection that is gone.
static void
drop_connections(struct skr_consumer *consumer)
{
    if (consumer->source == consumer->retries)
        consumer->source = NULL;
    skr_broker_close(consumer->retries);
    consumer->retries = NULL;
    if (consumer->options.failed_database == NULL)
        skr_consumer_drop_database(consumer);
    else
        skr_consumer_drop_failed(consumer);
}

static enum skr_code
receive_from(struct skr_consumer *consumer, struct skr_broker *broker,
             size_t capacity, uint32_t timeout_ms, size_t *count,
             struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = broker->ops->receive(
        broker, consumer->incoming, capacity, count, timeout_ms, error);
    skr_beat_resume();
    return code;
}

int64_t
skr_retries_next_look_ms(int64_t now_ms, bool has_rows, int64_t second_ms)
{
    return now_ms + LOOK_MS + (has_rows ? MARGIN_MS - second_ms : 0);
}

static enum skr_code
look_for_retries(struct skr_consumer *consumer, size_t capacity, size_t *count,
                 struct skr_error *error)
{
    struct skr_db *db = NULL;
    bool has_rows = false;
    int64_t second_ms = 0;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    if (code == SKR_OK)
        code = skr_kept_has_retries(consumer->kept, skr_db_tx(db), &has_rows,
                                    &second_ms, error);
    consumer->retry_again_ms =
        skr_retries_next_look_ms(skr_clock_ms(), has_rows, second_ms);
    if (code == SKR_OK && !has_rows)
        return SKR_TIMEOUT;
    if (code == SKR_OK)
        code = skr_consumer_connect_retries(consumer, error);
    if (code != SKR_OK)
        return code;
    return receive_from(consumer, consumer->retries, capacity, 0, count, error);
}

// SKR_TIMEOUT as well when there is trouble: it is said here.
enum skr_code
skr_consumer_receive_retries(struct skr_consumer *consumer, size_t capacity,
                             size_t *count, struct skr_error *error)
{
    struct skr_error problem = {0};
    if (!skr_consumer_has_retries(consumer))
        return SKR_TIMEOUT;
    enum skr_code code = look_for_retries(consumer, capacity, count, &problem);
    if (code == SKR_OK || code == SKR_TIMEOUT) {
        skr_trouble_end(&consumer->retry_trouble, &consumer->log,
                        "consumer.retry_recovered", consumer->options.name);
        if (code == SKR_OK)
            consumer->source = consumer->retries;
        return code;
    }
    if (code == SKR_STOPPED) {
        if (error != NULL)
            *error = problem;
        return code;
    }
    skr_trouble_report(&consumer->retry_trouble, &consumer->log,
                       "consumer.retry_trouble", consumer->options.name,
                       &problem);
    if (problem.remedy != SKR_TRY_AGAIN)
        drop_connections(consumer);
    consumer->retry_again_ms = skr_clock_ms() + PAUSE_MS;
    return SKR_TIMEOUT;
}

static enum skr_code
receive_from_broker(struct skr_consumer *consumer, size_t capacity,
                    int64_t timeout_ms, size_t *count, struct skr_error *error)
{
    consumer->source = consumer->broker;
    return receive_from(consumer, consumer->broker, capacity,
                        timeout_ms > 0 ? (uint32_t)timeout_ms : 0, count,
                        error);
}

static int64_t
longest_wait_ms(const struct skr_consumer *consumer)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    if (extras->stop_when_empty && !skr_consumer_holds_any(consumer))
        return 0;
    return extras->sleep_ms > 0 ? extras->sleep_ms : DEFAULT_SLEEP_MS;
}

enum skr_code
skr_consumer_receive(struct skr_consumer *consumer, size_t capacity,
                     size_t *count, struct skr_error *error)
{
    int64_t timeout_ms = longest_wait_ms(consumer);
    if (!skr_consumer_has_retries(consumer))
        return receive_from_broker(consumer, capacity, timeout_ms, count,
                                   error);
    bool had_retry =
        consumer->source != NULL && consumer->source == consumer->retries;
    int64_t wait_ms = consumer->retry_again_ms - skr_clock_ms();
    bool has_looked = !had_retry && wait_ms <= 0;
    enum skr_code code = SKR_TIMEOUT;
    if (has_looked) {
        code = skr_consumer_receive_retries(consumer, capacity, count, error);
        wait_ms = consumer->retry_again_ms - skr_clock_ms();
    }
    if (code != SKR_TIMEOUT)
        return code;
    if (had_retry)
        wait_ms = GLANCE_MS;
    code = receive_from_broker(consumer, capacity,
                               timeout_ms < wait_ms ? timeout_ms : wait_ms,
                               count, error);
    // Where the last one came from there may be more.
    if (code == SKR_TIMEOUT && !has_looked &&
        (had_retry || consumer->extras.stop_when_empty))
        code = skr_consumer_receive_retries(consumer, capacity, count, error);
    return code;
}
