// SPDX-License-Identifier: MIT
// Decides what becomes of a delivery, by tables: exhaustion, cause, end and
// disposition.

#include "inbox/decide.h"

enum {
    MOST_CONFLICTS = 5,
    MOST_LOSSES = 3,
    // What waits for a handler or a table is looked at again after this.
    LONGEST_WAIT_MS = 30000,
};

enum skr_exhaustion
skr_find_exhaustion(uint32_t retries, const struct skr_retry_policy *policy)
{
    uint32_t most = policy->max_retries > 0 ? policy->max_retries : 1;
    if (retries <= most)
        return SKR_RETRIES_LEFT;
    return retries - most > 1 ? SKR_STORING_FAILED : SKR_RETRIES_EXHAUSTED;
}

// Statements that fail as their tables are missing, and a process that cannot
// be had, meet every message alike.
static enum skr_cause
find_cause_of_verdict(const struct skr_failed_try *failed)
{
    bool may_pass = failed->remedy == SKR_TRY_AGAIN;
    switch (failed->speaker) {
    case SKR_SPEAKER_FUNCTION: break;
    case SKR_SPEAKER_SQL:
        return may_pass || failed->code == SKR_MISSING ? SKR_CAUSE_HANDLER
                                                       : SKR_CAUSE_UNCLEAR;
    case SKR_SPEAKER_PROCESS:
        if (may_pass)
            return failed->code == SKR_STOPPED ? SKR_CAUSE_STOP
                                               : SKR_CAUSE_HANDLER;
        break;
    }
    return SKR_CAUSE_MESSAGE;
}

enum skr_cause
skr_find_cause(const struct skr_failed_try *failed)
{
    if (failed->step == SKR_STEP_HANDLE && failed->verdict == SKR_REJECT)
        return SKR_CAUSE_MESSAGE;
    if (failed->remedy == SKR_RECONNECT)
        return SKR_CAUSE_CONNECTION;
    if (failed->step == SKR_STEP_BEGIN)
        return SKR_CAUSE_DATABASE;
    if (failed->code == SKR_CONFLICT)
        return SKR_CAUSE_CONFLICT;
    if (failed->step == SKR_STEP_HANDLE)
        return find_cause_of_verdict(failed);
    // A constraint that is checked at the commit is about what the handler did.
    bool is_refused =
        failed->step == SKR_STEP_COMMIT && failed->remedy != SKR_TRY_AGAIN;
    return is_refused ? SKR_CAUSE_MESSAGE : SKR_CAUSE_DATABASE;
}

enum skr_end
skr_end_of_cause(enum skr_cause cause, enum skr_step step, unsigned times)
{
    switch (cause) {
    case SKR_CAUSE_CONFLICT:
        if (times <= MOST_CONFLICTS)
            return SKR_END_NONE;
        // Nothing that its handler does has been in another session's way yet.
        return step == SKR_STEP_RECORD ? SKR_END_DATABASE_AWAY
                                       : SKR_END_HANDLER_FAILED;
    case SKR_CAUSE_CONNECTION:
        if (times <= MOST_LOSSES)
            return SKR_END_NONE;
        // Only a handler can lose a connection by what it does.
        return step == SKR_STEP_HANDLE ? SKR_END_HANDLER_FAILED
                                       : SKR_END_DATABASE_AWAY;
    case SKR_CAUSE_HANDLER: return SKR_END_HANDLER_DOWN;
    case SKR_CAUSE_DATABASE: return SKR_END_DATABASE_AWAY;
    case SKR_CAUSE_STOP: return SKR_END_NOT_REACHED;
    case SKR_CAUSE_MESSAGE:
    case SKR_CAUSE_UNCLEAR: break;
    }
    return SKR_END_HANDLER_FAILED;
}

static struct skr_delivery_decision
dead_letter(void)
{
    return (struct skr_delivery_decision){.disposition = SKR_DEAD_LETTER,
                                          .needs_row = true};
}

static struct skr_delivery_decision
defer(uint32_t delay_ms)
{
    return (struct skr_delivery_decision){.disposition = SKR_DEFER,
                                          .delay_ms = delay_ms};
}

static struct skr_delivery_decision
decide_failed(const struct skr_delivery_facts *facts,
              const struct skr_retry_policy *retry)
{
    if (facts->verdict == SKR_REJECT || facts->retries >= retry->max_retries)
        return dead_letter();
    uint32_t delay_ms =
        skr_retry_delay_ms(retry, facts->retries + 1, facts->random);
    bool is_delayed = facts->broker_delays && !facts->is_delay_refused;
    if (facts->broker_delays && !is_delayed && !facts->has_retry_queue)
        return defer(delay_ms);
    return (struct skr_delivery_decision){.disposition = SKR_RETRY_AFTER,
                                          .delay_ms = delay_ms,
                                          .needs_row = !is_delayed};
}

// There is a limit to what is deferred, and to how long. What a queue that
// counts got back before, on a stop perhaps, is not deferred: the queue drops
// what it gets back too often.
static struct skr_delivery_decision
decide_down(const struct skr_delivery_facts *facts, uint32_t wait_ms)
{
    if (!facts->has_retry_queue ||
        (!facts->is_over_capacity && !facts->was_requeued))
        return defer(wait_ms < LONGEST_WAIT_MS ? wait_ms : LONGEST_WAIT_MS);
    return (struct skr_delivery_decision){.disposition = SKR_RETRY_AFTER,
                                          .delay_ms = LONGEST_WAIT_MS,
                                          .is_not_counted = true,
                                          .needs_row = true};
}

static struct skr_delivery_decision
decide_unhandled(const struct skr_delivery_facts *facts,
                 enum skr_unhandled unhandled)
{
    switch (unhandled) {
    case SKR_UNHANDLED_FAIL: return dead_letter();
    case SKR_UNHANDLED_WAIT: return decide_down(facts, LONGEST_WAIT_MS);
    case SKR_UNHANDLED_IGNORE: break;
    }
    return (struct skr_delivery_decision){.disposition = SKR_ACK};
}

static struct skr_delivery_decision
decide_end(const struct skr_delivery_facts *facts,
           const struct skr_delivery_policy *policy)
{
    switch (facts->end) {
    case SKR_END_COMMITTED:
    case SKR_END_DUPLICATE: break;
    case SKR_END_NOT_UNDERSTOOD:
    case SKR_END_RETRIES_EXHAUSTED: return dead_letter();
    case SKR_END_UNHANDLED: return decide_unhandled(facts, policy->unhandled);
    case SKR_END_HANDLER_FAILED: return decide_failed(facts, &policy->retry);
    case SKR_END_HANDLER_DOWN:
        return decide_down(facts, facts->handler_wait_ms);
    case SKR_END_DATABASE_AWAY: return defer(0);
    case SKR_END_NONE:
    case SKR_END_NOT_REACHED:
        if (facts->was_requeued)
            return defer(0);
        return (struct skr_delivery_decision){.disposition = SKR_REQUEUE};
    }
    return (struct skr_delivery_decision){.disposition = SKR_ACK};
}

// What has no row goes out of the way of others, and is never dropped. The
// count that a broker raises by it does no harm: a dead letter is not handled
// again.
static struct skr_delivery_decision
decide_unwritable(const struct skr_delivery_facts *facts,
                  const struct skr_delivery_decision *wanted)
{
    if (wanted->disposition != SKR_DEAD_LETTER || !facts->broker_delays ||
        facts->is_delay_refused)
        return defer(facts->row_wait_ms);
    return (struct skr_delivery_decision){.disposition = SKR_RETRY_AFTER,
                                          .delay_ms = LONGEST_WAIT_MS,
                                          .is_not_counted = true};
}

struct skr_delivery_decision
skr_delivery_decide(const struct skr_delivery_facts *facts,
                    const struct skr_delivery_policy *policy)
{
    struct skr_delivery_decision decision = decide_end(facts, policy);
    if (decision.disposition == SKR_DEAD_LETTER && facts->limit_wait_ms > 0)
        decision = decide_down(facts, facts->limit_wait_ms);
    if (decision.needs_row && facts->is_row_unwritable)
        return decide_unwritable(facts, &decision);
    return decision;
}
