// SPDX-License-Identifier: MIT
#include "faulty_database.h"

#include "base/error.h"

#include <pthread.h>
#include <string.h>

static const struct skr_db_ops *real;
static struct skr_db_ops ops;
static struct skr_lock_ops locks;
static struct skr_tx_ops tx_ops;

// Guards what follows: brokers have threads.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct skr_fault fault;
static size_t failures, opened, closed, runs;

bool
skr_faulty_begins(const char *sql, const char *start)
{
    while (*start != '\0') {
        sql += strspn(sql, "\"`");
        if (*sql != *start)
            return false;
        sql++;
        start++;
    }
    return true;
}

static bool
strikes(enum skr_faulty_call call, const char *sql)
{
    bool struck = false;
    pthread_mutex_lock(&mutex);
    if (fault.count > 0 && fault.call == call &&
        (sql == NULL || skr_faulty_begins(sql, fault.sql))) {
        struck = fault.after == 0;
        if (struck) {
            fault.count--;
            failures++;
        } else {
            fault.after--;
        }
    }
    pthread_mutex_unlock(&mutex);
    return struck;
}

static enum skr_code
fail(struct skr_error *error)
{
    pthread_mutex_lock(&mutex);
    enum skr_code code = fault.code;
    enum skr_remedy remedy = fault.remedy;
    pthread_mutex_unlock(&mutex);
    skr_fail(error, code, remedy, "the test wants this to fail");
    skr_error_set_native(error, "test");
    return code;
}

static bool is_cluster;

void
skr_faulty_cluster(void)
{
    is_cluster = true;
}

static bool refuses_locks;

void
skr_faulty_refuse_locks(void)
{
    refuses_locks = true;
}

static enum skr_code
faulty_try_lock(struct skr_db *db, struct skr_lock_attempt *attempt,
                struct skr_error *error)
{
    if (refuses_locks)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "the test wants no lock to be relied on");
    return real->locks->try_lock(db, attempt, error);
}

static enum skr_code
faulty_open(struct skr_db *db, const struct skr_url *url,
            struct skr_error *error)
{
    pthread_mutex_lock(&mutex);
    opened++;
    pthread_mutex_unlock(&mutex);
    enum skr_code code = real->open(db, url, error);
    if (is_cluster)
        db->is_cluster = true;
    return code;
}

static void
faulty_close(struct skr_db *db)
{
    pthread_mutex_lock(&mutex);
    closed++;
    pthread_mutex_unlock(&mutex);
    real->close(db);
}

static void
count_run(void)
{
    pthread_mutex_lock(&mutex);
    runs++;
    pthread_mutex_unlock(&mutex);
}

static enum skr_code
faulty_begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error)
{
    count_run();
    if (mode != SKR_BEGIN_SNAPSHOT && strikes(SKR_FAULTY_BEGIN, NULL))
        return fail(error);
    return real->begin(db, mode, error);
}

static enum skr_code
faulty_commit(struct skr_db *db, struct skr_error *error)
{
    if (strikes(SKR_FAULTY_UNCLEAR_COMMIT, NULL)) {
        enum skr_code code = real->commit(db, error);
        return code == SKR_OK ? fail(error) : code;
    }
    if (!strikes(SKR_FAULTY_COMMIT, NULL))
        return real->commit(db, error);
    real->rollback(db);
    return fail(error);
}

static skr_faulty_watch_fn *watch;
static void *watch_user;

void
skr_faulty_watch(skr_faulty_watch_fn *wanted, void *user)
{
    watch = wanted;
    watch_user = user;
}

static const struct skr_faulty_answer *answers;
static size_t answer_count;

void
skr_faulty_answer(const struct skr_faulty_answer *wanted, size_t count)
{
    pthread_mutex_lock(&mutex);
    answers = wanted;
    answer_count = wanted == NULL ? 0 : count;
    pthread_mutex_unlock(&mutex);
}

static const struct skr_faulty_answer *
find_answer(const char *sql)
{
    const struct skr_faulty_answer *found = NULL;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < answer_count && found == NULL; i++)
        if (strncmp(sql, answers[i].sql, strlen(answers[i].sql)) == 0)
            found = &answers[i];
    pthread_mutex_unlock(&mutex);
    return found;
}

static enum skr_code
faulty_run(struct skr_tx tx, const struct skr_statement *statement,
           struct skr_error *error)
{
    count_run();
    if (watch != NULL)
        watch((struct skr_tx){.ops = real->tx, .connection = tx.connection},
              statement, watch_user);
    if (strikes(SKR_FAULTY_RUN, statement->sql))
        return fail(error);
    const struct skr_faulty_answer *answer = find_answer(statement->sql);
    if (answer != NULL && statement->each_row != NULL)
        return statement->each_row(answer->columns, answer->count,
                                   statement->user, error);
    return real->tx->run(tx, statement, error);
}

const struct skr_db_ops *
skr_faulty_database(const struct skr_db_ops *wrapped)
{
    real = wrapped;
    ops = *wrapped;
    tx_ops = *wrapped->tx;
    tx_ops.run = faulty_run;
    ops.tx = &tx_ops;
    ops.open = faulty_open;
    ops.close = faulty_close;
    ops.begin = faulty_begin;
    ops.commit = faulty_commit;
    locks = *wrapped->locks;
    locks.try_lock = faulty_try_lock;
    ops.locks = &locks;
    fault = (struct skr_fault){0};
    answer_count = 0;
    is_cluster = false;
    refuses_locks = false;
    failures = opened = closed = runs = 0;
    return &ops;
}

void
skr_faulty_set(const struct skr_fault *wanted)
{
    pthread_mutex_lock(&mutex);
    fault = wanted == NULL ? (struct skr_fault){0} : *wanted;
    failures = 0;
    pthread_mutex_unlock(&mutex);
}

static size_t
ask(const size_t *counter)
{
    pthread_mutex_lock(&mutex);
    size_t value = *counter;
    pthread_mutex_unlock(&mutex);
    return value;
}

size_t
skr_faulty_failures(void)
{
    return ask(&failures);
}

size_t
skr_faulty_runs(void)
{
    return ask(&runs);
}

size_t
skr_faulty_opened(void)
{
    return ask(&opened);
}

size_t
skr_faulty_open(void)
{
    return ask(&opened) - ask(&closed);
}
