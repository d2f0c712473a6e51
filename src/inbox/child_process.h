// SPDX-License-Identifier: MIT
// A process with pipes to its three standard streams.

#ifndef SKR_INBOX_CHILD_PROCESS_H
#define SKR_INBOX_CHILD_PROCESS_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <sys/types.h>

struct skr_process {
    pid_t pid;             // 0: there is none
    int input;             // to write to
    int output, messages;  // to read its standard output and error from
};

// SKR_INVALID when there is no such program that may be run. Looks for it as
// the shell does: in PATH, unless there is a slash in its name.
SKR_MUST_CHECK enum skr_code
skr_process_check(const char *program, struct skr_error *error);

// Runs words[0], found in PATH, without any shell. words ends with NULL, and so
// does withheld: variables of our environment that are not passed on. The
// process leads a group of its own, so that what it starts ends with it, and is
// killed when this thread ends. Our ends of the pipes do not block.
// SKR_UNAVAILABLE, with SKR_TRY_AGAIN: it could not be started.
SKR_MUST_CHECK enum skr_code
skr_process_start(struct skr_process *process, char *const *words,
                  const char *const *withheld, struct skr_error *error);

// As write(), but a reader that is gone raises no signal in this process.
ssize_t skr_process_write(const struct skr_process *process, const void *bytes,
                          size_t size);

// Closes the pipes, waits so long for its end and then kills the group. how
// tells what became of it: "exit code 3", "signal 9".
enum { SKR_ENDING_SIZE = 48 };
void skr_process_end(struct skr_process *process, int64_t patience_ms,
                     char how[SKR_ENDING_SIZE]);

#endif
