// SPDX-License-Identifier: MIT
// Which exchanges, queues and bindings a DSN has, and its delay queues.
#include "base/url.h"
#include "broker/rabbitmq/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
describe(const struct skr_amqp_declaration *object, char *text, size_t size)
{
    size_t used = strlen(text);
    if (object->object == SKR_AMQP_BINDING)
        snprintf(text + used, size - used, "%s>%s(%s) ", object->exchange,
                 object->queue, object->binding_key);
    else if (object->object == SKR_AMQP_QUEUE)
        snprintf(text + used, size - used, "%s%s ", object->name,
                 object->durable ? "" : "!");
    else
        snprintf(text + used, size - used, "%s:%s%s%s ", object->name,
                 object->type, object->type_is_default ? "?" : "",
                 object->argument_count > 0 ? object->arguments[0].text : "");
}

static void
test_a_dsn_says_what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *dsn, *objects;
    } cases[] = {
        // It names nothing: what is there, others have made.
        {"amqp://h", ""},
        {"amqp://h/v/orders", ""},
        {"amqp://h?exchange[name]=orders&exchange[type]=topic",
         "orders:topic "},
        {"amqp://h?exchange[name]=orders&exchange[type]=topic"
         "&exchange[arguments][alternate-exchange]=.rest",
         "orders:topic.rest "},
        // Symfony's defaults.
        {"amqp://h?defaults=symfony",
         "messages:fanout? messages messages>messages() "},
        {"amqp://h/v/orders?defaults=symfony",
         "orders:fanout? orders orders>orders() "},
        {"amqp://h?exchange[name]=&defaults=symfony", "messages "},
        {"amqp://h/v/amq.topic?defaults=symfony",
         "amq.topic:fanout? messages amq.topic>messages() "},
        // Queues that it names, with and without an exchange.
        {"amqp://h?queues=a,b", "a b "},
        {"amqp://h/v/x?queues[a]=&queues[b][binding_keys][0]=k&queues[b]"
         "[binding_keys][1]=l&queues[b][flags]=0",
         "x:fanout? a b! x>a() x>b(k) x>b(l) "},
        {"amqp://h/v/x?queues=a,b&only=b", "x:fanout? b x>b() "},
        {"amqp://h/v/x?queues=a,b,c&only=b&only=c&only=b",
         "x:fanout? b c x>b() x>c() "},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_url url;
        struct skr_plan plan;
        struct skr_error error = {0};
        char text[400] = "";
        assert_int_equal(skr_url_parse(cases[i].dsn, &url, &error), SKR_OK);
        if (skr_rabbit_topology.plan(cases[i].dsn, &url, &plan, &error) !=
            SKR_OK)
            fail_msg("%s: %s", cases[i].dsn, error.text);
        assert_string_equal(plan.server, "h:5672");
        for (size_t k = 0; k < plan.count; k++)
            describe(&plan.declarations[k], text, sizeof(text));
        assert_string_equal(text, cases[i].objects);
        skr_arena_fini(&plan.arena);
        skr_url_fini(&url);
    }
}

static int64_t
number_of(const struct rabbit_delay_queue *delay, const char *name)
{
    for (size_t i = 0; i < delay->queue.argument_count; i++)
        if (strcmp(delay->arguments[i].name, name) == 0)
            return delay->arguments[i].number;
    return -1;
}

static void
test_delays_share_queues_by_their_first_two_digits(void **state)
{
    (void)state;
    static const struct {
        uint32_t delay_ms;
        int64_t rounded_ms;
    } cases[] = {
        {0, 1},
        {1, 1},
        {99, 99},
        {100, 100},
        {101, 110},
        {1000, 1000},
        {1001, 1100},
        {60000, 60000},
        {61234, 62000},
        {999, 1000},
        {4200000, 4200000},
        {UINT32_MAX, (int64_t)UINT32_MAX - 10000},
    };
    const struct rabbit_options options = {
        .topology.exchange = "x",
        .delay_exchange = "delays",
        .delay_queue_pattern = "d_%exchange_name%_%routing_key%_%delay%",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct rabbit_delay_queue delay;
        char name[80];
        assert_int_equal(skr_rabbit_delay_queue(&options, "orders",
                                                cases[i].delay_ms, &delay,
                                                NULL),
                         SKR_OK);
        snprintf(name, sizeof(name), "d_x_orders_%lld_retry",
                 (long long)cases[i].rounded_ms);
        assert_string_equal(delay.name, name);
        assert_int_equal(number_of(&delay, "x-message-ttl"),
                         cases[i].rounded_ms);
        assert_int_equal(number_of(&delay, "x-expires"),
                         cases[i].rounded_ms + 10000);
        assert_ptr_equal(delay.queue.name, delay.name);
        assert_string_equal(delay.binding.exchange, "delays");
        assert_ptr_equal(delay.binding.binding_key, delay.name);
    }
}

static void
test_a_delay_queue_whose_name_is_too_long_is_refused(void **state)
{
    (void)state;
    char queue[251];
    struct rabbit_delay_queue delay;
    const struct rabbit_options options = {
        .delay_exchange = "delays", .delay_queue_pattern = "%routing_key%"};
    memset(queue, 'q', sizeof(queue) - 1);
    queue[250] = '\0';
    assert_int_equal(skr_rabbit_delay_queue(&options, queue, 1, &delay, NULL),
                     SKR_INVALID);
    queue[249] = '\0';  // with "_retry" it is 255 bytes
    assert_int_equal(skr_rabbit_delay_queue(&options, queue, 1, &delay, NULL),
                     SKR_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dsn_says_what_there_is),
        cmocka_unit_test(test_delays_share_queues_by_their_first_two_digits),
        cmocka_unit_test(test_a_delay_queue_whose_name_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
