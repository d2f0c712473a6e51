// SPDX-License-Identifier: MIT
// What the suites of the RabbitMQ broker share: a real server, the driver under
// test, and a plain connection of librabbitmq to look and to meddle with.

#ifndef SKR_TEST_RABBITMQ_WORLD_H
#define SKR_TEST_RABBITMQ_WORLD_H

#include "base/clock.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "message/route.h"

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <skirnir/rabbitmq.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 12000, DEADLINE_MS = 60000 };

struct world {
    amqp_connection_state_t raw;
    char exchange[64];  // direct; `key` leads to `queue`
    char queue[64];
    char url[512];
    struct skr_message messages[MOST];
    char bodies[MOST][32];
    int results[MOST];  // by tag; -1: none yet
    struct skr_error reasons[MOST];
    size_t result_count;
    char log[4096];  // events, a line each
};

static inline amqp_bytes_t
bytes(const char *text)
{
    return amqp_cstring_bytes(text);
}

static inline void
expect_normal(amqp_rpc_reply_t reply)
{
    assert_int_equal(reply.reply_type, AMQP_RESPONSE_NORMAL);
}

static inline amqp_connection_state_t
connect_raw(const char *vhost)
{
    struct skr_url url;
    amqp_connection_state_t raw = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(raw);
    assert_int_equal(skr_url_parse(getenv("SKR_RABBITMQ_URL"), &url, NULL),
                     SKR_OK);
    assert_int_equal(amqp_socket_open(socket, url.host, url.port),
                     AMQP_STATUS_OK);
    expect_normal(amqp_login(raw, vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN,
                             url.user, url.password));
    amqp_channel_open(raw, 1);
    expect_normal(amqp_get_rpc_reply(raw));
    skr_url_fini(&url);
    return raw;
}

static inline void
declare_queue(struct world *world, const char *name, amqp_table_t arguments)
{
    amqp_queue_declare(world->raw, 1, bytes(name), 0, 0, 0, 0, arguments);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static inline void
declare_exchange(struct world *world, const char *name)
{
    amqp_exchange_declare(world->raw, 1, bytes(name), bytes("direct"), 0, 0, 0,
                          0, amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static inline void
bind_queue(struct world *world, const char *exchange, const char *queue,
           const char *key)
{
    amqp_queue_bind(world->raw, 1, bytes(queue), bytes(exchange), bytes(key),
                    amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static inline void
delete_exchange(struct world *world, const char *name)
{
    amqp_exchange_delete(world->raw, 1, bytes(name), 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static inline uint32_t
count_in(struct world *world, const char *queue)
{
    const amqp_queue_declare_ok_t *answer = amqp_queue_declare(
        world->raw, 1, bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    assert_non_null(answer);
    return answer->message_count;
}

// The first message of a queue, taken out of it.
static inline void
take(struct world *world, const char *queue, amqp_message_t *message)
{
    amqp_rpc_reply_t reply = amqp_basic_get(world->raw, 1, bytes(queue), 1);
    expect_normal(reply);
    assert_int_equal(reply.reply.id, AMQP_BASIC_GET_OK_METHOD);
    expect_normal(amqp_read_message(world->raw, 1, message, 0));
}

static inline pid_t
start_control(const char *first, va_list list)
{
    const char *arguments[16] = {SKR_TESTS_FOLDER "/servers/rabbitmq-control",
                                 first};
    size_t count = 2;
    while ((arguments[count] = va_arg(list, const char *)) != NULL)
        count++;
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL)
            _exit(127);
        // execv() does not write to its arguments.
        union {
            const char **given;
            char **wanted;
        } words = {.given = arguments};
        execv(words.wanted[0], words.wanted);
        _exit(127);
    }
    return child;
}

static inline void
control(const char *first, ...)
{
    va_list list;
    va_start(list, first);
    pid_t child = start_control(first, list);
    va_end(list);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static inline void
write_log(void *user, enum skr_log_level level, const char *event,
          const struct skr_log_field *fields, size_t count)
{
    struct world *world = user;
    (void)level;
    (void)fields;
    (void)count;
    size_t used = strlen(world->log);
    snprintf(world->log + used, sizeof(world->log) - used, "%s\n", event);
}

static inline size_t
count_events(const struct world *world, const char *event)
{
    size_t count = 0;
    for (const char *at = world->log; (at = strstr(at, event)) != NULL; at++)
        count++;
    return count;
}

static inline enum skr_code
try_open(struct world *world, const char *url, struct skr_broker **broker,
         struct skr_error *error)
{
    const struct skr_broker_options options = {
        .url = url,
        .wake_fd = -1,
        .log = {.write = write_log, .user = world},
    };
    return skr_broker_open(&skr_rabbitmq_broker, &options, broker, error);
}

// parameters: "heartbeat=1", or "".
static inline struct skr_broker *
open_broker(struct world *world, const char *parameters)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char url[1100];
    snprintf(url, sizeof(url), "%s?%s", world->url, parameters);
    if (try_open(world, url, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return broker;
}

static inline void
make_message(struct world *world, size_t number)
{
    struct skr_message *message = &world->messages[number];
    snprintf(world->bodies[number], sizeof(world->bodies[number]),
             "{\"number\":%zu}", number);
    *message = (struct skr_message){
        .name = "order.placed",
        .body = world->bodies[number],
        .body_size = strlen(world->bodies[number]),
    };
    assert_int_equal(skr_id_new(&message->id, NULL), SKR_OK);
}

static inline enum skr_code
try_submit(struct world *world, struct skr_broker *broker, size_t number,
           const char *exchange, const char *key, struct skr_error *error)
{
    // Borrowed for the call: gone afterwards.
    char texts[2][400];
    snprintf(texts[0], sizeof(texts[0]), "%s", exchange);
    snprintf(texts[1], sizeof(texts[1]), "%s", key);
    const struct skr_route route = {.exchange = texts[0],
                                    .routing_key = texts[1]};
    world->results[number] = -1;
    enum skr_code code = broker->ops->submit(broker, &world->messages[number],
                                             &route, number, error);
    memset(texts, 'x', sizeof(texts));
    return code;
}

static inline void
submit(struct world *world, struct skr_broker *broker, size_t number,
       const char *exchange, const char *key)
{
    struct skr_error error = {0};
    if (try_submit(world, broker, number, exchange, key, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// Makes and submits messages first to end - 1, to the world's own queue.
static inline void
submit_range(struct world *world, struct skr_broker *broker, size_t first,
             size_t end)
{
    for (size_t i = first; i < end; i++) {
        make_message(world, i);
        submit(world, broker, i, world->exchange, "key");
    }
}

// One call of results().
static inline enum skr_code
collect_some(struct world *world, struct skr_broker *broker,
             uint32_t timeout_ms, struct skr_error *error)
{
    struct skr_published results[64];
    size_t count = 0;
    enum skr_code code = broker->ops->results(
        broker, results, SKR_COUNT_OF(results), &count, timeout_ms, error);
    for (size_t i = 0; i < count; i++) {
        uint64_t tag = results[i].tag;
        assert_true(tag < MOST);
        assert_int_equal(world->results[tag], -1);  // one result each
        world->results[tag] = (int)results[i].result;
        world->reasons[tag] = results[i].reason;
    }
    world->result_count += count;
    return code;
}

// As control(), while the connection is served: it takes seconds, in which a
// connection with a short heartbeat would be ended.
static inline void
control_beside(struct world *world, struct skr_broker *broker,
               const char *first, ...)
{
    va_list list;
    va_start(list, first);
    pid_t child = start_control(first, list);
    va_end(list);
    struct skr_error error = {0};
    pid_t ended = 0;
    int status = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0)
        if (collect_some(world, broker, 50, &error) != SKR_OK)
            fail_msg("%s", error.text);
    assert_int_equal(ended, child);
    assert_int_equal(status, 0);
}

// Collects until so many results, or more, have come since the world began.
static inline void
collect(struct world *world, struct skr_broker *broker, size_t total)
{
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    struct skr_error error = {0};
    while (world->result_count < total && skr_clock_ms() < end)
        if (collect_some(world, broker, 100, &error) != SKR_OK)
            fail_msg("%s", error.text);
    assert_true(world->result_count >= total);
}

static inline void
expect_results(const struct world *world, size_t first, size_t end,
               enum skr_publish_result result)
{
    for (size_t i = first; i < end; i++)
        if (world->results[i] != (int)result)
            fail_msg("message %zu has result %d, not %d: %s", i,
                     world->results[i], (int)result, world->reasons[i].text);
}

static inline pid_t
server_pid(void)
{
    return (pid_t)atoi(getenv("SKR_RABBITMQ_PID"));
}

static inline bool
is_thread_stopped(int thread)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)server_pid(),
             thread);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true;  // it has ended
    // The state follows the name, which may itself hold parentheses.
    const char *name_end =
        fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return name_end != NULL && strncmp(name_end, ") T", 3) == 0;
}

static inline bool
is_server_stopped(void)
{
    char path[64];
    bool is_stopped = true;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)server_pid());
    DIR *threads = opendir(path);
    assert_non_null(threads);
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (entry->d_name[0] != '.')
            is_stopped = is_stopped && is_thread_stopped(atoi(entry->d_name));
    closedir(threads);
    return is_stopped;
}

// kill() returns before the threads of another process have stopped, and until
// then they answer.
static inline void
freeze_server(void)
{
    kill(server_pid(), SIGSTOP);
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    while (!is_server_stopped() && skr_clock_ms() < end)
        skr_clock_sleep(-1, 1);
}

static inline void
thaw_server(void)
{
    kill(server_pid(), SIGCONT);
}

static inline int
rabbitmq_world_set_up(void **state)
{
    static int counter;
    struct world *world = calloc(1, sizeof(*world));
    counter++;
    snprintf(world->exchange, sizeof(world->exchange), "skr.%d.%d", getpid(),
             counter);
    snprintf(world->queue, sizeof(world->queue), "skr-%d-%d", getpid(),
             counter);
    snprintf(world->url, sizeof(world->url), "%s", getenv("SKR_RABBITMQ_URL"));
    world->raw = connect_raw("/");
    declare_exchange(world, world->exchange);
    declare_queue(world, world->queue, amqp_empty_table);
    bind_queue(world, world->exchange, world->queue, "key");
    *state = world;
    return 0;
}

static inline int
rabbitmq_world_tear_down(void **state)
{
    struct world *world = *state;
    thaw_server();  // a test that fails leaves it frozen
    amqp_queue_delete(world->raw, 1, bytes(world->queue), 0, 0);
    amqp_exchange_delete(world->raw, 1, bytes(world->exchange), 0);
    amqp_connection_close(world->raw, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(world->raw);
    free(world);
    return 0;
}

#endif
