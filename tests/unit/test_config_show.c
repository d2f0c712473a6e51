// SPDX-License-Identifier: MIT
// Showing a configuration: it loads again, means the same and hides secrets;
// and the manual says what the table of keys says.
#include "app/config/keys.h"
#include "config_cases.h"
#include "config_helpers.h"

static void
test_what_is_shown_loads_again_and_hides_secrets(void **state)
{
    (void)state;
    struct skr_config *config = parse_clean(full_config);
    assert_shown_loads_again(config);
    skr_config_free(config);

    struct skr_text reports = {0};
    struct skr_error error;
    setenv("DATABASE_URL", "mysql://user:hidden@host/shop?serverVersion=8.0",
           1);
    assert_int_equal(parse(symfony_config, &reports, &config, &error), SKR_OK);
    enum skr_config_format formats[] = {SKR_CONFIG_YAML, SKR_CONFIG_JSON};
    for (size_t i = 0; i < SKR_COUNT_OF(formats); i++) {
        char *shown = show(config, formats[i]);
        assert_null(strstr(shown, "hidden"));
        assert_non_null(strstr(shown, "mysql://user:***@host/shop"));
        assert_non_null(strstr(shown, "amqp://guest:***@localhost:5672/%2f"));
        assert_non_null(strstr(shown, "orders_queue"));
        free(shown);
    }
    assert_null(strstr(reports.bytes, "hidden"));
    skr_text_fini(&reports);
    skr_config_free(config);
}

static void
test_secrets_are_hidden_at_any_depth(void **state)
{
    (void)state;
    static const char *const options[] = {
        "apikey: hidden",
        "API_KEY: hidden",
        "a: {b: [{client_secret: hidden}]}",
        "credentials: {user: hidden, more: [hidden, {x: hidden}]}",
        "token: [hidden]",
        "tls: {private_key: hidden}",
        "a: 'amqp://hidden@h'",
        "a: 'amqp://u:hidden@h'",
        "a: 'x://h?access_key=hidden'",
        // Of librdkafka, and what is said in other words.
        "sasl.password: hidden",
        "sasl.jaas.config: 'x required password=hidden'",
        "sasl.oauthbearer.client.secret: hidden",
        "sasl.oauthbearer.config: 'principal=hidden'",
        "ssl.key.password: hidden",
        "ssl.keystore.password: hidden",
        "ssl.key.pem: hidden",
        "ssl_key_pem: hidden",
        "db_pass: hidden",
        "PWD: hidden",
        "a: {b: \"-----BEGIN RSA PRIVATE KEY-----\\nhidden\\n\"}",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(options); i++) {
        char yaml[256];
        snprintf(yaml, sizeof(yaml),
                 "transports: {other: {dsn: 'other://hidden@h', options: "
                 "{routing_key: seen, passive: seen, %s}}}\n",
                 options[i]);
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error;
        // Of a broker that takes any option there is a warning.
        assert_int_equal(parse(yaml, &reports, &config, &error), SKR_OK);
        assert_null(strstr(reports.bytes, "hidden"));
        skr_text_fini(&reports);
        char *shown = show(config, SKR_CONFIG_YAML);
        if (strstr(shown, "hidden") != NULL || strstr(shown, "***") == NULL)
            fail_msg("%s", shown);
        assert_non_null(strstr(shown, "routing_key: seen"));
        assert_non_null(strstr(shown, "passive: seen"));
        free(shown);
        skr_config_free(config);
    }
}

// Commands are shown with what is not secret in them.
static void
test_secrets_of_commands_are_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *command, *shown;
    } cases[] = {
        {"[work, 'mysql://shop:hidden@db/shop']", "mysql://shop:***@db/shop"},
        {"[work, 'amqp://hidden@broker']", "amqp://***@broker"},
        {"[work, --password=hidden, seen]", "--password=***"},
        {"[work, --password, hidden, seen]", "--password"},
        {"[work, -token, hidden, seen]", "-token"},
        {"[env, DB_PASS=hidden, seen]", "DB_PASS=***"},
        {"[sh, -c, 'API_KEY=hidden work seen']", "API_KEY=*** work seen"},
        {"[sh, -c, 'work --secret hidden seen']", "work --secret *** seen"},
        {"[sh, -c, 'A_TOKEN=\"hid hidden\" seen']", "A_TOKEN=*** seen"},
        {"[sh, -c, 'psql pgsql://u:hidden@h/d seen']",
         "pgsql://u:***@h/d seen"},
        {"[work, '%env(SKR_TEST_TOKEN)%', seen]", "***"},
        {"[work, 'x-%env(SKR_TEST_TOKEN)%-y', seen]", "x-***-y"},
        {"['reset-password', seen, '--bypass=seen']", "reset-password"},
    };
    setenv("SKR_TEST_TOKEN", "hidden", 1);
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char yaml[256];
        snprintf(yaml, sizeof(yaml),
                 "databases: {default: 'sqlite:///a.db'}\n"
                 "transports: {a: 'queue://default'}\n"
                 "handlers: {order.placed: {command: %s}}\n",
                 cases[i].command);
        struct skr_config *config = parse_clean(yaml);
        enum skr_config_format formats[] = {SKR_CONFIG_YAML, SKR_CONFIG_JSON};
        for (size_t j = 0; j < SKR_COUNT_OF(formats); j++) {
            char *shown = show(config, formats[j]);
            if (strstr(shown, "hidden") != NULL ||
                strstr(shown, cases[i].shown) == NULL ||
                (strstr(yaml, "seen") != NULL && strstr(shown, "seen") == NULL))
                fail_msg("%s is shown as %s", cases[i].command, shown);
            free(shown);
        }
        skr_config_free(config);
    }
}

// Texts as they may come from an environment: whatever they hold, what is
// shown means the same.
static void
test_arguments_are_shown_as_they_are_sent(void **state)
{
    (void)state;
    static const struct {
        const char *given, *yaml, *json;
    } cases[] = {
        {"True", "x-a: true\n", "\"x-a\": true"},
        {"FALSE", "x-a: false\n", "\"x-a\": false"},
        {"'True'", "x-a: 'True'\n", "\"x-a\": \"True\""},
        {"007", "x-a: 7\n", "\"x-a\": 7"},
        {"+5", "x-a: 5\n", "\"x-a\": 5"},
        {"'007'", "x-a: '007'\n", "\"x-a\": \"007\""},
        {"yes", "x-a: 'yes'\n", "\"x-a\": \"yes\""},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char yaml[200];
        snprintf(yaml, sizeof(yaml),
                 "message_broker_amqp: {topology: {queues: {q: {arguments: "
                 "{x-a: %s}}}}}\n",
                 cases[i].given);
        struct skr_config *config = parse_clean(yaml);
        char *shown = show(config, SKR_CONFIG_YAML);
        char *as_json = show(config, SKR_CONFIG_JSON);
        if (strstr(shown, cases[i].yaml) == NULL ||
            strstr(as_json, cases[i].json) == NULL)
            fail_msg("%s\n%s\n%s", cases[i].given, shown, as_json);
        assert_shown_loads_again(config);
        free(as_json);
        free(shown);
        skr_config_free(config);
    }
}

static void
test_a_database_that_is_not_there_is_not_shown(void **state)
{
    (void)state;
    struct skr_config *config =
        parse_clean("databases: {shop: 'sqlite:///a'}\n");
    char *shown = show(config, SKR_CONFIG_YAML);
    assert_null(strstr(shown, "default\n"));
    assert_shown_loads_again(config);
    free(shown);
    skr_config_free(config);
}

static void
test_any_text_survives_being_shown(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "true",
        "~",
        "17",
        " a ",
        "a: b",
        "- a",
        "#",
        "'\"\\",
        "%%",
        "%%%",
        "%env(A)%",
        "a\nb",
        "a\nb\n",
        "a\n\n",
        "\n a",
        "a\tb",
        "\xc3\xa4",
        "\x7f\x1b[0m",
        "a\n b",
        "a\n%env(A)%\n",
        "\xe2\x80\xa8",
        "a\n\xe2\x80\xa9\xc2\x85z",
        "a\r\nb",
        " a\n  b\n\n",
        "a \nb ",
        "\xef\xbb\xbf",
        "a#b",
        "y",
        "\xf0\x9f\x98\x80",
        "*a",
        "<<",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        setenv("SKR_TEST_ANY", texts[i], 1);
        struct skr_config *config =
            parse_clean("transports: {a: {dsn: 'queue://default', serializer: "
                        "'%env(SKR_TEST_ANY)%'}}");
        assert_string_equal(config->transports[0].serializer, texts[i]);
        char *shown = show(config, SKR_CONFIG_YAML);
        skr_config_free(config);
        config = parse_clean(shown);
        assert_string_equal(config->transports[0].serializer, texts[i]);
        skr_config_free(config);
        free(shown);
    }
}

// The file beside this one's folder, with each run of white space as one space.
static void
read_words(const char *path, struct skr_text *text)
{
    char whole[512];
    const char *slash = strrchr(__FILE__, '/');
    snprintf(whole, sizeof(whole), "%.*s/%s", (int)(slash - __FILE__), __FILE__,
             path);
    FILE *file = fopen(whole, "re");
    assert_non_null(file);
    char word[512];
    while (fscanf(file, "%511s", word) == 1)
        skr_text_add_format(text, "%s ", word);
    fclose(file);
}

static void
test_the_manual_describes_every_key(void **state)
{
    (void)state;
    struct skr_text manual = {0};
    read_words("../../docs/skirnir.yaml.5.md", &manual);
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        struct skr_text entry = {0};
        skr_text_add_format(&entry, "`%s` : ", keys[i].path);
        skr_config_describe(&keys[i], &entry);
        if (strstr(manual.bytes, entry.bytes) == NULL)
            fail_msg("not in the manual: %s", entry.bytes);
        skr_text_fini(&entry);
    }
    skr_text_fini(&manual);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_shown_loads_again_and_hides_secrets),
        TEST(secrets_are_hidden_at_any_depth),
        TEST(secrets_of_commands_are_hidden),
        TEST(arguments_are_shown_as_they_are_sent),
        TEST(a_database_that_is_not_there_is_not_shown),
        TEST(any_text_survives_being_shown),
        TEST(the_manual_describes_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
