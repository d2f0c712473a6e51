// SPDX-License-Identifier: MIT
// The table of each database, and the way there.

#include "app/commands/kafka_relay.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <unistd.h>

enum { OPEN_TRIES = 30, OPEN_PAUSE_MS = 1000 };

enum skr_code
skr_kafka_relay_table(const struct skr_kafka_relay_settings *settings,
                      bool marks, struct skr_store **table,
                      struct skr_error *error)
{
    return skr_kafka_outbox_new(
        &(struct skr_kafka_outbox_options){
            .dialect = settings->database->tx->dialect,
            .table = settings->table,
            .marks = marks,
            .takes_over = settings->takes_over,
            .publishes_tombstones = settings->publishes_tombstones,
        },
        table, error);
}

// On standard error: what is asked for stands on standard output.
static void
say_wait(const char *name, const struct skr_error *error)
{
    const struct skr_output said = {.fd = STDERR_FILENO};
    skr_output_say(&said, SKR_LOG_WARNING,
                   "skirnir kafka-relay: database %s is waited for, %d s at "
                   "most: %s",
                   name, OPEN_TRIES * OPEN_PAUSE_MS / 1000, error->text);
}

enum skr_code
skr_kafka_relay_open(const struct skr_kafka_relay_settings *settings,
                     size_t index, bool creates, struct skr_db **db,
                     struct skr_error *error)
{
    struct skr_output output = settings->output;
    const struct skr_log log = {.write = skr_output_log, .user = &output};
    struct skr_trouble trouble = {.repeats = 0};
    enum skr_code code = SKR_OK;
    for (int tries = 0; tries < OPEN_TRIES || settings->waits; tries++) {
        code = skr_db_open_or_create(settings->database, settings->urls[index],
                                     creates, db, error);
        if (code == SKR_OK || (skr_error_is_lasting(error) && !settings->waits))
            break;
        skr_trouble_remind(&trouble, skr_clock_ms());
        if (settings->waits)
            skr_trouble_report(&trouble, &log, "relay.trouble",
                               settings->names[index], error);
        else if (tries == 0)
            say_wait(settings->names[index], error);
        skr_clock_sleep(-1, OPEN_PAUSE_MS);
    }
    return code;
}
