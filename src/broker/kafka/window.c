// SPDX-License-Identifier: MIT
// Lists of open and finished messages, and the rule that a message waits behind
// a refused one of the same key.

#include "broker/kafka/window.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void
append(struct kafka_list *list, struct kafka_entry *entry)
{
    entry->next = NULL;
    entry->previous = list->last;
    if (list->last == NULL)
        list->first = entry;
    else
        list->last->next = entry;
    list->last = entry;
    list->count++;
}

static void
detach(struct kafka_list *list, struct kafka_entry *entry)
{
    if (entry->previous == NULL)
        list->first = entry->next;
    else
        entry->previous->next = entry->next;
    if (entry->next == NULL)
        list->last = entry->previous;
    else
        entry->next->previous = entry->previous;
    list->count--;
}

static size_t
size_of(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static const char *
copy(char **place, const char *text)
{
    if (text == NULL)
        return NULL;
    char *start = *place;
    memcpy(start, text, size_of(text));
    *place += size_of(text);
    return start;
}

// A message without a key is in order with none.
static bool
is_in_order(const struct kafka_entry *entry, const struct kafka_entry *other)
{
    return entry->partition_key != NULL && other->partition_key != NULL &&
           strcmp(entry->partition_key, other->partition_key) == 0 &&
           strcmp(entry->topic, other->topic) == 0;
}

static const struct kafka_entry *
find_refused(const struct kafka_window *window, const struct kafka_entry *entry)
{
    const struct kafka_entry *other =
        window->refused == 0 ? NULL : window->finished.first;
    while (other != NULL && (!other->is_refused || !is_in_order(other, entry)))
        other = other->next;
    return other;
}

enum skr_code
skr_kafka_window_add(struct kafka_window *window,
                     const struct skr_message *message, const char *topic,
                     const char *key, const char *partition_key,
                     uint64_t ticket, struct skr_error *error)
{
    struct kafka_entry *entry = malloc(sizeof(*entry) + size_of(topic) +
                                       size_of(key) + size_of(partition_key));
    if (entry == NULL)
        return skr_fail_memory(error);
    char *place = (char *)(entry + 1);
    *entry = (struct kafka_entry){.message = message, .ticket = ticket};
    entry->topic = copy(&place, topic);
    entry->key = copy(&place, key);
    entry->partition_key = copy(&place, partition_key);
    append(&window->open, entry);
    if (window->waiting == NULL)
        window->waiting = entry;
    const struct kafka_entry *refused = find_refused(window, entry);
    if (refused != NULL)
        skr_kafka_window_finish(window, entry, SKR_HELD_BACK, refused->result);
    return SKR_OK;
}

void
skr_kafka_window_finish(struct kafka_window *window, struct kafka_entry *entry,
                        enum skr_fate fate, rd_kafka_resp_err_t result)
{
    if (window->waiting == entry)
        window->waiting = entry->next;
    detach(&window->open, entry);
    window->suspects -= entry->is_suspect;
    entry->fate = fate;
    entry->result = result;
    append(&window->finished, entry);
}

void
skr_kafka_window_refuse(struct kafka_window *window, struct kafka_entry *entry,
                        enum skr_fate fate, rd_kafka_resp_err_t result)
{
    skr_kafka_window_finish(window, entry, fate, result);
    entry->is_refused = true;
    window->refused++;
    for (struct kafka_entry *next, *behind = window->waiting; behind != NULL;
         behind = next) {
        next = behind->next;
        if (is_in_order(entry, behind))
            skr_kafka_window_finish(window, behind, SKR_HELD_BACK, result);
    }
}

struct kafka_entry *
skr_kafka_window_take(struct kafka_window *window)
{
    struct kafka_entry *entry = window->finished.first;
    if (entry == NULL)
        return NULL;
    detach(&window->finished, entry);
    window->refused -= entry->is_refused;
    return entry;
}

void
skr_kafka_window_rewind(struct kafka_window *window, bool are_suspects)
{
    window->waiting = window->open.first;
    window->suspects = are_suspects ? window->open.count : 0;
    for (struct kafka_entry *entry = window->open.first; entry != NULL;
         entry = entry->next)
        entry->is_suspect = are_suspects;
}

static void
free_all(struct kafka_list *list)
{
    for (struct kafka_entry *entry = list->first; entry != NULL;) {
        struct kafka_entry *next = entry->next;
        free(entry);
        entry = next;
    }
}

void
skr_kafka_window_fini(struct kafka_window *window)
{
    free_all(&window->open);
    free_all(&window->finished);
    *window = (struct kafka_window){.suspects = 0};
}
