// SPDX-License-Identifier: MIT
// Who works a queue: the name of the lock that tells.

#include "store/messenger/inspect.h"
#include "store/messenger/layout.h"

enum skr_code
skr_messenger_lock_name(const struct skr_store *table, struct skr_db *db,
                        char name[SKR_LOCK_NAME_SIZE], struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return skr_store_name_lock(db, messenger->name, messenger->queue, name,
                               error);
}

enum skr_code
skr_queue_holder(struct skr_db *db, const struct skr_queue_place *place,
                 char holder[SKR_HOLDER_SIZE], struct skr_error *error)
{
    char name[SKR_LOCK_NAME_SIZE];
    enum skr_code code =
        skr_store_name_lock(db, place->table, place->queue, name, error);
    if (code != SKR_OK)
        return code;
    return db->ops->holder(db, name, holder, error);
}

enum skr_code
skr_queue_attendance(struct skr_db *db, const struct skr_queue_place *place,
                     enum skr_attendance kind, int64_t *count,
                     struct skr_error *error)
{
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code =
        skr_store_name_lock(db, place->table, place->queue, lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, kind, name);
    return db->ops->attendance(db, name, count, error);
}
