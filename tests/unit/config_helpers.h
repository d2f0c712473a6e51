// SPDX-License-Identifier: MIT
// Configurations from texts, for the tests of reading and showing them.

#ifndef SKR_TESTS_CONFIG_HELPERS_H
#define SKR_TESTS_CONFIG_HELPERS_H

#include "app/config/config.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline int
set_environment(void **state)
{
    (void)state;
    unsetenv("SKIRNIR_CONFIG");
    unsetenv("SKR_TEST_ABSENT");
    setenv("DATABASE_URL", "sqlite:///test.db", 1);
    setenv("MESSENGER_AMQP_DSN", "amqp://guest:hidden@localhost:5672/%2f", 1);
    setenv("SKR_TEST_EMPTY", "", 1);
    setenv("SKR_TEST_TEXT", "words", 1);
    setenv("SKR_TEST_NUMBER", "17", 1);
    setenv("SKR_TEST_YES", "yes", 1);
    setenv("SKR_TEST_NESTED", "%env(SKR_TEST_TEXT)%/%kernel.project_dir%", 1);
    setenv("SKR_TEST_LOOP", "%env(resolve:SKR_TEST_LOOP)%", 1);
    setenv("SKR_TEST_BYTES", "\xff\xfe", 1);
    return 0;
}

static inline void
collect(void *user, enum skr_config_severity severity, const char *path,
        int line, const char *text)
{
    assert_string_equal(path, "/etc/skirnir.yaml");
    skr_text_add_format(user, "%s%d: %s\n",
                        severity == SKR_CONFIG_WARNING ? "warning " : "", line,
                        text);
}

static inline enum skr_code
parse(const char *yaml, struct skr_text *reports, struct skr_config **config,
      struct skr_error *error)
{
    skr_text_add_string(reports, "");
    return skr_config_parse(yaml, strlen(yaml), "/etc/skirnir.yaml",
                            (struct skr_config_listener){collect, reports},
                            config, error);
}

// A configuration without mistakes or warnings.
static inline struct skr_config *
parse_clean(const char *yaml)
{
    struct skr_text reports = {0};
    struct skr_config *config = NULL;
    struct skr_error error;
    enum skr_code code = parse(yaml, &reports, &config, &error);
    assert_string_equal(reports.bytes, "");
    assert_int_equal(code, SKR_OK);
    skr_text_fini(&reports);
    return config;
}

static inline char *
show(const struct skr_config *config, enum skr_config_format format)
{
    char *shown = NULL;
    size_t size = 0;
    struct skr_error error;
    FILE *out = open_memstream(&shown, &size);
    assert_int_equal(skr_config_show(config, format, out, &error), SKR_OK);
    fclose(out);
    return shown;
}

static inline void
assert_shown_loads_again(const struct skr_config *config)
{
    char *shown = show(config, SKR_CONFIG_YAML);
    struct skr_text reports = {0};
    struct skr_config *again = NULL;
    struct skr_error error;
    if (parse(shown, &reports, &again, &error) != SKR_OK)
        fail_msg("%s\n%s", reports.bytes, shown);
    char *shown_again = show(again, SKR_CONFIG_YAML);
    assert_string_equal(shown, shown_again);
    skr_text_fini(&reports);
    skr_config_free(again);
    free(shown_again);
    free(shown);
}

#define TEST(name) cmocka_unit_test_setup(test_##name, set_environment)

#endif
