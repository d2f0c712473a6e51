// SPDX-License-Identifier: MIT
// Publishes, relays and consumes in one process: no other program runs. The
// tables are those of examples/shop, made by `skirnir setup` and `skirnir
// setup-deduplication --force`.
//
//   cc embed.c $(pkg-config --cflags --libs skirnir-sqlite) -pthread -o embed
//   ./embed

#include <pthread.h>
#include <skirnir/queue.h>
#include <skirnir/relay.h>
#include <skirnir/sqlite.h>
#include <stdio.h>

enum { ORDERS = 3 };

static struct skr_consumer *consumer;
static int handled;

static int
publish(struct skr_error *error)
{
    struct skr_outbox *outbox = NULL;
    sqlite3 *db = NULL;
    int bad = sqlite3_open("shop.db", &db) ||
              sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) ||
              skr_outbox_new(NULL, &outbox, error);
    for (int i = 1; i <= ORDERS && !bad; i++) {
        char body[64];
        int size = snprintf(body, sizeof(body), "{\"orderId\":%d}", i);
        const struct skr_message message = {
            .name = "order.placed", .body = body, .body_size = (size_t)size};
        bad = skr_publish(outbox, skr_sqlite_tx(db), &message, 1, NULL, error);
    }
    bad = bad || sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    skr_outbox_free(outbox);
    sqlite3_close(db);
    return bad;
}

static enum skr_verdict
bill(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
     struct skr_error *reason)
{
    (void)user;
    (void)reason;
    (void)tx;  // what is written through it commits with the message's id
    printf("billed %.*s\n", (int)delivery->message.body_size,
           (const char *)delivery->message.body);
    if (++handled == ORDERS)
        skr_consumer_stop(consumer);
    return SKR_ACCEPT;
}

static void *
relay_orders(void *relay)
{
    struct skr_error error = {.code = SKR_OK};
    if (skr_relay_run(relay, &error) == SKR_STOPPED)
        return NULL;
    fprintf(stderr, "relay: %s\n", error.text);
    skr_consumer_stop(consumer);
    return NULL;
}

static int
relay_and_consume(struct skr_relay *relay, struct skr_error *error)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, relay_orders, relay) != 0)
        return 1;
    int bad = skr_consumer_run(consumer, error) != SKR_STOPPED;
    skr_relay_stop(relay);
    pthread_join(thread, NULL);
    return bad;
}

int
main(void)
{
    const struct skr_relay_options relay_options = {
        .name = "outbox",
        .database = &skr_sqlite_db,
        .database_url = "sqlite:///shop.db",
        .broker = &skr_queue_broker,
        .broker_url = "queue://queue?queue_name=orders",
        .queue_database = &skr_sqlite_db,
        .queue_database_url = "sqlite:///queue.db",
    };
    const struct skr_consumer_options consumer_options = {
        .name = "orders",
        .database = &skr_sqlite_db,
        .database_url = "sqlite:///billing.db",
        .failed_database = &skr_sqlite_db,
        .failed_database_url = "sqlite:///shop.db",
        .broker = &skr_queue_broker,
        .broker_url = "queue://queue?queue_name=orders",
        .queue_database = &skr_sqlite_db,
        .queue_database_url = "sqlite:///queue.db",
    };
    struct skr_relay *relay = NULL;
    struct skr_error error = {.code = SKR_OK};
    int bad =
        publish(&error) || skr_relay_new(&relay_options, &relay, &error) ||
        skr_consumer_open(&consumer_options, &consumer, &error) ||
        skr_consumer_handle(consumer, "order.placed", bill, NULL, &error) ||
        relay_and_consume(relay, &error);
    skr_consumer_close(consumer);
    skr_relay_free(relay);
    if (bad)
        fprintf(stderr, "%s\n", error.text);
    else
        printf("published %d, relayed and billed %d\n", ORDERS, handled);
    return bad || handled != ORDERS;
}
