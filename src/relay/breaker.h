// SPDX-License-Identifier: MIT
// Circuit breakers: whether messages may go to a destination now. One mistake
// at the broker must neither empty the outbox into the failed table nor use up
// the retries of messages that are not to blame.
//
// Every exchange has a breaker, and so has each sender and each route that
// failed once. While a breaker is open its messages stay in their rows; from
// time to time the first of them is sent as a probe.
//
//             route closed, sender lost, ten
//             refusals in a row, failure_limit
//      CLOSED ----------------------------> OPEN
//       ^  ^    the pause is over,          |  ^
//       |  |    no row waits                |  |
//       |  '--------------------------------+  | refused, not sent, miss:
//       |               the pause is over,  |  | a longer pause;
//       |               a row waits         |  | begin: one second
//       |                                   v  |
//       '------------------------------- HALF_OPEN
//         the message got through, forget, third miss
//
// What moves a breaker out of HALF_OPEN is about its probe; results of other
// messages, which were sent before the breaker tripped, prove nothing. An
// outage begins when a breaker trips and ends when a message has got through
// and the breaker has then stayed closed for two seconds: a breaker that trips
// and closes in turns has one outage, which is logged once.
//
// No clock, no log, no I/O in here: now_ms is by skr_clock_ms(), and the caller
// is told what to log.

#ifndef SKR_RELAY_BREAKER_H
#define SKR_RELAY_BREAKER_H

#include "base/backoff.h"
#include "base/map.h"
#include "broker/broker.h"
#include "message/failure.h"
#include "message/route.h"

#include <stdbool.h>
#include <stdint.h>

// A route beyond the first number shares the breaker of its exchange, an
// exchange beyond the second that of its sender.
enum {
    SKR_MOST_ROUTE_BREAKERS = 4096,
    SKR_MOST_BREAKERS = 5120,
    SKR_MOST_SENDER_BREAKERS = 17,  // SKR_MAX_SENDERS, and rows without a route
    SKR_BREAKER_NAME_SIZE = 200,
};

// From the outside to the inside.
enum skr_breaker_scope {
    SKR_BREAKER_SENDER,
    SKR_BREAKER_EXCHANGE,
    SKR_BREAKER_ROUTE,  // exchange and routing key
    SKR_BREAKER_SCOPES,
};

// Where the message of a row goes.
struct skr_destination {
    struct skr_route route;
    const char *sender;                 // its name
    uint64_t keys[SKR_BREAKER_SCOPES];  // hashes, by which breakers are found
    int64_t row;
};

enum skr_breaker_state {
    SKR_BREAKER_CLOSED,
    SKR_BREAKER_OPEN,
    SKR_BREAKER_HALF_OPEN,  // closed for one message, the probe
};

struct skr_breaker {
    uint64_t key;
    char name[SKR_BREAKER_NAME_SIZE];  // of the destination, for people
    enum skr_breaker_state state;
    // OPEN: when to probe. CLOSED with an outage: when the outage ends.
    int64_t until_ms;
    struct skr_backoff backoff;
    int64_t row;  // OPEN: the first row that waits. HALF_OPEN: the probe
    bool has_row;
    uint32_t misses;  // times that the row could not be had

    bool has_outage;
    bool is_proven;     // a message has got through since it tripped
    bool is_logged;     // the outage has been a loud notice
    int64_t logged_ms;  // the last time
    char error[sizeof(((struct skr_error *)NULL)->text)];  // of the outage
    uint64_t trips;                                        // with this error

    uint32_t refused_in_a_row;
    int64_t confirmed_ms;  // the last time; 0: never

    struct skr_failures failures;
    int64_t used_ms;
};

// What is to be logged.
struct skr_breaker_notice {
    bool is_open;      // the breaker has tripped; else its outage is over
    bool is_loud;      // for people (a warning, an info); else for debugging
    const char *name;  // of the destination
    struct skr_error error;  // of a trip: why, with the name in it
    uint64_t failures;       // of an end: trips with the last error
    size_t open_count;       // breakers that have an outage now
};
typedef void
skr_breaker_tell_fn(void *user, const struct skr_breaker_notice *notice);

// Initialised by the caller with the first three, all else zero.
struct skr_breakers {
    uint32_t failure_limit;  // to the failed table in a minute; 0: any number
    skr_breaker_tell_fn *tell;
    void *tell_user;

    struct skr_breaker senders[SKR_MOST_SENDER_BREAKERS];
    size_t sender_count;
    struct skr_map others;  // of exchanges and routes, by key
    int64_t clean_ms;       // when to look for idle ones again

    size_t open_count;      // not CLOSED: messages wait at them
    size_t outage_count;    // not CLOSED, or closed for a short time
    size_t loud_next;       // how many outages make the next loud notice
    int64_t next_ms;        // when something is to be done; 0: never
    bool next_is_outdated;  // next_ms is to be found anew
    bool has_recovered;
};

// route NULL: the message has none, as it cannot be decoded.
void skr_destination_init(struct skr_destination *destination,
                          const struct skr_route *route, const char *sender,
                          int64_t row);

void skr_breakers_fini(struct skr_breakers *breakers);

// A session begins, and reads from the start: which row is the first at an open
// breaker is found anew, as rows that were in flight when the last session
// ended come before those that waited.
void skr_breakers_begin(struct skr_breakers *breakers, int64_t now_ms);

// Whether the message may be sent now. One that may not waits in its row.
bool
skr_breakers_allow(struct skr_breakers *breakers,
                   const struct skr_destination *destination, int64_t now_ms);

enum skr_blame {
    SKR_BLAME_MESSAGE,      // it costs the message a retry
    SKR_BLAME_NOBODY,       // again later, not counted
    SKR_BLAME_DESTINATION,  // the breaker is open: the message waits as it is
};

// What the broker said of the message, and why where it did not take it.
//
//   confirmed         the destination works, and others' refusals count
//   refused for good  an objection to this message alone: the destination works
//   unroutable        the same, or the route waits for a queue, as it says
//   refused once      counts against the message only while others to the same
//                     exchange are confirmed; many in a row trip the breaker of
//                     the route. The exchange itself works.
//   route closed      nothing can go to the exchange: the message waits
//   uncertain         nothing can go to the sender, unless it is the first
//   held back         tells nothing, as when the message was not sent
//
// Breakers that the message probes and its result tells nothing of are open
// until their next probe.
enum skr_blame
skr_breakers_report(struct skr_breakers *breakers,
                    const struct skr_destination *destination,
                    enum skr_publish_result result,
                    const struct skr_error *reason, int64_t now_ms);

// Whether one more message may go to the failed table for this reason. If not,
// it waits as it is, and so do all others of its route.
bool skr_breakers_may_fail(struct skr_breakers *breakers,
                           const struct skr_destination *destination,
                           const struct skr_error *reason, int64_t now_ms);

// Closes breakers whose pause is over and at which no row waits, and ends
// outages. True: the message in *row is to be sent now, as a probe.
bool skr_breakers_next_probe(struct skr_breakers *breakers, int64_t now_ms,
                             int64_t *row);
// The row of the probe is gone: any message may be the next.
void skr_breakers_forget(struct skr_breakers *breakers, int64_t row);
// The row of the probe could not be had, as another relay may work on it: it is
// tried later, and forgotten the third time.
void
skr_breakers_miss(struct skr_breakers *breakers, int64_t row, int64_t now_ms);

// Whether no breaker keeps the message from being sent now.
bool skr_breakers_are_closed_for(struct skr_breakers *breakers,
                                 const struct skr_destination *destination);
// When skr_breakers_next_probe() is to be called; 0: never.
int64_t skr_breakers_next_ms(struct skr_breakers *breakers);
// Whether a breaker has closed since the last call: rows that waited are to be
// read again.
bool skr_breakers_take_recovered(struct skr_breakers *breakers);

#endif
