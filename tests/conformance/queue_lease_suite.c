// SPDX-License-Identifier: MIT
// Leases of the queue broker: who owns a row, and what a late owner may do.
#include "queue_world.h"

#include "db/sql.h"

#include "base/clock.h"
#include "base/text.h"
#include "support/faulty_database.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

// Two rows in the hands of a broker whose leases last three seconds.
static struct skr_broker *
hold_two_rows(struct world *world)
{
    size_t count = 0;
    publish(world, 3);
    struct skr_broker *broker =
        open_broker(world, "queue://orders?redeliver_timeout=3");
    // Claims grow from one row.
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(count, 1);
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(count, 2);
    return broker;
}

struct change {
    struct world *world;
    char *before;
};

static char *
lease_of(struct world *world, int row)
{
    char sql[96];
    snprintf(sql, sizeof(sql),
             "SELECT delivered_at FROM messenger_messages WHERE id = %d", row);
    return skr_test_text(world->db, sql);
}

static bool
lease_of_third_has_moved(void *user)
{
    struct change *change = user;
    char *now = lease_of(change->world, 3);
    bool moved = now != NULL && strcmp(now, change->before) != 0;
    free(now);
    return moved;
}

static void
settle_late(struct world *world, enum skr_settlement settlement)
{
    struct skr_broker *broker = hold_two_rows(world);
    // Row 2 is another's, whose claim may be of the very second in which the
    // lease of row 3 is renewed.
    const struct skr_value age = skr_bind_integer(1000);
    struct change change = {world, lease_of(world, 3)};
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus} WHERE id = 2",
                          &age, 1);
    assert_true(skr_test_eventually(lease_of_third_has_moved, &change, 10000));
    free(change.before);
    char *theirs = lease_of(world, 3);
    const struct skr_value lease = skr_bind_text(theirs);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = ? "
                          "WHERE id = 2",
                          &lease, 1);
    settle_all(world, broker, 2, settlement, 60000);
    char *kept = lease_of(world, 2), *given_back = lease_of(world, 3);
    assert_non_null(kept);
    assert_string_equal(kept, theirs);
    assert_null(given_back);
    free(theirs);
    free(kept);
    skr_broker_close(broker);
}

static void
test_a_late_release_leaves_the_next_owners_claim_alone(void **state)
{
    settle_late(*state, SKR_SETTLE_REQUEUE);
}

static void
test_a_late_retry_leaves_the_next_owners_claim_alone(void **state)
{
    struct world *world = *state;
    settle_late(world, SKR_SETTLE_RETRY);
    assert_int_equal(skr_test_number(world->db,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE headers LIKE '%Redelivery%'"),
                     1);
    assert_true(world->incoming[0].was_lost);
    assert_false(world->incoming[1].was_lost);
}

static void
test_a_late_retry_says_so_and_a_late_ack_counts(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = hold_two_rows(world);
    // Frozen past its lease; another has both rows.
    const struct skr_value age = skr_bind_integer(1000);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus}",
                          &age, 1);
    world->incoming[0].settlement = SKR_SETTLE_RETRY;
    world->incoming[1].settlement = SKR_SETTLE_ACK;
    assert_int_equal(broker->ops->settle(broker, world->incoming, 2, &error),
                     SKR_OK);
    assert_true(world->incoming[0].was_lost);
    assert_false(world->incoming[1].was_lost);
    char *lease = lease_of(world, 2);
    assert_non_null(lease);
    free(lease);
    assert_int_equal(rows_left(world), 1);
    skr_broker_close(broker);
}

// The table was emptied meanwhile, and gives the ids once more: to rows that
// were not handled.
static void
test_a_late_ack_does_not_hit_a_new_row_with_its_id(void **state)
{
    struct world *world = *state;
    if (skr_sql_word(skr_db_dialect(world->db), "reused_ids")[0] == '\0')
        return;
    const struct skr_value age = skr_bind_integer(60);
    struct skr_broker *broker = hold_two_rows(world);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = NULL, "
                          "created_at = {now_plus}",
                          &age, 1);
    settle_all(world, broker, 2, SKR_SETTLE_ACK, 0);
    assert_int_equal(rows_left(world), 2);
    assert_true(world->incoming[0].was_lost);
    skr_broker_close(broker);
}

// What was claimed and committed is in hand, whatever comes after.
static void
test_what_was_claimed_is_given_though_the_rest_cannot_be_freed(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    size_t count = 0;
    publish(world, 20);
    world->database.ops = skr_faulty_database(world->database.ops);
    broker = open_broker(world, "queue://orders");
    for (size_t taken = 0; taken < 5; taken += count) {
        assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    }
    // One that was tried before is not given together with fresh ones.
    const struct skr_value tried = skr_bind_text(
        "{\"type\":\"order.placed\",\"X-Message-Id\":"
        "\"01890a5d-ac96-774b-bcce-000000000000\","
        "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp"
        "\\\\RedeliveryStamp\":\"[{\\\"retryCount\\\":1}]\"}");
    skr_test_run_template(
        world->db, "UPDATE messenger_messages SET headers = ? WHERE id = 8",
        &tried, 1);
    // The claim begins, the freeing of row 8 does not.
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_BEGIN,
                                       .after = 1,
                                       .count = 1,
                                       .code = SKR_CONFLICT,
                                       .remedy = SKR_TRY_AGAIN});
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(skr_faulty_failures(), 1);
    assert_in_range(count, 2, 19);
    for (size_t i = 0; i < count; i++)
        assert_false(world->incoming[i].redelivered);
    size_t left = (size_t)rows_left(world);
    settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    assert_int_equal(rows_left(world), left - count);
    skr_broker_close(broker);
}

static void
test_a_row_that_cannot_be_changed_holds_up_no_other(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = hold_two_rows(world);
    int64_t left = rows_left(world);
    skr_test_refuse(world->db, "messenger_messages", "DELETE", "OLD.id = 2");
    skr_test_refuse(world->db, "messenger_messages", "UPDATE", "OLD.id = 2");
    world->incoming[0].settlement = SKR_SETTLE_ACK;
    world->incoming[1].settlement = SKR_SETTLE_ACK;
    assert_int_equal(broker->ops->settle(broker, world->incoming, 2, &error),
                     SKR_OK);
    assert_int_equal(rows_left(world), left - 1);
    assert_int_equal(skr_test_number(world->db,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE id = 2"),
                     1);
    skr_broker_close(broker);
}

// Of the rows these, which are so many, cannot be claimed.
static void
assert_others_are_given(struct world *world, size_t rows, const char *refused,
                        size_t refused_count, uint32_t timeout_ms)
{
    size_t count = 0, others = rows - refused_count;
    publish(world, rows);
    skr_test_refuse(world->db, "messenger_messages", "UPDATE", refused);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t given = 0; given < others; given += count) {
        assert_int_equal(receive(world, broker, &count, timeout_ms), SKR_OK);
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    }
    assert_int_equal(rows_left(world), refused_count);
    // They are left alone for a while.
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    skr_broker_close(broker);
}

static void
test_a_row_that_cannot_be_claimed_holds_up_no_other(void **state)
{
    assert_others_are_given(*state, 9, "OLD.id = 4", 1, 20000);
}

static void
test_many_rows_that_cannot_be_claimed_hold_up_no_other(void **state)
{
    assert_others_are_given(*state, 154, "OLD.id <= 150", 150, 0);
}

// As when it is larger than the server takes at once: it is not known how
// often it has killed its consumer.
static void
test_a_row_whose_tries_cannot_be_counted_has_failed(void **state)
{
    struct world *world = *state;
    size_t count = 0, others = 0;
    publish(world, 3);
    const struct skr_value age = skr_bind_integer(1000);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus} WHERE id = 1",
                          &age, 1);
    skr_test_refuse(world->db, "messenger_messages", "UPDATE",
                    "OLD.id = 1 AND NEW.headers <> OLD.headers");
    struct skr_broker *broker =
        open_broker(world, "queue://orders?redeliver_timeout=3");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(count, 1);
    assert_non_null(strstr(world->incoming[0].problem.text, "counted"));
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    for (; others < 2; others += count) {
        assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    }
    assert_int_equal(rows_left(world), 0);
    skr_broker_close(broker);
}

static void
test_a_retry_is_not_early(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 1);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    // Late in a second: what is cut off of the clock would be missing.
    while (skr_clock_wall_us() % 1000000 < 800000)
        skr_clock_sleep(-1, 5);
    int64_t start_ms = skr_clock_ms();
    settle_all(world, broker, 1, SKR_SETTLE_RETRY, 1300);
    assert_int_equal(receive(world, broker, &count, 20000), SKR_OK);
    assert_true(skr_clock_ms() - start_ms >= 1300);
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    skr_broker_close(broker);
}

static uint64_t
blocked_signals(const char *task)
{
    char path[300], line[128];
    uint64_t blocked = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            blocked = strtoull(line + 7, NULL, 16);
    fclose(file);
    return blocked;
}

static void
test_signals_are_left_to_the_applications_threads(void **state)
{
    struct world *world = *state;
    size_t count = 0, others = 0;
    char self[32];
    publish(world, 1);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    snprintf(self, sizeof(self), "%d", (int)getpid());
    assert_int_equal(blocked_signals(self) & (1u << (SIGTERM - 1)), 0);
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.' || strcmp(task->d_name, self) == 0)
            continue;
        others++;
        assert_int_not_equal(
            blocked_signals(task->d_name) & (1u << (SIGTERM - 1)), 0);
    }
    closedir(tasks);
    assert_true(others > 0);
    skr_broker_close(broker);
}

// Other queues share the table, so that ids are missing.
static void
test_rows_that_were_given_back_come_once(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 12);
    skr_test_run(world->db,
                 "DELETE FROM messenger_messages WHERE id IN (2, 8)");
    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    size_t left = 10 - count;
    for (int turn = 0; turn < 4; turn++) {
        assert_int_equal(receive(world, broker, &count, 20000), SKR_OK);
        assert_in_range(count, 1, left);
        settle_all(world, broker, count, SKR_SETTLE_REQUEUE, 0);
    }
    skr_broker_close(broker);
}

#define TEST(name)                                            \
    cmocka_unit_test_setup_teardown(name, queue_world_set_up, \
                                    queue_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_late_release_leaves_the_next_owners_claim_alone),
        TEST(test_a_late_retry_leaves_the_next_owners_claim_alone),
        TEST(test_a_late_retry_says_so_and_a_late_ack_counts),
        TEST(test_a_late_ack_does_not_hit_a_new_row_with_its_id),
        TEST(test_what_was_claimed_is_given_though_the_rest_cannot_be_freed),
        TEST(test_a_row_that_cannot_be_changed_holds_up_no_other),
        TEST(test_a_row_that_cannot_be_claimed_holds_up_no_other),
        TEST(test_many_rows_that_cannot_be_claimed_hold_up_no_other),
        TEST(test_a_row_whose_tries_cannot_be_counted_has_failed),
        TEST(test_a_retry_is_not_early),
        TEST(test_rows_that_were_given_back_come_once),
        TEST(test_signals_are_left_to_the_applications_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
