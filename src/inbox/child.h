// SPDX-License-Identifier: MIT
// Handlers that are processes of their own: one for each handler and consumer,
// started when it is needed and kept. It reads a line of JSON for each message
// from its standard input and writes a line with the verdict to its standard
// output. docs/skirnir-handler.7.md is for authors of such handlers.

#ifndef SKR_INBOX_CHILD_H
#define SKR_INBOX_CHILD_H

#include "base/log.h"

#include <stdbool.h>

struct skr_arena;
struct skr_text;
struct skr_child;

struct skr_child_options {
    const char *consumer;  // these two as logs show them
    const char *message_name;
    const char *const *words;  // of the command: the program, its arguments
    size_t word_count;
    // Variables of the environment that it does not get; ends with NULL.
    const char *const *withheld;
    uint32_t timeout_ms;  // for an answer, and for getting ready
    int wake_fd;          // readable: waits end early
    struct skr_log log;
};

// All texts are copied. Starts nothing yet, but looks for the program.
SKR_MUST_CHECK enum skr_code
skr_child_new(const struct skr_child_options *options, struct skr_child **child,
              struct skr_error *error);
void skr_child_free(struct skr_child *child);

// user is the child. SKR_RETRY with the remedy SKR_TRY_AGAIN in reason: no
// process could be had, or a stop left it too little time; the message is not
// to blame. With any other, the process that had the message died, hung or did
// not keep to the protocol.
skr_handler_fn skr_child_handle;

// Ends the process, if there is one: its input is closed, and if it has not
// ended a second later it is killed. NULL is accepted.
void skr_child_end(struct skr_child *child);

// child_errors.c: its standard error goes to the log, line by line. What is too
// long for one goes on in the next, and what is too much is only counted.

struct skr_child_errors {
    char line[300];
    size_t size;
    uint32_t logged;   // lines, since the last message was handed over
    uint64_t dropped;  // bytes that were not logged
};
// Reads what there is; closes the file, which becomes -1, at its end.
void skr_child_read_errors(struct skr_child_errors *errors,
                           const struct skr_child_options *options, int *file);
// A message is dealt with: tells what was not told.
void skr_child_end_errors(struct skr_child_errors *errors,
                          const struct skr_child_options *options);

// child_line.c: the two lines.

// What is known of a message, ending with a line break. number is what the
// answer has to repeat.
SKR_MUST_CHECK enum skr_code
skr_child_write_line(const struct skr_delivery *delivery, uint64_t number,
                     struct skr_text *line, struct skr_error *error);

struct skr_answer {
    uint64_t number;
    enum skr_verdict verdict;
    const char *error;  // NULL: none was given
};
// SKR_MALFORMED says what is wrong with it. Texts live in the arena.
SKR_MUST_CHECK enum skr_code
skr_child_read_answer(const char *line, size_t size, struct skr_arena *arena,
                      struct skr_answer *answer, struct skr_error *error);
// Whether it is {"ready": true}.
bool
skr_child_is_ready_line(const char *line, size_t size, struct skr_arena *arena);

#endif
