// SPDX-License-Identifier: MIT
// From the settings of kafka-outbox-relay to a configuration: they are written
// as the YAML that a user would write, and read as such.

#include "app/commands/kafka_relay.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LEAST_IN_FLIGHT = 8000 };

static enum skr_code
refuse(struct skr_kafka_relay *relay, const char *name, const char *needed,
       struct skr_error *error)
{
    const struct skr_option *option = relay->app.command->options;
    relay->is_usage = skr_arguments_has(relay->command_line, name);
    while (strcmp(option->name, name) != 0)
        option++;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "--%s, or %s in the environment: %s is needed", name,
                    option->variable, needed);
}

const char *
skr_kafka_relay_find(const struct skr_arguments *given, const char *name)
{
    const char *value = skr_arguments_find(given, name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

// NULL: it is not given, or none.
static const struct skr_db_ops *
find_driver(const struct skr_arguments *given)
{
    const char *driver = skr_arguments_find(given, "db-driver");
    return driver == NULL ? NULL : skr_driver_find_database(driver);
}

#define BLANKS " \t\r\n"

// A database that is a file needs no server.
static enum skr_code
check_servers(struct skr_kafka_relay *relay, struct skr_error *error)
{
    static const char *const names[] = {"db-driver", "db-name", "db-user",
                                        "db-pass",   "db-host", "db-port"};
    static const char drivers[] = "mysql, postgres or sqlite";
    const struct skr_arguments *given = &relay->arguments;
    const struct skr_db_ops *ops = find_driver(given);
    bool is_file = ops != NULL && ops->is_file;
    for (size_t i = 0; i < (is_file ? 2 : SKR_COUNT_OF(names)); i++) {
        const char *value = skr_arguments_find(given, names[i]);
        relay->is_missing = value == NULL || value[0] == '\0';
        if (relay->is_missing || ops == NULL)
            return refuse(relay, names[i], i == 0 ? drivers : "a value", error);
    }
    const char *host = is_file ? "" : skr_arguments_find(given, "db-host");
    const char *brokers = skr_arguments_find(given, "kafka-host");
    // Of addresses in brackets and of lists a colon is a part.
    if ((strchr(host, ':') != NULL && strpbrk(host, "[,") == NULL) ||
        strpbrk(host, "/?#@" BLANKS) != NULL)
        return refuse(relay, "db-host",
                      "a host alone, its port being --db-port,", error);
    const char *login = brokers == NULL ? NULL : strrchr(brokers, '@');
    const char *hosts = login == NULL ? brokers : login;
    if (brokers != NULL &&
        (strncmp(brokers + strcspn(brokers, ":"), "://", strlen("://")) == 0 ||
         strcspn(hosts, BLANKS) < strcspn(hosts, "/?")))
        return refuse(relay, "kafka-host",
                      "HOST:PORT, or several with commas, without a scheme and "
                      "blanks,",
                      error);
    return SKR_OK;
}

// In which no %env()% is filled in.
static void
add_quoted(struct skr_text *yaml, const char *text, size_t size)
{
    skr_text_add_string(yaml, "'");
    for (const char *end = text + size; text < end; text++) {
        if (*text == '\'' || *text == '%')
            skr_text_add(yaml, text, 1);
        skr_text_add(yaml, text, 1);
    }
    skr_text_add_string(yaml, "'");
}

static void
add_text(struct skr_text *yaml, const char *text)
{
    add_quoted(yaml, text, strlen(text));
}

// YAML folds line breaks, and refuses control characters and what is no UTF-8:
// those are escaped as URLs have it.
static void
add_url(struct skr_text *yaml, struct skr_text *url)
{
    struct skr_text plain = {0};
    for (size_t i = 0; i < url->size; i++)
        if (url->bytes[i] >= ' ' && url->bytes[i] < 0x7f)
            skr_text_add(&plain, &url->bytes[i], 1);
        else
            skr_text_add_format(&plain, "%%%02X",
                                (unsigned)(unsigned char)url->bytes[i]);
    yaml->broken |= url->broken || plain.broken;
    add_quoted(yaml, plain.bytes, plain.size);
    skr_text_add_string(yaml, "\n");
    skr_text_fini(url);
    skr_text_fini(&plain);
}

// One TLS setting governs Kafka and the database.
static void
add_database(const struct skr_arguments *given, size_t index,
             struct skr_text *yaml)
{
    const struct skr_db_ops *ops = find_driver(given);
    enum skr_driver_tls tls =
        !skr_arguments_is_on(given, "kafka-tls") ? SKR_DRIVER_PLAINTEXT
        : skr_arguments_is_on(given, "kafka-tls-verify-peer")
            ? SKR_DRIVER_TLS_UNVERIFIED
            : SKR_DRIVER_TLS_VERIFIED;
    struct skr_text url = {0};
    skr_text_add_format(&url, "%s://", ops->scheme);
    if (ops->is_file) {
        skr_text_add_format(&url, "/%s", given->positional[index]);
    } else {
        skr_url_add_encoded(&url, skr_arguments_find(given, "db-user"));
        skr_text_add_string(&url, ":");
        skr_url_add_encoded(&url, skr_arguments_find(given, "db-pass"));
        skr_text_add_format(&url, "@%s:%s/",
                            skr_arguments_find(given, "db-host"),
                            skr_arguments_find(given, "db-port"));
        skr_url_add_encoded(&url, given->positional[index]);
        skr_text_add_format(&url, "?%s", skr_driver_tls(ops->scheme, tls));
    }
    skr_text_add_format(yaml, "  DB_NAME.%zu: ", index);
    add_url(yaml, &url);
}

// NULL: none are given, or needed.
static const char *
find_brokers(const struct skr_arguments *given)
{
    return skr_arguments_is_on(given, "polling-disabled")
               ? NULL
               : skr_kafka_relay_find(given, "kafka-host");
}

// Rows of a table that was there before are marked, unless it is said.
static void
add_outbox(const struct skr_arguments *given, size_t index, bool is_others,
           struct skr_text *yaml)
{
    const char *table = skr_kafka_relay_find(given, "dboutboxtable");
    enum skr_on_success found =
        is_others ? SKR_ON_SUCCESS_KEEP : SKR_ON_SUCCESS_DELETE;
    bool marks = skr_arguments_choice(given, "on-success", (int)found) ==
                 SKR_ON_SUCCESS_KEEP;
    int64_t in_flight = skr_arguments_number(given, "batch-size", 250) * 4;
    int64_t attempts = skr_arguments_number(given, "kafka-publish-attempts", 3);
    // A row that is not counted further would never run out of them.
    if (attempts > SKR_KAFKA_OUTBOX_MOST_ATTEMPTS)
        attempts = SKR_KAFKA_OUTBOX_MOST_ATTEMPTS;
    skr_text_add_format(
        yaml,
        "  DB_NAME.%zu:\n"
        "    dsn: doctrine://DB_NAME.%zu\n"
        "    on_success: %s\n"
        "    in_flight: %lld\n"
        "    retry_strategy: {max_retries: %lld, max_delay: 60000}\n"
        "    options: {auto_setup: %s, table_name: ",
        index, index, marks ? "keep" : "delete",
        (long long)(in_flight > LEAST_IN_FLIGHT ? in_flight : LEAST_IN_FLIGHT),
        (long long)attempts - 1,
        skr_arguments_is_on(given, "skip-migrations") ? "false" : "true");
    add_text(yaml, table == NULL ? "kafka_outbox" : table);
    skr_text_add_string(yaml, "}\n");
    if (find_brokers(given) != NULL)
        skr_text_add_format(yaml, "    relay_to: KAFKA_HOST.%zu\n", index);
}

// What --kafka-options says wins, as it stands in the DSN.
static void
add_kafka(const struct skr_arguments *given, size_t index, bool is_others,
          struct skr_text *yaml)
{
    const char *options = skr_kafka_relay_find(given, "kafka-options");
    const char *partitioner = skr_kafka_relay_find(given, "partitioner");
    bool has_tls = skr_arguments_is_on(given, "kafka-tls");
    struct skr_text dsn = {0};
    skr_text_add_format(&dsn, "kafka://%s", find_brokers(given));
    if (options != NULL && !dsn.broken)
        skr_text_add_format(
            &dsn, "%c%s", strchr(dsn.bytes, '?') == NULL ? '?' : '&', options);
    skr_text_add_format(yaml, "  KAFKA_HOST.%zu:\n    dsn: ", index);
    add_url(yaml, &dsn);
    skr_text_add_format(
        yaml,
        "    options:\n"
        "      auto_setup: false\n"
        "      missing_topic: fail\n"
        "%s%s",
        has_tls ? "      tls: 1\n" : "",
        has_tls && skr_arguments_is_on(given, "kafka-tls-verify-peer")
            ? "      verify: 0\n"
            : "");
    // Two names of one property, of which librdkafka takes the last.
    if (options == NULL || strstr(options, "compression.codec=") == NULL)
        skr_text_add_format(yaml, "      compression.type: %s\n",
                            is_others ? "gzip" : "none");
    skr_text_add_string(yaml, "      partitioner: ");
    add_text(yaml, partitioner != NULL ? partitioner
                   : is_others         ? "fnv1a"
                                       : "murmur2");
    skr_text_add_string(yaml, "\n");
}

// "HOST:PORT" or ":PORT"; "": nothing is served.
static enum skr_code
add_metrics(const char *place, struct skr_text *yaml, struct skr_error *error)
{
    const char *colon = strrchr(place, ':');
    int64_t port = 0;
    if (place[0] == '\0')
        return SKR_OK;
    if (colon == NULL || !skr_text_number(colon + 1, 1, UINT16_MAX, &port))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "HTTP_LISTEN, or --listen %.60s: HOST:PORT or :PORT is "
                        "needed, with a port from 1 to 65535",
                        place);
    skr_text_add_format(yaml, "metrics:\n  port: %lld\n", (long long)port);
    return SKR_OK;
}

static enum skr_code
write_yaml(const struct skr_arguments *given, bool is_others, const char *place,
           struct skr_text *yaml, struct skr_error *error)
{
    size_t count = given->positional_count;
    skr_text_add_string(yaml, "databases:\n");
    for (size_t i = 0; i < count; i++)
        add_database(given, i, yaml);
    skr_text_add_string(yaml, "transports:\n");
    for (size_t i = 0; i < count; i++)
        add_outbox(given, i, is_others, yaml);
    for (size_t i = 0; i < count && find_brokers(given) != NULL; i++)
        add_kafka(given, i, is_others, yaml);
    skr_text_add_format(
        yaml, "cleanup: {interval: %lld}\n",
        (long long)skr_arguments_number(given, "cleanup-interval", 0));
    enum skr_code code = add_metrics(place, yaml, error);
    return code == SKR_OK && yaml->broken ? skr_fail_memory(error) : code;
}

// By their keys, what mistakes can be made in.
static const struct {
    const char *key, *option, *other, *named;
} sources[] = {
    {".table_name", "dboutboxtable", "", "--dboutboxtable"},
    {".KAFKA_HOST.", "kafka-host", "kafka-options",
     "--kafka-host and --kafka-options, or KAFKA_HOST and KAFKA_OPTIONS in the "
     "environment"},
};

void
skr_kafka_relay_leave_out_dsn(struct skr_error *error)
{
    static const char *const words[] = {" in the DSN", " of the DSN"};
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        for (char *at; (at = strstr(error->text, words[i])) != NULL;)
            memmove(at, at + strlen(words[i]),
                    strlen(at + strlen(words[i])) + 1);
}

struct noted {
    const struct skr_log *log;     // for warnings; NULL: they are not wanted
    char last[SKR_EXPOSURE_SIZE];  // that was logged
    struct skr_error mistake;
    struct skr_kafka_relay *relay;
};

static void
note_mistake(struct noted *noted, const char *text)
{
    const struct skr_arguments *flags = noted->relay->command_line;
    const char *reason = strstr(text, ": "), *named = "";
    for (size_t i = 0; reason != NULL && i < SKR_COUNT_OF(sources); i++) {
        const char *key = strstr(text, sources[i].key);
        if (key == NULL || key > reason)
            continue;
        named = sources[i].named;
        text = reason;
        noted->relay->is_usage = skr_arguments_has(flags, sources[i].option) ||
                                 skr_arguments_has(flags, sources[i].other);
    }
    skr_fail(&noted->mistake, SKR_INVALID, SKR_GIVE_UP, "%s%s", named, text);
    skr_kafka_relay_leave_out_dsn(&noted->mistake);
}

// The first mistake, without the line of a file that the user has not written.
// All databases have one host and one password, and so have the brokers: what
// can be read on its way there is said once.
static void
note(void *user, enum skr_config_severity severity, const char *path, int line,
     const char *text)
{
    struct noted *noted = user;
    const char *cure = strstr(text, ": ");
    (void)path;
    (void)line;
    if (severity == SKR_CONFIG_MISTAKE && noted->mistake.code == SKR_OK)
        note_mistake(noted, text);
    if (severity == SKR_CONFIG_MISTAKE || noted->log == NULL || cure == NULL ||
        strncmp(noted->last, cure, sizeof(noted->last) - 1) == 0)
        return;
    snprintf(noted->last, sizeof(noted->last), "%s", cure);
    skr_log(noted->log, SKR_LOG_WARNING, "kafkarelay.plaintext",
            SKR_LOG_TEXT("cure", cure + strlen(": ")));
}

// What is no address is said by the name of this setting, when it is listened
// on.
static enum skr_code
set_address(const char *place, struct skr_config *config,
            struct skr_error *error)
{
    const char *colon = strrchr(place, ':');
    config->metrics_address = NULL;
    if (colon == NULL || colon == place)
        return SKR_OK;
    config->metrics_address =
        skr_arena_text(&config->arena, place, (size_t)(colon - place));
    return config->metrics_address == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_kafka_relay_configure(struct skr_kafka_relay *relay, bool is_others,
                          bool warns, struct skr_config **config,
                          struct skr_error *error)
{
    const struct skr_arguments *given = &relay->arguments;
    const char *place = skr_arguments_find(given, "listen");
    struct skr_text yaml = {0};
    struct skr_config *made = NULL;
    struct noted noted = {.log = warns ? &relay->app.log : NULL,
                          .relay = relay};
    if (place == NULL)
        place = ":80";
    enum skr_code code = write_yaml(given, is_others, place, &yaml, error);
    if (code == SKR_OK)
        code = skr_config_parse(yaml.bytes, yaml.size, "environment",
                                (struct skr_config_listener){note, &noted},
                                &made, error);
    skr_text_fini(&yaml);
    if (noted.mistake.code != SKR_OK)
        *error = noted.mistake;
    if (code == SKR_OK)
        code = set_address(place, made, error);
    for (size_t i = 0; code == SKR_OK && i < made->database_count; i++) {
        made->databases[i].name = given->positional[i];
        made->transports[i].name = given->positional[i];
        made->transports[i].kafka_outbox = &relay->table;
    }
    *config = made;
    return code;
}

// Lines as the other relay wrote them: the log collector reads JSON. What it
// called an error, such as a broker that is away, is a warning of ours.
static struct skr_output
read_output(const struct skr_arguments *arguments)
{
    static const struct {
        const char *name;
        enum skr_log_level level;
    } levels[] = {
        {"panic", SKR_LOG_ERROR}, {"fatal", SKR_LOG_ERROR},
        {"info", SKR_LOG_INFO},   {"debug", SKR_LOG_DEBUG},
        {"trace", SKR_LOG_DEBUG},
    };
    const char *value = getenv("LOG_LEVEL");
    struct skr_output output = {
        .level = SKR_LOG_WARNING,
        .each_message = true,
        .form = {.is_json = true, .event_name = "msg"},
        .fd = STDOUT_FILENO,
    };
    for (size_t i = 0; value != NULL && i < SKR_COUNT_OF(levels); i++)
        if (strcasecmp(value, levels[i].name) == 0)
            output.level = levels[i].level;
    if (skr_arguments_has(arguments, "verbose"))
        output.level = SKR_LOG_DEBUG;
    return output;
}

static enum skr_code
read_names(struct skr_kafka_relay *relay, struct skr_error *error)
{
    struct skr_arguments *given = &relay->arguments;
    const char *at = skr_arguments_find(given, "db-name");
    given->positional_count = 0;
    while (*at != '\0') {
        size_t size = strcspn(at, ",");
        const char *name = skr_arena_text(&relay->arena, at, size);
        if (name == NULL)
            return skr_fail_memory(error);
        if (given->positional_count == SKR_KAFKA_RELAY_MAX_DATABASES)
            return refuse(relay, "db-name", "a shorter list", error);
        if (size > 0)
            given->positional[given->positional_count++] = name;
        at += size;
        at += *at == ',';
    }
    return given->positional_count == 0
               ? refuse(relay, "db-name", "a value", error)
               : SKR_OK;
}

enum skr_code
skr_kafka_relay_read(const struct skr_app *app, struct skr_kafka_relay *relay,
                     struct skr_error *error)
{
    struct skr_arguments *given = &relay->arguments;
    *relay = (struct skr_kafka_relay){
        .arguments = *app->arguments,
        .command_line = app->arguments,
        .output = read_output(app->arguments),
        .app = *app,
        .wake_fd = -1,
    };
    relay->app.arguments = given;
    enum skr_code code =
        skr_arguments_read_environment(app->command, given, error);
    if (code == SKR_OK && skr_arguments_has(given, "dry-run") &&
        !skr_arguments_is_on(given, "cleanup"))
        code = refuse(relay, "cleanup", "what --dry-run is about", error);
    if (code == SKR_OK)
        code = check_servers(relay, error);
    if (code == SKR_OK)
        code = read_names(relay, error);
    relay->table.takes_over = skr_arguments_has(given, "take-over");
    relay->table.publishes_tombstones =
        skr_arguments_is_on(given, "publish-tombstones");
    return code == SKR_OK ? skr_kafka_relay_configure(relay, false, false,
                                                      &relay->config, error)
                          : code;
}
