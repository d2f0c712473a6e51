// SPDX-License-Identifier: MIT
// How workers are, by what they tell beside their log.
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
tell(struct skr_health *health, size_t worker, enum skr_health_event event,
     uint64_t detail)
{
    const struct skr_log log = skr_health_log(health, worker);
    skr_health_tell(&log, event, detail);
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
    tell(*state, 1, SKR_HEALTH_ACTIVE, 0);
    assert_text(*state, "starting");
    tell(*state, 0, SKR_HEALTH_ACTIVE, 0);
    assert_text(*state, "active");
    tell(*state, 0, SKR_HEALTH_ENDED, 0);
    assert_text(*state, "ended");
}

static void
test_the_recovery_of_one_worker_does_not_speak_for_another(void **state)
{
    for (size_t i = 0; i < EACH; i++)
        tell(*state, i, SKR_HEALTH_ACTIVE, 0);
    for (size_t i = 0; i < EACH; i++)
        tell(*state, i, SKR_HEALTH_TROUBLE, SKR_TROUBLE_CONSUMER);
    tell(*state, 1, SKR_HEALTH_RECOVERED, SKR_TROUBLE_CONSUMER);
    assert_text(*state, "in trouble");
    tell(*state, 0, SKR_HEALTH_RECOVERED, SKR_TROUBLE_CONSUMER);
    assert_text(*state, "active");
}

static void
test_every_kind_of_trouble_lasts_until_its_own_end(void **state)
{
    static const enum skr_trouble_kind kinds[] = {
        SKR_TROUBLE_RELAY,       SKR_TROUBLE_SETTLE,  SKR_TROUBLE_CONSUMER,
        SKR_TROUBLE_DEAD_LETTER, SKR_TROUBLE_RETRIES, SKR_TROUBLE_BROKER,
    };
    for (size_t i = 0; i < SKR_COUNT_OF(kinds); i++) {
        for (size_t worker = 0; worker < EACH; worker++)
            tell(*state, worker, SKR_HEALTH_ACTIVE, 0);
        tell(*state, 0, SKR_HEALTH_TROUBLE, kinds[i]);
        // It is said again where its text has changed.
        tell(*state, 0, SKR_HEALTH_TROUBLE, kinds[i]);
        for (size_t other = 0; other < SKR_COUNT_OF(kinds); other++)
            if (other != i)
                tell(*state, 0, SKR_HEALTH_RECOVERED, kinds[other]);
        assert_text(*state, "in trouble");
        tell(*state, 0, SKR_HEALTH_RECOVERED, kinds[i]);
        assert_text(*state, "active");
    }
}

static void
test_the_name_of_an_event_says_nothing_of_health(void **state)
{
    static const char *const events[] = {
        "relay.active",          "relay.standby",          "relay.stopped",
        "relay.trouble",         "relay.settle_trouble",   "relay.route_closed",
        "consumer.ready",        "consumer.trouble",       "consumer.ended",
        "consumer.keep_trouble", "consumer.retry_trouble", "kafka.trouble",
    };
    const struct skr_log log = skr_health_log(*state, 0);
    for (size_t i = 0; i < SKR_COUNT_OF(events); i++)
        skr_log(&log, SKR_LOG_INFO, events[i], SKR_LOG_NUMBER("closed", 1));
    assert_text(*state, "starting");
    for (size_t worker = 0; worker < EACH; worker++)
        tell(*state, worker, SKR_HEALTH_ACTIVE, 0);
    for (size_t i = 0; i < SKR_COUNT_OF(events); i++)
        skr_log(&log, SKR_LOG_INFO, events[i], SKR_LOG_NUMBER("closed", 1));
    assert_text(*state, "active");
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    skr_health_read(*state, entries);
    assert_int_equal(entries[0].troubles, 0);
    assert_int_equal(entries[0].closed_routes, 0);
}

static void
test_trouble_under_another_name_is_the_same_trouble(void **state)
{
    const struct skr_log log = skr_health_log(*state, 0);
    const struct skr_error error = {.text = "away"};
    struct skr_trouble trouble = {0};
    for (size_t worker = 0; worker < EACH; worker++)
        tell(*state, worker, SKR_HEALTH_ACTIVE, 0);
    skr_trouble_report(&trouble, &log, SKR_TROUBLE_RELAY, "other.name", "x",
                       &error);
    assert_text(*state, "in trouble");
    skr_trouble_end(&trouble, &log, SKR_TROUBLE_RELAY, "another.name", "x");
    assert_text(*state, "active");
    skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS, "relay.trouble",
                       "x", &error);
    assert_text(*state, "active");
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    skr_health_read(*state, entries);
    assert_int_equal(entries[0].troubles, 1);
}

static void
test_what_was_given_up_is_nobodys_trouble(void **state)
{
    for (size_t worker = 0; worker < EACH; worker++)
        tell(*state, worker, SKR_HEALTH_ACTIVE, 0);
    tell(*state, 0, SKR_HEALTH_TROUBLE, SKR_TROUBLE_BROKER);
    tell(*state, 0, SKR_HEALTH_TROUBLE, SKR_TROUBLE_RELAY);
    tell(*state, 0, SKR_HEALTH_RECOVERED, SKR_TROUBLE_BROKER);
    assert_text(*state, "in trouble");
    tell(*state, 0, SKR_HEALTH_RECOVERED, SKR_TROUBLE_RELAY);
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
        HEALTH(test_the_name_of_an_event_says_nothing_of_health),
        HEALTH(test_trouble_under_another_name_is_the_same_trouble),
        HEALTH(test_what_was_given_up_is_nobodys_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
