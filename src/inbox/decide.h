// SPDX-License-Identifier: MIT
// What becomes of a delivery, from what happened to it: every decision of the
// inbox is one of the functions below. No clock, no log, no I/O, no state:
// tests/unit/test_decide.c goes through the whole of each table.
//
// The way of a delivery, and where a decision is made:
//
//   consumer.c     receive: from the broker, or from the queue of retries
//   decode.c       not understood, or without a handler: it has ended
//   settle.c       count it, if a consumer had it before and did not settle it;
//                  skr_find_exhaustion()
//   transaction.c  invoke the handler, if it wants no transaction; the others
//                  together in one, or one by one: record it (deduplicate),
//                  invoke the handler, commit. skr_find_cause() of a try that
//                  failed, and again until skr_end_of_cause() names an end
//   handlers.c     the call of the handler
//   settle.c       skr_delivery_decide(), and carry it out: the row first, then
//                  the broker. What cannot be carried out is one more fact, and
//                  is decided again.

#ifndef SKR_INBOX_DECIDE_H
#define SKR_INBOX_DECIDE_H

#include "inbox/consumer.h"
#include "message/failure.h"

// By how often it was delivered without a verdict.
enum skr_exhaustion {
    SKR_RETRIES_LEFT,
    // Too often: it is not handled again. It may have been committed, all the
    // same.
    SKR_RETRIES_EXHAUSTED,
    // And once more after that: to store it ended the process. It is stored
    // without a look at its body.
    SKR_STORING_FAILED,
};

// Where a try to handle a delivery came to its end.
enum skr_step {
    SKR_STEP_BEGIN,
    SKR_STEP_RECORD,  // deduplication and attempt
    SKR_STEP_HANDLE,
    SKR_STEP_COMMIT,
};

// The source of the reason for a verdict.
enum skr_speaker {
    SKR_SPEAKER_FUNCTION,  // or a hook: it may say anything
    SKR_SPEAKER_SQL,       // the driver of an SQL handler's database
    SKR_SPEAKER_PROCESS,   // the parent of a handler's process
};

struct skr_failed_try {
    enum skr_step step;
    enum skr_verdict verdict;  // of SKR_STEP_HANDLE, as speaker
    enum skr_speaker speaker;
    enum skr_code code;  // of the reason, as remedy
    enum skr_remedy remedy;
};

// What made a try fail.
enum skr_cause {
    SKR_CAUSE_MESSAGE,     // its handler's verdict, or what the handler did
    SKR_CAUSE_CONFLICT,    // another transaction was in the way
    SKR_CAUSE_CONNECTION,  // lost under way: whether it committed is unknown
    SKR_CAUSE_HANDLER,     // it fails, whatever the message
    SKR_CAUSE_DATABASE,    // nothing can be done on it now
    SKR_CAUSE_STOP,        // the consumer's own
    // The message or the statements of its handler. To know, the statements are
    // prepared without a message: skr_sql_handler_is_broken().
    SKR_CAUSE_UNCLEAR,
};

// How a delivery ended, or why it did not come that far.
enum skr_end {
    SKR_END_NONE,  // it is tried again at once
    SKR_END_COMMITTED,
    SKR_END_DUPLICATE,
    SKR_END_NOT_UNDERSTOOD,
    SKR_END_UNHANDLED,          // no handler is for it
    SKR_END_RETRIES_EXHAUSTED,  // not handled, as it was delivered too often
    SKR_END_HANDLER_FAILED,
    SKR_END_HANDLER_DOWN,   // by no message's fault
    SKR_END_DATABASE_AWAY,  // or another trouble that all messages have
    SKR_END_NOT_REACHED,    // a stop, no time left, or one before it waits
};

enum skr_disposition {
    SKR_ACK,
    SKR_RETRY_AFTER,
    SKR_DEAD_LETTER,
    SKR_DEFER,    // kept in hand, and handed out again after a while
    SKR_REQUEUE,  // back to the broker as it came, for any consumer
};

struct skr_delivery_policy {
    struct skr_retry_policy retry;
    enum skr_unhandled unhandled;
};

struct skr_delivery_facts {
    enum skr_end end;
    enum skr_verdict verdict;  // of SKR_END_HANDLER_FAILED
    uint32_t retries;          // that it has had
    uint32_t random;           // any number; by it the jitter is drawn
    uint32_t handler_wait_ms;  // until a handler that is down is tried again
    // Of the broker that it came from.
    bool broker_delays;     // it can carry out a retry
    bool is_over_capacity;  // more should not be deferred
    bool was_requeued;      // once, by a queue that counts that
    bool has_retry_queue;   // a row can wait for its retry
    // Of an earlier decision that could not be carried out.
    bool is_delay_refused;   // the broker does not delay this one
    bool is_row_unwritable;  // a dead letter's, or a retry's
    uint32_t row_wait_ms;    // until that is tried again
    // Until another message of its handler may fail; 0: this one may.
    uint32_t limit_wait_ms;
};

struct skr_delivery_decision {
    enum skr_disposition disposition;
    uint32_t delay_ms;    // of a retry, and of what is deferred
    bool is_not_counted;  // a retry that costs the message nothing
    // A row is written before the broker is told, and then it is acknowledged:
    // of every dead letter, and of a retry that its broker cannot delay.
    bool needs_row;
};

// A verdict never lets the retries grow beyond the policy. What does are
// consumers that died over the message, or were stopped so hard that they could
// not requeue it. One that was in hand among others need not have been seen by
// a handler: without any retries it still has one delivery by itself.
enum skr_exhaustion
skr_find_exhaustion(uint32_t retries, const struct skr_retry_policy *policy);

enum skr_cause skr_find_cause(const struct skr_failed_try *failed);

// times: how many tries of this delivery failed by this cause, with this one.
// An unclear cause has been found out before.
enum skr_end
skr_end_of_cause(enum skr_cause cause, enum skr_step step, unsigned times);

struct skr_delivery_decision
skr_delivery_decide(const struct skr_delivery_facts *facts,
                    const struct skr_delivery_policy *policy);

#endif
