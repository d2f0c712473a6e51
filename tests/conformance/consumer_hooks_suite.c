// SPDX-License-Identifier: MIT
// Hooks around handlers, handlers that want no transaction, and the trace that
// a handler is given.
#include "consumer_world.h"

#include "inbox/sql_handler.h"

struct recorder {
    struct world *world;
    char name;      // in the journal
    char *journal;  // of all hooks and the handler
    enum skr_verdict before, after;
    size_t errors;
    enum skr_verdict last_error;
    char last_text[100];
};

static void
note(char *journal, char name, const char *what)
{
    size_t size = strlen(journal);
    snprintf(journal + size, 200 - size, "%c%s ", name, what);
}

static enum skr_verdict
note_before(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
{
    struct recorder *recorder = user;
    (void)delivery;
    (void)tx;
    (void)reason;
    note(recorder->journal, recorder->name, "<");
    return recorder->before;
}

static enum skr_verdict
note_after(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
           struct skr_error *reason)
{
    struct recorder *recorder = user;
    (void)delivery;
    (void)tx;
    note(recorder->journal, recorder->name, ">");
    if (recorder->after != SKR_ACCEPT)
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP, "not in this order");
    return recorder->after;
}

static void
note_error(const struct skr_delivery *delivery, enum skr_verdict verdict,
           const struct skr_error *reason, void *user)
{
    struct recorder *recorder = user;
    assert_string_equal(delivery->message.name, "order.placed");
    recorder->errors++;
    recorder->last_error = verdict;
    snprintf(recorder->last_text, sizeof(recorder->last_text), "%.90s",
             reason->text);
}

static void
add_recorder(struct skr_consumer *consumer, struct recorder *recorder)
{
    const struct skr_hook hook = {.before = note_before,
                                  .after = note_after,
                                  .on_error = note_error,
                                  .user = recorder};
    struct skr_error error = {0};
    assert_int_equal(skr_consumer_add_hook(consumer, &hook, &error), SKR_OK);
}

static struct skr_consumer_counts
finish(struct skr_consumer *consumer)
{
    run_until_empty(consumer);
    struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
    return counts;
}

static char shared_journal[200];

static enum skr_verdict
note_order(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
           struct skr_error *reason)
{
    note(shared_journal, '!', "");
    return accept_order(delivery, tx, user, reason);
}

static void
test_hooks_are_called_in_the_order_of_registration(void **state)
{
    struct world *world = *state;
    struct recorder first = {.name = 'a', .journal = shared_journal};
    struct recorder second = {.name = 'b', .journal = shared_journal};
    shared_journal[0] = '\0';
    publish(world, 0, 1);
    struct skr_consumer *consumer = open_consumer(world, note_order);
    add_recorder(consumer, &first);
    add_recorder(consumer, &second);
    struct skr_consumer_counts counts = finish(consumer);
    assert_string_equal(shared_journal, "a< b< ! a> b> ");
    assert_int_equal(counts.handled, 1);
    assert_int_equal(first.errors + second.errors, 0);
    assert_effects(world, 1, NONE);
}

static void
test_a_hook_before_keeps_the_message_from_its_handler(void **state)
{
    struct world *world = *state;
    struct recorder first = {
        .name = 'a', .journal = shared_journal, .before = SKR_RETRY};
    struct recorder second = {.name = 'b', .journal = shared_journal};
    shared_journal[0] = '\0';
    publish(world, 0, 1);
    struct skr_consumer *consumer = open_consumer(world, note_order);
    add_recorder(consumer, &first);
    add_recorder(consumer, &second);
    struct skr_consumer_counts counts = finish(consumer);
    assert_string_equal(shared_journal, "a< ");
    assert_int_equal(counts.retried, 1);
    assert_int_equal(first.errors, 1);
    assert_int_equal(second.errors, 1);
    assert_int_equal(second.last_error, SKR_RETRY);
    assert_non_null(strstr(second.last_text, "a hook before the handler"));
    assert_effects(world, 0, NONE);
    assert_int_equal(
        skr_test_number(world->db,
                        "SELECT COUNT(*) FROM message_broker_deduplication"),
        0);
}

static void
test_a_hook_after_takes_the_effects_back(void **state)
{
    struct world *world = *state;
    struct recorder recorder = {
        .name = 'a', .journal = shared_journal, .after = SKR_REJECT};
    shared_journal[0] = '\0';
    publish(world, 0, 1);
    struct skr_consumer *consumer = open_consumer(world, note_order);
    add_recorder(consumer, &recorder);
    struct skr_consumer_counts counts = finish(consumer);
    assert_int_equal(world->calls, 1);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(recorder.last_error, SKR_REJECT);
    assert_string_equal(recorder.last_text, "not in this order");
    assert_effects(world, 0, NONE);
    assert_int_equal(failed_rows(world), 1);
}

// Writes an effect of its own, far away from those of handlers.
static enum skr_verdict
add_own_effect(const struct skr_delivery *delivery, struct skr_tx tx,
               void *user, struct skr_error *reason)
{
    char sql[80];
    (void)user;
    snprintf(sql, sizeof(sql), "INSERT INTO effects (number) VALUES (%zu)",
             number_of(delivery) + 1000);
    return skr_tx_run(tx, &(struct skr_statement){.sql = sql}, reason) == SKR_OK
               ? SKR_ACCEPT
               : SKR_RETRY;
}

static enum skr_verdict
reject_chosen(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    struct world *world = user;
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    return is_chosen(world, delivery) ? SKR_REJECT : verdict;
}

static void
test_what_a_hook_writes_lives_and_dies_with_the_message(void **state)
{
    struct world *world = *state;
    struct recorder recorder = {.name = 'a', .journal = shared_journal};
    struct skr_error error = {0};
    world->chosen = 3;
    publish(world, 0, 10);
    struct skr_consumer *consumer = open_consumer(world, reject_chosen);
    const struct skr_hook hook = {
        .before = add_own_effect, .on_error = note_error, .user = &recorder};
    assert_int_equal(skr_consumer_add_hook(consumer, &hook, &error), SKR_OK);
    struct skr_consumer_counts counts = finish(consumer);
    assert_int_equal(counts.handled, 9);
    assert_int_equal(counts.failed, 1);
    // The shared transaction failed first, and counts for no message.
    assert_int_equal(world->chosen_calls, 2);
    assert_int_equal(recorder.errors, 1);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM effects "
                                                "WHERE number >= 1000"),
                     9);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM effects "
                                                "WHERE number IN (3, 1003)"),
                     0);
}

static enum skr_verdict
handle_outside(const struct skr_delivery *delivery, struct skr_tx tx,
               void *user, struct skr_error *reason)
{
    struct world *world = user;
    assert_null(tx.ops);
    if (!is_chosen(world, delivery))
        return add_effect(delivery, skr_db_tx(world->db), reason);
    skr_fail(reason, SKR_CONFLICT, SKR_TRY_AGAIN, "not before noon");
    return SKR_RETRY;
}

static struct skr_consumer *
open_outside(struct world *world)
{
    struct skr_error error = {0};
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(skr_consumer_handle_without_tx(consumer, "order.placed",
                                                    handle_outside, world,
                                                    &error),
                     SKR_OK);
    return consumer;
}

static void
test_a_handler_without_transaction_is_recorded_after_it_ran(void **state)
{
    struct world *world = *state;
    world->chosen = NONE;
    publish(world, 0, 50);
    publish(world, 0, 50);
    struct skr_consumer_counts counts = finish(open_outside(world));
    assert_int_equal(counts.handled, 50);
    assert_int_equal(counts.duplicates, 50);
    assert_int_equal(world->calls, 50);
    assert_effects(world, 50, NONE);
    publish(world, 0, 50);
    counts = finish(open_outside(world));
    assert_int_equal(counts.duplicates, 50);
    assert_int_equal(world->calls, 50);
    assert_int_equal(waiting(world), 0);
}

static enum skr_code
receive_in_a_lane(struct skr_broker *broker, struct skr_incoming *incoming,
                  size_t capacity, size_t *count, uint32_t timeout_ms,
                  struct skr_error *error)
{
    enum skr_code code = skr_queue_broker.receive(broker, incoming, capacity,
                                                  count, timeout_ms, error);
    for (size_t i = 0; code == SKR_OK && i < *count; i++)
        incoming[i].partition = 1;
    return code;
}

static enum skr_verdict
take_in_turn(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    struct world *world = user;
    (void)tx;
    (void)reason;
    assert_int_equal(number_of(delivery), atomic_fetch_add(&world->calls, 1));
    return SKR_ACCEPT;
}

static void
test_handlers_of_both_kinds_keep_the_order_of_a_lane(void **state)
{
    enum { COUNT = 40 };
    struct world *world = *state;
    struct skr_broker_ops laned = skr_queue_broker;
    struct skr_error error = {0};
    laned.receive = receive_in_a_lane;
    world->options.broker = &laned;
    for (size_t i = 0; i < COUNT; i++) {
        char headers[120], body[8];
        snprintf(headers, sizeof(headers),
                 "{\"type\":\"%s\",\"X-Message-Id\":"
                 "\"01890a5d-ac96-774b-bcce-%012zu\"}",
                 i % 5 < 2 ? "order.placed" : "order.billed", i);
        snprintf(body, sizeof(body), "%zu", i);
        publish_raw(world, headers, body, strlen(body));
    }
    struct skr_consumer *consumer = open_consumer(world, take_in_turn);
    assert_int_equal(skr_consumer_handle_without_tx(
                         consumer, "order.billed", take_in_turn, world, &error),
                     SKR_OK);
    assert_int_equal(finish(consumer).handled, COUNT);
    assert_int_equal(waiting(world), 0);
}

static void
test_a_failing_handler_without_transaction_runs_alone_again(void **state)
{
    struct world *world = *state;
    world->chosen = 7;
    publish(world, 0, 20);
    struct skr_consumer_counts counts = finish(open_outside(world));
    assert_int_equal(counts.handled, 19);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(waiting(world), 1);
    // None of the others ran twice.
    assert_int_equal(world->calls, 20);
    assert_effects(world, 20, 7);

    world->chosen = NONE;
    make_retries_due(world);
    counts = finish(open_outside(world));
    assert_int_equal(counts.handled, 1);
    assert_effects(world, 20, NONE);
}

static void
publish_named(struct world *world, const char *name, size_t number)
{
    char headers[200], body[32];
    snprintf(headers, sizeof(headers),
             "{\"type\":\"%s\",\"X-Message-Id\":"
             "\"01890a5d-ac96-774b-bcce-%012zu\"}",
             name, number);
    snprintf(body, sizeof(body), "%zu", number);
    publish_raw(world, headers, body, strlen(body));
}

static void
test_both_kinds_of_handlers_share_a_batch(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    world->chosen = NONE;
    for (size_t i = 0; i < 20; i++)
        publish_named(world, i % 2 == 0 ? "order.placed" : "order.paid", i);
    struct skr_consumer *consumer = open_outside(world);
    assert_int_equal(skr_consumer_handle(consumer, "order.paid", accept_order,
                                         world, &error),
                     SKR_OK);
    struct skr_consumer_counts counts = finish(consumer);
    assert_int_equal(counts.handled, 20);
    assert_effects(world, 20, NONE);
}

#define TRACE "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static enum skr_verdict
expect_trace(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    const struct skr_message *message = &delivery->message;
    struct world *world = user;
    (void)tx;
    (void)reason;
    atomic_fetch_add(&world->calls, 1);
    return message->traceparent != NULL && message->tracestate != NULL &&
                   strcmp(message->traceparent, TRACE) == 0 &&
                   strcmp(message->tracestate, "congo=t61") == 0
               ? SKR_ACCEPT
               : SKR_REJECT;
}

static void
test_a_handler_is_given_the_trace(void **state)
{
    struct world *world = *state;
    publish_raw(world,
                "{\"type\":\"order.placed\",\"X-Message-Id\":"
                "\"01890a5d-ac96-774b-bcce-000000000001\",\"traceparent\":"
                "\"" TRACE "\",\"tracestate\":\"congo=t61\"}",
                "{}", 2);
    struct skr_consumer_counts counts = consume(world, expect_trace);
    assert_int_equal(world->calls, 1);
    assert_int_equal(counts.handled, 1);
}

static void
test_a_database_finds_mistakes_in_sql_that_it_does_not_run(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *sql;
        enum skr_code code;
    } cases[] = {
        {"INSERT INTO effects (number) VALUES (5)", SKR_OK},
        {"UPDATE effects SET number = 6 WHERE number = 5", SKR_OK},
        {"DELETE FROM effects", SKR_OK},
        {"SELECT number FROM effects WHERE :id_text = :name", SKR_OK},
        {"INSERT INTO effects number VALUES VALUES (5)", SKR_INVALID},
        {"DELETE FRM effects", SKR_INVALID},
        {"UPDATE effects SET numbr = 5", SKR_INVALID},
        {"DELETE FROM to_be_made_later", SKR_MISSING},
        {"DROP TABLE effects", SKR_INVALID},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        if (skr_sql_statement_check(cases[i].sql, skr_db_tx(world->db),
                                    &error) != cases[i].code)
            fail_msg("%s: %s", cases[i].sql, error.text);
    }
    assert_effects(world, 0, NONE);
}

#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, consumer_world_set_up, \
                                    consumer_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_hooks_are_called_in_the_order_of_registration),
        CASE(test_a_hook_before_keeps_the_message_from_its_handler),
        CASE(test_a_hook_after_takes_the_effects_back),
        CASE(test_what_a_hook_writes_lives_and_dies_with_the_message),
        CASE(test_a_handler_without_transaction_is_recorded_after_it_ran),
        CASE(test_a_failing_handler_without_transaction_runs_alone_again),
        CASE(test_both_kinds_of_handlers_share_a_batch),
        CASE(test_handlers_of_both_kinds_keep_the_order_of_a_lane),
        CASE(test_a_handler_is_given_the_trace),
        CASE(test_a_database_finds_mistakes_in_sql_that_it_does_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
