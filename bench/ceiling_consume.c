// SPDX-License-Identifier: MIT
// The ceiling of a consumer from RabbitMQ: prefetch 500; for each message one
// insert of its id and one of the application's, both prepared; so many
// messages in a transaction, one ack for all of them.
//
//     bench-ceiling-consume DATABASE_URL BROKER_URL QUEUE ROWS BATCH
//
// Every message is new here: nothing is asked about duplicates.

#include "bench.h"
#include "database.h"
#include "rabbit.h"

enum { PREFETCH = 500, PATIENCE_MS = 60000, REMEMBER = 0, EFFECT = 1 };

static void
handle(struct skr_bench_database *database, const amqp_message_t *message)
{
    unsigned char id[SKR_BENCH_ID_SIZE];
    skr_bench_read_id(&message->properties, id);
    const struct skr_bench_bytes values[] = {
        {id, sizeof(id)}, {message->body.bytes, message->body.len}};
    database->ops->execute(database->connection, REMEMBER, values, 1);
    database->ops->execute(database->connection, EFFECT, values, 2);
}

static void
consume(struct skr_bench_database *database, struct skr_bench_rabbit *rabbit,
        long rows, long batch)
{
    for (long done = 0; done < rows;) {
        uint64_t tag = 0;
        skr_bench_database_run(database, "BEGIN");
        for (long i = 0; i < batch && done < rows; i++, done++) {
            amqp_envelope_t envelope;
            if (!skr_bench_rabbit_receive(rabbit, PATIENCE_MS, &envelope))
                skr_bench_die("queue", "no message came in 60 s");
            handle(database, &envelope.message);
            tag = envelope.delivery_tag;
            amqp_destroy_envelope(&envelope);
        }
        skr_bench_database_run(database, "COMMIT");
        skr_bench_rabbit_acknowledge(rabbit, tag);
    }
}

int
main(int argc, char **argv)
{
    if (argc != 6)
        skr_bench_die("usage", "bench-ceiling-consume DATABASE_URL BROKER_URL "
                               "QUEUE ROWS BATCH");
    struct skr_bench_database database;
    struct skr_bench_rabbit rabbit;
    skr_bench_database_open(&database, argv[1]);
    skr_bench_rabbit_open(&rabbit, argv[2]);
    database.ops->prepare(database.connection, REMEMBER, database.ops->remember,
                          1);
    database.ops->prepare(database.connection, EFFECT, database.ops->effect, 2);
    skr_bench_rabbit_consume(&rabbit, argv[3], PREFETCH);
    consume(&database, &rabbit, skr_bench_number(argv[4]),
            skr_bench_number(argv[5]));
    skr_bench_rabbit_close(&rabbit);
    skr_bench_database_close(&database);
    return 0;
}
