// SPDX-License-Identifier: MIT
// The SQL of handlers comes from configuration files.
#include "fuzz.h"

#include "base/arena.h"
#include "base/text.h"
#include "db/sql.h"
#include "inbox/sql_handler.h"

#include <stdlib.h>
#include <string.h>

// Every parameter that was found stands in the text, and no other does: what
// remains of the text outside of quotes holds as many question marks.
static void
check_parsed(const struct skr_sql_template *parsed)
{
    size_t marks = 0;
    char quote = '\0';
    for (const char *at = parsed->sql; *at != '\0'; at++) {
        if (quote != '\0')
            quote = *at == quote ? '\0' : quote;
        else if (*at == '\'' || *at == '"' || *at == '`')
            quote = *at;
        else if (*at == ';')
            abort();
        else if (*at == '?')
            marks++;
    }
    if (quote != '\0' || marks != parsed->count)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const struct skr_dialect plain = {.product = "plain"};
    static const struct skr_dialect numbered = {.product = "numbered",
                                                .numbers_parameters = true};
    char *sql = malloc(size + 1);
    if (sql == NULL)
        abort();
    if (size > 0)
        memcpy(sql, bytes, size);
    sql[size] = '\0';

    struct skr_arena arena = {0};
    struct skr_sql_template parsed = {0}, other = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_sql_template_parse(sql, &plain, &arena, &parsed, &error);
    if (code == SKR_OK)
        check_parsed(&parsed);
    else if (error.text[0] == '\0' ||
             !skr_text_is_storable(error.text, strlen(error.text)))
        abort();
    // A dialect changes how parameters are written, not what is read.
    if (skr_sql_template_parse(sql, &numbered, &arena, &other, &error) !=
            code ||
        other.count != parsed.count)
        abort();
    skr_arena_fini(&arena);
    free(sql);
    return 0;
}
