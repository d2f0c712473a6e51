// SPDX-License-Identifier: MIT
#include "app/service/serving.h"

#include "app/service/notifier.h"
#include "app/service/reloading.h"

enum skr_code
skr_serving_init(struct skr_serving *serving, const struct skr_app *app,
                 const struct skr_config *config, size_t each,
                 struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    *serving = (struct skr_serving){.app = *app};
    serving->options = (struct skr_metrics_options){
        .app = app,
        .config = config,
        .health = &serving->health,
    };
    return skr_health_init(&serving->health, &app->log, arguments->positional,
                           arguments->positional_count, each, error);
}

struct skr_app
skr_serving_app(struct skr_serving *serving, size_t index)
{
    struct skr_app app = serving->app;
    app.log = skr_health_log(&serving->health, index);
    return app;
}

enum skr_code
skr_serving_start(struct skr_serving *serving, skr_metrics_read_fn *read,
                  void *user, struct skr_error *error)
{
    serving->options.read = read;
    serving->options.user = user;
    enum skr_code code =
        skr_metrics_start(&serving->options, &serving->metrics, error);
    if (code == SKR_OK)
        serving->notifier = skr_notifier_start(&serving->health);
    return code;
}

void
skr_serving_stop(struct skr_serving *serving)
{
    skr_notifier_stop(serving->notifier, skr_reloading_is_due(&serving->app));
    skr_metrics_stop(serving->metrics);
    serving->notifier = NULL;
    serving->metrics = NULL;
}

void
skr_serving_fini(struct skr_serving *serving)
{
    skr_health_fini(&serving->health);
}
