// SPDX-License-Identifier: MIT
// The names that kafka-outbox-relay gave its settings.

#include "app/commands/kafka_relay.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_ATTEMPTS = 1000000, MOST_BATCH = 100000 };

struct reader {
    const struct skr_arguments *arguments;
    struct skr_kafka_relay_settings *settings;
    bool is_missing;
    struct skr_error *error;
    enum skr_code code;  // the first mistake
};

static const char *
find(const struct reader *reader, const char *flag, const char *variable)
{
    const char *value = skr_arguments_find(reader->arguments, flag);
    if (value == NULL && variable != NULL)
        value = getenv(variable);
    return value != NULL && value[0] == '\0' ? NULL : value;
}

static void
refuse(struct reader *reader, const char *flag, const char *variable,
       const char *needed)
{
    if (reader->code == SKR_OK)
        reader->code = skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                                "--%s, or %s in the environment: %s is needed",
                                flag, variable, needed);
}

static const char *
require_one(struct reader *reader, const char *flag, const char *variable,
            const char *needed)
{
    const char *value = find(reader, flag, variable);
    if (value != NULL)
        return value;
    if (reader->code == SKR_OK)
        reader->is_missing = true;
    refuse(reader, flag, variable, needed);
    return "";
}

static const char *
require(struct reader *reader, const char *flag, const char *variable)
{
    return require_one(reader, flag, variable, "a value");
}

static bool
is_set(struct reader *reader, const char *flag, const char *variable)
{
    bool is_given = skr_arguments_has(reader->arguments, flag);
    const char *value = is_given ? skr_arguments_find(reader->arguments, flag)
                                 : getenv(variable);
    bool is_true = is_given && value == NULL;
    if (value != NULL && value[0] != '\0' &&
        !skr_arguments_truth(value, &is_true))
        refuse(reader, flag, variable, "true or false");
    return is_true;
}

static uint32_t
read_number(struct reader *reader, const char *flag, const char *variable,
            int64_t most, uint32_t fallback)
{
    const char *value = find(reader, flag, variable);
    int64_t number = fallback;
    if (value != NULL && !skr_text_number(value, 1, most, &number))
        refuse(reader, flag, variable, "a whole number");
    return (uint32_t)number;
}

static void
add_encoded(struct skr_text *text, const char *part)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.~";
    for (const char *at = part; *at != '\0'; at++)
        if (strchr(plain, *at) != NULL)
            skr_text_add(text, at, 1);
        else
            skr_text_add_format(text, "%%%02X", (unsigned char)*at);
}

static const char *
keep(struct reader *reader, struct skr_text *text)
{
    const char *kept = text->broken ? NULL
                                    : skr_arena_text(&reader->settings->arena,
                                                     text->bytes, text->size);
    skr_text_fini(text);
    if (kept == NULL && reader->code == SKR_OK)
        reader->code = skr_fail_memory(reader->error);
    return kept;
}

// One TLS setting governed Kafka and the database.
static void
add_tls(const struct skr_kafka_relay_settings *settings, bool is_mysql,
        struct skr_text *url)
{
    if (!settings->tls)
        skr_url_add_parameter(url, is_mysql ? "ssl" : "sslmode",
                              is_mysql ? "0" : "disable");
    else if (is_mysql)
        skr_url_add_parameter(url, "ssl_verify",
                              settings->skips_verifying ? "0" : "1");
    else
        skr_url_add_parameter(url, "sslmode",
                              settings->skips_verifying ? "require"
                                                        : "verify-full");
}

// Its place in the DSN is not what was written.
static const char *
read_port(struct reader *reader)
{
    const char *port = require(reader, "db-port", "DB_PORT");
    int64_t unused;
    if (port[0] != '\0' && !skr_text_number(port, 1, UINT16_MAX, &unused))
        refuse(reader, "db-port", "DB_PORT", "a number from 1 to 65535");
    return port;
}

static const char *
write_url(struct reader *reader, const char *scheme, const char *name)
{
    struct skr_text url = {0};
    bool is_file = strcmp(scheme, "sqlite") == 0;
    if (is_file) {
        skr_text_add_format(&url, "sqlite:///%s", name);
        return keep(reader, &url);
    }
    skr_text_add_string(&url, scheme);
    skr_text_add_string(&url, "://");
    add_encoded(&url, require(reader, "db-user", "DB_USER"));
    skr_text_add_string(&url, ":");
    add_encoded(&url, require(reader, "db-pass", "DB_PASS"));
    skr_text_add_format(&url, "@%s:%s/", require(reader, "db-host", "DB_HOST"),
                        read_port(reader));
    add_encoded(&url, name);
    add_tls(reader->settings, strcmp(scheme, "mysql") == 0, &url);
    return keep(reader, &url);
}

static void
read_databases(struct reader *reader, const char *scheme)
{
    struct skr_kafka_relay_settings *settings = reader->settings;
    const char *at = require(reader, "db-name", "DB_NAME");
    while (*at != '\0' && reader->code == SKR_OK) {
        size_t size = strcspn(at, ",");
        char *name = skr_arena_text(&settings->arena, at, size);
        if (name == NULL) {
            reader->code = skr_fail_memory(reader->error);
        } else if (settings->database_count == SKR_KAFKA_RELAY_MAX_DATABASES) {
            refuse(reader, "db-name", "DB_NAME", "a shorter list");
        } else if (size > 0) {
            settings->names[settings->database_count] = name;
            settings->urls[settings->database_count++] =
                write_url(reader, scheme, name);
        }
        at += size;
        at += *at == ',';
    }
}

static void
read_database(struct reader *reader)
{
    static const char known[] = "mysql, postgres or sqlite";
    const char *driver = require_one(reader, "db-driver", "DB_DRIVER", known);
    const char *scheme = strcmp(driver, "postgres") == 0 ? "pgsql" : driver;
    if (reader->code != SKR_OK)
        return;
    reader->settings->database = skr_driver_find_database(scheme);
    if (reader->settings->database == NULL)
        refuse(reader, "db-driver", "DB_DRIVER", known);
    else
        read_databases(reader, reader->settings->database->scheme);
}

// Lines as the other relay wrote them: the log collector reads JSON. What it
// called an error, such as a broker that is away, is a warning of ours.
static void
read_output(struct reader *reader)
{
    static const struct {
        const char *name;
        enum skr_log_level level;
    } levels[] = {
        {"panic", SKR_LOG_ERROR},     {"fatal", SKR_LOG_ERROR},
        {"error", SKR_LOG_WARNING},   {"warn", SKR_LOG_WARNING},
        {"warning", SKR_LOG_WARNING}, {"info", SKR_LOG_INFO},
        {"debug", SKR_LOG_DEBUG},     {"trace", SKR_LOG_DEBUG},
    };
    const char *value = getenv("LOG_LEVEL");
    struct skr_output *output = &reader->settings->output;
    *output = (struct skr_output){
        .level = SKR_LOG_WARNING,
        .each_message = true,
        .form = {.is_json = true, .event_name = "msg"},
        .fd = STDOUT_FILENO,
    };
    for (size_t i = 0; value != NULL && i < SKR_COUNT_OF(levels); i++)
        if (strcasecmp(value, levels[i].name) == 0)
            output->level = levels[i].level;
    if (skr_arguments_has(reader->arguments, "verbose"))
        output->level = SKR_LOG_DEBUG;
}

static void
read_success(struct reader *reader)
{
    const char *value = find(reader, "on-success", "ON_SUCCESS");
    if (value != NULL && strcmp(value, "mark") == 0)
        reader->settings->success = SKR_KAFKA_RELAY_MARK;
    else if (value != NULL && strcmp(value, "delete") == 0)
        reader->settings->success = SKR_KAFKA_RELAY_DELETE;
    else if (value != NULL)
        refuse(reader, "on-success", "ON_SUCCESS", "mark or delete");
}

static const char *
first_of(const char *a, const char *b)
{
    return a == NULL ? b : a;
}

// A password that was not escaped may hold an @ as well: the last one counts.
static void
find_hosts(struct reader *reader)
{
    struct skr_kafka_relay_settings *settings = reader->settings;
    const char *text = first_of(settings->brokers, "");
    const char *last_at = strrchr(text, '@');
    const char *hosts = last_at == NULL ? text : last_at + 1;
    settings->hosts =
        skr_arena_text(&settings->arena, hosts, strcspn(hosts, "/?"));
    if (settings->hosts == NULL && reader->code == SKR_OK)
        reader->code = skr_fail_memory(reader->error);
}

static void
read_kafka(struct reader *reader)
{
    struct skr_kafka_relay_settings *settings = reader->settings;
    settings->tls = is_set(reader, "kafka-tls", "TLS_ENABLE");
    settings->skips_verifying =
        is_set(reader, "kafka-tls-verify-peer", "TLS_SKIP_VERIFY_PEER");
    settings->brokers = find(reader, "kafka-host", "KAFKA_HOST");
    find_hosts(reader);
    settings->partitioner = find(reader, "partitioner", "KAFKA_PARTITIONER");
    settings->options = find(reader, "kafka-options", "KAFKA_OPTIONS");
    settings->attempts =
        read_number(reader, "kafka-publish-attempts", "KAFKA_PUBLISH_ATTEMPTS",
                    MOST_ATTEMPTS, 3);
    // A row that is not counted further would never run out of them.
    if (settings->attempts > SKR_KAFKA_OUTBOX_MOST_ATTEMPTS)
        settings->attempts = SKR_KAFKA_OUTBOX_MOST_ATTEMPTS;
    settings->poll_ms = read_number(reader, "poll-frequency-ms",
                                    "POLL_FREQUENCY_MS", INT32_MAX, 500);
    settings->batch =
        read_number(reader, "batch-size", "BATCH_SIZE", MOST_BATCH, 250);
    // Accepted: one connection is as fast as several were.
    read_number(reader, "write-concurrency", "WRITE_CONCURRENCY", INT32_MAX, 1);
}

enum skr_code
skr_kafka_relay_read(const struct skr_arguments *arguments,
                     struct skr_kafka_relay_settings *settings,
                     bool *is_missing, struct skr_error *error)
{
    struct reader reader = {
        .arguments = arguments, .settings = settings, .error = error};
    *settings = (struct skr_kafka_relay_settings){.tls = false};
    read_output(&reader);
    read_kafka(&reader);
    read_success(&reader);
    settings->cleans = is_set(&reader, "cleanup", "RUN_CLEANUP");
    settings->cleanup_interval_s =
        (uint32_t)skr_arguments_number(arguments, "cleanup-interval", 0);
    settings->dry_run = skr_arguments_has(arguments, "dry-run");
    if (settings->dry_run && !settings->cleans)
        refuse(&reader, "cleanup", "RUN_CLEANUP", "what --dry-run is about");
    settings->optimizes = is_set(&reader, "optimize", "RUN_OPTIMIZE");
    settings->polling_disabled =
        is_set(&reader, "polling-disabled", "POLLING_DISABLED");
    settings->skips_migrations =
        is_set(&reader, "skip-migrations", "SKIP_MIGRATIONS");
    settings->takes_over = skr_arguments_has(arguments, "take-over");
    settings->waits = skr_arguments_has(arguments, "wait");
    settings->publishes_tombstones =
        is_set(&reader, "publish-tombstones", "PUBLISH_TOMBSTONES");
    settings->sidecar_url =
        find(&reader, "sidecar-proxy-url", "SIDECAR_PROXY_URL");
    settings->table = first_of(skr_arguments_find(arguments, "dboutboxtable"),
                               "kafka_outbox");
    const char *listen = skr_arguments_find(arguments, "listen");
    settings->listen = first_of(
        listen, first_of(find(&reader, "listen", "HTTP_LISTEN"), ":80"));
    read_database(&reader);
    *is_missing = reader.is_missing;
    return reader.code;
}

void
skr_kafka_relay_fini(struct skr_kafka_relay_settings *settings)
{
    skr_arena_fini(&settings->arena);
}
