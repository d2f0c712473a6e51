// SPDX-License-Identifier: MIT
// The consumer: effects exactly once, and a verdict touches its own message.
#include "consumer_world.h"
#include "support/faulty_database.h"

static void
test_effects_happen_once_although_messages_come_twice(void **state)
{
    struct world *world = *state;
    publish(world, 0, 500);
    publish(world, 0, 500);
    struct skr_consumer_counts counts = consume(world, accept_order);
    assert_effects(world, 500, NONE);
    assert_int_equal(counts.handled, 500);
    assert_int_equal(counts.duplicates, 500);
    assert_int_equal(counts.retried, 0);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(skr_test_number(world->db,
                                     "SELECT COUNT(*) FROM "
                                     "message_broker_deduplication WHERE "
                                     "message_name = 'order.placed'"),
                     500);
}

struct sharing {
    struct world *world;
    int64_t committed, in_hand;
    size_t transactions;
};

// What another connection sees of the effects is what was committed.
static enum skr_verdict
note_sharing(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    struct sharing *sharing = user;
    int64_t committed =
        skr_test_number(sharing->world->db, "SELECT COUNT(*) FROM effects");
    if (committed != sharing->committed || sharing->transactions == 0) {
        sharing->transactions++;
        sharing->in_hand = 0;
    }
    sharing->committed = committed;
    assert_in_range(++sharing->in_hand, 1, sharing->world->options.batch);
    return add_effect(delivery, tx, reason);
}

static void
test_as_many_share_a_transaction_as_batch_says(void **state)
{
    struct world *world = *state;
    static const uint32_t batches[] = {1, 8, 40};
    for (size_t i = 0; i < SKR_COUNT_OF(batches); i++) {
        struct sharing sharing = {.world = world};
        struct skr_error error = {0};
        world->options.batch = batches[i];
        publish(world, 0, 40);
        struct skr_consumer *consumer = open_consumer(world, NULL);
        assert_int_equal(skr_consumer_handle(consumer, "order.placed",
                                             note_sharing, &sharing, &error),
                         SKR_OK);
        run_until_empty(consumer);
        assert_int_equal(skr_consumer_counts(consumer).handled, 40);
        skr_consumer_close(consumer);
        // The first may come alone: nothing waits for more.
        assert_in_range(sharing.transactions, 40 / batches[i],
                        40 / batches[i] + (batches[i] > 1 ? 5 : 0));
        skr_test_run(world->db, "DELETE FROM effects");
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
}

static void
test_the_deduplication_row_names_the_class(void **state)
{
    struct world *world = *state;
    const struct skr_name_pair pair = {"order.placed", "App\\OrderPlaced"};
    const struct skr_names names = {&pair, 1};
    world->extras.names = &names;
    publish(world, 0, 1);
    consume(world, accept_order);
    skr_test_assert_text(
        world->db, "SELECT message_name FROM message_broker_deduplication",
        "App\\OrderPlaced");
}

static enum skr_verdict
look_closely(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    struct world *world = user;
    const struct skr_message *message = &delivery->message;
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    bool as_sent = delivery->attempt == 1 &&
                   strcmp(delivery->source, "shop") == 0 &&
                   strcmp(id, "01890a5d-ac96-774b-bcce-000000000007") == 0 &&
                   strcmp(message->name, "order.placed") == 0 &&
                   strcmp(message->content_type, "text/plain") == 0 &&
                   message->header_count == 4 && message->created_at_us > 0 &&
                   strcmp(skr_headers_find(message->headers,
                                           message->header_count, "X-Shop"),
                          "north") == 0;
    (void)tx;
    (void)reason;
    atomic_fetch_add(&world->calls, 1);
    return as_sent ? SKR_ACCEPT : SKR_REJECT;
}

static void
test_a_handler_sees_the_message_as_it_came(void **state)
{
    struct world *world = *state;
    publish_raw(world,
                "{\"type\":\"order.placed\",\"X-Message-Id\":"
                "\"01890a5d-ac96-774b-bcce-000000000007\",\"X-Shop\":"
                "\"north\",\"Content-Type\":\"text/plain\"}",
                "7", 1);
    struct skr_consumer_counts counts = consume(world, look_closely);
    assert_int_equal(world->calls, 1);
    assert_int_equal(counts.handled, 1);
    assert_int_equal(counts.failed, 0);
}

static enum skr_verdict
retry_chosen_once(const struct skr_delivery *delivery, struct skr_tx tx,
                  void *user, struct skr_error *reason)
{
    struct world *world = user;
    bool chosen = is_chosen(world, delivery);
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    if (!chosen)
        return verdict;
    world->last_attempt = delivery->attempt;
    skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP, "not before noon");
    return delivery->attempt == 1 ? SKR_RETRY : verdict;
}

static void
test_a_retry_takes_its_own_effects_back_and_no_others(void **state)
{
    struct world *world = *state;
    world->chosen = 33;
    publish(world, 0, 100);
    struct skr_consumer_counts counts = consume(world, retry_chosen_once);
    assert_effects(world, 100, 33);
    assert_int_equal(counts.handled, 99);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(waiting(world), 1);
    assert_int_equal(world->last_attempt, 1);

    make_retries_due(world);
    counts = consume(world, retry_chosen_once);
    assert_effects(world, 100, NONE);
    assert_int_equal(counts.handled, 1);
    assert_int_equal(world->last_attempt, 2);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(failed_rows(world), 0);
}

static enum skr_verdict
always_retry_chosen(const struct skr_delivery *delivery, struct skr_tx tx,
                    void *user, struct skr_error *reason)
{
    struct world *world = user;
    bool chosen = is_chosen(world, delivery);
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    if (!chosen)
        return verdict;
    skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP, "no stock of %s", "apples");
    return SKR_RETRY;
}

static void
test_retries_run_out_into_the_failed_table(void **state)
{
    struct world *world = *state;
    world->chosen = 2;
    world->options.max_retries = 2;
    world->options.batch = 1;
    publish(world, 0, 5);
    for (int round = 0; round < 3; round++) {
        consume(world, always_retry_chosen);
        assert_int_equal(failed_rows(world), round < 2 ? 0 : 1);
        make_retries_due(world);
    }
    assert_int_equal(world->chosen_calls, 3);
    assert_int_equal(waiting(world), 0);
    assert_effects(world, 5, 2);
    assert_int_equal(failed_rows(world), 1);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "no stock of apples"));
    assert_non_null(strstr(headers, "\\\"retryCount\\\":2"));
    assert_non_null(strstr(headers, "originalReceiverName\\\":\\\"shop"));
    assert_non_null(strstr(headers, "01890a5d-ac96-774b-bcce-000000000002"));
    free(headers);
    skr_test_assert_text(world->db, "SELECT body FROM messenger_messages", "2");
}

static enum skr_verdict
reject_chosen(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    bool chosen = is_chosen(user, delivery);
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    if (!chosen)
        return verdict;
    snprintf(reason->text, sizeof(reason->text), "no such customer");
    return SKR_REJECT;
}

static void
test_a_rejected_message_is_kept_with_its_reason(void **state)
{
    struct world *world = *state;
    world->chosen = 7;
    publish(world, 0, 20);
    struct skr_consumer_counts counts = consume(world, reject_chosen);
    assert_effects(world, 20, 7);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(counts.handled, 19);
    assert_int_equal(waiting(world), 0);
    skr_test_assert_text(world->db, "SELECT queue_name FROM messenger_messages",
                         "failed.skirnir");
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "no such customer"));
    free(headers);
    // Its id was not used up: a second try may come.
    assert_int_equal(
        skr_test_number(world->db,
                        "SELECT COUNT(*) FROM message_broker_deduplication"),
        19);
}

static void
test_the_limit_is_kept_to_the_message(void **state)
{
    struct world *world = *state;
    world->extras.limit = 7;
    publish(world, 0, 20);
    struct skr_consumer_counts counts = consume(world, accept_order);
    assert_int_equal(counts.handled, 7);
    assert_int_equal(waiting(world), 13);
    assert_int_equal(skr_test_number(world->queue,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE delivered_at IS NOT NULL"),
                     0);
}

static bool
has_handled_some(void *user)
{
    struct world *world = user;
    return atomic_load(&world->calls) > 0;
}

static void
test_the_caller_can_end_a_run(void **state)
{
    struct world *world = *state;
    world->extras.stop_when_empty = false;
    world->extras.is_over = has_handled_some;
    world->extras.user = world;
    publish(world, 0, 3);
    consume(world, accept_order);
    assert_in_range(world->calls, 1, 3);
}

static enum skr_verdict
stop_at_chosen(const struct skr_delivery *delivery, struct skr_tx tx,
               void *user, struct skr_error *reason)
{
    struct world *world = user;
    if (is_chosen(world, delivery)) {
        // The first time the whole batch is done again, one by one.
        if (atomic_load(&world->chosen_calls) == 1)
            return SKR_RETRY;
        skr_consumer_stop(world->consumer);
    }
    return add_effect(delivery, tx, reason);
}

static void
test_a_stop_gives_back_what_was_not_handled(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    world->chosen = 30;
    world->extras.stop_when_empty = false;
    publish(world, 0, 100);
    struct skr_consumer *consumer = open_consumer(world, stop_at_chosen);
    assert_int_equal(skr_consumer_run(consumer, &error), SKR_STOPPED);
    skr_consumer_close(consumer);
    int64_t left = waiting(world);
    assert_in_range(left, 1, 99);
    assert_int_equal(skr_test_number(world->queue,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE delivered_at IS NOT NULL"),
                     0);
    world->chosen = NONE;
    world->extras.stop_when_empty = true;
    struct skr_consumer_counts counts = consume(world, accept_order);
    assert_int_equal(counts.handled, left);
    assert_int_equal(counts.duplicates, 0);
    assert_effects(world, 100, NONE);
}

static void
test_a_stop_from_another_thread_ends_the_wait(void **state)
{
    struct world *world = *state;
    pthread_t thread;
    void *code = NULL;
    world->extras.stop_when_empty = false;
    world->extras.sleep_ms = 60000;
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    publish(world, 0, 10);
    assert_int_equal(pthread_create(&thread, NULL, run_consumer, consumer), 0);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    int64_t start_ms = skr_clock_ms();
    skr_consumer_stop(consumer);
    assert_int_equal(pthread_join(thread, &code), 0);
    assert_int_equal((intptr_t)code, SKR_STOPPED);
    assert_true(skr_clock_ms() - start_ms < 20000);
    assert_int_equal(skr_consumer_counts(consumer).handled, 10);
    skr_consumer_close(consumer);
}

static void
test_two_consumers_share_a_queue_without_doing_anything_twice(void **state)
{
    struct world *world = *state;
    pthread_t threads[2];
    struct skr_consumer *consumers[2];
    world->options.batch = 20;
    for (int copy = 0; copy < 3; copy++)
        publish(world, 0, 200);
    // Made before both look for them.
    world->extras.limit = 1;
    consume(world, accept_order);
    world->extras.limit = 0;
    for (size_t i = 0; i < 2; i++) {
        consumers[i] = open_consumer(world, accept_order);
        assert_int_equal(
            pthread_create(&threads[i], NULL, run_consumer, consumers[i]), 0);
    }
    uint64_t handled = 1, duplicates = 0;
    for (size_t i = 0; i < 2; i++) {
        void *code = NULL;
        assert_int_equal(pthread_join(threads[i], &code), 0);
        assert_int_equal((intptr_t)code, SKR_OK);
        struct skr_consumer_counts counts = skr_consumer_counts(consumers[i]);
        handled += counts.handled;
        duplicates += counts.duplicates;
        skr_consumer_close(consumers[i]);
    }
    assert_effects(world, 200, NONE);
    assert_int_equal(handled, 200);
    assert_int_equal(duplicates, 400);
    assert_int_equal(waiting(world), 0);
}

// On SQLite the lease cannot be renewed then, and cannot be taken either.
static enum skr_verdict
take_long(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
          struct skr_error *reason)
{
    enum skr_verdict verdict = accept_order(delivery, tx, user, reason);
    skr_clock_sleep(-1, 3500);
    return verdict;
}

static void
test_a_handler_may_lock_the_queue_longer_than_a_lease_lasts(void **state)
{
    struct world *world = *state;
    pthread_t threads[2];
    world->options.database_url = world->queue_database.url;
    world->options.broker_url = "queue://shop?redeliver_timeout=3";
    world->options.failed_table = "failed_messages";
    world->extras.stop_when_empty = false;
    skr_test_run(world->queue, "CREATE TABLE effects (number BIGINT NOT NULL)");
    publish(world, 0, 1);
    struct skr_consumer *slow = open_consumer(world, take_long);
    struct skr_consumer *other = open_consumer(world, accept_order);
    assert_int_equal(pthread_create(&threads[0], NULL, run_consumer, slow), 0);
    assert_true(skr_test_eventually(has_handled_some, world, 20000));
    assert_int_equal(pthread_create(&threads[1], NULL, run_consumer, other), 0);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    skr_consumer_stop(slow);
    skr_consumer_stop(other);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(world->calls, 1);
    assert_int_equal(
        skr_test_number(world->queue, "SELECT COUNT(*) FROM effects"), 1);
    assert_int_equal(skr_consumer_counts(slow).handled +
                         skr_consumer_counts(other).handled,
                     1);
    skr_consumer_close(slow);
    skr_consumer_close(other);
}

static void
test_sql_handlers_bind_the_fields_of_a_message(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    static const char *const statements[] = {
        "INSERT INTO seen (id_text, name, body, headers, partition_key) "
        "VALUES (:id_text, :name, :body, :headers, :partition_key)",
        "INSERT INTO effects (number) SELECT COUNT(*) FROM "
        "message_broker_deduplication WHERE message_id = :id",
    };
    skr_test_run(world->db,
                 "CREATE TABLE seen (id_text VARCHAR(36), name VARCHAR(99), "
                 "body VARCHAR(99), headers VARCHAR(999), "
                 "partition_key VARCHAR(99))");
    publish(world, 5, 1);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(skr_consumer_handle_sql(consumer, "order.placed",
                                             statements, 2, &error),
                     SKR_OK);
    run_until_empty(consumer);
    assert_int_equal(skr_consumer_counts(consumer).handled, 1);
    skr_consumer_close(consumer);
    skr_test_assert_text(world->db, "SELECT id_text FROM seen",
                         "01890a5d-ac96-774b-bcce-000000000005");
    skr_test_assert_text(world->db, "SELECT name FROM seen", "order.placed");
    skr_test_assert_text(world->db, "SELECT body FROM seen", "5");
    skr_test_assert_text(world->db, "SELECT headers FROM seen",
                         "{\"type\":\"order.placed\",\"X-Message-Id\":"
                         "\"01890a5d-ac96-774b-bcce-000000000005\"}");
    skr_test_assert_text(world->db, "SELECT partition_key FROM seen", NULL);
    skr_test_assert_text(world->db, "SELECT number FROM effects", "1");
}

// Bodies are numbers: each is to be seen once.
static struct skr_consumer_counts
consume_by_sql(struct world *world)
{
    static const char *const statements[] = {
        "INSERT INTO seen (body) VALUES (:body)"};
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(
        skr_consumer_handle_sql(consumer, "order.placed", statements, 1, NULL),
        SKR_OK);
    run_until_empty(consumer);
    struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
    return counts;
}

static void
make_seen(struct world *world)
{
    skr_test_run(world->db, "CREATE TABLE seen (body VARCHAR(99) UNIQUE)");
}

static void
test_messages_of_sql_handlers_are_recorded_together(void **state)
{
    struct world *world = *state;
    make_seen(world);
    world->options.database = skr_faulty_database(world->database.ops);
    publish(world, 0, 1000);
    struct skr_consumer_counts counts = consume_by_sql(world);
    assert_int_equal(counts.handled, 1000);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM seen"),
                     1000);
    // One for each message is the handler's own.
    assert_in_range(skr_faulty_runs(), 1000, 1500);
}

static void
test_duplicates_among_messages_of_sql_handlers_are_skipped(void **state)
{
    struct world *world = *state;
    make_seen(world);
    publish(world, 0, 150);
    publish(world, 100, 150);
    publish(world, 0, 20);
    struct skr_consumer_counts counts = consume_by_sql(world);
    assert_int_equal(counts.handled, 250);
    assert_int_equal(counts.duplicates, 70);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM seen"),
                     250);
}

// Nothing but the deduplication keeps these effects apart.
static void
test_an_id_twice_in_one_insert_is_handled_once(void **state)
{
    struct world *world = *state;
    static const uint32_t batches[] = {8, 32, 128};
    skr_test_run(world->db, "CREATE TABLE seen (body VARCHAR(99))");
    for (size_t i = 0; i < SKR_COUNT_OF(batches); i++) {
        size_t first = 100 * i, pairs = batches[i] / 2;
        world->options.batch = batches[i];
        for (size_t k = 0; k < 2 * pairs; k++)
            publish(world, first + k / 2, 1);
        struct skr_consumer_counts counts = consume_by_sql(world);
        assert_int_equal(counts.handled, pairs);
        assert_int_equal(counts.duplicates, pairs);
        assert_int_equal(
            skr_test_number(world->db, "SELECT COUNT(*) FROM seen"), pairs);
        skr_test_run(world->db, "DELETE FROM seen");
    }
    assert_int_equal(waiting(world), 0);
    assert_int_equal(failed_rows(world), 0);
}

static void
test_sql_that_fails_undoes_its_own_message_only(void **state)
{
    struct world *world = *state;
    make_seen(world);
    skr_test_run(world->db, "INSERT INTO seen (body) VALUES ('37')");
    world->options.max_retries = -1;
    publish(world, 0, 90);
    struct skr_consumer_counts counts = consume_by_sql(world);
    assert_int_equal(counts.handled, 89);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(failed_rows(world), 1);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM seen"),
                     90);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM "
                                                "message_broker_deduplication"),
                     89);
}

static void
test_sql_that_fails_is_retried_and_then_kept(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    static const char *const statements[] = {
        "INSERT INTO effects (number) VALUES (1)",
        "INSERT INTO effects (number) VALUES (NULL)",
    };
    world->options.max_retries = -1;
    publish(world, 5, 1);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(skr_consumer_handle_sql(consumer, "order.placed",
                                             statements, 2, &error),
                     SKR_OK);
    run_until_empty(consumer);
    skr_consumer_close(consumer);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM effects"),
                     0);
    assert_int_equal(failed_rows(world), 1);
    assert_int_equal(waiting(world), 0);
}

static void
test_handlers_are_checked_when_they_are_added(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    const char *ddl = "DROP TABLE effects";
    const char *good = "DELETE FROM effects";
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    assert_int_equal(skr_consumer_handle(consumer, "order.placed", accept_order,
                                         NULL, &error),
                     SKR_INVALID);
    assert_non_null(strstr(error.text, "order.placed"));
    assert_int_equal(
        skr_consumer_handle_sql(consumer, "order.placed", &good, 1, &error),
        SKR_INVALID);
    assert_int_equal(
        skr_consumer_handle_sql(consumer, "order.paid", &ddl, 1, &error),
        SKR_INVALID);
    assert_non_null(strstr(error.text, "DROP"));
    assert_int_equal(
        skr_consumer_handle_sql(consumer, "order.paid", NULL, 0, &error),
        SKR_INVALID);
    assert_int_equal(
        skr_consumer_handle(consumer, "", accept_order, NULL, &error),
        SKR_INVALID);
    assert_int_equal(
        skr_consumer_handle(consumer, "order.paid", NULL, NULL, &error),
        SKR_INVALID);
    skr_consumer_close(consumer);
}

#define TEST(name)                                               \
    cmocka_unit_test_setup_teardown(name, consumer_world_set_up, \
                                    consumer_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_effects_happen_once_although_messages_come_twice),
        TEST(test_as_many_share_a_transaction_as_batch_says),
        TEST(test_the_deduplication_row_names_the_class),
        TEST(test_a_handler_sees_the_message_as_it_came),
        TEST(test_a_retry_takes_its_own_effects_back_and_no_others),
        TEST(test_retries_run_out_into_the_failed_table),
        TEST(test_a_rejected_message_is_kept_with_its_reason),
        TEST(test_the_limit_is_kept_to_the_message),
        TEST(test_the_caller_can_end_a_run),
        TEST(test_a_stop_gives_back_what_was_not_handled),
        TEST(test_a_stop_from_another_thread_ends_the_wait),
        TEST(test_two_consumers_share_a_queue_without_doing_anything_twice),
        TEST(test_a_handler_may_lock_the_queue_longer_than_a_lease_lasts),
        TEST(test_sql_handlers_bind_the_fields_of_a_message),
        TEST(test_messages_of_sql_handlers_are_recorded_together),
        TEST(test_duplicates_among_messages_of_sql_handlers_are_skipped),
        TEST(test_an_id_twice_in_one_insert_is_handled_once),
        TEST(test_sql_that_fails_undoes_its_own_message_only),
        TEST(test_sql_that_fails_is_retried_and_then_kept),
        TEST(test_handlers_are_checked_when_they_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
