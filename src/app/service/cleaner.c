// SPDX-License-Identifier: MIT
// Cleanup of outboxes, failed tables and deduplication tables: once for the
// commands, periodically in a thread beside workers.

#include "app/service/cleaner.h"

#include "app/admin/failed.h"
#include "app/console/progress.h"
#include "app/wiring/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "store/deduplication/deduplication.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PAUSE_FACTOR = 4, KAFKA_OUTBOX_KEPT_S = 3600 };

bool
skr_cleaner_has_table(const struct skr_config *config,
                      const struct skr_config_transport *transport)
{
    return transport->kind != SKR_TRANSPORT_OTHER &&
           !skr_transport_is_failure(config, transport);
}

// One process at a time cleans a database, as a second would find nothing to
// do: SKR_CONFLICT. A process that only counts is not in the way.
static enum skr_code
lock_database(struct skr_db *db, const struct skr_cleaning *cleaning,
              struct skr_error *error)
{
    if (cleaning->dry_run)
        return SKR_OK;
    enum skr_code code =
        skr_db_lock(db, "cleanup", SKR_LOCK_ALONE, -1, 0, error);
    // Behind a pooler there are no locks. Two processes that clean at once do
    // no harm.
    if (code == SKR_REFUSED)
        return SKR_OK;
    if (code == SKR_OK && !db->holds_lock)
        code = skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "someone else is cleaning this database");
    return code;
}

static enum skr_code
take_turn(const struct skr_config_database *database,
          const struct skr_cleaning *cleaning, struct skr_db **db,
          struct skr_error *error)
{
    enum skr_code code = skr_transport_open_database(database, db, error);
    if (code == SKR_OK)
        code = lock_database(*db, cleaning, error);
    return code;
}

static enum skr_code
clean_kafka_outbox(const struct skr_config *config,
                   const struct skr_config_transport *transport,
                   struct skr_cleaning cleaning, struct skr_db *db,
                   uint64_t *removed, struct skr_error *error)
{
    struct skr_store *table = NULL;
    enum skr_code code = skr_transport_table(config, transport, &table, error);
    cleaning.age_s = KAFKA_OUTBOX_KEPT_S;
    if (code == SKR_OK)
        code = skr_kafka_outbox_clean(table, &cleaning, db, removed, error);
    skr_store_free(table);
    return code;
}

enum skr_code
skr_cleaner_clean_transport(const struct skr_config *config,
                            const struct skr_config_transport *transport,
                            const struct skr_cleaning *cleaning,
                            uint64_t *removed, struct skr_error *error)
{
    struct skr_db *db = NULL;
    enum skr_code code = take_turn(transport->database, cleaning, &db, error);
    if (code == SKR_OK && transport->kafka_outbox != NULL)
        code = clean_kafka_outbox(config, transport, *cleaning, db, removed,
                                  error);
    else if (code == SKR_OK)
        code = skr_messenger_clean(&transport->place, cleaning, db, removed,
                                   error);
    skr_db_close(db);
    if (code != SKR_OK)
        skr_error_prefix(error, "transport %s", transport->name);
    return code;
}

enum skr_code
skr_cleaner_clean_deduplication(const struct skr_config *config,
                                const struct skr_deduplication_place *place,
                                const struct skr_cleaning *cleaning,
                                uint64_t *removed, struct skr_error *error)
{
    struct skr_db *db = NULL;
    struct skr_deduplication *table = NULL;
    enum skr_code code =
        take_turn(config->inbox_database, cleaning, &db, error);
    if (code == SKR_OK)
        code = skr_deduplication_place_table(config, place, &table, error);
    if (code == SKR_OK)
        code = skr_deduplication_check(table, db, error);
    if (code == SKR_OK)
        code = skr_deduplication_clean(table, cleaning, db, removed, error);
    skr_db_close(db);
    skr_deduplication_free(table);
    return code;
}

static struct skr_cleaning
pace(uint32_t age_s, uint32_t pause_factor,
     bool (*each_step)(void *user, uint64_t rows), void *user)
{
    return (struct skr_cleaning){
        .age_s = age_s,
        .batch_size = SKR_CLEANER_BATCH,
        .pause_factor = pause_factor,
        .each_step = each_step,
        .user = user,
    };
}

static bool
show_step(void *user, uint64_t rows)
{
    return skr_progress_step(user, rows);
}

struct skr_cleaning
skr_cleaner_shown_pace(struct skr_progress *progress, uint32_t age_s)
{
    return pace(age_s, 1, show_step, progress);
}

struct skr_cleaner {
    struct skr_cleaner_options options;
    int stop_fd;
    pthread_t thread;
};

static bool
is_stopped(const struct skr_cleaner *cleaner)
{
    return skr_clock_sleep(cleaner->stop_fd, 0);
}

static bool
may_go_on(void *user, uint64_t rows)
{
    (void)rows;
    return !is_stopped(user);
}

static void
say(const struct skr_cleaner *cleaner, const char *name, enum skr_code code,
    uint64_t removed, const struct skr_error *error)
{
    const struct skr_log *log = &cleaner->options.log;
    // It is another's turn, or there is no such table.
    if (code == SKR_CONFLICT || code == SKR_MISSING)
        return;
    if (code != SKR_OK)
        skr_log(log, SKR_LOG_WARNING, "cleaner.trouble",
                SKR_LOG_TEXT("name", name), SKR_LOG_TEXT("error", error->text));
    if (removed > 0)
        skr_log(log, SKR_LOG_INFO, "cleaner.removed",
                SKR_LOG_TEXT("name", name), SKR_LOG_NUMBER("rows", removed));
}

// In each database in which messages may have failed.
static void
clean_failed(struct skr_cleaner *cleaner, const struct skr_config *config)
{
    struct skr_failed_session session;
    struct skr_error error = {0};
    const struct skr_cleaning cleaning =
        pace(config->cleanup.failed_days * SKR_CLEANER_DAY_S, PAUSE_FACTOR,
             may_go_on, cleaner);
    if (cleaning.age_s == 0 || is_stopped(cleaner))
        return;
    enum skr_code code = skr_failed_open(&session, config, NULL, NULL, &error);
    if (code != SKR_OK) {
        say(cleaner, "failed", code, 0, &error);
        return;
    }
    for (size_t i = 0; i < session.source_count && !is_stopped(cleaner); i++) {
        struct skr_db *db = session.sources[i].db;
        uint64_t removed = 0;
        code = lock_database(db, &cleaning, &error);
        if (code == SKR_OK)
            code = skr_messenger_clean_failed(&session.failed.place, &cleaning,
                                              db, &removed, &error);
        say(cleaner, "failed", code, removed, &error);
    }
    skr_failed_close(&session);
}

void
skr_cleaner_clean_configured(struct skr_cleaner *cleaner, const void *user)
{
    const struct skr_config *config = user;
    struct skr_cleaning cleaning =
        pace(config->cleanup.outbox_days * SKR_CLEANER_DAY_S, PAUSE_FACTOR,
             may_go_on, cleaner);
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        uint64_t removed = 0;
        struct skr_error error = {0};
        if (!skr_cleaner_has_table(config, transport) || is_stopped(cleaner))
            continue;
        enum skr_code code = skr_cleaner_clean_transport(
            config, transport, &cleaning, &removed, &error);
        say(cleaner, transport->name, code, removed, &error);
    }
    struct skr_deduplication_place place;
    size_t at = 0;
    cleaning.age_s = config->cleanup.deduplication_days * SKR_CLEANER_DAY_S;
    while (config->inbox_database != NULL && !is_stopped(cleaner) &&
           skr_deduplication_place_next(config, &at, &place)) {
        uint64_t removed = 0;
        struct skr_error error = {0};
        enum skr_code code = skr_cleaner_clean_deduplication(
            config, &place, &cleaning, &removed, &error);
        bool is_shared = at == 1;
        say(cleaner, is_shared ? "deduplication" : place.table, code, removed,
            &error);
    }
    clean_failed(cleaner, config);
}

static void *
run(void *user)
{
    struct skr_cleaner *cleaner = user;
    const struct skr_cleaner_options *options = &cleaner->options;
    do
        options->clean(cleaner, options->user);
    while (!skr_clock_sleep(cleaner->stop_fd, options->interval_s * 1000LL));
    return NULL;
}

enum skr_code
skr_cleaner_start(const struct skr_cleaner_options *options,
                  struct skr_cleaner **cleaner, struct skr_error *error)
{
    *cleaner = NULL;
    if (options->interval_s == 0)
        return SKR_OK;
    struct skr_cleaner *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = *options;
    made->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (made->stop_fd < 0 || skr_thread_start(&made->thread, run, made) != 0) {
        if (made->stop_fd >= 0)
            close(made->stop_fd);
        free(made);
        return skr_fail(error, SKR_UNAVAILABLE, SKR_GIVE_UP,
                        "no thread for cleaning can be started: %s",
                        strerror(errno));
    }
    *cleaner = made;
    return SKR_OK;
}

void
skr_cleaner_stop(struct skr_cleaner *cleaner)
{
    if (cleaner == NULL)
        return;
    eventfd_write(cleaner->stop_fd, 1);
    pthread_join(cleaner->thread, NULL);
    close(cleaner->stop_fd);
    free(cleaner);
}
