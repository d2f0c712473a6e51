// SPDX-License-Identifier: MIT
#include "base/text.h"
#include "broker/kafka/partition.h"
#include "broker/kafka/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// As Java's Utils.murmur2() and Go's fnv.New32a() with Sarama's sign have it.
static void
test_a_key_lies_where_java_and_go_put_it(void **state)
{
    static const struct {
        const char *key;
        uint32_t murmur2, fnv1a;
    } cases[] = {
        {"kafka", 0xd067cf64, 0xd33c4e1},
        {"giberish123456789", 0x8f552b0c, 0x77a58295},
        {"1234", 0x9fc97b14, 0x23bdd03},
        {"234", 0xe7c009ca, 0x2dea3cd2},
        {"34", 0x873930da, 0x740fa83e},
        {"4", 0x5a4b5ca1, 0x310ca263},
        {"", 0x106e08d9, 0x7ee3623b},
    };
    static const int32_t counts[] = {1, 2, 3, 4, 12, 100, 1000};
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        for (size_t k = 0; k < SKR_COUNT_OF(counts); k++) {
            const char *key = cases[i].key;
            uint32_t count = (uint32_t)counts[k];
            assert_int_equal(
                skr_kafka_partition(KAFKA_MURMUR2, key, strlen(key), counts[k]),
                (cases[i].murmur2 & 0x7fffffff) % count);
            assert_int_equal(
                skr_kafka_partition(KAFKA_FNV1A, key, strlen(key), counts[k]),
                cases[i].fnv1a % count);
        }
}

static void
test_the_names_of_topics_are_those_that_kafka_takes(void **state)
{
    char longest[251];
    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[250] = '\0';
    assert_false(skr_kafka_is_topic(longest));
    assert_true(skr_kafka_is_topic(longest + 1));
    assert_true(skr_kafka_is_topic("Order_placed-1.x"));
    static const char *const wrong[] = {"",    ".",    "..",      "a b",
                                        "a/b", "a\\b", "\xc3\xa6"};
    for (size_t i = 0; i < SKR_COUNT_OF(wrong); i++)
        assert_false(skr_kafka_is_topic(wrong[i]));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_lies_where_java_and_go_put_it),
        cmocka_unit_test(test_the_names_of_topics_are_those_that_kafka_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
