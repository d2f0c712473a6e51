// SPDX-License-Identifier: MIT
// skirnir test-inbox-dedup: three identical messages, one effect. Everything
// that it writes has a name or an id of its own, and is removed again.

#include "app/commands/trial_queue.h"
#include "app/console/signals.h"
#include "app/parts/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "inbox/consumer.h"
#include "store/deduplication/deduplication.h"

#include <stdio.h>

enum {
    COPIES = SKR_TRIAL_COPIES,
    MOST_CALLS = 16,
    PATIENCE_MS = 30000,
};

struct trial {
    const struct skr_config *config;
    struct skr_trial_queue queue;
    struct skr_deduplication *deduplication;
    int64_t end_ms;

    // One for each call of the handler: the effect is a row with this id.
    struct skr_id effects[MOST_CALLS];
    size_t calls;
    struct skr_consumer_counts counts;
    bool is_interrupted;
};

static enum skr_code
find_transport(const struct skr_app *app, const struct skr_config *config,
               const struct skr_config_transport **transport,
               struct skr_error *error)
{
    if (app->arguments->positional_count > 0)
        return skr_config_find_transport(config, app->arguments->positional[0],
                                         transport, error);
    for (size_t i = 0; i < config->transport_count; i++)
        if (skr_trial_queue_check(&config->transports[i], error) == SKR_OK) {
            *transport = &config->transports[i];
            return SKR_OK;
        }
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "no transport is configured that is consumed from and "
                    "holds queues, such as queue:// or amqp://");
}

static enum skr_verdict
have_effect(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
{
    struct trial *trial = user;
    struct skr_id *effect = &trial->effects[trial->calls];
    (void)delivery;
    if (trial->calls == MOST_CALLS)
        return SKR_RETRY;
    if (skr_id_new(effect, reason) != SKR_OK)
        return SKR_RETRY;
    trial->calls++;
    return skr_deduplication_admit(trial->deduplication, tx, *effect,
                                   SKR_TRIAL_MESSAGE ".effect",
                                   reason) == SKR_OK
               ? SKR_ACCEPT
               : SKR_RETRY;
}

static bool
is_late(void *user)
{
    const struct trial *trial = user;
    return skr_clock_ms() > trial->end_ms || trial->calls == MOST_CALLS;
}

static enum skr_code
consume(struct trial *trial, struct skr_consumer *consumer,
        struct skr_error *error)
{
    trial->end_ms = skr_clock_ms() + PATIENCE_MS;
    skr_consumer_extend(
        consumer,
        &(struct skr_consumer_extras){
            .names = &trial->config->names,
            .auto_setup = trial->queue.transport.auto_setup,
            .deduplication_auto_setup = trial->config->deduplication_auto_setup,
            .deduplication_before = skr_transport_deduplication(
                                        trial->config, &trial->queue.transport)
                                        .before,
            .limit = COPIES,
            .is_over = is_late,
            .user = trial,
        });
    enum skr_code code = skr_consumer_handle(consumer, SKR_TRIAL_MESSAGE,
                                             have_effect, trial, error);
    if (code == SKR_OK)
        code = skr_consumer_run(consumer, error);
    trial->counts = skr_consumer_counts(consumer);
    trial->is_interrupted = code == SKR_STOPPED;
    return code == SKR_STOPPED ? SKR_OK : code;
}

// Counts the effects and removes them, and the record of the message.
static enum skr_code
count_effects(const struct trial *trial, size_t *effects,
              struct skr_error *error)
{
    struct skr_db *db = NULL;
    *effects = 0;
    enum skr_code code =
        skr_transport_open_database(trial->config->inbox_database, &db, error);
    for (size_t i = 0; i < trial->calls && code == SKR_OK; i++) {
        bool found = false;
        code = skr_deduplication_find(trial->deduplication, skr_db_tx(db),
                                      trial->effects[i], &found, error);
        *effects += found;
    }
    if (code == SKR_OK)
        code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    for (size_t i = 0; i < trial->calls && code == SKR_OK; i++)
        code = skr_deduplication_forget(trial->deduplication, skr_db_tx(db),
                                        trial->effects[i], error);
    if (code == SKR_OK)
        code = skr_deduplication_forget(trial->deduplication, skr_db_tx(db),
                                        trial->queue.id, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    skr_db_close(db);
    return code;
}

static enum skr_code
judge(const struct trial *trial, size_t effects, struct skr_error *error)
{
    const struct skr_consumer_counts *counts = &trial->counts;
    if (trial->is_interrupted)
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "interrupted; what it wrote is removed");
    printf("received: %llu handled, %llu skipped as duplicates\n",
           (unsigned long long)counts->handled,
           (unsigned long long)counts->duplicates);
    printf("effects in the database: %zu\n", effects);
    if (effects != 1 || counts->handled != 1 ||
        counts->duplicates != COPIES - 1)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%d identical messages had %zu effects, and %llu were "
                        "skipped; 1 and %d are right",
                        COPIES, effects, (unsigned long long)counts->duplicates,
                        COPIES - 1);
    printf("ok: one effect; all traces are removed\n");
    return SKR_OK;
}

static void
stop_consumer(void *consumer)
{
    skr_consumer_stop(consumer);
}

// What follows the publishing is done whatever became of it: the first error
// is the one to tell.
static enum skr_code
try_it(struct trial *trial, struct skr_consumer *consumer,
       struct skr_error *error)
{
    struct skr_error later = {0};
    size_t effects = 0;
    skr_signals_on_stop(stop_consumer, consumer);
    enum skr_code code = skr_trial_queue_publish(&trial->queue, error);
    if (code == SKR_OK) {
        printf("published: %d identical messages to %s\n", COPIES,
               trial->queue.name);
        code = consume(trial, consumer, error);
    }
    skr_signals_on_stop(NULL, NULL);
    // A run that was interrupted or failed has given back what it had.
    enum skr_code drained = skr_trial_queue_drain(
        &trial->queue,
        COPIES - trial->counts.handled - trial->counts.duplicates, &later);
    if (code == SKR_OK && drained != SKR_OK)
        *error = later;
    code = code == SKR_OK ? drained : code;
    enum skr_code counted = count_effects(trial, &effects, &later);
    if (code == SKR_OK && counted != SKR_OK)
        *error = later;
    code = code == SKR_OK ? counted : code;
    return code == SKR_OK ? judge(trial, effects, error) : code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    struct trial trial = {.config = config, .queue = {.app = app}};
    const struct skr_config_transport *transport = NULL;
    struct skr_deduplication_place place;
    struct skr_consumer *consumer = NULL;
    if (config->inbox_database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the database '%s' of message_broker.inbox.database "
                        "is not configured",
                        config->inbox_database_name);
    enum skr_code code = find_transport(app, config, &transport, error);
    if (code == SKR_OK)
        code = skr_id_new(&trial.queue.id, error);
    if (code == SKR_OK)
        code = skr_trial_queue_init(&trial.queue, config, transport, error);
    if (code == SKR_OK) {
        place = skr_transport_deduplication(config, &trial.queue.transport);
        code = skr_deduplication_place_table(config, &place,
                                             &trial.deduplication, error);
    }
    if (code == SKR_OK)
        code = skr_app_open_consumer(app, config, &trial.queue.transport,
                                     &consumer, error);
    if (code == SKR_OK)
        code = try_it(&trial, consumer, error);
    skr_consumer_close(consumer);
    skr_deduplication_free(trial.deduplication);
    skr_trial_queue_fini(&trial.queue);
    return code;
}

enum skr_exit
skr_command_test_inbox_dedup(struct skr_app *app)
{
    return skr_app_run_configured(app, run);
}
