// SPDX-License-Identifier: MIT
// Queues that relays divide among themselves by leases. Rows fall into shards,
// and skirnir_lease has a row for each shard of each queue, by its number, the
// slot. So a relay that has its share reads and settles like one that is alone,
// and leases cost nothing by the message.
//
// A relay that settles under a fence locks the rows of its shards first and
// sees whether they are its own; a relay that takes them over has to write
// those rows. So one is over before the other begins, however late it comes. In
// a cluster the fence writes them instead, and of two transactions that commit
// on different nodes one fails and is tried again.
//
// Where sessions can hold locks, an owner holds one for as long as it lives,
// its liveness lock: others find it free as soon as the session is over, and
// need not wait until the leases run out. An owner that loses its session and
// lives on is in the place of one whose leases ran out, and what it settles
// late finds another's epoch.
//
// What a shard is depends on whether the queue has an order. Relays that take
// it for ordered and relays that do not would send the same rows: an owner
// takes nothing while one of the other kind has something, as the name tells.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/layout.h"
#include "store/schema.h"

#include <string.h>
#include <strings.h>

#define LEASES SKR_MESSENGER_LEASES

enum { NUMBERS = SKR_SHARDS + SKR_MEMBERS };

static const struct skr_index lease_indexes[] = {
    {.name = "idx_lease_owner", .columns = "owner"},
};

// Members have the numbers after the shards.
static const struct skr_schema lease_schema = {
    .columns = "queue_name {key_text} NOT NULL,\n"
               "    slot INTEGER NOT NULL,\n"
               "    owner VARCHAR(40) NOT NULL,\n"
               "    epoch BIGINT NOT NULL,\n"
               "    expires_at {timestamp} NOT NULL,\n"
               "    PRIMARY KEY (queue_name, slot)",
    .indexes = lease_indexes,
    .index_count = SKR_COUNT_OF(lease_indexes),
};

enum {
    IS_OURS = 1,
    IS_FREE_NOW = 2,
    IS_ANOTHERS_BY_LOCK = 3,
    IS_OF_OTHER_KIND = 4,
};

static bool
can_lock(const struct skr_messenger *messenger)
{
    return skr_sql_word(messenger->dialect, "hold_owner_lock")[0] != '\0';
}

// How names of owners begin.
static const char *const kinds[SKR_QUEUE_KINDS] = {
    [SKR_QUEUE_PLAIN] = SKR_MESSENGER_PLAIN_PREFIX,
    [SKR_QUEUE_ORDERED] = "",
    [SKR_QUEUE_BY_COMMITS] = "",
};

// A new one for every table object: no two relays ever have the same.
enum skr_code
skr_messenger_name_owner(struct skr_messenger *messenger,
                         struct skr_error *error)
{
    struct skr_id id;
    char text[SKR_ID_TEXT_SIZE];
    enum skr_code code = skr_id_new(&id, error);
    if (code != SKR_OK)
        return code;
    skr_id_format(id, text);
    const char *kind = kinds[messenger->kind];
    messenger->owner =
        skr_arena_format(&messenger->table.arena, "%s%s", kind, text);
    messenger->lock_owner = skr_arena_format(
        &messenger->table.arena, SKR_MESSENGER_LOCK_PREFIX "%s%s", kind, text);
    // In this order, as names of queues may end with blanks.
    messenger->lease_name =
        skr_arena_format(&messenger->table.arena, "%s/%s",
                         messenger->table.queue, messenger->table.name);
    if (messenger->owner == NULL || messenger->lock_owner == NULL ||
        messenger->lease_name == NULL)
        return skr_fail_memory(error);
    return SKR_OK;
}

enum skr_code
skr_messenger_setup_leases(const struct skr_messenger *messenger,
                           const struct skr_schema_target *target,
                           struct skr_error *error)
{
    if (messenger->owner == NULL)
        return SKR_OK;
    return skr_schema_write(&lease_schema, LEASES, target, error);
}

// Relays may spell the table in several ways that the server takes for one.
// Earlier versions own shards under the spelling of their configuration: where
// one does, this relay contends for them under the same.
static enum skr_code
spell_lease_name(const struct skr_messenger *messenger, struct skr_db *db,
                 struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value place;
    struct skr_row row = {.arena = &arena, .columns = &place, .count = 1};
    enum skr_code code = skr_sql_ask_table(skr_db_tx(db), "{table_place}",
                                           messenger->table.name, &row, error);
    size_t size = strlen(messenger->table.name);
    if (code == SKR_OK && row.found && place.size >= size) {
        // Behind its schema, where the server has those.
        const char *name = (const char *)place.bytes + place.size - size;
        char *own = strrchr(messenger->lease_name, '/') + 1;
        bool differs = strcmp(own, name) != 0 && strcasecmp(own, name) == 0;
        int64_t owned = 0;
        if (differs)
            code = skr_sql_number(
                skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_OWNED),
                skr_values("%s", messenger->lease_name), &owned, error);
        if (code == SKR_OK && differs && owned == 0)
            memcpy(own, name, size);
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_check_leases(const struct skr_messenger *messenger,
                           struct skr_db *db, struct skr_error *error)
{
    if (messenger->owner == NULL)
        return SKR_OK;
    enum skr_code code = skr_schema_check(
        skr_db_tx(db),
        &(struct skr_needs){LEASES,
                            "queue_name, slot, owner, epoch, expires_at",
                            "run `skirnir setup`"},
        error);
    return code == SKR_OK ? spell_lease_name(messenger, db, error) : code;
}

static enum skr_code
hold_liveness_lock(const struct skr_store *table, struct skr_db *db,
                   enum skr_liveness *liveness, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    int64_t is_held = 0;
    *liveness = SKR_LIVES_BY_LEASES;
    if (!can_lock(messenger))
        return SKR_OK;
    enum skr_code code = skr_sql_number(
        skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_HOLD_OWNER_LOCK),
        SKR_NO_VALUES, &is_held, error);
    *liveness = is_held == 1 ? SKR_LIVES_BY_LOCK : SKR_LIVES_ELSEWHERE;
    return code;
}

struct seeing {
    struct skr_assignments *shares;
    struct skr_assignment rows;  // all that there are, of any owner
    size_t seen;
};

static void
add_to_share(struct skr_assignment *share, int64_t number, int64_t epoch)
{
    if (number < SKR_SHARDS) {
        share->shards |= UINT64_C(1) << number;
        share->epochs += epoch;
    } else {
        share->members |= UINT64_C(1) << (number - SKR_SHARDS);
    }
}

// Both by the server's clock.
static void
note_end(const struct skr_value *expires_at, const struct skr_value *now,
         struct skr_assignments *shares)
{
    int64_t left_us = 0;
    if (!skr_messenger_measure(now, expires_at, &left_us))
        return;
    int64_t left_s = left_us / 1000000;
    if (shares->others_for_s == 0 || left_s < shares->others_for_s)
        shares->others_for_s = left_s;
}

static enum skr_code
see_row(const struct skr_value *columns, size_t count, void *user,
        struct skr_error *error)
{
    (void)count;
    (void)error;
    struct seeing *seeing = user;
    int64_t number = columns[0].integer;
    if (number < 0 || number >= NUMBERS)
        return SKR_OK;
    seeing->seen++;
    add_to_share(&seeing->rows, number, 0);
    if (columns[2].integer == IS_OURS) {
        add_to_share(&seeing->shares->ours, number, columns[1].integer);
    } else if (columns[2].integer == IS_FREE_NOW) {
        add_to_share(&seeing->shares->free, number, columns[1].integer);
    } else if (columns[2].integer == IS_OF_OTHER_KIND) {
        seeing->shares->has_other_kind = true;
    } else {
        seeing->shares->others += number >= SKR_SHARDS;
        seeing->shares->others_by_lock |=
            columns[2].integer == IS_ANOTHERS_BY_LOCK;
        note_end(&columns[3], &columns[4], seeing->shares);
    }
    return SKR_OK;
}

static enum skr_code
see(const struct skr_messenger *messenger, struct skr_tx tx,
    struct seeing *seeing, struct skr_error *error)
{
    *seeing->shares = (struct skr_assignments){.others = 0};
    seeing->rows = (struct skr_assignment){.shards = 0};
    seeing->seen = 0;
    return skr_sql_each(tx, skr_messenger_sql(messenger, SKR_SQL_SEE_SHARDS),
                        skr_values("%s", messenger->lease_name), see_row,
                        seeing, error);
}

static bool
has_number(const struct skr_assignment *share, int64_t number)
{
    return number < SKR_SHARDS ? share->shards >> number & 1
                               : share->members >> (number - SKR_SHARDS) & 1;
}

// Those that are there are left out: on PostgreSQL a duplicate would end the
// transaction.
static enum skr_code
add_rows(const struct skr_messenger *messenger, struct skr_db *db,
         const struct skr_assignment *there, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (int64_t number = 0; number < NUMBERS && code == SKR_OK; number++) {
        if (has_number(there, number))
            continue;
        code = skr_sql_run(
            skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_ADD_SHARD),
            skr_values("%s %jd", messenger->lease_name, number), NULL, error);
        // Where other relays cannot be kept out, one of them adds the rows too.
        if (code == SKR_DUPLICATE) {
            skr_error_clear(error);
            code = SKR_OK;
        }
    }
    return code;
}

// The first to look at a queue makes its rows, and only one does.
static enum skr_code
make_rows(const struct skr_messenger *messenger, struct skr_db *db,
          struct seeing *seeing, struct skr_error *error)
{
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = see(messenger, skr_db_tx(db), seeing, error);
    if (code == SKR_OK && seeing->seen < NUMBERS)
        code = add_rows(messenger, db, &seeing->rows, error);
    return skr_schema_end(db, code, error);
}

static enum skr_code
see_shares(const struct skr_store *table, struct skr_db *db,
           struct skr_assignments *shares, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct seeing seeing = {.shares = shares};
    struct skr_error failure = {0};
    enum skr_code code;
    do {
        code = see(messenger, skr_db_tx(db), &seeing, &failure);
        if (code == SKR_OK && seeing.seen == NUMBERS)
            return SKR_OK;
        if (code == SKR_OK)
            code = make_rows(messenger, db, &seeing, &failure);
    } while (code == SKR_OK ||
             skr_messenger_may_try_again(&tries, code, &failure));
    return skr_fail_with(error, &failure);
}

// The numbers of a share, which go up: two relays that write the same wait for
// each other and do not deadlock.
static size_t
list_numbers(const struct skr_assignment *share, int64_t numbers[NUMBERS])
{
    size_t count = 0;
    for (int64_t number = 0; number < SKR_SHARDS; number++)
        if (share->shards >> number & 1)
            numbers[count++] = number;
    for (int64_t number = 0; number < SKR_MEMBERS; number++)
        if (share->members >> number & 1)
            numbers[count++] = SKR_SHARDS + number;
    return count;
}

static enum skr_code
write_share(struct skr_tx tx, const struct skr_assignment *share,
            const struct skr_list_run *run, uint64_t *missed,
            struct skr_error *error)
{
    int64_t numbers[NUMBERS];
    uint64_t affected = 0;
    struct skr_list_run listed = *run;
    listed.rows = numbers;
    listed.affected = &affected;
    listed.count = list_numbers(share, numbers);
    enum skr_code code = skr_list_run(tx, &listed, error);
    if (missed != NULL)
        *missed = listed.count - affected;
    return code;
}

static enum skr_code
keep_free(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    add_to_share(user, columns[0].integer, 0);
    return SKR_OK;
}

static struct skr_value
bind_owner(const struct skr_messenger *messenger, const struct skr_term *term)
{
    return skr_bind_text(term->by_lock ? messenger->lock_owner
                                       : messenger->owner);
}

// Whether owners of our kind alone have something, which stays so until the
// transaction ends.
static enum skr_code
guard(const struct skr_messenger *messenger, struct skr_tx tx, bool *may_take,
      struct skr_error *error)
{
    const struct skr_values name = skr_values("%s", messenger->lease_name);
    int64_t member = 0, others = 0;
    enum skr_code code = skr_sql_number(
        tx, skr_messenger_sql(messenger, SKR_SQL_GUARD), name, &member, error);
    if (code == SKR_OK && member != 0)
        code =
            skr_sql_number(tx, skr_messenger_sql(messenger, SKR_SQL_OTHER_KIND),
                           name, &others, error);
    *may_take = member != 0 && others == 0;
    return code;
}

static enum skr_code
take_free(const struct skr_messenger *messenger, struct skr_tx tx,
          const struct skr_assignment *share, const struct skr_term *term,
          struct skr_error *error)
{
    int64_t numbers[NUMBERS];
    struct skr_assignment free = {.shards = 0};
    const struct skr_list_run find = {
        .sql = skr_messenger_list(messenger, SKR_SQL_FIND_FREE),
        .first = {skr_bind_text(messenger->lease_name)},
        .first_count = 1,
        .rows = numbers,
        .count = list_numbers(share, numbers),
        .each_row = keep_free,
        .user = &free,
    };
    const struct skr_list_run take = {
        .sql = skr_messenger_list(messenger, SKR_SQL_TAKE),
        .first = {bind_owner(messenger, term), skr_bind_integer(term->lease_s),
                  skr_bind_text(messenger->lease_name)},
        .first_count = 3,
    };
    bool may_take = false;
    enum skr_code code = guard(messenger, tx, &may_take, error);
    if (code == SKR_OK && may_take)
        code = skr_list_run(tx, &find, error);
    if (code != SKR_OK || (free.shards == 0 && free.members == 0))
        return code;
    return write_share(tx, &free, &take, NULL, error);
}

static enum skr_code
take_share(const struct skr_store *table, struct skr_db *db,
           const struct skr_assignment *share, const struct skr_term *term,
           struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code =
        take_free(skr_messenger_of(table), skr_db_tx(db), share, term, error);
    return skr_db_end(db, code, error);
}

static enum skr_code
renew_share(const struct skr_store *table, struct skr_db *db,
            const struct skr_assignment *share, const struct skr_term *term,
            struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_RENEW_SHARDS),
        .first = {bind_owner(messenger, term), skr_bind_integer(term->lease_s),
                  skr_bind_text(messenger->lease_name)},
        .first_count = 3,
    };
    uint64_t missed = 0;
    enum skr_code code =
        write_share(skr_db_tx(db), share, &run, &missed, error);
    if (code != SKR_OK || missed == 0)
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the leases on shards ran out, and another relay has "
                    "them");
}

static enum skr_code
give_share(const struct skr_store *table, struct skr_db *db,
           const struct skr_assignment *share, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_GIVE),
        .first = {skr_bind_text(messenger->lease_name)},
        .first_count = 1,
    };
    return write_share(skr_db_tx(db), share, &run, NULL, error);
}

struct fence {
    uint64_t shards;
    int64_t epochs;
};

static enum skr_code
count_shard(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    (void)error;
    struct fence *fence = user;
    fence->shards++;
    fence->epochs += columns[0].integer;
    return SKR_OK;
}

// Whether they are ours is told by what is read afterwards.
static enum skr_code
write_fence(const struct skr_messenger *messenger, struct skr_tx tx,
            const struct skr_assignment *share, uint32_t lease_s,
            struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_WRITE_FENCE),
        .first = {skr_bind_integer(lease_s), skr_bind_integer(lease_s + 1),
                  skr_bind_integer(lease_s),
                  skr_bind_text(messenger->lease_name)},
        .first_count = 4,
    };
    return write_share(tx, share, &run, NULL, error);
}

enum skr_code
skr_messenger_fence(const struct skr_messenger *messenger, struct skr_tx tx,
                    const struct skr_lease *lease, bool *is_ours,
                    struct skr_error *error)
{
    int64_t numbers[NUMBERS];
    const struct skr_assignment share = {.shards = lease->shards};
    struct fence fence = {.shards = 0};
    if (lease->write_s > 0) {
        enum skr_code code =
            write_fence(messenger, tx, &share, lease->write_s, error);
        if (code != SKR_OK)
            return code;
    }
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger, SKR_SQL_FENCE),
        .first = {skr_bind_text(messenger->lease_name)},
        .first_count = 1,
        .rows = numbers,
        .count = list_numbers(&share, numbers),
        .each_row = count_shard,
        .user = &fence,
    };
    enum skr_code code = skr_list_run(tx, &run, error);
    *is_ours = run.count > 0 && fence.shards == run.count &&
               fence.epochs == lease->epochs;
    return code;
}

const struct skr_shard_ops skr_messenger_shards = {
    .live = hold_liveness_lock,
    .see = see_shares,
    .take = take_share,
    .renew = renew_share,
    .give = give_share,
};
