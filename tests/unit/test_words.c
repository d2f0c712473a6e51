// SPDX-License-Identifier: MIT
// Words that cannot name a table.
#include "base/text.h"
#include "db/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void
test_reserved_words_of_every_database_are_known(void **state)
{
    (void)state;
    static const char *const reserved[] = {
        // The first and the last of the list, and words of one database each.
        "accessible",    "zerofill", "autoincrement", "isnull", "rlike",
        "analyse",       "lateral",  "json_table",    "manual", "order",
        "group",         "table",    "select",        "user",   "key",
        "index",         "values",   "ORDER",         "Order",  "sqlite_x",
        "Sqlite_Master",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(reserved); i++)
        if (!skr_sql_is_reserved(reserved[i]))
            fail_msg("%s", reserved[i]);
}

static void
test_other_words_are_free(void **state)
{
    (void)state;
    static const char *const good[] = {
        "messenger_messages",
        "messenger_outbox",
        "message_broker_deduplication",
        "orders",
        "ordered",
        "orde",
        "users",
        "sqlite",
        "_order",
        "outbox",
        "inbox",
        "events",
        "seen",
        "failed",
        "queue",
        "message",
        "",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(good); i++)
        if (skr_sql_is_reserved(good[i]))
            fail_msg("%s", good[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved_words_of_every_database_are_known),
        cmocka_unit_test(test_other_words_are_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
