// SPDX-License-Identifier: MIT
// skirnir config check|show|keys

#include "app/config/config.h"
#include "app/app.h"
#include "app/config/keys.h"
#include "app/console/colour.h"
#include "app/parts/handlers.h"
#include "app/parts/transports.h"
#include "base/text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct tally {
    size_t mistakes;
    size_t warnings;
    FILE *out;
};

static void
print_report(void *user, enum skr_config_severity severity, const char *path,
             int line, const char *text)
{
    struct tally *tally = user;
    bool mistake = severity == SKR_CONFIG_MISTAKE;
    if (mistake)
        tally->mistakes++;
    else
        tally->warnings++;
    bool has_colours = skr_colour_is_wanted(fileno(tally->out));
    fprintf(
        tally->out, "%s%s:",
        skr_colour_of(has_colours, mistake ? SKR_LOG_ERROR : SKR_LOG_WARNING),
        path);
    if (line > 0)
        fprintf(tally->out, "%d:", line);
    fprintf(tally->out, " %s%s%s\n", mistake ? "" : "warning: ", text,
            skr_colour_end(has_colours));
}

static const char *
chosen_file(const struct skr_app *app)
{
    if (app->arguments->positional_count > 1)
        return app->arguments->positional[1];
    return skr_arguments_find(app->arguments, "config");
}

static const char *
plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static enum skr_exit
check(struct skr_app *app)
{
    struct tally tally = {.out = stdout};
    struct skr_config *config = NULL;
    struct skr_error error;
    enum skr_code code = skr_config_load(chosen_file(app), print_report, &tally,
                                         &config, &error);
    if (code == SKR_NO_MEMORY)
        return skr_app_fail(app, &error);
    if (code == SKR_OK) {
        skr_app_check_handlers(config, print_report, &tally);
        skr_transport_check_ids(config, print_report, &tally);
        skr_transport_check_relays(config, print_report, &tally);
    }
    if (code != SKR_OK || tally.mistakes > 0) {
        skr_config_free(config);
        printf("%zu mistake%s, %zu warning%s\n", tally.mistakes,
               plural(tally.mistakes), tally.warnings, plural(tally.warnings));
        return SKR_EXIT_CONFIG;
    }
    printf("%s: ok, %zu transport%s, %zu database%s", config->path,
           config->transport_count, plural(config->transport_count),
           config->database_count, plural(config->database_count));
    if (tally.warnings > 0)
        printf(", %zu warning%s", tally.warnings, plural(tally.warnings));
    printf("\n");
    skr_config_free(config);
    return SKR_EXIT_OK;
}

static enum skr_exit
show(struct skr_app *app)
{
    struct tally tally = {.out = stderr};
    struct skr_config *config = NULL;
    struct skr_error error;
    enum skr_code code = skr_config_load(chosen_file(app), print_report, &tally,
                                         &config, &error);
    if (code == SKR_NO_MEMORY)
        return skr_app_fail(app, &error);
    if (code != SKR_OK)
        return SKR_EXIT_CONFIG;
    bool as_json = skr_arguments_has(app->arguments, "json");
    code = skr_config_show(config, as_json ? SKR_CONFIG_JSON : SKR_CONFIG_YAML,
                           stdout, &error);
    skr_config_free(config);
    return code == SKR_OK ? SKR_EXIT_OK : skr_app_fail(app, &error);
}

static void
print_keys(void)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        struct skr_text text = {0};
        skr_config_describe(&keys[i], &text);
        printf("%s\n    %s\n", keys[i].path, text.broken ? "" : text.bytes);
        skr_text_fini(&text);
    }
}

static void
print_keys_as_json(void)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s?, s:b, s:s}", "path", keys[i].path,
                            "type", skr_config_type_text(keys[i].type),
                            "default", keys[i].fallback, "required",
                            keys[i].required, "help", keys[i].help));
    json_dumpf(list, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(list);
}

enum skr_exit
skr_command_config(struct skr_app *app)
{
    const char *action = app->arguments->positional[0];
    if (strcmp(action, "check") == 0)
        return check(app);
    if (strcmp(action, "show") == 0)
        return show(app);
    if (strcmp(action, "keys") != 0)
        return skr_app_usage(app, "'%s' is unknown; check, show or keys",
                             action);
    if (skr_arguments_has(app->arguments, "json"))
        print_keys_as_json();
    else
        print_keys();
    return SKR_EXIT_OK;
}
