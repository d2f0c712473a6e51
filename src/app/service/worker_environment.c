// SPDX-License-Identifier: MIT
// Starts and stops health, metrics, cleanup, the search for unread queues and
// the notifier as one, for relays and consumers alike.

#include "app/service/worker_environment.h"

#include "app/admin/stats.h"
#include "app/service/cleaner.h"
#include "app/service/notifier.h"
#include "app/service/supervisor.h"
#include "base/error.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { UNREAD_INTERVAL_S = 3600 };

static enum skr_code
check_names(const struct skr_arguments *arguments, struct skr_error *error)
{
    for (size_t i = 0; i < arguments->positional_count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(arguments->positional[i], arguments->positional[k]) == 0)
                return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                "transport %s is named twice; name it once "
                                "(for more consumers of it there is "
                                "--consumers)",
                                arguments->positional[i]);
    return SKR_OK;
}

enum skr_code
skr_environment_init(struct skr_environment *environment,
                     const struct skr_app *app, const struct skr_config *config,
                     size_t each, struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    enum skr_code code = check_names(arguments, error);
    if (code != SKR_OK)
        return code;
    *environment = (struct skr_environment){.app = *app};
    environment->options = (struct skr_metrics_options){
        .app = app,
        .config = config,
        .health = &environment->health,
    };
    code =
        skr_health_init(&environment->health, &app->log, arguments->positional,
                        arguments->positional_count, each, error);
    // A service that has worked goes on, whatever the new file says.
    environment->health.waits =
        skr_arguments_has(arguments, "wait") || skr_reload_has_worked(app);
    return code;
}

struct skr_app
skr_environment_app(struct skr_environment *environment, size_t index)
{
    struct skr_app app = environment->app;
    app.log = skr_health_log(&environment->health, index);
    return app;
}

// At once and then rarely.
static void
search_unread(struct skr_cleaner *cleaner, const void *user)
{
    const struct skr_environment *environment = user;
    const struct skr_arguments *arguments = environment->app.arguments;
    struct skr_report unread = {.columns = skr_unread_columns};
    (void)cleaner;
    skr_unread_find(environment->options.config, arguments->positional,
                    arguments->positional_count, &unread);
    for (size_t i = 0; i < skr_report_rows(&unread) && !unread.is_broken; i++)
        skr_log(
            &environment->app.log, SKR_LOG_WARNING, "config.unread_queue",
            SKR_LOG_TEXT("database",
                         skr_report_find(&unread, i, "database")->text),
            SKR_LOG_TEXT("table", skr_report_find(&unread, i, "table")->text),
            SKR_LOG_TEXT("queue", skr_report_find(&unread, i, "queue")->text),
            SKR_LOG_NUMBER("rows", skr_report_find(&unread, i, "rows")->number),
            SKR_LOG_TEXT("cure",
                         "no transport of this configuration reads them: "
                         "correct the queue_name of the rows, or add a "
                         "transport"));
    skr_report_fini(&unread);
}

enum skr_code
skr_environment_start(struct skr_environment *environment,
                      skr_metrics_read_fn *read, void *user,
                      struct skr_error *error)
{
    environment->options.read = read;
    environment->options.user = user;
    enum skr_code code =
        skr_metrics_start(&environment->options, &environment->metrics, error);
    if (code != SKR_OK)
        return code;
    code = skr_cleaner_start(
        &(struct skr_cleaner_options){
            .interval_s = environment->options.config->cleanup.interval_s,
            .log = environment->app.log,
            .clean = skr_cleaner_clean_configured,
            .user = environment->options.config,
        },
        &environment->cleaner, error);
    if (code != SKR_OK)
        return code;
    environment->notifier = skr_notifier_start(
        &environment->health, skr_reload_has_worked(&environment->app));
    // Without that thread work goes on.
    const struct skr_cleaner_options search = {
        .interval_s = UNREAD_INTERVAL_S,
        .log = environment->app.log,
        .clean = search_unread,
        .user = environment,
    };
    if (skr_cleaner_start(&search, &environment->unread_watcher, NULL) !=
        SKR_OK)
        environment->unread_watcher = NULL;
    return SKR_OK;
}

void
skr_environment_close(struct skr_environment *environment)
{
    skr_metrics_stop(environment->metrics);
    skr_cleaner_stop(environment->unread_watcher);
    skr_cleaner_stop(environment->cleaner);
    environment->metrics = NULL;
    environment->unread_watcher = NULL;
    environment->cleaner = NULL;
}

void
skr_environment_stop(struct skr_environment *environment)
{
    skr_notifier_stop(environment->notifier,
                      skr_reload_is_due(&environment->app));
    if (skr_health_have_worked(&environment->health))
        skr_reload_note_work(&environment->app);
    skr_environment_close(environment);
}

void
skr_environment_fini(struct skr_environment *environment)
{
    skr_health_fini(&environment->health);
}

static void
add_masked(struct skr_text *text, const struct skr_config *config,
           const char *url)
{
    char *masked = skr_config_mask(config, url);
    skr_text_add_string(text, masked == NULL ? "?" : masked);
    free(masked);
}

// A transport in a database is known by its table and queue, any other by its
// DSN.
static void
add_place(struct skr_text *text, const struct skr_config *config,
          const struct skr_config_transport *transport)
{
    if (transport->database == NULL) {
        add_masked(text, config, transport->dsn);
        return;
    }
    add_masked(text, config, transport->database->url);
    skr_text_add_format(text, " %s/%s", transport->place.table,
                        transport->place.queue);
}

// A line without them is better than none.
static const char *
text_of(const struct skr_text *text)
{
    return text->broken || text->bytes == NULL ? "" : text->bytes;
}

void
skr_environment_say_relay(const struct skr_app *app,
                          const struct skr_config *config,
                          const struct skr_config_transport *outbox,
                          const struct skr_routing *routing)
{
    struct skr_text source = {0}, destination = {0};
    add_place(&source, config, outbox);
    for (size_t i = 0; i < routing->target_count; i++) {
        skr_text_add_format(&destination, "%s%s ", i == 0 ? "" : ", ",
                            routing->targets[i]->name);
        add_place(&destination, config, routing->targets[i]);
    }
    skr_log(&app->log, SKR_LOG_INFO, "relay.started",
            SKR_LOG_TEXT("name", outbox->name),
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("file", config->path),
            SKR_LOG_TEXT("source", text_of(&source)),
            SKR_LOG_TEXT("destination", text_of(&destination)));
    skr_text_fini(&source);
    skr_text_fini(&destination);
}

void
skr_environment_say_consumers(const struct skr_app *app,
                              const struct skr_config *config,
                              const struct skr_config_transport *transport,
                              size_t consumers)
{
    struct skr_text source = {0}, destination = {0};
    add_place(&source, config, transport);
    add_masked(&destination, config, config->inbox_database->url);
    skr_log(&app->log, SKR_LOG_INFO, "consumer.started",
            SKR_LOG_TEXT("name", transport->name),
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("file", config->path),
            SKR_LOG_TEXT("source", text_of(&source)),
            SKR_LOG_TEXT("destination", text_of(&destination)),
            SKR_LOG_NUMBER("consumers", consumers));
    skr_text_fini(&source);
    skr_text_fini(&destination);
}
