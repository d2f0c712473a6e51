// SPDX-License-Identifier: MIT
// A process-wide ring of hashes of what was declared, so that a new connection
// does not declare it again.

#include "broker/rabbitmq/memory.h"

#include "base/hash.h"
#include "base/text.h"

#include <pthread.h>

enum {
    // Beyond these the oldest is forgotten, which costs what it cost before.
    MOST_MADE = 1024,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct skr_hash made[MOST_MADE];  // a ring
static size_t made_count;

static struct skr_hash
add_text(struct skr_hash hash, const char *text)
{
    return skr_hash_add_text(hash, text == NULL ? "" : text);
}

static struct skr_hash
print_of(const struct rabbit_settings *settings,
         const struct skr_declaration *declaration)
{
    struct skr_hash hash = skr_hash_start();
    for (size_t i = 0; i < settings->host_count; i++) {
        hash = add_text(hash, settings->hosts[i].name);
        hash = skr_hash_add(hash, &settings->hosts[i].port,
                            sizeof(settings->hosts[i].port));
    }
    hash = add_text(hash, settings->vhost);
    hash = skr_hash_add(hash, &declaration->kind, sizeof(declaration->kind));
    hash =
        skr_hash_add(hash, &declaration->durable, sizeof(declaration->durable));
    const char *const texts[] = {declaration->name, declaration->type,
                                 declaration->exchange, declaration->queue,
                                 declaration->binding_key};
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++)
        hash = add_text(hash, texts[i]);
    for (size_t i = 0; i < declaration->argument_count; i++) {
        const struct skr_argument *argument = &declaration->arguments[i];
        hash = add_text(hash, argument->name);
        hash = skr_hash_add(hash, &argument->kind, sizeof(argument->kind));
        hash = add_text(hash, argument->text);
        hash = skr_hash_add(hash, &argument->number, sizeof(argument->number));
    }
    return hash;
}

static bool
is_made(struct skr_hash print)
{
    for (size_t i = 0; i < made_count && i < MOST_MADE; i++)
        if (made[i].high == print.high && made[i].low == print.low)
            return true;
    return false;
}

void
skr_rabbit_note_made(const struct rabbit_settings *settings,
                     const struct skr_declaration *declaration)
{
    struct skr_hash print = print_of(settings, declaration);
    pthread_mutex_lock(&lock);
    if (!is_made(print))
        made[made_count++ % MOST_MADE] = print;
    pthread_mutex_unlock(&lock);
}

bool
skr_rabbit_was_made(const struct rabbit_settings *settings,
                    const struct skr_declaration *declaration)
{
    struct skr_hash print = print_of(settings, declaration);
    pthread_mutex_lock(&lock);
    bool was_made = is_made(print);
    pthread_mutex_unlock(&lock);
    return was_made;
}
