// SPDX-License-Identifier: MIT
// The bisection of a batch that the database refuses. It knows no SQL: a layout
// passes the function that writes the batch.

#include "store/apart.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct apart {
    struct skr_batch *batch;
    skr_apart_write_fn *write;
    void *user;
    size_t *items;  // those to be written, by their places in the batch
};

// One of each kind is enough to know whether the table can be written.
static const enum skr_state kinds[] = {SKR_DONE, SKR_RETRY_LATER, SKR_DEAD,
                                       SKR_BLOCKED, SKR_READ};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void
mark(const struct apart *apart, size_t from, size_t count, enum skr_write write)
{
    for (size_t i = from; i < from + count; i++)
        apart->batch->items[apart->items[i]].write = write;
}

static const struct skr_batch_item *
find_kind(const struct skr_batch *batch, enum skr_state kind)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state == kind &&
            batch->items[i].write == SKR_WRITE_LATER)
            return &batch->items[i];
    return NULL;
}

// The same statements about no row: what they are refused for is no row's
// fault, as a right or a column that is missing, or a trigger on statements.
// Nothing of a row's content is sent, which may be too large.
static enum skr_code
write_no_row(const struct apart *apart, struct skr_error *error)
{
    // Copies, as the relay's reader may look up which rows the batch has.
    struct skr_batch_item items[KINDS];
    struct skr_batch none = *apart->batch;
    none.items = items;
    none.count = 0;
    for (size_t i = 0; i < KINDS; i++) {
        const struct skr_batch_item *item = find_kind(apart->batch, kinds[i]);
        if (item == NULL)
            continue;
        struct skr_batch_item *copy = &items[none.count++];
        *copy = *item;
        copy->row = SKR_NO_ROW;
        copy->write = kinds[i] == SKR_DONE ? SKR_WRITE_WHOLE : SKR_WRITE_LEAST;
    }
    return apart->write(apart->user, &none, error);
}

static void
keep_refusal(struct skr_batch *batch, struct skr_batch_item *item,
             const struct skr_error *error)
{
    // The same one again takes no more memory, however often it is tried.
    if (item->refusal != NULL && strcmp(item->refusal, error->text) == 0)
        return;
    item->refusal =
        skr_arena_text(&batch->arena, error->text, strlen(error->text));
    if (item->refusal == NULL)
        item->refusal = "the database refuses it";
}

// A row that is alone was refused.
static enum skr_code
settle_least(const struct apart *apart, size_t at, struct skr_error *error)
{
    struct skr_batch_item *item = &apart->batch->items[apart->items[at]];
    keep_refusal(apart->batch, item, error);
    item->write = SKR_WRITE_LEAST;
    enum skr_code code = apart->write(apart->user, apart->batch, error);
    if (code != SKR_OK && error->remedy != SKR_GIVE_UP)
        return code;
    item->write = code == SKR_OK ? SKR_WRITE_DONE : SKR_WRITE_REFUSED;
    return SKR_OK;
}

static enum skr_code
settle_some(const struct apart *apart, size_t from, size_t count,
            struct skr_error *error)
{
    if (count == 0)
        return SKR_OK;
    mark(apart, from, count, SKR_WRITE_WHOLE);
    enum skr_code code = apart->write(apart->user, apart->batch, error);
    if (code == SKR_OK)
        mark(apart, from, count, SKR_WRITE_DONE);
    if (code == SKR_OK || error->remedy != SKR_GIVE_UP)
        return code;
    if (count == 1)
        return settle_least(apart, from, error);
    size_t half = count / 2;
    mark(apart, from, count, SKR_WRITE_LATER);
    code = settle_some(apart, from, half, error);
    if (code == SKR_OK)
        code = settle_some(apart, from + half, count - half, error);
    return code;
}

// Lists the items to be written that are done, or all others.
static size_t
list(struct apart *apart, bool is_done)
{
    const struct skr_batch *batch = apart->batch;
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].write == SKR_WRITE_LATER &&
            (batch->items[i].state == SKR_DONE) == is_done)
            apart->items[count++] = i;
    return count;
}

enum skr_code
skr_apart_settle(struct skr_batch *batch, skr_apart_write_fn *write, void *user,
                 struct skr_error *error)
{
    struct apart apart = {.batch = batch, .write = write, .user = user};
    apart.items = calloc(batch->count + 1, sizeof(apart.items[0]));
    if (apart.items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < batch->count; i++)
        if (skr_is_written_now(&batch->items[i]))
            batch->items[i].write = SKR_WRITE_LATER;
    enum skr_code code = write_no_row(&apart, error);
    if (code == SKR_OK)
        code = settle_some(&apart, 0, list(&apart, true), error);
    if (code == SKR_OK)
        code = settle_some(&apart, 0, list(&apart, false), error);
    for (size_t i = 0; i < batch->count; i++)
        if (skr_is_written_now(&batch->items[i]) ||
            batch->items[i].write == SKR_WRITE_LATER)
            batch->items[i].write = SKR_WRITE_WHOLE;
    free(apart.items);
    return code;
}
