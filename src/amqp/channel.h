// SPDX-License-Identifier: MIT
// The methods of a channel. Each is sent and not waited for: what the server
// answers comes as a frame of that channel. Texts are borrowed for the call.

#ifndef SKR_AMQP_CHANNEL_H
#define SKR_AMQP_CHANNEL_H

#include "amqp/connection.h"
#include "amqp/declaration.h"

// AMQP has room for 255 bytes in names and keys: the encoder does not look.
enum { SKR_AMQP_SHORT_SIZE = 256 };
SKR_MUST_CHECK enum skr_code
skr_amqp_check_short(const char *what, const char *text,
                     struct skr_error *error);
// As a text, cut at what a short one has room for.
void skr_amqp_copy_short(struct skr_amqp_piece piece,
                         char text[SKR_AMQP_SHORT_SIZE]);

// With confirms, the server says of each message that is published on it
// whether it has stored it.
SKR_MUST_CHECK enum skr_code
skr_amqp_channel_open(struct skr_amqp *amqp, uint16_t channel, bool confirms,
                      struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_channel_close(struct skr_amqp *amqp, uint16_t channel,
                       struct skr_error *error);

// A message that no queue takes comes back. It is followed by its body, piece
// by piece. properties are as skr_amqp_properties_write() makes them, and fit
// one frame, with what stands around them.
enum { SKR_AMQP_PROPERTIES_OVERHEAD = 8 + 12 };
struct skr_amqp_publish {
    const char *exchange, *routing_key;
    struct skr_amqp_piece properties;
    size_t body_size;
};
SKR_MUST_CHECK enum skr_code
skr_amqp_publish(struct skr_amqp *amqp, uint16_t channel,
                 const struct skr_amqp_publish *message,
                 struct skr_error *error);

// SKR_INVALID: a name in it is too long.
SKR_MUST_CHECK enum skr_code
skr_amqp_declare(struct skr_amqp *amqp, uint16_t channel,
                 const struct skr_amqp_declaration *declaration,
                 struct skr_error *error);
// Asks whether an exchange or a queue is there. One that is not closes the
// channel.
SKR_MUST_CHECK enum skr_code
skr_amqp_look_for(struct skr_amqp *amqp, uint16_t channel,
                  enum skr_amqp_object object, const char *name,
                  struct skr_error *error);
// Deletes an exchange that nothing is bound to.
SKR_MUST_CHECK enum skr_code
skr_amqp_delete_unused(struct skr_amqp *amqp, uint16_t channel,
                       const char *exchange, struct skr_error *error);

// The prefetch holds for each consumer that is made after it.
SKR_MUST_CHECK enum skr_code
skr_amqp_qos(struct skr_amqp *amqp, uint16_t channel, uint16_t prefetch,
             struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_consume(struct skr_amqp *amqp, uint16_t channel, const char *queue,
                 const char *consumer_tag, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_cancel(struct skr_amqp *amqp, uint16_t channel,
                const char *consumer_tag, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_amqp_ack(struct skr_amqp *amqp, uint16_t channel, uint64_t tag,
             bool multiple, struct skr_error *error);
// The message goes back to its queue.
SKR_MUST_CHECK enum skr_code
skr_amqp_requeue(struct skr_amqp *amqp, uint16_t channel, uint64_t tag,
                 struct skr_error *error);

#endif
