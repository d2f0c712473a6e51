// SPDX-License-Identifier: MIT
// Each allocation of a consumer's first steps fails once; the next call does
// what the one before could not.
#include "queue_world.h"

#include "support/oom.h"

static void
test_a_receive_that_ran_out_of_memory_can_be_called_again(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    size_t struck = 0;
    bool is_over = false;
    publish(world, 1);
    for (size_t nth = 1; !is_over; nth++) {
        size_t count = 0;
        struct skr_broker *broker = open_broker(world, "queue://orders");
        skr_oom_arm(nth);
        enum skr_code code = broker->ops->receive(broker, world->incoming, 100,
                                                  &count, 0, &error);
        is_over = !skr_oom_disarm();
        if (code != SKR_OK) {
            assert_int_equal(code, SKR_NO_MEMORY);
            struck++;
            assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        }
        assert_int_equal(count, 1);
        assert_false(world->incoming[0].redelivered);
        settle_all(world, broker, 1, SKR_SETTLE_REQUEUE, 0);
        skr_broker_close(broker);
        assert_true(nth < 1000);
    }
    assert_true(struck > 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_receive_that_ran_out_of_memory_can_be_called_again,
            queue_world_set_up, queue_world_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
