// SPDX-License-Identifier: MIT
// Deduplication for an application with a consume loop of its own. It needs no
// consumer, so it is a file of its own.

#include "db/db.h"
#include "store/deduplication/deduplication.h"

enum skr_code
skr_inbox_admit(struct skr_tx tx, const char *table, const char *message_name,
                struct skr_id id, struct skr_error *error)
{
    enum skr_code code = tx.ops->check(tx, error);
    if (code != SKR_OK)
        return code;
    struct skr_deduplication *deduplication = NULL;
    code = skr_deduplication_new(tx.ops->dialect, table, &deduplication, error);
    if (code != SKR_OK)
        return code;
    code = skr_deduplication_admit(deduplication, tx, id, message_name, error);
    skr_deduplication_free(deduplication);
    return code;
}
