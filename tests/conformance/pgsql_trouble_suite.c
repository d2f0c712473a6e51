// SPDX-License-Identifier: MIT
// The PostgreSQL driver: connecting, waiting and locks when things go wrong.

#include "pgsql_world.h"

#include "store/messenger/messenger.h"

#include <netinet/in.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

// -------------------------------------------------------------- connecting

static void
test_refusals_to_connect_have_their_codes(void **state)
{
    struct world *world = *state;
    run_client(world->server, "CREATE ROLE skirnir_locked_out NOLOGIN");
    const struct {
        const char *format;
        enum skr_code code;
        enum skr_remedy remedy;
        const char *native;
        const char *words;
    } cases[] = {
        {"pgsql://nobody:hunter2@127.0.0.1:%s/%s", SKR_REFUSED, SKR_GIVE_UP,
         "28000", "\"nobody\""},
        {"pgsql://skirnir_locked_out:hunter2@127.0.0.1:%s/%s", SKR_REFUSED,
         SKR_GIVE_UP, "28000", "pg_hba.conf"},
        {"pgsql://postgres:hunter2@127.0.0.1:%s/no_such_%s", SKR_REFUSED,
         SKR_GIVE_UP, "3D000", "create the database"},
        // Not one of the names of this machine that are known to be.
        {"pgsql://postgres:hunter2@0.0.0.0:%s/%s", SKR_UNAVAILABLE,
         SKR_RECONNECT, "", "verify-full"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_db *db = NULL;
        struct skr_error error = {0};
        char url[URL_SIZE];
        // The formats are those above.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(url, sizeof(url), cases[i].format, world->port, world->name);
#pragma GCC diagnostic pop
        assert_int_equal(skr_db_open(&skr_pgsql_db, url, &db, &error),
                         cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        assert_string_equal(error.native, cases[i].native);
        if (strstr(error.text, cases[i].words) == NULL)
            fail_msg("%s: %s", url, error.text);
        assert_null(strstr(error.text, "hunter2"));
        assert_non_null(strstr(error.text, world->port));
    }
    run_client(world->server, "DROP ROLE skirnir_locked_out");
}

static void
test_certificates_are_verified(void **state)
{
    struct world *world = *state;
    const char *folder = getenv("SKR_POSTGRESQL_CERTIFICATES");
    if (folder == NULL)
        return;
    static const char in_use[] =
        "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    char url[URL_SIZE];
    snprintf(url, sizeof(url),
             "pgsql://postgres@localhost:%s/%s?sslmode=verify-full&"
             "sslrootcert=%s/authority.pem",
             world->port, world->name, folder);
    db = open_db(url);
    skr_test_assert_text(db, in_use, "1");
    skr_db_close(db);
    // By default where the host is not known to be this machine.
    snprintf(url, sizeof(url),
             "pgsql://postgres@0.0.0.0:%s/%s?sslrootcert=%s/authority.pem",
             world->port, world->name, folder);
    assert_int_equal(skr_db_open(&skr_pgsql_db, url, &db, &error),
                     SKR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "0.0.0.0"));
    assert_non_null(strstr(error.text, "verify-full"));
    // No authority of this machine vouches for the tests' own.
    snprintf(url, sizeof(url), "pgsql://postgres@0.0.0.0:%s/%s", world->port,
             world->name);
    assert_int_equal(skr_db_open(&skr_pgsql_db, url, &db, &error),
                     SKR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "certificate"));
}

// What PostgreSQL says without TLS to each client that asks for it.
static void *
refuse_tls(void *user)
{
    const int *listener = user;
    char request[8];
    int client;
    while ((client = accept(*listener, NULL, NULL)) >= 0) {
        if (recv(client, request, sizeof(request), MSG_WAITALL) > 0)
            assert_int_equal(send(client, "N", 1, MSG_NOSIGNAL), 1);
        close(client);
    }
    return NULL;
}

static void
test_a_server_without_tls_is_not_talked_to_in_plaintext(void **state)
{
    (void)state;
    static const char *const modes[] = {"require", "verify-ca", "verify-full"};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    pthread_t thread;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size),
                     0);
    assert_int_equal(pthread_create(&thread, NULL, refuse_tls, &listener), 0);
    for (size_t i = 0; i < SKR_COUNT_OF(modes); i++) {
        struct skr_db *db = NULL;
        struct skr_error error = {0};
        char url[URL_SIZE], port[8];
        snprintf(port, sizeof(port), "%u", ntohs(address.sin_port));
        snprintf(url, sizeof(url), "pgsql://postgres@127.0.0.1:%s/a?sslmode=%s",
                 port, modes[i]);
        assert_int_not_equal(skr_db_open(&skr_pgsql_db, url, &db, &error),
                             SKR_OK);
        if (strstr(error.text, "offers no TLS") == NULL ||
            strstr(error.text, port) == NULL)
            fail_msg("%s", error.text);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
}

// libpq goes to PGHOSTADDR, whatever the host is called.
static void
test_a_host_is_elsewhere_if_the_environment_says_so(void **state)
{
    struct world *world = *state;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    char url[URL_SIZE];
    snprintf(url, sizeof(url), "pgsql://postgres@localhost:%s/%s", world->port,
             world->name);
    setenv("PGHOSTADDR", "0.0.0.0", 1);
    enum skr_code code = skr_db_open(&skr_pgsql_db, url, &db, &error);
    unsetenv("PGHOSTADDR");
    skr_db_close(db);
    assert_int_not_equal(code, SKR_OK);
    if (strstr(error.text, "SSL") == NULL)
        fail_msg("%s", error.text);
    setenv("PGHOSTADDR", "127.0.0.1", 1);
    code = skr_db_open(&skr_pgsql_db, url, &db, &error);
    unsetenv("PGHOSTADDR");
    assert_int_equal(code, SKR_OK);
    skr_db_close(db);
}

static void
test_a_server_that_is_not_there_is_unavailable(void **state)
{
    (void)state;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    assert_int_equal(skr_db_open(&skr_pgsql_db,
                                 "pgsql://u:hunter2@127.0.0.1:1/shop", &db,
                                 &error),
                     SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "127.0.0.1:1/shop"));
    assert_null(strstr(error.text, "hunter2"));
}

static void
test_the_next_server_of_several_is_tried(void **state)
{
    struct world *world = *state;
    char url[URL_SIZE];
    snprintf(url, sizeof(url),
             "postgresql://postgres@127.0.0.1:1,[::1]:1,127.0.0.1:%s/%s",
             world->port, world->name);
    struct skr_db *db = open_db(url);
    skr_test_assert_text(db, "SELECT 7", "7");
    skr_db_close(db);
}

static void
test_the_right_that_is_missing_is_named(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    char url[URL_SIZE];
    run_client(world->client, "CREATE TABLE thing (id BIGINT)");
    run_client(world->client, "CREATE ROLE skirnir_reader LOGIN");
    run_client(world->client, "GRANT SELECT ON thing TO skirnir_reader");
    snprintf(url, sizeof(url), "pgsql://skirnir_reader@127.0.0.1:%s/%s",
             world->port, world->name);
    struct skr_db *db = open_db(url);
    assert_int_equal(run(db, "INSERT INTO thing VALUES (1)", &error),
                     SKR_REFUSED);
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    assert_non_null(strstr(error.text, "thing"));
    assert_non_null(strstr(error.text, "INSERT to user skirnir_reader"));
    assert_int_equal(run(db, "CREATE TABLE other (id BIGINT)", &error),
                     SKR_REFUSED);
    assert_non_null(strstr(error.text, "CREATE to user skirnir_reader"));
    skr_db_close(db);
    run_client(world->client, "DROP OWNED BY skirnir_reader");
    run_client(world->client, "DROP ROLE skirnir_reader");
}

// ------------------------------------------------------------------ waiting

struct later {
    PGconn *server;
    char sql[100];
};

static void *
run_later(void *user)
{
    struct later *later = user;
    skr_clock_sleep(-1, 100);
    PQclear(PQexec(later->server, later->sql));
    return NULL;
}

// Waits until there is nothing more to look at in the next moment.
static void
let_grow_quiet(struct skr_db *db)
{
    for (int i = 0; i < 20 && db->ops->wait(db, -1, 15, NULL) == SKR_OK; i++)
        ;
}

static void
test_the_end_of_the_connection_ends_the_wait(void **state)
{
    struct world *world = *state;
    struct later later = {.server = world->server};
    snprintf(later.sql, sizeof(later.sql), "SELECT pg_terminate_backend(%d)",
             PQbackendPID(skr_pgsql_connection(skr_db_tx(world->db))));
    let_grow_quiet(world->db);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_later, &later), 0);
    struct skr_error error = {0};
    int64_t start_ms = skr_clock_ms();
    enum skr_code code;
    do
        code = world->db->ops->wait(world->db, -1, 30000, &error);
    while (code == SKR_OK);
    assert_int_equal(code, SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_true(skr_clock_ms() - start_ms < 10000);
    pthread_join(thread, NULL);
}

static void
test_a_notification_ends_the_wait(void **state)
{
    struct world *world = *state;
    struct later later = {.server = world->client, .sql = "NOTIFY news"};
    skr_test_run(world->db, "LISTEN news");
    let_grow_quiet(world->db);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_later, &later), 0);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(world->db->ops->wait(world->db, -1, 30000, NULL), SKR_OK);
    assert_true(skr_clock_ms() - start_ms < 10000);
    pthread_join(thread, NULL);
}

// --------------------------------------------------------------------- lock

static bool
try_lock(struct skr_db *db, uint32_t timeout_ms)
{
    struct skr_error error = {0};
    if (skr_db_lock(db, "relay", SKR_LOCK_ALONE, -1, timeout_ms, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
    return db->holds_lock;
}

static void
test_only_the_holder_of_a_lock_has_little_time(void **state)
{
    struct world *world = *state;
    struct skr_db *other = open_db(world->database.url);
    assert_true(try_lock(world->db, 0));
    assert_false(try_lock(other, 0));
    skr_test_assert_text(world->db, "SHOW idle_session_timeout", "15s");
    skr_test_assert_text(world->db, "SHOW idle_in_transaction_session_timeout",
                         "15s");
    skr_test_assert_text(other, "SHOW idle_session_timeout", "0");
    skr_db_unlock(world->db);
    skr_test_assert_text(world->db, "SHOW idle_session_timeout", "0");
    assert_true(try_lock(other, 0));
    skr_db_close(other);
}

static void
test_a_lock_outlives_a_transaction_that_failed(void **state)
{
    struct world *world = *state;
    struct skr_db *other = open_db(world->database.url);
    assert_true(try_lock(world->db, 0));
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(run(world->db, "SELECT 1 / 0", NULL), SKR_INVALID);
    skr_db_rollback(world->db);
    assert_int_equal(skr_db_check_lock(world->db, NULL), SKR_OK);
    assert_false(try_lock(other, 0));
    // And is given back from within one.
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(run(world->db, "SELECT 1 / 0", NULL), SKR_INVALID);
    skr_db_unlock(world->db);
    assert_true(try_lock(other, 0));
    skr_db_close(other);
}

// A child that holds the lock and is stopped; returns once it is.
static pid_t
freeze_holder(const struct world *world)
{
    pid_t child = fork();
    if (child == 0) {
        struct skr_db *db = open_db(world->database.url);
        if (try_lock(db, 10000))
            raise(SIGSTOP);
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    return child;
}

static void
test_a_frozen_holder_loses_the_lock_in_time(void **state)
{
    struct world *world = *state;
    pid_t child = freeze_holder(world);
    int64_t start_ms = skr_clock_ms();
    assert_false(try_lock(world->db, 0));
    bool granted = try_lock(world->db, 20000);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(granted);
    assert_true(skr_clock_ms() - start_ms > 10000);
}

// ------------------------------------------------------------------- pooler

struct pooler {
    pid_t process;
    char url[URL_SIZE];
};

static bool
is_reachable(void *user)
{
    struct skr_db *db = NULL;
    const struct pooler *pooler = user;
    bool opened = skr_db_open(&skr_pgsql_db, pooler->url, &db, NULL) == SKR_OK;
    skr_db_close(db);
    return opened;
}

// PgBouncer in front of the server. Where it is not installed the test is
// skipped.
static void
start_pooler(const struct world *world, const char *mode, struct pooler *pooler)
{
    static const char program[] = "/usr/sbin/pgbouncer";
    if (access(program, X_OK) != 0) {
        print_message("%s is not installed\n", program);
        skip();
    }
    // A port that is free at the moment.
    int port = 20000 + (int)(getpid() % 20000);
    char path[100];
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", world->database.folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "[databases]\n* = host=127.0.0.1 port=%s user=postgres\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"
            "unix_socket_dir =\nauth_type = any\npool_mode = %s\n"
            "max_client_conn = 50\n",
            world->port, port, mode);
    fclose(file);
    assert_int_equal(chmod(world->database.folder, 0755), 0);
    snprintf(pooler->url, sizeof(pooler->url),
             "pgsql://postgres@127.0.0.1:%d/%s", port, world->name);
    pooler->process = fork();
    if (pooler->process == 0) {
        // It refuses to run as root, and must not outlive this process.
        const struct passwd *nobody = getpwnam("nobody");
        if (getuid() == 0 && (nobody == NULL || setgid(nobody->pw_gid) != 0 ||
                              setuid(nobody->pw_uid) != 0))
            _exit(126);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, program, "-q", path, (char *)NULL);
        _exit(127);
    }
    assert_true(skr_test_eventually(is_reachable, pooler, 10000));
}

static void
stop_pooler(const struct pooler *pooler)
{
    kill(pooler->process, SIGKILL);
    assert_int_equal(waitpid(pooler->process, NULL, 0), pooler->process);
}

static size_t
claim(const struct skr_store *table, struct skr_db *db, struct skr_batch *batch)
{
    struct skr_error error = {0};
    struct skr_reader *reader = NULL;
    const struct skr_read read = {.max_rows = batch->capacity,
                                  .max_bytes = 1000};
    if (table->source->open(table, db, false, &reader, &error) != SKR_OK ||
        table->leases->claim(reader, &read, batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    free(reader);
    return batch->count;
}

static struct skr_store *
make_outbox_of_four(struct skr_db *db)
{
    struct skr_store *table = NULL;
    assert_int_equal(skr_messenger_new(
                         &(struct skr_messenger_options){
                             .dialect = skr_db_dialect(db),
                             .table = "messenger_outbox",
                             .queue = "outbox",
                         },
                         &table, NULL),
                     SKR_OK);
    assert_int_equal(skr_store_create(table, db, NULL), SKR_OK);
    const struct skr_value values[] = {
        skr_bind_text("{}"), skr_bind_text("{\"type\":\"order.placed\"}")};
    for (int i = 0; i < 4; i++)
        skr_test_run_template(db,
                              "INSERT INTO messenger_outbox (body, headers, "
                              "queue_name, created_at, available_at) "
                              "VALUES (?, ?, 'outbox', {now}, {now})",
                              values, SKR_COUNT_OF(values));
    return table;
}

static bool
is_later(void *user)
{
    const struct skr_batch *batch = user;
    char now[SKR_TIMESTAMP_SIZE];
    skr_clock_timestamp(skr_clock_wall_us(), now);
    return strncmp(now, batch->lease.time, 19) > 0;
}

// A row is refused for good, and then another one for the moment.
static void
test_a_renewal_that_fails_half_way_has_renewed_nothing(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_batch batch;
    struct skr_store *table = make_outbox_of_four(world->db);
    assert_int_equal(skr_batch_init(&batch, 4, NULL), SKR_OK);
    assert_int_equal(claim(table, world->db, &batch), 4);
    skr_test_run(world->db,
                 "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                 "$$ BEGIN IF OLD.id = 3 THEN RAISE EXCEPTION 'no'; END IF; "
                 "RAISE EXCEPTION 'not now' USING ERRCODE = '55P03'; END $$");
    skr_test_run(world->db,
                 "CREATE TRIGGER refuse BEFORE UPDATE ON messenger_outbox FOR "
                 "EACH ROW WHEN (OLD.id > 2) EXECUTE FUNCTION refuse()");
    assert_true(skr_test_eventually(is_later, &batch, 10000));
    assert_int_not_equal(table->leases->renew(table, world->db, &batch, &error),
                         SKR_OK);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    skr_test_run(world->db, "DROP TRIGGER refuse ON messenger_outbox");
    assert_int_equal(table->leases->renew(table, world->db, &batch, &error),
                     SKR_OK);
    for (size_t i = 0; i < batch.count; i++)
        assert_false(batch.items[i].lost);
    skr_batch_fini(&batch);
    skr_store_free(table);
}

static void
share_by_lease(struct skr_db *one, struct skr_db *other)
{
    struct skr_batch batches[2];
    struct skr_store *table = make_outbox_of_four(one);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(skr_batch_init(&batches[i], 2, NULL), SKR_OK);
        assert_int_equal(claim(table, i == 0 ? one : other, &batches[i]), 2);
    }
    assert_int_equal(batches[1].items[0].row, 3);
    // On whichever connection.
    for (size_t i = 0; i < 2; i++) {
        batches[i].items[0].state = SKR_DONE;
        assert_int_equal(table->leases->renew(table, one, &batches[i], NULL),
                         SKR_OK);
        assert_false(batches[i].items[1].lost);
        assert_int_equal(table->settle->write(table, one, &batches[i], NULL),
                         SKR_OK);
        skr_batch_fini(&batches[i]);
    }
    assert_int_equal(skr_test_number(other, "SELECT SUM(id) FROM "
                                            "messenger_outbox WHERE "
                                            "delivered_at IS NULL"),
                     6);
    skr_store_free(table);
}

static void
test_behind_a_pooler_of_transactions_no_lock_is_given(void **state)
{
    struct world *world = *state;
    struct pooler pooler;
    start_pooler(world, "transaction", &pooler);
    struct skr_db *db = open_db(pooler.url);
    const enum skr_lock_mode modes[] = {SKR_LOCK_ALONE, SKR_LOCK_TOGETHER,
                                        SKR_LOCK_IN_SHARES};
    for (size_t i = 0; i < SKR_COUNT_OF(modes); i++) {
        struct skr_error error = {0};
        assert_int_equal(skr_db_lock(db, "relay", modes[i], -1, 0, &error),
                         SKR_REFUSED);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        assert_non_null(strstr(error.text, "claim: shared"));
        assert_false(db->holds_lock);
    }
    struct skr_db *other = open_db(pooler.url);
    share_by_lease(db, other);
    // The next client of the session finds it as it was.
    assert_int_equal(skr_test_number(other, "SELECT COUNT(*) FROM pg_settings "
                                            "WHERE name = 'enable_seqscan' "
                                            "AND setting = 'off'"),
                     0);
    // Everything else works as well, whichever session answers.
    for (int i = 0; i < 20; i++) {
        assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
        assert_int_equal(run(other, "SELECT 1", NULL), SKR_OK);
        assert_int_equal(run(db, "SELECT 2", NULL), SKR_OK);
        assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
        assert_int_equal(run(other, "SELECT 2", NULL), SKR_OK);
    }
    skr_db_close(other);
    skr_db_close(db);
    stop_pooler(&pooler);
}

static void
test_a_pooler_of_sessions_is_as_good_as_none(void **state)
{
    struct world *world = *state;
    struct pooler pooler;
    start_pooler(world, "session", &pooler);
    struct skr_db *db = open_db(pooler.url), *other = open_db(pooler.url);
    assert_true(try_lock(db, 0));
    assert_false(try_lock(other, 0));
    assert_int_equal(skr_db_check_lock(db, NULL), SKR_OK);
    skr_db_close(db);
    assert_true(try_lock(other, 5000));
    skr_db_close(other);
    stop_pooler(&pooler);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_refusals_to_connect_have_their_codes),
        TEST(test_certificates_are_verified),
        TEST(test_a_server_without_tls_is_not_talked_to_in_plaintext),
        TEST(test_a_host_is_elsewhere_if_the_environment_says_so),
        TEST(test_a_server_that_is_not_there_is_unavailable),
        TEST(test_the_next_server_of_several_is_tried),
        TEST(test_the_right_that_is_missing_is_named),
        TEST(test_the_end_of_the_connection_ends_the_wait),
        TEST(test_a_notification_ends_the_wait),
        TEST(test_only_the_holder_of_a_lock_has_little_time),
        TEST(test_a_lock_outlives_a_transaction_that_failed),
        TEST(test_a_frozen_holder_loses_the_lock_in_time),
        TEST(test_a_renewal_that_fails_half_way_has_renewed_nothing),
        TEST(test_behind_a_pooler_of_transactions_no_lock_is_given),
        TEST(test_a_pooler_of_sessions_is_as_good_as_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
