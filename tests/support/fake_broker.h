// SPDX-License-Identifier: MIT
// A broker that does what a test tells it, and remembers what it got.

#ifndef SKR_TEST_FAKE_BROKER_H
#define SKR_TEST_FAKE_BROKER_H

#include "broker/broker.h"

#include <pthread.h>

enum { SKR_FAKE_CAPACITY = 8192 };

struct skr_fake_message {
    struct skr_id id;
    char name[64];
    char body[64];
    char exchange[64];
    char sender[16];  // the host of the URL that it was sent to
};

// What becomes of a message that is the count-th with this body; asked when
// results are collected.
typedef enum skr_publish_result
skr_fake_result_fn(const struct skr_fake_message *message, size_t count,
                   void *user);

struct skr_fake {
    pthread_mutex_t lock;
    skr_fake_result_fn *result;  // NULL: all are confirmed
    void *user;
    bool holds_back;  // no result is given while this is set
    bool is_down;     // open fails
    bool withholds;   // no result is given of a message with "slow" in its body
    // The same, of fake://other alone; it lets open() wait, gives no result,
    // or says that it takes nothing on.
    bool other_is_down, other_hangs, other_is_silent, other_is_blocked;

    struct skr_fake_message got[SKR_FAKE_CAPACITY];
    size_t got_count;
    size_t asked;  // for results, so many times
    size_t confirmed;
    size_t unanswered;
    size_t most_unanswered;
    int wake_fd, other_wake_fd;  // of the connection that got the last message
};

extern const struct skr_broker_ops skr_fake_broker;

// The one fake that opened brokers talk to.
void skr_fake_init(struct skr_fake *fake);
void skr_fake_fini(struct skr_fake *fake);
size_t skr_fake_got(struct skr_fake *fake);
void skr_fake_hold_back(struct skr_fake *fake, bool holds_back);
void skr_fake_set_down(struct skr_fake *fake, bool is_down);
// For any of its flags.
void skr_fake_set(struct skr_fake *fake, bool *flag, bool value);

#endif
