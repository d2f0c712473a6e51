// SPDX-License-Identifier: MIT
// A server that speaks just enough AMQP to misbehave on purpose, in a process
// of its own. What a message's body says decides what becomes of it:
//
//   hold       no answer
//   nack       a nack
//   stale      a nack on the first channel, an ack on any that follows it: as
//   in
//              a cluster whose quorum queue has got another leader
//   full       a nack on the first three channels, an ack on the fourth: as of
//              a queue that has been full for so long
//   all        an ack of everything so far, this one included
//   return     comes back, then an ack
//   stranger   another message comes back
//   future     an ack of a tag that was never used
//   zero       an ack of all, without saying up to where
//   garbage    bytes that are no frame
//   open       an open-ok that was not asked for
//   501        the connection is closed with this reply code
//
// and anything else gets an ack. After "hold", acks come in reverse order once
// "all" or "release" is seen: release acks those held, the last one first.
//
// In the vhost "mute" it says nothing more once one is logged in.
//
// A binding of the queue "bound-once" is answered the first time, one of a
// queue whose name begins with "unbindable" never, nor is what follows on that
// channel: as in a cluster of which a node hangs.
//
// To a consumer the name of the queue decides what comes after the
// answer to the subscription:
//
//   good       twenty messages with headers and bodies
//   silent     not even the answer
//   unturned   a delivery whose tag is not the next one
//   nobody     a delivery for a consumer that is not there
//   twice      two deliveries begin at once
//   bodiless   a body without properties
//   endless    more of a body than announced
//   huge       a body of 2^62 bytes is announced
//   broken     properties that end too early, then twenty good messages
//   unknown    properties that AMQP does not know, then the same
//   cancelled  the consumer is cancelled
//   cut-100    twenty good messages, of which the line lets 100 bytes through
//   406        the channel is closed with this reply code

#ifndef SKR_TESTS_FAKE_RABBITMQ_H
#define SKR_TESTS_FAKE_RABBITMQ_H

#include <sys/types.h>

struct skr_fake_rabbitmq {
    pid_t process;
    int port;
};

// greeting: what it says first instead of AMQP; NULL: it behaves.
void
skr_fake_rabbitmq_start(struct skr_fake_rabbitmq *server, const char *greeting);
void skr_fake_rabbitmq_stop(struct skr_fake_rabbitmq *server);

#endif
