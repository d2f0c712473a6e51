// SPDX-License-Identifier: MIT
// The RabbitMQ broker against a server that misbehaves, and its window against
// chance. No server is needed.
#include "broker/rabbitmq/window.h"
#include "rabbitmq_world.h"
#include "support/fake_rabbitmq.h"
#include "support/oom.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static struct skr_fake_rabbitmq fake;

static int
start(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    skr_fake_rabbitmq_start(&fake, NULL);
    snprintf(world->url, sizeof(world->url), "amqp://a:secret@127.0.0.1:%d/",
             fake.port);
    snprintf(world->exchange, sizeof(world->exchange), "fake");
    *state = world;
    return 0;
}

static int
stop(void **state)
{
    skr_fake_rabbitmq_stop(&fake);
    free(*state);
    return 0;
}

static void
submit_body(struct world *world, struct skr_broker *broker, size_t number,
            const char *body)
{
    make_message(world, number);
    world->messages[number].body = body;
    world->messages[number].body_size = strlen(body);
    submit(world, broker, number, world->exchange, "key");
}

static void
test_confirms_may_come_in_any_order(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    for (size_t i = 0; i < 3000; i++)
        submit_body(world, broker, i,
                    i % 100 == 99   ? "release"
                    : i == 550      ? "all"
                    : i % 100 == 10 ? "nack"
                    : i % 100 == 20 ? "return"
                    : i % 3 == 0    ? "hold"
                                    : "ack");
    collect(world, broker, 3000);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(world->results[i], i % 100 == 10 ? SKR_REFUSED_FOR_NOW
                                            : i % 100 == 20 ? SKR_UNROUTABLE
                                                            : SKR_CONFIRMED);
    skr_broker_close(broker);
}

enum { REPLACED_WITHIN_MS = 15000 };

static enum skr_publish_result
send_one(struct world *world, struct skr_broker *broker, size_t number,
         const char *body)
{
    submit_body(world, broker, number, body);
    world->result_count = 0;
    collect(world, broker, 1);
    return world->results[number];
}

static void
test_a_channel_that_refuses_is_replaced(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    for (size_t i = 0; i < 20; i++)
        submit_body(world, broker, i, "stale");
    collect(world, broker, 20);
    expect_results(world, 0, 20, SKR_REFUSED_FOR_NOW);
    int64_t end = skr_clock_ms() + REPLACED_WITHIN_MS;
    while (send_one(world, broker, 0, "stale") != SKR_CONFIRMED)
        assert_true(skr_clock_ms() < end);
    world->result_count = 0;
    for (size_t i = 0; i < 600; i++)
        submit_body(world, broker, i, i % 7 == 0 ? "return" : "stale");
    collect(world, broker, 600);
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(world->results[i],
                         i % 7 == 0 ? SKR_UNROUTABLE : SKR_CONFIRMED);
    skr_broker_close(broker);
}

// A queue that is full refuses on any channel: 500, 1000 and 2000 ms lie
// between the four that this one takes.
static void
test_a_queue_that_stays_full_is_no_storm_of_channels(void **state)
{
    enum { LEAST_MS = 3400 };
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    int64_t start_ms = skr_clock_ms();
    while (send_one(world, broker, 0, "full") != SKR_CONFIRMED)
        assert_true(skr_clock_ms() - start_ms < REPLACED_WITHIN_MS);
    assert_true(skr_clock_ms() - start_ms >= LEAST_MS);
    skr_broker_close(broker);
}

// Others are under way all the time.
static void
test_a_busy_channel_that_refuses_is_replaced(void **state)
{
    enum { ROUND = 100, UNDER_WAY = 10 };
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    struct skr_error error = {0};
    int64_t end = skr_clock_ms() + REPLACED_WITHIN_MS;
    size_t submitted = 0;
    for (size_t i = 0; world->results[0] != SKR_CONFIRMED || i == 0; i++) {
        assert_true(skr_clock_ms() < end);
        submit_body(world, broker, i % ROUND, i % ROUND == 0 ? "stale" : "ack");
        submitted++;
        while (submitted - world->result_count > UNDER_WAY)
            assert_int_equal(collect_some(world, broker, 100, &error), SKR_OK);
    }
    collect(world, broker, submitted);
    expect_results(world, 0, ROUND, SKR_CONFIRMED);
    skr_broker_close(broker);
}

// Nor does it keep others from being sent on that channel.
static void
test_a_message_without_an_answer_keeps_its_channel(void **state)
{
    enum { WHILE_MS = 1500 };  // longer than a channel stays that refuses
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    submit_body(world, broker, 0, "hold");
    assert_int_equal(send_one(world, broker, 1, "stale"), SKR_REFUSED_FOR_NOW);
    for (int64_t end = skr_clock_ms() + WHILE_MS; skr_clock_ms() < end;)
        assert_int_equal(send_one(world, broker, 2, "ack"), SKR_CONFIRMED);
    assert_int_equal(world->results[0], -1);
    world->result_count = 0;
    submit_body(world, broker, 3, "release");
    collect(world, broker, 2);
    assert_int_equal(world->results[0], SKR_CONFIRMED);
    skr_broker_close(broker);
}

// The whole connection goes, and everything in flight with it.
static void
test_a_closed_connection_costs_only_the_message_that_closed_it(void **state)
{
    static const struct {
        const char *body;
        enum skr_publish_result result;
    } cases[] = {
        {"501", SKR_REFUSED_FOR_GOOD},
        {"502", SKR_REFUSED_FOR_GOOD},
        {"541", SKR_REFUSED_FOR_NOW},
    };
    struct world *world = *state;
    for (size_t k = 0; k < SKR_COUNT_OF(cases); k++) {
        struct skr_broker *broker = open_broker(world, "");
        world->result_count = 0;
        for (size_t i = 0; i < 200; i++)
            submit_body(world, broker, i,
                        i == 50 || i == 199 ? cases[k].body
                        : i == 20           ? "return"
                                            : "ack");
        collect(world, broker, 200);
        for (size_t i = 0; i < 200; i++)
            assert_int_equal(world->results[i], i == 50 || i == 199
                                                    ? cases[k].result
                                                : i == 20 ? SKR_UNROUTABLE
                                                          : SKR_CONFIRMED);
        assert_string_equal(world->reasons[50].native, cases[k].body);
        skr_broker_close(broker);
    }
}

static void
test_what_makes_no_sense_ends_the_connection(void **state)
{
    static const char *const bodies[] = {"stranger", "future", "zero",
                                         "garbage",  "open",   "320"};
    struct world *world = *state;
    for (size_t k = 0; k < SKR_COUNT_OF(bodies); k++) {
        struct skr_broker *broker = open_broker(world, "");
        struct skr_error error = {0};
        enum skr_code code = SKR_OK;
        world->result_count = 0;
        for (size_t i = 0; i < 10; i++)
            submit_body(world, broker, i, i == 5 ? bodies[k] : "hold");
        int64_t end = skr_clock_ms() + DEADLINE_MS;
        while (code == SKR_OK && skr_clock_ms() < end)
            code = collect_some(world, broker, 100, &error);
        assert_int_equal(code, SKR_UNAVAILABLE);
        assert_int_equal(error.remedy, SKR_RECONNECT);
        assert_int_equal(world->result_count, 10);
        expect_results(world, 0, 10, SKR_UNCERTAIN);
        skr_broker_close(broker);
    }
}

// A method of 2^32 - 1 bytes: with what is around it, 6 on 32 bits.
#define HUGE_FRAME                 \
    "\x01\x01\x01\xff\xff\xff\xff" \
    "abcdefghijkl"

static void
test_a_server_that_speaks_something_else_is_named(void **state)
{
    static const char *const greetings[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                            "AMQP\x01\x01\x01\x0a", HUGE_FRAME};
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(greetings); i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        skr_fake_rabbitmq_stop(&fake);
        skr_fake_rabbitmq_start(&fake, greetings[i]);
        snprintf(world->url, sizeof(world->url),
                 "amqp://a:secret@127.0.0.1:%d/?connect_timeout=2", fake.port);
        assert_int_equal(try_open(world, world->url, &broker, &error),
                         SKR_UNAVAILABLE);
        assert_null(strstr(error.text, "secret"));
        assert_non_null(strstr(error.text, "127.0.0.1"));
        if (strcmp(greetings[i], HUGE_FRAME) == 0)
            assert_non_null(strstr(error.text, "a frame that is too large"));
    }
}

// A host that takes the connection and says nothing holds up a stop for no
// longer than it takes to notice.
static void
test_connecting_ends_when_a_stop_is_asked_for(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    skr_fake_rabbitmq_stop(&fake);
    skr_fake_rabbitmq_start(&fake, "");
    snprintf(world->url, sizeof(world->url),
             "amqp://a:secret@127.0.0.1:%d/?connect_timeout=60", fake.port);
    int wake_fd = eventfd(1, 0);
    const struct skr_broker_options options = {.url = world->url,
                                               .wake_fd = wake_fd};
    int64_t begin = skr_clock_ms();
    assert_int_equal(
        skr_broker_open(&skr_rabbitmq_broker, &options, &broker, &error),
        SKR_STOPPED);
    assert_true(skr_clock_ms() - begin < 10000);
    close(wake_fd);
}

static void *
wake_later(void *user)
{
    skr_clock_sleep(-1, 200);
    eventfd_write(*(int *)user, 1);
    return NULL;
}

// The same of one that says nothing more once one is logged in.
static void
test_opening_ends_when_a_stop_is_asked_for(void **state)
{
    struct world *world = *state;
    int wake_fd = eventfd(0, 0);
    const char *const parameters[] = {
        "", "?exchange[name]=a&exchange[type]=topic", "?queues[good]="};
    for (size_t i = 0; i < SKR_COUNT_OF(parameters); i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        pthread_t thread;
        eventfd_t seen = 0;
        snprintf(world->url, sizeof(world->url),
                 "amqp://a:secret@127.0.0.1:%d/mute%s", fake.port,
                 parameters[i]);
        const struct skr_broker_options options = {
            .url = world->url,
            .auto_setup = true,
            .consumes = strstr(parameters[i], "queues") != NULL,
            .wake_fd = wake_fd};
        int64_t begin = skr_clock_ms();
        assert_int_equal(pthread_create(&thread, NULL, wake_later, &wake_fd),
                         0);
        assert_int_equal(
            skr_broker_open(&skr_rabbitmq_broker, &options, &broker, &error),
            SKR_STOPPED);
        assert_true(skr_clock_ms() - begin < 10000);
        pthread_join(thread, NULL);
        eventfd_read(wake_fd, &seen);
    }
    close(wake_fd);
}

// A model of the window: random sends, answers and closed channels. Every
// message gets one result, in order are they sent, and the model knows which
// result it must be.
static void
test_the_window_holds_against_chance(void **state)
{
    (void)state;
    enum { TOTAL = 20000 };
    static const struct skr_error reason = {.code = SKR_REFUSED};
    struct rabbit_window window;
    struct skr_message message = {0};
    unsigned char *given = calloc(TOTAL, 1);
    size_t added = 0, done = 0;
    uint64_t highest = 0;
    srandom(1);
    assert_int_equal(skr_rabbit_window_init(&window, NULL), SKR_OK);
    while (done < TOTAL) {
        long dice = random() % 100;
        struct rabbit_entry *entry = NULL;
        if (dice < 45 && added < TOTAL && added - done < 1500) {
            assert_int_equal(
                skr_rabbit_window_add(&window, &message, "x", "k", added, NULL),
                SKR_OK);
            added++;
        } else if (dice < 75 &&
                   (entry = skr_rabbit_window_next(&window)) != NULL) {
            // While some are suspect, one at a time.
            assert_true(window.first >= window.suspects_end ||
                        window.in_flight == 0);
            if (random() % 20 == 0)
                skr_rabbit_window_skip(&window, SKR_ROUTE_UNAVAILABLE, &reason);
            else
                skr_rabbit_window_sent(&window, 0);
        } else if (dice < 95 && window.lowest_tag < window.next_tag) {
            uint64_t tag =
                window.lowest_tag +
                (uint64_t)random() % (window.next_tag - window.lowest_tag);
            uint64_t number = window.numbers[tag & (window.capacity - 1)];
            entry = &window.entries[number & (window.capacity - 1)];
            if (number != UINT64_MAX && entry->return_reason == NULL &&
                random() % 10 == 0) {
                assert_int_equal(skr_rabbit_entry_return(entry, &reason, NULL),
                                 SKR_OK);
                entry->goes_again = random() % 2 == 0;
            }
            assert_true(skr_rabbit_window_settle(
                &window, tag, random() % 3 == 0,
                random() % 10 == 0 ? SKR_REFUSED_FOR_NOW : SKR_CONFIRMED));
        } else if (dice == 99) {
            skr_rabbit_window_rewind(&window, SKR_REFUSED_FOR_GOOD, &reason);
            assert_int_equal(window.in_flight, 0);
        }
        struct skr_published results[16];
        size_t count =
            random() % 3 == 0
                ? skr_rabbit_window_give(&window, &reason, results, 16)
                : 0;
        for (size_t i = 0; i < count; i++) {
            assert_true(results[i].tag < added);
            assert_int_equal(given[results[i].tag], 0);
            given[results[i].tag] = 1;
        }
        done += count;
        assert_true(window.first <= window.next && window.next <= window.end);
        assert_int_equal(window.outstanding, added - done);
        highest = window.capacity > highest ? window.capacity : highest;
    }
    assert_int_equal(window.first, window.end);
    assert_true(highest > 256);  // it grew on the way
    skr_rabbit_window_fini(&window);
    free(given);
}

static void
send_next(struct rabbit_window *window)
{
    assert_non_null(skr_rabbit_window_next(window));
    skr_rabbit_window_sent(window, 0);
}

// The first came back and waits to be sent again when the channel is closed
// for the second, which alone was in flight.
static void
test_what_waits_to_go_again_is_not_blamed_for_another(void **state)
{
    (void)state;
    static const struct skr_error reason = {.code = SKR_REFUSED};
    struct rabbit_window window;
    struct skr_message message = {0};
    struct skr_published results[4];
    assert_int_equal(skr_rabbit_window_init(&window, NULL), SKR_OK);
    for (uint64_t tag = 0; tag < 2; tag++) {
        assert_int_equal(
            skr_rabbit_window_add(&window, &message, "x", "k", tag, NULL),
            SKR_OK);
        send_next(&window);
    }
    struct rabbit_entry *first = &window.entries[window.first];
    assert_int_equal(skr_rabbit_entry_return(first, &reason, NULL), SKR_OK);
    first->goes_again = true;
    assert_true(skr_rabbit_window_settle(&window, 1, false, SKR_CONFIRMED));
    skr_rabbit_window_rewind(&window, SKR_REFUSED_FOR_GOOD, &reason);
    assert_ptr_equal(skr_rabbit_window_next(&window), first);
    send_next(&window);
    assert_true(skr_rabbit_window_settle(&window, 1, false, SKR_CONFIRMED));
    assert_int_equal(skr_rabbit_window_give(&window, &reason, results, 4), 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(results[i].result, results[i].tag == 0
                                                ? SKR_CONFIRMED
                                                : SKR_REFUSED_FOR_GOOD);
    skr_rabbit_window_fini(&window);
}

static enum skr_code
open_setting_up(struct world *world, const char *queue, const char *patience,
                struct skr_error *error)
{
    struct skr_broker *broker = NULL;
    char url[800];
    snprintf(url, sizeof(url),
             "%s?auto_setup=1&exchange[name]=x&exchange[type]=topic"
             "&queues[%s]=&confirm_timeout=%s",
             world->url, queue, patience);
    enum skr_code code = try_open(world, url, &broker, error);
    skr_broker_close(broker);
    return code;
}

// A cluster of which a node hangs answers no second time.
static void
test_what_was_bound_is_not_waited_for_again(void **state)
{
    struct skr_error error = {0};
    for (int i = 0; i < 3; i++)
        if (open_setting_up(*state, "bound-once", "10", &error) != SKR_OK)
            fail_msg("%s", error.text);
}

static void
test_a_binding_is_waited_for_as_long_as_a_confirm(void **state)
{
    struct skr_error error = {0};
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(open_setting_up(*state, "unbindable", "2", &error),
                     SKR_UNAVAILABLE);
    assert_true(skr_clock_ms() - start_ms < 10000);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "unbindable"));
    assert_non_null(strstr(error.text, "confirm_timeout"));
}

// The kernel takes connections for a host that hangs.
static int
listen_silently(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 100), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static int
count_connections(int listener)
{
    int count = 0, fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        count++;
        close(fd);
    }
    return count;
}

// Alone, so that no other host can be silent, too, on a machine that is busy.
static void
learn_that_it_is_silent(struct world *world, const char *scheme, int port)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char url[600];
    snprintf(url, sizeof(url),
             "%s://a:secret@127.0.0.1:%d/?connect_timeout=0.3", scheme, port);
    assert_int_equal(try_open(world, url, &broker, &error), SKR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "no answer in time"));
}

static void
test_a_host_that_was_silent_is_tried_last(void **state)
{
    struct world *world = *state;
    int port = 0;
    int silent = listen_silently(&port);
    learn_that_it_is_silent(world, "amqp", port);
    assert_int_equal(count_connections(silent), 1);
    snprintf(world->url, sizeof(world->url),
             "amqp://a:secret@127.0.0.1:%d,127.0.0.1:%d/", port, fake.port);
    for (int i = 0; i < 20; i++) {
        skr_broker_close(open_broker(world, "connect_timeout=10"));
        assert_int_equal(count_connections(silent), 0);
    }
    close(silent);
}

// The fake has no TLS, and says so at once; so does a port that is closed.
static void
test_a_host_that_is_silent_in_a_handshake_is_tried_last(void **state)
{
    struct world *world = *state;
    int port = 0;
    int silent = listen_silently(&port);
    learn_that_it_is_silent(world, "amqps", port);
    close(silent);
    char url[600], name[32];
    snprintf(name, sizeof(name), "127.0.0.1:%d", port);
    snprintf(url, sizeof(url),
             "amqps://a:secret@%s,127.0.0.1:%d/?connect_timeout=10", name,
             fake.port);
    for (int i = 0; i < 20; i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        assert_int_equal(try_open(world, url, &broker, &error),
                         SKR_UNAVAILABLE);
        const char *last = strstr(error.text, name);
        const char *refused = strstr(error.text, "plain port");
        assert_true(last != NULL && refused != NULL);
        assert_true(refused < last);
    }
}

// Each is the one that was silent less lately.
static void
test_a_host_that_stops_answering_is_left_for_the_other(void **state)
{
    struct world *world = *state;
    struct skr_fake_rabbitmq other;
    char names[2][32];
    int last = -1;
    skr_fake_rabbitmq_start(&other, NULL);
    snprintf(names[0], sizeof(names[0]), "127.0.0.1:%d ", fake.port);
    snprintf(names[1], sizeof(names[1]), "127.0.0.1:%d ", other.port);
    snprintf(world->url, sizeof(world->url),
             "amqp://a:secret@127.0.0.1:%d,127.0.0.1:%d/", fake.port,
             other.port);
    for (size_t i = 0; i < 10; i++) {
        struct skr_error error = {0};
        struct skr_broker *broker = open_broker(world, "confirm_timeout=0.1");
        submit_body(world, broker, i, "hold");
        enum skr_code code = SKR_OK;
        int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
        while (code == SKR_OK && skr_clock_ms() < end_ms)
            code = collect_some(world, broker, 100, &error);
        assert_int_equal(code, SKR_UNAVAILABLE);
        int which = strstr(error.text, names[0]) != NULL ? 0 : 1;
        assert_non_null(strstr(error.text, names[which]));
        assert_int_not_equal(which, last);
        last = which;
        skr_broker_close(broker);
    }
    skr_fake_rabbitmq_stop(&other);
}

// A session of everything, which may end anywhere for want of memory.
static void
run_session(struct world *world)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    size_t taken = 0;
    world->result_count = 0;
    if (try_open(world, world->url, &broker, &error) != SKR_OK) {
        assert_null(broker);
        return;
    }
    for (size_t i = 0; i < 300; i++) {
        char exchange[16];
        const char *body = i % 50 == 10   ? "nack"
                           : i % 50 == 20 ? "return"
                                          : "ok";
        snprintf(exchange, sizeof(exchange), "x%zu", i % 20);
        make_message(world, i);
        world->messages[i].body = body;
        world->messages[i].body_size = strlen(body);
        enum skr_code code =
            try_submit(world, broker, i, exchange, "key", &error);
        taken += code == SKR_OK;
        if (code != SKR_OK && error.remedy == SKR_RECONNECT)
            break;
    }
    enum skr_code code = SKR_OK;
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    while (code == SKR_OK && world->result_count < taken &&
           skr_clock_ms() < end)
        code = collect_some(world, broker, 100, &error);
    while (code != SKR_OK && world->result_count < taken)
        if (collect_some(world, broker, 0, &error) != SKR_OK)
            break;
    assert_int_equal(world->result_count, taken);
    skr_broker_close(broker);
}

static void
test_memory_that_runs_out_costs_no_result(void **state)
{
    struct world *world = *state;
    bool struck = true;
    size_t nth = 0;
    while (struck) {
        size_t live = skr_oom_live();
        skr_oom_arm(++nth);
        run_session(world);
        struck = skr_oom_disarm();
        assert_int_equal(skr_oom_live(), live);
    }
    assert_true(nth > 100);
}

int
main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(test_confirms_may_come_in_any_order),
        CASE(test_a_channel_that_refuses_is_replaced),
        CASE(test_a_queue_that_stays_full_is_no_storm_of_channels),
        CASE(test_a_busy_channel_that_refuses_is_replaced),
        CASE(test_a_message_without_an_answer_keeps_its_channel),
        CASE(test_a_closed_connection_costs_only_the_message_that_closed_it),
        CASE(test_what_makes_no_sense_ends_the_connection),
        CASE(test_a_server_that_speaks_something_else_is_named),
        CASE(test_connecting_ends_when_a_stop_is_asked_for),
        CASE(test_opening_ends_when_a_stop_is_asked_for),
        CASE(test_what_was_bound_is_not_waited_for_again),
        CASE(test_a_binding_is_waited_for_as_long_as_a_confirm),
        CASE(test_a_host_that_was_silent_is_tried_last),
        CASE(test_a_host_that_is_silent_in_a_handshake_is_tried_last),
        CASE(test_a_host_that_stops_answering_is_left_for_the_other),
        CASE(test_memory_that_runs_out_costs_no_result),
        cmocka_unit_test(test_the_window_holds_against_chance),
        cmocka_unit_test(test_what_waits_to_go_again_is_not_blamed_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
