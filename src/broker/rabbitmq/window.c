// SPDX-License-Identifier: MIT
// The ring of published messages: confirms, returns and closed channels become
// publish results.

#include "broker/rabbitmq/window.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

static const uint64_t answered = UINT64_MAX;  // in place of a number

static struct rabbit_entry *
entry_at(const struct rabbit_window *window, uint64_t number)
{
    return &window->entries[number & (window->capacity - 1)];
}

static uint64_t *
number_at(const struct rabbit_window *window, uint64_t delivery_tag)
{
    return &window->numbers[delivery_tag & (window->capacity - 1)];
}

static struct rabbit_done *
done_at(const struct rabbit_window *window, uint64_t number)
{
    return &window->done[number & (window->capacity - 1)];
}

static enum skr_code
allocate(struct rabbit_window *window, size_t capacity, struct skr_error *error)
{
    window->entries = calloc(capacity, sizeof(*window->entries));
    window->numbers = calloc(capacity, sizeof(*window->numbers));
    window->done = calloc(capacity, sizeof(*window->done));
    window->capacity = capacity;
    if (window->entries != NULL && window->numbers != NULL &&
        window->done != NULL)
        return SKR_OK;
    free(window->entries);
    free(window->numbers);
    free(window->done);
    return skr_fail_memory(error);
}

enum skr_code
skr_rabbit_window_init(struct rabbit_window *window, struct skr_error *error)
{
    struct rabbit_window made = {.lowest_tag = 1, .next_tag = 1};
    enum skr_code code = allocate(&made, FIRST_CAPACITY, error);
    if (code == SKR_OK)
        *window = made;
    return code;
}

void
skr_rabbit_window_fini(struct rabbit_window *window)
{
    for (size_t i = 0; i < window->capacity; i++) {
        skr_text_fini(&window->entries[i].route);
        free(window->entries[i].return_reason);
    }
    for (uint64_t i = window->done_first; i < window->done_end; i++)
        free(done_at(window, i)->reason);
    free(window->entries);
    free(window->numbers);
    free(window->done);
    *window = (struct rabbit_window){0};
}

static enum skr_code
grow(struct rabbit_window *window, struct skr_error *error)
{
    struct rabbit_window grown = *window;
    enum skr_code code = allocate(&grown, window->capacity * 2, error);
    if (code != SKR_OK)
        return code;
    // Free places too: they hold memory for the next route.
    for (uint64_t i = 0; i < window->capacity; i++)
        *entry_at(&grown, window->first + i) =
            *entry_at(window, window->first + i);
    for (uint64_t i = window->lowest_tag; i < window->next_tag; i++)
        *number_at(&grown, i) = *number_at(window, i);
    for (uint64_t i = window->done_first; i < window->done_end; i++)
        *done_at(&grown, i) = *done_at(window, i);
    free(window->entries);
    free(window->numbers);
    free(window->done);
    *window = grown;
    return SKR_OK;
}

enum skr_code
skr_rabbit_window_add(struct rabbit_window *window,
                      const struct skr_message *message, const char *exchange,
                      const char *routing_key, uint64_t tag,
                      struct skr_error *error)
{
    if (window->end - window->first == window->capacity ||
        window->outstanding == window->capacity) {
        enum skr_code code = grow(window, error);
        if (code != SKR_OK)
            return code;
    }
    struct rabbit_entry *entry = entry_at(window, window->end);
    struct skr_text route = entry->route;
    skr_text_clear(&route);
    skr_text_add(&route, exchange, strlen(exchange) + 1);
    skr_text_add(&route, routing_key, strlen(routing_key) + 1);
    *entry = (struct rabbit_entry){
        .message = message,
        .tag = tag,
        .route = route,
        .routing_key = strlen(exchange) + 1,
    };
    if (route.broken)
        return skr_fail_memory(error);
    window->end++;
    window->outstanding++;
    return SKR_OK;
}

const char *
skr_rabbit_entry_exchange(const struct rabbit_entry *entry)
{
    return entry->route.bytes;
}

const char *
skr_rabbit_entry_key(const struct rabbit_entry *entry)
{
    return entry->route.bytes + entry->routing_key;
}

// Gives the entry its result. reason is taken over.
static void
settle(struct rabbit_window *window, struct rabbit_entry *entry,
       enum skr_publish_result result, struct skr_error *reason)
{
    if (entry->state == RABBIT_SENT)
        window->in_flight--;
    entry->state = RABBIT_SETTLED;
    entry->message = NULL;
    *done_at(window, window->done_end++) = (struct rabbit_done){
        .tag = entry->tag, .result = result, .reason = reason};
    while (window->first < window->end &&
           entry_at(window, window->first)->state == RABBIT_SETTLED)
        window->first++;
    if (window->next < window->first)
        window->next = window->first;
}

static struct skr_error *
copy_reason(const struct skr_error *reason)
{
    struct skr_error *copy = reason == NULL ? NULL : malloc(sizeof(*copy));
    if (copy != NULL)
        *copy = *reason;
    return copy;
}

struct rabbit_entry *
skr_rabbit_window_next(struct rabbit_window *window)
{
    if (window->first < window->suspects_end && window->in_flight > 0)
        return NULL;
    while (window->next < window->end) {
        struct rabbit_entry *entry = entry_at(window, window->next);
        if (entry->state == RABBIT_WAITING)
            return entry;
        window->next++;
    }
    return NULL;
}

void
skr_rabbit_window_sent(struct rabbit_window *window, int64_t now_ms)
{
    struct rabbit_entry *entry = entry_at(window, window->next);
    entry->state = RABBIT_SENT;
    entry->sent_ms = now_ms;
    entry->delivery_tag = window->next_tag++;
    *number_at(window, entry->delivery_tag) = window->next++;
    window->in_flight++;
}

void
skr_rabbit_window_skip(struct rabbit_window *window,
                       enum skr_publish_result result,
                       const struct skr_error *reason)
{
    settle(window, entry_at(window, window->next), result, copy_reason(reason));
}

const struct rabbit_entry *
skr_rabbit_window_oldest(const struct rabbit_window *window)
{
    if (window->lowest_tag == window->next_tag)
        return NULL;
    return entry_at(window, *number_at(window, window->lowest_tag));
}

struct rabbit_entry *
skr_rabbit_window_find(struct rabbit_window *window, struct skr_id id,
                       const char *exchange, const char *routing_key)
{
    for (uint64_t i = window->first; i < window->end; i++) {
        struct rabbit_entry *entry = entry_at(window, i);
        if (entry->state == RABBIT_SENT && entry->return_reason == NULL &&
            memcmp(&entry->message->id, &id, sizeof(id)) == 0 &&
            strcmp(skr_rabbit_entry_exchange(entry), exchange) == 0 &&
            strcmp(skr_rabbit_entry_key(entry), routing_key) == 0)
            return entry;
    }
    return NULL;
}

enum skr_code
skr_rabbit_entry_return(struct rabbit_entry *entry,
                        const struct skr_error *reason, struct skr_error *error)
{
    entry->return_reason = copy_reason(reason);
    return entry->return_reason == NULL ? skr_fail_memory(error) : SKR_OK;
}

// It came back, and is to be sent once more.
static void
go_again(struct rabbit_window *window, uint64_t number)
{
    struct rabbit_entry *entry = entry_at(window, number);
    free(entry->return_reason);
    entry->return_reason = NULL;
    entry->goes_again = false;
    if (entry->state == RABBIT_SENT)
        window->in_flight--;
    entry->state = RABBIT_WAITING;
    if (number < window->next)
        window->next = number;
}

// Behind the last one that was sent.
static uint64_t
sent_end(const struct rabbit_window *window)
{
    uint64_t end = window->end;
    while (end > window->next &&
           entry_at(window, end - 1)->state != RABBIT_SENT)
        end--;
    return end;
}

static void
answer(struct rabbit_window *window, uint64_t delivery_tag,
       enum skr_publish_result result)
{
    uint64_t *number = number_at(window, delivery_tag);
    if (*number == answered)
        return;
    struct rabbit_entry *entry = entry_at(window, *number);
    if (entry->goes_again) {
        go_again(window, *number);
        *number = answered;
        return;
    }
    struct skr_error *reason = entry->return_reason;
    *number = answered;
    entry->return_reason = NULL;
    if (reason != NULL)
        result = SKR_UNROUTABLE;
    if (result != SKR_CONFIRMED && reason == NULL) {
        struct skr_error refusal;
        skr_fail(&refusal, SKR_REFUSED, SKR_TRY_AGAIN,
                 "RabbitMQ did not take the message (nack): a queue behind "
                 "exchange %.100s, routing key %.100s is full or failed",
                 skr_rabbit_entry_exchange(entry), skr_rabbit_entry_key(entry));
        skr_error_set_native(&refusal, "nack");
        reason = copy_reason(&refusal);
    }
    settle(window, entry, result, reason);
}

bool
skr_rabbit_window_settle(struct rabbit_window *window, uint64_t delivery_tag,
                         bool multiple, enum skr_publish_result result)
{
    // Tag 0 would be "all so far", and only the server knows how far that is.
    if (delivery_tag == 0 || delivery_tag >= window->next_tag)
        return false;
    uint64_t from = multiple ? window->lowest_tag : delivery_tag;
    for (uint64_t i = from; i <= delivery_tag; i++)
        if (i >= window->lowest_tag)
            answer(window, i, result);
    while (window->lowest_tag < window->next_tag &&
           *number_at(window, window->lowest_tag) == answered)
        window->lowest_tag++;
    return true;
}

void
skr_rabbit_window_rewind(struct rabbit_window *window,
                         enum skr_publish_result result,
                         const struct skr_error *reason)
{
    // The number of the one that is in flight alone; none: past the end.
    uint64_t stop = sent_end(window), lone = stop;
    bool is_alone = window->in_flight == 1;
    if (window->suspects_end < stop)
        window->suspects_end = stop;
    for (uint64_t i = stop; i-- > window->first;) {
        struct rabbit_entry *entry = entry_at(window, i);
        if (entry->goes_again)
            go_again(window, i);
        if (entry->state != RABBIT_SENT)
            continue;
        entry->state = RABBIT_WAITING;
        window->in_flight--;
        if (i < window->next)
            window->next = i;
        if (is_alone)
            lone = i;
    }
    window->lowest_tag = window->next_tag = 1;
    // What came back needs no second try, what was alone did it.
    for (uint64_t i = window->first; i < stop; i++) {
        struct rabbit_entry *entry = entry_at(window, i);
        if (entry->state != RABBIT_WAITING)
            continue;
        struct skr_error *return_reason = entry->return_reason;
        entry->return_reason = NULL;
        if (return_reason != NULL)
            settle(window, entry, SKR_UNROUTABLE, return_reason);
        else if (i == lone)
            settle(window, entry, result, copy_reason(reason));
    }
}

void
skr_rabbit_window_restart(struct rabbit_window *window)
{
    window->lowest_tag = window->next_tag = 1;
}

void
skr_rabbit_window_abandon(struct rabbit_window *window)
{
    for (uint64_t i = window->first; i < window->end; i++) {
        struct rabbit_entry *entry = entry_at(window, i);
        if (entry->state == RABBIT_SETTLED)
            continue;
        if (entry->goes_again)
            go_again(window, i);
        struct skr_error *reason = entry->return_reason;
        entry->return_reason = NULL;
        settle(window, entry, reason == NULL ? SKR_UNCERTAIN : SKR_UNROUTABLE,
               reason);
    }
    window->lowest_tag = window->next_tag = 1;
}

size_t
skr_rabbit_window_give(struct rabbit_window *window,
                       const struct skr_error *failure,
                       struct skr_published *results, size_t capacity)
{
    size_t count = 0;
    while (count < capacity && window->done_first < window->done_end) {
        struct rabbit_done *done = done_at(window, window->done_first++);
        struct skr_published *published = &results[count++];
        published->tag = done->tag;
        published->result = done->result;
        if (done->result == SKR_CONFIRMED)
            skr_error_clear(&published->reason);
        else if (done->reason != NULL)
            published->reason = *done->reason;
        else if (failure->code != SKR_OK)
            published->reason = *failure;
        else
            skr_fail(&published->reason, SKR_REFUSED, SKR_TRY_AGAIN,
                     "RabbitMQ refused the message; there was no memory to "
                     "keep its reason");
        free(done->reason);
    }
    window->outstanding -= count;
    return count;
}
