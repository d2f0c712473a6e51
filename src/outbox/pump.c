// SPDX-License-Identifier: MIT
#include "outbox/pump.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    OUTCOME_WAIT_MS = 20,
    ASK_AGAIN_MS = 1000,  // whether it is over
};

bool
skr_pump_is_quiet(struct skr_pump *pump)
{
    return skr_senders_pending(&pump->senders) == 0 &&
           skr_settler_find_open(pump->settler) == NULL &&
           skr_settler_wait(pump->settler, 0);
}

// When there is something to read, as far as is known.
static int64_t
next_read_ms(struct skr_pump *pump)
{
    // Who has no share reads nothing, whatever waits.
    if (!skr_pump_may_read(pump))
        return 0;
    int64_t next_ms = skr_clock_earlier(skr_position_next_ms(&pump->position),
                                        skr_gates_next_ms(&pump->gates));
    next_ms = skr_clock_earlier(next_ms, skr_settler_parked_ms(pump->settler));
    return skr_clock_earlier(next_ms, skr_heads_next_ms(&pump->heads));
}

static uint32_t
idle_time_ms(struct skr_pump *pump)
{
    int64_t now = skr_clock_ms();
    uint32_t longest_ms = pump->options->max_idle_ms;
    if (pump->options->is_over != NULL && longest_ms > ASK_AGAIN_MS)
        longest_ms = ASK_AGAIN_MS;
    int64_t until = skr_clock_earlier(now + longest_ms, next_read_ms(pump));
    until = skr_clock_earlier(until, skr_pump_next_share_ms(pump));
    return until > now ? (uint32_t)(until - now) : 0;
}

// Sleeps until there may be rows. The time of those that wait is up, or a
// sweep is due, when it ends by time-out: then the next read looks for them.
static enum skr_code
wait_for_rows(struct skr_pump *pump, uint32_t timeout_ms,
              struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code =
        pump->db->ops->wait(pump->db, pump->stop_fd, timeout_ms, error);
    skr_beat_resume();
    if (code != SKR_OK && code != SKR_TIMEOUT)
        return code;
    int64_t next_ms = next_read_ms(pump);
    if (code == SKR_OK || (next_ms > 0 && next_ms <= skr_clock_ms()))
        pump->may_have_more = true;
    return SKR_OK;
}

static bool
is_at_limit(const struct skr_pump *pump)
{
    return pump->options->limit > 0 && pump->finished >= pump->options->limit;
}

bool
skr_pump_leaves_some(const struct skr_pump *pump)
{
    return pump->options->stop_when_empty && !is_at_limit(pump) &&
           !skr_pump_is_over(pump) && skr_gates_are_closed(&pump->gates);
}

// What others hold back is committed, and will go; so will what somebody else
// is about to take.
static bool
is_held_back(const struct skr_pump *pump)
{
    return pump->position.undecided_ms != 0 || pump->sharing.leaves_some;
}

static bool
is_finished(const struct skr_pump *pump)
{
    const struct skr_relay_options *options = pump->options;
    bool empty = options->stop_when_empty && !pump->may_have_more &&
                 pump->ahead == NULL && pump->heads.count == 0 &&
                 !is_held_back(pump);
    return (is_at_limit(pump) || empty) && skr_settler_wait(pump->settler, 0);
}

// A broker wants to be heard of while there is nothing to send, or while what
// was sent waits to be settled: it ends a connection that falls silent.
static enum skr_code
hear_broker(struct skr_pump *pump, struct skr_error *error)
{
    return skr_pump_collect(pump, 0, error);
}

// One turn: read if there may be something, then let outcomes come in, then
// wait for whichever comes next.
static enum skr_code
turn(struct skr_pump *pump, struct skr_error *error)
{
    bool moved = false;
    // Here too, not only before sending: the session that holds the lock must
    // be heard of while the window is full and nothing is read.
    bool is_idle = skr_senders_pending(&pump->senders) == 0;
    enum skr_code code = skr_pump_check_lock(pump, is_idle, error);
    if (code == SKR_OK)
        code = skr_pump_keep(pump, error);
    if (code == SKR_OK)
        code = skr_pump_look_for_others(pump, error);
    if (code == SKR_OK)
        code = skr_pump_look_for_writer(pump, error);
    if (code == SKR_OK)
        code = skr_pump_share(pump, error);
    if (code == SKR_OK && skr_pump_may_read(pump))
        code = skr_pump_read(pump, &moved, error);
    if (code != SKR_OK)
        return code;
    if (skr_senders_pending(&pump->senders) > 0) {
        code = skr_pump_collect(pump, moved ? 0 : OUTCOME_WAIT_MS, error);
        if (code == SKR_OK && !pump->may_have_more)
            code = wait_for_rows(pump, 0, error);
        return code;
    }
    if (moved)
        return SKR_OK;
    // A window that is full of settling batches moves when one is settled, and
    // a relay that ends when it is empty ends when all are.
    if (pump->may_have_more || pump->ahead != NULL ||
        (pump->options->stop_when_empty && !is_held_back(pump))) {
        skr_settler_wait(pump->settler, OUTCOME_WAIT_MS);
        return hear_broker(pump, error);
    }
    code = hear_broker(pump, error);
    if (code != SKR_OK)
        return code;
    return wait_for_rows(pump, idle_time_ms(pump), error);
}

// Lets what was sent come to its outcome; what has none by then is forgotten
// and its row read again by whoever comes next. The broker goes first: it
// borrows messages until then.
static void
drain(struct skr_pump *pump)
{
    int64_t end = pump->stop_by_ms > 0
                      ? pump->stop_by_ms
                      : skr_clock_ms() + pump->options->stop_timeout_ms;
    struct skr_error error = {0};
    pump->is_draining = true;
    skr_pump_give_back(pump);
    while (skr_senders_pending(&pump->senders) > 0 && skr_clock_ms() < end)
        if (skr_pump_collect(pump, OUTCOME_WAIT_MS, &error) != SKR_OK)
            break;
    skr_senders_close(&pump->senders);
    for (struct skr_slot *slot;
         (slot = skr_settler_find_open(pump->settler)) != NULL;)
        skr_pump_close_slot(pump, slot);
}

bool
skr_pump_is_over(const struct skr_pump *pump)
{
    const struct skr_relay_options *options = pump->options;
    return options->is_over != NULL && options->is_over(options->is_over_user);
}

// One turn, or the end of it all.
static enum skr_code
go_on(struct skr_pump *pump, bool *finished, struct skr_error *error)
{
    skr_beat_turn();
    if (skr_clock_sleep(pump->stop_fd, 0)) {
        pump->stop_by_ms = skr_clock_ms() + pump->options->stop_timeout_ms;
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
    *finished = skr_pump_is_over(pump);
    enum skr_code code = SKR_OK;
    if (*finished)
        return SKR_OK;
    // Rows of an earlier session that came to no outcome lie among those that
    // are still being settled; read now, others would pass them.
    if (pump->settles_first) {
        pump->settles_first = !skr_settler_wait(pump->settler, 100);
        code = skr_pump_check_lock(pump, false, error);
        return code == SKR_OK ? hear_broker(pump, error) : code;
    }
    code = turn(pump, error);
    *finished = code == SKR_OK && skr_senders_pending(&pump->senders) == 0 &&
                is_finished(pump);
    bool is_some = false;
    if (*finished && !is_at_limit(pump))
        code = skr_pump_find_ownerless(pump, &is_some, error);
    *finished = *finished && code == SKR_OK && !is_some;
    return code;
}

enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error)
{
    pump->settles_first = true;
    pump->reads_anew = false;
    pump->may_have_more = true;
    pump->lost = (struct skr_error){.code = SKR_OK};
    skr_gates_begin(&pump->gates);
    skr_waiting_clear(&pump->waiting);
    skr_pump_begin_order(pump);
    bool finished = false;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !finished)
        code = go_on(pump, &finished, error);
    drain(pump);
    return code;
}
