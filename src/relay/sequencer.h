// SPDX-License-Identifier: MIT
// The order of partitions. Messages of one partition reach the broker one after
// the other: the next is sent when the one before is confirmed. A row that
// waits for its time, or failed, holds back its own partition and no other.
//
// Of each partition that has anything to be remembered there is an entry: the
// chain of its rows in flight, of which the first is at the broker, and whether
// it is blocked: rows of it lie behind the source's cursor that are not in
// flight. A partition without an entry has no unfinished row behind the cursor.
//
// What a blocked partition has is read from its head on, once that may be sent:
// such partitions are listed, first come, first served. While one waits and is
// long, the source passes its rows beyond the cursor without reading them.
//
// No clock, no database.

#ifndef SKR_RELAY_SEQUENCER_H
#define SKR_RELAY_SEQUENCER_H

#include "base/map.h"
#include "base/ring.h"
#include "store/store.h"

typedef uint64_t skr_tag;

struct skr_sequencer {
    struct skr_map entries;  // by partition
    struct skr_sequencer_entry *spare;
    struct skr_ring heads;          // partitions to be read from their heads
    char *passed[SKR_MOST_PASSED];  // keys, the oldest first
    size_t passed_count;
};

// Never 0. Of "", which has no order, it is not asked.
uint64_t skr_sequencer_partition(const char *key);

// Empties it, and makes one of zeroes.
void skr_sequencer_clear(struct skr_sequencer *sequencer);
void skr_sequencer_fini(struct skr_sequencer *sequencer);

enum skr_turn {
    SKR_TURN_NOW,    // it may be sent at once
    SKR_TURN_AFTER,  // it follows the row `before`
    SKR_TURN_LEAVE,  // its partition is blocked: it stays in its row
};
struct skr_place {
    enum skr_turn turn;
    skr_tag before;
};

// Rows in flight, at most, of one partition: what is beyond is left, so that
// one large partition does not fill the window.
enum { SKR_LONGEST_CHAIN = 64 };

// Takes a row that was read, in the order of ids, into its partition.
// from_head: the partition is being read from its head, and a row begins its
// chain although it is blocked.
SKR_MUST_CHECK enum skr_code
skr_sequencer_add(struct skr_sequencer *sequencer, uint64_t partition,
                  skr_tag tag, bool from_head, struct skr_place *place,
                  struct skr_error *error);

// A row of the partition is behind the cursor and not in flight.
SKR_MUST_CHECK enum skr_code
skr_sequencer_block(struct skr_sequencer *sequencer, uint64_t partition,
                    struct skr_error *error);
// It was read to its end: nothing of it is left behind.
void skr_sequencer_unblock(struct skr_sequencer *sequencer, uint64_t partition);

struct skr_chain {
    skr_tag first;    // at the broker
    skr_tag last;     // of those that follow it
    uint32_t length;  // 0: nothing is in flight
    bool is_blocked;  // its partition
};
struct skr_chain
skr_sequencer_chain(const struct skr_sequencer *sequencer, uint64_t partition);

// The first of the chain is done, and next the row that follows it. False:
// nothing does. *is_behind then tells whether the partition is to be read from
// its head; otherwise it is forgotten.
bool skr_sequencer_advance(struct skr_sequencer *sequencer, uint64_t partition,
                           skr_tag next, bool *is_behind);
// What is in flight of the partition beyond so many rows, 0 or 1, goes back to
// its rows, and blocks it.
void skr_sequencer_cut(struct skr_sequencer *sequencer, uint64_t partition,
                       uint32_t kept);

// Lists a blocked partition to be read from its head, not before that time.
SKR_MUST_CHECK enum skr_code
skr_sequencer_list_head(struct skr_sequencer *sequencer, const char *key,
                        int64_t not_before_ms, struct skr_error *error);
// Takes listed partitions whose time has come and of which nothing is in
// flight, so many at most. The keys are the caller's to free.
size_t skr_sequencer_take_heads(struct skr_sequencer *sequencer, int64_t now_ms,
                                char **keys, size_t most);
// When the next can be taken; 0: none is listed.
int64_t skr_sequencer_next_head_ms(const struct skr_sequencer *sequencer);

// A blocked partition that fills most of what is read is passed from now on.
// The oldest gives way when there is no room; without memory nothing changes.
void skr_sequencer_pass(struct skr_sequencer *sequencer, const char *key);
// The keys of partitions that are passed, and how many they are.
const char *const *
skr_sequencer_passed(struct skr_sequencer *sequencer, size_t *count);

#endif
