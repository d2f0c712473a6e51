// SPDX-License-Identifier: MIT
// What runs once and ends: cleaning up, and a look at what failed.

#include "app/commands/kafka_relay.h"
#include "app/console/progress.h"
#include "app/parts/cleaner.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "db/sql.h"
#include "table/kafka_outbox/kafka_outbox.h"
#include "table/schema.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CLEAN_AGE_S = 3600,
    SIDECAR_PORT = 80,
    ANSWER_S = 5,
    OPEN_TRIES = 30,
    OPEN_PAUSE_MS = 1000,
};

enum skr_code
skr_kafka_relay_table(const struct skr_kafka_relay_settings *settings,
                      bool marks, struct skr_table **table,
                      struct skr_error *error)
{
    return skr_kafka_outbox_new(
        &(struct skr_kafka_outbox_options){
            .dialect = settings->database->tx->dialect,
            .table = settings->table,
            .marks = marks,
            .takes_over = settings->takes_over,
        },
        table, error);
}

enum skr_code
skr_kafka_relay_open(const struct skr_kafka_relay_settings *settings,
                     size_t index, bool creates, struct skr_db **db,
                     struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        code = skr_db_open_or_create(settings->database, settings->urls[index],
                                     creates, db, error);
        if (code == SKR_OK || error->remedy == SKR_GIVE_UP)
            break;
        skr_clock_sleep(-1, OPEN_PAUSE_MS);
    }
    return code;
}

static enum skr_code
optimize(const struct skr_kafka_relay_settings *settings, struct skr_db *db,
         struct skr_error *error)
{
    const struct skr_word words[] = {{"table", settings->table}};
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, "{optimize_table}", words, 1);
    enum skr_code code =
        sql == NULL ? skr_fail_memory(error)
                    : skr_tx_run(skr_db_tx(db),
                                 &(struct skr_statement){.sql = sql}, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
clean(const struct skr_kafka_relay_settings *settings,
      const struct skr_table *table, struct skr_db *db, struct skr_error *error)
{
    struct skr_progress progress;
    uint64_t removed = 0;
    struct skr_cleaning cleaning =
        skr_cleaner_shown_pace(&progress, CLEAN_AGE_S);
    cleaning.dry_run = settings->dry_run;
    skr_progress_begin(&progress, 0, 0);
    enum skr_code code = skr_cleaner_take_turn(db, &cleaning, error);
    if (code == SKR_OK)
        code = skr_kafka_outbox_clean(table, &cleaning, db, &removed, error);
    skr_progress_end(&progress);
    if (code == SKR_OK || removed > 0)
        printf("%s %llu published outbox records\n",
               settings->dry_run ? "would delete" : "deleted",
               (unsigned long long)removed);
    return code;
}

static enum skr_code
run_on(const struct skr_kafka_relay_settings *settings,
       const struct skr_table *table, size_t index, struct skr_error *error)
{
    struct skr_db *db = NULL;
    enum skr_code code =
        skr_kafka_relay_open(settings, index, false, &db, error);
    // Asked first, as MariaDB says of a table that is not there that it was
    // optimized.
    if (code == SKR_OK)
        code = table->ops->check(table, db, error);
    if (code == SKR_OK && settings->cleans)
        code = clean(settings, table, db, error);
    if (code == SKR_OK && settings->optimizes && !settings->dry_run)
        code = optimize(settings, db, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "database %s", settings->names[index]);
    skr_db_close(db);
    return code;
}

void
skr_kafka_relay_clean(struct skr_cleaner *cleaner, const void *user)
{
    const struct skr_kafka_relay_settings *settings = user;
    const struct skr_cleaning cleaning = skr_cleaner_pace(cleaner, CLEAN_AGE_S);
    struct skr_error error = {0};
    struct skr_table *table = NULL;
    enum skr_code code = skr_kafka_relay_table(settings, true, &table, &error);
    for (size_t i = 0;
         i < settings->database_count && !skr_cleaner_is_stopped(cleaner);
         i++) {
        struct skr_db *db = NULL;
        uint64_t removed = 0;
        if (table != NULL)
            code =
                skr_db_open(settings->database, settings->urls[i], &db, &error);
        if (code == SKR_OK)
            code = skr_cleaner_take_turn(db, &cleaning, &error);
        if (code == SKR_OK)
            code =
                skr_kafka_outbox_clean(table, &cleaning, db, &removed, &error);
        skr_db_close(db);
        skr_cleaner_say(cleaner, settings->names[i], code, removed, &error);
    }
    skr_table_free(table);
}

static enum skr_code
send_request(int fd, const char *host, const char *path)
{
    struct skr_text request = {0};
    char answer[16];
    skr_text_add_format(&request,
                        "POST %s/quitquitquit HTTP/1.1\r\nHost: %s\r\n"
                        "Content-Type: text/plain\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n",
                        path, host);
    bool ok = !request.broken &&
              write(fd, request.bytes, request.size) == (ssize_t)request.size &&
              read(fd, answer, sizeof(answer)) > 0;
    skr_text_fini(&request);
    return ok ? SKR_OK : SKR_UNAVAILABLE;
}

// Whatever it answers is fine: it was told.
static enum skr_code
tell_sidecar(const char *text, struct skr_error *error)
{
    struct skr_url url;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const struct timeval patience = {.tv_sec = ANSWER_S};
    char port[8];
    enum skr_code code = skr_url_parse(text, &url, error);
    if (code != SKR_OK)
        return code;
    snprintf(port, sizeof(port), "%u",
             url.port == 0 ? SIDECAR_PORT : (unsigned)url.port);
    int fd = -1;
    code = SKR_UNAVAILABLE;
    if (url.host != NULL && getaddrinfo(url.host, port, &hints, &found) == 0)
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        if (connect(fd, found->ai_addr, found->ai_addrlen) == 0)
            code = send_request(fd, url.host, "");
        close(fd);
    }
    if (found != NULL)
        freeaddrinfo(found);
    skr_url_fini(&url);
    if (code == SKR_OK)
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "the sidecar proxy cannot be told to quit; check "
                    "SIDECAR_PROXY_URL");
}

enum skr_code
skr_kafka_relay_run_jobs(const struct skr_kafka_relay_settings *settings,
                         struct skr_error *error)
{
    struct skr_table *table = NULL;
    enum skr_code code = skr_kafka_relay_table(settings, true, &table, error);
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++)
        code = run_on(settings, table, i, error);
    skr_table_free(table);
    // It is told whatever became of the job, or it would run for ever.
    struct skr_error untold = {0};
    enum skr_code told = settings->sidecar_url == NULL
                             ? SKR_OK
                             : tell_sidecar(settings->sidecar_url, &untold);
    if (code == SKR_OK && told != SKR_OK)
        *error = untold;
    return code == SKR_OK ? told : code;
}

static enum skr_code
print_row(int64_t row, const char *topic, const char *reason, int64_t attempts,
          void *user, struct skr_error *error)
{
    (void)user;
    (void)error;
    printf("%lld\t%s\t%lld\t%s\n", (long long)row, topic, (long long)attempts,
           reason);
    return SKR_OK;
}

static enum skr_code
add_to_table(const char *sql, void *user, struct skr_error *error)
{
    printf("%s\n", sql);
    return skr_schema_run(sql, user, error);
}

static enum skr_code
migrate(const struct skr_table *table, struct skr_db *db,
        struct skr_error *error)
{
    enum skr_code code = skr_table_create(table, db, error);
    if (code == SKR_OK)
        code = table->ops->complete(table, db, add_to_table, db, error);
    return code;
}

enum chore { CHORE_MIGRATE, CHORE_SHOW, CHORE_RETRY, CHORE_REMOVE };

static enum skr_code
work_on(const struct skr_table *table, struct skr_db *db, enum chore chore,
        int64_t row, struct skr_error *error)
{
    uint64_t changed = 0;
    enum skr_code code = SKR_OK;
    switch (chore) {
    case CHORE_MIGRATE: return migrate(table, db, error);
    case CHORE_SHOW:
        return skr_kafka_outbox_show(table, db, print_row, NULL, error);
    case CHORE_RETRY:
        code = skr_kafka_outbox_retry(table, db, row, &changed, error);
        break;
    case CHORE_REMOVE:
        code = skr_kafka_outbox_remove(table, db, row, &changed, error);
        break;
    }
    if (code == SKR_OK)
        printf("%llu rows\n", (unsigned long long)changed);
    return code;
}

static enum skr_code
read_chore(const struct skr_arguments *arguments, enum chore *chore,
           int64_t *row, struct skr_error *error)
{
    static const char *const words[] = {[CHORE_SHOW] = "show",
                                        [CHORE_RETRY] = "retry",
                                        [CHORE_REMOVE] = "remove"};
    size_t count = arguments->positional_count;
    const char *const *given = arguments->positional;
    *row = 0;
    *chore = CHORE_MIGRATE;
    if (count == 1 && strcmp(given[0], "migrate") == 0)
        return SKR_OK;
    for (size_t i = CHORE_SHOW; i < SKR_COUNT_OF(words) && count > 1; i++)
        if (strcmp(given[0], "errored") == 0 && strcmp(given[1], words[i]) == 0)
            *chore = (enum chore)i;
    bool is_row = count < 3 || skr_text_number(given[2], 1, INT64_MAX, row);
    if (*chore != CHORE_MIGRATE && is_row)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "migrate, errored show, errored retry [ID] or errored "
                    "remove [ID] is needed");
}

enum skr_code
skr_kafka_relay_tend(const struct skr_kafka_relay_settings *settings,
                     const struct skr_arguments *arguments,
                     struct skr_error *error)
{
    enum chore chore;
    int64_t row;
    struct skr_table *table = NULL;
    enum skr_code code = read_chore(arguments, &chore, &row, error);
    if (code == SKR_OK && row != 0 && settings->database_count > 1)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "row %lld: of which database? Name one by --db-name",
                        (long long)row);
    if (code == SKR_OK)
        code = skr_kafka_relay_table(settings, true, &table, error);
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++) {
        struct skr_db *db = NULL;
        code = skr_kafka_relay_open(settings, i, chore == CHORE_MIGRATE, &db,
                                    error);
        if (code == SKR_OK)
            code = work_on(table, db, chore, row, error);
        if (code != SKR_OK)
            skr_error_prefix(error, "database %s", settings->names[i]);
        skr_db_close(db);
    }
    skr_table_free(table);
    return code;
}
