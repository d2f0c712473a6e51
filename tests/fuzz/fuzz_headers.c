// SPDX-License-Identifier: MIT
// The headers column holds what any other program wrote.
#include "fuzz.h"

#include "base/arena.h"
#include "base/text.h"
#include "message/envelope.h"

#include <stdlib.h>
#include <string.h>

// What was read can be written and reads the same again.
static void
check_round_trip(struct skr_arena *arena, const struct skr_headers *headers)
{
    struct skr_text json = {0};
    struct skr_headers again = {0};
    struct skr_error error = {0};
    if (skr_headers_write(headers->items, headers->count, &json, &error) !=
        SKR_OK)
        abort();
    if (headers->count > 0) {
        if (skr_headers_parse(arena, json.bytes, json.size, &again, &error) !=
            SKR_OK)
            abort();
        if (again.count != headers->count)
            abort();
        for (size_t i = 0; i < again.count; i++)
            if (strcmp(again.items[i].name, headers->items[i].name) != 0 ||
                strcmp(again.items[i].value, headers->items[i].value) != 0)
                abort();
    }
    skr_text_fini(&json);
}

static void
check_envelope(struct skr_arena *arena, const struct skr_headers *headers)
{
    static const struct skr_name_pair pairs[] = {
        {"order.placed", "App\\Message\\OrderPlaced"},
    };
    static const struct skr_names names = {pairs, 1};
    struct skr_envelope envelope = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_envelope_read(arena, headers, NULL, &names, &envelope, &error);
    if (code == SKR_OK ? envelope.message.name == NULL : error.text[0] == '\0')
        abort();
    if (code != SKR_OK || !envelope.has_id)
        return;
    const char *id_header = NULL;
    if (skr_envelope_id_header(arena, NULL, &id_header, &error) != SKR_OK)
        abort();
    if (skr_envelope_to_wire(arena, id_header, "X-Key", &envelope, &error) !=
            SKR_OK &&
        error.text[0] == '\0')
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct skr_arena arena = {0};
    struct skr_headers headers = {0};
    struct skr_error error = {0};
    if (skr_headers_parse(&arena, (const char *)bytes, size, &headers,
                          &error) == SKR_OK) {
        check_round_trip(&arena, &headers);
        check_envelope(&arena, &headers);
    } else if (error.text[0] == '\0' ||
               !skr_text_is_storable(error.text, strlen(error.text))) {
        abort();
    }
    skr_arena_fini(&arena);
    return 0;
}
