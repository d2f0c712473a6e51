// SPDX-License-Identifier: MIT
// Configurations are written by hand: whatever stands in them is reported, and
// what loads can be shown and loads again with the same meaning.
#include "fuzz.h"

#include "app/config/config.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    size_t mistakes;
};

static void
count(void *user, enum skr_config_severity severity, const char *path, int line,
      const char *text)
{
    struct tally *tally = user;
    if (path == NULL || line < 0 || text[0] == '\0')
        abort();
    if (severity == SKR_CONFIG_MISTAKE)
        tally->mistakes++;
}

static struct skr_config *
parse(const char *text, size_t size)
{
    struct tally tally = {0};
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    enum skr_code code = skr_config_parse(
        text, size, "fuzz.yaml", (struct skr_config_listener){count, &tally},
        &config, &error);
    if ((code == SKR_OK) != (tally.mistakes == 0))
        abort();
    if (code != SKR_OK && error.text[0] == '\0')
        abort();
    return config;
}

static char *
show(const struct skr_config *config, enum skr_config_format format,
     size_t *size)
{
    char *shown = NULL;
    struct skr_error error;
    FILE *out = open_memstream(&shown, size);
    if (out == NULL || skr_config_show(config, format, out, &error) != SKR_OK)
        abort();
    fclose(out);
    return shown;
}

static void
check_shown(const char *shown, size_t size)
{
    struct skr_config *again = parse(shown, size);
    if (again == NULL)
        abort();
    size_t again_size = 0;
    char *shown_again = show(again, SKR_CONFIG_YAML, &again_size);
    if (strcmp(shown, shown_again) != 0)
        abort();
    free(shown_again);
    skr_config_free(again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    setenv("DATABASE_URL", "sqlite:///shop.db", 1);
    struct skr_config *config = parse((const char *)bytes, size);
    if (config == NULL)
        return 0;
    size_t shown_size = 0;
    free(show(config, SKR_CONFIG_JSON, &shown_size));
    char *shown = show(config, SKR_CONFIG_YAML, &shown_size);
    // Masking rather hides too much of a strange DSN, which then is none.
    if (strstr(shown, "***") == NULL)
        check_shown(shown, shown_size);
    free(shown);
    skr_config_free(config);
    return 0;
}
