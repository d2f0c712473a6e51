// SPDX-License-Identifier: MIT
// Prints consumer lag by partition as a table and as JSON.

#include "app/parts/lags.h"

#include "app/console/grid.h"
#include "app/parts/members.h"
#include "base/error.h"
#include "message/json.h"

enum { MOST_LISTED = 10 };

static size_t
count_behind(const struct skr_depth *depth)
{
    size_t count = 0;
    while (count < depth->lag_count && depth->lags[count].behind > 0)
        count++;
    return count;
}

static void
add_lag(struct skr_grid *grid, const struct skr_lag *lag)
{
    skr_grid_add(grid, "%s/%ld", lag->topic, (long)lag->partition);
    skr_grid_add(grid, "%llu", (unsigned long long)lag->behind);
    if (lag->has_position)
        skr_grid_add(grid, "%llu", (unsigned long long)lag->position);
    else
        skr_grid_add(grid, "-");
    skr_grid_add(grid, "%llu", (unsigned long long)lag->written);
}

enum skr_code
skr_lags_print(const char *transport, const struct skr_depth *depth,
               size_t width, FILE *out, struct skr_error *error)
{
    static const struct skr_grid_column columns[] = {
        {"PARTITION", false},
        {"BEHIND", .is_number = true},
        {"COMMITTED", .is_number = true},
        {"END", .is_number = true},
    };
    struct skr_grid grid = {.columns = columns,
                            .column_count = SKR_COUNT_OF(columns)};
    size_t behind = count_behind(depth);
    enum skr_code code = SKR_OK;
    if (depth->lag_count == 0)
        return SKR_OK;
    fprintf(out, "\n%s: behind in %zu of %zu partition%s\n", transport, behind,
            depth->lag_count, depth->lag_count == 1 ? "" : "s");
    for (size_t i = 0; i < behind && i < MOST_LISTED; i++)
        add_lag(&grid, &depth->lags[i]);
    if (behind > 0 && !skr_grid_print(&grid, width, out))
        code = skr_fail_memory(error);
    skr_grid_fini(&grid);
    return code;
}

static void
write_lag(const struct skr_lag *lag, struct skr_json_writer *json)
{
    skr_json_begin_object(json);
    skr_member_text(json, "topic", lag->topic);
    skr_member_number(json, "partition", (uint64_t)lag->partition);
    skr_member_number(json, "behind", lag->behind);
    skr_member_known(json, "committed", lag->has_position, lag->position);
    skr_member_number(json, "end", lag->written);
    skr_json_end_object(json);
}

void
skr_lags_write(const struct skr_depth *depth, struct skr_json_writer *json)
{
    if (depth->lag_count == 0)
        return;
    skr_json_write_name(json, "lags");
    skr_json_begin_array(json);
    for (size_t i = 0; i < depth->lag_count; i++)
        write_lag(&depth->lags[i], json);
    skr_json_end_array(json);
}
