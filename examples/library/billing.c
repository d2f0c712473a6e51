// SPDX-License-Identifier: MIT
// A handler in a shared object, for `skirnir consume` to load: each order gets
// its invoice once, in the transaction that records the message.
//
//   cc -shared -fPIC -o billing.so billing.c $(pkg-config --cflags skirnir)
//
//   handlers:
//       order.placed: {library: ./billing.so, function: bill}

#include <skirnir/sqlite.h>
#include <skirnir/typed.h>
#include <stdio.h>

SKR_HANDLER_LIBRARY;

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

SKR_API skr_handler_fn bill;

enum skr_verdict
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
