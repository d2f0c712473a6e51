// SPDX-License-Identifier: MIT
// RabbitMQ when it is not there, not willing, not reading or not trusted.
#include "rabbitmq_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static char vhost[64];  // of this program, with a user of its own
static char user[64];

static int
make_vhost(void **state)
{
    (void)state;
    snprintf(vhost, sizeof(vhost), "skr/%d", getpid());
    snprintf(user, sizeof(user), "user@%d", getpid());
    control("add_vhost", vhost, NULL);
    control("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*", NULL);
    control("add_user", user, "p@ss:w/rd", NULL);
    control("set_permissions", "-p", vhost, user, ".*", "open.*", ".*", NULL);
    return 0;
}

static int
remove_vhost(void **state)
{
    (void)state;
    control("delete_vhost", vhost, NULL);
    control("delete_user", user, NULL);
    return 0;
}

static const char *
port(void)
{
    return getenv("SKR_RABBITMQ_PORT");
}

// A port on which no server listens.
static int
closed_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void
expect_no_connection(struct world *world, const char *url, enum skr_code code,
                     const char *says)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    assert_int_equal(try_open(world, url, &broker, &error), code);
    assert_null(broker);
    if (strstr(error.text, says) == NULL)
        fail_msg("'%s' does not say '%s'", error.text, says);
    assert_null(strstr(error.text, "secret"));
}

static void
test_what_is_wrong_with_a_connection_is_said(void **state)
{
    struct world *world = *state;
    char url[256];
    snprintf(url, sizeof(url), "amqp://guest:secret@127.0.0.1:%s/", port());
    expect_no_connection(world, url, SKR_REFUSED, "user guest cannot log in");
    expect_no_connection(world, url, SKR_REFUSED, "ACCESS_REFUSED");
    snprintf(url, sizeof(url), "amqp://nobody:secret@127.0.0.1:%s/", port());
    expect_no_connection(world, url, SKR_REFUSED, "user nobody cannot log in");
    snprintf(url, sizeof(url), "amqp://guest:guest@127.0.0.1:%s/no%%2fsuch",
             port());
    expect_no_connection(world, url, SKR_REFUSED,
                         "vhost no/such cannot be opened");
    expect_no_connection(world, "amqp://guest:secret@no-such-host.invalid/",
                         SKR_UNAVAILABLE, "host no-such-host.invalid");
    snprintf(url, sizeof(url), "amqp://guest:secret@127.0.0.1:%d/",
             closed_port());
    expect_no_connection(world, url, SKR_UNAVAILABLE, "Connection refused");
}

static void
test_a_malformed_dsn_is_named(void **state)
{
    static const struct {
        const char *url, *says;
    } cases[] = {
        {"amqp://a:secret@h/?heartbeat=x", "heartbeat=x"},
        {"amqp://a:secret@h/?confirm_timeout=0", "confirm_timeout=0"},
        {"amqp://a:secret@h/?confirm_timeout=1e9", "confirm_timeout=1e9"},
        {"amqp://a:secret@h/?connect_timeout=nan", "connect_timeout=nan"},
        {"amqp://a:secret@h/?verify=perhaps", "verify=perhaps"},
        {"amqp://a:secret@h:1,i:x/", "port"},
        {"amqp://a:secret@h:1,,i/", "no name"},
        {"amqp://a:secret@[::1,h/", "]"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        expect_no_connection(*state, cases[i].url, SKR_INVALID, cases[i].says);
}

// Escaped characters in each part of the DSN, and Symfony's second path part.
static void
test_user_password_and_vhost_may_hold_any_character(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    snprintf(world->url, sizeof(world->url),
             "amqp://user%%40%d:p%%40ss%%3Aw%%2Frd@127.0.0.1:%s/skr%%2F%d/"
             "open.x",
             getpid(), port(), getpid());
    if (try_open(world, world->url, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_broker_close(broker);
    broker = open_broker(world, "delay[x]=1&read_timeout=3&surprise=1");
    assert_int_equal(count_events(world, "amqp.unknown_option"), 2);
    make_message(world, 0);
    world->results[0] = -1;
    assert_int_equal(
        broker->ops->submit(broker, &world->messages[0], NULL, 0, NULL),
        SKR_OK);
    collect(world, broker, 1);
    assert_int_equal(world->results[0], SKR_ROUTE_UNAVAILABLE);
    assert_non_null(strstr(world->reasons[0].text, "open.x"));
    skr_broker_close(broker);
}

static void
test_access_that_is_refused_closes_the_route(void **state)
{
    struct world *world = *state;
    amqp_connection_close(world->raw, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(world->raw);
    world->raw = connect_raw(vhost);
    declare_exchange(world, "open.x");
    declare_exchange(world, "closed.x");
    declare_queue(world, "q", amqp_empty_table);
    bind_queue(world, "open.x", "q", "key");
    bind_queue(world, "closed.x", "q", "key");
    snprintf(world->url, sizeof(world->url),
             "amqp://user%%40%d:p%%40ss%%3Aw%%2Frd@127.0.0.1:%s/skr%%2F%d",
             getpid(), port(), getpid());
    struct skr_broker *broker = open_broker(world, "");
    for (size_t i = 0; i < 200; i++) {
        make_message(world, i);
        submit(world, broker, i, i % 2 == 0 ? "open.x" : "closed.x", "key");
    }
    collect(world, broker, 200);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(world->results[i],
                         i % 2 == 0 ? SKR_CONFIRMED : SKR_ROUTE_UNAVAILABLE);
    assert_string_equal(world->reasons[1].native, "403");
    assert_non_null(strstr(world->reasons[1].text, "closed.x"));
    // One close to notice, one to find the message; not one each.
    assert_true(count_events(world, "amqp.channel_closed") <= 3);
    skr_broker_close(broker);
}

static void
test_several_hosts_are_tried_until_one_answers(void **state)
{
    struct world *world = *state;
    snprintf(world->url, sizeof(world->url),
             "amqp://guest:guest@127.0.0.1:%d,no-such-host.invalid,"
             "127.0.0.1:%s/",
             closed_port(), port());
    for (int i = 0; i < 10; i++) {
        struct skr_broker *broker = open_broker(world, "");
        skr_broker_close(broker);
    }
    snprintf(world->url, sizeof(world->url),
             "amqp://guest:secret@127.0.0.1:%d,no-such-host.invalid/",
             closed_port());
    expect_no_connection(world, world->url, SKR_UNAVAILABLE,
                         "Connection refused");
    expect_no_connection(world, world->url, SKR_UNAVAILABLE,
                         "no-such-host.invalid");
}

// Goes on until the error comes; by then every tag has its result.
static void
collect_to_the_end(struct world *world, struct skr_broker *broker,
                   struct skr_error *error)
{
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && skr_clock_ms() < end)
        code = collect_some(world, broker, 100, error);
    assert_int_equal(code, SKR_UNAVAILABLE);
    assert_int_equal(error->remedy, SKR_RECONNECT);
    // And stays.
    assert_int_equal(collect_some(world, broker, 0, error), SKR_UNAVAILABLE);
}

static void
test_a_connection_closed_by_the_server_makes_messages_uncertain(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    snprintf(world->url, sizeof(world->url),
             "amqp://guest:guest@127.0.0.1:%s/skr%%2F%d", port(), getpid());
    struct skr_broker *broker = open_broker(world, "");
    control("close_all_connections", "--vhost", vhost, "for a test", NULL);
    submit_range(world, broker, 0, 10);
    collect_to_the_end(world, broker, &error);
    assert_int_equal(world->result_count, 10);
    expect_results(world, 0, 10, SKR_UNCERTAIN);
    assert_non_null(strstr(error.text, "for a test"));
    assert_string_equal(error.text, world->reasons[0].text);
    make_message(world, 10);
    assert_int_equal(
        try_submit(world, broker, 10, world->exchange, "key", &error),
        SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    skr_broker_close(broker);
}

// Hands bytes to and fro until it is told to cut.
struct proxy {
    int listener, client, server;
    int cut_after;  // connection's bytes to the client; negative: never
};

static void
run_proxy(struct proxy *proxy)
{
    char piece[65536];
    proxy->client = accept(proxy->listener, NULL, NULL);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(port())),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    proxy->server = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(proxy->server, (struct sockaddr *)&address, sizeof(address)) !=
        0)
        _exit(1);
    for (;;) {
        struct pollfd polled[] = {{.fd = proxy->client, .events = POLLIN},
                                  {.fd = proxy->server, .events = POLLIN}};
        poll(polled, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (polled[i].revents == 0)
                continue;
            ssize_t size = read(polled[i].fd, piece, sizeof(piece));
            if (size <= 0)
                _exit(0);
            proxy->cut_after -= i == 1 ? (int)size : 0;
            if (proxy->cut_after < 0)
                _exit(0);
            if (write(polled[1 - i].fd, piece, (size_t)size) != size)
                _exit(1);
        }
    }
}

static void
test_a_connection_cut_at_any_byte_loses_no_result(void **state)
{
    struct world *world = *state;
    static const int cuts[] = {600, 620, 640, 700, 800, 1000, 1500};
    for (size_t i = 0; i < SKR_COUNT_OF(cuts); i++) {
        struct proxy proxy = {.cut_after = cuts[i]};
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(address);
        proxy.listener = socket(AF_INET, SOCK_STREAM, 0);
        bind(proxy.listener, (struct sockaddr *)&address, size);
        listen(proxy.listener, 1);
        getsockname(proxy.listener, (struct sockaddr *)&address, &size);
        pid_t child = fork();
        if (child == 0)
            run_proxy(&proxy);
        close(proxy.listener);
        char url[128];
        snprintf(url, sizeof(url), "amqp://guest:guest@127.0.0.1:%d/",
                 ntohs(address.sin_port));
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        world->result_count = 0;
        if (try_open(world, url, &broker, &error) == SKR_OK) {
            size_t count = 0;
            enum skr_code code = SKR_OK;
            for (; code == SKR_OK && count < 5000; count++) {
                make_message(world, count);
                code = try_submit(world, broker, count, world->exchange, "key",
                                  &error);
                if (code == SKR_OK && count % 50 == 0)
                    code = collect_some(world, broker, 0, &error);
                else if (code != SKR_OK)
                    break;
            }
            collect_to_the_end(world, broker, &error);
            assert_int_equal(world->result_count, count);
        } else {
            assert_int_equal(error.code, SKR_UNAVAILABLE);
        }
        skr_broker_close(broker);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

// A server that does not read must not hold the relay in a send.
static void
test_submitting_never_waits_for_a_server_that_does_not_read(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "heartbeat=0");
    enum { SIZE = 10000, COUNT = 5000 };
    char *body = calloc(1, SIZE);
    submit_range(world, broker, 0, 1);
    collect(world, broker, 1);
    freeze_server();
    int64_t start = skr_clock_ms();
    for (size_t i = 1; i < COUNT; i++) {
        make_message(world, i);
        world->messages[i].body = body;
        world->messages[i].body_size = SIZE;
        submit(world, broker, i, world->exchange, "key");
    }
    struct skr_error error = {0};
    enum skr_code code = collect_some(world, broker, 100, &error);
    int64_t took = skr_clock_ms() - start;
    thaw_server();
    assert_int_equal(code, SKR_OK);
    assert_true(took < 5000);
    collect(world, broker, COUNT);
    expect_results(world, 0, COUNT, SKR_CONFIRMED);
    assert_int_equal(count_in(world, world->queue), COUNT);
    free(body);
    skr_broker_close(broker);
}

static void
test_a_server_that_does_not_confirm_is_given_up(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = open_broker(world, "confirm_timeout=0.5");
    submit_range(world, broker, 0, 1);
    collect(world, broker, 1);
    freeze_server();
    submit_range(world, broker, 1, 11);
    collect_to_the_end(world, broker, &error);
    thaw_server();
    assert_int_equal(world->result_count, 11);
    expect_results(world, 1, 11, SKR_UNCERTAIN);
    assert_non_null(strstr(error.text, "confirm_timeout"));
    skr_broker_close(broker);
}

static void
test_a_silent_server_is_noticed_by_its_heartbeats(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = open_broker(world, "heartbeat=1");
    freeze_server();
    collect_to_the_end(world, broker, &error);
    thaw_server();
    assert_non_null(strstr(error.text, "sign of life"));
    skr_broker_close(broker);
}

// The server ends a connection that is silent for two heartbeats.
static void
test_an_idle_connection_is_kept_alive(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = open_broker(world, "heartbeat=1");
    int64_t end = skr_clock_ms() + 5000;
    while (skr_clock_ms() < end) {
        skr_clock_sleep(-1, 200);
        if (collect_some(world, broker, 0, &error) != SKR_OK)
            fail_msg("%s", error.text);
    }
    submit_range(world, broker, 0, 1);
    collect(world, broker, 1);
    assert_int_equal(world->results[0], SKR_CONFIRMED);
    skr_broker_close(broker);
}

// The server is shared: left short of memory it would hold every publisher.
static int
unblock_and_tear_down(void **state)
{
    control("set_vm_memory_high_watermark", "0.4", NULL);
    return rabbitmq_world_tear_down(state);
}

static void
test_a_blocked_connection_waits_and_goes_on(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker =
        open_broker(world, "confirm_timeout=0.5&heartbeat=1");
    submit_range(world, broker, 0, 10);
    collect(world, broker, 10);
    control_beside(world, broker, "set_vm_memory_high_watermark", "0.0000001",
                   NULL);
    // The server says so at the first message that it gets meanwhile.
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    size_t count = 10;
    while (count_events(world, "amqp.blocked") == 0 && skr_clock_ms() < end) {
        submit_range(world, broker, count, count + 1);
        count++;
        assert_int_equal(collect_some(world, broker, 50, &error), SKR_OK);
        if (count == MOST - 1000)
            break;
    }
    assert_int_equal(count_events(world, "amqp.blocked"), 1);
    size_t known = world->result_count;
    submit_range(world, broker, count, count + 500);
    // Well over the confirm_timeout and over three heartbeats.
    end = skr_clock_ms() + 4000;
    while (skr_clock_ms() < end)
        if (collect_some(world, broker, 100, &error) != SKR_OK)
            break;
    size_t known_later = world->result_count;
    assert_int_equal(error.code, SKR_OK);
    control_beside(world, broker, "set_vm_memory_high_watermark", "0.4", NULL);
    assert_true(known_later <= known + 2);
    collect(world, broker, count + 500);
    expect_results(world, 0, count + 500, SKR_CONFIRMED);
    assert_int_equal(count_events(world, "amqp.blocked"), 1);
    assert_int_equal(count_events(world, "amqp.unblocked"), 1);
    skr_broker_close(broker);
}

static void
test_tls_trusts_only_what_it_was_told_to(void **state)
{
    struct world *world = *state;
    const char *url = getenv("SKR_RABBITMQ_TLS_URL");
    const char *folder = getenv("SKR_RABBITMQ_CERTIFICATES");
    const char *tls_port = getenv("SKR_RABBITMQ_TLS_PORT");
    if (url == NULL || folder == NULL)
        skip();
    char text[512];
    snprintf(world->url, sizeof(world->url), "%s", url);
    snprintf(text, sizeof(text), "cacert=%s/authority.pem", folder);
    struct skr_broker *broker = open_broker(world, text);
    submit_range(world, broker, 0, 2000);
    collect(world, broker, 2000);
    expect_results(world, 0, 2000, SKR_CONFIRMED);
    skr_broker_close(broker);

    // With a certificate of our own.
    snprintf(text, sizeof(text),
             "cacert=%s/authority.pem&cert=%s/client.pem&key=%s/client.key",
             folder, folder, folder);
    broker = open_broker(world, text);
    skr_broker_close(broker);
    broker = open_broker(world, "verify=0");
    skr_broker_close(broker);

    expect_no_connection(world, url, SKR_REFUSED, "certificate");
    snprintf(text, sizeof(text), "%s?cacert=%s/stranger.pem", url, folder);
    expect_no_connection(world, text, SKR_REFUSED, "certificate");
    // The certificate is for 127.0.0.1 and localhost; 127.1 leads there too.
    snprintf(text, sizeof(text),
             "amqps://guest:guest@localhost:%s/?cacert=%s/authority.pem",
             tls_port, folder);
    struct skr_error error = {0};
    if (try_open(world, text, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_broker_close(broker);
    snprintf(text, sizeof(text),
             "amqps://guest:guest@127.1:%s/?cacert=%s/authority.pem", tls_port,
             folder);
    expect_no_connection(world, text, SKR_REFUSED, "mismatch");
    snprintf(text, sizeof(text), "%s?cacert=%s/none.pem", url, folder);
    expect_no_connection(world, text, SKR_INVALID, "cacert");
    // TLS with a server that speaks plain AMQP, and the other way round.
    snprintf(text, sizeof(text), "amqps://guest:guest@127.0.0.1:%s/", port());
    expect_no_connection(world, text, SKR_UNAVAILABLE, "127.0.0.1");
    snprintf(text, sizeof(text),
             "amqp://guest:guest@127.0.0.1:%s/?connect_timeout=2", tls_port);
    expect_no_connection(world, text, SKR_UNAVAILABLE, "127.0.0.1");
}

int
main(void)
{
#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, rabbitmq_world_set_up, \
                                    rabbitmq_world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_what_is_wrong_with_a_connection_is_said),
        CASE(test_a_malformed_dsn_is_named),
        CASE(test_user_password_and_vhost_may_hold_any_character),
        CASE(test_access_that_is_refused_closes_the_route),
        CASE(test_several_hosts_are_tried_until_one_answers),
        CASE(test_a_connection_closed_by_the_server_makes_messages_uncertain),
        CASE(test_a_connection_cut_at_any_byte_loses_no_result),
        CASE(test_submitting_never_waits_for_a_server_that_does_not_read),
        CASE(test_a_server_that_does_not_confirm_is_given_up),
        CASE(test_a_silent_server_is_noticed_by_its_heartbeats),
        CASE(test_an_idle_connection_is_kept_alive),
        cmocka_unit_test_setup_teardown(
            test_a_blocked_connection_waits_and_goes_on, rabbitmq_world_set_up,
            unblock_and_tear_down),
        CASE(test_tls_trusts_only_what_it_was_told_to),
    };
    if (getenv("SKR_RABBITMQ_URL") == NULL) {
        puts("SKR_RABBITMQ_URL is not set");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_vhost, remove_vhost);
}
