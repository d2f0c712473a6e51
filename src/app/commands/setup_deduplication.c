// SPDX-License-Identifier: MIT
// `skirnir setup-deduplication`: makes the inbox's tables, or writes a Doctrine
// migration that does.

#include "app/app.h"
#include "app/wiring/transports.h"
#include "base/arena.h"
#include "base/error.h"
#include "db/sql.h"
#include "store/attempt/attempt.h"
#include "store/deduplication/deduplication.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static enum skr_code
print_php(const char *sql, void *user, struct skr_error *error)
{
    (void)error;
    // A heredoc without interpolation: SQL needs no escaping in it.
    fprintf(user, "        $this->addSql(<<<'SQL'\n%s\nSQL\n        );\n", sql);
    return SKR_OK;
}

static void
print_drop(FILE *file, const struct skr_dialect *dialect, const char *table)
{
    struct skr_arena arena = {0};
    const struct skr_word words[] = {{"table", table}};
    const char *sql =
        skr_sql_fill(dialect, &arena, "DROP TABLE {table}", words, 1);
    if (sql != NULL)
        fprintf(file, "        $this->addSql('%s');\n", sql);
    skr_arena_fini(&arena);
}

static void
print_class(FILE *file, const char *version, const struct skr_config *config,
            const struct skr_dialect *dialect, struct skr_error *error)
{
    struct skr_deduplication_place place;
    size_t at = 0;
    fprintf(file,
            "<?php\n\ndeclare(strict_types=1);\n\n"
            "namespace DoctrineMigrations;\n\n"
            "use Doctrine\\DBAL\\Schema\\Schema;\n"
            "use Doctrine\\Migrations\\AbstractMigration;\n\n"
            "final class Version%s extends AbstractMigration\n{\n"
            "    public function getDescription(): string\n    {\n"
            "        return 'Create %s: remembers which messages were "
            "handled';\n    }\n\n"
            "    public function up(Schema $schema): void\n    {\n",
            version, config->deduplication_table);
    if (skr_inbox_give_sql(config, print_php, file, error) != SKR_OK)
        return;
    fprintf(file,
            "    }\n\n    public function down(Schema $schema): void\n    {\n");
    while (skr_deduplication_place_next(config, &at, &place))
        print_drop(file, dialect, place.table);
    fprintf(file, "        $this->addSql('DROP TABLE " SKR_ATTEMPT_TABLE
                  "');\n    }\n}\n");
}

static enum skr_code
write_migration(const struct skr_config *config,
                const struct skr_dialect *dialect, struct skr_error *error)
{
    char version[32], path[64];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(version, sizeof(version), "%Y%m%d%H%M%S", &parts);
    snprintf(path, sizeof(path), "Version%s.php", version);
    // Never over an existing file.
    FILE *file = fopen(path, "wx");
    if (file == NULL)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "cannot write %s: %s",
                        path, strerror(errno));
    print_class(file, version, config, dialect, error);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "cannot write %s: %s",
                        path, strerror(errno));
    printf("Migration file generated: %s\n", path);
    return SKR_OK;
}

static enum skr_code
create_table(const struct skr_config *config,
             const struct skr_deduplication_place *place, struct skr_db *db,
             bool dry_run, struct skr_error *error)
{
    struct skr_deduplication *table = NULL;
    const char *name = place->table;
    enum skr_code code =
        skr_deduplication_place_table(config, place, &table, error);
    if (code == SKR_OK)
        code = skr_deduplication_check(table, db, error);
    if (code == SKR_OK) {
        printf("Table '%s' already exists, skipping.\n", name);
    } else if (code == SKR_MISSING && dry_run) {
        printf("Table '%s' would be created.\n", name);
        code = SKR_OK;
    } else if (code == SKR_MISSING) {
        code = skr_deduplication_create(table, db, error);
        if (code == SKR_OK)
            printf("Table '%s' created successfully.\n", name);
    }
    skr_deduplication_free(table);
    return code;
}

static enum skr_code
create(const struct skr_config *config, const struct skr_db_ops *ops,
       bool dry_run, struct skr_error *error)
{
    struct skr_db *db = NULL;
    struct skr_deduplication_place place;
    size_t at = 0;
    enum skr_code code = skr_db_open_or_create(ops, config->inbox_database->url,
                                               !dry_run, &db, error);
    // A database that is not there yet has none of them.
    bool is_new = code == SKR_MISSING && dry_run;
    while (is_new && skr_deduplication_place_next(config, &at, &place))
        printf("Table '%s' would be created.\n", place.table);
    if (is_new)
        return SKR_OK;
    while (code == SKR_OK && skr_deduplication_place_next(config, &at, &place))
        code = create_table(config, &place, db, dry_run, error);
    // Harmless where it is there.
    if (code == SKR_OK && !dry_run)
        code = skr_attempts_create(db, error);
    skr_db_close(db);
    return code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    enum skr_code code =
        skr_transport_database(config->inbox_database, &ops, error);
    if (code != SKR_OK)
        return code;
    bool dry_run = skr_arguments_has(app->arguments, "dry-run");
    if (skr_arguments_has(app->arguments, "migration"))
        return write_migration(config, ops->tx->dialect, error);
    if (dry_run || skr_arguments_has(app->arguments, "force"))
        return create(config, ops, dry_run, error);
    return skr_inbox_give_sql(config, skr_transport_print_sql, NULL, error);
}

enum skr_exit
skr_command_setup_deduplication(struct skr_app *app)
{
    static const char *const ways[] = {"force", "migration", "print-sql",
                                       "dry-run"};
    size_t chosen = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        chosen += skr_arguments_has(app->arguments, ways[i]);
    if (chosen > 1) {
        skr_app_usage(app, "--force, --migration, --print-sql and --dry-run "
                           "exclude each other");
        // As the PHP command ends whose name is an alias of this one.
        return SKR_EXIT_FAILURE;
    }
    if (skr_arguments_has(app->arguments, "quiet") &&
        skr_arguments_has(app->arguments, "force"))
        skr_output_silence();
    return skr_app_run_configured(app, run);
}
