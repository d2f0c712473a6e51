// SPDX-License-Identifier: MIT
// A relay from kafka_outbox to Kafka for each of the databases, in the place of
// kafka-outbox-relay; its jobs, which remove rows of long ago or tidy tables
// up; `migrate`, and what becomes of rows that are errored.

#include "app/commands/kafka_relay.h"

#include "app/console/progress.h"
#include "app/console/signals.h"
#include "app/console/terminal.h"
#include "app/report/report.h"
#include "app/service/cleaner.h"
#include "app/service/supervisor.h"
#include "app/wiring/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "db/run.h"
#include "db/sql.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OPEN_TRIES = 30,
    OPEN_PAUSE_MS = 1000,
    DIAL_S = 1,
    HOSTS_SIZE = 4096,
    SIDECAR_PORT = 80,
    ANSWER_S = 5,
    MOST_LISTED = 10000,
};

// How long a database is waited for that may start together with us.
struct patience {
    const struct skr_kafka_relay *relay;
    size_t index;
    struct skr_environment *environment;  // NULL: it is no relay that waits
    struct skr_trouble trouble;
    int tries;
};

// Whether there is to be another attempt, after a pause. With --wait there is
// always; of several relays one goes on trying as long as another can work. If
// not, the error says why: SKR_STOPPED after a signal.
static bool
waits_on(struct patience *patience, struct skr_error *error)
{
    const struct skr_kafka_relay *relay = patience->relay;
    const char *name = relay->config->transports[patience->index].name;
    struct skr_environment *environment = patience->environment;
    bool waits = skr_arguments_has(&relay->arguments, "wait");
    bool is_over =
        skr_error_is_lasting(error) || ++patience->tries >= OPEN_TRIES;
    const struct skr_log log =
        environment == NULL
            ? relay->app.log
            : skr_health_log(&environment->health, patience->index);
    if (is_over && !waits &&
        (environment == NULL || skr_health_gives_up(log.tell_user)))
        return false;
    // The output of a service is its log.
    if (waits || relay->app.output == &relay->output)
        skr_trouble_report(&patience->trouble, &log, SKR_TROUBLE_RELAY,
                           "relay.trouble", name, error);
    else if (patience->tries == 1)
        skr_output_say(relay->app.output, SKR_LOG_WARNING,
                       "skirnir kafka-relay: database %s is waited for, %d s "
                       "at most: %s",
                       name, OPEN_TRIES * OPEN_PAUSE_MS / 1000, error->text);
    // A signal need not interrupt it: other threads sleep there, too.
    skr_clock_sleep(relay->wake_fd, OPEN_PAUSE_MS);
    if (!skr_signals_ask_stop())
        return true;
    skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    return false;
}

// With creates, a database that is a file is made.
static enum skr_code
open_once(const struct skr_config_database *database, bool creates,
          struct skr_db **db, struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    enum skr_code code = skr_transport_database(database, &ops, error);
    if (code == SKR_OK)
        code = skr_db_open_or_create(ops, database->url, creates, db, error);
    if (code != SKR_OK)
        skr_kafka_relay_leave_out_dsn(error);
    // The driver advises by the command that makes files from a configuration.
    if (code == SKR_MISSING && ops->is_file)
        return skr_fail(error, code, SKR_RECONNECT,
                        "there is no such file; `skirnir kafka-relay migrate` "
                        "makes it");
    return code;
}

// For a command or a job.
static enum skr_code
open_database(const struct skr_kafka_relay *relay, size_t index, bool creates,
              struct skr_db **db, struct skr_error *error)
{
    struct patience patience = {.relay = relay, .index = index};
    const struct skr_config_database *database =
        &relay->config->databases[index];
    while (open_once(database, creates, db, error) != SKR_OK)
        if (!waits_on(&patience, error))
            return error->code;
    return SKR_OK;
}

// Makes the table where it is missing. A table that others made decides what is
// not set.
static enum skr_code
look_at_table(const struct skr_kafka_relay *relay, size_t index,
              bool *is_others, struct skr_error *error)
{
    const struct skr_config_transport *outbox =
        &relay->config->transports[index];
    bool is_there = false, is_ours = false;
    struct skr_store *table = NULL;
    struct skr_db *db = NULL;
    enum skr_code code =
        skr_transport_table(relay->config, outbox, &table, error);
    if (code == SKR_OK)
        code = open_once(outbox->database, outbox->auto_setup, &db, error);
    if (code == SKR_OK)
        code =
            skr_kafka_outbox_find_maker(table, db, &is_there, &is_ours, error);
    if (code == SKR_OK && !is_there && outbox->auto_setup)
        code = skr_store_create(table, db, error);
    if (code == SKR_OK)
        code = table->admin->check(table, db, error);
    *is_others = is_there && !is_ours;
    skr_db_close(db);
    skr_store_free(table);
    if (code != SKR_OK)
        skr_error_prefix(error, "database %s", outbox->name);
    return code;
}

// Without a login before them. A password that was not escaped may hold an @ as
// well: the last one counts.
static void
find_hosts(const struct skr_arguments *given, char hosts[HOSTS_SIZE])
{
    const char *brokers = skr_kafka_relay_find(given, "kafka-host");
    snprintf(hosts, HOSTS_SIZE, "%s", brokers == NULL ? "" : brokers);
    // Passwords among the parameters may hold one, too.
    hosts[strcspn(hosts, "/?")] = '\0';
    const char *last_at = strrchr(hosts, '@');
    if (last_at != NULL)
        memmove(hosts, last_at + 1, strlen(last_at + 1) + 1);
}

// What the driver is told of the first of these names; "": nothing.
static const char *
find_parameter(const struct skr_url *url, const char *name,
               const char *other_name)
{
    const char *found = skr_url_find(url, name);
    if (found == NULL && other_name != NULL)
        found = skr_url_find(url, other_name);
    return found == NULL ? "" : found;
}

// Said whatever the level: it decides what becomes of rows, and where keys go.
static void
say_start(const struct skr_kafka_relay *relay, const struct skr_config *config,
          size_t index)
{
    const struct skr_config_transport *outbox = &config->transports[index];
    struct skr_output output = relay->output;
    const struct skr_log log = {.write = skr_output_log, .user = &output};
    char *source = skr_url_mask(outbox->database->url);
    char hosts[HOSTS_SIZE], *text = NULL;
    struct skr_url url = {0};
    find_hosts(&relay->arguments, hosts);
    output.level = SKR_LOG_DEBUG;
    size_t broker = config->database_count + index;
    bool is_known = broker < config->transport_count &&
                    skr_config_broker_url(&config->transports[broker], &text,
                                          NULL) == SKR_OK &&
                    skr_url_parse(text, &url, NULL) == SKR_OK;
    skr_log(
        &log, SKR_LOG_INFO, "kafkarelay.started",
        SKR_LOG_TEXT("version", SKR_VERSION),
        SKR_LOG_TEXT("database", outbox->name),
        SKR_LOG_TEXT("source", source == NULL ? "" : source),
        SKR_LOG_TEXT("table", outbox->place.table),
        SKR_LOG_TEXT("brokers", hosts),
        SKR_LOG_TEXT("polling",
                     skr_arguments_is_on(&relay->arguments, "polling-disabled")
                         ? "disabled"
                         : "on"),
        SKR_LOG_TEXT("on_success",
                     outbox->relay.on_success == SKR_ON_SUCCESS_KEEP
                         ? "mark"
                         : "delete"),
        SKR_LOG_TEXT("partitioner", find_parameter(&url, "partitioner", NULL)),
        SKR_LOG_TEXT("compression", find_parameter(&url, "compression.type",
                                                   "compression.codec")));
    if (is_known)
        skr_url_fini(&url);
    free(text);
    free(source);
}

// A connection to the first address of the host that takes one; each is waited
// for so long, and so are what is sent and received. -1: none does.
static int
dial(const char *host, const char *port, int patience_s)
{
    const struct timeval patience = {.tv_sec = patience_s};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &addresses) != 0)
        return -1;
    for (const struct addrinfo *at = addresses; at != NULL && fd < 0;
         at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(addresses);
    return fd;
}

// A cluster is there as long as one of its brokers is.
static bool
has_broker(const struct skr_arguments *given)
{
    char hosts[HOSTS_SIZE];
    struct skr_host host;
    int fd = -1;
    find_hosts(given, hosts);
    for (const char *left = hosts[0] == '\0' ? NULL : hosts;
         left != NULL && fd < 0;) {
        left = skr_host_next(left, &host);
        fd = dial(host.name, host.port[0] == '\0' ? "9092" : host.port, DIAL_S);
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool
is_healthy(const struct skr_app *app, const struct skr_config *config,
           bool with_broker)
{
    for (size_t i = 0; i < config->database_count; i++)
        if (skr_transport_check(config, &config->transports[i], NULL) != SKR_OK)
            return false;
    return !with_broker || has_broker(app->arguments);
}

static const struct skr_column columns[] = {
    {"queue_size", NULL, "kafka_outbox_queue_size",
     "Rows that are not published, errored ones included.", SKR_AS_INTEGER},
    {"total_size", NULL, "kafka_outbox_total_size",
     "Rows of the table; beyond 100,000 an estimate.", SKR_AS_INTEGER},
    {"errored_size", NULL, "kafka_outbox_errored_size",
     "Rows that no relay publishes any more.", SKR_AS_INTEGER},
};

// Of what figures of all transports its metrics are the sum.
static const struct {
    const char *metric, *figure;
} sums[] = {
    {"queue_size", "depth"}, {"queue_size", "failed"},
    {"total_size", "depth"}, {"total_size", "failed"},
    {"total_size", "sent"},  {"errored_size", "failed"},
};

// Where a database cannot be asked there are none.
static void
read_metrics(const struct skr_report *transports, struct skr_report *report)
{
    report->columns = SKR_COLUMNS(columns);
    for (size_t row = 0; row < skr_report_rows(transports); row++)
        if (skr_report_find(transports, row, "depth")->state != SKR_CELL_KNOWN)
            return;
    skr_report_add_row(report);
    for (size_t row = 0; row < skr_report_rows(transports); row++)
        for (size_t i = 0; i < SKR_COUNT_OF(sums); i++)
            skr_report_sum(
                report, sums[i].metric,
                (uint64_t)skr_report_find(transports, row, sums[i].figure)
                    ->number);
}

// What a relay of this database works by, which its table decides in part.
static enum skr_code
configure(void *user, struct skr_environment *environment, size_t index,
          struct skr_config **config, struct skr_error *error)
{
    struct skr_kafka_relay *relay = user;
    struct patience patience = {
        .relay = relay, .index = index, .environment = environment};
    bool is_others = false;
    while (look_at_table(relay, index, &is_others, error) != SKR_OK)
        if (!waits_on(&patience, error))
            return error->code;
    enum skr_code code =
        skr_kafka_relay_configure(relay, is_others, index == 0, config, error);
    if (code == SKR_OK)
        say_start(relay, *config, index);
    return code;
}

// Where nothing is published tables are made all the same.
static enum skr_code
look_at_all(struct skr_kafka_relay *relay, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < relay->config->database_count && code == SKR_OK;
         i++) {
        struct skr_config *config = NULL;
        code = configure(relay, NULL, i, &config, error);
        skr_config_free(config);
    }
    return code;
}

static enum skr_code
run_service(struct skr_kafka_relay *relay, struct skr_error *error)
{
    struct skr_arguments *arguments = &relay->arguments;
    bool polls = !skr_arguments_is_on(arguments, "polling-disabled");
    char seconds[24];
    // --sleep of `relay` is POLL_FREQUENCY_MS.
    static const struct skr_option sleep = {.name = "sleep",
                                            .kind = SKR_OPTION_TEXT};
    int64_t ms = skr_arguments_number(arguments, "poll-frequency-ms", 500);
    if (polls && skr_kafka_relay_find(arguments, "kafka-host") == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--kafka-host, or KAFKA_HOST in the environment, is "
                        "needed");
    const struct skr_aliases aliases = {
        .listen = "--listen or HTTP_LISTEN",
        .is_healthy = is_healthy,
        .read = read_metrics,
        .configure = configure,
        .user = relay,
    };
    relay->wake_fd = skr_signals_watch();
    snprintf(seconds, sizeof(seconds), "%d.%03d", (int)(ms / 1000),
             (int)(ms % 1000));
    enum skr_code code = skr_arguments_give(arguments, &sleep, seconds, error);
    if (code == SKR_OK && !polls)
        code = look_at_all(relay, error);
    // Of no transport nothing is published.
    if (!polls)
        arguments->positional_count = 0;
    relay->app.aliases = &aliases;
    if (code == SKR_OK)
        code = skr_relay_run_configured(&relay->app, relay->config, error);
    relay->app.aliases = NULL;
    return code == SKR_STOPPED ? SKR_OK : code;
}

static enum skr_code
optimize(const char *table, struct skr_db *db, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}};
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, "{optimize_table}", words, 1);
    enum skr_code code = sql == NULL ? skr_fail_memory(error)
                                     : skr_sql_run(skr_db_tx(db), sql,
                                                   SKR_NO_VALUES, NULL, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
clean(const struct skr_kafka_relay *relay,
      const struct skr_config_transport *outbox, struct skr_error *error)
{
    struct skr_progress progress;
    uint64_t removed = 0;
    struct skr_cleaning cleaning = skr_cleaner_shown_pace(&progress, 0);
    cleaning.dry_run = skr_arguments_has(&relay->arguments, "dry-run");
    skr_progress_begin(&progress, 0, 0);
    enum skr_code code = skr_cleaner_clean_transport(
        relay->config, outbox, &cleaning, &removed, error);
    skr_progress_end(&progress);
    if (code == SKR_OK || removed > 0)
        printf("%s %llu published outbox records\n",
               cleaning.dry_run ? "would delete" : "deleted",
               (unsigned long long)removed);
    return code;
}

// As it is written, not decoded: that is how a request has it.
static const char *
path_of(const char *text, int *size)
{
    const char *end = strstr(text, "://");
    const char *host = end == NULL ? text : end + 3;
    const char *path = host + strcspn(host, "/?#");
    *size = (int)strcspn(path, "?#");
    return path;
}

static bool
send_request(int fd, const char *text, const char *host, const char *port)
{
    struct skr_text request = {0};
    char answer[16];
    int size;
    const char *path = path_of(text, &size);
    skr_text_add_format(&request,
                        "POST %.*s/quitquitquit HTTP/1.1\r\nHost: %s:%s\r\n"
                        "Content-Type: text/plain\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n",
                        size, path, host, port);
    bool ok = !request.broken &&
              write(fd, request.bytes, request.size) == (ssize_t)request.size &&
              read(fd, answer, sizeof(answer)) > 0;
    skr_text_fini(&request);
    return ok;
}

// It runs beside us, and what it is told is no secret: there is no TLS.
static enum skr_code
parse_sidecar(const char *text, struct skr_url *url, struct skr_error *error)
{
    enum skr_code code = skr_url_parse(text, url, error);
    if (code == SKR_OK &&
        (strcmp(url->scheme, "http") != 0 || url->host == NULL)) {
        skr_url_fini(url);
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the sidecar is told to quit by plain HTTP alone: "
                        "http://HOST:PORT is needed");
    }
    if (code != SKR_OK)
        skr_error_prefix(error, "SIDECAR_PROXY_URL");
    return code;
}

// POST URL/quitquitquit. Whatever it answers is fine: it was told.
static enum skr_code
tell_sidecar(const char *text, const struct skr_url *url,
             struct skr_error *error)
{
    char port[8];
    snprintf(port, sizeof(port), "%u",
             url->port == 0 ? SIDECAR_PORT : (unsigned)url->port);
    int fd = dial(url->host, port, ANSWER_S);
    bool is_told = fd >= 0 && send_request(fd, text, url->host, port);
    if (fd >= 0)
        close(fd);
    if (is_told)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the sidecar proxy cannot be told to quit; check "
                    "SIDECAR_PROXY_URL");
}

struct errand {
    const struct skr_kafka_relay *relay;
    const struct chore *chore;
    struct skr_errored_rows wanted;
    struct skr_store *table;
    const struct skr_config_transport *outbox;  // of the database at hand
    struct skr_report report;
    uint64_t found;
};

typedef enum skr_code
work_fn(struct errand *errand, struct skr_db *db, struct skr_error *error);

struct chore {
    const char *words[2];
    work_fn *work;
    bool removes;
};

// A row of show; of the others how many there were in a database.
static const struct skr_column errored_columns[] = {
    {"database", "DATABASE", SKR_AS_TEXT},
    {"id", "ID", SKR_AS_INTEGER},
    {"topic", "TOPIC", SKR_AS_TEXT},
    {"attempts", "ATTEMPTS", SKR_AS_INTEGER},
    {"created_at", "CREATED AT", SKR_AS_TEXT},
    {"error", "ERROR", SKR_AS_TEXT},
    {"rows", "ROWS", SKR_AS_INTEGER},
};

static enum skr_code
list_row(const struct skr_errored_row *row, void *user, struct skr_error *error)
{
    struct errand *errand = user;
    struct skr_report *report = &errand->report;
    (void)error;
    if (++errand->found > MOST_LISTED)
        return SKR_OK;
    skr_report_add_row(report);
    skr_report_text(report, "database", errand->outbox->name);
    skr_report_number(report, "id", row->id);
    skr_report_text(report, "topic", row->topic);
    skr_report_number(report, "attempts", row->attempts);
    skr_report_text(report, "created_at", row->created_at);
    skr_report_text(report, "error", row->reason);
    return SKR_OK;
}

// On standard error, so that the list stays one.
static void
say_of_table(const struct errand *errand, const char *text)
{
    fprintf(stderr, "table %s in database %s %s\n", errand->outbox->place.table,
            errand->outbox->name, text);
}

static enum skr_code
show_errored(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    uint64_t before = errand->found;
    enum skr_code code = skr_kafka_outbox_show(
        errand->table, db, &errand->wanted, list_row, errand, error);
    bool is_old = errand->wanted.older_s > 0 || errand->wanted.before != NULL;
    if (code == SKR_OK && errand->found == before)
        say_of_table(errand, is_old ? "has no errored rows that are that old"
                                    : "has no errored rows");
    return code;
}

static enum skr_code
migrate(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    bool is_there = false, is_ours = false;
    enum skr_code code = skr_kafka_outbox_find_maker(
        errand->table, db, &is_there, &is_ours, error);
    if (code == SKR_OK)
        code = skr_store_create(errand->table, db, error);
    if (code == SKR_OK)
        code = skr_complete_table(errand->table, db, error);
    if (code == SKR_OK)
        say_of_table(errand,
                     is_there ? "is there, and lacks nothing" : "is made");
    return code;
}

static enum skr_code
change_errored(struct errand *errand, struct skr_db *db,
               struct skr_error *error)
{
    uint64_t changed = 0;
    enum skr_code code =
        skr_kafka_outbox_change(errand->table, db, &errand->wanted,
                                errand->chore->removes, &changed, error);
    if (code != SKR_OK)
        return code;
    skr_report_add_row(&errand->report);
    skr_report_text(&errand->report, "database", errand->outbox->name);
    skr_report_number(&errand->report, "rows", (int64_t)changed);
    return SKR_OK;
}

static const struct chore chores[] = {
    {{"migrate", ""}, migrate, false},
    {{"errored", "show"}, show_errored, false},
    {{"errored", "retry"}, change_errored, false},
    {{"errored", "remove"}, change_errored, true},
};

// What the words behind kafka-relay ask for; without any there is no chore.
// SKR_INVALID: they mean nothing.
static enum skr_code
read_errand(const struct skr_arguments *given, struct errand *errand,
            struct skr_error *error)
{
    const char *const *words = given->positional;
    size_t count = given->positional_count;
    const char *second = count > 1 ? words[1] : "";
    struct skr_since older = skr_arguments_since(given, "older-than");
    *errand = (struct errand){
        .wanted = {.older_s = older.ago_s, .before = older.at},
        .report = {.columns = SKR_COLUMNS(errored_columns)},
    };
    for (size_t i = 0; count > 0 && i < SKR_COUNT_OF(chores); i++)
        if (strcmp(words[0], chores[i].words[0]) == 0 &&
            strcmp(second, chores[i].words[1]) == 0)
            errand->chore = &chores[i];
    bool is_number = count < 3 || skr_text_number(words[2], 1, INT64_MAX,
                                                  &errand->wanted.id);
    if (errand->chore != NULL && !is_number)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "'%.60s' is no id of a row; `skirnir kafka-relay "
                        "errored show` lists them",
                        words[2]);
    if (count > 0 && errand->chore == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "'%.40s%s%.40s': migrate, errored show [ID], errored "
                        "retry [ID] or errored remove [ID] is needed",
                        words[0], second[0] == '\0' ? "" : " ", second);
    bool has_time = skr_arguments_has(given, "older-than");
    if ((has_time || skr_arguments_has(given, "json")) && count < 2)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--older-than and --json go with errored");
    if (has_time && count > 2)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "ID and --older-than exclude each other");
    return SKR_OK;
}

static enum skr_code
tidy(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    const struct skr_arguments *arguments = &errand->relay->arguments;
    bool optimizes = skr_arguments_is_on(arguments, "optimize") &&
                     !skr_arguments_has(arguments, "dry-run");
    // Asked first, as MariaDB says of a table that is not there that it was
    // optimized.
    enum skr_code code = errand->table->admin->check(errand->table, db, error);
    if (code == SKR_OK && skr_arguments_is_on(arguments, "cleanup"))
        code = clean(errand->relay, errand->outbox, error);
    if (code == SKR_OK && optimizes)
        code = optimize(errand->outbox->place.table, db, error);
    if (code == SKR_OK && optimizes)
        say_of_table(errand, "is optimized");
    return code;
}

// One that fails does not keep the others from being worked.
static enum skr_code
work_on_each(struct errand *errand, work_fn *work, struct skr_error *error)
{
    const struct skr_kafka_relay *relay = errand->relay;
    enum skr_code failed = SKR_OK;
    for (size_t i = 0;
         i < relay->config->database_count && failed != SKR_STOPPED; i++) {
        struct skr_db *db = NULL;
        struct skr_error reason = {0};
        errand->outbox = &relay->config->transports[i];
        enum skr_code code =
            open_database(relay, i, work == migrate, &db, &reason);
        if (code == SKR_OK)
            code = work(errand, db, &reason);
        skr_db_close(db);
        if (code == SKR_OK)
            continue;
        if (failed != SKR_OK)
            fprintf(stderr, "%s\n", error->text);
        skr_error_prefix(&reason, "database %s", errand->outbox->name);
        failed = skr_fail_with(error, &reason);
    }
    return failed;
}

// RUN_CLEANUP and RUN_OPTIMIZE, on every database; then the proxy beside the
// job is told to quit, as it would run for ever.
static enum skr_code
run_jobs(const struct skr_kafka_relay *relay, struct skr_error *error)
{
    const char *sidecar =
        skr_arguments_find(&relay->arguments, "sidecar-proxy-url");
    const struct skr_config *config = relay->config;
    struct skr_url url;
    enum skr_code code = SKR_OK;
    if (sidecar != NULL)
        code = parse_sidecar(sidecar, &url, error);
    if (code != SKR_OK)
        return code;
    struct errand errand = {.relay = relay};
    code = skr_transport_table(config, &config->transports[0], &errand.table,
                               error);
    if (code == SKR_OK)
        code = work_on_each(&errand, tidy, error);
    skr_store_free(errand.table);
    if (sidecar == NULL)
        return code;
    // It is told whatever became of the job, or it would run for ever.
    struct skr_error untold = {0};
    enum skr_code told = tell_sidecar(sidecar, &url, &untold);
    skr_url_fini(&url);
    if (code == SKR_OK && told != SKR_OK)
        *error = untold;
    return code == SKR_OK ? told : code;
}

// Whether rows are to be removed: asks, unless there are none.
static enum skr_code
ask(struct errand *errand, bool *is_wanted, struct skr_error *error)
{
    char question[80];
    if (!isatty(STDIN_FILENO))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is no terminal to ask on; --force removes "
                        "without asking");
    enum skr_code code = work_on_each(errand, show_errored, error);
    uint64_t found = errand->found;
    errand->found = 0;
    skr_report_fini(&errand->report);
    snprintf(question, sizeof(question), "Remove %llu row%s for good?",
             (unsigned long long)found, found == 1 ? "" : "s");
    *is_wanted = code != SKR_OK || found == 0 || skr_ask(question);
    return code;
}

// Also what was done before one of the databases failed.
static enum skr_code
print_errored(const struct errand *errand, struct skr_error *error)
{
    if (skr_arguments_has(&errand->relay->arguments, "json"))
        return skr_report_print_json(&errand->report, error);
    if (skr_report_rows(&errand->report) == 0)
        return SKR_OK;
    enum skr_code code = skr_report_print(
        &errand->report, skr_terminal_width(stdout), 0, stdout, error);
    if (errand->found > MOST_LISTED)
        printf("The first %d of %llu are shown.\n", MOST_LISTED,
               (unsigned long long)errand->found);
    return code;
}

// `errored show|retry|remove [ID]` and `migrate`.
static enum skr_code
tend(struct errand *errand, struct skr_error *error)
{
    const struct skr_config *config = errand->relay->config;
    const struct chore *chore = errand->chore;
    bool is_wanted = true;
    if (errand->wanted.id != 0 && config->database_count > 1)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "row %lld: of which database? Name one by --db-name",
                        (long long)errand->wanted.id);
    enum skr_code code = skr_transport_table(config, &config->transports[0],
                                             &errand->table, error);
    if (code == SKR_OK && chore->removes &&
        !skr_arguments_has(&errand->relay->arguments, "force"))
        code = ask(errand, &is_wanted, error);
    if (code == SKR_OK && !is_wanted) {
        printf("Nothing was removed.\n");
    } else if (code == SKR_OK) {
        code = work_on_each(errand, chore->work, error);
        struct skr_error unprinted = {0};
        enum skr_code printed =
            chore->work == migrate ? SKR_OK : print_errored(errand, &unprinted);
        if (code == SKR_OK && printed != SKR_OK)
            *error = unprinted;
        code = code == SKR_OK ? printed : code;
    }
    skr_report_fini(&errand->report);
    skr_store_free(errand->table);
    return code;
}

static enum skr_code
run_command(struct skr_kafka_relay *relay, struct errand *errand,
            struct skr_error *error)
{
    relay->app.log = skr_output_as_log(&relay->output);
    errand->relay = relay;
    if (errand->chore != NULL)
        return tend(errand, error);
    if (skr_arguments_is_on(&relay->arguments, "cleanup") ||
        skr_arguments_is_on(&relay->arguments, "optimize"))
        return run_jobs(relay, error);
    relay->app.output = &relay->output;
    enum skr_code code = skr_output_start_writer(&relay->output, error);
    if (code == SKR_OK)
        code = run_service(relay, error);
    skr_output_stop_writer(&relay->output);
    return code;
}

enum skr_exit
skr_command_kafka_relay(struct skr_app *app)
{
    struct skr_kafka_relay relay;
    struct errand errand;
    struct skr_error error = {0};
    if (read_errand(app->arguments, &errand, &error) != SKR_OK)
        return skr_app_usage(app, "%s", error.text);
    if (skr_output_start_writer(app->output, &error) != SKR_OK)
        return skr_app_fail(app, &error);
    enum skr_code code = skr_kafka_relay_read(app, &relay, &error);
    if (getenv("NEW_RELIC_ENABLED") != NULL)
        skr_output_say(app->output, SKR_LOG_WARNING,
                       "skirnir kafka-relay: NEW_RELIC_* is "
                       "ignored; /metrics has the numbers");
    if (code == SKR_OK)
        code = run_command(&relay, &errand, &error);
    skr_config_free(relay.config);
    skr_arena_fini(&relay.arena);
    if (code == SKR_OK)
        return SKR_EXIT_OK;
    if (relay.is_usage && !relay.is_missing)
        return skr_app_usage(app, "%s", error.text);
    skr_app_fail(app, &error);
    return relay.is_missing ? SKR_EXIT_MISSING : SKR_EXIT_FAILURE;
}
