// SPDX-License-Identifier: MIT
// Publishing into the queue: what was submitted is written in one transaction
// as soon as the caller asks for the outcomes.

#include "broker/queue/queue.h"

#include "base/error.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

// Room for one more in each of the three arrays.
static bool
reserve(struct queue_publisher *publisher)
{
    size_t capacity[] = {publisher->capacity, publisher->capacity,
                         publisher->capacity};
    size_t needed = publisher->count + 1;
    if (!skr_vec_reserve(&publisher->pending, &capacity[0], needed,
                         sizeof(*publisher->pending)) ||
        !skr_vec_reserve(&publisher->rows, &capacity[1], needed,
                         sizeof(*publisher->rows)) ||
        !skr_vec_reserve(&publisher->row_owner, &capacity[2], needed,
                         sizeof(*publisher->row_owner)))
        return false;
    publisher->capacity = capacity[0];
    return true;
}

// After a failed write nothing more is taken on this connection: the caller
// hears why, and opens another.
static enum skr_code
tell_failure(const struct queue_publisher *publisher, struct skr_error *error)
{
    if (error != NULL) {
        *error = publisher->failure;
        error->remedy = SKR_RECONNECT;
    }
    return publisher->failure.code;
}

enum skr_code
skr_queue_submit(struct skr_broker *base, const struct skr_message *message,
                 const struct skr_route *route, uint64_t ticket,
                 struct skr_error *error)
{
    (void)route;  // there is one queue, and it is this
    struct queue_publisher *publisher =
        &((struct queue_broker *)base)->publisher;
    if (publisher->failure.code != SKR_OK)
        return tell_failure(publisher, error);
    if (!reserve(publisher))
        return skr_fail_memory(error);
    publisher->pending[publisher->count++] =
        (struct queue_pending){.message = message, .ticket = ticket};
    return SKR_OK;
}

static enum skr_code
refuse(struct queue_pending *pending, const struct skr_error *reason,
       struct skr_error *error)
{
    pending->reason = malloc(sizeof(*pending->reason));
    if (pending->reason == NULL)
        return skr_fail_memory(error);
    *pending->reason = *reason;
    pending->fate = SKR_REFUSED_FOR_GOOD;
    return SKR_OK;
}

// Content-Type comes last, as Symfony writes it.
static enum skr_code
write_headers(struct queue_publisher *publisher,
              const struct skr_message *message, struct skr_error *error)
{
    if (!skr_vec_reserve(&publisher->headers, &publisher->header_capacity,
                         message->header_count + 1,
                         sizeof(*publisher->headers)))
        return skr_fail_memory(error);
    size_t count = 0;
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, SKR_HEADER_CONTENT_TYPE) != 0)
            publisher->headers[count++] = message->headers[i];
    publisher->headers[count++] = (struct skr_header){
        .name = SKR_HEADER_CONTENT_TYPE,
        .value = message->content_type == NULL ? SKR_DEFAULT_CONTENT_TYPE
                                               : message->content_type};
    return skr_headers_write(publisher->headers, count, &publisher->json,
                             error);
}

static enum skr_code
encode_one(struct queue_publisher *publisher, const struct skr_message *message,
           struct skr_messenger_row *row, struct skr_error *error)
{
    if (!skr_text_is_storable(message->body, message->body_size))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the body is not text in UTF-8, which is all that a "
                        "queue table can hold");
    size_t start = publisher->json.size;
    enum skr_code code = write_headers(publisher, message, error);
    if (code == SKR_OK)
        code = skr_headers_check_size(publisher->json.size - start, error);
    if (code != SKR_OK)
        return code;
    *row = (struct skr_messenger_row){
        .body = message->body,
        .body_size = message->body_size,
        .headers_size = publisher->json.size - start,
        .due_at_us = message->due_at_us,
    };
    return SKR_OK;
}

// Makes rows of all that was submitted; what cannot be a row is refused here.
static enum skr_code
encode_rows(struct queue_publisher *publisher, size_t *row_count,
            struct skr_error *error)
{
    skr_text_clear(&publisher->json);
    size_t count = 0;
    for (size_t i = publisher->written; i < publisher->count; i++) {
        struct queue_pending *pending = &publisher->pending[i];
        struct skr_error reason = {0};
        enum skr_code code = encode_one(publisher, pending->message,
                                        &publisher->rows[count], &reason);
        if (code == SKR_NO_MEMORY || publisher->json.broken)
            return skr_fail_memory(error);
        if (code == SKR_OK)
            publisher->row_owner[count++] = i;
        else if ((code = refuse(pending, &reason, error)) != SKR_OK)
            return code;
    }
    // The text has stopped moving: now its parts can be pointed at.
    const char *at = publisher->json.bytes;
    for (size_t i = 0; i < count; i++) {
        publisher->rows[i].headers = at;
        at += publisher->rows[i].headers_size;
    }
    *row_count = count;
    return SKR_OK;
}

static enum skr_code
append(struct queue_broker *broker, const struct skr_messenger_row *rows,
       size_t count, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(broker->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_append(broker->table, skr_db_tx(broker->db), NULL,
                                rows, count, error);
    if (code != SKR_OK) {
        skr_db_rollback(broker->db);
        return code;
    }
    return skr_db_commit(broker->db, error);
}

// Whose fault a refusal is: a row that nothing can be said against tells. One
// mistake on the queue's side must not condemn every message.
static bool
table_takes_rows(struct queue_broker *broker)
{
    static const char headers[] = "{\"type\":\"skirnir.probe\"}";
    struct skr_messenger_row probe = {.body = "{}",
                                      .body_size = 2,
                                      .headers = headers,
                                      .headers_size = sizeof(headers) - 1};
    if (skr_db_begin(broker->db, SKR_BEGIN_WRITE, NULL) != SKR_OK)
        return false;
    enum skr_code code = skr_messenger_append(
        broker->table, skr_db_tx(broker->db), NULL, &probe, 1, NULL);
    skr_db_rollback(broker->db);
    return code == SKR_OK;
}

// Writes a run of rows in one transaction. When the database will never take
// them the run is halved, until the guilty row stands alone: one bad message
// costs a few transactions more and takes no other along.
static enum skr_code
write_rows(struct queue_broker *broker, size_t first, size_t count,
           struct skr_error *error)
{
    struct queue_publisher *publisher = &broker->publisher;
    struct skr_error reason = {0};
    enum skr_code code =
        append(broker, &publisher->rows[first], count, &reason);
    if (code == SKR_OK) {
        for (size_t i = first; i < first + count; i++)
            publisher->pending[publisher->row_owner[i]].fate = SKR_CONFIRMED;
        return SKR_OK;
    }
    bool is_final = reason.remedy == SKR_GIVE_UP && code != SKR_MISSING;
    if (is_final && count > 1) {
        code = write_rows(broker, first, count / 2, error);
        if (code != SKR_OK)
            return code;
        return write_rows(broker, first + count / 2, count - count / 2, error);
    }
    if (is_final && table_takes_rows(broker))
        return refuse(&publisher->pending[publisher->row_owner[first]], &reason,
                      error);
    if (error != NULL)
        *error = reason;
    return code;
}

static void
write_pending(struct queue_broker *broker)
{
    struct queue_publisher *publisher = &broker->publisher;
    // What is not known to be stored, or refused, stays uncertain.
    for (size_t i = publisher->written; i < publisher->count; i++)
        publisher->pending[i].fate = SKR_UNCERTAIN;
    size_t row_count = 0;
    enum skr_code code =
        encode_rows(publisher, &row_count, &publisher->failure);
    if (code == SKR_OK && row_count > 0)
        code = write_rows(broker, 0, row_count, &publisher->failure);
    publisher->written = publisher->count;
}

static void
give(struct queue_publisher *publisher, struct skr_outcome *outcomes,
     size_t capacity, size_t *count)
{
    size_t given = 0;
    while (given < capacity && publisher->given < publisher->written) {
        struct queue_pending *pending = &publisher->pending[publisher->given++];
        struct skr_outcome *outcome = &outcomes[given++];
        outcome->ticket = pending->ticket;
        outcome->fate = pending->fate;
        if (pending->reason != NULL)
            outcome->reason = *pending->reason;
        else if (pending->fate != SKR_CONFIRMED)
            outcome->reason = publisher->failure;
        else
            skr_error_clear(&outcome->reason);
        free(pending->reason);
        pending->reason = NULL;
    }
    if (publisher->given == publisher->count)
        publisher->given = publisher->written = publisher->count = 0;
    *count = given;
}

enum skr_code
skr_queue_outcomes(struct skr_broker *base, struct skr_outcome *outcomes,
                   size_t capacity, size_t *count, uint32_t timeout_ms,
                   struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    struct queue_publisher *publisher = &broker->publisher;
    (void)timeout_ms;  // a write waits as long as the database's URL says
    *count = 0;
    bool all_known = publisher->given == publisher->written;
    if (publisher->failure.code != SKR_OK && all_known)
        return tell_failure(publisher, error);
    if (all_known && publisher->written < publisher->count)
        write_pending(broker);
    give(publisher, outcomes, capacity, count);
    return SKR_OK;
}

void
skr_queue_publisher_fini(struct queue_publisher *publisher)
{
    for (size_t i = publisher->given; i < publisher->written; i++)
        free(publisher->pending[i].reason);
    free(publisher->pending);
    free(publisher->rows);
    free(publisher->row_owner);
    free(publisher->headers);
    skr_text_fini(&publisher->json);
}
