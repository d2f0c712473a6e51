// SPDX-License-Identifier: MIT
// Reads the partitions of an ordered outbox from its database, and prints them
// as a table and as JSON.

#include "app/parts/partitions.h"

#include "app/console/grid.h"
#include "app/console/output.h"
#include "app/parts/members.h"
#include "app/parts/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKED = 100 };

void
skr_ordered_close(struct skr_ordered *ordered)
{
    skr_db_close(ordered->db);
    skr_store_free(ordered->table);
    *ordered = (struct skr_ordered){.db = NULL};
}

enum skr_code
skr_ordered_open(const struct skr_config *config,
                 const struct skr_config_transport *outbox,
                 struct skr_ordered *ordered, struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    *ordered = (struct skr_ordered){.db = NULL};
    enum skr_code code = skr_transport_database(outbox->database, &ops, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, outbox, &ordered->table, error);
    if (code == SKR_OK)
        code = skr_db_open_to_read(ops, outbox->database->url, &ordered->db,
                                   error);
    if (code != SKR_OK)
        skr_ordered_close(ordered);
    return code;
}

static enum skr_code
keep_blocked(const struct skr_blocked_head *head, void *user,
             struct skr_error *error)
{
    struct skr_partition_stats *stats = user;
    if (stats->blocked_count == MOST_BLOCKED) {
        stats->has_more = true;
        return SKR_OK;
    }
    struct skr_blocked_head *kept = &stats->blocked[stats->blocked_count++];
    *kept = *head;
    kept->key = strdup(head->key);
    kept->name = head->name == NULL ? NULL : strdup(head->name);
    kept->reason = strdup(head->reason);
    stats->waiting += head->length;
    if (kept->key == NULL || (head->name != NULL && kept->name == NULL) ||
        kept->reason == NULL)
        return skr_fail_memory(error);
    return SKR_OK;
}

enum skr_code
skr_partition_stats_read(const struct skr_config *config,
                         const struct skr_config_transport *outbox,
                         struct skr_partition_stats **stats,
                         struct skr_error *error)
{
    struct skr_ordered ordered;
    struct skr_partition_stats *made = calloc(1, sizeof(*made));
    if (made != NULL)
        made->blocked = calloc(MOST_BLOCKED, sizeof(*made->blocked));
    if (made == NULL || made->blocked == NULL) {
        free(made);
        return skr_fail_memory(error);
    }
    enum skr_code code = skr_ordered_open(config, outbox, &ordered, error);
    if (code == SKR_OK)
        code = skr_messenger_count_partitions(ordered.table, ordered.db,
                                              &made->counts, error);
    if (code == SKR_OK)
        code = skr_messenger_each_blocked(
            ordered.table, ordered.db,
            &(struct skr_blocked_page){.max = MOST_BLOCKED + 1,
                                       .measures = true},
            keep_blocked, made, error);
    skr_ordered_close(&ordered);
    if (code == SKR_OK)
        *stats = made;
    else
        skr_partition_stats_free(made);
    return code;
}

void
skr_partition_stats_free(struct skr_partition_stats *stats)
{
    if (stats == NULL)
        return;
    for (size_t i = 0; i < stats->blocked_count; i++) {
        free((char *)(uintptr_t)stats->blocked[i].key);
        free((char *)(uintptr_t)stats->blocked[i].name);
        free((char *)(uintptr_t)stats->blocked[i].reason);
    }
    free(stats->blocked);
    free(stats);
}

static enum skr_code
print_grid(struct skr_grid *grid, size_t width, FILE *out,
           struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (!skr_grid_print(grid, width, out))
        code = skr_fail_memory(error);
    skr_grid_fini(grid);
    return code;
}

static enum skr_code
print_blocked(const char *transport, const struct skr_partition_stats *stats,
              size_t width, FILE *out, struct skr_error *error)
{
    static const struct skr_grid_column columns[] = {
        {"BLOCKED HEAD", false},
        {"PARTITION", false},
        {"LENGTH", .is_number = true},
        {"MESSAGE", false},
        {"ERROR", false},
    };
    struct skr_grid grid = {.columns = columns,
                            .column_count = SKR_COUNT_OF(columns)};
    for (size_t i = 0; i < stats->blocked_count; i++) {
        const struct skr_blocked_head *head = &stats->blocked[i];
        skr_grid_add(&grid, "%s/%lld", transport, (long long)head->row);
        skr_grid_add(&grid, "%s", head->key);
        skr_grid_add(&grid, "%s%llu", head->is_estimate ? "~" : "",
                     (unsigned long long)head->length);
        skr_grid_add(&grid, "%s", head->name == NULL ? "-" : head->name);
        skr_grid_add(&grid, "%s", head->reason);
    }
    enum skr_code code = print_grid(&grid, width, out, error);
    if (stats->has_more)
        fprintf(out, "\nOf %s there are more than these %d.\n", transport,
                MOST_BLOCKED);
    return code;
}

static void
add_counts(struct skr_grid *grid, const char *transport,
           const struct skr_partition_stats *stats)
{
    const struct skr_partitions *counts = &stats->counts;
    const char *about = counts->is_estimate ? "~" : "";
    skr_grid_add(grid, "%s", transport);
    skr_grid_add(grid, "%s%llu", about, (unsigned long long)counts->count);
    skr_grid_add(grid, "%zu%s", stats->blocked_count,
                 stats->has_more ? "+" : "");
    if (counts->count == 0) {
        skr_grid_add(grid, "-");
        skr_grid_add(grid, "-");
    } else {
        skr_grid_add(grid, "%s%llu", about,
                     (unsigned long long)counts->largest_length);
        skr_grid_add(grid, "%s%s", counts->is_estimate ? "perhaps " : "",
                     counts->largest);
    }
    if (counts->oldest[0] == '\0') {
        for (int i = 0; i < 3; i++)
            skr_grid_add(grid, "-");
        return;
    }
    skr_grid_add(grid, "%lld", (long long)counts->oldest_row);
    skr_grid_add(grid, "%llds", (long long)counts->oldest_s);
    skr_grid_add(grid, "%s", counts->oldest);
}

enum skr_code
skr_partition_stats_print(const char *transport,
                          const struct skr_partition_stats *stats, size_t width,
                          FILE *out, struct skr_error *error)
{
    static const struct skr_grid_column columns[] = {
        {"ORDERED", false},
        {"PARTITIONS", .is_number = true},
        {"BLOCKED", .is_number = true},
        {"LENGTH", .is_number = true},
        {"LARGEST", false},
        {"ROW", .is_number = true},
        {"SINCE", .is_number = true},
        {"OLDEST HEAD", false},
    };
    struct skr_grid counts = {.columns = columns,
                              .column_count = SKR_COUNT_OF(columns)};
    add_counts(&counts, transport, stats);
    fprintf(out, "\n");
    enum skr_code code = print_grid(&counts, width, out, error);
    if (code != SKR_OK || stats->blocked_count == 0)
        return code;
    fprintf(out, "\n");
    return print_blocked(transport, stats, width, out, error);
}

static void
write_head(const char *transport, const struct skr_blocked_head *head,
           struct skr_json_writer *json)
{
    char row[24];
    snprintf(row, sizeof(row), "/%lld", (long long)head->row);
    struct skr_text name = {0};
    skr_json_begin_object(json);
    if (transport != NULL) {
        skr_text_add_format(&name, "%s%s", transport, row);
        skr_member_text(json, "blocked_head", name.bytes);
        skr_member_text(json, "transport", transport);
        skr_text_fini(&name);
    }
    skr_member_text(json, "partition", head->key);
    skr_member_number(json, "row", (uint64_t)head->row);
    skr_member_number(json, "length", head->length);
    skr_member_truth(json, "length_is_estimate", head->is_estimate);
    skr_member_text(json, "name", head->name);
    skr_member_text(json, "error", head->reason);
    skr_json_end_object(json);
}

void
skr_partition_stats_write(const struct skr_partition_stats *stats,
                          struct skr_json_writer *json)
{
    const struct skr_partitions *counts = &stats->counts;
    bool has_oldest = counts->oldest[0] != '\0';
    skr_json_write_name(json, "partitions");
    skr_json_begin_object(json);
    skr_member_number(json, "count", counts->count);
    skr_member_truth(json, "is_estimate", counts->is_estimate);
    skr_member_text(json, "largest",
                    counts->count > 0 ? counts->largest : NULL);
    skr_member_number(json, "largest_length", counts->largest_length);
    skr_member_text(json, "oldest", has_oldest ? counts->oldest : NULL);
    skr_member_known(json, "oldest_row", has_oldest,
                     (uint64_t)counts->oldest_row);
    skr_member_number(json, "oldest_seconds", (uint64_t)counts->oldest_s);
    skr_json_end_object(json);
    skr_json_write_name(json, "blocked_partitions");
    skr_json_begin_array(json);
    for (size_t i = 0; i < stats->blocked_count; i++)
        write_head(NULL, &stats->blocked[i], json);
    skr_json_end_array(json);
    skr_member_truth(json, "blocked_partitions_are_cut", stats->has_more);
}

bool
skr_ordered_is_meant(const struct skr_config_transport *outbox,
                     const char *only)
{
    return outbox->is_ordered &&
           (only == NULL || strcmp(only, outbox->name) == 0);
}

typedef enum skr_code
blocked_fn(const char *transport, const struct skr_partition_stats *stats,
           void *user);

static enum skr_code
each_outbox(const struct skr_config *config, const char *only, blocked_fn *each,
            void *user, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++) {
        const struct skr_config_transport *outbox = &config->transports[i];
        struct skr_partition_stats *stats = NULL;
        if (!skr_ordered_is_meant(outbox, only))
            continue;
        code = skr_partition_stats_read(config, outbox, &stats, error);
        // Without its tables it has none.
        if (code == SKR_MISSING) {
            skr_error_clear(error);
            code = SKR_OK;
        } else if (code == SKR_OK) {
            code = each(outbox->name, stats, user);
        }
        skr_partition_stats_free(stats);
    }
    return code;
}

struct printing {
    bool has_begun;
    struct skr_error *error;
};

static enum skr_code
print_of_outbox(const char *transport, const struct skr_partition_stats *stats,
                void *user)
{
    struct printing *printing = user;
    if (stats->blocked_count == 0)
        return SKR_OK;
    if (!printing->has_begun)
        printf("\nThese hold back their partitions; `skirnir failed retry` "
               "sends one once more, `skirnir partition skip` moves it to the "
               "failed messages.\n");
    printing->has_begun = true;
    return print_blocked(transport, stats, skr_terminal_width(stdout), stdout,
                         printing->error);
}

enum skr_code
skr_blocked_print(const struct skr_config *config, const char *only,
                  struct skr_error *error)
{
    struct printing printing = {.error = error};
    return each_outbox(config, only, print_of_outbox, &printing, error);
}

static enum skr_code
write_of_outbox(const char *transport, const struct skr_partition_stats *stats,
                void *user)
{
    for (size_t i = 0; i < stats->blocked_count; i++)
        write_head(transport, &stats->blocked[i], user);
    return SKR_OK;
}

enum skr_code
skr_blocked_write(const struct skr_config *config, const char *only,
                  struct skr_json_writer *json, struct skr_error *error)
{
    return each_outbox(config, only, write_of_outbox, json, error);
}

static enum skr_code
count_head(const struct skr_blocked_head *head, void *user,
           struct skr_error *error)
{
    (void)head;
    (void)error;
    ++*(size_t *)user;
    return SKR_OK;
}

static enum skr_code
count_blocked(const struct skr_config *config,
              const struct skr_config_transport *outbox, size_t *count,
              struct skr_error *error)
{
    const struct skr_blocked_page page = {.max = MOST_BLOCKED + 1};
    struct skr_ordered ordered;
    enum skr_code code = skr_ordered_open(config, outbox, &ordered, error);
    if (code == SKR_OK)
        code = skr_messenger_each_blocked(ordered.table, ordered.db, &page,
                                          count_head, count, error);
    skr_ordered_close(&ordered);
    // Without its tables it has none.
    if (code == SKR_MISSING) {
        skr_error_clear(error);
        code = SKR_OK;
    }
    return code;
}

enum skr_code
skr_blocked_remind(const struct skr_config *config, const char *only,
                   struct skr_error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < config->transport_count; i++) {
        if (!skr_ordered_is_meant(&config->transports[i], only))
            continue;
        enum skr_code code =
            count_blocked(config, &config->transports[i], &count, error);
        if (code != SKR_OK)
            return code;
    }
    if (count == 0)
        return SKR_OK;
    if (count > MOST_BLOCKED)
        printf("More than %d", MOST_BLOCKED);
    else
        printf("%zu", count);
    printf(" partition%s blocked; `skirnir partition retry --all` ends "
           "that.\n",
           count == 1 ? " is" : "s are");
    return SKR_OK;
}
