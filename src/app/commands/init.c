// SPDX-License-Identifier: MIT
// `skirnir init`: writes a first configuration, the SQL of its tables and units
// for systemd, and names what to run next.

#include "app/app.h"
#include "app/console/progress.h"
#include "app/drivers.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER_SIZE = 1000, MOST_FILES = 4 };

struct answers {
    char database[ANSWER_SIZE];
    char broker[ANSWER_SIZE];  // "": a table in the database
    bool keeps_order;
    bool has_secret;
};

static const char head[] =
    "# Written by `skirnir init`. skirnir.yaml(5) explains every key, and\n"
    "# `skirnir config check` tells whether a change is right.\n";

static const char secret_head[] =
    "# It holds a password: only its owner may read it. %env(NAME)% and\n"
    "# %env(file:NAME)% take values from elsewhere.\n";

static const char rest[] =
    "    # What cannot be delivered or handled: see `skirnir failed show`.\n"
    "    failed: 'doctrine://default?queue_name=failed'\n"
    "failure_transport: failed\n"
    "\n"
    "handlers:\n"
    "    # What is done with the messages of this name, in the transaction "
    "that\n"
    "    # records their ids. Put your own statement, command or library "
    "here.\n"
    "    order.placed:\n"
    "        sql: 'SELECT :body'\n";

static const char exchange[] =
    "        options:\n"
    "            exchange: {name: orders, type: topic}\n"
    "            queues:\n"
    "                orders: {binding_keys: ['#']}\n";

static const char topic[] = "        options:\n"
                            "            topics: [order.placed]\n"
                            "            group: orders\n";

// What YAML would change, or is cut, is no DSN.
static enum skr_code
set(char answer[ANSWER_SIZE], const char *option, const char *value,
    struct skr_error *error)
{
    size_t size = strlen(value);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)value[i] < ' ')
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "--%s has a line break or another control "
                            "character",
                            option);
    if (size >= ANSWER_SIZE)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--%s has more than %d bytes", option, ANSWER_SIZE - 1);
    memcpy(answer, value, size + 1);
    return SKR_OK;
}

// An empty answer leaves what is there.
static enum skr_code
ask(const char *question, const char *option, char answer[ANSWER_SIZE],
    struct skr_error *error)
{
    char *line = NULL;
    size_t capacity = 0;
    fprintf(stderr, "%s [%s]: ", question, answer[0] == '\0' ? "-" : answer);
    ssize_t size = getline(&line, &capacity, stdin);
    enum skr_code code = SKR_OK;
    if (size < 0)
        code = skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "nothing is written, as there was no answer");
    else
        line[strcspn(line, "\r\n")] = '\0';
    if (code == SKR_OK && line[0] != '\0')
        code = set(answer, option, line, error);
    free(line);
    return code;
}

static enum skr_code
take(char answer[ANSWER_SIZE], const struct skr_app *app, const char *option,
     struct skr_error *error)
{
    const char *value = skr_arguments_find(app->arguments, option);
    return value == NULL ? SKR_OK : set(answer, option, value, error);
}

static enum skr_code
read_answers(const struct skr_app *app, struct answers *answers,
             struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    bool asks =
        isatty(STDIN_FILENO) && !skr_arguments_has(arguments, "database");
    if (!asks && !skr_arguments_has(arguments, "database"))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is no terminal to ask on; give --database, as "
                        "in --database=sqlite:///shop.db");
    *answers = (struct answers){
        .database = "sqlite:///shop.db",
        .keeps_order = skr_arguments_has(arguments, "ordered"),
    };
    enum skr_code code = take(answers->database, app, "database", error);
    if (code == SKR_OK)
        code = take(answers->broker, app, "broker", error);
    if (code != SKR_OK)
        return code;
    if (asks)
        code = ask("The application's database, a DSN", "database",
                   answers->database, error);
    if (asks && code == SKR_OK)
        code = ask("The broker, a DSN, or - for a table in that database",
                   "broker", answers->broker, error);
    if (code != SKR_OK)
        return code;
    if (asks && !answers->keeps_order)
        answers->keeps_order =
            skr_ask("Must messages that share a key stay in order?");
    if (strcmp(answers->broker, "-") == 0)
        answers->broker[0] = '\0';
    answers->has_secret = skr_url_has_secret(answers->database) ||
                          skr_url_has_secret(answers->broker);
    return SKR_OK;
}

// A word of a unit, between double quotes.
static void
add_quoted(struct skr_text *text, const char *before, const char *from)
{
    skr_text_add_format(text, "\"%s", before);
    for (; *from != '\0'; from++) {
        if (*from == '"' || *from == '\\')
            skr_text_add_string(text, "\\");
        else if (*from == '%' || *from == '$')
            skr_text_add(text, from, 1);
        skr_text_add(text, from, 1);
    }
    skr_text_add_string(text, "\"");
}

// With a character doubled, as YAML and systemd have it.
static void
add_doubled(struct skr_text *text, const char *from, char doubled)
{
    for (; *from != '\0'; from++)
        skr_text_add(text, (const char[]){*from, *from},
                     *from == doubled ? 2 : 1);
}

static void
write_configuration(const struct answers *answers, struct skr_text *text)
{
    const char *dsn = answers->broker[0] == '\0'
                          ? "queue://default?queue_name=orders"
                          : answers->broker;
    char scheme_name[32];  // what is cut is no scheme that is known
    snprintf(scheme_name, sizeof(scheme_name), "%.*s", (int)strcspn(dsn, ":"),
             dsn);
    const struct skr_scheme *scheme = skr_driver_scheme(scheme_name);
    skr_text_add_format(text, "%s%s", head,
                        answers->has_secret ? secret_head : "");
    skr_text_add_format(text, "databases:\n    default: '");
    add_doubled(text, answers->database, '\'');
    skr_text_add_format(
        text,
        "'\n"
        "\n"
        "transports:\n"
        "    # The table that the application writes messages into, in the\n"
        "    # transactions of its own data; `skirnir relay outbox` takes "
        "them.\n"
        "    outbox:\n"
        "        dsn: '%sdoctrine://default?table_name=messenger_outbox"
        "&queue_name=outbox'\n"
        "        relay_to: orders\n"
        "    # Where they go to; `skirnir consume orders` handles them.\n"
        "    orders:\n"
        "        dsn: '",
        answers->keeps_order ? "ordered-" : "");
    add_doubled(text, dsn, '\'');
    skr_text_add_format(text, "'\n%s%s",
                        scheme->has_exchanges ? exchange
                        : scheme->has_topics  ? topic
                                              : "",
                        rest);
}

static void
write_unit(const char *program, const char *path, const char *worker,
           const char *transport, struct skr_text *text)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    const struct passwd *user = getpwuid(geteuid());
    skr_text_add_format(text,
                        "# Written by `skirnir init`; to be copied into "
                        "/etc/systemd/system.\n"
                        "[Unit]\n"
                        "Description=Skirnir %s %s\n"
                        "After=network-online.target\n"
                        "Wants=network-online.target\n"
                        "StartLimitIntervalSec=0\n"
                        "\n"
                        "[Service]\n"
                        "Type=notify\n"
                        "ExecStart=",
                        worker, transport);
    add_quoted(text, "", program);
    skr_text_add_format(text, " %s %s ", worker, transport);
    add_quoted(text, "--config=", path);
    skr_text_add_format(text, "\nWorkingDirectory=");
    add_doubled(text, dirname(folder), '%');
    skr_text_add_format(text,
                        "\n"
                        "User=%s\n"
                        "TimeoutStartSec=2min\n"
                        "TimeoutStopSec=20\n"
                        "WatchdogSec=60\n"
                        "KillMode=mixed\n"
                        "Restart=always\n"
                        "RestartSec=2\n"
                        "RestartPreventExitStatus=2 3\n"
                        "NoNewPrivileges=yes\n"
                        "\n"
                        "[Install]\n"
                        "WantedBy=multi-user.target\n",
                        user == NULL ? "root" : user->pw_name);
}

// What was written so far; it is removed again should the rest fail.
struct files {
    char paths[MOST_FILES][PATH_MAX];
    size_t count;
};

static enum skr_code
write_file(struct files *files, const char *path, const char *bytes,
           mode_t mode, struct skr_error *error)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "%s: %s%s", path,
                        strerror(errno),
                        errno == EEXIST ? "; remove it, or name another "
                                          "configuration with --config"
                                        : "");
    snprintf(files->paths[files->count++], PATH_MAX, "%s", path);
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        close(fd);
        return skr_fail_memory(error);
    }
    bool ok = fputs(bytes, file) >= 0;
    if (fclose(file) != 0 || !ok)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "%s: %s", path,
                        strerror(errno));
    return SKR_OK;
}

// Transports share tables: what is there already is not made again.
static enum skr_code
add_sql(const char *sql, void *user, struct skr_error *error)
{
    (void)error;
    struct skr_text *text = user;
    if (text->bytes == NULL || strstr(text->bytes, sql) == NULL)
        skr_text_add_format(text, "%s;\n", sql);
    return SKR_OK;
}

// The file's name with another ending: "shop.yaml" becomes
// "shop-relay.service".
static void
name_beside(const char *path, const char *ending, char name[PATH_MAX])
{
    const char *base = strrchr(path, '/');
    const char *dot = strrchr(base == NULL ? path : base, '.');
    size_t size = dot == NULL ? strlen(path) : (size_t)(dot - path);
    snprintf(name, PATH_MAX, "%.*s%s", (int)size, path, ending);
}

static enum skr_code
write_units(struct files *files, const char *path, struct skr_error *error)
{
    static const char *const units[][3] = {
        {"relay", "outbox", "-relay.service"},
        {"consume", "orders", "-consume.service"},
    };
    char program[PATH_MAX] = "/usr/bin/skirnir", full[PATH_MAX], name[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (size > 0)
        program[size] = '\0';
    if (realpath(path, full) == NULL)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, "%s: %s", path,
                        strerror(errno));
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(units) && code == SKR_OK; i++) {
        struct skr_text text = {0};
        write_unit(program, full, units[i][0], units[i][1], &text);
        name_beside(path, units[i][2], name);
        code = text.broken ? skr_fail_memory(error)
                           : write_file(files, name, text.bytes, 0644, error);
        skr_text_fini(&text);
    }
    return code;
}

static enum skr_code
write_files(const char *path, const struct skr_text *text,
            const struct answers *answers, const struct skr_config *config,
            struct skr_error *error)
{
    struct files files = {.count = 0};
    struct skr_text sql = {0};
    char name[PATH_MAX];
    name_beside(path, ".sql", name);
    enum skr_code code = skr_config_give_sql(config, add_sql, &sql, error);
    if (code == SKR_OK && sql.broken)
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        code = write_file(&files, path, text->bytes,
                          answers->has_secret ? 0600 : 0644, error);
    if (code == SKR_OK)
        code = write_file(&files, name, sql.bytes, 0644, error);
    if (code == SKR_OK)
        code = write_units(&files, path, error);
    for (size_t i = 0; i < files.count && code != SKR_OK; i++)
        unlink(files.paths[i]);
    for (size_t i = 0; i < files.count && code == SKR_OK; i++)
        printf("%s is written\n", files.paths[i]);
    skr_text_fini(&sql);
    return code;
}

static void
say_next(const struct skr_app *app, const char *path,
         const struct answers *answers)
{
    char full[PATH_MAX];
    printf("\nNext:\n");
    if (skr_arguments_has(app->arguments, "config") &&
        realpath(path, full) != NULL) {
        printf("  export SKIRNIR_CONFIG='");
        for (const char *at = full; *at != '\0'; at++)
            printf(*at == '\'' ? "'\\''" : "%c", *at);
        printf("'\n");
    }
    printf("  skirnir setup && skirnir setup-deduplication --force\n"
           "  skirnir publish order.placed --body '{\"orderId\":1}'%s\n"
           "  skirnir relay outbox --stop-when-empty && skirnir consume orders "
           "--stop-when-empty\n",
           answers->keeps_order ? " --partition-key=order-1" : "");
}

// The user knows the option, and not yet the key that it becomes.
static void
print_mistake(void *user, enum skr_config_severity severity, const char *path,
              int line, const char *text)
{
    static const char *const keys[][2] = {
        {"databases.default", "--database"},
        {"transports.orders.dsn", "--broker"},
        {"transports.orders", "--broker"},
        {"transports.outbox.relay_to", "--broker"},
    };
    const struct skr_app *app = user;
    const char *option = "";
    (void)path;
    (void)line;
    for (size_t i = 0; i < SKR_COUNT_OF(keys) && option[0] == '\0'; i++) {
        size_t size = strlen(keys[i][0]);
        if (strncmp(text, keys[i][0], size) == 0) {
            option = keys[i][1];
            text += size;
        }
    }
    if (severity == SKR_CONFIG_MISTAKE)
        skr_output_say(app->output, SKR_LOG_ERROR, "skirnir init: %s%s", option,
                       text);
}

enum skr_exit
skr_command_init(struct skr_app *app)
{
    const char *path = skr_arguments_find(app->arguments, "config");
    struct answers answers;
    struct skr_text text = {0};
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    // As commands look for it.
    if (path == NULL)
        path = getenv("SKIRNIR_CONFIG");
    if (path == NULL || path[0] == '\0')
        path = "skirnir.yaml";
    enum skr_code code = read_answers(app, &answers, &error);
    if (code != SKR_OK)
        return skr_app_fail(app, &error);
    write_configuration(&answers, &text);
    const struct skr_config_listener listener = {print_mistake, app};
    code = text.broken ? skr_fail_memory(&error)
                       : skr_config_parse(text.bytes, text.size, path, listener,
                                          &config, &error);
    if (code == SKR_OK)
        code = write_files(path, &text, &answers, config, &error);
    skr_config_free(config);
    skr_text_fini(&text);
    if (code == SKR_INVALID && config == NULL)
        return SKR_EXIT_CONFIG;
    if (code != SKR_OK)
        return skr_app_fail(app, &error);
    say_next(app, path, &answers);
    return SKR_EXIT_OK;
}
