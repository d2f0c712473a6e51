// SPDX-License-Identifier: MIT
// `skirnir setup`: makes the tables of transports, or prints their SQL, and
// names what is left for other commands to make.

#include "app/app.h"
#include "app/drivers.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "store/attempt/attempt.h"
#include "store/deduplication/deduplication.h"
#include "store/schema.h"

#include <stdio.h>
#include <string.h>

static bool
says_notify(const struct skr_app *app)
{
    return skr_arguments_has(app->arguments, "notify") ||
           skr_arguments_has(app->arguments, "no-notify");
}

static enum skr_code
print_sql(const struct skr_app *app, const struct skr_config *config,
          const struct skr_config_transport *transport, struct skr_error *error)
{
    struct skr_store *table = NULL;
    printf("-- %s%s, database %s\n",
           transport->scheme == NULL ? "" : "transport ", transport->name,
           transport->database->name);
    enum skr_code code = skr_transport_give_sql(
        config, transport, skr_transport_print_sql, NULL, error);
    if (code != SKR_OK || !says_notify(app))
        return code;
    code = skr_transport_table(config, transport, &table, error);
    if (code == SKR_OK)
        code = table->admin->notify(table, NULL,
                                    skr_arguments_has(app->arguments, "notify"),
                                    skr_transport_print_sql, NULL, error);
    skr_store_free(table);
    return code;
}

static enum skr_code
advise(struct skr_db *db, bool tune, struct skr_error *error)
{
    char advice[SKR_ADVICE_SIZE] = "";
    enum skr_code code = db->ops->advise(db, tune, advice, error);
    if (code == SKR_OK && advice[0] != '\0')
        printf("  %s: %s\n", tune ? "changed" : "advice", advice);
    return code;
}

static enum skr_code
set_notify(const struct skr_app *app, const struct skr_store *table,
           const struct skr_config_transport *transport, struct skr_db *db,
           struct skr_error *error)
{
    bool wanted = skr_arguments_has(app->arguments, "notify");
    // Only queues and outboxes have a reader that sleeps until rows come; the
    // failed table has none.
    bool has_reader =
        transport->kind == SKR_TRANSPORT_QUEUE || transport->relay_to != NULL;
    if (says_notify(app) && !has_reader && app->arguments->positional_count > 0)
        printf("  no relay and no consumer waits for rows of %s: %s is left "
               "out\n",
               transport->name, wanted ? "--notify" : "--no-notify");
    if (!says_notify(app) || !has_reader)
        return SKR_OK;
    enum skr_code code = skr_store_set_notify(table, db, wanted, error);
    if (code == SKR_OK)
        printf("  inserts into %s %s\n", transport->place.table,
               wanted ? "wake a relay that sleeps (trigger skirnir_notify)"
                      : "wake nobody (there is no trigger skirnir_notify)");
    else
        skr_error_prefix(error, wanted ? "--notify" : "--no-notify");
    return code;
}

static enum skr_code
say_lack(const char *sql, void *user, struct skr_error *error)
{
    (void)user;
    (void)error;
    printf("  would run: %s\n", sql);
    return SKR_OK;
}

enum { MOST_BESIDE = 4 };

// Tables that are missing: the transport's own, and those beside it.
struct lacks {
    const struct skr_config_transport *transport;
    bool has_own;
    char beside[MOST_BESIDE][SKR_SCHEMA_NAME_SIZE];
    size_t beside_count;
};

// Of a statement that makes a table, which one it is.
static enum skr_code
note_lack(const char *sql, void *user, struct skr_error *error)
{
    (void)error;
    struct lacks *lacks = user;
    char name[SKR_SCHEMA_NAME_SIZE] = "";
    if (!skr_schema_makes_table(sql, name))
        return SKR_OK;
    if (skr_config_same_table(lacks->transport->database, name,
                              lacks->transport->place.table))
        lacks->has_own = true;
    else if (lacks->beside_count < MOST_BESIDE)
        memcpy(lacks->beside[lacks->beside_count++], name, sizeof(name));
    return SKR_OK;
}

// A table that is new comes with all that lies beside it.
static void
say_tables(const struct lacks *lacks,
           const struct skr_config_transport *transport, bool dry_run)
{
    const char *made = dry_run ? "would be made" : "is made";
    printf("%s: table %s in database %s %s\n", transport->name,
           transport->place.table, transport->database->name,
           lacks->has_own ? made : "is there");
    for (size_t i = 0; i < lacks->beside_count && !lacks->has_own; i++)
        printf("  table %s beside it %s\n", lacks->beside[i], made);
}

// Says what became of the table; makes it unless this is a dry run, in which
// db may be NULL: there is not even a database.
static enum skr_code
make_table(const struct skr_store *table,
           const struct skr_config_transport *transport, struct skr_db *db,
           bool dry_run, struct skr_error *error)
{
    struct lacks lacks = {.transport = transport};
    enum skr_code code =
        db == NULL ? SKR_MISSING : table->admin->check(table, db, error);
    // It may lack a column that can be added.
    bool incomplete = code == SKR_INVALID;
    if (code != SKR_OK && code != SKR_MISSING && !incomplete)
        return code;
    code = table->admin->setup(table, db, note_lack, &lacks, error);
    // Run in any case: what lies beside the table may be missing.
    if (code == SKR_OK && !dry_run)
        code = skr_store_create(table, db, error);
    if (code != SKR_OK)
        return code;
    say_tables(&lacks, transport, dry_run);
    // Made by others, it may lack an index.
    if (db != NULL)
        code = dry_run
                   ? table->admin->complete(table, db, say_lack, NULL, error)
                   : skr_complete_table(table, db, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "table %s", transport->place.table);
    if (code == SKR_OK && incomplete && !dry_run)
        code = table->admin->check(table, db, error);
    return code;
}

static enum skr_code
set_up(const struct skr_app *app, const struct skr_config *config,
       const struct skr_config_transport *transport, bool advises,
       struct skr_error *error)
{
    if (skr_arguments_has(app->arguments, "print-sql"))
        return print_sql(app, config, transport, error);
    const struct skr_db_ops *ops = NULL;
    struct skr_store *table = NULL;
    struct skr_db *db = NULL;
    bool dry_run = skr_arguments_has(app->arguments, "dry-run");
    enum skr_code code =
        skr_transport_database(transport->database, &ops, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, transport, &table, error);
    if (code == SKR_OK)
        code = skr_db_open_or_create(ops, transport->database->url, !dry_run,
                                     &db, error);
    if (code == SKR_OK || (code == SKR_MISSING && dry_run))
        code = make_table(table, transport, db, dry_run, error);
    if (code == SKR_OK && !dry_run &&
        skr_transport_keeps_failures(config, transport))
        code = skr_attempts_create(db, error);
    if (code == SKR_OK && !dry_run)
        code = set_notify(app, table, transport, db, error);
    if (code == SKR_OK && !dry_run && advises)
        code = advise(db, skr_arguments_has(app->arguments, "tune"), error);
    skr_db_close(db);
    skr_store_free(table);
    return code;
}

// Advice concerns a database, whichever of its tables is made first.
static bool
is_first_in(const struct skr_config *config,
            const struct skr_config_database *database, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (skr_transport_has_table(transport) &&
            strcmp(transport->database->url, database->url) == 0)
            return false;
    }
    return true;
}

// Without a failure transport, what a handler fails on stays in the database
// where handlers run; its table belongs to no transport.
static enum skr_code
set_up_inbox(const struct skr_app *app, const struct skr_config *config,
             struct skr_error *error)
{
    if (config->failure_transport != NULL || !skr_config_consumes(config))
        return SKR_OK;
    const struct skr_config_transport failed = {
        .name = "failed messages of consumers",
        .kind = SKR_TRANSPORT_OUTBOX,
        .database = config->inbox_database,
        .place = skr_transport_failed_place(config).place,
    };
    bool advises =
        is_first_in(config, failed.database, config->transport_count);
    return set_up(app, config, &failed, advises, error);
}

// db is NULL where there is not even a database.
static bool
lacks_table(const struct skr_config *config,
            const struct skr_deduplication_place *place, struct skr_db *db)
{
    struct skr_deduplication *table = NULL;
    if (db == NULL)
        return true;
    enum skr_code code =
        skr_deduplication_place_table(config, place, &table, NULL);
    if (code == SKR_OK)
        code = skr_deduplication_check(table, db, NULL);
    skr_deduplication_free(table);
    return code == SKR_MISSING;
}

// The tables of handled messages are made by a command of their own, since
// Doctrine's migrations may want to; a consumer needs them. A database that
// cannot be asked is reported by the workers that use it: nothing is made
// there.
static void
name_deduplication(const struct skr_config *config)
{
    const struct skr_db_ops *ops = NULL;
    struct skr_deduplication_place place;
    struct skr_db *db = NULL;
    size_t at = 0;
    if (!skr_config_consumes(config) || config->inbox_database == NULL ||
        config->deduplication_auto_setup ||
        skr_transport_database(config->inbox_database, &ops, NULL) != SKR_OK)
        return;
    enum skr_code code = skr_db_open_or_create(ops, config->inbox_database->url,
                                               false, &db, NULL);
    while ((code == SKR_OK || code == SKR_MISSING) &&
           skr_deduplication_place_next(config, &at, &place))
        if (lacks_table(config, &place, db))
            printf("handled messages: table %s in database %s is missing; "
                   "`skirnir setup-deduplication --force` makes it\n",
                   place.table, config->inbox_database->name);
    skr_db_close(db);
}

// Named all the same, so that it is not taken for done.
static void
say_no_table(const struct skr_app *app,
             const struct skr_config_transport *transport)
{
    bool is_sql = skr_arguments_has(app->arguments, "print-sql");
    printf("%s%s: nothing to make, since ", is_sql ? "-- " : "",
           transport->name);
    if (skr_driver_find_broker(transport->scheme) == NULL)
        printf("this build has no driver for %s://\n", transport->scheme);
    else if (skr_driver_scheme(transport->scheme)->has_topics)
        printf("topics are made by the cluster, or by a consumer with "
               "auto_setup\n");
    else
        printf("%s:// has no table; `skirnir setup-amqp` declares exchanges "
               "and queues\n",
               transport->scheme);
}

static enum skr_code
set_up_all(const struct skr_app *app, const struct skr_config *config,
           struct skr_error *error)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (!skr_transport_has_table(transport)) {
            say_no_table(app, transport);
            continue;
        }
        bool advises = is_first_in(config, transport->database, i);
        enum skr_code code = set_up(app, config, transport, advises, error);
        if (code != SKR_OK) {
            skr_error_prefix(error, "transport %s", transport->name);
            return code;
        }
    }
    enum skr_code code = set_up_inbox(app, config, error);
    if (code == SKR_OK && !skr_arguments_has(app->arguments, "print-sql"))
        name_deduplication(config);
    return code;
}

static enum skr_code
set_up_one(const struct skr_app *app, const struct skr_config *config,
           const char *name, struct skr_error *error)
{
    const struct skr_config_transport *transport = NULL;
    enum skr_code code =
        skr_config_find_transport(config, name, &transport, error);
    if (code != SKR_OK)
        return code;
    if (!skr_transport_has_table(transport))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, which has no table%s", name,
                        transport->scheme,
                        skr_driver_scheme(transport->scheme)->has_exchanges
                            ? "; `skirnir setup-amqp` declares what it has"
                            : "");
    return set_up(app, config, transport, true, error);
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    if (app->arguments->positional_count == 0)
        return set_up_all(app, config, error);
    return set_up_one(app, config, app->arguments->positional[0], error);
}

enum skr_exit
skr_command_setup(struct skr_app *app)
{
    if (skr_arguments_has(app->arguments, "notify") &&
        skr_arguments_has(app->arguments, "no-notify"))
        return skr_app_usage(app,
                             "--notify and --no-notify exclude each other");
    return skr_app_run_configured(app, run);
}
