// SPDX-License-Identifier: MIT
// The relay: reads an outbox in id order, publishes, and settles what the
// broker has confirmed. One active relay per queue while others stand by, or
// several that share it by leases on its shards or on rows.
//
// Two threads: the session (the caller's) reads, sends and collects results;
// the settler deletes behind it on a connection of its own, so that neither the
// broker nor the database waits for the other.

#ifndef SKR_RELAY_RELAY_H
#define SKR_RELAY_RELAY_H

#include "base/beat.h"
#include "base/histogram.h"
#include "base/log.h"
#include "broker/broker.h"
#include "message/failure.h"
#include "message/route.h"
#include "relay/senders.h"
#include "store/store.h"

#include <skirnir/relay.h>

// What a relay has done so far, for other threads to read while it runs.
// [shared]
struct skr_relay_tally {
    // Gone from the outbox, deferred, moved to the failed table, and left where
    // they block their partition.
    atomic_uint_fast64_t published, retried, failed, blocked;
    // Rows that the database refuses to change at the moment.
    atomic_uint_fast64_t parked;
    // Stored by the broker, and given back by it since no queue wants them.
    // What is sent twice is counted twice.
    atomic_uint_fast64_t confirmed, returned;
    struct skr_histogram latency;  // from commit to confirmation
};

// When a run ends by itself, with SKR_OK where nothing else is said.
struct skr_relay_limits {
    uint64_t messages;  // after so many; 0: never
    // Asked every turn, in standby too: true ends the run. NULL: never.
    bool (*is_over)(void *user);
    void *user;
    // Asked while the relay has not been connected yet and a mistake keeps it
    // from that, which waiting does not mend: true ends the run with that
    // error. NULL: it waits.
    bool (*gives_up)(void *user);
    void *gives_up_user;
};

static inline bool
skr_relay_is_over(const struct skr_relay_limits *limits)
{
    return limits->is_over != NULL && limits->is_over(limits->user);
}

struct skr_relay_settings {
    const char *name;  // the transport's, for logs
    const struct skr_db_ops *database;
    const char *database_url;
    struct skr_store *table;  // borrowed
    const char *table_name;   // to see early whether it may be written; or NULL
    bool auto_setup;          // make the tables when they are missing

    const struct skr_sender_options *senders;  // borrowed; at least one
    size_t sender_count;
    // Borrowed; its senders are these. NULL: there is one, and it is one queue.
    const struct skr_routes *routes;

    // NONE: one relay, in order. LEASED: beside others that respect leases on
    // rows, such as Symfony's workers; not in an ordered queue. SHARDS: beside
    // others, by leases on shards, of whole seconds; the table is_sharded.
    enum skr_claim claim;
    // How long a lease lasts unless it is renewed: an hour on rows, 15000 on
    // shards.
    uint32_t lease_ms;
    struct skr_retry_policy retry;
    // Ordered queues: what cannot be sent stays as the head of its partition,
    // which waits for people. Else it goes to the failed table as elsewhere,
    // and the partition goes on.
    bool blocks_partitions;
    enum skr_unroutable unroutable;  // where no rule says it: fail
    // Messages that may go to the failed table within a minute from one route;
    // then it waits. 0: any number.
    uint32_t failure_limit;
    uint32_t in_flight;        // sent and not yet deleted: 1000
    uint64_t in_flight_bytes;  // 8 MiB
    uint32_t max_idle_ms;      // longest wait for work: 1000
    // A transaction that holds back the order of commits for longer is named:
    // 10000.
    uint32_t long_open_ms;
    // How often a row is tried again of which the database refuses what is to
    // be written to it: 60000.
    uint32_t park_ms;
    bool stop_when_empty;  // return once nothing can be sent or is in flight
    struct skr_relay_limits limits;
    uint32_t stop_timeout_ms;  // to finish what is in flight: 8000
    struct skr_log log;
    struct skr_relay_tally *tally;  // borrowed; NULL: not wanted
};

// The relay behind skr_relay_new(), which is for embedders; skr_relay_run(),
// skr_relay_stop() and skr_relay_free() serve both.
SKR_MUST_CHECK enum skr_code
skr_relay_make(const struct skr_relay_settings *settings,
               struct skr_relay **relay, struct skr_error *error);

// Of both of its threads.
struct skr_pulse skr_relay_pulse(const struct skr_relay *relay);

#endif
