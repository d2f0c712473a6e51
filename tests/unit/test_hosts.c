// SPDX-License-Identifier: MIT
// In which order the hosts of a database are tried.
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/silence.h"
#include "db/db.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct servers {
    const char *hanging, *down;  // names; NULL: none
    char tried[64];
};

static enum skr_code
open_host(struct skr_db *db, const struct skr_host *host, const void *user,
          struct skr_error *error)
{
    struct servers *servers = (struct servers *)(uintptr_t)user;
    (void)db;
    strcat(servers->tried, host->name);
    bool hangs =
        servers->hanging != NULL && strcmp(host->name, servers->hanging) == 0;
    if (hangs)
        skr_clock_sleep(-1, 1000);
    if (hangs ||
        (servers->down != NULL && strcmp(host->name, servers->down) == 0))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, "away");
    return SKR_OK;
}

static const char *
tried(struct servers *servers, const char *hosts, enum skr_code want)
{
    struct skr_db db = {0};
    servers->tried[0] = '\0';
    assert_int_equal(skr_db_open_hosts(&db, hosts, open_host, servers, NULL),
                     want);
    return servers->tried;
}

static void
test_a_host_that_hung_is_tried_last_until_it_answers(void **state)
{
    (void)state;
    struct servers servers = {.hanging = "a"};
    assert_string_equal(tried(&servers, "a:1,b:1", SKR_OK), "ab");
    assert_string_equal(tried(&servers, "a:1,b:1", SKR_OK), "b");
    // Its neighbour on another port is another host.
    assert_string_equal(tried(&servers, "a:2,b:1", SKR_OK), "ab");
    servers = (struct servers){.down = "b"};
    assert_string_equal(tried(&servers, "a:1,b:1", SKR_OK), "ba");
    assert_string_equal(tried(&servers, "a:1,b:1", SKR_OK), "a");
}

static void
test_a_host_that_refuses_at_once_keeps_its_place(void **state)
{
    (void)state;
    struct servers servers = {.down = "c"};
    assert_string_equal(tried(&servers, "c:1,d:1", SKR_OK), "cd");
    assert_string_equal(tried(&servers, "c:1,d:1", SKR_OK), "cd");
}

static void
test_each_host_is_tried_once(void **state)
{
    (void)state;
    struct servers servers = {.hanging = "e"};
    servers.down = "f";
    assert_string_equal(tried(&servers, "e:1,f:1", SKR_UNAVAILABLE), "ef");
    assert_string_equal(tried(&servers, "e:1,f:1", SKR_UNAVAILABLE), "fe");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_host_that_hung_is_tried_last_until_it_answers),
        cmocka_unit_test(test_a_host_that_refuses_at_once_keeps_its_place),
        cmocka_unit_test(test_each_host_is_tried_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
