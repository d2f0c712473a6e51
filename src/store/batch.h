// SPDX-License-Identifier: MIT
// A batch: the messages that one worker has read, and what became of each.

#ifndef SKR_STORE_BATCH_H
#define SKR_STORE_BATCH_H

#include "base/arena.h"
#include "message/envelope.h"
#include "message/route.h"

enum skr_state {
    SKR_READ,         // not handed over, or handed over in vain: the row stays
    SKR_DONE,         // confirmed: the row may leave
    SKR_RETRY_LATER,  // refused: the row waits for delay_ms
    SKR_DEAD,         // the row moves to the failed table

    // Of ordered queues alone.
    SKR_NOT_READY,  // came without its body: it holds back its partition
    SKR_BEHIND,     // came as id and key: its partition has something to do
    SKR_BLOCKED,    // dead, but stays as the head of its partition
};

// How much of a result is written to the row. Items begin with the first; the
// others serve to tell apart rows that the database refuses (apart.h).
enum skr_write {
    SKR_WRITE_WHOLE,    // all that belongs to it
    SKR_WRITE_LEAST,    // that alone: nothing of the row's content is sent
    SKR_WRITE_LATER,    // nothing, as other rows are written first
    SKR_WRITE_DONE,     // nothing any more: it is written
    SKR_WRITE_REFUSED,  // nothing: the database refuses it for good
};

// How the rows of a queue are kept from other relays.
enum skr_claim {
    SKR_CLAIM_NONE,    // not at all: one reader has the queue to itself
    SKR_CLAIM_LEASED,  // each row carries the time of the claim
    SKR_CLAIM_SHARDS,  // by leases on all shards that they may be of
};

// What tells whose rows are; all empty where one reader has the queue to
// itself.
struct skr_lease {
    // The time of the claim by the database's clock; "": none.
    char time[20];  // "2026-11-15 02:53:45"
    // Of shards: a bit each, and the sum of their epochs.
    uint64_t shards;
    int64_t epochs;
    // In a cluster what is only locked is no concern of other nodes: a relay
    // that settles writes the shards' rows, and by that renews their leases for
    // so long. 0: locks do.
    uint32_t write_s;
};

struct skr_batch_item {
    int64_t row;
    // When the row was made, as it says itself. With the id it tells the row
    // from one that has the same id later. NULL: not known.
    const char *created_at;
    struct skr_envelope envelope;  // lives in the batch's arena
    // Where the row itself says that it goes; topic NULL: found by its name.
    struct skr_route route;
    // The headers as they lie in the row; kept when they cannot be parsed.
    const char *raw_headers;
    size_t raw_headers_size;
    // Of an ordered queue: "" where there is no order. Else NULL.
    const char *partition_key;
    size_t size;       // bytes of body and headers
    bool redelivered;  // another had claimed it and did not settle it in time
    bool had_to_wait;  // its time came after it was written
    enum skr_state state;
    uint32_t delay_ms;
    bool is_not_counted;  // the retry is not counted
    bool is_untold;    // SKR_BEHIND: it is found again, as nothing else tells
                       // when it may be sent
    bool lost;         // another has the row by now: it may only be deleted
    bool is_replaced;  // a new row has its id: nothing is written
    bool is_put_back;  // the table refused every decision: it was left
    struct skr_error reason;  // of a retry or a failure
    enum skr_write write;
    // Why the result was not written whole; NULL: it was.
    const char *refusal;
};

// Whether the message keeps an order with others of its key.
static inline bool
skr_has_order(const struct skr_batch_item *item)
{
    return item->partition_key != NULL && item->partition_key[0] != '\0';
}

// Whether what became of the message is known, and is to be written.
static inline bool
skr_has_result(const struct skr_batch_item *item)
{
    switch (item->state) {
    case SKR_DONE:
    case SKR_RETRY_LATER:
    case SKR_DEAD:
    case SKR_BLOCKED: return true;
    case SKR_READ:
    case SKR_NOT_READY:
    case SKR_BEHIND: break;
    }
    return false;
}

static inline bool
skr_is_written_now(const struct skr_batch_item *item)
{
    return item->write == SKR_WRITE_WHOLE || item->write == SKR_WRITE_LEAST;
}

// Published, and its row may go.
static inline bool
skr_is_done(const struct skr_batch_item *item)
{
    return item->state == SKR_DONE && item->write == SKR_WRITE_WHOLE;
}

// Published, and its row can only be marked so.
static inline bool
skr_is_done_and_stays(const struct skr_batch_item *item)
{
    return item->state == SKR_DONE && item->write == SKR_WRITE_LEAST;
}

struct skr_batch {
    struct skr_batch_item *items;
    size_t count;
    size_t capacity;
    size_t bytes;
    struct skr_lease lease;  // of all items that are not lost
    // They are settled late: whether a new row has the id of one is asked first
    // (identity.h), also where the database gives no id twice by itself.
    bool is_late;
    // Of which database server the rows are, as in struct skr_db. Stays when
    // the items are forgotten.
    uint64_t server;
    struct skr_arena arena;
};

SKR_MUST_CHECK enum skr_code
skr_batch_init(struct skr_batch *batch, size_t capacity,
               struct skr_error *error);
// Forgets the items. What is still claimed stays so: settle or release first.
void skr_batch_clear(struct skr_batch *batch);
void skr_batch_fini(struct skr_batch *batch);

// Of ids of rows, for qsort().
int skr_compare_rows(const void *left, const void *right);
// Whether an id is among these, which are sorted.
bool skr_is_among_rows(int64_t row, const int64_t *rows, size_t count);

#endif
