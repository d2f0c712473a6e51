// SPDX-License-Identifier: MIT
// Entries by partition, the list of heads, and the partitions that are passed.

#include "relay/sequencer.h"

#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct skr_sequencer_entry {
    struct skr_chain chain;
    bool is_listed;                    // among the heads
    struct skr_sequencer_entry *next;  // of those that are spare
};

struct head {
    char *key;
    int64_t not_before_ms;
};

uint64_t
skr_sequencer_partition(const char *key)
{
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), key);
    uint64_t partition = hash.low ^ hash.high;
    return partition == 0 ? 1 : partition;
}

static void
put_aside(struct skr_sequencer *sequencer, struct skr_sequencer_entry *entry)
{
    entry->next = sequencer->spare;
    sequencer->spare = entry;
}

static void
clear_passed(struct skr_sequencer *sequencer)
{
    for (size_t i = 0; i < sequencer->passed_count; i++)
        free(sequencer->passed[i]);
    sequencer->passed_count = 0;
}

void
skr_sequencer_clear(struct skr_sequencer *sequencer)
{
    struct skr_sequencer_entry *entry;
    struct head head;
    for (size_t at = 0;
         (entry = skr_map_next(&sequencer->entries, &at, NULL)) != NULL;)
        put_aside(sequencer, entry);
    skr_map_clear(&sequencer->entries);
    while (skr_ring_pop(&sequencer->heads, &head))
        free(head.key);
    sequencer->heads.item_size = sizeof(head);
    clear_passed(sequencer);
}

void
skr_sequencer_fini(struct skr_sequencer *sequencer)
{
    skr_sequencer_clear(sequencer);
    while (sequencer->spare != NULL) {
        struct skr_sequencer_entry *entry = sequencer->spare;
        sequencer->spare = entry->next;
        free(entry);
    }
    skr_map_fini(&sequencer->entries);
    skr_ring_fini(&sequencer->heads);
}

static struct skr_sequencer_entry *
find(const struct skr_sequencer *sequencer, uint64_t partition)
{
    return skr_map_get(&sequencer->entries, partition);
}

static struct skr_sequencer_entry *
make(struct skr_sequencer *sequencer, uint64_t partition)
{
    struct skr_sequencer_entry *entry = sequencer->spare;
    if (entry != NULL)
        sequencer->spare = entry->next;
    else
        entry = malloc(sizeof(*entry));
    if (entry == NULL)
        return NULL;
    *entry = (struct skr_sequencer_entry){.is_listed = false};
    if (skr_map_put(&sequencer->entries, partition, entry))
        return entry;
    put_aside(sequencer, entry);
    return NULL;
}

static enum skr_code
find_or_make(struct skr_sequencer *sequencer, uint64_t partition,
             struct skr_sequencer_entry **entry, struct skr_error *error)
{
    *entry = find(sequencer, partition);
    if (*entry == NULL)
        *entry = make(sequencer, partition);
    return *entry == NULL ? skr_fail_memory(error) : SKR_OK;
}

static void
forget(struct skr_sequencer *sequencer, uint64_t partition)
{
    put_aside(sequencer, skr_map_remove(&sequencer->entries, partition));
}

// What is left blocks the partition, and so does being read from its head,
// which may begin a chain all the same.
enum skr_code
skr_sequencer_add(struct skr_sequencer *sequencer, uint64_t partition,
                  skr_tag tag, bool from_head, struct skr_place *place,
                  struct skr_error *error)
{
    struct skr_sequencer_entry *entry = NULL;
    enum skr_code code = find_or_make(sequencer, partition, &entry, error);
    if (code != SKR_OK)
        return code;
    struct skr_chain *chain = &entry->chain;
    bool is_full = chain->length == SKR_LONGEST_CHAIN;
    bool is_left = is_full || (chain->is_blocked && !from_head);
    chain->is_blocked = chain->is_blocked || is_full || from_head;
    place->before = chain->last;
    place->turn = SKR_TURN_LEAVE;
    if (is_left)
        return SKR_OK;
    place->turn = chain->length == 0 ? SKR_TURN_NOW : SKR_TURN_AFTER;
    if (chain->length == 0)
        chain->first = tag;
    chain->last = tag;
    chain->length++;
    return SKR_OK;
}

enum skr_code
skr_sequencer_block(struct skr_sequencer *sequencer, uint64_t partition,
                    struct skr_error *error)
{
    struct skr_sequencer_entry *entry = NULL;
    enum skr_code code = find_or_make(sequencer, partition, &entry, error);
    if (code == SKR_OK)
        entry->chain.is_blocked = true;
    return code;
}

void
skr_sequencer_unblock(struct skr_sequencer *sequencer, uint64_t partition)
{
    struct skr_sequencer_entry *entry = find(sequencer, partition);
    if (entry == NULL)
        return;
    entry->chain.is_blocked = false;
    if (entry->chain.length == 0)
        forget(sequencer, partition);
}

struct skr_chain
skr_sequencer_chain(const struct skr_sequencer *sequencer, uint64_t partition)
{
    const struct skr_sequencer_entry *entry = find(sequencer, partition);
    return entry == NULL ? (struct skr_chain){.length = 0} : entry->chain;
}

bool
skr_sequencer_advance(struct skr_sequencer *sequencer, uint64_t partition,
                      skr_tag next, bool *is_behind)
{
    struct skr_sequencer_entry *entry = find(sequencer, partition);
    *is_behind = false;
    if (entry == NULL || entry->chain.length == 0)
        return false;
    entry->chain.length--;
    if (entry->chain.length > 0) {
        entry->chain.first = next;
        return true;
    }
    *is_behind = entry->chain.is_blocked;
    if (!entry->chain.is_blocked)
        forget(sequencer, partition);
    return false;
}

void
skr_sequencer_cut(struct skr_sequencer *sequencer, uint64_t partition,
                  uint32_t kept)
{
    struct skr_sequencer_entry *entry = find(sequencer, partition);
    if (entry == NULL || entry->chain.length < kept)
        return;
    entry->chain.length = kept;
    entry->chain.last = entry->chain.first;
    entry->chain.is_blocked = true;
}

enum skr_code
skr_sequencer_list_head(struct skr_sequencer *sequencer, const char *key,
                        int64_t not_before_ms, struct skr_error *error)
{
    struct skr_sequencer_entry *entry =
        find(sequencer, skr_sequencer_partition(key));
    if (entry == NULL || !entry->chain.is_blocked || entry->is_listed)
        return SKR_OK;
    struct head head = {.key = strdup(key), .not_before_ms = not_before_ms};
    if (head.key == NULL || !skr_ring_push(&sequencer->heads, &head)) {
        free(head.key);
        return skr_fail_memory(error);
    }
    entry->is_listed = true;
    return SKR_OK;
}

// Whether something is to be read of a head that is listed no more.
static bool
unlist(struct skr_sequencer *sequencer, const char *key)
{
    struct skr_sequencer_entry *entry =
        find(sequencer, skr_sequencer_partition(key));
    if (entry == NULL)
        return true;
    entry->is_listed = false;
    return entry->chain.length == 0;
}

// Few wait for their time, and not for long: they go to the end meanwhile.
size_t
skr_sequencer_take_heads(struct skr_sequencer *sequencer, int64_t now_ms,
                         char **keys, size_t most)
{
    size_t taken = 0;
    struct head head;
    for (size_t left = sequencer->heads.count; left > 0 && taken < most;
         left--) {
        skr_ring_pop(&sequencer->heads, &head);
        if (head.not_before_ms > now_ms)
            // What was just popped has room.
            (void)skr_ring_push(&sequencer->heads, &head);
        else if (unlist(sequencer, head.key))
            keys[taken++] = head.key;
        else
            free(head.key);
    }
    return taken;
}

int64_t
skr_sequencer_next_head_ms(const struct skr_sequencer *sequencer)
{
    int64_t next_ms = 0;
    for (size_t i = 0; i < sequencer->heads.count; i++) {
        const struct head *head = skr_ring_at(&sequencer->heads, i);
        if (next_ms == 0 || head->not_before_ms < next_ms)
            next_ms = head->not_before_ms;
        // Most of them can be taken at once.
        if (next_ms <= 1)
            break;
    }
    return next_ms;
}

void
skr_sequencer_pass(struct skr_sequencer *sequencer, const char *key)
{
    for (size_t i = 0; i < sequencer->passed_count; i++)
        if (strcmp(sequencer->passed[i], key) == 0)
            return;
    char *copy = strdup(key);
    if (copy == NULL)
        return;
    if (sequencer->passed_count == SKR_MOST_PASSED) {
        free(sequencer->passed[0]);
        sequencer->passed_count--;
        memmove(sequencer->passed, sequencer->passed + 1,
                sequencer->passed_count * sizeof(sequencer->passed[0]));
    }
    sequencer->passed[sequencer->passed_count++] = copy;
}

const char *const *
skr_sequencer_passed(struct skr_sequencer *sequencer, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < sequencer->passed_count; i++) {
        const struct skr_chain chain = skr_sequencer_chain(
            sequencer, skr_sequencer_partition(sequencer->passed[i]));
        if (chain.is_blocked && chain.length == 0)
            sequencer->passed[kept++] = sequencer->passed[i];
        else
            free(sequencer->passed[i]);
    }
    sequencer->passed_count = *count = kept;
    return (const char *const *)sequencer->passed;
}
