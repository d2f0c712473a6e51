// SPDX-License-Identifier: MIT
// Arena, clock, threads, hash, errors and log.
#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// -------------------------------------------------------------------- arena

static void
test_arena_memory_is_aligned_and_apart(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    unsigned char *taken[300];
    for (size_t i = 0; i < SKR_COUNT_OF(taken); i++) {
        // 7 x 300 x 150 passes several blocks; each 50th is a block's size.
        size_t size = i % 50 == 49 ? 100000 : i * 7;
        taken[i] = skr_arena_take(&arena, size);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % alignof(max_align_t), 0);
        memset(taken[i], (int)(i & 0xff), size);
    }
    for (size_t i = 1; i < SKR_COUNT_OF(taken); i++) {
        size_t size = i % 50 == 49 ? 100000 : i * 7;
        assert_int_equal(taken[i][0], i & 0xff);
        assert_int_equal(taken[i][size - 1], i & 0xff);
    }
    skr_arena_fini(&arena);
    assert_null(arena.blocks);
    skr_arena_fini(&arena);
}

static void
test_a_large_thing_does_not_end_the_block_for_small_ones(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    char *before = skr_arena_take(&arena, 16);
    assert_non_null(skr_arena_take(&arena, 1 << 20));
    char *after = skr_arena_take(&arena, 16);
    assert_ptr_equal(after, before + 16);
    skr_arena_fini(&arena);
}

static void
test_a_reset_arena_uses_the_same_memory_again(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    skr_arena_reset(&arena);
    const void *first = skr_arena_take(&arena, 100);
    for (int round = 0; round < 100; round++) {
        skr_arena_reset(&arena);
        assert_ptr_equal(skr_arena_take(&arena, 60000), first);
    }
    // Several blocks, large ones among them, come down to one again.
    for (int i = 0; i < 20; i++)
        assert_non_null(skr_arena_take(&arena, i % 2 == 0 ? 50000 : 200000));
    skr_arena_reset(&arena);
    const void *kept = arena.blocks;
    assert_non_null(kept);
    const void *again = skr_arena_take(&arena, 60000);
    assert_ptr_equal(arena.blocks, kept);
    skr_arena_reset(&arena);
    assert_ptr_equal(skr_arena_take(&arena, 1), again);
    skr_arena_fini(&arena);
}

static void
test_arena_refuses_what_no_memory_can_hold(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    assert_null(skr_arena_take(&arena, SIZE_MAX));
    assert_null(skr_arena_take(&arena, SIZE_MAX - 40));
    assert_null(skr_arena_text(&arena, "x", SIZE_MAX));
    assert_null(arena.blocks);
    assert_string_equal(skr_arena_text(&arena, "abc", 2), "ab");
    assert_string_equal(skr_arena_text(&arena, NULL, 0), "");
    assert_string_equal(skr_arena_format(&arena, "%s-%d", "a", 7), "a-7");
    skr_arena_fini(&arena);
}

// -------------------------------------------------------------------- clock

static void
test_timestamps_are_floored_and_held_to_four_digit_years(void **state)
{
    (void)state;
    static const struct {
        int64_t wall_us;
        const char *text;
    } cases[] = {
        {0, "1970-01-01 00:00:00"},
        {999999, "1970-01-01 00:00:00"},
        {1000000, "1970-01-01 00:00:01"},
        {-1, "1969-12-31 23:59:59"},
        {-1000000, "1969-12-31 23:59:59"},
        {-1000001, "1969-12-31 23:59:58"},
        {1794711225999999, "2026-11-15 02:53:45"},
        {951782400000000, "2000-02-29 00:00:00"},
        {253402300799000000, "9999-12-31 23:59:59"},
        {253402300800000000, "9999-12-31 23:59:59"},
        {INT64_MAX, "9999-12-31 23:59:59"},
        {-30610224000000000, "1000-01-01 00:00:00"},
        {-30610224000000001, "1000-01-01 00:00:00"},
        {INT64_MIN, "1000-01-01 00:00:00"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char text[SKR_TIMESTAMP_SIZE];
        skr_clock_timestamp(cases[i].wall_us, text);
        assert_string_equal(text, cases[i].text);
        int64_t back = 1;
        assert_true(skr_clock_parse_timestamp(text, &back));
        assert_int_equal(back % 1000000, 0);
        char again[SKR_TIMESTAMP_SIZE];
        skr_clock_timestamp(back, again);
        assert_string_equal(again, text);
    }
}

static void
test_only_a_timestamp_is_read_as_one(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t wall_us;  // -1: refused
    } cases[] = {
        {"2026-11-15 02:53:45", 1794711225000000},
        {"2026-11-15 02:53:45.999999", 1794711225000000},
        {"", -1},
        {"2026-11-15", -1},
        {"2026-11-15T02:53:45", -1},
        {"2026-11-15 02:53:4", -1},
        {"2026-11-15 02:53:45Z", -1},
        {"2026-11-15 02:53:45.x", -1},
        {" 026-11-15 02:53:45", -1},
        {"+026-11-15 02:53:45", -1},
        {"2026-13-15 02:53:45", -1},
        {"2026-00-15 02:53:45", -1},
        {"2026-02-29 02:53:45", -1},
        {"2026-11-31 02:53:45", -1},
        {"2026-11-15 24:00:00", -1},
        {"2026-11-15 02:60:00", -1},
        {"2026-11-15 02:53:60", -1},
        {"0000-00-00 00:00:00", -1},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int64_t wall_us = -1;
        assert_int_equal(skr_clock_parse_timestamp(cases[i].text, &wall_us),
                         cases[i].wall_us >= 0);
        assert_int_equal(wall_us, cases[i].wall_us);
    }
}

static void
test_a_sleep_ends_by_time_or_by_its_wake_fd(void **state)
{
    (void)state;
    int64_t start = skr_clock_ms();
    assert_false(skr_clock_sleep(-1, 20));
    assert_true(skr_clock_ms() - start >= 20);
    assert_false(skr_clock_sleep(-1, 0));
    assert_false(skr_clock_sleep(-1, -5));

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(skr_clock_sleep(ends[0], 1));
    assert_int_equal(write(ends[1], "x", 1), 1);
    start = skr_clock_ms();
    assert_true(skr_clock_sleep(ends[0], 60000));
    assert_true(skr_clock_ms() - start < 30000);
    close(ends[0]);
    close(ends[1]);
}

static void
test_a_deadline_lies_ahead_by_its_time(void **state)
{
    (void)state;
    static const int64_t timeouts_ms[] = {-5, 0, 1, 999, 1000, 61999};
    for (size_t i = 0; i < SKR_COUNT_OF(timeouts_ms); i++) {
        int64_t wanted_ms = timeouts_ms[i] < 0 ? 0 : timeouts_ms[i];
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        struct timespec until = skr_clock_deadline(timeouts_ms[i]);
        clock_gettime(CLOCK_MONOTONIC, &after);
        assert_in_range(until.tv_nsec, 0, 999999999);
        int64_t until_ms = until.tv_sec * 1000LL + until.tv_nsec / 1000000;
        int64_t first_ms = before.tv_sec * 1000LL + before.tv_nsec / 1000000;
        int64_t last_ms = after.tv_sec * 1000LL + after.tv_nsec / 1000000;
        assert_true(until_ms >= first_ms + wanted_ms);
        assert_true(until_ms <= last_ms + wanted_ms);
    }
}

static void *
note_mask(void *user)
{
    pthread_sigmask(SIG_SETMASK, NULL, user);
    return NULL;
}

static void
test_a_thread_of_ours_takes_no_signal(void **state)
{
    (void)state;
    sigset_t theirs, before, after;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(skr_thread_start(&thread, note_mask, &theirs), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD};
    for (size_t i = 0; i < SKR_COUNT_OF(signals); i++) {
        assert_int_equal(sigismember(&theirs, signals[i]), 1);
        // The caller's own are as they were.
        assert_int_equal(sigismember(&after, signals[i]),
                         sigismember(&before, signals[i]));
    }
}

// --------------------------------------------------------------------- hash

static void
test_hashes_are_fnv1a_of_128_bits(void **state)
{
    (void)state;
    unsigned char all[256];
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (unsigned char)i;
    const struct {
        const void *bytes;
        size_t size;
        uint64_t high, low;
    } cases[] = {
        {"", 0, 0x6c62272e07bb0142, 0x62b821756295c58d},
        {"a", 1, 0xd228cb696f1a8caf, 0x78912b704e4a8964},
        {"foobar", 6, 0x343e1662793c64bf, 0x6f0d3597ba446f18},
        {all, sizeof(all), 0x8097249afae7c216, 0x86b07bd6fa33708d},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_hash hash =
            skr_hash_add(skr_hash_start(), cases[i].bytes, cases[i].size);
        assert_int_equal(hash.high, cases[i].high);
        assert_int_equal(hash.low, cases[i].low);
    }
}

static void
test_hashed_texts_do_not_run_together(void **state)
{
    (void)state;
    struct skr_hash parts = skr_hash_add_text(
        skr_hash_add_text(skr_hash_start(), "orders"), "outbox");
    struct skr_hash whole =
        skr_hash_add(skr_hash_start(), "orders\0outbox", 14);
    assert_memory_equal(&parts, &whole, sizeof(whole));
    struct skr_hash other = skr_hash_add_text(
        skr_hash_add_text(skr_hash_start(), "order"), "soutbox");
    assert_memory_not_equal(&parts, &other, sizeof(other));
}

// ------------------------------------------------------------------- errors

static void
test_a_failure_says_all_it_is_told(void **state)
{
    (void)state;
    struct skr_error error = {.native = "old"};
    assert_int_equal(
        skr_fail(&error, SKR_CONFLICT, SKR_TRY_AGAIN, "%d of %s", 3, "four"),
        SKR_CONFLICT);
    assert_int_equal(error.code, SKR_CONFLICT);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    assert_string_equal(error.text, "3 of four");
    assert_string_equal(error.native, "");
    skr_error_set_native(&error, "%s", "a code of more than fifteen");
    assert_string_equal(error.native, "a code of more ");
    skr_error_prefix(&error, "row %d", 7);
    assert_int_equal(error.code, SKR_CONFLICT);
    assert_string_equal(error.text, "row 7: 3 of four");
    skr_error_advise(&error, "wait");
    assert_int_equal(error.code, SKR_CONFLICT);
    assert_string_equal(error.text, "row 7: 3 of four; wait");
    skr_error_clear(&error);
    assert_int_equal(error.code, SKR_OK);
    assert_string_equal(error.text, "");
}

static void
test_errors_may_be_unwanted(void **state)
{
    (void)state;
    assert_int_equal(skr_fail(NULL, SKR_TIMEOUT, SKR_TRY_AGAIN, "late"),
                     SKR_TIMEOUT);
    assert_int_equal(skr_fail_memory(NULL), SKR_NO_MEMORY);
    skr_error_prefix(NULL, "x");
    skr_error_advise(NULL, "x");
    skr_error_set_native(NULL, "x");
    skr_error_clear(NULL);
}

static void
test_long_error_texts_are_cut_between_characters(void **state)
{
    (void)state;
    struct skr_error error;
    char lengthy[400];
    memset(lengthy, 'a', sizeof(lengthy));
    lengthy[399] = '\0';
    skr_fail(&error, SKR_INVALID, SKR_GIVE_UP, "%s", lengthy);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    // A four-byte character at each place where the end can cut it.
    for (size_t keep = 0; keep <= 4; keep++) {
        size_t before = sizeof(error.text) - 1 - keep;
        skr_fail(&error, SKR_INVALID, SKR_GIVE_UP, "%.*s\xf0\x9f\x98\x80%s",
                 (int)before, lengthy, lengthy);
        assert_int_equal(strlen(error.text), before + (keep == 4 ? 4 : 0));
        assert_true(skr_text_is_storable(error.text, strlen(error.text)));
    }
    skr_fail(&error, SKR_INVALID, SKR_GIVE_UP, "short");
    skr_error_prefix(&error, "%s\xc3\xa9", lengthy + 399 - 318);
    assert_int_equal(strlen(error.text), 318);
    skr_fail(&error, SKR_INVALID, SKR_GIVE_UP, "%s", lengthy);
    skr_error_prefix(&error, "row %d", 7);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    assert_memory_equal(error.text, "row 7: aaa", 10);
    // What helps is not cut off.
    skr_error_advise(&error, "wait");
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    assert_true(skr_text_ends_with(error.text, "a; wait"));
}

static void
test_error_texts_are_storable_whatever_they_quote(void **state)
{
    (void)state;
    struct skr_error error;
    skr_fail(&error, SKR_MALFORMED, SKR_GIVE_UP, "type \xff\xfe is \xc3\xa9 %s",
             "\xe2\x82");
    assert_string_equal(error.text, "type ?? is \xc3\xa9 ??");
}

// ---------------------------------------------------------------------- log

struct heard {
    int count;
    enum skr_log_level level;
    char event[32];
    char name[32];
    int64_t last_number;
    char last_text[64];
};

static void
hear(void *user, enum skr_log_level level, const char *event,
     const struct skr_log_field *fields, size_t count)
{
    struct heard *heard = user;
    heard->count++;
    heard->level = level;
    snprintf(heard->event, sizeof(heard->event), "%s", event);
    snprintf(heard->name, sizeof(heard->name), "%s", fields[0].text);
    const struct skr_log_field *last = &fields[count - 1];
    heard->last_number = last->number;
    snprintf(heard->last_text, sizeof(heard->last_text), "%s",
             last->text == NULL ? "" : last->text);
}

static void
test_trouble_is_said_once_and_counted(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct skr_log log = {.write = hear, .user = &heard};
    struct skr_trouble trouble = {0};
    struct skr_error error;

    skr_trouble_end(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.back",
                    "orders");
    assert_int_equal(heard.count, 0);

    skr_fail(&error, SKR_UNAVAILABLE, SKR_RECONNECT, "connection refused");
    for (int i = 0; i < 1000; i++)
        skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.lost",
                           "orders", &error);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.level, SKR_LOG_WARNING);
    assert_string_equal(heard.event, "broker.lost");
    assert_string_equal(heard.name, "orders");
    assert_string_equal(heard.last_text, "connection refused");

    skr_fail(&error, SKR_REFUSED, SKR_RECONNECT, "wrong password");
    skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.lost",
                       "orders", &error);
    skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.lost",
                       "orders", &error);
    assert_int_equal(heard.count, 2);
    assert_string_equal(heard.last_text, "wrong password");

    skr_trouble_end(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.back",
                    "orders");
    assert_int_equal(heard.count, 3);
    assert_int_equal(heard.level, SKR_LOG_INFO);
    assert_int_equal(heard.last_number, 2);
    skr_trouble_end(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.back",
                    "orders");
    assert_int_equal(heard.count, 3);

    skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.lost",
                       "orders", &error);
    assert_int_equal(heard.count, 4);
}

static void
test_trouble_that_lasts_is_told_again_each_minute(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct skr_log log = {.write = hear, .user = &heard};
    struct skr_trouble trouble = {0};
    struct skr_error error;
    skr_fail(&error, SKR_UNAVAILABLE, SKR_RECONNECT, "connection refused");
    for (int minute = 1; minute <= 3; minute++) {
        for (int i = 0; i < 10; i++)
            skr_trouble_report(&trouble, &log, SKR_TROUBLE_HARMLESS,
                               "broker.lost", "orders", &error);
        assert_int_equal(heard.count, minute);
        assert_string_equal(heard.event, "broker.lost");
        assert_string_equal(heard.last_text, "connection refused");
        trouble.logged_ms -= 60000;
    }
    skr_trouble_end(&trouble, &log, SKR_TROUBLE_HARMLESS, "broker.back",
                    "orders");
    assert_int_equal(heard.last_number, 30);
}

static void
test_trouble_that_was_gone_is_told_again(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct skr_log log = {.write = hear, .user = &heard};
    struct skr_trouble trouble = {0};
    struct skr_error error, none = {.code = SKR_OK};
    skr_fail(&error, SKR_REFUSED, SKR_RECONNECT, "one:5432 is read-only");
    skr_trouble_notice(&trouble, &log, "relay.passed_over", "outbox", &none);
    assert_int_equal(heard.count, 0);
    for (int turn = 1; turn <= 2; turn++) {
        skr_trouble_notice(&trouble, &log, "relay.passed_over", "outbox",
                           &error);
        skr_trouble_notice(&trouble, &log, "relay.passed_over", "outbox",
                           &error);
        assert_int_equal(heard.count, turn);
        skr_trouble_notice(&trouble, &log, "relay.passed_over", "outbox",
                           &none);
    }
}

static void
test_the_earlier_of_two_times_may_be_never(void **state)
{
    (void)state;
    static const struct {
        int64_t one, other, earlier;
    } cases[] = {{0, 0, 0}, {0, 7, 7}, {7, 0, 7}, {7, 9, 7}, {9, 7, 7}};
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_int_equal(skr_clock_earlier(cases[i].one, cases[i].other),
                         cases[i].earlier);
}

static void
test_a_log_without_a_function_is_silent(void **state)
{
    (void)state;
    struct skr_log silent = {0};
    struct skr_trouble trouble = {0};
    struct skr_error error;
    skr_fail(&error, SKR_UNAVAILABLE, SKR_RECONNECT, "gone");
    skr_log(NULL, SKR_LOG_ERROR, "a.b", SKR_LOG_TEXT("x", "y"));
    skr_log(&silent, SKR_LOG_ERROR, "a.b", SKR_LOG_NUMBER("x", 1));
    skr_trouble_report(&trouble, NULL, SKR_TROUBLE_HARMLESS, "a.b", "x",
                       &error);
    assert_string_equal(trouble.text, "gone");
    skr_trouble_end(&trouble, &silent, SKR_TROUBLE_HARMLESS, "a.b", "x");
    assert_string_equal(trouble.text, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_memory_is_aligned_and_apart),
        cmocka_unit_test(
            test_a_large_thing_does_not_end_the_block_for_small_ones),
        cmocka_unit_test(test_a_reset_arena_uses_the_same_memory_again),
        cmocka_unit_test(test_arena_refuses_what_no_memory_can_hold),
        cmocka_unit_test(
            test_timestamps_are_floored_and_held_to_four_digit_years),
        cmocka_unit_test(test_only_a_timestamp_is_read_as_one),
        cmocka_unit_test(test_a_sleep_ends_by_time_or_by_its_wake_fd),
        cmocka_unit_test(test_a_deadline_lies_ahead_by_its_time),
        cmocka_unit_test(test_a_thread_of_ours_takes_no_signal),
        cmocka_unit_test(test_hashes_are_fnv1a_of_128_bits),
        cmocka_unit_test(test_hashed_texts_do_not_run_together),
        cmocka_unit_test(test_a_failure_says_all_it_is_told),
        cmocka_unit_test(test_errors_may_be_unwanted),
        cmocka_unit_test(test_long_error_texts_are_cut_between_characters),
        cmocka_unit_test(test_error_texts_are_storable_whatever_they_quote),
        cmocka_unit_test(test_trouble_is_said_once_and_counted),
        cmocka_unit_test(test_trouble_that_lasts_is_told_again_each_minute),
        cmocka_unit_test(test_trouble_that_was_gone_is_told_again),
        cmocka_unit_test(test_the_earlier_of_two_times_may_be_never),
        cmocka_unit_test(test_a_log_without_a_function_is_silent),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
