// SPDX-License-Identifier: MIT
// Any bytes into a struct with every kind of field. What was read must be
// written, read again and written the same; and whether it is JSON at all must
// be what jansson says.

#include "fuzz.h"

#include "../unit/typed_everything.h"

#include <jansson.h>
#include <stdlib.h>

// With no fields it accepts every object.
static const struct skr_type anything = {.c_type = "struct anything",
                                         .size = 1};

static void
compare_with_jansson(const char *json, size_t size)
{
    char value;
    struct skr_decoded *memory;
    struct skr_error ours;
    enum skr_code code =
        skr_decode(&anything, &(struct skr_encoded){json, size, NULL}, &value,
                   &memory, &ours);
    if (code == SKR_OK)
        skr_decoded_free(memory);
    json_error_t theirs;
    json_t *tree =
        json_loadb(json, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, &theirs);
    bool is_object = json_is_object(tree);
    json_decref(tree);
    if (is_object == (code == SKR_OK))
        return;
    // The differences that are meant: depth here, sizes of numbers and zeros
    // in names there; and jansson skips a zero byte that follows a number.
    if (is_object && (strstr(ours.text, "nested too deep") != NULL ||
                      memchr(json, '\0', size) != NULL))
        return;
    enum json_error_code reason = json_error_code(&theirs);
    if (!is_object && (reason == json_error_numeric_overflow ||
                       reason == json_error_null_byte_in_key))
        return;
    abort();
}

static void
write_and_read_again(const struct everything *value)
{
    char *first, *second;
    size_t first_size, second_size;
    struct everything again;
    struct skr_decoded *memory;
    if (skr_encode(&everything, value, NULL, &first, &first_size, NULL) !=
            SKR_OK ||
        skr_decode(&everything, &(struct skr_encoded){first, first_size, NULL},
                   &again, &memory, NULL) != SKR_OK ||
        skr_encode(&everything, &again, NULL, &second, &second_size, NULL) !=
            SKR_OK ||
        first_size != second_size || memcmp(first, second, first_size) != 0)
        abort();
    skr_decoded_free(memory);
    free(first);
    free(second);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    // A copy of its own size, so that a read past its end is seen.
    char *json = malloc(size == 0 ? 1 : size);
    if (json == NULL)
        abort();
    if (size > 0)
        memcpy(json, bytes, size);
    compare_with_jansson(json, size);
    struct everything value;
    struct skr_decoded *memory;
    struct skr_error error;
    if (skr_decode(&everything, &(struct skr_encoded){json, size, NULL}, &value,
                   &memory, &error) == SKR_OK) {
        write_and_read_again(&value);
        skr_decoded_free(memory);
    }
    free(json);
    return 0;
}
