// SPDX-License-Identifier: MIT
// The table of all keys of the configuration, and how to look things up in it.

#ifndef SKR_APP_CONFIG_KEYS_H
#define SKR_APP_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct skr_text;

enum skr_config_type {
    SKR_TYPE_MAP,        // of the keys below it
    SKR_TYPE_NAMES,      // a map whose keys the user names
    SKR_TYPE_LIST,       // of what the key below it, *, says
    SKR_TYPE_TRANSPORT,  // a DSN or a map
    SKR_TYPE_DSN,
    SKR_TYPE_TEXT,
    SKR_TYPE_CHOICE,     // text that is one of several words: an enum
    SKR_TYPE_TABLE,      // text that is an identifier
    SKR_TYPE_REFERENCE,  // the name of a transport or a database
    SKR_TYPE_NUMBER,
    SKR_TYPE_SIZE,
    SKR_TYPE_PORTS,  // a port, or a range of them
    SKR_TYPE_DECIMAL,
    SKR_TYPE_BOOLEAN,
    SKR_TYPE_SQL,        // a text or a list of texts
    SKR_TYPE_COMMAND,    // a program, or a list of it and its arguments
    SKR_TYPE_VARIABLES,  // a name, or a list of names, of the environment
    SKR_TYPE_ANYTHING,   // kept as it is
    SKR_TYPE_IGNORED,    // means something to others; named in a warning
};

// The struct that a value goes into. For SKR_TYPE_NAMES: that of its elements.
enum skr_config_scope {
    SKR_SCOPE_NONE,  // the value is checked and kept in the tree only
    SKR_SCOPE_CONFIG,
    SKR_SCOPE_DATABASE,
    SKR_SCOPE_TRANSPORT,
    SKR_SCOPE_MESSAGE_TYPE,
    SKR_SCOPE_HANDLER,
};

// Where the struct skr_config has the elements of such a scope, by offsets.
// Each begins with its name.
struct skr_config_collection {
    size_t elements, count, size;  // size 0: it has none
};
const struct skr_config_collection *
skr_config_collection(enum skr_config_scope scope);

// What null means as the value of a plain key.
enum skr_config_null {
    SKR_NULL_MISTAKE,
    SKR_NULL_ABSENT,
    SKR_NULL_EMPTY,  // a choice of its own, "" in the struct
};

struct skr_config_key {
    const char *path;  // "transports.*.retry_strategy.delay"
    enum skr_config_type type;
    const char *fallback;  // the default, as text; NULL: none
    const char *help;

    enum skr_config_scope scope;
    size_t offset;            // in the struct that scope names
    int64_t least, most;      // of a number or a size
    const char *choices;      // "fail, drop or wait"
    unsigned first_choice;    // the value of the first of them
    const char *former;       // a choice of earlier versions; NULL: none
    const char *read_as;      // and what it is now
    const char *same_as;      // another place of the key with this path
    const char *for_queue;    // the default where the transport is a queue://
    const char *for_inbound;  // and where it is anything but an outbox
    bool required;
    enum skr_config_null null;
    bool table_only;  // known only where the transport is a table
    bool other_only;  // known only where this build has no driver
    bool silent;      // ignored without a warning
    bool unoffered;   // never suggested: there is a plainer way
};

const struct skr_config_key *skr_config_keys(size_t *count);
size_t skr_config_key_index(const struct skr_config_key *key);

// "whole number", for the manual and `skirnir config keys`, and "a whole
// number", for mistakes: by enum skr_config_type.
struct skr_config_type_words {
    const char *text, *needed;
};
extern const struct skr_config_type_words skr_config_types[];

// "whole number, default 100. What it means.": the manual says the same.
void
skr_config_describe(const struct skr_config_key *key, struct skr_text *text);

// The value of one of the words of "fail, drop or wait"; false: it is none.
bool skr_config_find_choice(const struct skr_config_key *key, const char *word,
                            unsigned *value);
// The word that has this value.
enum { SKR_CHOICE_SIZE = 16 };
const char *skr_config_choice_word(const struct skr_config_key *key,
                                   unsigned value, char word[SKR_CHOICE_SIZE]);

// NULL when there is no such path; it is spelled as in the table.
const struct skr_config_key *skr_config_find_key(const char *path);
// Whether key stands directly below parent; parent NULL is the top.
bool skr_config_is_child(const struct skr_config_key *parent,
                         const struct skr_config_key *key);
// The child of parent that a key in the file means. NULL: unknown.
const struct skr_config_key *
skr_config_find_child(const struct skr_config_key *parent, const char *name,
                      bool other_driver);

// The option of a driver, "amqp://?heartbeat": scheme is the first that the
// driver has. NULL: unknown.
#define SKR_OPTION_OF "://?"
const struct skr_config_key *
skr_config_find_option(const char *scheme, const char *name);

// The last part of a key's path.
const char *skr_config_key_name(const struct skr_config_key *key);

#endif
