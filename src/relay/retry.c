// SPDX-License-Identifier: MIT
// Decides what becomes of a row from the result of its message, as one table.

#include "relay/retry.h"

static struct skr_retry_decision
decide_refused(const struct skr_publish_facts *facts,
               const struct skr_retry_policy *policy, uint32_t random)
{
    bool is_blamed = facts->blame == SKR_BLAME_MESSAGE;
    if (facts->blame == SKR_BLAME_DESTINATION)
        return (struct skr_retry_decision){.decision = SKR_DECISION_LEAVE};
    if (is_blamed && facts->retries >= policy->max_retries)
        return (struct skr_retry_decision){.decision = SKR_DECISION_GIVE_UP};
    return (struct skr_retry_decision){
        .decision = SKR_DECISION_RETRY,
        .delay_ms = skr_retry_delay_ms(policy, facts->retries + 1, random),
        .is_not_counted = !is_blamed,
    };
}

static enum skr_decision
decide_unroutable(enum skr_unroutable unroutable)
{
    switch (unroutable) {
    case SKR_UNROUTABLE_DROP: return SKR_DECISION_DONE;
    case SKR_UNROUTABLE_WAIT: return SKR_DECISION_LEAVE;
    case SKR_UNROUTABLE_UNSAID:
    case SKR_UNROUTABLE_FAIL: break;
    }
    return SKR_DECISION_GIVE_UP;
}

struct skr_retry_decision
skr_retry_decide(const struct skr_publish_facts *facts,
                 const struct skr_retry_policy *policy, uint32_t random)
{
    enum skr_decision decision = SKR_DECISION_LEAVE;
    switch (facts->result) {
    case SKR_CONFIRMED: decision = SKR_DECISION_DONE; break;
    case SKR_REFUSED_FOR_NOW: return decide_refused(facts, policy, random);
    case SKR_REFUSED_FOR_GOOD: decision = SKR_DECISION_GIVE_UP; break;
    case SKR_UNROUTABLE: decision = decide_unroutable(facts->unroutable); break;
    case SKR_ROUTE_UNAVAILABLE:
    case SKR_UNCERTAIN:
    case SKR_HELD_BACK: break;
    }
    return (struct skr_retry_decision){.decision = decision};
}
