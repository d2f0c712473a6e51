// SPDX-License-Identifier: MIT
// What is delivered by a broker of any kind, for tests. A suite that
// includes it says how long that may take: DEADLINE_MS.

#ifndef SKR_TEST_DELIVERIES_H
#define SKR_TEST_DELIVERIES_H

// At least one delivery, within the deadline.
static inline size_t
receive(struct skr_broker *broker, struct skr_incoming *incoming,
        size_t capacity)
{
    size_t count = 0;
    struct skr_error error = {0};
    if (broker->ops->receive(broker, incoming, capacity, &count, DEADLINE_MS,
                             &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_in_range(count, 1, capacity);
    return count;
}

static inline void
settle(struct skr_broker *broker, struct skr_incoming *incoming, size_t count,
       enum skr_settlement settlement)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < count; i++)
        incoming[i].settlement = settlement;
    if (broker->ops->settle(broker, incoming, count, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

#endif
