// SPDX-License-Identifier: MIT
#include "table/table.h"

#include "table/schema.h"

enum skr_code
skr_table_create(const struct skr_table *table, struct skr_db *db,
                 struct skr_error *error)
{
    // Setup may run from many hosts at once: where DDL is transactional the
    // second waits here and then finds everything in place.
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = table->ops->setup(table, skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

void
skr_table_free(struct skr_table *table)
{
    if (table != NULL)
        table->ops->free(table);
}
