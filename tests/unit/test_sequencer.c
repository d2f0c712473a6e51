// SPDX-License-Identifier: MIT
// The order of partitions, by itself and against a model that is too simple to
// be wrong.

#include "base/text.h"
#include "relay/sequencer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTITIONS = 600, STEPS = 400000, MOST = SKR_LONGEST_CHAIN };

static bool
is_in_flight(const struct skr_sequencer *sequencer, uint64_t partition)
{
    return skr_sequencer_chain(sequencer, partition).length > 0;
}

static enum skr_turn
add(struct skr_sequencer *sequencer, uint64_t partition, skr_tag tag,
    skr_tag *before)
{
    struct skr_place place = {.turn = SKR_TURN_LEAVE};
    assert_int_equal(
        skr_sequencer_add(sequencer, partition, tag, false, &place, NULL),
        SKR_OK);
    *before = place.before;
    return place.turn;
}

static void
test_the_next_follows_when_the_first_is_done(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    skr_sequencer_clear(&sequencer);
    uint64_t before = 0;
    bool is_behind = true;
    assert_int_equal(add(&sequencer, 7, 100, &before), SKR_TURN_NOW);
    assert_int_equal(add(&sequencer, 7, 101, &before), SKR_TURN_AFTER);
    assert_int_equal(before, 100);
    assert_int_equal(add(&sequencer, 8, 102, &before), SKR_TURN_NOW);
    assert_true(skr_sequencer_advance(&sequencer, 7, 101, &is_behind));
    assert_false(skr_sequencer_advance(&sequencer, 7, 0, &is_behind));
    assert_false(is_behind);
    assert_false(is_in_flight(&sequencer, 7));
    assert_true(is_in_flight(&sequencer, 8));
    assert_int_equal(sequencer.entries.count, 1);
    skr_sequencer_fini(&sequencer);
}

static void
test_a_blocked_partition_leaves_its_rows_and_no_others(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    skr_sequencer_clear(&sequencer);
    uint64_t before = 0;
    assert_int_equal(skr_sequencer_block(&sequencer, 7, NULL), SKR_OK);
    assert_int_equal(add(&sequencer, 7, 100, &before), SKR_TURN_LEAVE);
    assert_int_equal(add(&sequencer, 8, 101, &before), SKR_TURN_NOW);
    skr_sequencer_unblock(&sequencer, 7);
    assert_int_equal(add(&sequencer, 7, 102, &before), SKR_TURN_NOW);
    skr_sequencer_fini(&sequencer);
}

static void
test_a_long_chain_blocks_and_is_read_from_its_head(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    skr_sequencer_clear(&sequencer);
    uint64_t before = 0;
    struct skr_place place = {.turn = SKR_TURN_LEAVE};
    for (uint64_t i = 0; i < MOST; i++)
        assert_int_not_equal(add(&sequencer, 7, i, &before), SKR_TURN_LEAVE);
    assert_int_equal(add(&sequencer, 7, MOST, &before), SKR_TURN_LEAVE);
    bool is_behind = false;
    for (uint64_t i = 1; i < MOST; i++)
        assert_true(skr_sequencer_advance(&sequencer, 7, i, &is_behind));
    // What is read now lies behind what was left.
    assert_int_equal(add(&sequencer, 7, 1000, &before), SKR_TURN_LEAVE);
    assert_false(skr_sequencer_advance(&sequencer, 7, 0, &is_behind));
    assert_true(is_behind);
    assert_int_equal(skr_sequencer_add(&sequencer, 7, MOST, true, &place, NULL),
                     SKR_OK);
    assert_int_equal(place.turn, SKR_TURN_NOW);
    assert_true(skr_sequencer_chain(&sequencer, 7).is_blocked);
    skr_sequencer_fini(&sequencer);
}

static void
test_a_trimmed_chain_keeps_what_is_under_way(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    skr_sequencer_clear(&sequencer);
    uint64_t before = 0;
    bool is_behind = false;
    assert_int_equal(add(&sequencer, 7, 1, &before), SKR_TURN_NOW);
    assert_int_equal(add(&sequencer, 7, 2, &before), SKR_TURN_AFTER);
    skr_sequencer_cut(&sequencer, 7, 1);
    assert_true(is_in_flight(&sequencer, 7));
    assert_int_equal(add(&sequencer, 7, 3, &before), SKR_TURN_LEAVE);
    assert_false(skr_sequencer_advance(&sequencer, 7, 0, &is_behind));
    assert_true(is_behind);
    skr_sequencer_fini(&sequencer);
}

static void
test_keys_of_any_bytes_have_a_partition(void **state)
{
    (void)state;
    assert_int_not_equal(skr_sequencer_partition("a"), 0);
    assert_int_not_equal(skr_sequencer_partition("a"),
                         skr_sequencer_partition("A"));
    assert_int_not_equal(skr_sequencer_partition("a"),
                         skr_sequencer_partition("a "));
}

struct model {
    uint64_t tags[MOST];
    size_t length;
    bool is_blocked;
};

static void
check_add(struct skr_sequencer *sequencer, struct model *model,
          uint64_t partition, uint64_t tag, bool from_head)
{
    struct skr_place place = {.turn = SKR_TURN_LEAVE};
    enum skr_turn want = SKR_TURN_LEAVE;
    if (from_head || model->length == MOST)
        model->is_blocked = true;
    if (model->length < MOST && (from_head || !model->is_blocked))
        want = model->length == 0 ? SKR_TURN_NOW : SKR_TURN_AFTER;
    assert_int_equal(
        skr_sequencer_add(sequencer, partition, tag, from_head, &place, NULL),
        SKR_OK);
    assert_int_equal(place.turn, want);
    if (want == SKR_TURN_AFTER)
        assert_int_equal(place.before, model->tags[model->length - 1]);
    if (want != SKR_TURN_LEAVE)
        model->tags[model->length++] = tag;
}

static void
check_advance(struct skr_sequencer *sequencer, struct model *model,
              uint64_t partition)
{
    bool is_behind = true;
    uint64_t next = model->length > 1 ? model->tags[1] : 0;
    bool is_next =
        skr_sequencer_advance(sequencer, partition, next, &is_behind);
    assert_int_equal(is_next, model->length > 1);
    assert_int_equal(is_behind, model->length == 1 && model->is_blocked);
    if (model->length == 0)
        return;
    model->length--;
    memmove(model->tags, model->tags + 1,
            model->length * sizeof(model->tags[0]));
}

static void
step(struct skr_sequencer *sequencer, struct model *models, uint64_t tag)
{
    size_t which = (size_t)rand() % PARTITIONS;
    // Neighbours in the table, so that entries have to make room.
    uint64_t partition = (which % 40 + 1) | (uint64_t)(which / 40) << 20;
    struct model *model = &models[which];
    int kind = rand() % 100;
    if (kind < 50) {
        check_add(sequencer, model, partition, tag, false);
    } else if (kind < 55) {
        check_add(sequencer, model, partition, tag, true);
    } else if (kind < 85) {
        check_advance(sequencer, model, partition);
    } else if (kind < 88) {
        assert_int_equal(skr_sequencer_block(sequencer, partition, NULL),
                         SKR_OK);
        model->is_blocked = true;
    } else if (kind < 95) {
        skr_sequencer_unblock(sequencer, partition);
        model->is_blocked = false;
    } else if (kind < 97) {
        bool is_known = model->length > 0 || model->is_blocked;
        skr_sequencer_cut(sequencer, partition, 0);
        model->length = 0;
        model->is_blocked = is_known;
    } else if (model->length > 0) {
        skr_sequencer_cut(sequencer, partition, 1);
        model->length = 1;
        model->is_blocked = true;
    }
    assert_int_equal(skr_sequencer_chain(sequencer, partition).is_blocked,
                     model->is_blocked);
    assert_int_equal(is_in_flight(sequencer, partition), model->length > 0);
}

static void
test_it_agrees_with_the_model(void **state)
{
    (void)state;
    struct model *models = calloc(PARTITIONS, sizeof(*models));
    struct skr_sequencer sequencer = {.passed_count = 0};
    skr_sequencer_clear(&sequencer);
    assert_non_null(models);
    srand(6);
    for (uint64_t i = 0; i < STEPS; i++)
        step(&sequencer, models, i);
    size_t known = 0;
    for (size_t i = 0; i < PARTITIONS; i++)
        known += models[i].length > 0 || models[i].is_blocked;
    // Nothing is remembered of those that have nothing behind and in hand.
    assert_int_equal(sequencer.entries.count, known);
    skr_sequencer_fini(&sequencer);
    free(models);
}

static void
list(struct skr_sequencer *sequencer, const char *key, int64_t not_before_ms)
{
    assert_int_equal(
        skr_sequencer_list_head(sequencer, key, not_before_ms, NULL), SKR_OK);
}

static void
test_heads_are_taken_in_turn_when_their_time_has_come(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    char *keys[4];
    skr_tag before;
    skr_sequencer_clear(&sequencer);
    // One that is not blocked has nothing to be read from its head.
    list(&sequencer, "free", 1);
    assert_int_equal(skr_sequencer_next_head_ms(&sequencer), 0);
    static const char *const names[] = {"late", "soon", "now", "sent"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++)
        assert_int_equal(skr_sequencer_block(&sequencer,
                                             skr_sequencer_partition(names[i]),
                                             NULL),
                         SKR_OK);
    list(&sequencer, "late", 500);
    list(&sequencer, "soon", 100);
    list(&sequencer, "now", 1);
    list(&sequencer, "now", 1);
    list(&sequencer, "sent", 1);
    skr_sequencer_unblock(&sequencer, skr_sequencer_partition("sent"));
    assert_int_equal(
        add(&sequencer, skr_sequencer_partition("sent"), 7, &before),
        SKR_TURN_NOW);
    assert_int_equal(skr_sequencer_next_head_ms(&sequencer), 1);
    assert_int_equal(skr_sequencer_take_heads(&sequencer, 100, keys, 4), 2);
    assert_string_equal(keys[0], "soon");
    assert_string_equal(keys[1], "now");
    free(keys[0]);
    free(keys[1]);
    assert_int_equal(skr_sequencer_next_head_ms(&sequencer), 500);
    assert_int_equal(skr_sequencer_take_heads(&sequencer, 499, keys, 4), 0);
    assert_int_equal(skr_sequencer_take_heads(&sequencer, 500, keys, 4), 1);
    assert_string_equal(keys[0], "late");
    free(keys[0]);
    skr_sequencer_fini(&sequencer);
}

static void
test_partitions_are_passed_while_they_wait(void **state)
{
    (void)state;
    struct skr_sequencer sequencer = {.passed_count = 0};
    char key[16];
    size_t count = 0;
    skr_sequencer_clear(&sequencer);
    for (int i = 0; i <= SKR_MOST_PASSED; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(
            skr_sequencer_block(&sequencer, skr_sequencer_partition(key), NULL),
            SKR_OK);
        skr_sequencer_pass(&sequencer, key);
        skr_sequencer_pass(&sequencer, key);
    }
    // The oldest gave way.
    const char *const *passed = skr_sequencer_passed(&sequencer, &count);
    assert_int_equal(count, SKR_MOST_PASSED);
    assert_string_equal(passed[0], "k1");
    skr_sequencer_unblock(&sequencer, skr_sequencer_partition("k1"));
    passed = skr_sequencer_passed(&sequencer, &count);
    assert_int_equal(count, SKR_MOST_PASSED - 1);
    assert_string_equal(passed[0], "k2");
    skr_sequencer_clear(&sequencer);
    skr_sequencer_passed(&sequencer, &count);
    assert_int_equal(count, 0);
    skr_sequencer_fini(&sequencer);
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
        cmocka_unit_test(test_heads_are_taken_in_turn_when_their_time_has_come),
        cmocka_unit_test(test_partitions_are_passed_while_they_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
