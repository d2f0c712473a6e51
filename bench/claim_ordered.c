// SPDX-License-Identifier: MIT
// How long it takes to claim batches of an ordered outbox, in each of the ways
// to do so. What is claimed is settled as done, which is not counted.
//
//     bench-claim-ordered DATABASE_URL TABLE exclusive|divided BATCHES
//
// Prints the median, the worst of a hundred and the worst, in microseconds, and
// how many rows came in all.

#include "base/clock.h"
#include "base/url.h"
#include "bench.h"
#include "store/messenger/messenger.h"

#ifdef SKR_WITH_MYSQL
#include <skirnir/mysql.h>
#endif
#ifdef SKR_WITH_PGSQL
#include <skirnir/pgsql.h>
#endif
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 500, MOST_BATCHES = 10000, LEASE_S = 3600 };

static const struct skr_db_ops *
find_driver(const char *url)
{
    static const struct skr_db_ops *const drivers[] = {
#ifdef SKR_WITH_MYSQL
        &skr_mysql_db,
#endif
#ifdef SKR_WITH_PGSQL
        &skr_pgsql_db,
#endif
#ifdef SKR_WITH_SQLITE
        &skr_sqlite_db,
#endif
    };
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        size_t size = strlen(drivers[i]->scheme);
        if (strncmp(url, drivers[i]->scheme, size) == 0 && url[size] == ':')
            return drivers[i];
    }
    skr_bench_die(url, "no driver for it");
}

static void
check(enum skr_code code, const struct skr_error *error)
{
    if (code != SKR_OK)
        skr_bench_die("table", error->text);
}

struct claiming {
    struct skr_db *db;
    struct skr_store *table;
    struct skr_reader *reader;
    struct skr_batch batch;
    struct skr_assignments shares;
    enum skr_claim claim;
};

static void
open_table(struct claiming *claiming, const char *url, const char *name)
{
    const struct skr_db_ops *driver = find_driver(url);
    struct skr_error error = {0};
    check(skr_db_open(driver, url, &claiming->db, &error), &error);
    const struct skr_messenger_options options = {
        .dialect = driver->tx->dialect,
        .table = name,
        .queue = "outbox",
        .is_ordered = true,
        .is_sharded = claiming->claim == SKR_CLAIM_SHARDS,
    };
    check(skr_messenger_new(&options, &claiming->table, &error), &error);
    check(skr_store_create(claiming->table, claiming->db, &error), &error);
    check(claiming->table->source->open(claiming->table, claiming->db, true,
                                        &claiming->reader, &error),
          &error);
    check(skr_batch_init(&claiming->batch, BATCH, &error), &error);
    if (claiming->claim != SKR_CLAIM_SHARDS)
        return;
    const struct skr_assignment all = {.shards =
                                           (UINT64_C(1) << SKR_SHARDS) - 1};
    for (int i = 0; i < 2; i++) {
        check(claiming->table->shards->see(claiming->table, claiming->db,
                                           &claiming->shares, &error),
              &error);
        check(claiming->table->shards->take(
                  claiming->table, claiming->db, &all,
                  &(struct skr_term){.lease_s = LEASE_S}, &error),
              &error);
    }
}

static int64_t
claim(struct claiming *claiming)
{
    const struct skr_read read = {.max_rows = BATCH, .max_bytes = 8 << 20};
    struct skr_error error = {0};
    int64_t began_us = skr_bench_now_us();
    check(claiming->table->source->read(claiming->reader, &read,
                                        &claiming->batch, &error),
          &error);
    return skr_bench_now_us() - began_us;
}

static size_t
settle(struct claiming *claiming)
{
    struct skr_batch *batch = &claiming->batch;
    struct skr_error error = {0};
    size_t done = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].state != SKR_READ)
            continue;
        batch->items[i].state = SKR_DONE;
        done++;
    }
    if (claiming->claim == SKR_CLAIM_SHARDS) {
        batch->lease.shards = claiming->shares.ours.shards;
        batch->lease.epochs = claiming->shares.ours.epochs;
    }
    check(claiming->table->settle->write(claiming->table, claiming->db, batch,
                                         &error),
          &error);
    skr_batch_clear(batch);
    return done;
}

static int
compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int
main(int argc, char **argv)
{
    static int64_t times[MOST_BATCHES];
    if (argc != 5)
        skr_bench_die("usage", "bench-claim-ordered DATABASE_URL TABLE "
                               "exclusive|divided BATCHES");
    long batches = skr_bench_number(argv[4]);
    if (batches < 1 || batches > MOST_BATCHES)
        skr_bench_die(argv[4], "1 to 10000 batches");
    struct claiming claiming = {
        .claim =
            strcmp(argv[3], "divided") == 0 ? SKR_CLAIM_SHARDS : SKR_CLAIM_NONE,
    };
    open_table(&claiming, argv[1], argv[2]);
    size_t rows = 0;
    // The first looks around: what indexes there are, and what time it is.
    (void)claim(&claiming);
    rows += settle(&claiming);
    for (long i = 0; i < batches; i++) {
        times[i] = claim(&claiming);
        rows += settle(&claiming);
    }
    qsort(times, (size_t)batches, sizeof(times[0]), compare);
    printf("%lld %lld %lld %zu\n", (long long)times[batches / 2],
           (long long)times[batches * 99 / 100], (long long)times[batches - 1],
           rows);
    // For the next to take.
    if (claiming.claim == SKR_CLAIM_SHARDS &&
        claiming.table->shards->give(claiming.table, claiming.db,
                                     &claiming.shares.ours, NULL) != SKR_OK)
        skr_bench_die("table", "the leases cannot be given back");
    skr_batch_fini(&claiming.batch);
    free(claiming.reader);
    skr_store_free(claiming.table);
    skr_db_close(claiming.db);
    return 0;
}
