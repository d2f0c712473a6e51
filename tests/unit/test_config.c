// SPDX-License-Identifier: MIT
// Reading a configuration: every key, every mistake.
#include "app/config/yaml_tree.h"
#include "app/drivers.h"
#include "broker/broker.h"
#include "config_cases.h"
#include "config_helpers.h"
#include "db/db.h"

#include <time.h>

static bool
holds_a_mistake(const char *reports)
{
    for (const char *line = reports; *line != '\0';
         line = strchr(line, '\n') + 1)
        if (!skr_text_starts_with(line, "warning "))
            return true;
    return false;
}

static void
test_every_mistake_is_reported_with_line_and_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(config_cases); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error = {0};
        enum skr_code code =
            parse(config_cases[i].yaml, &reports, &config, &error);
        assert_string_equal(reports.bytes, config_cases[i].reports);
        bool has_mistake = holds_a_mistake(reports.bytes);
        assert_int_equal(code != SKR_OK, has_mistake);
        assert_int_equal(error.text[0] != '\0', has_mistake);
        assert_null(strstr(error.text, "hidden"));
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

// Checking a configuration asks each driver that it names.
static void
test_every_driver_has_what_its_callers_do_not_ask_for(void **state)
{
    static const char *const databases[] = {"sqlite", "mysql", "pgsql"};
    const struct skr_scheme *scheme;
    (void)state;
    for (size_t at = 0; (scheme = skr_driver_next_scheme(&at)) != NULL;) {
        const struct skr_broker_ops *ops = skr_driver_find_broker(scheme->name);
        if (ops == NULL)
            continue;
        assert_true(ops->scheme != NULL && ops->size > 0);
        assert_true(ops->check_url != NULL && ops->exposure != NULL);
        assert_non_null(ops->status);
        assert_true(ops->open != NULL && ops->close != NULL);
        assert_true(ops->submit != NULL && ops->results != NULL);
        assert_true(ops->receive != NULL && ops->settle != NULL);
        assert_int_equal(ops->has_topics, scheme->has_topics);
        assert_int_equal(ops->subscription != NULL, scheme->has_topics);
        assert_int_equal(ops->topology != NULL, scheme->has_exchanges);
    }
    for (size_t i = 0; i < SKR_COUNT_OF(databases); i++) {
        const struct skr_db_ops *ops = skr_driver_find_database(databases[i]);
        if (ops == NULL)
            continue;
        assert_true(ops->scheme != NULL && ops->size > 0);
        assert_true(ops->tx != NULL && ops->locks != NULL);
        assert_true(ops->check_url != NULL && ops->exposure != NULL);
        assert_non_null(ops->wait);
        assert_true(ops->open != NULL && ops->close != NULL);
        assert_true(ops->begin != NULL && ops->commit != NULL);
        assert_true(ops->rollback != NULL && ops->follow != NULL);
        assert_true(ops->plan_by_index != NULL && ops->advise != NULL);
    }
}

static void
test_every_key_reaches_its_place(void **state)
{
    (void)state;
    struct skr_config *config = parse_clean(full_config);
    assert_int_equal(config->database_count, 2);
    assert_int_equal(config->transport_count, 3);
    const struct skr_config_transport *outbox = &config->transports[0];
    assert_string_equal(outbox->name, "outbox");
    assert_int_equal(outbox->source.line, 4);
    assert_int_equal(outbox->kind, SKR_TRANSPORT_OUTBOX);
    assert_ptr_equal(outbox->database, &config->databases[0]);
    // The DSN wins over the options.
    assert_string_equal(outbox->place.table, "messenger_outbox");
    assert_string_equal(outbox->place.queue, "o");
    assert_int_equal(outbox->place.redeliver_timeout_s, 7);
    assert_false(outbox->auto_setup);
    assert_string_equal(outbox->serializer,
                        "messenger.transport.symfony_serializer");
    assert_string_equal(outbox->stamp_namespace, "");
    assert_string_equal(outbox->relay_to, "orders");
    assert_int_equal(outbox->retry.max_retries, 5);
    assert_int_equal(outbox->retry.delay_ms, 20);
    assert_true(outbox->retry.multiplier > 1.49 &&
                outbox->retry.multiplier < 1.51);
    assert_int_equal(outbox->retry.max_delay_ms, 90);
    assert_true(outbox->retry.jitter == 0.25);
    assert_int_equal(outbox->relay.in_flight, 2000);
    assert_int_equal(outbox->relay.in_flight_bytes, 4 << 20);
    assert_int_equal(outbox->batch, 50);
    assert_string_equal(config->failure_transport, "failed");
    assert_string_equal(config->deduplication_table, "seen");
    assert_true(config->deduplication_auto_setup);
    assert_ptr_equal(config->inbox_database, &config->databases[1]);
    assert_int_equal(config->names.count, 1);
    assert_string_equal(config->names.pairs[0].class_name, "App\\OrderPlaced");
    assert_int_equal(config->handler_count, 4);
    assert_int_equal(config->handlers[0].sql.count, 1);
    assert_int_equal(config->handlers[1].line, 24);
    assert_int_equal(config->handlers[1].sql.count, 2);
    assert_string_equal(config->handlers[1].sql.items[0],
                        "UPDATE a\n  SET b = '100%'\n");
    assert_true(config->handlers[1].transaction);
    assert_string_equal(config->handlers[2].library, "/etc/a.so");
    assert_string_equal(config->handlers[2].function, "send");
    assert_false(config->handlers[2].transaction);
    assert_int_equal(config->handlers[2].timeout_s, 30);
    assert_int_equal(config->handlers[3].command.count, 3);
    assert_string_equal(config->handlers[3].command.items[1], "a b.php");
    assert_string_equal(config->handlers[3].command.items[2], "");
    assert_int_equal(config->handlers[3].timeout_s, 5);
    assert_false(config->handlers[3].transaction);
    skr_config_free(config);
}

static void
test_defaults_depend_on_the_scheme(void **state)
{
    (void)state;
    struct skr_config *config = parse_clean("transports:\n"
                                            "  outbox: 'doctrine://default'\n"
                                            "  queue: 'queue://default'\n"
                                            "  amqp: 'amqp://localhost'\n");
    const struct skr_config_transport *outbox = &config->transports[0];
    assert_string_equal(outbox->place.table, "messenger_messages");
    assert_string_equal(outbox->place.queue, "default");
    assert_int_equal(outbox->place.redeliver_timeout_s, 3600);
    assert_true(outbox->auto_setup);
    assert_null(outbox->serializer);
    assert_null(outbox->stamp_namespace);
    assert_string_equal(outbox->relay_to, "amqp");
    assert_int_equal(outbox->retry.max_retries, 3);
    assert_int_equal(outbox->relay.in_flight_bytes, 8 << 20);
    assert_string_equal(outbox->database->url, "sqlite:////etc/test.db");
    assert_int_equal(config->transports[1].place.redeliver_timeout_s, 60);
    assert_null(config->transports[1].relay_to);
    assert_int_equal(config->transports[2].kind, SKR_TRANSPORT_OTHER);
    assert_null(config->transports[2].database);
    assert_string_equal(config->inbox_database->name, "default");
    assert_string_equal(config->deduplication_table,
                        "message_broker_deduplication");
    skr_config_free(config);
}

static void
test_a_symfony_project_loads_as_it_is(void **state)
{
    (void)state;
    struct skr_text reports = {0};
    struct skr_config *config = NULL;
    struct skr_error error;
    enum skr_code code = parse(symfony_config, &reports, &config, &error);
    assert_string_equal(
        reports.bytes,
        "warning 4: framework: ignored, since it means nothing here: "
        "messenger.default_middleware, messenger.buses\n"
        "warning 33: doctrine: ignored: it means nothing here\n"
        "warning 47: services: ignored: it means nothing here\n"
        "warning 26: framework.messenger.transports.amqp_orders.options: the "
        "option 'password' means nothing to amqp://\n");
    assert_int_equal(code, SKR_OK);
    assert_string_equal(config->failure_transport, "failed");
    assert_string_equal(config->transports[0].relay_to, "amqp");
    assert_string_equal(config->transports[1].scheme, "amqp");
    assert_false(config->transports[1].auto_setup);
    assert_non_null(skr_yaml_find(
        skr_yaml_find(config->transports[2].node, "options")->value, "queue"));
    assert_string_equal(config->deduplication_table, "seen");
    assert_int_equal(config->message_type_count, 0);
    assert_non_null(config->amqp);
    assert_shown_loads_again(config);
    skr_text_fini(&reports);
    skr_config_free(config);
}

static void
test_a_transport_that_is_not_configured_is_named(void **state)
{
    (void)state;
    const struct skr_config_transport *transport = NULL;
    struct skr_error error;
    struct skr_config *config = parse_clean(
        "transports: {amqp: 'amqp://h', queue: 'queue://default'}\n");
    assert_int_equal(
        skr_config_find_transport(config, "queue", &transport, &error), SKR_OK);
    assert_string_equal(transport->name, "queue");
    assert_int_equal(
        skr_config_find_transport(config, "none", &transport, &error),
        SKR_INVALID);
    assert_string_equal(error.text,
                        "there is no transport 'none' in "
                        "/etc/skirnir.yaml; configured: amqp, queue");
    skr_config_free(config);
}

static void
test_each_way_to_claim_is_known_and_locked_is_read_as_shared(void **state)
{
    (void)state;
    static const struct {
        const char *written;
        enum skr_relay_claim read;
        const char *warning;
    } cases[] = {
        {"exclusive", SKR_RELAY_EXCLUSIVE, ""},
        {"shared", SKR_RELAY_SHARED, ""},
        {"lease", SKR_RELAY_LEASE, ""},
        {"locked", SKR_RELAY_SHARED,
         "warning 4: transports.outbox.claim: 'locked' is read as 'shared': "
         "write that\n"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error = {0};
        char yaml[256];
        snprintf(yaml, sizeof(yaml), OUTBOX "    claim: %s\n",
                 cases[i].written);
        assert_int_equal(parse(yaml, &reports, &config, &error), SKR_OK);
        assert_string_equal(reports.bytes == NULL ? "" : reports.bytes,
                            cases[i].warning);
        assert_int_equal(config->transports[0].relay.claim, cases[i].read);
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

static void
test_a_database_without_a_driver_is_a_warning(void **state)
{
    (void)state;
    static const char *const schemes[] = {"sqlite", "mysql",      "mariadb",
                                          "pgsql",  "postgresql", "postgres"};
    for (size_t i = 0; i < SKR_COUNT_OF(schemes); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error;
        char yaml[128];
        bool is_file = strcmp(schemes[i], "sqlite") == 0;
        snprintf(yaml, sizeof(yaml), "databases: {default: '%s://%s/d'}\n",
                 schemes[i], is_file ? "" : "u:p@h");
        assert_int_equal(parse(yaml, &reports, &config, &error), SKR_OK);
        bool has_driver = skr_driver_find_database(schemes[i]) != NULL;
        assert_int_equal(skr_text_starts_with(reports.bytes,
                                              "warning 1: databases.default: "
                                              "this build has no driver for "),
                         !has_driver);
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

static void
test_a_driver_that_is_missing_names_its_package(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"amqps", "librabbitmq-dev"},  {"kafka", "librdkafka-dev"},
        {"mariadb", "libmariadb-dev"}, {"postgresql", "libpq-dev"},
        {"sqlite", "libsqlite3-dev"},  {"redis", "it has: "},
    };
    char text[SKR_DRIVER_MISSING_SIZE];
    for (size_t i = 0; i < SKR_COUNT_OF(pairs); i++) {
        skr_driver_missing(pairs[i][0], text);
        assert_non_null(strstr(text, pairs[i][0]));
        assert_non_null(strstr(text, pairs[i][1]));
    }
}

// A Symfony project with MESSENGER_AMQP_DSN=queue://... and nothing else
// changed.
static void
test_a_queue_is_named_in_the_way_of_amqp_too(void **state)
{
    (void)state;
    setenv("MESSENGER_AMQP_DSN", "queue://default", 1);
    struct skr_text reports = {0};
    struct skr_config *config =
        parse_clean("transports:\n"
                    "  orders:\n"
                    "    dsn: '%env(MESSENGER_AMQP_DSN)%'\n"
                    "    options:\n"
                    "      auto_setup: false\n"
                    "      queue: {name: orders_queue}\n");
    assert_int_equal(config->transports[0].kind, SKR_TRANSPORT_QUEUE);
    assert_string_equal(config->transports[0].place.queue, "orders_queue");
    assert_shown_loads_again(config);
    skr_text_fini(&reports);
    skr_config_free(config);
}

static void
test_a_dsn_may_say_the_time_zone(void **state)
{
    (void)state;
    struct skr_config *config = parse_clean(
        "databases: {default: 'sqlite:///a'}\n"
        "transports: {orders: 'queue://default?time_zone=%2B02:00'}\n");
    assert_string_equal(config->transports[0].name, "orders");
    assert_string_equal(config->transports[0].place.time_zone, "+02:00");
    skr_config_free(config);
}

static void
test_paths_begin_in_the_folder_of_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *path, *project;
    } cases[] = {
        {"/srv/shop/skirnir.yaml", "/srv/shop"},
        {"/srv/shop/config/skirnir.yaml", "/srv/shop"},
        {"/srv/shop/config/packages/messenger.yaml", "/srv/shop"},
        {"/srv/shop/config/packages/prod/messenger.yaml", "/srv/shop"},
        {"/srv/shop/packages/messenger.yaml", "/srv/shop/packages"},
        {"/srv/shop/myconfig/packages/messenger.yaml",
         "/srv/shop/myconfig/packages"},
        {"/config/packages/messenger.yaml", "/"},
    };
    static const char yaml[] =
        "databases: {a: 'sqlite:///x.db', "
        "b: 'mysql://u@h/b?ssl_ca=ca.pem&ssl_cert=%2Fc&ssl_key=/k'}\n"
        "transports:\n"
        "  c: {dsn: 'queue://a', serializer: '%kernel.project_dir%'}\n"
        "  d: {dsn: 'amqps://h/%2f?cacert=../ca.pem', options: {cert: c, "
        "key: k}}\n";
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_config *config = NULL;
        char folder[64], want[400];
        char *url = NULL;
        int size = (int)(strrchr(cases[i].path, '/') - cases[i].path);
        snprintf(folder, sizeof(folder), "%.*s", size, cases[i].path);
        struct skr_error error = {0};
        if (skr_config_parse(yaml, strlen(yaml), cases[i].path,
                             (struct skr_config_listener){0}, &config,
                             &error) != SKR_OK)
            fail_msg("%s", error.text);
        assert_string_equal(config->transports[0].serializer, cases[i].project);
        snprintf(want, sizeof(want), "sqlite:///%s/x.db", folder);
        assert_string_equal(config->databases[0].url, want);
        snprintf(want, sizeof(want),
                 "mysql://u@h/b?ssl_ca=%s/ca.pem&ssl_cert=%%2Fc&ssl_key=/k",
                 folder);
        assert_string_equal(config->databases[1].url, want);
        assert_int_equal(
            skr_config_broker_url(&config->transports[1], &url, NULL), SKR_OK);
        snprintf(want, sizeof(want),
                 "amqps://h/%%2f?cacert=%s/../ca.pem&defaults=symfony&cert=%s/c"
                 "&key=%s/k",
                 folder, folder, folder);
        assert_string_equal(url, want);
        free(url);
        skr_config_free(config);
    }
}

// In the DSN and among the options; a password is none.
static void
test_files_of_kafka_lie_beside_the_configuration(void **state)
{
    (void)state;
    static const char yaml[] =
        "transports:\n"
        "  a: 'kafka://h/t?ssl.ca.location=a&ssl.certificate.location=b&"
        "ssl.crl.location=c&ssl.key.location=d&ssl.keystore.location=e&"
        "sasl.kerberos.keytab=f&ssl.key.password=g'\n"
        "  b: {dsn: 'kafka://h/t', options: {cacert: a, cert: b, key: c, "
        "sasl.kerberos.keytab: 'FILE:/d', ssl.ca.location: probe, "
        "ssl.key.location: /e}}\n";
    static const char *const want[] = {
        "kafka://h/t?ssl.ca.location=/srv/a&ssl.certificate.location=/srv/b&"
        "ssl.crl.location=/srv/c&ssl.key.location=/srv/d&"
        "ssl.keystore.location=/srv/e&sasl.kerberos.keytab=/srv/f&"
        "ssl.key.password=g",
        "kafka://h/t?cacert=/srv/a&cert=/srv/b&key=/srv/c&"
        "sasl.kerberos.keytab=FILE%3A%2Fd&ssl.ca.location=probe&"
        "ssl.key.location=%2Fe",
    };
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    if (skr_config_parse(yaml, strlen(yaml), "/srv/skirnir.yaml",
                         (struct skr_config_listener){0}, &config,
                         &error) != SKR_OK)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < SKR_COUNT_OF(want); i++) {
        char *url = NULL;
        assert_int_equal(
            skr_config_broker_url(&config->transports[i], &url, NULL), SKR_OK);
        assert_string_equal(url, want[i]);
        free(url);
    }
    skr_config_free(config);
}

static void
test_the_environment_is_filled_in_anywhere_in_a_value(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *want;
    } cases[] = {
        {"%env(SKR_TEST_TEXT)%", "words"},
        {"a-%env(string:SKR_TEST_TEXT)%-%env(int:SKR_TEST_NUMBER)%-b",
         "a-words-17-b"},
        {"%env(bool:SKR_TEST_YES)%", "true"},
        {"%env(SKR_TEST_NESTED)%", "%env(SKR_TEST_TEXT)%/%kernel.project_dir%"},
        {"%env(resolve:SKR_TEST_NESTED)%", "words//etc"},
        {"%kernel.project_dir%/var", "/etc/var"},
        {"100%% %d %", "100% %d %"},
        {"%%env(SKR_TEST_TEXT)%%", "%env(SKR_TEST_TEXT)%"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char yaml[256];
        snprintf(yaml, sizeof(yaml),
                 "transports: {a: {dsn: 'queue://default', serializer: '%s'}}",
                 cases[i].value);
        struct skr_config *config = parse_clean(yaml);
        assert_string_equal(config->transports[0].serializer, cases[i].want);
        assert_shown_loads_again(config);
        skr_config_free(config);
    }
}

static void
test_sizes_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {{"1", 1},          {"65536", 65536},   {"64 KiB", 65536},
                 {"2MiB", 2 << 20}, {"1 GiB", 1 << 30}, {"3 kB", 3000},
                 {"5 MB", 5000000}, {"7 B", 7}};
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char yaml[128];
        snprintf(yaml, sizeof(yaml),
                 "transports: {a: {dsn: 'queue://default', in_flight_bytes: "
                 "%s}}",
                 cases[i].text);
        struct skr_config *config = parse_clean(yaml);
        assert_int_equal(config->transports[0].relay.in_flight_bytes,
                         cases[i].want);
        skr_config_free(config);
    }
}

static void
test_anchors_and_merge_keys_share_settings(void **state)
{
    (void)state;
    struct skr_config *config =
        parse_clean("x-retry: &retry {max_retries: 9, delay: 5}\n"
                    "transports:\n"
                    "  a:\n"
                    "    dsn: queue://default\n"
                    "    retry_strategy: {<<: *retry, delay: 6}\n"
                    "  b: {dsn: 'queue://default', retry_strategy: *retry}\n");
    assert_int_equal(config->transports[0].retry.max_retries, 9);
    assert_int_equal(config->transports[0].retry.delay_ms, 6);
    assert_int_equal(config->transports[1].retry.delay_ms, 5);
    skr_config_free(config);
}

// The words are those of the module that knows; here it counts that they are
// asked for, with key and line.
static void
test_names_and_statements_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *start;
    } cases[] = {
        {"handlers:\n  order.#: {sql: 'DELETE FROM a'}\n",
         "2: handlers.order.#: '#' stands for itself"},
        {"handlers:\n  ' a': {sql: 'DELETE FROM a'}\n", "2: handlers. a: "},
        {"message_broker: {inbox: {message_types: {'o*': A}}}\n",
         "1: message_broker.inbox.message_types.o*: * stands for no name"},
        {"message_broker: {inbox: {message_types: {a.b: c.d, c.d: E}}}\n",
         "1: message_broker.inbox.message_types: 'c.d' is the type of 'a.b'"},
        {"message_broker: {inbox: {message_types: {order: 'A*'}}}\n",
         "1: message_broker.inbox.message_types.order: * stands for no name"},
        {"handlers:\n  a.b:\n    sql: DROP TABLE a\n", "3: handlers.a.b.sql: "},
        {"handlers:\n  a.b:\n    sql:\n    - DELETE FROM a\n    - COMMIT\n",
         "5: handlers.a.b.sql[1]: "},
        {"handlers: {a.b: {sql: 'SELECT :nothing'}}\n",
         "1: handlers.a.b.sql: "},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error;
        assert_int_equal(parse(cases[i].yaml, &reports, &config, &error),
                         SKR_INVALID);
        if (!skr_text_starts_with(reports.bytes, cases[i].start))
            fail_msg("%s", reports.bytes);
        skr_text_fini(&reports);
    }
}

static void
test_aliases_that_multiply_are_refused(void **state)
{
    (void)state;
    struct skr_text yaml = {0}, reports = {0};
    struct skr_config *config = NULL;
    struct skr_error error;
    skr_text_add_string(&yaml, "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
    for (int i = 1; i < 10; i++)
        skr_text_add_format(&yaml, "x-%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i,
                            i, i - 1, i - 1, i - 1, i - 1);
    assert_int_equal(parse(yaml.bytes, &reports, &config, &error),
                     SKR_MALFORMED);
    assert_non_null(strstr(error.text, "too many values"));
    skr_text_fini(&yaml);
    skr_text_fini(&reports);
}

// Seconds and minutes, where the depth was not bounded first.
static void
test_deep_nesting_is_refused_at_once(void **state)
{
    (void)state;
    static const char *const units[] = {"[", "{a: ", "- ", "? ", "[\n"};
    for (size_t i = 0; i < SKR_COUNT_OF(units); i++) {
        struct skr_text yaml = {0}, reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error;
        while (yaml.size < 1000000)
            skr_text_add_string(&yaml, units[i]);
        clock_t start = clock();
        assert_int_equal(parse(yaml.bytes, &reports, &config, &error),
                         SKR_MALFORMED);
        assert_true(clock() - start < CLOCKS_PER_SEC);
        assert_non_null(strstr(error.text, "nested too deeply"));
        skr_text_fini(&yaml);
        skr_text_fini(&reports);
    }
}

static void
test_nesting_is_allowed_to_its_bound(void **state)
{
    (void)state;
    for (int depth = 31; depth <= 32; depth++) {
        struct skr_text yaml = {0}, reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error;
        skr_text_add_string(&yaml, "x-a: ");
        for (int i = 0; i < depth; i++)
            skr_text_add_string(&yaml, "[");
        skr_text_add_string(&yaml, "1");
        for (int i = 0; i < depth; i++)
            skr_text_add_string(&yaml, "]");
        assert_int_equal(parse(yaml.bytes, &reports, &config, &error),
                         depth <= 31 ? SKR_OK : SKR_MALFORMED);
        skr_text_fini(&yaml);
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

static void
test_a_default_serializer_serves_those_without_one(void **state)
{
    (void)state;
    struct skr_config *config =
        parse_clean("framework:\n"
                    "  messenger:\n"
                    "    serializer: {default_serializer: json}\n"
                    "    transports:\n"
                    "      a: queue://default\n"
                    "      b: {dsn: 'queue://default', serializer: own}\n");
    assert_string_equal(config->transports[0].serializer, "json");
    assert_string_equal(config->transports[1].serializer, "own");
    assert_shown_loads_again(config);
    skr_config_free(config);
}

static void
test_a_missing_database_url_is_named(void **state)
{
    (void)state;
    static const char text[] =
        "1: transports.a: there is no database 'default': the file lists no "
        "'databases', and the environment variable DATABASE_URL is not set\n";
    struct skr_text reports = {0};
    struct skr_config *config = NULL;
    struct skr_error error;
    unsetenv("DATABASE_URL");
    assert_int_equal(
        parse("transports: {a: 'queue://default'}", &reports, &config, &error),
        SKR_INVALID);
    assert_string_equal(reports.bytes, text);
    // The error is the first report, after the file's name.
    assert_true(skr_text_starts_with(error.text, "/etc/skirnir.yaml:1: trans"));
    assert_int_equal(strlen(error.text),
                     strlen("/etc/skirnir.yaml:") + strlen(text) - 1);
    skr_text_fini(&reports);
}

static void
test_files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum skr_code code;
        const char *text;
    } cases[] = {
        {"/nonexistent/skirnir.yaml", SKR_MISSING,
         "/nonexistent/skirnir.yaml: there is no such file"},
        {"/tmp", SKR_REFUSED, "/tmp: Is a directory"},
    };
    struct skr_config *config = NULL;
    struct skr_error error;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        assert_int_equal(skr_config_load(cases[i].path,
                                         (struct skr_config_listener){0},
                                         &config, &error),
                         cases[i].code);
        assert_string_equal(error.text, cases[i].text);
    }
    setenv("SKIRNIR_CONFIG", "/nonexistent/other.yaml", 1);
    assert_int_equal(
        skr_config_load(NULL, (struct skr_config_listener){0}, &config, &error),
        SKR_MISSING);
    assert_string_equal(error.text,
                        "/nonexistent/other.yaml: there is no such file");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_mistake_is_reported_with_line_and_key),
        TEST(every_driver_has_what_its_callers_do_not_ask_for),
        TEST(every_key_reaches_its_place),
        TEST(defaults_depend_on_the_scheme),
        TEST(a_symfony_project_loads_as_it_is),
        TEST(a_transport_that_is_not_configured_is_named),
        TEST(each_way_to_claim_is_known_and_locked_is_read_as_shared),
        TEST(a_database_without_a_driver_is_a_warning),
        TEST(a_driver_that_is_missing_names_its_package),
        TEST(a_queue_is_named_in_the_way_of_amqp_too),
        TEST(a_dsn_may_say_the_time_zone),
        TEST(paths_begin_in_the_folder_of_the_file),
        TEST(files_of_kafka_lie_beside_the_configuration),
        TEST(the_environment_is_filled_in_anywhere_in_a_value),
        TEST(sizes_are_read_with_their_units),
        TEST(anchors_and_merge_keys_share_settings),
        TEST(names_and_statements_are_checked),
        TEST(aliases_that_multiply_are_refused),
        TEST(deep_nesting_is_refused_at_once),
        TEST(nesting_is_allowed_to_its_bound),
        TEST(a_default_serializer_serves_those_without_one),
        TEST(a_missing_database_url_is_named),
        TEST(files_that_cannot_be_read_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
