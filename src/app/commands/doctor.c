// SPDX-License-Identifier: MIT
// `skirnir doctor`: looks for what is wrong, or will be: in the configuration,
// in databases and tables, at brokers, and with messages that wait. It changes
// nothing.

#include "app/admin/partitions.h"
#include "app/admin/stats.h"
#include "app/app.h"
#include "app/console/terminal.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"
#include "db/sql.h"
#include "message/failure.h"
#include "store/attempt/attempt.h"
#include "store/deduplication/deduplication.h"
#include "store/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEFAULT_AGE_S = 300,
    A_DAY_S = 24 * 3600,
    EVIDENCE_SIZE = 1200,
    MOST_RETRIES = 1000
};

enum check {
    CHECK_CONFIGURATION,
    CHECK_DOUBT,
    CHECK_SYMFONY,
    CHECK_FILE_MODE,
    CHECK_RETENTION,
    CHECK_DATABASE,
    CHECK_SETTINGS,
    CHECK_TRANSACTION,
    CHECK_TRANSACTIONS_HIDDEN,
    CHECK_TABLE,
    CHECK_SHAPE,
    CHECK_INDEX,
    CHECK_RECORDS,
    CHECK_TIME_ZONE,
    CHECK_FOREIGN,
    CHECK_BROKER,
    CHECK_NO_RELAY,
    CHECK_LATE,
    CHECK_NO_CONSUMER,
    CHECK_BLOCKED,
    CHECK_FAILED,
    CHECK_UNREAD,
};

static const struct {
    const char *name, *severity, *why, *cure;
} checks[] = {
    [CHECK_CONFIGURATION] = {"configuration", "error",
                             "no command that needs it starts",
                             "correct the file"},
    [CHECK_DOUBT] = {"configuration-doubt", "warning",
                     "it may not do what is meant", "correct the file"},
    [CHECK_SYMFONY] = {"configuration-symfony", "advice",
                       "Symfony does it, and nothing here",
                       "nothing, where a Symfony worker runs"},
    [CHECK_FILE_MODE] = {"file-mode", "warning",
                         "every user of this machine can read the passwords "
                         "in it",
                         "chmod o-r, or write %env(NAME)% in their place"},
    [CHECK_RETENTION] = {"retention", "warning",
                         "a message whose record is gone is handled again",
                         "raise cleanup.deduplication_days"},
    [CHECK_DATABASE] = {"database", "error", "nothing that uses it can work",
                        "do what the evidence says: start the server, free the "
                        "file, or correct the DSN"},
    [CHECK_SETTINGS] = {"database-settings", "advice", "it would serve better",
                        "skirnir setup --tune"},
    [CHECK_TRANSACTION] = {"transaction", "warning",
                           "ordered messages wait for it, and what is deleted "
                           "keeps its room",
                           "commit it, and find what leaves it open"},
    [CHECK_TRANSACTIONS_HIDDEN] = {"transactions-hidden", "warning",
                                   "the relay of an ordered outbox cannot "
                                   "know which transactions are open",
                                   "GRANT PROCESS ON *.* TO this user"},
    [CHECK_TABLE] = {"table-missing", "error",
                     "those who read or write it fail", "skirnir setup"},
    [CHECK_SHAPE] = {"table-shape", "error",
                     "what reads or writes it fails or does harm",
                     "do what the evidence says, or name another table"},
    [CHECK_INDEX] = {"index-missing", "warning",
                     "each look at the queue reads more than it needs",
                     "skirnir setup"},
    [CHECK_RECORDS] = {"deduplication-missing", "error",
                       "no message can be handled without it",
                       "skirnir setup-deduplication --force"},
    [CHECK_TIME_ZONE] = {"time-zone", "warning",
                         "messages are sent hours late, or too early",
                         "let the application write UTC, or set time_zone of "
                         "the transport"},
    [CHECK_FOREIGN] = {"foreign-rows", "warning",
                       "they are not published from here", NULL},
    [CHECK_BROKER] = {"broker", "error", "nothing is sent there or taken",
                      "start it, or correct the transport"},
    [CHECK_NO_RELAY] = {"no-relay", "error", "messages wait until one runs",
                        NULL},
    [CHECK_LATE] = {"messages-late", "warning",
                    "they come later than they could",
                    "read the log of the relay or consumer: it says what it "
                    "waits for"},
    [CHECK_NO_CONSUMER] = {"no-consumer", "warning",
                           "messages wait until one runs", NULL},
    [CHECK_BLOCKED] = {"partition-blocked", "warning",
                       "later messages of these keys wait behind those that "
                       "failed",
                       "skirnir stats shows them; skirnir partition retry or "
                       "skip lets them go on"},
    [CHECK_FAILED] = {"failed-messages", "warning",
                      "they stay until someone sends them back",
                      "skirnir failed show, and skirnir failed retry"},
    [CHECK_UNREAD] = {"queue-unread", "warning",
                      "no transport takes rows of that queue",
                      "correct queue_name where they are written, or add a "
                      "transport that reads it"},
};

static const struct skr_column finding_columns[] = {
    {"check", SKR_AS_TEXT}, {"severity", SKR_AS_TEXT},
    {"place", SKR_AS_TEXT}, {"evidence", SKR_AS_TEXT},
    {"why", SKR_AS_TEXT},   {"cure", SKR_AS_TEXT},
};

struct doctor {
    const struct skr_app *app;
    const struct skr_config *config;
    struct skr_report findings;
    size_t serious;  // of them
    int64_t age_s;
    const char *place;  // that is looked at
};

// cure NULL: that of the check.
static void find(struct doctor *doctor, enum check check, const char *place,
                 const char *cure, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void
find(struct doctor *doctor, enum check check, const char *place,
     const char *cure, const char *format, ...)
{
    struct skr_report *report = &doctor->findings;
    char evidence[EVIDENCE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(evidence, sizeof(evidence), format, arguments);
    va_end(arguments);
    skr_report_add_row(report);
    skr_report_text(report, "check", checks[check].name);
    skr_report_text(report, "severity", checks[check].severity);
    skr_report_text(report, "place", place);
    skr_report_text(report, "evidence", evidence);
    skr_report_text(report, "why", checks[check].why);
    skr_report_text(report, "cure", cure == NULL ? checks[check].cure : cure);
    doctor->serious += strcmp(checks[check].severity, "advice") != 0;
}

static void
take_report(void *user, enum skr_config_severity severity, const char *path,
            int line, const char *text)
{
    enum check check = CHECK_CONFIGURATION;
    if (severity != SKR_CONFIG_MISTAKE)
        check = skr_text_starts_with(text, "framework") ? CHECK_SYMFONY
                                                        : CHECK_DOUBT;
    char place[300];
    snprintf(place, sizeof(place), line > 0 ? "%.250s:%d" : "%.250s", path,
             line);
    find(user, check, place, NULL, "%s", text);
}

// Whether the text has the DSN with its secret, or its password as DSNs have
// it: a part may stand there as %env()%, or a path as it was before.
static bool
is_secret_in(const char *text, const char *dsn)
{
    struct skr_url url;
    char password[300] = "";
    if (dsn == NULL || !skr_url_has_secret(dsn))
        return false;
    if (skr_url_parse(dsn, &url, NULL) == SKR_OK) {
        if (url.password != NULL)
            snprintf(password, sizeof(password), ":%.290s@", url.password);
        skr_url_fini(&url);
    }
    return strstr(text, dsn) != NULL ||
           (password[0] != '\0' && strstr(text, password) != NULL);
}

static bool
read_file(const char *path, struct skr_text *text)
{
    char piece[4096];
    size_t size;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while ((size = fread(piece, 1, sizeof(piece), file)) > 0)
        skr_text_add(text, piece, size);
    fclose(file);
    return !text->broken && text->size > 0;
}

static void
check_file(struct doctor *doctor)
{
    const struct skr_config *config = doctor->config;
    struct skr_text text = {0};
    struct stat status;
    bool is_secret = false;
    bool is_open = stat(config->path, &status) == 0 &&
                   S_ISREG(status.st_mode) && (status.st_mode & S_IROTH) != 0 &&
                   read_file(config->path, &text);
    for (size_t i = 0; i < config->database_count && is_open; i++)
        is_secret |= is_secret_in(text.bytes, config->databases[i].url);
    for (size_t i = 0; i < config->transport_count && is_open; i++)
        is_secret |= is_secret_in(text.bytes, config->transports[i].dsn);
    if (is_secret)
        find(doctor, CHECK_FILE_MODE, config->path, NULL,
             "its mode is %03o, and it holds a password",
             (unsigned)status.st_mode & 0777);
    skr_text_fini(&text);
}

// What is tried again has its record until the last try.
static void
check_retention(struct doctor *doctor)
{
    const struct skr_config *config = doctor->config;
    int64_t kept_s = (int64_t)config->cleanup.deduplication_days * A_DAY_S;
    if (config->cleanup.interval_s == 0 || !skr_config_consumes(config))
        return;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        const struct skr_retry_policy *retry = &transport->retry;
        int64_t longest_ms = 0;
        for (uint32_t n = 1; n <= retry->max_retries && n <= MOST_RETRIES; n++)
            longest_ms += skr_retry_delay_ms(retry, n, 0);
        if (longest_ms / 1000 > kept_s)
            find(doctor, CHECK_RETENTION, transport->name, NULL,
                 "retries of a message may take %lld days, its record is kept "
                 "for %u",
                 (long long)(longest_ms / 1000 / A_DAY_S),
                 (unsigned)config->cleanup.deduplication_days);
    }
}

static enum skr_code
find_index(const char *sql, void *user, struct skr_error *error)
{
    (void)error;
    struct doctor *doctor = user;
    if (!skr_text_starts_with(sql, "SET "))  // how long it may wait
        find(doctor, CHECK_INDEX, doctor->place, NULL, "setup would run: %s",
             sql);
    return SKR_OK;
}

static void
diagnose(struct doctor *doctor, const struct skr_config_transport *transport,
         const struct skr_store *table, struct skr_db *db)
{
    uint64_t count = 0;
    int hours = 0;
    const char *cure = NULL;
    if (transport->relay_to == NULL)
        return;
    // One that is behind may as well be old.
    if (table->diagnosis->skew(table, db, &hours, NULL) == SKR_OK && hours > 0)
        find(doctor, CHECK_TIME_ZONE, transport->name, NULL,
             "the newest row's time is ahead of the server's by hours: %d",
             hours);
    if (table->diagnosis->foreign(table, db, &count, &cure, NULL) == SKR_OK &&
        count > 0)
        find(doctor, CHECK_FOREIGN, transport->name, cure,
             "%llu rows are not ours to publish", (unsigned long long)count);
}

static void
check_table(struct doctor *doctor, const struct skr_config_transport *transport,
            struct skr_db *db)
{
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    enum skr_code code =
        skr_transport_table(doctor->config, transport, &table, &error);
    if (code == SKR_OK)
        code = table->admin->check(table, db, &error);
    // What is refused was told with the configuration.
    if (code != SKR_OK && code != SKR_REFUSED)
        find(doctor, code == SKR_MISSING ? CHECK_TABLE : CHECK_SHAPE,
             transport->name, NULL, "%s", error.text);
    bool is_ours =
        transport->relay_to != NULL || transport->kind == SKR_TRANSPORT_QUEUE;
    doctor->place = transport->name;
    if (code == SKR_OK && is_ours &&
        table->admin->complete(table, db, find_index, doctor, &error) != SKR_OK)
        find(doctor, CHECK_SHAPE, transport->name, NULL, "%s", error.text);
    if (code == SKR_OK)
        diagnose(doctor, transport, table, db);
    skr_store_free(table);
}

// Where handlers run.
static void
check_records(struct doctor *doctor, struct skr_db *db)
{
    const struct skr_config *config = doctor->config;
    struct skr_deduplication_place place;
    struct skr_error error = {0};
    size_t at = 0;
    while (skr_deduplication_place_next(config, &at, &place)) {
        struct skr_deduplication *table = NULL;
        enum skr_code code =
            skr_deduplication_place_table(config, &place, &table, &error);
        if (code == SKR_OK)
            code = skr_deduplication_check(table, db, &error);
        if (code != SKR_OK)
            find(doctor, code == SKR_MISSING ? CHECK_RECORDS : CHECK_SHAPE,
                 config->inbox_database->name, NULL, "%s", error.text);
        skr_deduplication_free(table);
    }
    if (skr_attempts_check(db, &error) == SKR_MISSING)
        find(doctor, CHECK_RECORDS, config->inbox_database->name, NULL, "%s",
             error.text);
}

static bool
has_ordered(const struct skr_config *config,
            const struct skr_config_database *database)
{
    for (size_t i = 0; i < config->transport_count; i++)
        if (config->transports[i].database == database &&
            skr_ordered_is_meant(&config->transports[i], NULL))
            return true;
    return false;
}

static void
check_transactions(struct doctor *doctor, struct skr_db *db,
                   const struct skr_config_database *database)
{
    const char *sql = skr_sql_word(skr_db_dialect(db), "oldest_transaction_s");
    struct skr_error error = {0};
    int64_t age_s = 0;
    if (sql[0] == '\0')
        return;
    enum skr_code code =
        skr_sql_number(skr_db_tx(db), sql, SKR_NO_VALUES, &age_s, &error);
    if (code == SKR_OK && age_s >= doctor->age_s)
        find(doctor, CHECK_TRANSACTION, database->name, NULL,
             "a transaction has been open for %lld s", (long long)age_s);
    else if (code != SKR_OK && has_ordered(doctor->config, database))
        find(doctor, CHECK_TRANSACTIONS_HIDDEN, database->name, NULL, "%s",
             error.text);
}

static void
check_database(struct doctor *doctor,
               const struct skr_config_database *database)
{
    const struct skr_config *config = doctor->config;
    const struct skr_db_ops *ops = NULL;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    char advice[SKR_ADVICE_SIZE] = "";
    enum skr_code code = skr_transport_database(database, &ops, &error);
    if (code == SKR_OK)
        code = skr_db_open_or_create(ops, database->url, false, &db, &error);
    if (code != SKR_OK) {
        find(doctor, CHECK_DATABASE, database->name,
             code == SKR_MISSING ? "skirnir setup" : NULL, "%s", error.text);
        return;
    }
    if (ops->advise(db, false, advice, &error) == SKR_OK && advice[0] != '\0')
        find(doctor, CHECK_SETTINGS, database->name, NULL, "%s", advice);
    check_transactions(doctor, db, database);
    if (skr_config_consumes(config) && database == config->inbox_database)
        check_records(doctor, db);
    for (size_t i = 0; i < config->transport_count; i++)
        if (skr_transport_has_table(&config->transports[i]) &&
            config->transports[i].database == database)
            check_table(doctor, &config->transports[i], db);
    skr_db_close(db);
}

static void
check_counts(struct doctor *doctor, const struct skr_transport_stats *stats)
{
    const struct skr_config_transport *transport = stats->transport;
    const struct skr_queue_counts *counts = &stats->counts;
    bool is_outbox = transport->relay_to != NULL;
    bool is_late = counts->has_oldest && counts->oldest_s >= doctor->age_s;
    char cure[200];
    snprintf(cure, sizeof(cure), "skirnir %s %.100s",
             is_outbox ? "relay" : "consume", transport->name);
    // The oldest may be behind one that is blocked, which is told of.
    if (!stats->has_counts || counts->due == 0 || !is_late ||
        stats->partitions.blocked_count > 0 ||
        (!is_outbox && transport->kind != SKR_TRANSPORT_QUEUE))
        return;
    // Negative: not known.
    bool is_worked = stats->holder[0] != '\0' || stats->attendance != 0;
    enum check none = is_outbox ? CHECK_NO_RELAY : CHECK_NO_CONSUMER;
    find(doctor, is_worked ? CHECK_LATE : none, transport->name,
         is_worked ? NULL : cure,
         "%llu messages are due, the oldest for %lld s",
         (unsigned long long)counts->due, (long long)counts->oldest_s);
}

static void
check_depth(struct doctor *doctor, const struct skr_transport_stats *stats)
{
    char cure[200];
    snprintf(cure, sizeof(cure), "skirnir consume %.100s",
             stats->transport->name);
    const struct skr_depth *depth = &stats->depth;
    bool is_late = !depth->has_oldest || depth->oldest_s >= doctor->age_s;
    if (stats->has_depth && depth->has_consumers && depth->consumers == 0 &&
        depth->messages > 0 && is_late)
        find(doctor, CHECK_NO_CONSUMER, stats->transport->name, cure,
             "%llu messages wait, and nothing consumes them",
             (unsigned long long)depth->messages);
}

static enum skr_code
check_messages(struct doctor *doctor, struct skr_error *error)
{
    struct skr_stats stats;
    enum skr_code code =
        skr_stats_read(doctor->app, doctor->config, &stats, error);
    if (code != SKR_OK)
        return code;
    skr_unread_find(doctor->app, doctor->config, &stats.silent, &stats.unread);
    for (size_t i = 0; i < stats.count; i++) {
        const struct skr_transport_stats *item = &stats.items[i];
        const char *name = item->transport->name;
        // What is wrong with tables was found before.
        if (item->trouble.code != SKR_OK &&
            !skr_transport_has_table(item->transport))
            find(doctor, CHECK_BROKER, name, NULL, "%s", item->trouble.text);
        check_counts(doctor, item);
        check_depth(doctor, item);
        if (item->partitions.blocked_count > 0)
            find(doctor, CHECK_BLOCKED, name, NULL,
                 "%zu%s partitions are blocked", item->partitions.blocked_count,
                 item->partitions.has_more ? " or more" : "");
    }
    if (stats.failed > 0)
        find(doctor, CHECK_FAILED, "failed messages", NULL, "there are %llu",
             (unsigned long long)stats.failed);
    for (size_t i = 0; i < skr_report_rows(&stats.unread); i++)
        find(doctor, CHECK_UNREAD,
             skr_report_find(&stats.unread, i, "table")->text, NULL,
             "queue '%s' has rows",
             skr_report_find(&stats.unread, i, "queue")->text);
    skr_stats_fini(&stats);
    return SKR_OK;
}

static void
print_line(const char *word, const char *text)
{
    printf("  %-9s ", word);
    skr_print_plain(text, strlen(text), false, stdout);
    printf("\n");
}

static void
print_findings(const struct doctor *doctor, const char *path)
{
    const struct skr_report *findings = &doctor->findings;
    for (size_t i = 0; i < skr_report_rows(findings); i++) {
        static const char *const lines[] = {"evidence", "why", "cure"};
        printf("%s: %s: ", skr_report_find(findings, i, "severity")->text,
               skr_report_find(findings, i, "check")->text);
        const char *place = skr_report_find(findings, i, "place")->text;
        skr_print_plain(place, strlen(place), false, stdout);
        printf("\n");
        for (size_t k = 0; k < SKR_COUNT_OF(lines); k++)
            print_line(lines[k], skr_report_find(findings, i, lines[k])->text);
    }
    if (skr_report_rows(findings) == 0)
        printf("%s: nothing found\n", path);
}

enum skr_exit
skr_command_doctor(struct skr_app *app)
{
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    struct doctor doctor = {
        .app = app,
        .findings = {.columns = SKR_COLUMNS(finding_columns)},
        .age_s = skr_arguments_number(app->arguments, "age", DEFAULT_AGE_S),
    };
    const struct skr_config_listener listener = {take_report, &doctor};
    enum skr_code code =
        skr_config_load(skr_arguments_find(app->arguments, "config"), listener,
                        &config, &error);
    bool is_loaded = code == SKR_OK;
    doctor.config = config;
    if (is_loaded) {
        skr_app_check(config, listener);
        check_file(&doctor);
        check_retention(&doctor);
        for (size_t i = 0; i < config->database_count; i++)
            check_database(&doctor, &config->databases[i]);
        code = check_messages(&doctor, &error);
    }
    if ((is_loaded || doctor.serious > 0) && code != SKR_NO_MEMORY) {
        if (skr_arguments_has(app->arguments, "json"))
            code = skr_report_print_json(&doctor.findings, &error);
        else
            print_findings(&doctor, is_loaded ? config->path : "");
    }
    skr_report_fini(&doctor.findings);
    skr_config_free(config);
    if (code != SKR_OK && is_loaded)
        return skr_app_fail(app, &error);
    return doctor.serious > 0 ? SKR_EXIT_FAILURE : SKR_EXIT_OK;
}
