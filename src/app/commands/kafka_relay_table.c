// SPDX-License-Identifier: MIT
// The table of each database, and the way there.

#include "app/commands/kafka_relay.h"
#include "base/clock.h"
#include "table/kafka_outbox/kafka_outbox.h"

enum { OPEN_TRIES = 30, OPEN_PAUSE_MS = 1000 };

enum skr_code
skr_kafka_relay_table(const struct skr_kafka_relay_settings *settings,
                      bool marks, struct skr_table **table,
                      struct skr_error *error)
{
    return skr_kafka_outbox_new(
        &(struct skr_kafka_outbox_options){
            .dialect = settings->database->tx->dialect,
            .table = settings->table,
            .marks = marks,
            .takes_over = settings->takes_over,
        },
        table, error);
}

enum skr_code
skr_kafka_relay_open(const struct skr_kafka_relay_settings *settings,
                     size_t index, bool creates, struct skr_db **db,
                     struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        code = skr_db_open_or_create(settings->database, settings->urls[index],
                                     creates, db, error);
        if (code == SKR_OK || error->remedy == SKR_GIVE_UP)
            break;
        skr_clock_sleep(-1, OPEN_PAUSE_MS);
    }
    return code;
}
