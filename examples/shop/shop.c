// SPDX-License-Identifier: MIT
// A shop that takes orders. An order and its message are one transaction: both
// are there or neither is. Every tenth customer's card is refused, and what
// was written for him is rolled back, message and all.
//
//   cc shop.c $(pkg-config --cflags --libs skirnir-sqlite) -o shop
//   ./shop shop.db 2000

#include <skirnir/sqlite.h>
#include <skirnir/typed.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct order_placed {
    int64_t order_id;
    const char *customer;
    int64_t amount_cents;
    int64_t placed_at_us;
};

// Described once: skr_publish_typed() makes the JSON from it.
static const struct skr_field order_placed_fields[] = {
    SKR_FIELD_INTEGER(struct order_placed, order_id, "orderId"),
    SKR_FIELD_TEXT(struct order_placed, customer, "customer"),
    SKR_FIELD_INTEGER(struct order_placed, amount_cents, "amountCents"),
    SKR_FIELD_TIME(struct order_placed, placed_at_us, "placedAt"),
};
static const struct skr_type order_placed =
    SKR_TYPE("order.placed", struct order_placed, order_placed_fields);

struct shop {
    sqlite3 *db;
    sqlite3_stmt *insert;
    struct skr_outbox *outbox;
    struct skr_error error;
};

static int
run(struct shop *shop, const char *sql)
{
    return sqlite3_exec(shop->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
}

static int
write_order(struct shop *shop, const struct order_placed *order)
{
    sqlite3_bind_int64(shop->insert, 1, order->order_id);
    sqlite3_bind_text(shop->insert, 2, order->customer, -1, SQLITE_STATIC);
    sqlite3_bind_int64(shop->insert, 3, order->amount_cents);
    sqlite3_step(shop->insert);
    return sqlite3_reset(shop->insert) == SQLITE_OK ? 0 : -1;
}

static int
place_order(struct shop *shop, const struct order_placed *order,
            int card_is_good)
{
    const struct skr_typed_message message = {&order_placed, order, NULL};
    // IMMEDIATE takes the write lock at once. A plain BEGIN would take it at
    // the first write, and if the relay has committed since the first read,
    // SQLite refuses with SQLITE_BUSY and no busy timeout helps.
    if (run(shop, "BEGIN IMMEDIATE") != 0)
        return -1;
    if (write_order(shop, order) != 0 ||
        skr_publish_typed(shop->outbox, skr_sqlite_tx(shop->db), &message, NULL,
                          &shop->error) != SKR_OK)
        return -1;
    return run(shop, card_is_good ? "COMMIT" : "ROLLBACK");
}

static int
open_shop(struct shop *shop, const char *path)
{
    static const char insert[] =
        "INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)";
    if (sqlite3_open(path, &shop->db) != SQLITE_OK)
        return -1;
    // The relay writes to this file as well, for moments.
    sqlite3_busy_timeout(shop->db, 5000);
    if (sqlite3_prepare_v2(shop->db, insert, -1, &shop->insert, NULL) !=
        SQLITE_OK)
        return -1;
    return skr_outbox_new(NULL, &shop->outbox, &shop->error) == SKR_OK ? 0 : -1;
}

// What is not committed is rolled back here.
static void
close_shop(struct shop *shop)
{
    skr_outbox_free(shop->outbox);
    sqlite3_finalize(shop->insert);
    sqlite3_close(shop->db);
}

static int
take_orders(struct shop *shop, long count)
{
    static const char *const customers[] = {"Ida", "Ole", "Sif", "Kari"};
    long committed = 0, rolled_back = 0;
    for (long i = 1; i <= count; i++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        struct order_placed order = {
            .order_id = i,
            .customer = customers[i % 4],
            .amount_cents = 100 + i * 37 % 9900,
            .placed_at_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000,
        };
        int card_is_good = i % 10 != 0;
        if (place_order(shop, &order, card_is_good) != 0)
            return -1;
        committed += card_is_good;
        rolled_back += !card_is_good;
    }
    printf("committed %ld rolled_back %ld\n", committed, rolled_back);
    return 0;
}

int
main(int argc, char **argv)
{
    struct shop shop = {.db = NULL};
    if (argc != 3) {
        fprintf(stderr, "usage: shop DATABASE ORDERS\n");
        return 2;
    }
    int result = open_shop(&shop, argv[1]);
    if (result == 0)
        result = take_orders(&shop, strtol(argv[2], NULL, 10));
    if (result != 0)
        fprintf(stderr, "shop: %s\n",
                shop.error.code != SKR_OK ? shop.error.text
                                          : sqlite3_errmsg(shop.db));
    close_shop(&shop);
    return result == 0 ? 0 : 1;
}
