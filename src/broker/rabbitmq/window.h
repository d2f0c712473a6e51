// SPDX-License-Identifier: MIT
// Messages between submit() and their result, in a ring that keeps their
// order. A message's number in it never changes; its tag, which the server
// counts from 1 in each channel, is looked up.
//
//   first .. next .. end
//     first to next   sent, or settled out of turn
//     next to end     still to be sent
//
// After a channel was closed, what was sent on it is suspect: next goes back to
// the first of them, and until the last of them is settled one goes at a time,
// so that the next close names its message. It also goes back to one that came
// back and is to be sent once more: then some behind it are sent already.

#ifndef SKR_BROKER_RABBITMQ_WINDOW_H
#define SKR_BROKER_RABBITMQ_WINDOW_H

#include "base/text.h"
#include "broker/broker.h"

enum rabbit_entry_state { RABBIT_WAITING, RABBIT_SENT, RABBIT_SETTLED };

struct rabbit_entry {
    const struct skr_message *message;  // borrowed until the result
    uint64_t tag;
    struct skr_text route;  // exchange and routing key, each with its zero
    size_t routing_key;     // where it begins in there
    enum rabbit_entry_state state;
    uint64_t delivery_tag;  // of a sent one
    int64_t sent_ms;
    struct skr_error *return_reason;  // came back: an ack does not undo it
    bool goes_again;                  // and is then sent once more
};

struct rabbit_done {
    uint64_t tag;
    enum skr_publish_result result;
    struct skr_error *reason;  // owned; NULL: none, or the connection's own
};

struct rabbit_window {
    struct rabbit_entry *entries;
    uint64_t *numbers;         // by delivery_tag
    struct rabbit_done *done;  // results that have not been given
    size_t capacity;           // of each; a power of two
    uint64_t first, next, end;
    uint64_t done_first, done_end;
    uint64_t suspects_end;
    uint64_t lowest_tag;  // that may have no answer yet
    uint64_t next_tag;
    size_t in_flight;    // sent and not settled
    size_t outstanding;  // submitted and not given
};

SKR_MUST_CHECK enum skr_code
skr_rabbit_window_init(struct rabbit_window *window, struct skr_error *error);
void skr_rabbit_window_fini(struct rabbit_window *window);

SKR_MUST_CHECK enum skr_code
skr_rabbit_window_add(struct rabbit_window *window,
                      const struct skr_message *message, const char *exchange,
                      const char *routing_key, uint64_t tag,
                      struct skr_error *error);
const char *skr_rabbit_entry_exchange(const struct rabbit_entry *entry);
const char *skr_rabbit_entry_key(const struct rabbit_entry *entry);

// The one to be sent next; NULL when there is none, or it has to wait.
struct rabbit_entry *skr_rabbit_window_next(struct rabbit_window *window);
// It has been sent.
void skr_rabbit_window_sent(struct rabbit_window *window, int64_t now_ms);
// It will not be sent.
void skr_rabbit_window_skip(struct rabbit_window *window,
                            enum skr_publish_result result,
                            const struct skr_error *reason);

// The oldest one that waits for the server's word; NULL: none does.
const struct rabbit_entry *
skr_rabbit_window_oldest(const struct rabbit_window *window);
// The oldest one with this id and route that has not come back yet: one id may
// be on its way twice, and to several places.
struct rabbit_entry *
skr_rabbit_window_find(struct rabbit_window *window, struct skr_id id,
                       const char *exchange, const char *routing_key);
// It came back: no queue takes it.
SKR_MUST_CHECK enum skr_code
skr_rabbit_entry_return(struct rabbit_entry *entry,
                        const struct skr_error *reason,
                        struct skr_error *error);

// The server's word on a tag, or on all up to it. False: it makes no sense.
SKR_MUST_CHECK bool
skr_rabbit_window_settle(struct rabbit_window *window, uint64_t delivery_tag,
                         bool multiple, enum skr_publish_result result);

// The channel is gone. If a single message was on it, it is the cause and gets
// this result.
void skr_rabbit_window_rewind(struct rabbit_window *window,
                              enum skr_publish_result result,
                              const struct skr_error *reason);
// Another channel takes the place of the one on which nothing is in flight.
void skr_rabbit_window_restart(struct rabbit_window *window);
// The connection is gone: what has no result gets SKR_UNCERTAIN.
void skr_rabbit_window_abandon(struct rabbit_window *window);

// Takes results out; failure is the reason of those that have none.
size_t skr_rabbit_window_give(struct rabbit_window *window,
                              const struct skr_error *failure,
                              struct skr_published *results, size_t capacity);

#endif
