// SPDX-License-Identifier: MIT
// A consumer's handlers, searched by the name or class of a message, and the
// call of one.
//
// A handler whose table is missing, or whose process does not start, fails with
// every message. It is down: its messages wait for it and spend no retry, and
// those of other handlers go on. After a back-off one of them finds out whether
// the trouble is over.

#ifndef SKR_INBOX_HANDLERS_H
#define SKR_INBOX_HANDLERS_H

#include "base/backoff.h"
#include "base/log.h"
#include "message/failure.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct attempt;
struct job;
struct skr_child;
struct skr_sql_handler;
struct skr_store;

struct handler {
    char *message_name;
    skr_handler_fn *run;
    void *user;
    bool wants_no_tx;
    bool has_logged_record;  // of a process, see note_unsaid()
    // Owned; NULL where it is something else.
    struct skr_sql_handler *sql;
    struct skr_child *child;
    void *library;
    struct skr_store *queue;  // that its SQL writes; NULL: whatever that says
    bool makes_queue;

    struct skr_backoff backoff;    // pause_ms 0: all is well
    int64_t again_ms;              // not before this; by skr_clock_ms()
    struct skr_error reason;       // for which it is down
    struct skr_failures failures;  // none since one that succeeded
    struct skr_trouble trouble;
};

struct handlers {
    struct handler *items;
    size_t count;
    size_t capacity;
};

SKR_MUST_CHECK enum skr_code
skr_handlers_add(struct handlers *handlers, const char *message_name,
                 const struct handler *handler, struct skr_error *error);
// By skr_name_rank(); NULL when there is none.
struct handler *skr_handlers_find(const struct handlers *handlers,
                                  const char *name, const char *class_name);
// Ends the processes among them, until they are needed again.
void skr_handlers_rest(struct handlers *handlers);
void skr_handlers_fini(struct handlers *handlers);

// It fails by no message's fault, and is down for longer each time; the job
// waits for it, as do those behind the job in its partition. Logged once.
void skr_handler_set_down(struct skr_consumer *consumer, struct job *job,
                          const struct skr_error *reason);
// It is waited for so long.
void skr_handler_pause(struct skr_consumer *consumer, struct handler *handler,
                       enum skr_trouble_kind kind,
                       const struct skr_error *reason, uint32_t pause_ms);
// Until it is tried again; 0: it may be tried now.
uint32_t skr_handler_wait_ms(const struct handler *handler);
// Those whose handler is down wait for it.
void skr_jobs_wait_for_handlers(struct skr_consumer *consumer, struct job *jobs,
                                size_t count);

// Called around each handler, in the order of registration.
struct hooks {
    struct skr_hook *items;
    size_t count, capacity;
};

// The call of the job's handler, with the hooks around it. Sets verdict,
// speaker and reason. Of what a function or a hook says, and a process answers,
// the text alone counts: the reason is SKR_REFUSED.
void skr_job_invoke(struct skr_consumer *consumer, const struct job *job,
                    struct skr_tx tx, struct attempt *attempt);
// Once it is decided what becomes of a job that failed.
void
skr_job_tell_hooks(const struct skr_consumer *consumer, const struct job *job);

// Messages that no handler is for fail, are ignored, or wait until a consumer
// comes that has one. A producer may send thousands of them: the first is
// logged in full, the others are counted, and the count is logged once a
// minute.
struct unhandled {
    struct handler handler;  // of those that wait: it is down for ever
    uint64_t unlogged;       // came since the last line about them
    int64_t log_again_ms;    // until then they are counted; by skr_clock_ms()
};

void skr_unhandled_init(struct skr_consumer *consumer);
// A message that was understood and has no handler has ended, or is about to
// wait.
void skr_job_set_unhandled(struct skr_consumer *consumer, struct job *job);
// Logs one, or counts it.
void
skr_job_note_unhandled(struct skr_consumer *consumer, const struct job *job);
// Logs the count, once a minute; is_last: at once.
void skr_unhandled_log_count(struct skr_consumer *consumer, bool is_last);

#endif
