// SPDX-License-Identifier: MIT
// A message of a small shop, described once for those who publish it and those
// who receive it. docs/typed-messages.md explains it line by line.

#ifndef EXAMPLES_TYPED_ORDER_H
#define EXAMPLES_TYPED_ORDER_H

#include <skirnir/typed.h>
#include <string.h>

// Money is exact: cents in C, cents and a currency in JSON.
struct money {
    int64_t cents;
    char currency[4];
};

enum order_channel { CHANNEL_SHOP, CHANNEL_PHONE };

struct order_item {
    char sku[16];
    uint32_t quantity;
    struct money price;
};

struct order_placed {
    struct skr_id order_id;
    const char *customer_id;
    double total;
    int64_t placed_at_us;
    enum order_channel channel;
    const char *note;  // NULL: none
    bool has_discount;
    double discount;
    struct order_item *items;
    size_t item_count;
    const char **tags;
    size_t tag_count;
};

// {"cents":1999,"currency":"EUR"}
static enum skr_code
money_encode(const struct skr_codec *codec, const struct skr_field *field,
             const void *value, struct skr_json_writer *writer,
             struct skr_error *error)
{
    (void)codec, (void)field, (void)error;
    const struct money *money = value;
    skr_json_begin_object(writer);
    skr_json_write_name(writer, "cents");
    skr_json_write_signed(writer, money->cents);
    skr_json_write_name(writer, "currency");
    skr_json_write_text(writer, money->currency, strlen(money->currency));
    skr_json_end_object(writer);
    return SKR_OK;
}

static enum skr_code
money_decode(const struct skr_codec *codec, const struct skr_field *field,
             const struct skr_json *json, void *value,
             struct skr_decoded *memory, struct skr_error *error)
{
    (void)codec, (void)field, (void)memory;
    struct money *money = value;
    const struct skr_json *cents = skr_json_find(json, "cents");
    const struct skr_json *currency = skr_json_find(json, "currency");
    if (cents == NULL || currency == NULL)
        return skr_codec_fail(error, SKR_MALFORMED,
                              "cents and currency are needed");
    enum skr_code code = skr_json_read_signed(cents, &money->cents, error);
    if (code != SKR_OK)
        return code;
    const char *text;
    size_t size;
    code = skr_json_read_text(currency, &text, &size, error);
    if (code != SKR_OK)
        return code;
    if (size != 3)
        return skr_codec_fail(error, SKR_MALFORMED,
                              "a currency of three letters is needed");
    memcpy(money->currency, text, size + 1);
    return SKR_OK;
}

static const struct skr_codec shop_codec_list[] = {
    {.c_type = "struct money", .encode = money_encode, .decode = money_decode},
};
static const struct skr_codecs shop_codecs = SKR_CODECS(shop_codec_list);

static const struct skr_enum_name order_channel_names[] = {
    {CHANNEL_SHOP, "shop"},
    {CHANNEL_PHONE, "phone"},
};

static const struct skr_field order_item_fields[] = {
    SKR_FIELD_CHARS(struct order_item, sku, "sku"),
    SKR_FIELD_INTEGER(struct order_item, quantity, "quantity"),
    SKR_FIELD_OWN(struct order_item, price, struct money, "price"),
};
static const struct skr_type order_item =
    SKR_PART(struct order_item, order_item_fields);

static const struct skr_field order_placed_fields[] = {
    SKR_FIELD_UUID(struct order_placed, order_id, "orderId"),
    SKR_FIELD_TEXT(struct order_placed, customer_id, "customerId"),
    SKR_FIELD_DOUBLE(struct order_placed, total, "totalAmount"),
    SKR_FIELD_TIME(struct order_placed, placed_at_us, "placedAt"),
    SKR_FIELD_ENUM(struct order_placed, channel, order_channel_names,
                   "channel"),
    SKR_FIELD_TEXT(struct order_placed, note, "note", SKR_OPTIONAL),
    SKR_FIELD_DOUBLE(struct order_placed, discount, "discount",
                     SKR_OPTIONAL_IF(struct order_placed, has_discount)),
    SKR_ARRAY_STRUCT(struct order_placed, items, item_count, order_item,
                     "items"),
    SKR_ARRAY_TEXT(struct order_placed, tags, tag_count, "tags", SKR_OPTIONAL),
};
static const struct skr_type order_placed =
    SKR_TYPE("order.placed", struct order_placed, order_placed_fields,
             SKR_WITH_CODECS(shop_codecs));

#endif
