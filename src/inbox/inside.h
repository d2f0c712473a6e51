// SPDX-License-Identifier: MIT
// The inside of a consumer, shared by the files of this folder alone.
//
//   open.c         making a consumer of what it is told, and its end
//   consumer.c     the loop
//   connect.c      connections, tables, waiting out trouble
//   handlers.c     which function handles which message
//   unhandled.c    messages without a handler
//   pause.c        handlers that are in trouble, and the messages that wait
//   decode.c       a delivery becomes a job
//   batch.c        jobs that share a transaction, and what became of each
//   transaction.c  one transaction: admit, handle, commit
//   hooks.c        what is called around a handler
//   outside.c      handlers that run outside of the transaction
//   library.c      handlers in shared objects; library_look.c: without loading
//   sql_handler.c  handlers that are statements; sql_run.c runs them
//   child.c        handlers that are processes of their own: child_process.c
//                  starts and ends them, child_line.c is what is said to them
//                  and by them, child_errors.c what they complain of
//   keep.c         rows for what failed, and for what waits for its retry
//   attempts.c     counting deliveries that a consumer had and did not settle
//   sources.c      the broker, and the queue of retries beside it
//   admit.c        deduplication for an application's own loop

#ifndef SKR_INBOX_INSIDE_H
#define SKR_INBOX_INSIDE_H

#include "base/arena.h"
#include "base/backoff.h"
#include "base/beat.h"
#include "base/histogram.h"
#include "base/log.h"
#include "broker/broker.h"
#include "inbox/consumer.h"
#include "message/failure.h"
#include "store/attempt/attempt.h"
#include "store/deduplication/deduplication.h"
#include "store/kept/kept.h"

#include <stdatomic.h>

struct skr_child;

struct handler {
    char *message_name;
    skr_handler_fn *run;
    void *user;
    bool is_outside;  // it wants no transaction
    // Owned; NULL where it is something else.
    struct skr_sql_handler *sql;
    struct skr_child *child;
    void *library;
    // Its statements or its process failed, by no message's fault: its messages
    // wait, and no others.
    struct skr_backoff backoff;  // pause_ms 0: all is well
    int64_t again_ms;            // not before this; by skr_clock_ms()
    struct skr_error reason;
    struct skr_trouble trouble;
};

struct handlers {
    struct handler *items;
    size_t count;
    size_t capacity;
};

// Messages without a handler.
struct unhandled {
    struct handler nobody;  // what those that wait wait for: paused for ever
    uint64_t untold;        // came since the last line about them
    int64_t tell_again_ms;  // until then they are counted; by skr_clock_ms()
};

struct hooks {
    struct skr_hook *items;
    size_t count, capacity;
};

enum job_state {
    JOB_READY,     // to be handled
    JOB_HELD,      // to be handled when others have been recorded
    JOB_ADMITTED,  // recorded in a transaction that is not committed yet
    JOB_SKIPPED,   // a duplicate in a transaction that is not committed yet
    JOB_OVER,      // dealt with: to be acknowledged
    JOB_RETRY,     // to be delivered again later
    JOB_MOVED,     // a row waits for its retry: to be acknowledged
    JOB_FAILED,    // to be kept in the failed table
    JOB_WAITING,   // held until what is in trouble can be tried again
    JOB_RELEASED,  // to be given back as it came
};

struct job {
    struct skr_incoming *incoming;
    struct skr_delivery delivery;
    struct handler *handler;
    const char *recorded_name;  // in the deduplication row
    uint32_t retry_count;
    bool has_id;  // without one nothing tells whether it came before
    enum job_state state;
    bool is_unhandled;  // no handler is for it
    // It was delivered too often without a verdict, and is handled no more. It
    // may have been committed, all the same.
    bool is_spent;
    // It came once more after that: to store it ended the process. It is stored
    // without a look at it.
    bool is_unseen;
    const char *last_error;  // of one that is spent; NULL: unknown
    // A transaction that held it may have been committed without our knowing:
    // a duplicate then means that it was.
    bool may_be_committed;
    // Its handler has run outside and accepted it: to be recorded.
    bool was_run;
    // It waited too long to be held: its row counts no retry.
    bool is_excused;
    // Its broker delays others, but not this one.
    bool is_undelayed;
    // Its attempt was counted under this key, and the row is still there.
    bool is_counted;
    struct skr_id attempt_key;
    // It was stored, and the database of the failed table says so under this
    // key until the broker has heard of it.
    bool is_marked;
    struct skr_id mark;
    struct skr_error reason;
};

struct skr_consumer {
    struct skr_arena texts;
    struct skr_consumer_options options;  // texts are in the arena above
    struct skr_consumer_extras extras;
    struct skr_retry_policy retry;
    struct skr_log log;
    struct handlers handlers;
    struct unhandled unhandled;
    struct hooks hooks;
    int stop_fd;
    atomic_bool is_stopped;  // stop_fd is readable: asked without a system call
    atomic_uint_fast64_t handled, duplicates, retried, failed, ignored;
    struct skr_histogram handling;  // how long handlers took
    struct skr_histogram latency;   // from the time in the id to the commit
    // When the oldest that the broker gave last was made, by its id; 0: none.
    atomic_int_fast64_t oldest_us;
    struct skr_beat beat;

    struct skr_deduplication *deduplication;
    struct skr_attempts *attempts;  // in db
    struct skr_kept *kept;          // where the failed table is
    struct skr_db *db;
    struct skr_db *failed_db;  // NULL: the failed table is in db, or not open
    struct skr_broker *broker;
    struct skr_broker *retries;  // the queue of retries; NULL: none, or closed
    struct skr_broker *source;   // one of both: where the jobs came from
    const char *retry_queue;     // "<name>.retry"
    int64_t retry_again_ms;      // when to look there; by skr_clock_ms()
    int64_t idle_check_ms;       // when to ask an idle database; the same
    struct skr_trouble retry_trouble;
    struct skr_trouble passed_over;  // hosts that can only be read
    bool is_refused;  // by a broker that is a server, at the last connection
    bool was_ready;   // both were there, with their tables
    struct skr_trouble trouble;
    struct skr_backoff backoff;
    struct skr_trouble unkept;   // with the failed table
    int64_t keep_again_ms;       // not before this; by skr_clock_ms()
    struct skr_backoff put_off;  // until what cannot be kept comes again, where
                                 // the broker cannot delay it
    // Counted, but given back without a verdict when the database could not be
    // told: counted no second time.
    bool has_uncounted;
    struct skr_id uncounted;
    int64_t clean_again_ms;  // rows of crashes; by skr_clock_ms()

    struct skr_incoming *incoming;
    struct job *jobs;
    size_t job_count;  // of what was received last
    size_t capacity;
    struct skr_arena arena;  // for what was received last
    struct skr_consumer_budget own_budget;
    struct skr_consumer_budget *budget;
    int64_t received_ms;  // when the jobs came; by skr_clock_ms()
    size_t most;          // so many at once find time; at least 1
    uint64_t taken;       // deliveries that were dealt with
    size_t alone_left;    // so many are handled each by itself, after trouble
    // So many batches are recorded message by message, since there were
    // duplicates.
    size_t apart_left;
    // Since then all that came were duplicates, so many; 0: not so. It is said
    // once, until a message is handled.
    int64_t duplicates_from_ms;
    uint64_t duplicates_in_a_row;
    bool has_said_duplicates;
    uint32_t random;  // moves retries apart
};

// connect.c

// Opens what is not open and checks the tables.
SKR_MUST_CHECK enum skr_code
skr_consumer_connect(struct skr_consumer *consumer, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_consumer_connect_database(struct skr_consumer *consumer,
                              struct skr_error *error);
// The connection that the failed table is on, open and checked.
SKR_MUST_CHECK enum skr_code
skr_consumer_connect_failed(struct skr_consumer *consumer, struct skr_db **db,
                            struct skr_error *error);
void skr_consumer_drop_failed(struct skr_consumer *consumer);
// SKR_MISSING: the failed table, and how to make it.
enum skr_code skr_consumer_fail_missing(const struct skr_consumer *consumer,
                                        struct skr_error *error);
void skr_consumer_drop_database(struct skr_consumer *consumer);
// Closes the broker and the queue of retries.
void skr_consumer_drop_brokers(struct skr_consumer *consumer);
// Closes the one that the jobs came from.
void skr_consumer_drop_source(struct skr_consumer *consumer);
// The queue of retries is looked at beside the broker.
bool skr_consumer_has_retries(const struct skr_consumer *consumer);
SKR_MUST_CHECK enum skr_code
skr_consumer_connect_retries(struct skr_consumer *consumer,
                             struct skr_error *error);
bool skr_consumer_is_stopping(const struct skr_consumer *consumer);
// Stopped, at its limit, or over by the caller's own measure.
bool skr_consumer_is_ending(const struct skr_consumer *consumer);
// Messages wait in hand, unsettled: nothing is empty.
bool skr_consumer_holds_any(const struct skr_consumer *consumer);
// The broker should hear of what was received: begin nothing more.
bool skr_consumer_is_late(const struct skr_consumer *consumer);
// Says the trouble once and waits, longer each time, or until the stop.
void skr_consumer_wait_out(struct skr_consumer *consumer,
                           const struct skr_error *error);
void skr_consumer_end_trouble(struct skr_consumer *consumer);

// handlers.c

SKR_MUST_CHECK enum skr_code
skr_handlers_add(struct handlers *handlers, const char *message_name,
                 const struct handler *handler, struct skr_error *error);
// By skr_name_rank(); NULL when there is none.
struct handler *skr_handlers_find(const struct handlers *handlers,
                                  const char *name, const char *class_name);
// Ends the processes among them, until they are needed again.
void skr_handlers_rest(struct handlers *handlers);
void skr_handlers_fini(struct handlers *handlers);

// unhandled.c

void skr_unhandled_init(struct skr_consumer *consumer);
// A message that was understood and has no handler: it has failed, is over, or
// waits, as the consumer was told.
void skr_job_set_unhandled(struct skr_consumer *consumer, struct job *job);
// Tells of one, or counts it.
void
skr_job_note_unhandled(struct skr_consumer *consumer, const struct job *job);
// Tells of those that were counted, once a minute; is_last: at once.
void skr_unhandled_tell_count(struct skr_consumer *consumer, bool is_last);

// pause.c

// It is in trouble that is no message's fault: said once, and longer each time
// until it is tried again.
void skr_handler_pause(struct skr_consumer *consumer, struct handler *handler,
                       const struct skr_error *reason);
void skr_handler_resume(struct skr_consumer *consumer, struct handler *handler);
bool skr_handler_is_paused(const struct handler *handler);
// Gives back what would pass the job.
void skr_job_hold_lane(struct skr_consumer *consumer, const struct job *job);
// The job waits, and those behind it in its lane.
void skr_job_wait(struct skr_consumer *consumer, struct job *job);
// Those whose handler is paused wait.
void skr_jobs_set_aside(struct skr_consumer *consumer, struct job *jobs,
                        size_t count);

// hooks.c

// The handler with the hooks around it. is_our_word: all that it says in
// reason counts, since it comes from a driver or from a child's keeper.
enum skr_verdict
skr_job_run(struct skr_consumer *consumer, const struct job *job,
            struct skr_tx tx, bool *is_our_word, struct skr_error *reason);
// Once it is decided what becomes of a job that failed.
void
skr_job_tell_hooks(const struct skr_consumer *consumer, const struct job *job);

// outside.c

// Runs the handlers that want no transaction. A job that one of them accepted
// stays ready, to be recorded; what did not find time in this round, or has one
// before it in its lane that the transaction is to handle, is held, and
// has_more says so. An error is trouble that no message has caused.
SKR_MUST_CHECK enum skr_code
skr_jobs_run_outside(struct skr_consumer *consumer, struct job *jobs,
                     size_t count, bool *has_more, struct skr_error *error);

// sql_run.c

SKR_MUST_CHECK enum skr_code
skr_sql_handler_new(const struct skr_dialect *dialect,
                    const char *const *statements, size_t count,
                    struct skr_sql_handler **handler, struct skr_error *error);
void skr_sql_handler_free(struct skr_sql_handler *handler);
// SKR_MISSING when a table that the statements name is not there, SKR_INVALID
// for another mistake in them; other trouble is no answer. Outside a
// transaction.
SKR_MUST_CHECK enum skr_code
skr_sql_handler_check(const struct skr_sql_handler *handler, struct skr_tx tx,
                      struct skr_error *error);
// Whether the statements fail in this way without any message: a column that is
// not there, a right that is missing. Outside a transaction.
bool
skr_sql_handler_is_broken(const struct skr_sql_handler *handler,
                          struct skr_tx tx, const struct skr_error *reason);
skr_handler_fn skr_sql_handler_run;  // user is the handler
// Whether it runs procedures, which may end the transaction.
bool skr_sql_handler_calls(const struct skr_sql_handler *handler);

// decode.c

// The only errors are the consumer's own; a delivery that cannot be understood
// becomes a job that has failed.
SKR_MUST_CHECK enum skr_code
skr_job_decode(struct skr_consumer *consumer, struct skr_incoming *incoming,
               struct job *job, struct skr_error *error);

// Sets is_spent, is_unseen and last_error, by retry_count.
SKR_MUST_CHECK enum skr_code
skr_job_find_spent(struct skr_consumer *consumer, struct job *job,
                   struct skr_error *error);

// sources.c

// When to look for retries again, by the clock of now_ms: second_ms is how far
// the server's second has gone, where there are any rows.
int64_t
skr_retries_next_look_ms(int64_t now_ms, bool has_rows, int64_t second_ms);
// Receives from one of the sources, up to capacity. SKR_TIMEOUT: neither has
// anything. Trouble with the queue of retries is no error: the broker goes on
// without it.
SKR_MUST_CHECK enum skr_code
skr_consumer_receive(struct skr_consumer *consumer, size_t capacity,
                     size_t *count, struct skr_error *error);
// The same from the queue of retries alone, if there is one.
SKR_MUST_CHECK enum skr_code
skr_consumer_receive_retries(struct skr_consumer *consumer, size_t capacity,
                             size_t *count, struct skr_error *error);

// attempts.c

// Its id; without one it is known by what it says.
struct skr_id skr_job_key(const struct job *job);
// Before a delivery is handled, or stored as one that cannot be handled, that a
// consumer had and did not settle: commits the attempt, unless its broker
// counts by itself.
SKR_MUST_CHECK enum skr_code
skr_job_count(struct skr_consumer *consumer, struct job *job,
              struct skr_error *error);
// After it was settled: what was recorded of it is needed no more. One that was
// given back has not been tried.
void skr_job_forget(struct skr_consumer *consumer, struct job *job);

// transaction.c

enum step { STEP_BEGIN, STEP_ADMIT, STEP_HANDLE, STEP_COMMIT };

struct attempt {
    bool committed;
    enum step step;            // where it ended, if not committed
    enum skr_verdict verdict;  // of STEP_HANDLE
    struct skr_error reason;
};

// Runs the jobs that are ready in one transaction: all of them, or none.
void skr_jobs_attempt(struct skr_consumer *consumer, struct job *jobs,
                      size_t count, struct attempt *attempt);

// batch.c

// A verdict on one job, or what counts as one: the attempt says which.
void skr_job_decide(struct skr_consumer *consumer, struct job *job,
                    const struct attempt *attempt);
// Handles jobs and settles them with the broker. An error is trouble that no
// message has caused: what it kept from being handled is held.
SKR_MUST_CHECK enum skr_code
skr_jobs_handle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error);
// Tells the broker of jobs that were not reached: JOB_RELEASED, or JOB_WAITING.
SKR_MUST_CHECK enum skr_code
skr_jobs_leave(struct skr_consumer *consumer, struct job *jobs, size_t count,
               enum job_state state, struct skr_error *error);

// keep.c

// The message's id as text, "" where it has none.
const char *
skr_job_format_id(const struct job *job, char text[SKR_ID_TEXT_SIZE]);
void skr_job_log_failed(const struct skr_consumer *consumer,
                        const struct job *job, enum skr_log_level level);
// Puts a failed job into the failed table, and one that is to be retried into
// the queue of retries, in a transaction of its own; then it is over, or moved.
// A table or connection that is gone is made anew first, where that is
// possible.
SKR_MUST_CHECK enum skr_code
skr_job_keep(struct skr_consumer *consumer, struct job *job,
             struct skr_error *error);

#endif
