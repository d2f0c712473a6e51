// SPDX-License-Identifier: MIT
// The order of partitions. Messages of one partition reach the broker one after
// the other: the next is sent when the one before is confirmed. What waits for
// its time, or failed, holds back its own partition and no other.
//
// Of each partition that has anything to be remembered there is an entry: the
// chain of its messages in hand, of which the first is under way, and whether
// it is blocked: rows of it lie behind the reader that are not in hand. A
// partition without an entry has no unfinished row behind the reader.

#ifndef SKR_OUTBOX_ORDER_H
#define SKR_OUTBOX_ORDER_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_order_entry {
    uint64_t partition;    // 0: no entry
    uint64_t first, last;  // tickets of the chain
    uint32_t length;       // of the chain; 0: nothing is in hand
    bool is_blocked;
    bool is_listed;  // among those that are to be read from their heads
};

struct skr_order {
    struct skr_order_entry *entries;  // by hash, open addressing
    size_t count;
    size_t capacity;  // a power of two
};

// Never 0. Of "", which has no order, it is not asked.
uint64_t skr_order_partition(const char *key);

void skr_order_clear(struct skr_order *order);
void skr_order_fini(struct skr_order *order);

enum skr_order_place {
    SKR_ORDER_FIRST,    // it may go at once
    SKR_ORDER_CHAINED,  // it follows what is in hand
    SKR_ORDER_LEFT,     // its partition is blocked: it stays in its row
};

// Messages in hand, at most, of one partition: what is beyond stays behind, so
// that one large partition does not fill the window.
enum { SKR_ORDER_LONGEST_CHAIN = 64 };

// Takes a message that was read, in the order of ids, into its partition.
// *before is the ticket that it follows when it is chained.
SKR_MUST_CHECK enum skr_code
skr_order_add(struct skr_order *order, uint64_t partition, uint64_t ticket,
              enum skr_order_place *place, uint64_t *before,
              struct skr_error *error);

// A row of the partition is behind the reader and not in hand.
SKR_MUST_CHECK enum skr_code
skr_order_block(struct skr_order *order, uint64_t partition,
                struct skr_error *error);
bool skr_order_is_blocked(const struct skr_order *order, uint64_t partition);
bool skr_order_is_in_hand(const struct skr_order *order, uint64_t partition);
// The ticket that is under way, and the last of those that follow it. False:
// nothing is in hand.
bool skr_order_chain(const struct skr_order *order, uint64_t partition,
                     uint64_t *first, uint64_t *last);
// Notes that a blocked partition is on the list of those to be read, or no
// longer. False: that was so before, or it is not blocked.
bool skr_order_set_listed(struct skr_order *order, uint64_t partition,
                          bool is_listed);

// The first of the chain is done, and next the ticket that follows it. False:
// nothing does. *is_behind then tells whether the partition is to be read from
// its head; otherwise it is forgotten.
bool skr_order_advance(struct skr_order *order, uint64_t partition,
                       uint64_t next, bool *is_behind);
// What is in hand of the partition goes back to its rows, and blocks it.
void skr_order_drop(struct skr_order *order, uint64_t partition);
// The same for all but the first, which is under way.
void skr_order_trim(struct skr_order *order, uint64_t partition);

// The partition is being read from its head: rows that are added now begin its
// chain although it is blocked.
SKR_MUST_CHECK enum skr_code
skr_order_resume(struct skr_order *order, uint64_t partition, uint64_t ticket,
                 enum skr_order_place *place, uint64_t *before,
                 struct skr_error *error);
// It was read to its end, and nothing of it is left behind.
void skr_order_unblock(struct skr_order *order, uint64_t partition);

#endif
