// SPDX-License-Identifier: MIT
// Deliveries in the order of their tags, those among them that were deferred,
// and the tags that can be acknowledged with one frame.

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

// How many of the items were given; behind them are those that wait.
static size_t
given_count(const struct rabbit_deliveries *deliveries)
{
    return deliveries->count - (size_t)(deliveries->end - deliveries->next);
}

void
skr_rabbit_deliveries_init(struct rabbit_deliveries *deliveries)
{
    *deliveries = (struct rabbit_deliveries){.next = 1, .end = 1};
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
    *(delivery->is_deferred ? &deliveries->deferred_bytes
                            : &deliveries->held_bytes) -= size_of(delivery);
    free(delivery->block);
    delivery->block = NULL;
}

void
skr_rabbit_deliveries_fini(struct rabbit_deliveries *deliveries)
{
    for (size_t i = 0; i < deliveries->count; i++)
        free(deliveries->items[i].block);
    free(deliveries->items);
    *deliveries = (struct rabbit_deliveries){0};
}

static struct rabbit_delivery *
find_coming(const struct rabbit_deliveries *deliveries)
{
    if (deliveries->end == deliveries->next)
        return NULL;
    struct rabbit_delivery *last = &deliveries->items[deliveries->count - 1];
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
        .tag = tag,
        .state = RABBIT_COMING,
        .queue = queue,
        .redelivered = redelivered,
        .came_ms = skr_clock_ms(),
    };
    if (!skr_vec_insert(&deliveries->items, &deliveries->count,
                        &deliveries->capacity, deliveries->count, &delivery,
                        sizeof(delivery)))
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
    return find_coming(deliveries) == NULL ? count : count - 1;
}

const struct rabbit_delivery *
skr_rabbit_deliveries_oldest(const struct rabbit_deliveries *deliveries)
{
    if (skr_rabbit_deliveries_waiting(deliveries) == 0)
        return NULL;
    return &deliveries->items[given_count(deliveries)];
}

struct rabbit_delivery *
skr_rabbit_deliveries_give(struct rabbit_deliveries *deliveries, uint64_t *tag)
{
    if (skr_rabbit_deliveries_waiting(deliveries) == 0)
        return NULL;
    struct rabbit_delivery *delivery =
        &deliveries->items[given_count(deliveries)];
    delivery->state = RABBIT_GIVEN;
    *tag = deliveries->next++;
    return delivery;
}

void
skr_rabbit_deliveries_drop(struct rabbit_deliveries *deliveries,
                           struct rabbit_delivery *delivery)
{
    let_go(deliveries, delivery);
    delivery->state = RABBIT_OVER;
}

static int
compare_tag(const void *key, const void *item)
{
    uint64_t tag = *(const uint64_t *)key;
    uint64_t other = ((const struct rabbit_delivery *)item)->tag;
    return (tag > other) - (tag < other);
}

// Of the first that was given with this tag or a higher one.
static size_t
place_of(const struct rabbit_deliveries *deliveries, uint64_t tag)
{
    return skr_vec_find(deliveries->items, given_count(deliveries),
                        sizeof(*deliveries->items), &tag, compare_tag);
}

struct rabbit_delivery *
skr_rabbit_deliveries_find(struct rabbit_deliveries *deliveries, uint64_t tag)
{
    size_t place = place_of(deliveries, tag);
    if (place == given_count(deliveries) ||
        deliveries->items[place].tag != tag ||
        deliveries->items[place].state != RABBIT_GIVEN)
        return NULL;
    return &deliveries->items[place];
}

void
skr_rabbit_deliveries_defer(struct rabbit_deliveries *deliveries,
                            struct rabbit_delivery *delivery, int64_t until_ms)
{
    if (!delivery->is_deferred) {
        deliveries->held_bytes -= size_of(delivery);
        deliveries->deferred_bytes += size_of(delivery);
        deliveries->deferred_count++;
        delivery->is_deferred = true;
    }
    delivery->until_ms = until_ms;
    delivery->state = RABBIT_COME;
}

int64_t
skr_rabbit_deliveries_due_ms(const struct rabbit_deliveries *deliveries)
{
    int64_t due_ms = INT64_MAX;
    for (size_t i = 0, left = deliveries->deferred_count; left > 0; i++) {
        const struct rabbit_delivery *delivery = &deliveries->items[i];
        left -= delivery->is_deferred;
        if (delivery->is_deferred && delivery->state == RABBIT_COME &&
            delivery->until_ms < due_ms)
            due_ms = delivery->until_ms;
    }
    return due_ms;
}

struct rabbit_delivery *
skr_rabbit_deliveries_give_due(struct rabbit_deliveries *deliveries,
                               int64_t now_ms, uint64_t *tag)
{
    for (size_t i = 0, left = deliveries->deferred_count; left > 0; i++) {
        struct rabbit_delivery *delivery = &deliveries->items[i];
        left -= delivery->is_deferred;
        if (!delivery->is_deferred || delivery->state != RABBIT_COME ||
            delivery->until_ms > now_ms)
            continue;
        delivery->state = RABBIT_GIVEN;
        *tag = delivery->tag;
        return delivery;
    }
    return NULL;
}

uint64_t
skr_rabbit_deliveries_ack(struct rabbit_deliveries *deliveries)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < given_count(deliveries); i++) {
        struct rabbit_delivery *delivery = &deliveries->items[i];
        // What was deferred is open, whether it waits or was given again.
        if (delivery->state < RABBIT_ACK_DUE)
            break;
        if (delivery->state == RABBIT_ACK_DUE)
            highest = delivery->tag;
        delivery->state = RABBIT_OVER;
    }
    return highest;
}

uint64_t
skr_rabbit_deliveries_ack_alone(struct rabbit_deliveries *deliveries,
                                uint64_t tag)
{
    for (size_t i = place_of(deliveries, tag); i < given_count(deliveries);
         i++) {
        if (deliveries->items[i].state != RABBIT_ACK_DUE)
            continue;
        deliveries->items[i].state = RABBIT_OVER;
        return deliveries->items[i].tag;
    }
    return 0;
}

void
skr_rabbit_deliveries_tidy(struct rabbit_deliveries *deliveries)
{
    size_t kept = 0, given = given_count(deliveries);
    for (size_t i = 0; i < deliveries->count; i++) {
        struct rabbit_delivery *delivery = &deliveries->items[i];
        if (i < given && delivery->state == RABBIT_OVER) {
            deliveries->deferred_count -= delivery->is_deferred;
            let_go(deliveries, delivery);
        } else {
            deliveries->items[kept++] = *delivery;
        }
    }
    deliveries->count = kept;
}
