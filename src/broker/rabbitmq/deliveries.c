// SPDX-License-Identifier: MIT
// A ring of deliveries by tag, a list of deferred ones beside it, and the tags
// that can be acknowledged with one frame.

#include "broker/rabbitmq/deliveries.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

enum {
    // Far more than RabbitMQ takes (512 MiB); it keeps a size that makes no
    // sense from being asked of the system.
    MOST_BODY = 1024 * 1024 * 1024,
};

static struct rabbit_delivery *
at(const struct rabbit_deliveries *deliveries, uint64_t tag)
{
    return skr_ring_at(&deliveries->ring, (size_t)(tag - deliveries->first));
}

void
skr_rabbit_deliveries_init(struct rabbit_deliveries *deliveries)
{
    *deliveries = (struct rabbit_deliveries){
        .ring.item_size = sizeof(struct rabbit_delivery),
        .first = 1,
        .next = 1,
        .end = 1,
    };
}

static size_t
size_of(const struct rabbit_delivery *delivery)
{
    return delivery->block == NULL
               ? 0
               : delivery->properties_size + delivery->body_size;
}

static void
let_go(struct rabbit_deliveries *deliveries, struct rabbit_delivery *delivery)
{
    deliveries->held_bytes -= size_of(delivery);
    free(delivery->block);
    delivery->block = NULL;
}

void
skr_rabbit_deliveries_fini(struct rabbit_deliveries *deliveries)
{
    for (uint64_t tag = deliveries->first; tag < deliveries->end; tag++)
        let_go(deliveries, at(deliveries, tag));
    for (size_t i = 0; i < deliveries->deferred_count; i++)
        free(deliveries->deferred[i].delivery.block);
    skr_ring_fini(&deliveries->ring);
    free(deliveries->deferred);
    *deliveries = (struct rabbit_deliveries){0};
}

static struct rabbit_delivery *
find_coming(struct rabbit_deliveries *deliveries)
{
    if (deliveries->end == deliveries->next)
        return NULL;
    struct rabbit_delivery *last = at(deliveries, deliveries->end - 1);
    return last->state == RABBIT_COMING ? last : NULL;
}

enum skr_code
skr_rabbit_deliveries_begin(struct rabbit_deliveries *deliveries, uint64_t tag,
                            size_t queue, bool redelivered, bool *fits,
                            struct skr_error *error)
{
    *fits = tag == deliveries->end && find_coming(deliveries) == NULL;
    if (!*fits)
        return SKR_OK;
    const struct rabbit_delivery delivery = {
        .state = RABBIT_COMING,
        .queue = queue,
        .redelivered = redelivered,
        .came_ms = skr_clock_ms(),
    };
    if (!skr_ring_push(&deliveries->ring, &delivery))
        return skr_fail_memory(error);
    deliveries->end++;
    return SKR_OK;
}

enum skr_code
skr_rabbit_deliveries_properties(struct rabbit_deliveries *deliveries,
                                 struct skr_amqp_piece properties,
                                 uint64_t body_size, bool *fits,
                                 struct skr_error *error)
{
    struct rabbit_delivery *coming = find_coming(deliveries);
    *fits = coming != NULL && !coming->has_properties && body_size <= MOST_BODY;
    if (!*fits)
        return SKR_OK;
    coming->block = malloc(properties.size + (size_t)body_size + 1);
    if (coming->block == NULL)
        return skr_fail_memory(error);
    coming->has_properties = true;
    coming->properties_size = properties.size;
    coming->body_size = (size_t)body_size;
    memcpy(coming->block, properties.bytes, properties.size);
    deliveries->held_bytes += properties.size + (size_t)body_size;
    if (body_size == 0)
        coming->state = RABBIT_COME;
    return SKR_OK;
}

bool
skr_rabbit_deliveries_body(struct rabbit_deliveries *deliveries,
                           struct skr_amqp_piece piece)
{
    struct rabbit_delivery *coming = find_coming(deliveries);
    if (coming == NULL || !coming->has_properties ||
        piece.size > coming->body_size - coming->body_got)
        return false;
    memcpy(coming->block + coming->properties_size + coming->body_got,
           piece.bytes, piece.size);
    coming->body_got += piece.size;
    if (coming->body_got == coming->body_size)
        coming->state = RABBIT_COME;
    return true;
}

size_t
skr_rabbit_deliveries_waiting(const struct rabbit_deliveries *deliveries)
{
    size_t count = (size_t)(deliveries->end - deliveries->next);
    if (count == 0)
        return 0;
    return count -
           (at(deliveries, deliveries->end - 1)->state == RABBIT_COMING);
}

const struct rabbit_delivery *
skr_rabbit_deliveries_oldest(const struct rabbit_deliveries *deliveries)
{
    if (skr_rabbit_deliveries_waiting(deliveries) == 0)
        return NULL;
    return at(deliveries, deliveries->next);
}

struct rabbit_delivery *
skr_rabbit_deliveries_give(struct rabbit_deliveries *deliveries, uint64_t *tag)
{
    if (skr_rabbit_deliveries_waiting(deliveries) == 0)
        return NULL;
    *tag = deliveries->next++;
    struct rabbit_delivery *delivery = at(deliveries, *tag);
    delivery->state = RABBIT_GIVEN;
    return delivery;
}

void
skr_rabbit_deliveries_drop(struct rabbit_deliveries *deliveries,
                           struct rabbit_delivery *delivery)
{
    let_go(deliveries, delivery);
    delivery->state = RABBIT_OVER;
}

static struct rabbit_deferred *
find_deferred(const struct rabbit_deliveries *deliveries, uint64_t tag)
{
    for (size_t i = 0; i < deliveries->deferred_count; i++)
        if (deliveries->deferred[i].tag == tag)
            return &deliveries->deferred[i];
    return NULL;
}

struct rabbit_delivery *
skr_rabbit_deliveries_find(struct rabbit_deliveries *deliveries, uint64_t tag)
{
    if (tag >= deliveries->first && tag < deliveries->next &&
        at(deliveries, tag)->state == RABBIT_GIVEN)
        return at(deliveries, tag);
    struct rabbit_deferred *deferred = find_deferred(deliveries, tag);
    return deferred != NULL && deferred->delivery.state == RABBIT_GIVEN
               ? &deferred->delivery
               : NULL;
}

// Out of the ring, bytes and all.
static enum skr_code
set_apart(struct rabbit_deliveries *deliveries, uint64_t tag,
          struct skr_error *error)
{
    if (!skr_vec_reserve(&deliveries->deferred, &deliveries->deferred_capacity,
                         deliveries->deferred_count + 1,
                         sizeof(*deliveries->deferred)))
        return skr_fail_memory(error);
    struct rabbit_delivery *delivery = at(deliveries, tag);
    deliveries->deferred[deliveries->deferred_count++] =
        (struct rabbit_deferred){.tag = tag, .delivery = *delivery};
    deliveries->held_bytes -= size_of(delivery);
    deliveries->deferred_bytes += size_of(delivery);
    delivery->block = NULL;
    delivery->state = RABBIT_OVER;
    return SKR_OK;
}

enum skr_code
skr_rabbit_deliveries_defer(struct rabbit_deliveries *deliveries, uint64_t tag,
                            int64_t until_ms, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (find_deferred(deliveries, tag) == NULL)
        code = set_apart(deliveries, tag, error);
    if (code != SKR_OK)
        return code;
    struct rabbit_deferred *deferred = find_deferred(deliveries, tag);
    deferred->until_ms = until_ms;
    deferred->delivery.state = RABBIT_COME;
    return SKR_OK;
}

int64_t
skr_rabbit_deliveries_due_ms(const struct rabbit_deliveries *deliveries)
{
    int64_t due_ms = INT64_MAX;
    for (size_t i = 0; i < deliveries->deferred_count; i++) {
        const struct rabbit_deferred *deferred = &deliveries->deferred[i];
        if (deferred->delivery.state == RABBIT_COME &&
            deferred->until_ms < due_ms)
            due_ms = deferred->until_ms;
    }
    return due_ms;
}

struct rabbit_delivery *
skr_rabbit_deliveries_give_due(struct rabbit_deliveries *deliveries,
                               int64_t now_ms, uint64_t *tag)
{
    for (size_t i = 0; i < deliveries->deferred_count; i++) {
        struct rabbit_deferred *deferred = &deliveries->deferred[i];
        if (deferred->delivery.state != RABBIT_COME ||
            deferred->until_ms > now_ms)
            continue;
        deferred->delivery.state = RABBIT_GIVEN;
        *tag = deferred->tag;
        return &deferred->delivery;
    }
    return NULL;
}

// The lowest tag that is open; what was deferred counts as such.
static uint64_t
find_open(struct rabbit_deliveries *deliveries)
{
    uint64_t open = deliveries->first;
    while (open < deliveries->next &&
           at(deliveries, open)->state != RABBIT_GIVEN)
        open++;
    for (size_t i = 0; i < deliveries->deferred_count; i++) {
        const struct rabbit_deferred *deferred = &deliveries->deferred[i];
        bool is_settled = deferred->delivery.state == RABBIT_ACK_DUE ||
                          deferred->delivery.state == RABBIT_OVER;
        if (!is_settled && deferred->tag < open)
            open = deferred->tag;
    }
    return open;
}

uint64_t
skr_rabbit_deliveries_ack(struct rabbit_deliveries *deliveries)
{
    uint64_t highest = 0, open = find_open(deliveries);
    for (uint64_t tag = deliveries->first; tag < open; tag++)
        if (at(deliveries, tag)->state == RABBIT_ACK_DUE) {
            at(deliveries, tag)->state = RABBIT_OVER;
            highest = tag;
        }
    for (size_t i = 0; i < deliveries->deferred_count; i++) {
        struct rabbit_deferred *deferred = &deliveries->deferred[i];
        if (deferred->delivery.state != RABBIT_ACK_DUE || deferred->tag >= open)
            continue;
        deferred->delivery.state = RABBIT_OVER;
        if (deferred->tag > highest)
            highest = deferred->tag;
    }
    return highest;
}

uint64_t
skr_rabbit_deliveries_ack_alone(struct rabbit_deliveries *deliveries,
                                uint64_t tag)
{
    for (tag = tag < deliveries->first ? deliveries->first : tag;
         tag < deliveries->next; tag++)
        if (at(deliveries, tag)->state == RABBIT_ACK_DUE) {
            at(deliveries, tag)->state = RABBIT_OVER;
            return tag;
        }
    for (size_t i = 0; i < deliveries->deferred_count; i++)
        if (deliveries->deferred[i].delivery.state == RABBIT_ACK_DUE) {
            deliveries->deferred[i].delivery.state = RABBIT_OVER;
            return deliveries->deferred[i].tag;
        }
    return 0;
}

static void
tidy_deferred(struct rabbit_deliveries *deliveries)
{
    size_t kept = 0;
    for (size_t i = 0; i < deliveries->deferred_count; i++) {
        struct rabbit_deferred *deferred = &deliveries->deferred[i];
        if (deferred->delivery.state != RABBIT_OVER) {
            deliveries->deferred[kept++] = *deferred;
            continue;
        }
        deliveries->deferred_bytes -= size_of(&deferred->delivery);
        free(deferred->delivery.block);
    }
    deliveries->deferred_count = kept;
}

void
skr_rabbit_deliveries_tidy(struct rabbit_deliveries *deliveries)
{
    tidy_deferred(deliveries);
    for (uint64_t tag = deliveries->first; tag < deliveries->next; tag++) {
        struct rabbit_delivery *delivery = at(deliveries, tag);
        if (delivery->state == RABBIT_OVER)
            let_go(deliveries, delivery);
    }
    struct rabbit_delivery over;
    while (deliveries->first < deliveries->next &&
           at(deliveries, deliveries->first)->state == RABBIT_OVER &&
           skr_ring_pop(&deliveries->ring, &over))
        deliveries->first++;
}
