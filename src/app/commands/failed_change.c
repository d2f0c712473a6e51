// SPDX-License-Identifier: MIT
// `skirnir failed retry`, which moves failed messages back to where they came
// from, and `skirnir failed remove`: the messages that were named, or all that
// a filter lets pass, one by one.

#include "app/admin/failed.h"
#include "app/admin/partitions.h"
#include "app/console/progress.h"
#include "app/console/terminal.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "store/messenger/messenger.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TRIES = 5 };

// Where a message goes when it is retried.
struct target {
    const char *transport;
    const struct skr_config_database *database;
    struct skr_queue_place place;
    const struct skr_config_transport *outbox;  // NULL: a queue of consumers
};

// What came from a broker waits in a queue beside the failed messages, where
// consumers of the transport look.
static enum skr_code
target_consumers(const struct skr_failed_session *session, const char *name,
                 struct skr_arena *arena, struct target *target,
                 struct skr_error *error)
{
    const struct skr_failed_place *failed = &session->failed;
    *target = (struct target){
        .transport = name,
        .database = failed->database != NULL ? failed->database
                                             : session->config->inbox_database,
        .place = failed->place,
    };
    target->place.queue = skr_arena_format(arena, "%s.retry", name);
    if (target->place.queue == NULL)
        return skr_fail_memory(error);
    if (target->database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no database is configured in which consumers of %s "
                        "look for retries; set message_broker.inbox.database",
                        name);
    return SKR_OK;
}

// A broker that an outbox relays to is reached through that: a row beside the
// failed messages is for consumers of that broker, and there may be none.
static enum skr_code
check_is_consumed(const struct skr_config *config,
                  const struct skr_failure_report *report, const char *name,
                  struct skr_error *error)
{
    if (report->transport != NULL && strcmp(report->transport, name) == 0)
        return SKR_OK;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *outbox = &config->transports[i];
        if (outbox->relay_to != NULL && strcmp(outbox->relay_to, name) == 0)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "'%.80s' is a broker, and no consumer of it had "
                            "this message; to publish it there name the outbox "
                            "with --to=%.80s",
                            name, outbox->name);
    }
    return SKR_OK;
}

// to: the name of a transport that takes the place of the original one; NULL:
// none. SKR_INVALID says why it cannot go anywhere. Texts live in the arena or
// in the configuration.
static enum skr_code
find_target(const struct skr_failed_session *session,
            const struct skr_failure_report *report, const char *to,
            struct skr_arena *arena, struct target *target,
            struct skr_error *error)
{
    const struct skr_config *config = session->config;
    const char *name = to != NULL ? to : report->transport;
    if (report->is_php)
        return skr_fail(
            error, SKR_REFUSED, SKR_GIVE_UP,
            "it is in PHP's own serialisation, which only PHP "
            "reads; retry it with Symfony's messenger:failed:retry");
    if (name == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "it does not say where it failed; name a transport "
                        "with --to");
    const struct skr_config_transport *transport = NULL;
    if (skr_config_find_transport(config, name, &transport, NULL) != SKR_OK)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "it failed in transport '%.80s', which is not "
                        "configured any more; name another with --to",
                        name);
    if (skr_transport_is_failure(config, transport))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport '%.80s' is the failure_transport; name "
                        "another with --to",
                        name);
    name = transport->name;
    if (transport->kind == SKR_TRANSPORT_OTHER) {
        enum skr_code code = check_is_consumed(config, report, name, error);
        return code != SKR_OK
                   ? code
                   : target_consumers(session, name, arena, target, error);
    }
    *target = (struct target){
        .transport = name,
        .database = transport->database,
        .place = transport->place,
        .outbox = transport,
    };
    return SKR_OK;
}

static enum skr_code
open_target(struct skr_failed_session *session,
            struct skr_failed_source *source,
            const struct skr_config_database *database, struct skr_db **db,
            struct skr_error *error)
{
    // By its URL: a second connection to one SQLite file would wait for the
    // first.
    if (strcmp(source->database->url, database->url) == 0) {
        *db = source->db;
        return SKR_OK;
    }
    struct skr_failed_source *target = session->targets;
    for (; target->db != NULL; target++)
        if (strcmp(target->database->url, database->url) == 0) {
            *db = target->db;
            return SKR_OK;
        }
    enum skr_code code =
        skr_transport_open_database(database, &target->db, error);
    if (code != SKR_OK) {
        skr_error_prefix(error, "database %s", database->name);
        return code;
    }
    target->database = database;
    *db = target->db;
    return SKR_OK;
}

struct move {
    struct skr_failed_session *session;
    struct skr_failed_source *source;
    const struct target *target;
    struct skr_db *to;
    struct skr_arena arena;
    struct skr_text headers;
    const void *body;
    size_t body_size;
    const char *partition_key;  // NULL: none is known
};

static enum skr_code
take_message(const struct skr_failed_row *row, void *user,
             struct skr_error *error)
{
    struct move *move = user;
    struct skr_failure_report report;
    move->body = skr_arena_text(&move->arena, row->body, row->body_size);
    move->body_size = row->body_size;
    if (move->body == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        skr_failure_read(&move->arena, row->headers, row->headers_size,
                         &move->session->config->names, &report, error);
    if (code != SKR_OK)
        return code;
    move->partition_key = report.partition_key;
    skr_text_clear(&move->headers);
    if (report.headers.count > 0)
        return skr_failure_undo(&move->arena, &report.headers, &move->headers,
                                error);
    skr_text_add(&move->headers, row->headers, row->headers_size);
    return move->headers.broken ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
store(const struct move *move, struct skr_error *error)
{
    const struct target *target = move->target;
    // A message without a key has no order, which is the key ''.
    const char *key = move->partition_key == NULL ? "" : move->partition_key;
    bool has_order =
        target->outbox != NULL && skr_ordered_is_meant(target->outbox, NULL);
    const struct skr_messenger_row row = {
        .body = move->body,
        .body_size = move->body_size,
        .headers = move->headers.bytes,
        .headers_size = move->headers.size,
        .partition_key = has_order ? key : NULL,
    };
    enum skr_code code = skr_messenger_insert(skr_db_tx(move->to),
                                              &target->place, &row, 1, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_GIVE_UP,
                        "there is no table %s in database %s; run `skirnir "
                        "setup`",
                        target->place.table, target->database->name);
    return code;
}

static enum skr_code
store_elsewhere(const struct move *move, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(move->to, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = store(move, error);
    return skr_db_end(move->to, code, error);
}

static enum skr_code
move_in_transaction(struct move *move, int64_t id, struct skr_error *error)
{
    const struct skr_failed_rows *rows = move->source->rows;
    struct skr_tx tx = skr_db_tx(move->source->db);
    struct skr_failed_wanted wanted = {.id = id};
    enum skr_code code =
        skr_failed_rows_find(rows, tx, &wanted, take_message, move, error);
    // Also where it is not there: that has the words for it. The session that
    // removes the row has it; another session waits here and finds it gone.
    if (code == SKR_OK)
        code = skr_failed_rows_remove(rows, tx, id, error);
    if (code == SKR_OK)
        code = move->to == move->source->db ? store(move, error)
                                            : store_elsewhere(move, error);
    if (code == SKR_OK)
        skr_failpoint("failed.stored");
    return code;
}

// Moves it there: one transaction where both are in one database. Else it is
// stored there first and removed here second, so that a crash in between leaves
// it in both places, with one id, and retrying it again does no harm.
// SKR_MISSING and SKR_REFUSED as skr_failed_rows_remove().
static enum skr_code
move_back(struct skr_failed_session *session, struct skr_failed_source *source,
          int64_t id, const struct target *target, struct skr_error *error)
{
    struct move move = {.session = session, .source = source, .target = target};
    enum skr_code code =
        open_target(session, source, target->database, &move.to, error);
    if (code == SKR_OK) {
        // Other sessions that write the same rows at the same time.
        for (int tries = 0; tries < MOST_TRIES; tries++) {
            code = skr_db_begin(source->db, SKR_BEGIN_WRITE, error);
            if (code == SKR_OK)
                code = skr_db_end(source->db,
                                  move_in_transaction(&move, id, error), error);
            if (code != SKR_CONFLICT)
                break;
        }
    }
    skr_text_fini(&move.headers);
    skr_arena_fini(&move.arena);
    return code;
}

static enum skr_code
remove_one(struct skr_failed_source *source, int64_t id,
           struct skr_error *error)
{
    enum skr_code code = skr_db_begin(source->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code =
        skr_failed_rows_remove(source->rows, skr_db_tx(source->db), id, error);
    return skr_db_end(source->db, code, error);
}

struct change {
    const struct skr_app *app;
    struct skr_failed_session *session;
    struct skr_failed_filter filter;
    size_t id_count;  // of those on the command line
    bool removes;     // else it retries
    bool dry_run;
    const char *to;
    struct skr_progress progress;
    uint64_t total;
    uint64_t done, skipped;
};

static void
say_done(struct change *change, const struct skr_failed_found *found,
         const struct target *target)
{
    const char *name = found->report->name == NULL ? "message without a name"
                                                   : found->report->name;
    bool in_detail = change->id_count > 0 || change->dry_run ||
                     skr_arguments_has(change->app->arguments, "verbose");
    if (!in_detail)
        return;
    skr_progress_clear(&change->progress);
    printf("%lld: ", (long long)found->row->id);
    skr_print_plain(name, strlen(name), false, stdout);
    if (change->removes)
        printf(" %s\n", change->dry_run ? "would be removed" : "removed");
    else
        printf(" %s %s (queue %s of %s)\n",
               change->dry_run ? "would go back to" : "back to",
               target->transport, target->place.queue, target->place.table);
    // Before the bar, which is not buffered, is drawn again.
    if (change->progress.is_shown)
        fflush(stdout);
}

// What is wrong with one message is said and does not stop the others; what
// is wrong with a database does.
static enum skr_code
change_one(const struct skr_failed_found *found, void *user,
           struct skr_error *error)
{
    struct change *change = user;
    struct target target = {.transport = NULL};
    struct skr_arena arena = {0};
    struct skr_error reason = {0};
    enum skr_code code = SKR_OK;
    int64_t id = found->row->id;
    if (!change->removes)
        code = find_target(change->session, found->report, change->to, &arena,
                           &target, &reason);
    if (code == SKR_OK && !change->dry_run)
        code = change->removes ? remove_one(found->source, id, &reason)
                               : move_back(change->session, found->source, id,
                                           &target, &reason);
    if (code == SKR_OK) {
        change->done++;
        say_done(change, found, &target);
    } else if (code == SKR_MISSING || code == SKR_REFUSED ||
               code == SKR_INVALID || code == SKR_MALFORMED) {
        // On the output stands what is done, which can be counted there.
        change->skipped++;
        skr_progress_clear(&change->progress);
        fprintf(stderr, "%lld: ", (long long)id);
        skr_print_plain(reason.text, strlen(reason.text), false, stderr);
        fprintf(stderr, "\n");
        code = SKR_OK;
    } else {
        skr_fail_with(error, &reason);
    }
    skr_arena_fini(&arena);
    if (code == SKR_OK && !skr_progress_step(&change->progress, 1))
        return SKR_STOPPED;
    return code;
}

static enum skr_code
change_named(struct change *change, struct skr_error *error)
{
    for (size_t i = 0; i < change->id_count && !skr_progress_is_stopped();
         i++) {
        struct skr_error reason = {0};
        int64_t id = 0;
        enum skr_code code = skr_failed_read_id(
            change->app->arguments->positional[i], &id, &reason);
        if (code == SKR_OK)
            code = skr_failed_find(change->session, id, change_one, change,
                                   &reason);
        if (code == SKR_MISSING || code == SKR_INVALID) {
            change->skipped++;
            skr_progress_clear(&change->progress);
            fprintf(stderr, "%s\n", reason.text);
        } else if (code != SKR_OK && code != SKR_STOPPED) {
            return skr_fail_with(error, &reason);
        }
    }
    return SKR_OK;
}

static enum skr_code
count_one(const struct skr_failed_found *found, void *user,
          struct skr_error *error)
{
    (void)found;
    (void)error;
    ++*(uint64_t *)user;
    return SKR_OK;
}

// For the bar and for the question; without them the command does not wait for
// it.
static enum skr_code
count(struct change *change, bool is_asked, struct skr_error *error)
{
    change->total = change->id_count;
    if (change->id_count > 0 || (!is_asked && !isatty(STDERR_FILENO)))
        return SKR_OK;
    return skr_failed_each(change->session, &change->filter, false, count_one,
                           &change->total, error);
}

static bool
is_confirmed(const struct change *change)
{
    char question[80];
    snprintf(question, sizeof(question), "Remove %llu message%s for good?",
             (unsigned long long)change->total, change->total == 1 ? "" : "s");
    return skr_ask(question);
}

static void
print_summary(const struct change *change)
{
    const char *what = change->removes ? "removed" : "retried";
    printf("%llu message%s %s%s", (unsigned long long)change->done,
           change->done == 1 ? "" : "s", change->dry_run ? "would be " : "",
           what);
    if (change->skipped > 0)
        printf(", %llu left alone", (unsigned long long)change->skipped);
    printf("%s.\n", skr_progress_is_stopped() ? "; interrupted" : "");
}

static enum skr_code
change_all(struct change *change, struct skr_error *error)
{
    const struct skr_arguments *arguments = change->app->arguments;
    bool is_asked = change->removes && !change->dry_run &&
                    !skr_arguments_has(arguments, "force");
    enum skr_code code = count(change, is_asked, error);
    if (code != SKR_OK)
        return code;
    if (is_asked && change->total > 0 && !is_confirmed(change)) {
        printf("Nothing was removed.\n");
        return SKR_OK;
    }
    skr_progress_catch_signals();
    skr_progress_begin(&change->progress, change->total,
                       (uint32_t)skr_arguments_number(arguments, "rate", 0));
    code = change->id_count > 0
               ? change_named(change, error)
               : skr_failed_each(change->session, &change->filter, false,
                                 change_one, change, error);
    skr_progress_end(&change->progress);
    print_summary(change);
    // Blocked heads stand in their outbox, and of filters only the transport
    // chooses among them.
    struct skr_failed_filter others = change->filter;
    others.transport = NULL;
    if (code == SKR_OK && !change->removes && change->id_count == 0 &&
        skr_failed_filter_is_empty(&others))
        code = skr_blocked_remind(change->session->config,
                                  change->filter.transport, error);
    if (code == SKR_OK && skr_progress_is_stopped())
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "interrupted; what was done is done, and running it "
                        "again does the rest");
    if (code == SKR_OK && change->skipped > 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%llu message%s left alone, for the reasons above",
                        (unsigned long long)change->skipped,
                        change->skipped == 1 ? " was" : "s were");
    return code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    struct skr_failed_session session;
    struct change change = {
        .app = app,
        .session = &session,
        .id_count = arguments->positional_count,
        .removes = app->command->run == skr_command_failed_remove,
        .dry_run = skr_arguments_has(arguments, "dry-run"),
        .to = skr_arguments_find(arguments, "to"),
    };
    const struct skr_config_transport *unused = NULL;
    enum skr_code code = SKR_OK;
    if (change.to != NULL)
        code = skr_config_find_transport(config, change.to, &unused, error);
    skr_failed_filter_read(arguments, &change.filter);
    if (code == SKR_OK)
        code = skr_failed_filter_check(app, &change.filter, config, error);
    if (code == SKR_OK)
        code = skr_failed_open(&session, config,
                               skr_arguments_find(arguments, "database"), NULL,
                               error);
    if (code != SKR_OK)
        return code;
    code = change_all(&change, error);
    skr_failed_close(&session);
    return code;
}

// Which messages are meant has to be said, and in one way.
static bool
says_which(struct skr_app *app, enum skr_exit *exit_code)
{
    int64_t id;
    size_t count = app->arguments->positional_count;
    struct skr_failed_filter filter;
    struct skr_error error;
    bool all = skr_arguments_has(app->arguments, "all");
    skr_failed_filter_read(app->arguments, &filter);
    bool filters = !skr_failed_filter_is_empty(&filter);
    const char *mistake = NULL;
    for (size_t i = 0; i < count && mistake == NULL; i++)
        if (skr_failed_read_id(app->arguments->positional[i], &id, &error) !=
            SKR_OK)
            mistake = error.text;
    if (mistake == NULL && count == 0 && !all && !filters)
        mistake = "which messages? Give their numbers, a filter such as "
                  "--transport, or --all";
    else if (mistake == NULL && count > 0 && (all || filters))
        mistake = "numbers and filters exclude each other";
    if (mistake != NULL)
        *exit_code = skr_app_usage(app, "%s", mistake);
    return mistake == NULL;
}

enum skr_exit
skr_command_failed_retry(struct skr_app *app)
{
    enum skr_exit exit_code = SKR_EXIT_OK;
    // They are in an outbox still, and stay there.
    if (app->arguments->positional_count > 0 &&
        skr_blocked_is_name(app->arguments->positional[0]))
        return skr_app_run_configured(app, skr_blocked_retry);
    if (!says_which(app, &exit_code))
        return exit_code;
    return skr_app_run_configured(app, run);
}

enum skr_exit
skr_command_failed_remove(struct skr_app *app)
{
    enum skr_exit exit_code = SKR_EXIT_OK;
    if (!says_which(app, &exit_code))
        return exit_code;
    if (!isatty(STDIN_FILENO) && !skr_arguments_has(app->arguments, "force") &&
        !skr_arguments_has(app->arguments, "dry-run"))
        return skr_app_usage(app, "there is no terminal to ask on; --force "
                                  "removes without asking");
    return skr_app_run_configured(app, run);
}
