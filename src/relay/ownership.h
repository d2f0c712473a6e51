// SPDX-License-Identifier: MIT
// Which rows of a queue are this relay's to send. Three kinds, chosen once; no
// other file of the relay asks which one it is.
//
//   exclusive  one relay holds the queue's lock, others stand by
//   shards     relays hold shards of the queue by leases; a liveness lock,
//              where sessions can hold one, makes take-over faster. Nothing is
//              written for a row.
//   rows       rows are claimed one by one, by leases, as Symfony's workers do
//
// A proof of ownership ages: nothing is sent on one that is older than the kind
// allows. A decision is fenced by the token under which its row was read. One
// session's thread calls all of it but skr_ownership_may_decide().

#ifndef SKR_RELAY_OWNERSHIP_H
#define SKR_RELAY_OWNERSHIP_H

#include "relay/rebalance.h"
#include "relay/relay.h"

struct skr_ownership;

// The kind of what is asked for, on such a queue; and whether the queue's table
// is to be divided into shards.
enum skr_claim skr_ownership_kind(enum skr_relay_claim asked, bool is_ordered);
bool skr_ownership_has_shards(enum skr_claim kind);
// The same of an embedder's options. SKR_INVALID: they ask for nothing known.
SKR_MUST_CHECK enum skr_code
skr_ownership_choose(const struct skr_relay_options *options,
                     enum skr_claim *kind, struct skr_error *error);

// Of a relay with these settings, which are borrowed.
SKR_MUST_CHECK enum skr_code
skr_ownership_new(const struct skr_relay_settings *settings,
                  struct skr_ownership **ownership, struct skr_error *error);
void skr_ownership_free(struct skr_ownership *ownership);

// What the kind means for the rest of the relay.
struct skr_ownership_traits {
    // Rows that are not there are gone, and not another relay's.
    bool is_exclusive;
    // Each row is claimed: some are read before there is room to send them, and
    // what was not sent is given back.
    bool claims_rows;
    // Into how many batches what is in flight is best divided. Small ones keep
    // the window full while one is read and another settled; large ones cost
    // fewer statements, of which a claim of rows takes several, and so does a
    // settlement under a fence.
    size_t batches;
};
const struct skr_ownership_traits *
skr_ownership_traits(const struct skr_ownership *ownership);

// Tries for about a second to become one of the relays that work the queue, by
// this connection, which is borrowed until release(). Not granted: that this
// relay stands by is logged, once in a row.
SKR_MUST_CHECK enum skr_code
skr_ownership_acquire(struct skr_ownership *ownership, struct skr_db *db,
                      int stop_fd, bool *is_granted, struct skr_error *error);

enum skr_ownership_state {
    SKR_OWN_ACTIVE,   // read and send
    SKR_OWN_DRAIN,    // begin nothing: what is in flight ends first
    SKR_OWN_CHANGED,  // active with other rows: read from the start
    SKR_OWN_WAITING,  // no shard is ours yet
    SKR_OWN_STANDBY,  // the same, and others work the queue: it was logged
};
// Proves, renews and rebalances, whatever is due. An error ends the session.
SKR_MUST_CHECK enum skr_code
skr_ownership_tick(struct skr_ownership *ownership,
                   const struct skr_activity *activity,
                   enum skr_ownership_state *state, struct skr_error *error);
// When tick() is to be called at the latest; 0: it need not be.
int64_t skr_ownership_next_ms(const struct skr_ownership *ownership);

// Before each message: proves that it may be sent, if the last proof is old.
SKR_MUST_CHECK enum skr_code
skr_ownership_prove(struct skr_ownership *ownership, struct skr_error *error);
// Whether rows that were claimed then may still be sent.
bool
skr_ownership_covers(const struct skr_ownership *ownership, int64_t claimed_ms);
// Writes the token of what is owned now into a batch that was just read.
void skr_ownership_stamp(const struct skr_ownership *ownership,
                         struct skr_batch *batch);
// Renews the claim of a batch whose rows wait for the broker.
SKR_MUST_CHECK enum skr_code
skr_ownership_renew(struct skr_ownership *ownership, struct skr_batch *batch,
                    int64_t *claimed_ms, struct skr_error *error);

// From the settler's thread: whether decisions may be written that are the
// owner's alone. Leases are compared as they are settled; the queue's lock must
// have been proven not long ago.
bool skr_ownership_may_decide(const struct skr_ownership *ownership);

// Whether rows are this relay's in this session, as far as a lock on the queue
// does not decide.
bool skr_ownership_has_rows(const struct skr_ownership *ownership);
// Whether shards are left that no relay works, found out now, or known from the
// last time: a relay that ends when the queue is empty must not leave those.
SKR_MUST_CHECK enum skr_code
skr_ownership_find_orphans(struct skr_ownership *ownership, bool *has_orphans,
                           struct skr_error *error);
bool skr_ownership_leaves_orphans(const struct skr_ownership *ownership);

// Gives up everything, for others to take at once.
void skr_ownership_release(struct skr_ownership *ownership);

#endif
