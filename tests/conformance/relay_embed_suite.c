// SPDX-License-Identifier: MIT
// The relay as an application embeds it: by the public headers alone. The queue
// broker's table stands beside the outbox.
#include "conformance/databases.h"
#include "store/messenger/messenger.h"
#include "support/fake_broker.h"

#include <pthread.h>
#include <skirnir/queue.h>
#include <skirnir/relay.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 };
#define OUTBOX "SELECT COUNT(*) FROM messenger_outbox WHERE queue_name = "
#define QUEUED \
    "SELECT COUNT(*) FROM messenger_messages WHERE queue_name = 'orders'"

struct world {
    struct skr_test_database database;
    struct skr_db *db;  // to look with
    struct skr_test_client client;
    struct skr_outbox *outbox;
    const char *message_name;
    struct skr_relay_options options;
    struct skr_relay *relay;
    pthread_t thread;
    enum skr_code ended_with;
    struct skr_error error;
    atomic_int actives;
    int64_t awaited;  // messages in the queue
};

static void
count_lines(void *user, enum skr_log_level level, const char *event,
            const struct skr_log_field *fields, size_t count)
{
    struct world *world = user;
    (void)level;
    (void)fields;
    (void)count;
    if (strcmp(event, "relay.active") == 0)
        atomic_fetch_add(&world->actives, 1);
}

// As `skirnir setup` does.
static void
make_tables(struct world *world, bool is_ordered)
{
    struct skr_store *table = NULL;
    assert_int_equal(
        skr_messenger_new(
            &(struct skr_messenger_options){
                .dialect = skr_db_dialect(world->db),
                .table = is_ordered ? "ordered_outbox" : "messenger_outbox",
                .queue = "outbox",
                .is_ordered = is_ordered,
                .is_sharded = true,  // the table of leases, too
                .failed_table = "messenger_messages"},
            &table, NULL),
        SKR_OK);
    assert_int_equal(skr_store_create(table, world->db, NULL), SKR_OK);
    skr_store_free(table);
}

static int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    skr_test_database_make(&world->database);
    world->db = skr_test_connect(&world->database);
    make_tables(world, false);
    world->client = skr_test_client_open(&world->database);
    assert_int_equal(skr_outbox_new(NULL, &world->outbox, NULL), SKR_OK);
    world->message_name = "order.placed";
    world->options = (struct skr_relay_options){
        .name = "shop",
        .database = world->database.ops,
        .database_url = world->database.url,
        .broker = &skr_queue_broker,
        .broker_url = "queue://shop?queue_name=orders",
        .queue_database = world->database.ops,
        .queue_database_url = world->database.url,
        .log = count_lines,
        .log_user = world,
    };
    *state = world;
    return 0;
}

static int
tear_down(void **state)
{
    struct world *world = *state;
    skr_outbox_free(world->outbox);
    skr_test_client_close(&world->client);
    skr_db_close(world->db);
    skr_test_database_remove(&world->database);
    free(world);
    return 0;
}

static void
publish(struct world *world, size_t count, const char *partition_key)
{
    skr_test_client_begin(&world->client);
    for (size_t i = 0; i < count; i++) {
        char body[32];
        snprintf(body, sizeof(body), "%zu", i);
        const struct skr_message message = {.name = world->message_name,
                                            .partition_key = partition_key,
                                            .body = body,
                                            .body_size = strlen(body)};
        assert_int_equal(skr_publish(world->outbox, world->client.tx, &message,
                                     1, NULL, NULL),
                         SKR_OK);
    }
    skr_test_client_commit(&world->client);
}

static void
make_relay(struct world *world)
{
    struct skr_error error = {0};
    if (skr_relay_new(&world->options, &world->relay, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static void *
run(void *user)
{
    struct world *world = user;
    world->ended_with = skr_relay_run(world->relay, &world->error);
    return NULL;
}

static void
run_until_empty(struct world *world)
{
    world->options.stop_when_empty = true;
    make_relay(world);
    run(world);
    skr_relay_free(world->relay);
    if (world->ended_with != SKR_OK)
        fail_msg("%s", world->error.text);
}

static bool
is_queued(void *user)
{
    const struct world *world = user;
    return skr_test_number(world->db, QUEUED) == world->awaited;
}

static bool
is_active(void *user)
{
    struct world *world = user;
    return atomic_load(&world->actives) > 0;
}

static void
what_was_published_is_in_the_queue_and_the_outbox_empty(void **state)
{
    struct world *world = *state;
    publish(world, 250, NULL);
    run_until_empty(world);
    assert_int_equal(skr_test_number(world->db, QUEUED), 250);
    assert_int_equal(skr_test_number(world->db, OUTBOX "'outbox'"), 0);
    skr_test_assert_text(world->db,
                         "SELECT body FROM messenger_messages WHERE id = "
                         "(SELECT MIN(id) FROM messenger_messages)",
                         "0");
}

static void
options_are_copied(void **state)
{
    struct world *world = *state;
    char url[256], queue[] = "other";
    snprintf(url, sizeof(url), "%s", world->database.url);
    world->options.database_url = world->options.queue_database_url = url;
    world->options.queue = queue;
    world->options.stop_when_empty = true;
    publish(world, 1, NULL);
    skr_test_run(world->db, "UPDATE messenger_outbox SET queue_name = 'other'");
    make_relay(world);
    memset(url, 'x', sizeof(url) - 1);
    memset(queue, 'x', sizeof(queue) - 1);
    run(world);
    skr_relay_free(world->relay);
    assert_int_equal(world->ended_with, SKR_OK);
    assert_int_equal(skr_test_number(world->db, QUEUED), 1);
}

static void
every_claim_relays_a_plain_and_an_ordered_queue(void **state)
{
    struct world *world = *state;
    const struct skr_outbox_options ordered = {.table = "ordered_outbox",
                                               .is_ordered = true};
    struct skr_outbox *plain = world->outbox;
    struct skr_outbox *in_order = NULL;
    assert_int_equal(skr_outbox_new(&ordered, &in_order, NULL), SKR_OK);
    make_tables(world, true);
    for (int claim = SKR_RELAY_EXCLUSIVE; claim <= SKR_RELAY_LEASE; claim++) {
        world->options.claim = (enum skr_relay_claim)claim;
        publish(world, 10, NULL);
        run_until_empty(world);
        world->outbox = in_order;
        world->options.table = ordered.table;
        world->options.is_ordered = true;
        publish(world, 10, "customer-1");
        run_until_empty(world);
        world->outbox = plain;
        world->options.table = NULL;
        world->options.is_ordered = false;
        assert_int_equal(skr_test_number(world->db, QUEUED), 20 * (claim + 1));
    }
    skr_outbox_free(in_order);
}

static void
the_broker_url_names_exchange_or_topic_and_else_the_message_does(void **state)
{
    struct world *world = *state;
    struct skr_broker_ops with_topics = skr_fake_broker;
    with_topics.has_topics = true;
    const struct {
        const struct skr_broker_ops *broker;
        const char *url, *expected;
    } cases[] = {
        {&skr_fake_broker, "fake://test", "order.placed"},
        {&skr_fake_broker, "fake://test/%2f", "order.placed"},
        {&skr_fake_broker, "fake://test/%2f/shop", "shop"},
        {&skr_fake_broker, "fake://test/%2f/shop?exchange[name]=a", "a"},
        {&with_topics, "fake://test/", "order.placed.again"},
        {&with_topics, "fake://test/shop", "shop"},
        {&with_topics, "fake://test/shop?topic=a", "a"},
    };
    struct skr_fake *fake = malloc(sizeof(*fake));
    world->message_name = "order.placed.again";
    world->options.queue_database = NULL;
    world->options.queue_database_url = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        skr_fake_init(fake);
        world->options.broker = cases[i].broker;
        world->options.broker_url = cases[i].url;
        publish(world, 1, NULL);
        run_until_empty(world);
        assert_int_equal(skr_fake_got(fake), 1);
        assert_string_equal(fake->got[0].exchange, cases[i].expected);
        skr_fake_fini(fake);
    }
    free(fake);
}

static void
another_thread_stops_a_relay_that_waits_for_work(void **state)
{
    struct world *world = *state;
    make_relay(world);
    pthread_create(&world->thread, NULL, run, world);
    assert_true(skr_test_eventually(is_active, world, WAIT_MS));
    publish(world, 3, NULL);
    world->awaited = 3;
    assert_true(skr_test_eventually(is_queued, world, WAIT_MS));
    skr_relay_stop(world->relay);
    pthread_join(world->thread, NULL);
    assert_int_equal(world->ended_with, SKR_STOPPED);
    assert_int_equal(skr_test_number(world->db, OUTBOX "'outbox'"), 0);
    skr_relay_free(world->relay);
}

static void
a_stop_before_the_run_ends_it_and_there_is_no_second_run(void **state)
{
    struct world *world = *state;
    make_relay(world);
    skr_relay_stop(world->relay);
    assert_int_equal(skr_relay_run(world->relay, NULL), SKR_STOPPED);
    assert_int_equal(skr_relay_run(world->relay, &world->error), SKR_INVALID);
    assert_non_null(strstr(world->error.text, "runs once"));
    assert_int_equal(skr_relay_run(world->relay, NULL), SKR_INVALID);
    skr_relay_free(world->relay);
}

static void
a_mistake_that_was_there_from_the_start_ends_the_run(void **state)
{
    struct world *world = *state;
    struct {
        const char *table, *failed_table, *broker_url;
        enum skr_code code;
        const char *said;
    } cases[] = {
        {"no_such_outbox", NULL, NULL, SKR_MISSING, "no_such_outbox"},
        {NULL, "no_such_failed", NULL, SKR_MISSING, "no_such_failed"},
        {NULL, NULL, "queue://shop?table_name=no_such_queue", SKR_MISSING,
         "no_such_queue"},
        {NULL, NULL, "queue://shop?redeliver_timeout=x", SKR_INVALID,
         "redeliver_timeout"},
    };
    const struct skr_relay_options good = world->options;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world->options = good;
        world->options.table = cases[i].table;
        world->options.failed_table = cases[i].failed_table;
        if (cases[i].broker_url != NULL)
            world->options.broker_url = cases[i].broker_url;
        make_relay(world);
        assert_int_equal(skr_relay_run(world->relay, &world->error),
                         cases[i].code);
        if (strstr(world->error.text, cases[i].said) == NULL)
            fail_msg("'%s' does not say %s", world->error.text, cases[i].said);
        skr_relay_free(world->relay);
        make_relay(world);
        assert_int_equal(skr_relay_run(world->relay, NULL), cases[i].code);
        skr_relay_free(world->relay);
    }
}

static void
assert_refused(const struct skr_relay_options *options, const char *said)
{
    struct skr_relay *relay = NULL;
    struct skr_error error = {0};
    assert_int_equal(skr_relay_new(options, &relay, &error), SKR_INVALID);
    assert_int_equal(error.code, SKR_INVALID);
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    if (strstr(error.text, said) == NULL)
        fail_msg("'%s' does not say %s", error.text, said);
    assert_int_equal(skr_relay_new(options, &relay, NULL), SKR_INVALID);
    assert_null(relay);
}

static void
a_wrong_option_is_refused_by_its_name(void **state)
{
    struct world *world = *state;
    const struct skr_relay_options good = world->options;
    struct skr_relay_options options = good;
    assert_refused(NULL, "skr_relay_options");
#define WITHOUT(member)                                                       \
    do {                                                                      \
        options = good;                                                       \
        options.member = NULL;                                                \
        assert_refused(&options, "skr_relay_options." #member " is not set"); \
    } while (0)
    WITHOUT(name);
    WITHOUT(database);
    WITHOUT(database_url);
    WITHOUT(broker);
    WITHOUT(broker_url);
    WITHOUT(queue_database_url);
    options = good;
    options.claim = (enum skr_relay_claim)3;
    assert_refused(&options, "skr_relay_options.claim is 3");
    options = good;
    options.in_flight = 1000001;
    assert_refused(&options, "skr_relay_options.in_flight is 1000001");
    options = good;
    options.table = "a table";
    assert_refused(&options, "a table");
    options = good;
    options.queue = "";
    assert_refused(&options, "queue");
    options = good;
    options.queue_database = NULL;
    options.broker_url = "no URL";
    assert_refused(&options, "scheme://");
    skr_relay_free(NULL);
}

int
main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_was_published_is_in_the_queue_and_the_outbox_empty),
        CASE(options_are_copied),
        CASE(every_claim_relays_a_plain_and_an_ordered_queue),
        CASE(the_broker_url_names_exchange_or_topic_and_else_the_message_does),
        CASE(another_thread_stops_a_relay_that_waits_for_work),
        CASE(a_stop_before_the_run_ends_it_and_there_is_no_second_run),
        CASE(a_mistake_that_was_there_from_the_start_ends_the_run),
        CASE(a_wrong_option_is_refused_by_its_name),
    };
    return cmocka_run_group_tests_name("relay_embed", tests, NULL, NULL);
}
