// SPDX-License-Identifier: MIT
// Consuming with a handler in C: each order gets its invoice once, however
// often its message arrives and whenever this program is killed. Ctrl-C ends
// it after the message in hand.
//
//   cc consume.c $(pkg-config --cflags --libs skirnir-sqlite) -o consume
//   ./consume

#include <signal.h>
#include <skirnir/queue.h>
#include <skirnir/sqlite.h>
#include <skirnir/typed.h>
#include <stdio.h>
#include <string.h>

struct order_placed {
    int64_t order_id;
    const char *customer;
    int64_t amount_cents;
};

static const struct skr_field order_placed_fields[] = {
    SKR_FIELD_INTEGER(struct order_placed, order_id, "orderId"),
    SKR_FIELD_TEXT(struct order_placed, customer, "customer"),
    SKR_FIELD_INTEGER(struct order_placed, amount_cents, "amountCents"),
};
static const struct skr_type order_placed =
    SKR_TYPE("order.placed", struct order_placed, order_placed_fields);

static struct skr_consumer *consumer;

static void
stop(int number)
{
    (void)number;
    skr_consumer_stop(consumer);
}

static int
write_invoice(sqlite3 *db, const struct order_placed *order)
{
    sqlite3_stmt *insert = NULL;
    int result = sqlite3_prepare_v2(
        db, "INSERT INTO invoice (order_id, customer, cents) VALUES (?, ?, ?)",
        -1, &insert, NULL);
    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_int64(insert, 1, order->order_id);
    sqlite3_bind_text(insert, 2, order->customer, -1, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 3, order->amount_cents);
    sqlite3_step(insert);
    return sqlite3_finalize(insert);
}

// Writes through tx and nothing else: what it writes there is undone together
// with the deduplication row. A mail sent from here could go out twice.
static enum skr_verdict
bill(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
     struct skr_error *reason)
{
    (void)user;
    struct order_placed order;
    struct skr_decoded *memory = NULL;
    // Another attempt would not help: keep it where people can see it.
    const struct skr_encoded body = {.json = delivery->message.body,
                                     .size = delivery->message.body_size};
    if (skr_decode(&order_placed, &body, &order, &memory, reason) != SKR_OK)
        return SKR_REJECT;
    sqlite3 *db = skr_sqlite_connection(tx);
    int result = write_invoice(db, &order);
    skr_decoded_free(memory);
    if (result == SQLITE_OK)
        return SKR_ACCEPT;
    snprintf(reason->text, sizeof(reason->text), "%s", sqlite3_errmsg(db));
    return SKR_RETRY;
}

static void
print_event(void *user, enum skr_log_level level, const char *event,
            const struct skr_log_field *fields, size_t count)
{
    (void)user;
    if (level > SKR_LOG_INFO)
        return;
    fprintf(stderr, "%s", event);
    for (size_t i = 0; i < count; i++)
        if (fields[i].text != NULL)
            fprintf(stderr, " %s=%s", fields[i].name, fields[i].text);
        else
            fprintf(stderr, " %s=%lld", fields[i].name,
                    (long long)fields[i].number);
    fprintf(stderr, "\n");
}

int
main(void)
{
    const struct skr_consumer_options options = {
        .name = "orders",
        .database = &skr_sqlite_db,
        .database_url = "sqlite:///billing.db",
        .failed_database = &skr_sqlite_db,
        .failed_database_url = "sqlite:///shop.db",
        .broker = &skr_queue_broker,
        .broker_url = "queue://queue?queue_name=orders",
        .queue_database = &skr_sqlite_db,
        .queue_database_url = "sqlite:///queue.db",
        .log = print_event,
    };
    struct skr_error error = {.code = SKR_OK};
    enum skr_code code = skr_consumer_open(&options, &consumer, &error);
    if (code == SKR_OK)
        code =
            skr_consumer_handle(consumer, "order.placed", bill, NULL, &error);
    if (code == SKR_OK) {
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        code = skr_consumer_run(consumer, &error);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
    }
    if (code != SKR_STOPPED)
        fprintf(stderr, "%s\n", error.text);
    skr_consumer_close(consumer);
    return code == SKR_STOPPED ? 0 : 1;
}
