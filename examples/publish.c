// cc publish.c $(pkg-config --cflags --libs skirnir-sqlite) -o publish
#include <skirnir/sqlite.h>
#include <stdio.h>

int
main(void)
{
    const char body[] =
        "{\"orderId\":1,\"customer\":\"Ida\",\"amountCents\":99}";
    struct skr_message message = {
        .name = "order.placed", .body = body, .body_size = sizeof(body) - 1};
    struct skr_outbox *outbox = NULL;
    struct skr_error error = {.code = SKR_OK};
    sqlite3 *db = NULL;
    // IMMEDIATE: a transaction that reads before it writes would fail as soon
    // as the relay commits in between.
    int bad =
        sqlite3_open("shop.db", &db) ||
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) ||
        sqlite3_exec(db, "INSERT INTO orders VALUES (1, 'Ida', 99)", NULL, NULL,
                     NULL) ||
        skr_outbox_new(NULL, &outbox, &error) ||
        skr_publish(outbox, skr_sqlite_tx(db), &message, 1, NULL, &error) ||
        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (bad)  // closing the database rolls back
        fprintf(stderr, "%s\n", error.code ? error.text : sqlite3_errmsg(db));
    skr_outbox_free(outbox);
    sqlite3_close(db);
    return bad;
}
