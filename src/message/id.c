// SPDX-License-Identifier: MIT
// Ids: UUIDv7 made here, any UUID or ULID read.

#include "message/id.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

// The 12 bits behind the millisecond count ids within it, so that ids of one
// process are strictly ascending whatever the clock does.
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_ms_and_count;

static uint64_t
next_ms_and_count(uint16_t random)
{
    uint64_t now = (uint64_t)(skr_clock_wall_us() / 1000) << 12;
    // Starting low in the count leaves room before it runs into the next
    // millisecond; the random part keeps processes apart.
    uint64_t fresh = now | (random & 0x3ff);
    pthread_mutex_lock(&last_lock);
    uint64_t next = fresh > last_ms_and_count ? fresh : last_ms_and_count + 1;
    last_ms_and_count = next;
    pthread_mutex_unlock(&last_lock);
    return next;
}

enum skr_code
skr_id_new(struct skr_id *id, struct skr_error *error)
{
    uint8_t random[10];
    ssize_t got;
    do {
        got = getrandom(random, sizeof(random), 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(random))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                        "the system gives no random bytes: %s",
                        strerror(errno));
    uint16_t start;
    memcpy(&start, random, sizeof(start));
    uint64_t next = next_ms_and_count(start);
    uint64_t ms = next >> 12;
    for (int i = 0; i < 6; i++)
        id->bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    id->bytes[6] = (uint8_t)(0x70 | (next >> 8 & 0x0f));
    id->bytes[7] = (uint8_t)next;
    memcpy(id->bytes + 8, random + 2, 8);
    id->bytes[8] = (uint8_t)(0x80 | (id->bytes[8] & 0x3f));
    return SKR_OK;
}

void
skr_id_format(struct skr_id id, char text[SKR_ID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *out = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = digits[id.bytes[i] >> 4];
        *out++ = digits[id.bytes[i] & 15];
    }
    *out = '\0';
}

static int
parse_uuid(const char *text, struct skr_id *id)
{
    for (int i = 0, at = 0; i < 16; i++, at += 2) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            if (text[at++] != '-')
                return 0;
        int high = skr_text_hex_digit(text[at]);
        int low = skr_text_hex_digit(text[at + 1]);
        if (high < 0 || low < 0)
            return 0;
        id->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return 1;
}

// Crockford's base 32 without check digit: 26 characters for 130 bits, of
// which the first two are always zero.
static int
parse_ulid(const char *text, struct skr_id *id)
{
    static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    uint8_t bytes[16] = {0};
    for (int i = 0; i < 26; i++) {
        char c =
            text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 32) : text[i];
        const char *found = c == '\0' ? NULL : strchr(alphabet, c);
        if (found == NULL || (i == 0 && found - alphabet > 7))
            return 0;
        unsigned carry = (unsigned)(found - alphabet);
        for (int b = 15; b >= 0; b--) {
            unsigned shifted = (unsigned)bytes[b] << 5 | carry;
            bytes[b] = (uint8_t)shifted;
            carry = shifted >> 8;
        }
    }
    memcpy(id->bytes, bytes, sizeof(bytes));
    return 1;
}

enum skr_code
skr_id_parse(const char *text, struct skr_id *id, struct skr_error *error)
{
    struct skr_id parsed;
    if (text == NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "there is no message id");
    size_t length = strlen(text);
    if ((length == 36 && parse_uuid(text, &parsed)) ||
        (length == 26 && parse_ulid(text, &parsed))) {
        *id = parsed;
        return SKR_OK;
    }
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "message id '%.60s' is neither a UUID nor a ULID", text);
}

bool
skr_id_is_unset(struct skr_id id)
{
    static const struct skr_id unset;
    return memcmp(&id, &unset, sizeof(id)) == 0;
}

const char *
skr_id_show(struct skr_id id, char text[SKR_ID_TEXT_SIZE])
{
    text[0] = '\0';
    if (!skr_id_is_unset(id))
        skr_id_format(id, text);
    return text;
}

int64_t
skr_id_time_us(struct skr_id id)
{
    int64_t time_ms = 0;
    if (id.bytes[6] >> 4 != 7 || id.bytes[8] >> 6 != 2)
        return 0;
    for (int i = 0; i < 6; i++)
        time_ms = time_ms << 8 | id.bytes[i];
    return time_ms * 1000;
}

struct skr_id
skr_id_of_hash(struct skr_hash hash)
{
    struct skr_id id;
    for (size_t i = 0; i < 8; i++) {
        id.bytes[i] = (uint8_t)(hash.high >> (56 - 8 * i));
        id.bytes[8 + i] = (uint8_t)(hash.low >> (56 - 8 * i));
    }
    id.bytes[6] = (uint8_t)((id.bytes[6] & 0x0f) | 0x80);
    id.bytes[8] = (uint8_t)((id.bytes[8] & 0x3f) | 0x80);
    return id;
}
