// SPDX-License-Identifier: MIT
// Data source names: scheme://user:password@host:port/path?name=value.

#ifndef SKR_BASE_URL_H
#define SKR_BASE_URL_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

enum { SKR_URL_MAX_PARAMETERS = 128 };

struct skr_arena;

struct skr_url_parameter {
    char *name;
    char *value;
};

// All parts are percent-decoded and zero-terminated; an absent one is NULL.
struct skr_url {
    char *scheme;
    char *user;
    char *password;
    char *host;     // several hosts stay one text: "a:1,b:2"
    uint16_t port;  // 0: none, or several hosts
    char *path;     // without its first slash: "sqlite:///a" -> "a",
                    // "sqlite:////a" -> "/a"
    struct skr_url_parameter parameters[SKR_URL_MAX_PARAMETERS];
    size_t parameter_count;
};

// Errors name what is wrong and never repeat the text, which may hold a
// password.
SKR_MUST_CHECK enum skr_code
skr_url_parse(const char *text, struct skr_url *url, struct skr_error *error);
void skr_url_fini(struct skr_url *url);
SKR_MUST_CHECK enum skr_code
skr_url_copy(const struct skr_url *url, struct skr_url *copy);

// NULL when there is no such parameter.
const char *skr_url_find(const struct skr_url *url, const char *name);

// SKR_INVALID for a parameter of a database's DSN that is none of these, nor
// one that the DSNs of PHP projects have and no driver needs.
SKR_MUST_CHECK enum skr_code
skr_url_check_parameters(const struct skr_url *url, const char *const *known,
                         size_t count, struct skr_error *error);

// A whole number in a range; *number stays as it is where the parameter is
// absent.
SKR_MUST_CHECK enum skr_code
skr_url_number(const struct skr_url *url, const char *name, int64_t least,
               int64_t most, int64_t *number, struct skr_error *error);

// A boolean as skr_text_boolean() has it; *value stays as it is where the
// parameter is absent.
SKR_MUST_CHECK enum skr_code
skr_url_boolean(const struct skr_url *url, const char *name, bool *value,
                struct skr_error *error);

// An option of a driver: which values it takes, and where in the driver's
// struct one goes. What a DSN does not name stays there as it is.
struct skr_url_option {
    const char *name;  // one that ends with [ stands for all that begin so
    enum skr_url_kind {
        SKR_URL_ELSEWHERE,  // known, and read elsewhere or of no use here
        SKR_URL_TEXT,       // const char *
        SKR_URL_BOOLEAN,    // bool
        SKR_URL_NUMBER,     // int64_t
        SKR_URL_SECONDS,    // int64_t, in milliseconds; a fraction may be given
        SKR_URL_CHOICE,     // bool: it is the second of two words
    } kind;
    size_t place;
    int64_t least, most;  // of seconds: in milliseconds
    const char *words[2];
};
// Reads all of them into values, texts into the arena. Of two parameters with
// one name the last counts.
SKR_MUST_CHECK enum skr_code
skr_url_read(const struct skr_url *url, const struct skr_url_option *options,
             size_t count, struct skr_arena *arena, void *values,
             struct skr_error *error);
// Whether it is one of them.
bool skr_url_is_option(const char *name, const struct skr_url_option *options,
                       size_t count);

struct skr_text;

// Adds a value as any part of a URL may hold it: %40 for @.
void skr_url_add_encoded(struct skr_text *text, const char *value);

// Appends "?name=value" or "&name=value" to a DSN that is being written.
void skr_url_add_parameter(struct skr_text *dsn, const char *name,
                           const char *value);

// Which parts of a driver's DSNs name files.
struct skr_url_files {
    bool is_path;                   // the path is a file's
    const char *const *parameters;  // those whose value is; ends with NULL
};
// The text with relative names of files placed in the folder, which is
// absolute. NULL when memory is out; the caller frees it.
char *skr_url_place(const char *text, const struct skr_url_files *files,
                    const char *folder);

// The text with the password (or a user without one, which may be a token) and
// the value of any parameter that looks like a secret replaced by "***". NULL
// when memory is out; the caller frees it.
char *skr_url_mask(const char *text);
// Whether there is anything to be replaced; true when memory is out.
bool skr_url_has_secret(const char *text);

#endif
