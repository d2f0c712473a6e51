// SPDX-License-Identifier: MIT
// Headers as the tables hold them: one JSON object of strings, in order.

#ifndef SKR_MESSAGE_HEADERS_H
#define SKR_MESSAGE_HEADERS_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_arena;
struct skr_text;

#define SKR_HEADER_TYPE "type"
#define SKR_HEADER_CONTENT_TYPE "Content-Type"
#define SKR_HEADER_ID "X-Message-Id"
#define SKR_HEADER_CLASS "X-Message-Class"
#define SKR_HEADER_STAMP "X-Message-Stamp-"
// What begins so is this program's own word: how a row is to be read, where its
// message goes, what failing did to it. It counts in rows alone. It never goes
// to a broker, and is dropped where it comes from one.
#define SKR_HEADER_RESERVED "X-Skirnir-"
#define SKR_HEADER_NAME "X-Skirnir-Message-Name"
#define SKR_HEADER_RAW "X-Skirnir-Raw-Headers"
#define SKR_HEADER_RAW_BASE64 "X-Skirnir-Raw-Headers-Base64"
// Of a body that is no text: "base64".
#define SKR_HEADER_BODY_ENCODING "X-Skirnir-Body-Encoding"
// Of a message without an id, in the failed table: made of what it says.
#define SKR_HEADER_DIGEST "X-Skirnir-Digest"
// Of a message that failed in an ordered outbox: the key stood in its row. No
// stamp, as Symfony deletes a row with one whose class it does not know.
#define SKR_HEADER_PARTITION "X-Skirnir-Partition-Key"
// Where a record of Kafka stood: every message that was consumed from there has
// these, and keeps them when it fails. No stamps, for the same reason.
#define SKR_HEADER_KAFKA_TOPIC "X-Kafka-Topic"
#define SKR_HEADER_KAFKA_PARTITION "X-Kafka-Partition"
#define SKR_HEADER_KAFKA_OFFSET "X-Kafka-Offset"
#define SKR_HEADER_KAFKA_KEY "X-Kafka-Key"
// Of a key that is no text.
#define SKR_HEADER_KAFKA_KEY_BASE64 "X-Kafka-Key-Base64"
#define SKR_HEADER_REDELIVERY \
    "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\RedeliveryStamp"
#define SKR_HEADER_ERROR \
    "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\ErrorDetailsStamp"
#define SKR_HEADER_SENT_TO_FAILURE                    \
    "X-Message-Stamp-Symfony\\Component\\Messenger\\" \
    "Stamp\\SentToFailureTransportStamp"

// More than any broker carries; they bound what a row can cost. The size is
// that of the JSON object in a row, and of names and values on a wire.
enum {
    SKR_MAX_HEADERS = 1000,
    SKR_MAX_HEADERS_SIZE = 1024 * 1024,
};

#define SKR_DEFAULT_STAMP_NAMESPACE "Freyr\\MessageBroker\\Inbox"
#define SKR_DEFAULT_CONTENT_TYPE "application/json"

// A list that grows in an arena.
struct skr_headers {
    struct skr_header *items;
    size_t count;
    size_t capacity;
};

// Text is borrowed: it lives in the arena or longer. False: memory is out.
SKR_MUST_CHECK bool
skr_headers_add(struct skr_arena *arena, struct skr_headers *headers,
                const char *name, const char *value);
// Replaces the value of an existing header of that name, or adds one.
SKR_MUST_CHECK bool
skr_headers_set(struct skr_arena *arena, struct skr_headers *headers,
                const char *name, const char *value);
// A list that may be changed without touching the given one, whose texts it
// borrows.
SKR_MUST_CHECK enum skr_code
skr_headers_copy(struct skr_arena *arena, const struct skr_headers *headers,
                 struct skr_headers *copy, struct skr_error *error);
// NULL when there is none. Names are compared as they are written.
const char *skr_headers_find(const struct skr_header *headers, size_t count,
                             const char *name);
const char *
skr_headers_get(const struct skr_headers *headers, const char *name);

// Whether the name begins with SKR_HEADER_RESERVED.
bool skr_headers_is_reserved(const char *name);
// Adds a member of a JSON object, or replaces the header of its name. A value
// that is no string becomes its JSON text. SKR_MALFORMED: a zero byte, or there
// are too many.
struct skr_json;
SKR_MUST_CHECK enum skr_code
skr_headers_take(struct skr_arena *arena, const struct skr_json *member,
                 struct skr_headers *headers, struct skr_error *error);
// SKR_MALFORMED when there are more bytes of headers than a message may have:
// asked before they are read, of all that others wrote. Rows of the failed
// table and retries may have more, by what was added to them.
SKR_MUST_CHECK enum skr_code
skr_headers_check_size(size_t size, struct skr_error *error);
// SKR_MALFORMED says what is wrong: not JSON, "[]" (no headers at all), not an
// object, a zero byte. Values that are not strings become their JSON text.
SKR_MUST_CHECK enum skr_code
skr_headers_parse(struct skr_arena *arena, const char *json, size_t size,
                  struct skr_headers *headers, struct skr_error *error);

// Appends the JSON object. SKR_INVALID when a name or value is not UTF-8.
SKR_MUST_CHECK enum skr_code
skr_headers_write(const struct skr_header *headers, size_t count,
                  struct skr_text *json, struct skr_error *error);

// A stamp's value is a JSON array with one object: [{"messageId":"..."}].
// Reads a member of its last object as text; NULL when there is none. Fails
// only for lack of memory.
SKR_MUST_CHECK enum skr_code
skr_stamp_read(struct skr_arena *arena, const char *value, const char *member,
               const char **text, struct skr_error *error);
// Writes one with a single member; NULL when memory is out.
const char *
skr_stamp_write(struct skr_arena *arena, const char *member, const char *text);

#endif
