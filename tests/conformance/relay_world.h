// SPDX-License-Identifier: MIT
// What the suites of the relay share: a real database, and a broker that does
// what it is told.

#ifndef SKR_TEST_RELAY_WORLD_H
#define SKR_TEST_RELAY_WORLD_H

#include "base/clock.h"
#include "base/text.h"
#include "conformance/databases.h"
#include "relay/relay.h"
#include "store/messenger/messenger.h"
#include "support/fake_broker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000
#define ROWS "SELECT COUNT(*) FROM messenger_outbox"
#define FAILED "SELECT COUNT(*) FROM messenger_messages"

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
    struct skr_store *table;
    struct skr_fake fake;
    struct skr_sender_options sender;
    struct skr_relay_settings options;
    struct skr_relay *relay;
    pthread_t thread;
    enum skr_code ended_with;
    int troubles, recoveries, actives, standbys, not_alone, blocked, held_back;
    int closings, parked, stays, unparked, settle_troubles, settle_recoveries;
    char trouble[400], closed[400];
    // Of the last message that was refused, and of the last that was parked.
    char refused_id[SKR_ID_TEXT_SIZE], parked_id[SKR_ID_TEXT_SIZE];
};

static inline void
keep_id(char kept[SKR_ID_TEXT_SIZE], const struct skr_log_field *fields,
        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "id") == 0)
            snprintf(kept, SKR_ID_TEXT_SIZE, "%s", fields[i].text);
}

static inline void
keep_error(char kept[400], const struct skr_log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "error") == 0)
            snprintf(kept, 400, "%s", fields[i].text);
}

static inline void
count_trouble(void *user, enum skr_log_level level, const char *event,
              const struct skr_log_field *fields, size_t count)
{
    struct fixture *fixture = user;
    if (strcmp(event, "relay.retry") == 0 ||
        strcmp(event, "relay.failed") == 0 ||
        strcmp(event, "relay.partition_blocked") == 0)
        keep_id(fixture->refused_id, fields, count);
    if (strcmp(event, "relay.row_parked") == 0)
        keep_id(fixture->parked_id, fields, count);
    if (strcmp(event, "relay.recovered") == 0)
        __atomic_add_fetch(&fixture->recoveries, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.active") == 0)
        __atomic_add_fetch(&fixture->actives, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.standby") == 0)
        __atomic_add_fetch(&fixture->standbys, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.not_alone") == 0)
        __atomic_add_fetch(&fixture->not_alone, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.partition_blocked") == 0)
        __atomic_add_fetch(&fixture->blocked, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.held_back") == 0)
        __atomic_add_fetch(&fixture->held_back, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.row_parked") == 0)
        __atomic_add_fetch(&fixture->parked, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.row_stays") == 0)
        __atomic_add_fetch(&fixture->stays, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.unparked") == 0)
        __atomic_add_fetch(&fixture->unparked, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.settle_trouble") == 0)
        __atomic_add_fetch(&fixture->settle_troubles, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.settle_recovered") == 0)
        __atomic_add_fetch(&fixture->settle_recoveries, 1, __ATOMIC_RELAXED);
    if (strcmp(event, "relay.route_closed") == 0 && level == SKR_LOG_WARNING) {
        keep_error(fixture->closed, fields, count);
        __atomic_add_fetch(&fixture->closings, 1, __ATOMIC_RELEASE);
    }
    if (strcmp(event, "relay.trouble") != 0)
        return;
    keep_error(fixture->trouble, fields, count);
    __atomic_add_fetch(&fixture->troubles, 1, __ATOMIC_RELEASE);
}

// The outbox of every suite; some change a thing or two.
static inline struct skr_messenger_options
outbox_options(const struct fixture *fixture)
{
    return (struct skr_messenger_options){
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .redeliver_timeout_s = 3600,
        .transport = "outbox",
        .failed_table = "messenger_messages",
        .failed_queue = "failed",
    };
}

static inline void
use_outbox(struct fixture *fixture, const struct skr_messenger_options *options)
{
    skr_store_free(fixture->table);
    assert_int_equal(skr_messenger_new(options, &fixture->table, NULL), SKR_OK);
    fixture->options.table = fixture->table;
}

static inline void
make_table(struct fixture *fixture, bool is_ordered, uint32_t full_scan_ms)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_ordered = is_ordered;
    options.full_scan_ms = full_scan_ms;
    use_outbox(fixture, &options);
}

static inline int
set_up_as(void **state, bool is_ordered)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    skr_fake_init(&fixture->fake);
    fixture->sender = (struct skr_sender_options){
        .name = "fake",
        .broker = &skr_fake_broker,
        .options = {.url = "fake://test"},
    };
    fixture->options = (struct skr_relay_settings){
        .name = "outbox",
        .database = fixture->database.ops,
        .database_url = fixture->database.url,
        .auto_setup = true,
        .senders = &fixture->sender,
        .sender_count = 1,
        .retry = {.max_retries = 1, .delay_ms = 1, .multiplier = 1},
        .stop_timeout_ms = 5000,
        .park_ms = 500,
        .log = {.write = count_trouble, .user = fixture},
    };
    make_table(fixture, is_ordered, 500);
    *state = fixture;
    return 0;
}

static inline int
set_up(void **state)
{
    return set_up_as(state, false);
}

static inline int
set_up_with_tables(void **state)
{
    set_up(state);
    struct fixture *fixture = *state;
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    return 0;
}

static inline void *
run(void *user)
{
    struct fixture *fixture = user;
    struct skr_error error = {0};
    fixture->ended_with = skr_relay_run(fixture->relay, &error);
    return NULL;
}

static inline void
start(struct fixture *fixture)
{
    struct skr_error error = {0};
    if (skr_relay_make(&fixture->options, &fixture->relay, &error) != SKR_OK)
        fail_msg("%s", error.text);
    pthread_create(&fixture->thread, NULL, run, fixture);
}

static inline void
join(struct fixture *fixture)
{
    pthread_join(fixture->thread, NULL);
    skr_relay_free(fixture->relay);
    fixture->relay = NULL;
}

// A test that failed has left its relay at work, which needs what is freed
// here.
static inline int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->relay != NULL) {
        skr_relay_stop(fixture->relay);
        join(fixture);
    }
    skr_store_free(fixture->table);
    skr_fake_fini(&fixture->fake);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static inline void
stop(struct fixture *fixture)
{
    skr_relay_stop(fixture->relay);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_STOPPED);
}

// After the relay has ended.
static inline void
assert_is_id_of(const struct fixture *fixture, const char *id, const char *body)
{
    for (size_t i = 0; i < fixture->fake.got_count; i++)
        if (strcmp(fixture->fake.got[i].body, body) == 0) {
            char text[SKR_ID_TEXT_SIZE];
            skr_id_format(fixture->fake.got[i].id, text);
            assert_string_equal(id, text);
            return;
        }
    fail_msg("%s was not sent", body);
}

static inline void
run_until_empty(struct fixture *fixture)
{
    fixture->options.stop_when_empty = true;
    start(fixture);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_OK);
}

// Rows as a plain INSERT of any language makes them.
static inline void
insert_with_headers(struct fixture *fixture, const char *headers,
                    const char *body)
{
    const struct skr_value values[] = {skr_bind_text(body),
                                       skr_bind_text(headers)};
    skr_test_run_template(
        fixture->db,
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        "available_at) VALUES (?, ?, 'outbox', {now}, {now})",
        values, 2);
}

static inline void
insert(struct fixture *fixture, int from, int to)
{
    char body[32];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = from; i < to; i++) {
        snprintf(body, sizeof(body), "m%d", i);
        insert_with_headers(fixture, "{\"type\":\"order.placed\"}", body);
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static inline bool
outbox_is_empty(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 0;
}

static inline void
assert_in_order(const struct skr_fake *fake, int count)
{
    assert_int_equal(fake->got_count, count);
    for (int i = 0; i < count; i++) {
        char body[32];
        snprintf(body, sizeof(body), "m%d", i);
        assert_string_equal(fake->got[i].body, body);
    }
}

#define WITH_TABLES(test) \
    cmocka_unit_test_setup_teardown(test, set_up_with_tables, tear_down)

#endif
