// SPDX-License-Identifier: MIT
// A message with what its headers say about it, as rows and wires carry it.

#ifndef SKR_MESSAGE_ENVELOPE_H
#define SKR_MESSAGE_ENVELOPE_H

#include "message/headers.h"
#include "message/name.h"

#include <stdbool.h>

struct skr_arena;
struct skr_text;

struct skr_envelope {
    // name, id, content_type and partition_key are understood from the
    // headers; headers are all of them, as they came.
    struct skr_message message;
    struct skr_headers headers;
    bool has_id;
    bool has_unset_id;       // all zero, as good as none
    const char *class_name;  // NULL: none known
    uint32_t retry_count;    // RedeliveryStamp
};

// Understands headers that were parsed before. broker_id is the broker's own
// message id or NULL. A PHP class in type becomes its semantic name by a
// MessageNameStamp or by names; without either it stays the message's name.
// SKR_MALFORMED: no type, or an id that is neither UUID nor ULID.
SKR_MUST_CHECK enum skr_code
skr_envelope_read(struct skr_arena *arena, const struct skr_headers *headers,
                  const char *broker_id, const struct skr_names *names,
                  struct skr_envelope *envelope, struct skr_error *error);

// The name of the header that carries the id: the stamp in this namespace, or
// NULL when the namespace is "". stamp_namespace NULL is the default one.
SKR_MUST_CHECK enum skr_code
skr_envelope_id_header(struct skr_arena *arena, const char *stamp_namespace,
                       const char **id_header, struct skr_error *error);

// What leaves for the broker, in message->headers: type, the id in every form,
// the class, all other headers; not the stamps that are ours alone (partition
// key, delay, redelivery, bus name, sent, error) nor Content-Type, which is a
// field of the message. The envelope has an id. partition_header is the header
// that tells of the partition key all the same; NULL: none.
SKR_MUST_CHECK enum skr_code
skr_envelope_to_wire(struct skr_arena *arena, const char *id_header,
                     const char *partition_header,
                     struct skr_envelope *envelope, struct skr_error *error);
// Whether a header of that name is free for others to write: it is neither one
// of ours nor one that stays here.
bool skr_envelope_is_free_header(const char *header);

// The headers column of a message that is being published. Checks name, body,
// headers and id first; SKR_INVALID names the mistake.
SKR_MUST_CHECK enum skr_code
skr_message_check(const struct skr_message *message, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_message_write_headers(const struct skr_message *message,
                          struct skr_arena *arena, const char *id_header,
                          struct skr_text *json, struct skr_error *error);

#endif
