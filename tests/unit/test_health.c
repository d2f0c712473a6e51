// SPDX-License-Identifier: MIT
// How workers are, by what they log.
#include "app/service/health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { EACH = 2 };

static const char *const names[] = {"orders", "outbox"};

static int
set_up(void **state)
{
    static struct skr_health health;
    const struct skr_log silent = {0};
    *state = &health;
    return skr_health_init(&health, &silent, names, SKR_COUNT_OF(names), EACH,
                           NULL) == SKR_OK
               ? 0
               : -1;
}

static int
tear_down(void **state)
{
    skr_health_fini(*state);
    return 0;
}

static void
say(struct skr_health *health, size_t worker, const char *event)
{
    const struct skr_log log = skr_health_log(health, worker);
    skr_log(&log, SKR_LOG_INFO, event, SKR_LOG_TEXT("name", names[0]));
}

static void
assert_text(struct skr_health *health, const char *text)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    assert_int_equal(skr_health_read(health, entries), SKR_COUNT_OF(names));
    assert_string_equal(entries[0].name, names[0]);
    assert_string_equal(skr_health_text(&entries[0]), text);
    assert_string_equal(skr_health_text(&entries[1]), "starting");
}

static void
test_a_transport_is_ready_when_all_of_its_workers_are(void **state)
{
    assert_text(*state, "starting");
    say(*state, 1, "consumer.ready");
    assert_text(*state, "starting");
    say(*state, 0, "consumer.ready");
    assert_text(*state, "active");
    say(*state, 0, "consumer.ended");
    assert_text(*state, "ended");
}

static void
test_the_recovery_of_one_worker_does_not_speak_for_another(void **state)
{
    for (size_t i = 0; i < EACH; i++)
        say(*state, i, "consumer.ready");
    for (size_t i = 0; i < EACH; i++)
        say(*state, i, "consumer.trouble");
    say(*state, 1, "consumer.recovered");
    assert_text(*state, "in trouble");
    say(*state, 0, "consumer.recovered");
    assert_text(*state, "active");
}

static void
test_every_kind_of_trouble_lasts_until_its_own_end(void **state)
{
    static const struct {
        const char *active, *begins, *ends;
    } cases[] = {
        {"relay.active", "relay.trouble", "relay.recovered"},
        {"relay.active", "relay.settle_trouble", "relay.settle_recovered"},
        {"consumer.ready", "consumer.trouble", "consumer.recovered"},
        {"consumer.ready", "consumer.keep_trouble", "consumer.keep_recovered"},
        {"consumer.ready", "consumer.retry_trouble",
         "consumer.retry_recovered"},
        {"relay.active", "kafka.trouble", "kafka.recovered"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        for (size_t worker = 0; worker < EACH; worker++)
            say(*state, worker, cases[i].active);
        say(*state, 0, cases[i].begins);
        // It is said again where its text has changed.
        say(*state, 0, cases[i].begins);
        for (size_t other = 0; other < SKR_COUNT_OF(cases); other++)
            if (other != i)
                say(*state, 0, cases[other].ends);
        assert_text(*state, "in trouble");
        say(*state, 0, cases[i].ends);
        assert_text(*state, "active");
    }
}

static void
test_what_was_given_up_is_nobodys_trouble(void **state)
{
    for (size_t worker = 0; worker < EACH; worker++)
        say(*state, worker, "relay.active");
    say(*state, 0, "kafka.trouble");
    say(*state, 0, "relay.trouble");
    say(*state, 0, "kafka.given_up");
    assert_text(*state, "in trouble");
    say(*state, 0, "relay.recovered");
    assert_text(*state, "active");
}

int
main(void)
{
#define HEALTH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        HEALTH(test_a_transport_is_ready_when_all_of_its_workers_are),
        HEALTH(test_the_recovery_of_one_worker_does_not_speak_for_another),
        HEALTH(test_every_kind_of_trouble_lasts_until_its_own_end),
        HEALTH(test_what_was_given_up_is_nobodys_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
