// SPDX-License-Identifier: MIT
// Gates: whether messages may go somewhere now. One mistake at the broker must
// neither empty the outbox into the failed table nor spend the retries of
// messages that are not to blame.
//
// A gate stands before every exchange, and before each sender and each route
// that gave trouble. While one is closed its messages stay in their rows; now
// and then the first of them is let through to try. One that opens and closes
// in turns is in trouble all the while, which is said once.

#ifndef SKR_OUTBOX_GATES_H
#define SKR_OUTBOX_GATES_H

#include "base/log.h"
#include "message/route.h"

#include <stdbool.h>

// A route beyond the first number waits together with its exchange, an exchange
// beyond the second with its sender.
enum {
    SKR_MOST_ROUTE_GATES = 4096,
    SKR_MOST_GATES = 5120,
    SKR_MOST_SENDER_GATES = 17,  // SKR_MAX_SENDERS, and what has none
    SKR_GATE_NAME_SIZE = 200,
};

// From the outside to the inside.
enum skr_gate_kind {
    SKR_GATE_SENDER,
    SKR_GATE_EXCHANGE,
    SKR_GATE_ROUTE,  // exchange and routing key
    SKR_GATE_KINDS,
};

// A message on its way through the gates.
struct skr_passage {
    struct skr_route route;
    const char *sender;  // its name
    uint64_t places[SKR_GATE_KINDS];
    int64_t row;
};

enum skr_gate_state {
    SKR_GATE_OPEN,
    SKR_GATE_CLOSED,
    SKR_GATE_TRYING,  // open for one message
};

struct skr_gate {
    uint64_t place;
    char name[SKR_GATE_NAME_SIZE];  // for people
    enum skr_gate_state state;
    // When to try again; of an open one that is in trouble, when it no longer
    // is. By skr_clock_ms().
    int64_t until_ms;
    uint32_t pause_ms;
    int64_t row;  // of the first message that waits, or the one that tries
    bool has_row;
    uint32_t misses;  // times that the row was not to be had

    bool is_in_trouble;  // since it closed, until it has stayed open for long
    bool is_proven;      // a message has got through since
    struct skr_trouble trouble;
    bool is_said;  // to people

    uint32_t refused_in_a_row;
    int64_t confirmed_ms;  // the last time; 0: never

    int64_t failing_since_ms;  // when the minute began
    uint32_t failures;         // in it
    int64_t used_ms;
};

struct skr_gates {
    const char *name;  // the relay's, for logs
    const struct skr_log *log;
    uint32_t failure_limit;  // to the failed table in a minute; 0: any number

    struct skr_gate senders[SKR_MOST_SENDER_GATES];
    size_t sender_count;
    struct skr_gate **items;  // the others, by hash, open addressing
    size_t count, capacity;   // a power of two
    int64_t forget_ms;        // when to look for idle ones again

    size_t closed;          // not open
    size_t in_trouble;      // closed, or open for a short time
    size_t say_next;        // when so many are in trouble
    int64_t next_ms;        // when something is to be done; 0: never
    bool next_is_outdated;  // and is to be found anew
    bool has_opened;
};

void skr_gates_fini(struct skr_gates *gates);

// route NULL: the message has none, as it cannot be understood.
void
skr_passage_init(struct skr_passage *passage, const struct skr_route *route,
                 const char *sender, int64_t row);

// A session begins, and reads from the start: who is first at a closed gate is
// found anew, as rows that were under way when the last one ended come before
// those that waited.
void skr_gates_begin(struct skr_gates *gates);

// Whether the message may be sent now. One that may not waits in its row.
bool
skr_gates_admit(struct skr_gates *gates, const struct skr_passage *passage);

// The broker has stored it, or had something against this message alone: the
// way there is open.
void
skr_gates_confirm(struct skr_gates *gates, const struct skr_passage *passage);
void
skr_gates_reach(struct skr_gates *gates, const struct skr_passage *passage);

// What became of it, or that it was not sent, tells nothing of a gate that it
// was to try: that is closed as before, until the next try.
void
skr_gates_end_try(struct skr_gates *gates, const struct skr_passage *passage);

enum skr_gate_verdict {
    SKR_GATE_BLAME,   // the message's own fault: it costs a retry
    SKR_GATE_EXCUSE,  // again later, at no cost
    SKR_GATE_HOLD,    // the gate is closed: it waits as it is
};

// The broker did not take it this time. That counts against a message only
// while others to the same exchange are confirmed, and many in a row close the
// route. The exchange itself is there.
enum skr_gate_verdict
skr_gates_refuse(struct skr_gates *gates, const struct skr_passage *passage,
                 const struct skr_error *reason);

// Nothing can go there, whatever the message: this one waits.
void skr_gates_close(struct skr_gates *gates, enum skr_gate_kind kind,
                     const struct skr_passage *passage,
                     const struct skr_error *reason);

// Whether one more may go to the failed table for this reason. If not, it waits
// as it is, and so does whatever else goes there.
bool
skr_gates_may_fail(struct skr_gates *gates, const struct skr_passage *passage,
                   const struct skr_error *reason);

// Opens what has waited long enough and has nothing to try with, and says whose
// trouble is over. True: the message in *row is to be tried now.
bool skr_gates_next_try(struct skr_gates *gates, int64_t *row);
// It is not there any more: whatever comes next will do.
void skr_gates_forget(struct skr_gates *gates, int64_t row);
// It is not to be had, as another may be working on it: it is tried later, and
// forgotten when that goes on.
void skr_gates_miss(struct skr_gates *gates, int64_t row);

// Whether nothing keeps the message from being sent now.
bool
skr_gates_are_open(struct skr_gates *gates, const struct skr_passage *passage);
// Whether messages wait at any of them.
bool skr_gates_are_closed(const struct skr_gates *gates);
// When skr_gates_next_try() is to be called; 0: never.
int64_t skr_gates_next_ms(struct skr_gates *gates);
// Whether a gate has opened since this was last asked: rows that waited want
// to be read again.
bool skr_gates_have_opened(struct skr_gates *gates);

#endif
