// SPDX-License-Identifier: MIT
// Rows without a reader: queues in the tables of a configuration that none of
// its transports reads, as after a typing error in an application's INSERT.

#ifndef SKR_APP_ADMIN_UNREAD_H
#define SKR_APP_ADMIN_UNREAD_H

#include "app/config/config.h"
#include "app/report/report.h"

extern const struct skr_columns skr_unread_columns;

// Adds such queues in the tables of the transports that are named to a report
// of these columns; none: of all. Cheap, whatever the size of the tables. A
// table that cannot be asked is passed over: the worker of that table logs it.
void skr_unread_find(const struct skr_config *config, const char *const *only,
                     size_t only_count, struct skr_report *report);

#endif
