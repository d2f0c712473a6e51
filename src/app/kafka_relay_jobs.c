// SPDX-License-Identifier: MIT
// What runs once and ends: cleaning up, and a look at what failed.

#include "app/kafka_relay.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "db/sql.h"
#include "table/kafka_outbox/kafka_outbox.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLEAN_AGE_S = 3600, SIDECAR_PORT = 80, ANSWER_S = 5 };

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
run_on(const struct skr_kafka_relay_settings *settings,
       const struct skr_table *table, size_t index, struct skr_error *error)
{
    struct skr_db *db = NULL;
    uint64_t removed = 0;
    enum skr_code code =
        skr_db_open(settings->database, settings->urls[index], &db, error);
    if (code == SKR_OK && settings->cleans) {
        code = skr_kafka_outbox_clean(table, db, CLEAN_AGE_S, &removed, error);
        if (code == SKR_OK)
            printf("deleted %llu published outbox records\n",
                   (unsigned long long)removed);
    }
    if (code == SKR_OK && settings->optimizes)
        code = optimize(settings, db, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "database %s", settings->names[index]);
    skr_db_close(db);
    return code;
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
work_on(const struct skr_kafka_relay_settings *settings,
        const struct skr_table *table, const char *word, int64_t row,
        size_t index, struct skr_error *error)
{
    struct skr_db *db = NULL;
    uint64_t changed = 0;
    enum skr_code code =
        skr_db_open(settings->database, settings->urls[index], &db, error);
    if (code == SKR_OK && strcmp(word, "show") == 0)
        code = skr_kafka_outbox_show(table, db, print_row, NULL, error);
    else if (code == SKR_OK && strcmp(word, "retry") == 0)
        code = skr_kafka_outbox_retry(table, db, row, &changed, error);
    else if (code == SKR_OK)
        code = skr_kafka_outbox_remove(table, db, row, &changed, error);
    skr_db_close(db);
    if (code == SKR_OK && strcmp(word, "show") != 0)
        printf("%llu rows\n", (unsigned long long)changed);
    return code;
}

enum skr_code
skr_kafka_relay_errored(const struct skr_kafka_relay_settings *settings,
                        const struct skr_arguments *arguments,
                        struct skr_error *error)
{
    const char *word =
        arguments->positional_count > 1 ? arguments->positional[1] : "";
    bool has_row = arguments->positional_count > 2;
    int64_t row = 0;
    struct skr_table *table = NULL;
    if (strcmp(arguments->positional[0], "errored") != 0 ||
        (strcmp(word, "show") != 0 && strcmp(word, "retry") != 0 &&
         strcmp(word, "remove") != 0) ||
        (has_row &&
         !skr_text_number(arguments->positional[2], 1, INT64_MAX, &row)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "errored show, errored retry [ID] or errored remove "
                        "[ID] is needed");
    enum skr_code code = skr_kafka_relay_table(settings, true, &table, error);
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++)
        code = work_on(settings, table, word, row, i, error);
    skr_table_free(table);
    return code;
}
