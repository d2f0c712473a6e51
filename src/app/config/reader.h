// SPDX-License-Identifier: MIT
// What the parts of reading a configuration share: the state, and reports.

#ifndef SKR_APP_CONFIG_READER_H
#define SKR_APP_CONFIG_READER_H

#include "app/config/config.h"
#include "app/config/keys.h"
#include "app/config/yaml_tree.h"
#include "base/text.h"

struct skr_dialect;

// Where something stands, as reports name it.
struct skr_config_place {
    const char *path;  // "transports.outbox.dsn"
    int line;
    const struct skr_config_key *key;  // NULL: the top
    void *target;  // the struct that key->scope names, where it has one
};

struct skr_config_reader {
    struct skr_config *config;
    const char *folder;   // of the file, absolute; NULL: where we are
    const char *project;  // %kernel.project_dir%, absolute
    struct skr_config_listener listener;
    enum skr_code code;  // SKR_OK, or that of the first mistake
    size_t mistakes;
    struct skr_error *error;
    bool out_of_memory;

    const struct skr_yaml_node *root;
    size_t file_capacity, variable_capacity;  // of those of the configuration
    // By index in the table: where a key outside of named elements was given.
    struct skr_config_place *given;
    // The transport that is being read; NULL outside.
    struct skr_config_transport *transport;
    // What is to be named in the warning of the section that is being read.
    struct skr_text ignored;
    int ignored_line;
};

// False, with which a check may end.
bool
skr_config_mistake(struct skr_config_reader *reader,
                   const struct skr_config_place *place, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
void skr_config_warn(struct skr_config_reader *reader,
                     const struct skr_config_place *place, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

// Memory of the configuration. When it is out, the reader notes it and the
// text is "".
const char *
skr_config_text(struct skr_config_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// NULL when memory is out; zeroed otherwise.
void *
skr_config_take(struct skr_config_reader *reader, size_t count, size_t size);

// Text from the file as a report may show it: short, printable, no secrets.
enum { SKR_CONFIG_EXCERPT_SIZE = 64 };
const char *
skr_config_excerpt(const char *text, char excerpt[SKR_CONFIG_EXCERPT_SIZE]);

// Fills in %env(NAME)% and %kernel.project_dir%; %% is one %. NULL after a
// mistake.
const char *
skr_config_fill(struct skr_config_reader *reader,
                const struct skr_config_place *place, const char *text);

// Reads one value of a plain type into place->target. shown is the text for
// mistakes, as the file has it; NULL when it must not be shown.
void skr_config_set(struct skr_config_reader *reader,
                    const struct skr_config_place *place, const char *text,
                    const char *shown);
// Says that something else is needed than what stands there.
void skr_config_refuse(struct skr_config_reader *reader,
                       const struct skr_config_place *place,
                       const struct skr_yaml_node *node);
// Fills the defaults of a scope into target; kind counts for transports.
void skr_config_set_defaults(struct skr_config_reader *reader,
                             enum skr_config_scope scope,
                             enum skr_transport_kind kind, void *target);

// Reads the whole tree; then what concerns several keys at once is checked
// and names become pointers.
void
skr_config_read(struct skr_config_reader *reader, struct skr_yaml_node *root);
void skr_config_check(struct skr_config_reader *reader);
// Whether something in the file publishes by the transport.
bool skr_config_publishes_by(const struct skr_config *config, const char *name);
// The part of it that concerns RabbitMQ, and what comes before all of it.
void skr_config_set_amqp_defaults(struct skr_config_reader *reader);
void skr_config_check_amqp(struct skr_config_reader *reader);
// That no two transports record the same messages in one table.
void skr_config_check_overlap(struct skr_config_reader *reader);
void skr_config_check_handlers(struct skr_config_reader *reader);

// A relative path as it counts, which is from the file's folder.
const char *
skr_config_place_path(struct skr_config_reader *reader, const char *path);

// NULL: it is not known, for a reason that is told elsewhere.
const struct skr_dialect *
skr_config_dialect(const struct skr_config_database *database);
// A transport: its DSN decides which defaults and which options it has.
void skr_config_read_dsn(struct skr_config_reader *reader,
                         const struct skr_config_place *place);
// Whether its broker's driver can make sense of the DSN and the options.
void skr_config_check_broker(struct skr_config_reader *reader,
                             const struct skr_config_place *place,
                             const struct skr_config_transport *transport);

#endif
