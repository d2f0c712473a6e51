// SPDX-License-Identifier: MIT
// Handlers that are processes of their own: one for each handler and consumer,
// started when it is needed and kept. It reads a line of JSON for each message
// from its standard input and writes a line with the verdict to its standard
// output. docs/skirnir-handler.7.md is for authors of such handlers.

#ifndef SKR_INBOX_CHILD_H
#define SKR_INBOX_CHILD_H

#include "inbox/consumer.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_arena;
struct skr_text;
struct skr_child;

// SKR_INVALID when there is no such program that may be run. Looks for it as
// the shell does: in PATH, unless there is a slash in its name.
SKR_MUST_CHECK enum skr_code
skr_process_check(const char *program, struct skr_error *error);

void skr_child_free(struct skr_child *child);
// Ends the process, if there is one: its input is closed, and if it has not
// ended a second later it is killed. NULL is accepted.
void skr_child_end(struct skr_child *child);
// Whether it is SKR_RECORDER_HANDLER, as the process said when it was ready, or
// else the configuration. NULL: false.
bool skr_child_records(const struct skr_child *child);

// What a record of a message consists of, beside its id.
struct skr_record_place {
    const char *table;
    const char *name;
};
// What is known of a message, ending with a line break. number is what the
// answer has to repeat.
SKR_MUST_CHECK enum skr_code
skr_child_write_line(const struct skr_delivery *delivery,
                     const struct skr_record_place *record, uint64_t number,
                     struct skr_text *line, struct skr_error *error);

struct skr_answer {
    uint64_t number;
    enum skr_verdict verdict;
    bool waits;         // a retry that costs the message nothing
    const char *error;  // NULL: none was given
};
// SKR_MALFORMED says what is wrong with it. Texts live in the arena.
SKR_MUST_CHECK enum skr_code
skr_child_read_answer(const char *line, size_t size, struct skr_arena *arena,
                      struct skr_answer *answer, struct skr_error *error);
// Whether it is {"ready": true}. *recorder is left as it is where the line does
// not say "deduplicates": true, false or "own".
bool
skr_child_is_ready_line(const char *line, size_t size, struct skr_arena *arena,
                        enum skr_recorder *recorder);

#endif
