// SPDX-License-Identifier: MIT
// The thread that listens to the binary log, and how others hear of it. Its
// session is an ordinary one of this driver, with the same care for TLS,
// passwords and hosts. A reader that is stuck in the client library is freed by
// shutting down its socket, which is known as soon as it is connected.

#include "db/mysql/doorbell.h"

#include "base/arena.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "db/mysql/connection.h"
#include "db/run.h"

#include <errmsg.h>
#include <errno.h>
#include <mariadb_rpl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    END_WAIT_MS = 200,         // for the thread, before it is left behind
    LOST_PAUSE_MS = 1000,      // before the first try to connect again,
    REFUSED_PAUSE_MS = 60000,  // where something has to be changed first,
    LONGEST_PAUSE_MS = 600000,
    LONGEST_LOST_MS = 60000,
    SETTLED_MS = 10000,  // one that listened for so long begins anew with them

    METER_MS = 2000,
    BUSY_RINGS = 500,              // in a second: polling is as good,
    BUSY_BYTES = 8 * 1024 * 1024,  // and is at so many bytes of its own table
    MOST_EVENT_BYTES = 16 * 1024 * 1024,
    MOST_UNKNOWN = 1000,  // events in a row that the client library rejects
};

// The library and servers before 8.0.20 do not know it by a name.
enum { TRANSACTION_PAYLOAD_EVENT = 40 };

// No address of a network begins so, and some take theirs for a server's id.
#define LEAST_SERVER_ID UINT32_C(0xf0000000)

// Whether more than so much comes in a second. The clock is asked only when
// so much has come.
struct meter {
    uint64_t amount;
    int64_t since_ms;
};

struct skr_mysql_doorbell {
    struct skr_url url;
    char database[SKR_MYSQL_TABLE_SIZE];
    char table[SKR_MYSQL_TABLE_SIZE];
    uint64_t most_bytes;
    int fd;  // an eventfd that counts the rings
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Under the mutex:
    enum skr_mysql_doorbell_state state;
    struct skr_error reason;
    int socket;  // -1: none
    bool is_stopping, has_ended;
    bool is_abandoned;  // the thread frees all this
    bool is_resumed;

    // The thread's own:
    struct skr_mysql session;
    MARIADB_RPL *stream;
    bool has_map;     // of the table, in this transaction
    uint64_t own_id;  // that the map gave it
    bool has_wrote;   // the transaction, to it
    struct meter rings, own, foreign;
};

static void
free_doorbell(struct skr_mysql_doorbell *bell)
{
    skr_url_fini(&bell->url);
    if (bell->fd >= 0)
        close(bell->fd);
    pthread_cond_destroy(&bell->changed);
    pthread_mutex_destroy(&bell->mutex);
    free(bell);
}

static void
ring(struct skr_mysql_doorbell *bell)
{
    const uint64_t one = 1;
    // It fails when 2^64 rings were not heard.
    ssize_t written = write(bell->fd, &one, sizeof(one));
    (void)written;
}

static void
change_to(struct skr_mysql_doorbell *bell, enum skr_mysql_doorbell_state state,
          const struct skr_error *reason)
{
    pthread_mutex_lock(&bell->mutex);
    bell->state = state;
    bell->is_resumed = false;
    skr_error_clear(&bell->reason);
    if (reason != NULL)
        bell->reason = *reason;
    pthread_mutex_unlock(&bell->mutex);
    ring(bell);
}

static bool
is_stopping(struct skr_mysql_doorbell *bell)
{
    pthread_mutex_lock(&bell->mutex);
    bool stops = bell->is_stopping;
    pthread_mutex_unlock(&bell->mutex);
    return stops;
}

// Before the end, or after the time if it is not resumed before.
static void
rest(struct skr_mysql_doorbell *bell, int64_t least_ms, bool until_resumed)
{
    int64_t end_ms = skr_clock_ms() + least_ms;
    pthread_mutex_lock(&bell->mutex);
    while (!bell->is_stopping) {
        int64_t left_ms = end_ms - skr_clock_ms();
        if (left_ms > 0) {
            struct timespec deadline = skr_clock_deadline(left_ms);
            pthread_cond_timedwait(&bell->changed, &bell->mutex, &deadline);
        } else if (until_resumed && !bell->is_resumed) {
            pthread_cond_wait(&bell->changed, &bell->mutex);
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&bell->mutex);
}

// --------------------------------------------------------------- connecting

static enum skr_code
fail_setting(struct skr_mysql_doorbell *bell, const char *problem,
             struct skr_error *error)
{
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "%s: %s",
                    skr_mysql_product(bell->session.connection), problem);
}

static enum skr_code
check_settings(struct skr_mysql_doorbell *bell, struct skr_error *error)
{
    bool is_on = false, has_statements = false;
    struct skr_tx tx = skr_mysql_own(&bell->session);
    enum skr_code code =
        skr_sql_finds(tx,
                      "SHOW GLOBAL VARIABLES WHERE Variable_name = 'log_bin' "
                      "AND Value = 'ON'",
                      SKR_NO_VALUES, &is_on, error);
    // A server that has no other format does not name one.
    if (code == SKR_OK)
        code = skr_sql_finds(tx,
                             "SHOW GLOBAL VARIABLES WHERE Variable_name = "
                             "'binlog_format' AND Value <> 'ROW'",
                             SKR_NO_VALUES, &has_statements, error);
    if (code != SKR_OK)
        return code;
    if (!is_on)
        return fail_setting(bell, "there is no binary log; log_bin starts one",
                            error);
    if (has_statements)
        return fail_setting(
            bell, "the binary log has no rows; set binlog_format to ROW",
            error);
    return SKR_OK;
}

// The present end of the log.
struct place {
    char file[512];
    unsigned long position;
};

static enum skr_code
find_end(struct skr_mysql_doorbell *bell, struct place *place,
         struct skr_error *error)
{
    enum { FIRST_WITH_NEW_NAME = 80200 };
    MYSQL *connection = bell->session.connection;
    bool is_new = !mariadb_connection(connection) &&
                  mysql_get_server_version(connection) >= FIRST_WITH_NEW_NAME;
    struct skr_arena arena = {0};
    struct skr_value columns[2];
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 2};
    enum skr_code code =
        skr_sql_row(skr_mysql_own(&bell->session),
                    is_new ? "SHOW BINARY LOG STATUS" : "SHOW MASTER STATUS",
                    SKR_NO_VALUES, &row, error);
    if (code == SKR_OK && (!row.found || columns[0].bytes == NULL))
        code = fail_setting(bell, "the binary log has no end", error);
    if (code == SKR_OK) {
        snprintf(place->file, sizeof(place->file), "%s",
                 (const char *)columns[0].bytes);
        place->position = (unsigned long)columns[1].integer;
    }
    skr_arena_fini(&arena);
    return code;
}

// Two readers with one id cut each other off.
static uint32_t
choose_server_id(void)
{
    uint32_t id = 0;
    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
        id = (uint32_t)skr_clock_us();
    id |= LEAST_SERVER_ID;
    return id == UINT32_MAX ? LEAST_SERVER_ID : id;
}

// Three heartbeats fit into the time for which the server may be silent.
static enum skr_code
announce(struct skr_mysql_doorbell *bell, struct skr_error *error)
{
    char sql[320];
    long long beat_ns = bell->session.timeout_s * 1000000000LL / 3;
    snprintf(sql, sizeof(sql),
             "SET @master_binlog_checksum = @@global.binlog_checksum, "
             "@source_binlog_checksum = @@global.binlog_checksum, "
             "@mariadb_slave_capability = 4, "
             "@master_heartbeat_period = %lld, @source_heartbeat_period = %lld",
             beat_ns, beat_ns);
    return skr_mysql_exec(bell->session.connection, sql, NULL, error);
}

// Older ones crash at rows of MySQL's partitioned tables.
static enum skr_code
check_library(struct skr_error *error)
{
    enum { THOUSANDS = 1000, LEAST = 3003020 };
    int numbers[3] = {0};
    sscanf(mysql_get_client_info(), "%d.%d.%d", &numbers[0], &numbers[1],
           &numbers[2]);
    if ((numbers[0] * THOUSANDS + numbers[1]) * THOUSANDS + numbers[2] >= LEAST)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "libmariadb %.20s is too old to read a binary log; 3.3.20 "
                    "is needed",
                    mysql_get_client_info());
}

static enum skr_code
open_stream(struct skr_mysql_doorbell *bell, struct skr_error *error)
{
    struct place place = {0};
    enum skr_code code = check_library(error);
    if (code == SKR_OK)
        code = check_settings(bell, error);
    if (code == SKR_OK)
        code = announce(bell, error);
    if (code == SKR_OK)
        code = find_end(bell, &place, error);
    if (code != SKR_OK)
        return code;
    MYSQL *connection = bell->session.connection;
    bell->stream = mariadb_rpl_init(connection);
    if (bell->stream == NULL)
        return skr_fail_memory(error);
    if (mariadb_rpl_optionsv(bell->stream, MARIADB_RPL_FILENAME, place.file,
                             strlen(place.file)) != 0 ||
        mariadb_rpl_optionsv(bell->stream, MARIADB_RPL_START, place.position) !=
            0 ||
        mariadb_rpl_optionsv(bell->stream, MARIADB_RPL_SERVER_ID,
                             choose_server_id()) != 0)
        return fail_setting(bell, "the client library reads no binary log",
                            error);
    // A row of another table may be a gigabyte.
    connection->net.max_packet_size = MOST_EVENT_BYTES;
    errno = 0;
    if (mariadb_rpl_open(bell->stream) != 0)
        return skr_mysql_fail(connection, error);
    return SKR_OK;
}

// False: it is to stop.
static bool
note_socket(struct skr_mysql_doorbell *bell, int socket)
{
    pthread_mutex_lock(&bell->mutex);
    bell->socket = socket;
    bool stops = bell->is_stopping;
    pthread_mutex_unlock(&bell->mutex);
    return !stops;
}

static enum skr_code
connect_session(struct skr_mysql_doorbell *bell, struct skr_error *error)
{
    bell->session.db.ops = &skr_mysql_db;
    enum skr_code code =
        skr_mysql_db.open(&bell->session.db, &bell->url, error);
    if (code != SKR_OK)
        return code;
    if (!note_socket(bell, (int)mysql_get_socket(bell->session.connection)))
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stop was requested");
    return open_stream(bell, error);
}

static void
disconnect(struct skr_mysql_doorbell *bell)
{
    note_socket(bell, -1);
    mariadb_rpl_close(bell->stream);
    bell->stream = NULL;
    skr_mysql_db.close(&bell->session.db);
    bell->session = (struct skr_mysql){0};
}

// ---------------------------------------------------------------- listening

static bool
is_over(struct meter *meter, uint64_t amount, uint64_t most_a_second)
{
    meter->amount += amount;
    if (meter->amount / (METER_MS / 1000) < most_a_second)
        return false;
    int64_t now_ms = skr_clock_ms();
    bool was_fast = now_ms - meter->since_ms < METER_MS;
    *meter = (struct meter){.since_ms = now_ms};
    return was_fast;
}

static bool
is_name(const MARIADB_STRING *name, const char *wanted)
{
    // Some servers keep names in lower case. One ring too many is harmless.
    return name->length == strlen(wanted) &&
           strncasecmp(name->str, wanted, name->length) == 0;
}

static bool
is_delete(enum mariadb_rpl_event type)
{
    return type == DELETE_ROWS_EVENT || type == DELETE_ROWS_EVENT_V1 ||
           type == DELETE_ROWS_COMPRESSED_EVENT ||
           type == DELETE_ROWS_COMPRESSED_EVENT_V1;
}

static bool
is_rows(const MARIADB_RPL_EVENT *event)
{
    return IS_ROW_EVENT(event) ||
           event->event_type == PARTIAL_UPDATE_ROWS_EVENT ||
           event->event_type == WRITE_ROWS_COMPRESSED_EVENT ||
           event->event_type == UPDATE_ROWS_COMPRESSED_EVENT;
}

// A statement that writes to several tables has all their maps in front.
static bool
is_own(const struct skr_mysql_doorbell *bell, const MARIADB_RPL_EVENT *event)
{
    return bell->has_map && is_rows(event) &&
           event->event.rows.table_id == bell->own_id;
}

// The rows were logged by XA PREPARE, before they could be seen.
static bool
is_xa_commit(const MARIADB_RPL_EVENT *event)
{
    static const char words[] = "XA COMMIT";
    const MARIADB_STRING *statement = &event->event.query.statement;
    return event->event_type == QUERY_EVENT &&
           statement->length >= strlen(words) &&
           strncasecmp(statement->str, words, strlen(words)) == 0;
}

static void
note_map(struct skr_mysql_doorbell *bell, const MARIADB_RPL_EVENT *event)
{
    if (!is_name(&event->event.table_map.table, bell->table) ||
        !is_name(&event->event.table_map.database, bell->database))
        return;
    bell->has_map = true;
    bell->own_id = event->event.table_map.table_id;
}

static void
note_end(struct skr_mysql_doorbell *bell)
{
    if (bell->has_wrote)
        ring(bell);
    bell->has_map = bell->has_wrote = false;
}

// SKR_OK: go on. SKR_TIMEOUT: rows come too fast for it to be of use.
static enum skr_code
note_event(struct skr_mysql_doorbell *bell, const MARIADB_RPL_EVENT *event,
           struct skr_error *error)
{
    enum mariadb_rpl_event type = event->event_type;
    bool is_end = type == XID_EVENT || type == QUERY_EVENT ||
                  type == XA_PREPARE_LOG_EVENT;
    bool is_ours = is_own(bell, event);
    if (type == TABLE_MAP_EVENT)
        note_map(bell, event);
    if ((is_ours && !is_delete(type)) || is_xa_commit(event))
        bell->has_wrote = true;
    bool is_busy =
        is_ours && is_over(&bell->own, event->event_length, BUSY_BYTES);
    if (!is_ours &&
        is_over(&bell->foreign, event->event_length, bell->most_bytes))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "other tables write more than %llu bytes a second, "
                        "wake_ceiling in the DSN, into the binary log",
                        (unsigned long long)bell->most_bytes);
    if (is_end && bell->has_wrote && is_over(&bell->rings, 1, BUSY_RINGS))
        is_busy = true;
    if (is_end)
        note_end(bell);
    return is_busy ? SKR_TIMEOUT : SKR_OK;
}

// The library ends a fetch for an event that is younger than it is. It was
// taken from the connection, which goes on.
static bool
is_unknown_event(MYSQL *connection)
{
    const NET *net = &connection->net;
    unsigned native = mysql_errno(connection);
    return net->pvio != NULL && net->read_pos != NULL &&
           net->read_pos[0] == 0 &&
           (native == 0 || native == CR_UNKNOWN_BINLOG_EVENT ||
            native == CR_BINLOG_ERROR);
}

static enum skr_code
fail_fetch(struct skr_mysql_doorbell *bell, struct skr_error *error)
{
    MYSQL *connection = bell->session.connection;
    if (mysql_errno(connection) != 0)
        return skr_mysql_fail(connection, error);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the server has ended the binary log");
}

static void
note_unknown_event(struct skr_mysql_doorbell *bell)
{
    enum { TYPE_AT = 5 };
    MYSQL *connection = bell->session.connection;
    if (connection->net.read_pos[TYPE_AT] == TRANSACTION_PAYLOAD_EVENT) {
        bell->has_wrote = true;
        note_end(bell);
    }
    connection->net.last_errno = 0;
}

// Until there is a reason not to: SKR_TIMEOUT as note_event() says.
// *has_listened: the server has let it.
static enum skr_code
listen_on(struct skr_mysql_doorbell *bell, bool *has_listened,
          struct skr_error *error)
{
    MARIADB_RPL_EVENT *event = NULL;
    enum skr_code code = SKR_OK;
    int unknown = 0;
    while (code == SKR_OK) {
        errno = 0;
        // It frees the event when it fails.
        event = mariadb_rpl_fetch(bell->stream, event);
        if (event == NULL && (!is_unknown_event(bell->session.connection) ||
                              ++unknown > MOST_UNKNOWN))
            return fail_fetch(bell, error);
        if (!*has_listened)
            change_to(bell, SKR_MYSQL_DOORBELL_LISTENING, NULL);
        *has_listened = true;
        if (event == NULL) {
            note_unknown_event(bell);
            continue;
        }
        unknown = 0;
        code = note_event(bell, event, error);
    }
    mariadb_free_rpl_event(event);
    return code;
}

static enum skr_code
connect_and_listen(struct skr_mysql_doorbell *bell, bool *has_listened,
                   struct skr_error *error)
{
    bell->has_map = bell->has_wrote = false;
    enum skr_code code = connect_session(bell, error);
    if (code == SKR_OK)
        code = listen_on(bell, has_listened, error);
    disconnect(bell);
    return code;
}

static void *
run(void *user)
{
    struct skr_mysql_doorbell *bell = user;
    struct skr_backoff lost = {LOST_PAUSE_MS, LONGEST_LOST_MS, 0};
    struct skr_backoff refused = {REFUSED_PAUSE_MS, LONGEST_PAUSE_MS, 0};
    while (!is_stopping(bell)) {
        struct skr_error problem = {0};
        bool has_listened = false;
        int64_t start_ms = skr_clock_ms();
        enum skr_code code = connect_and_listen(bell, &has_listened, &problem);
        if (has_listened && skr_clock_ms() - start_ms >= SETTLED_MS) {
            skr_backoff_reset(&lost);
            skr_backoff_reset(&refused);
        }
        if (is_stopping(bell))
            break;
        bool is_busy = code == SKR_TIMEOUT;
        // What the server has let it do once is no matter of settings.
        bool is_lost = is_busy || problem.remedy != SKR_GIVE_UP ||
                       (has_listened && problem.code != SKR_REFUSED);
        change_to(bell,
                  is_busy ? SKR_MYSQL_DOORBELL_RESTING
                          : SKR_MYSQL_DOORBELL_FAILED,
                  is_busy ? NULL : &problem);
        rest(bell, skr_backoff_next(is_lost ? &lost : &refused), is_busy);
    }
    pthread_mutex_lock(&bell->mutex);
    bell->has_ended = true;
    bool is_abandoned = bell->is_abandoned;
    pthread_cond_signal(&bell->changed);
    pthread_mutex_unlock(&bell->mutex);
    if (is_abandoned)
        free_doorbell(bell);
    return NULL;
}

// ------------------------------------------------------------------- others

static struct skr_mysql_doorbell *
make(const struct skr_mysql_doorbell_options *options)
{
    struct skr_mysql_doorbell *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->socket = -1;
    made->most_bytes = (uint64_t)options->most_bytes;
    snprintf(made->database, sizeof(made->database), "%s", options->database);
    snprintf(made->table, sizeof(made->table), "%s", options->table);
    pthread_mutex_init(&made->mutex, NULL);
    made->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (skr_condition_init(&made->changed) != 0 || made->fd < 0 ||
        skr_url_copy(options->url, &made->url) != SKR_OK) {
        free_doorbell(made);
        return NULL;
    }
    return made;
}

enum skr_code
skr_mysql_doorbell_open(const struct skr_mysql_doorbell_options *options,
                        struct skr_mysql_doorbell **doorbell,
                        struct skr_error *error)
{
    struct skr_mysql_doorbell *made = make(options);
    if (made == NULL)
        return skr_fail_memory(error);
    if (skr_thread_start(&made->thread, run, made) != 0) {
        free_doorbell(made);
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "no thread can be started to listen to the binary log");
    }
    *doorbell = made;
    return SKR_OK;
}

void
skr_mysql_doorbell_close(struct skr_mysql_doorbell *bell)
{
    if (bell == NULL)
        return;
    struct timespec deadline = skr_clock_deadline(END_WAIT_MS);
    pthread_t thread = bell->thread;
    int failed = 0;
    pthread_mutex_lock(&bell->mutex);
    bell->is_stopping = true;
    if (bell->socket >= 0)
        shutdown(bell->socket, SHUT_RDWR);
    pthread_cond_broadcast(&bell->changed);
    while (!bell->has_ended && failed == 0)
        failed =
            pthread_cond_timedwait(&bell->changed, &bell->mutex, &deadline);
    bool has_ended = bell->has_ended;
    bell->is_abandoned = !has_ended;
    pthread_mutex_unlock(&bell->mutex);
    if (!has_ended) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    free_doorbell(bell);
}

static void
hear(struct skr_mysql_doorbell *bell, struct skr_mysql_doorbell_news *news)
{
    uint64_t rings = 0;
    if (read(bell->fd, &rings, sizeof(rings)) != (ssize_t)sizeof(rings))
        rings = 0;
    pthread_mutex_lock(&bell->mutex);
    news->state = bell->state;
    news->reason = bell->reason;
    pthread_mutex_unlock(&bell->mutex);
    news->rings = rings;
}

enum skr_code
skr_mysql_doorbell_await(struct skr_mysql_doorbell *bell, int wake_fd,
                         int64_t timeout_ms,
                         struct skr_mysql_doorbell_news *news)
{
    struct pollfd fds[] = {
        {.fd = wake_fd, .events = POLLIN},
        {.fd = bell == NULL ? -1 : bell->fd, .events = POLLIN},
    };
    int ready = skr_clock_poll(fds, 2, timeout_ms);
    if (ready > 0 && fds[0].revents != 0)
        return SKR_STOPPED;
    if (ready <= 0 || fds[1].revents == 0)
        return SKR_TIMEOUT;
    hear(bell, news);
    return SKR_OK;
}

void
skr_mysql_doorbell_resume(struct skr_mysql_doorbell *bell)
{
    pthread_mutex_lock(&bell->mutex);
    bell->is_resumed = true;
    pthread_cond_signal(&bell->changed);
    pthread_mutex_unlock(&bell->mutex);
}
