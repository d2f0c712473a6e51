// SPDX-License-Identifier: MIT
// The properties of a message hold what any other program sent.
#include "fuzz.h"

#include "base/arena.h"
#include "broker/rabbitmq/deliveries.h"

#include <stdlib.h>
#include <string.h>

// Whatever came, what is made of it can be stored.
static void
check_headers(struct skr_amqp_piece table)
{
    struct skr_arena arena = {0};
    struct skr_headers headers = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_rabbit_headers_read(&arena, table, &headers, &error);
    if (code != SKR_OK &&
        (code != SKR_MALFORMED || headers.count > 0 ||
         !skr_text_is_storable(error.text, strlen(error.text))))
        abort();
    if (headers.count > SKR_MAX_HEADERS)
        abort();
    for (size_t i = 0; i < headers.count; i++)
        if (!skr_text_is_storable(headers.items[i].name,
                                  strlen(headers.items[i].name)) ||
            !skr_text_is_storable(headers.items[i].value,
                                  strlen(headers.items[i].value)))
            abort();
    skr_arena_fini(&arena);
}

// What was read is written as it was.
static void
check_properties(struct skr_amqp_piece raw)
{
    struct skr_amqp_properties properties;
    struct skr_error error = {0};
    struct skr_text written = {0};
    if (skr_amqp_properties_read(raw, &properties, &error) != SKR_OK) {
        if (error.code != SKR_MALFORMED)
            abort();
        return;
    }
    skr_amqp_properties_write(&properties, &written);
    if (written.size > raw.size ||
        memcmp(written.bytes, raw.bytes, written.size) != 0)
        abort();
    skr_text_fini(&written);
    struct skr_amqp_piece table = properties.pieces[SKR_AMQP_HEADERS];
    check_headers(table);
    if (skr_rabbit_rejections(table, "orders") > 1000000 ||
        skr_rabbit_delivery_count(table) > 1000000)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const struct skr_amqp_piece input = {.bytes = bytes, .size = size};
    check_properties(input);
    check_headers(input);
    return 0;
}
