// SPDX-License-Identifier: MIT
// A process-wide list of hosts that did not answer lately, by which others are
// put in order. Connections of all threads share it, so that each of them need
// not find out by a timeout.

#include "base/silence.h"

#include "base/clock.h"
#include "base/vec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    // Beyond these the host that is silent for longest is forgotten: it is
    // waited for once more.
    MOST_HOSTS = 64,
    // After that time a host is no longer tried last.
    FORGIVEN_MS = 10 * 60 * 1000,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char peer[SKR_HOST_PEER_SIZE];
    int64_t silent_ms;
} hosts[MOST_HOSTS];

// The peer's place; if it has none, the oldest, which may be replaced.
static size_t
place_of(const char *peer)
{
    size_t place = 0;
    for (size_t i = 0; i < MOST_HOSTS; i++) {
        if (strcmp(hosts[i].peer, peer) == 0)
            return i;
        if (hosts[i].silent_ms < hosts[place].silent_ms)
            place = i;
    }
    return place;
}

static void
note(const char *peer, int64_t silent_ms)
{
    pthread_mutex_lock(&lock);
    size_t place = place_of(peer);
    bool is_known = strcmp(hosts[place].peer, peer) == 0;
    if (is_known || silent_ms > 0) {
        snprintf(hosts[place].peer, sizeof(hosts[place].peer), "%s", peer);
        hosts[place].silent_ms = silent_ms;
    }
    pthread_mutex_unlock(&lock);
}

void
skr_silence_note(const char *peer)
{
    note(peer, skr_clock_ms());
}

void
skr_silence_end(const char *peer)
{
    note(peer, 0);
}

static int64_t
find_silence_ms(const char *peer)
{
    pthread_mutex_lock(&lock);
    size_t place = place_of(peer);
    int64_t silent_ms =
        strcmp(hosts[place].peer, peer) == 0 ? hosts[place].silent_ms : 0;
    pthread_mutex_unlock(&lock);
    return silent_ms + FORGIVEN_MS > skr_clock_ms() ? silent_ms : 0;
}

static int
compare_candidates(const void *left, const void *right)
{
    const struct skr_candidate *a = left, *b = right;
    if (a->silent_ms != b->silent_ms)
        return a->silent_ms < b->silent_ms ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

struct skr_candidate *
skr_silence_sort(const char *list, uint16_t port, bool spreads, size_t *count)
{
    struct skr_candidate *candidates = NULL;
    size_t capacity = 0;
    uint32_t start = 0;
    *count = 0;
    while (list != NULL) {
        struct skr_candidate next = {.place = *count};
        char peer[SKR_HOST_PEER_SIZE];
        list = skr_host_next(list, &next.host);
        if (next.host.port[0] == '\0' && port > 0)
            snprintf(next.host.port, sizeof(next.host.port), "%u", port);
        skr_host_show(&next.host, peer);
        next.silent_ms = find_silence_ms(peer);
        if (!skr_vec_insert(&candidates, count, &capacity, *count, &next,
                            sizeof(next))) {
            free(candidates);
            return NULL;
        }
    }
    if (spreads && getrandom(&start, sizeof(start), 0) != sizeof(start))
        start = (uint32_t)skr_clock_wall_us();
    for (size_t i = 0; i < *count; i++)
        candidates[i].place = (i + *count - start % *count) % *count;
    qsort(candidates, *count, sizeof(*candidates), compare_candidates);
    return candidates;
}
