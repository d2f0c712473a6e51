// SPDX-License-Identifier: MIT
// The order of partitions, by itself and against a model that is too simple to
// be wrong.

#include "base/text.h"
#include "outbox/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTITIONS = 600, STEPS = 400000, MOST = SKR_ORDER_LONGEST_CHAIN };

static enum skr_order_place
add(struct skr_order *order, uint64_t partition, uint64_t ticket,
    uint64_t *before)
{
    enum skr_order_place place = SKR_ORDER_LEFT;
    assert_int_equal(
        skr_order_add(order, partition, ticket, &place, before, NULL), SKR_OK);
    return place;
}

static void
test_the_next_follows_when_the_first_is_done(void **state)
{
    (void)state;
    struct skr_order order = {0};
    uint64_t before = 0;
    bool is_behind = true;
    assert_int_equal(add(&order, 7, 100, &before), SKR_ORDER_FIRST);
    assert_int_equal(add(&order, 7, 101, &before), SKR_ORDER_CHAINED);
    assert_int_equal(before, 100);
    assert_int_equal(add(&order, 8, 102, &before), SKR_ORDER_FIRST);
    assert_true(skr_order_advance(&order, 7, 101, &is_behind));
    assert_false(skr_order_advance(&order, 7, 0, &is_behind));
    assert_false(is_behind);
    assert_false(skr_order_is_in_hand(&order, 7));
    assert_true(skr_order_is_in_hand(&order, 8));
    assert_int_equal(order.count, 1);
    skr_order_fini(&order);
}

static void
test_a_blocked_partition_leaves_its_rows_and_no_others(void **state)
{
    (void)state;
    struct skr_order order = {0};
    uint64_t before = 0;
    assert_int_equal(skr_order_block(&order, 7, NULL), SKR_OK);
    assert_int_equal(add(&order, 7, 100, &before), SKR_ORDER_LEFT);
    assert_int_equal(add(&order, 8, 101, &before), SKR_ORDER_FIRST);
    skr_order_unblock(&order, 7);
    assert_int_equal(add(&order, 7, 102, &before), SKR_ORDER_FIRST);
    skr_order_fini(&order);
}

static void
test_a_long_chain_blocks_and_is_read_from_its_head(void **state)
{
    (void)state;
    struct skr_order order = {0};
    uint64_t before = 0;
    enum skr_order_place place = SKR_ORDER_LEFT;
    for (uint64_t i = 0; i < MOST; i++)
        assert_int_not_equal(add(&order, 7, i, &before), SKR_ORDER_LEFT);
    assert_int_equal(add(&order, 7, MOST, &before), SKR_ORDER_LEFT);
    bool is_behind = false;
    for (uint64_t i = 1; i < MOST; i++)
        assert_true(skr_order_advance(&order, 7, i, &is_behind));
    // What is read now lies behind what was left.
    assert_int_equal(add(&order, 7, 1000, &before), SKR_ORDER_LEFT);
    assert_false(skr_order_advance(&order, 7, 0, &is_behind));
    assert_true(is_behind);
    assert_int_equal(skr_order_resume(&order, 7, MOST, &place, &before, NULL),
                     SKR_OK);
    assert_int_equal(place, SKR_ORDER_FIRST);
    assert_true(skr_order_is_blocked(&order, 7));
    skr_order_fini(&order);
}

static void
test_a_trimmed_chain_keeps_what_is_under_way(void **state)
{
    (void)state;
    struct skr_order order = {0};
    uint64_t before = 0;
    bool is_behind = false;
    assert_int_equal(add(&order, 7, 1, &before), SKR_ORDER_FIRST);
    assert_int_equal(add(&order, 7, 2, &before), SKR_ORDER_CHAINED);
    skr_order_trim(&order, 7);
    assert_true(skr_order_is_in_hand(&order, 7));
    assert_int_equal(add(&order, 7, 3, &before), SKR_ORDER_LEFT);
    assert_false(skr_order_advance(&order, 7, 0, &is_behind));
    assert_true(is_behind);
    skr_order_fini(&order);
}

static void
test_keys_of_any_bytes_have_a_partition(void **state)
{
    (void)state;
    assert_int_not_equal(skr_order_partition("a"), 0);
    assert_int_not_equal(skr_order_partition("a"), skr_order_partition("A"));
    assert_int_not_equal(skr_order_partition("a"), skr_order_partition("a "));
}

struct model {
    uint64_t tickets[MOST];
    size_t length;
    bool is_blocked;
};

static void
check_add(struct skr_order *order, struct model *model, uint64_t partition,
          uint64_t ticket, bool resumes)
{
    uint64_t before = 0;
    enum skr_order_place place = SKR_ORDER_LEFT, want = SKR_ORDER_LEFT;
    if (resumes || model->length == MOST)
        model->is_blocked = true;
    if (model->length < MOST && (resumes || !model->is_blocked))
        want = model->length == 0 ? SKR_ORDER_FIRST : SKR_ORDER_CHAINED;
    assert_int_equal((resumes ? skr_order_resume : skr_order_add)(
                         order, partition, ticket, &place, &before, NULL),
                     SKR_OK);
    assert_int_equal(place, want);
    if (want == SKR_ORDER_CHAINED)
        assert_int_equal(before, model->tickets[model->length - 1]);
    if (want != SKR_ORDER_LEFT)
        model->tickets[model->length++] = ticket;
}

static void
check_advance(struct skr_order *order, struct model *model, uint64_t partition)
{
    bool is_behind = true;
    uint64_t next = model->length > 1 ? model->tickets[1] : 0;
    bool is_next = skr_order_advance(order, partition, next, &is_behind);
    assert_int_equal(is_next, model->length > 1);
    assert_int_equal(is_behind, model->length == 1 && model->is_blocked);
    if (model->length == 0)
        return;
    model->length--;
    memmove(model->tickets, model->tickets + 1,
            model->length * sizeof(model->tickets[0]));
}

static void
step(struct skr_order *order, struct model *models, uint64_t ticket)
{
    size_t which = (size_t)rand() % PARTITIONS;
    // Neighbours in the table, so that entries have to make room.
    uint64_t partition = (which % 40 + 1) | (uint64_t)(which / 40) << 20;
    struct model *model = &models[which];
    int kind = rand() % 100;
    if (kind < 50) {
        check_add(order, model, partition, ticket, false);
    } else if (kind < 55) {
        check_add(order, model, partition, ticket, true);
    } else if (kind < 85) {
        check_advance(order, model, partition);
    } else if (kind < 88) {
        assert_int_equal(skr_order_block(order, partition, NULL), SKR_OK);
        model->is_blocked = true;
    } else if (kind < 95) {
        skr_order_unblock(order, partition);
        model->is_blocked = false;
    } else if (kind < 97) {
        bool is_known = model->length > 0 || model->is_blocked;
        skr_order_drop(order, partition);
        model->length = 0;
        model->is_blocked = is_known;
    } else if (model->length > 0) {
        skr_order_trim(order, partition);
        model->length = 1;
        model->is_blocked = true;
    }
    assert_int_equal(skr_order_is_blocked(order, partition), model->is_blocked);
    assert_int_equal(skr_order_is_in_hand(order, partition), model->length > 0);
}

static void
test_it_agrees_with_the_model(void **state)
{
    (void)state;
    struct model *models = calloc(PARTITIONS, sizeof(*models));
    struct skr_order order = {0};
    assert_non_null(models);
    srand(6);
    for (uint64_t i = 0; i < STEPS; i++)
        step(&order, models, i);
    size_t known = 0;
    for (size_t i = 0; i < PARTITIONS; i++)
        known += models[i].length > 0 || models[i].is_blocked;
    // Nothing is remembered of those that have nothing behind and in hand.
    assert_int_equal(order.count, known);
    skr_order_fini(&order);
    free(models);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_follows_when_the_first_is_done),
        cmocka_unit_test(
            test_a_blocked_partition_leaves_its_rows_and_no_others),
        cmocka_unit_test(test_a_long_chain_blocks_and_is_read_from_its_head),
        cmocka_unit_test(test_a_trimmed_chain_keeps_what_is_under_way),
        cmocka_unit_test(test_keys_of_any_bytes_have_a_partition),
        cmocka_unit_test(test_it_agrees_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
