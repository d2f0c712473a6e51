// SPDX-License-Identifier: MIT
// Parses options of a command and of the program, checks their values by type,
// and prints --help from the same table.

#include "app/console/options.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct skr_option skr_global_options[] = {
    {"config", 'c', "FILE",
     "the configuration; else SKIRNIR_CONFIG, else "
     "skirnir.yaml here or in /etc/skirnir",
     .kind = SKR_OPTION_TEXT},
    {"quiet", 'q', NULL, "say errors only", .kind = SKR_OPTION_FLAG},
    {"verbose", 'v', NULL, "say more; -vv also tells of each message",
     .kind = SKR_OPTION_FLAG},
    {"log-format", '\0', "FORMAT", "text, or json: an object a line",
     .kind = SKR_OPTION_CHOICE, .choices = "text json"},
    {"help", 'h', NULL, "explain the command", .kind = SKR_OPTION_FLAG},
    {"version", 'V', NULL, "print version and drivers",
     .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option *
find_long(const struct skr_option *options, const char *name, size_t length)
{
    for (; options != NULL && options->name != NULL; options++)
        if (strncmp(options->name, name, length) == 0 &&
            options->name[length] == '\0')
            return options;
    return NULL;
}

static const struct skr_option *
find_letter(const struct skr_option *options, char letter)
{
    for (; options != NULL && options->name != NULL; options++)
        if (options->letter == letter)
            return options;
    return NULL;
}

// As PHP writes sizes.
static bool
parse_size(const char *text, uint64_t *bytes)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    default: break;
    }
    if (shift > 0)
        end++;
    // strtoull() also takes blanks and signs.
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        number == 0 || number > UINT64_MAX >> shift)
        return false;
    *bytes = (uint64_t)number << shift;
    return true;
}

static bool
read_ago(const char *text, int64_t *seconds)
{
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t size = strlen(text);
    char digits[16];
    int64_t number = 0;
    if (size < 2 || size > sizeof(digits))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)size - 1, text);
    if (!skr_text_number(digits, 1, 1000000000, &number))
        return false;
    for (size_t i = 0; i < SKR_COUNT_OF(units); i++)
        if (text[size - 1] == units[i].letter) {
            *seconds = number * units[i].seconds;
            return true;
        }
    return false;
}

// What "true", "1", "f" or "off" says; false: nothing of the kind.
static bool
read_truth(const char *text, bool *is_true)
{
    // Go's programs, whose command lines are taken, know these as well.
    if (strcasecmp(text, "t") == 0)
        text = "true";
    else if (strcasecmp(text, "f") == 0)
        text = "false";
    return skr_text_boolean(text, is_true);
}

// Digits and at most a point, whatever the locale writes; in milliseconds.
static bool
parse_seconds(const char *text, int64_t most_s, uint32_t *ms)
{
    size_t whole = strspn(text, "0123456789");
    size_t part =
        text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    size_t length = whole + part + (text[whole] == '.');
    if (whole + part == 0 || whole > 9 || text[length] != '\0')
        return false;
    int64_t number = 0;
    for (size_t i = 0; i < whole; i++)
        number = number * 10 + (text[i] - '0');
    for (size_t i = 0; i < 3; i++)
        number = number * 10 + (i < part ? text[whole + 1 + i] - '0' : 0);
    *ms = (uint32_t)number;
    return number > 0 && number <= most_s * 1000;
}

static bool
is_since(const char *text)
{
    char whole[SKR_TIMESTAMP_SIZE];
    int64_t number;
    if (read_ago(text, &number))
        return true;
    bool is_day = strlen(text) == strlen("2026-11-15");
    if (!is_day && strlen(text) != SKR_TIMESTAMP_SIZE - 1)
        return false;
    snprintf(whole, sizeof(whole), "%s%s", text, is_day ? " 00:00:00" : "");
    return skr_clock_parse_timestamp(whole, &number);
}

// Which of the words it is, from 0; negative: none.
static int
find_choice(const char *choices, const char *value)
{
    size_t size = strlen(value);
    int index = 0;
    for (const char *at = choices; *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == size && strncmp(at, value, size) == 0)
            return index;
        at += length;
        index++;
    }
    return -1;
}

static enum skr_code
check_id(const struct skr_option *option, const char *value,
         struct skr_error *error)
{
    static const struct skr_id none;
    struct skr_id id;
    enum skr_code code = skr_id_parse(value, &id, error);
    if (code == SKR_OK && memcmp(&id, &none, sizeof(id)) == 0)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "an id of zeros stands for no id; leave it out to "
                        "have one made");
    if (code != SKR_OK)
        skr_error_prefix(error, "--%s", option->name);
    return code;
}

static bool
is_good(const struct skr_option *option, const char *value)
{
    int64_t number;
    uint64_t size;
    uint32_t ms;
    uint16_t first, last;
    bool is_true;
    switch (option->kind) {
    case SKR_OPTION_FLAG:
    case SKR_OPTION_TEXT:
    case SKR_OPTION_ID: return true;
    case SKR_OPTION_SWITCH: return value == NULL || read_truth(value, &is_true);
    case SKR_OPTION_CHOICE: return find_choice(option->choices, value) >= 0;
    case SKR_OPTION_SINCE: return is_since(value);
    case SKR_OPTION_NUMBER:
        return skr_text_number(value, option->least, option->most, &number);
    case SKR_OPTION_PORTS: return skr_text_ports(value, &first, &last);
    case SKR_OPTION_SECONDS: return parse_seconds(value, option->most, &ms);
    case SKR_OPTION_SIZE: return parse_size(value, &size);
    case SKR_OPTION_PAIR: return strchr(value, '=') > value;
    }
    abort();
}

static void
describe_needed(const struct skr_option *option, char *text, size_t size)
{
    static const char *const needed[] = {
        [SKR_OPTION_SWITCH] = "true or false is needed",
        [SKR_OPTION_SINCE] = "15m, 2h, 7d, a day such as 2026-11-15, or "
                             "'2026-11-15 02:53:45' is needed",
        [SKR_OPTION_PORTS] =
            "a port from 0 to 65535, or a range such as 9187-9197 is needed",
        [SKR_OPTION_SIZE] = "a size such as 128M is needed",
    };
    char most[48] = "";
    if (option->most < INT64_MAX)
        snprintf(most, sizeof(most), " to %lld", (long long)option->most);
    if (option->kind == SKR_OPTION_CHOICE)
        snprintf(text, size, "one of these is needed: %s", option->choices);
    else if (option->kind == SKR_OPTION_NUMBER)
        snprintf(text, size, "%s, a whole number from %lld%s, is needed",
                 option->value, (long long)option->least, most);
    else if (option->kind == SKR_OPTION_SECONDS)
        snprintf(text, size, "seconds from 0.001%s are needed", most);
    else if (option->kind == SKR_OPTION_PAIR)
        snprintf(text, size, "%s is needed", option->value);
    else
        snprintf(text, size, "%s", needed[option->kind]);
}

static enum skr_code
check_value(const struct skr_option *option, const char *value,
            struct skr_error *error)
{
    char needed[120];
    if (option->kind == SKR_OPTION_ID)
        return check_id(option, value, error);
    if (is_good(option, value))
        return SKR_OK;
    describe_needed(option, needed, sizeof(needed));
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "--%s=%.80s: %s",
                    option->name, value, needed);
}

// Keeps a copy of the value and writes over what the list of processes shows.
static enum skr_code
take_secret(struct skr_arguments *arguments, char *value, const char **kept,
            struct skr_error *error)
{
    char *copy = strdup(value);
    if (copy == NULL)
        return skr_fail_memory(error);
    memset(value, '*', strlen(value));
    arguments->secrets[arguments->secret_count++] = copy;
    *kept = copy;
    return SKR_OK;
}

enum skr_code
skr_arguments_give(struct skr_arguments *arguments,
                   const struct skr_option *option, const char *value,
                   struct skr_error *error)
{
    if (arguments->given_count == SKR_MAX_GIVEN)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "too many options");
    enum skr_code code =
        option->ignored != NULL ? SKR_OK : check_value(option, value, error);
    if (code == SKR_OK)
        arguments->given[arguments->given_count++] =
            (struct skr_given){.option = option, .value = value};
    return code;
}

static enum skr_code
add(struct skr_arguments *arguments, const struct skr_option *option,
    char *value, struct skr_error *error)
{
    enum skr_code code = skr_arguments_give(arguments, option, value, error);
    if (code == SKR_OK && option->is_secret)
        code = take_secret(arguments, value,
                           &arguments->given[arguments->given_count - 1].value,
                           error);
    return code;
}

enum skr_code
skr_arguments_read_environment(const struct skr_command *command,
                               struct skr_arguments *arguments,
                               struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (const struct skr_option *option = command->options;
         option->name != NULL && code == SKR_OK; option++) {
        const char *value =
            option->variable == NULL ? NULL : getenv(option->variable);
        if (value == NULL || value[0] == '\0' ||
            skr_arguments_has(arguments, option->name))
            continue;
        code = skr_arguments_give(arguments, option, value, error);
        if (code != SKR_OK)
            skr_error_prefix(error, "%s in the environment", option->variable);
    }
    return code;
}

// Gives an option that needs a value the next argument.
static enum skr_code
take_value(const struct skr_option *option, int argc, char **argv, int *at,
           char **value, struct skr_error *error)
{
    if (*at + 1 >= argc)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--%s needs a value: --%s=%s", option->name,
                        option->name, option->value);
    *value = argv[++*at];
    return SKR_OK;
}

// Options of a command stand behind its name: own is NULL before that.
static enum skr_code
refuse_long(const struct skr_option *own, const char *name, size_t length,
            struct skr_error *error)
{
    char written[64];
    snprintf(written, sizeof(written), "%.*s", (int)length, name);
    struct skr_nearest nearest = {.name = written};
    const struct skr_option *const tables[] = {own, skr_global_options};
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++)
        for (const struct skr_option *option = tables[i];
             option != NULL && option->name != NULL; option++)
            skr_nearest_compare(&nearest, option->name, option->name);
    if (nearest.meant != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "unknown option --%s, did you mean --%s?", written,
                        nearest.meant);
    return skr_fail(
        error, SKR_INVALID, SKR_GIVE_UP, "unknown option --%s%s", written,
        own == NULL ? "; one of a command stands behind its name" : "");
}

static enum skr_code
parse_long(const struct skr_option *own, int argc, char **argv, int *at,
           struct skr_arguments *arguments, struct skr_error *error)
{
    char *name = argv[*at] + (argv[*at][1] == '-' ? 2 : 1);
    size_t length = strcspn(name, "=");
    const struct skr_option *option = find_long(own, name, length);
    if (option == NULL)
        option = find_long(skr_global_options, name, length);
    if (option == NULL)
        return refuse_long(own, name, length, error);
    char *value = name[length] == '=' ? name + length + 1 : NULL;
    if (option->value == NULL && value != NULL &&
        option->kind != SKR_OPTION_SWITCH && option->ignored == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "--%s takes no value",
                        option->name);
    enum skr_code code = SKR_OK;
    if (option->value != NULL && value == NULL)
        code = take_value(option, argc, argv, at, &value, error);
    return code != SKR_OK ? code : add(arguments, option, value, error);
}

// "-limit=3", which would be -l with the value "imit=3".
static enum skr_code
refuse_one_dash(const struct skr_option *own, const char *argument,
                struct skr_error *error)
{
    const char *name = argument + 1;
    size_t length = strcspn(name, "=");
    if (length < 2 || (find_long(own, name, length) == NULL &&
                       find_long(skr_global_options, name, length) == NULL))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "-%.60s has one dash too few: write -%.60s", name,
                    argument);
}

// "-vvc FILE" or "-vvcFILE": flags, then at most one option with a value.
static enum skr_code
parse_letters(const struct skr_option *own, int argc, char **argv, int *at,
              struct skr_arguments *arguments, struct skr_error *error)
{
    enum skr_code code = refuse_one_dash(own, argv[*at], error);
    if (code != SKR_OK)
        return code;
    for (char *letter = argv[*at] + 1; *letter != '\0'; letter++) {
        const struct skr_option *option = find_letter(own, *letter);
        if (option == NULL)
            option = find_letter(skr_global_options, *letter);
        if (option == NULL)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "unknown option -%c", *letter);
        char *value = NULL;
        bool takes_rest = option->value != NULL && letter[1] != '\0';
        if (takes_rest)
            value = letter + 1;
        else if (option->value != NULL)
            code = take_value(option, argc, argv, at, &value, error);
        if (code == SKR_OK)
            code = add(arguments, option, value, error);
        if (code != SKR_OK || takes_rest || option->value != NULL)
            break;
    }
    return code;
}

// Whether what follows one dash are flags by their letters, or a single letter.
static bool
are_letters(const struct skr_option *own, const char *text)
{
    if (text[1] == '\0')
        return true;
    for (; *text != '\0'; text++) {
        const struct skr_option *option = find_letter(own, *text);
        if (option == NULL)
            option = find_letter(skr_global_options, *text);
        if (option == NULL || option->value != NULL)
            return false;
    }
    return true;
}

static bool
is_long(const struct skr_command *command, const char *argument)
{
    return strncmp(argument, "--", 2) == 0 ||
           (command != NULL && command->takes_one_dash &&
            !are_letters(command->options, argument + 1));
}

static enum skr_code
check_count(const struct skr_command *command,
            const struct skr_arguments *arguments, struct skr_error *error)
{
    if (skr_arguments_has(arguments, "help") ||
        skr_arguments_has(arguments, "version"))
        return SKR_OK;
    if (arguments->positional_count < command->least_arguments)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "%s is missing",
                        command->arguments);
    if (arguments->positional_count > command->most_arguments)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "'%.60s' is one argument too many",
                        arguments->positional[command->most_arguments]);
    for (const struct skr_option *option = command->options;
         option != NULL && option->name != NULL; option++)
        if (option->required && !skr_arguments_has(arguments, option->name))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "--%s is missing: %s", option->name, option->help);
    return SKR_OK;
}

enum skr_code
skr_arguments_parse(const struct skr_command *command, int argc, char **argv,
                    struct skr_arguments *arguments, int *next,
                    struct skr_error *error)
{
    const struct skr_option *own = command == NULL ? NULL : command->options;
    bool options_ended = false;
    enum skr_code code = SKR_OK;
    int at = 1;
    for (; at < argc && code == SKR_OK; at++) {
        const char *argument = argv[at];
        if (!options_ended && strcmp(argument, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && argument[0] == '-' &&
                   argument[1] != '\0') {
            code = is_long(command, argument)
                       ? parse_long(own, argc, argv, &at, arguments, error)
                       : parse_letters(own, argc, argv, &at, arguments, error);
        } else if (command == NULL) {
            break;
        } else if (arguments->positional_count == SKR_MAX_POSITIONAL) {
            code =
                skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "too many arguments");
        } else {
            arguments->positional[arguments->positional_count++] = argument;
        }
    }
    if (next != NULL)
        *next = at;
    if (code != SKR_OK || command == NULL)
        return code;
    return check_count(command, arguments, error);
}

void
skr_arguments_fini(struct skr_arguments *arguments)
{
    for (size_t i = 0; i < arguments->secret_count; i++) {
        explicit_bzero(arguments->secrets[i], strlen(arguments->secrets[i]));
        free(arguments->secrets[i]);
    }
    arguments->secret_count = 0;
}

const char *
skr_arguments_find(const struct skr_arguments *arguments, const char *name)
{
    for (size_t i = arguments->given_count; i > 0; i--)
        if (strcmp(arguments->given[i - 1].option->name, name) == 0)
            return arguments->given[i - 1].value;
    return NULL;
}

size_t
skr_arguments_count(const struct skr_arguments *arguments, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < arguments->given_count; i++)
        count += strcmp(arguments->given[i].option->name, name) == 0;
    return count;
}

bool
skr_arguments_has(const struct skr_arguments *arguments, const char *name)
{
    return skr_arguments_count(arguments, name) > 0;
}

bool
skr_arguments_is_on(const struct skr_arguments *arguments, const char *name)
{
    const char *value = skr_arguments_find(arguments, name);
    bool is_true = skr_arguments_has(arguments, name);
    if (value != NULL)
        read_truth(value, &is_true);
    return is_true;
}

int64_t
skr_arguments_number(const struct skr_arguments *arguments, const char *name,
                     int64_t fallback)
{
    const char *text = skr_arguments_find(arguments, name);
    int64_t number = fallback;
    if (text != NULL)
        skr_text_number(text, INT64_MIN, INT64_MAX, &number);
    return number;
}

int
skr_arguments_choice(const struct skr_arguments *arguments, const char *name,
                     int fallback)
{
    for (size_t i = arguments->given_count; i > 0; i--) {
        const struct skr_given *given = &arguments->given[i - 1];
        if (strcmp(given->option->name, name) == 0)
            return find_choice(given->option->choices, given->value);
    }
    return fallback;
}

uint64_t
skr_arguments_size(const struct skr_arguments *arguments, const char *name,
                   uint64_t fallback)
{
    const char *text = skr_arguments_find(arguments, name);
    uint64_t size = fallback;
    if (text != NULL)
        parse_size(text, &size);
    return size;
}

uint32_t
skr_arguments_ms(const struct skr_arguments *arguments, const char *name,
                 uint32_t fallback)
{
    const char *text = skr_arguments_find(arguments, name);
    uint32_t ms = fallback;
    if (text != NULL)
        parse_seconds(text, UINT32_MAX / 1000, &ms);
    return ms;
}

struct skr_since
skr_arguments_since(const struct skr_arguments *arguments, const char *name)
{
    const char *text = skr_arguments_find(arguments, name);
    struct skr_since since = {0};
    if (text != NULL && !read_ago(text, &since.ago_s))
        since.at = text;
    return since;
}

static void
print_options(const struct skr_option *options, FILE *out)
{
    for (; options->name != NULL; options++) {
        char names[48];
        snprintf(names, sizeof(names), "%c%c%s--%s%s%s",
                 options->letter == '\0' ? ' ' : '-',
                 options->letter == '\0' ? ' ' : options->letter,
                 options->letter == '\0' ? "  " : ", ", options->name,
                 options->value == NULL ? "" : "=",
                 options->value == NULL ? "" : options->value);
        fprintf(out, "  %-26s %s\n", names, options->help);
    }
}

void
skr_command_help(const struct skr_command *command, FILE *out)
{
    fprintf(out, "Usage: skirnir %s%s%s [options]\n\n%s\n\n", command->name,
            command->arguments[0] == '\0' ? "" : " ", command->arguments,
            command->summary);
    fprintf(out, "%s", command->help);
    if (command->options != NULL) {
        fprintf(out, "\nOptions:\n");
        print_options(command->options, out);
    }
    fprintf(out, "\nFor every command:\n");
    print_options(skr_global_options, out);
}
