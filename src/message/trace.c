// SPDX-License-Identifier: MIT
// Validates traceparent and tracestate, and takes them from a message's
// headers.

#include "message/trace.h"

#include "base/error.h"
#include "message/headers.h"

#include <string.h>

enum {
    VERSION_SIZE = 2,
    TRACE_ID_SIZE = 32,
    PARENT_ID_SIZE = 16,
    FLAGS_SIZE = 2,
    MOST_MEMBERS = 32,
};

// The text behind that many digits and, unless it ends there, a dash.
static const char *
skip_digits(const char *text, size_t count, bool may_be_zero)
{
    if (text == NULL || strspn(text, "0123456789abcdef") != count)
        return NULL;
    if (!may_be_zero && strspn(text, "0") >= count)
        return NULL;
    if (text[count] == '\0')
        return text + count;
    return text[count] == '-' ? text + count + 1 : NULL;
}

bool
skr_trace_is_parent(const char *text)
{
    const char *at = skip_digits(text, VERSION_SIZE, true);
    at = skip_digits(at, TRACE_ID_SIZE, false);
    at = skip_digits(at, PARENT_ID_SIZE, false);
    at = skip_digits(at, FLAGS_SIZE, true);
    if (at == NULL || strncmp(text, "ff", VERSION_SIZE) == 0)
        return false;
    // The version that is known ends here.
    bool has_more = at[0] != '\0' || at[-1] == '-';
    return !has_more || strncmp(text, "00", VERSION_SIZE) != 0;
}

bool
skr_trace_is_state(const char *text)
{
    size_t members = 0;
    for (const char *at = text; at != NULL; members++) {
        const char *comma = strchr(at, ',');
        size_t size = comma == NULL ? strlen(at) : (size_t)(comma - at);
        size_t blank = strspn(at, " \t");
        const char *equals = memchr(at, '=', size);
        // An empty member is allowed, a nameless one is not.
        if (blank < size && (equals == NULL || equals == at + blank))
            return false;
        at = comma == NULL ? NULL : comma + 1;
    }
    for (const char *at = text; *at != '\0'; at++)
        if ((*at < ' ' && *at != '\t') || *at > '~')
            return false;
    return members <= MOST_MEMBERS;
}

static enum skr_code
find_given(const struct skr_message *message, const char *field,
           const char *name, const char **given, struct skr_error *error)
{
    const char *header =
        skr_headers_find(message->headers, message->header_count, name);
    if (field != NULL && header != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: %s is given twice, as a field and as a "
                        "header",
                        message->name, name);
    *given = field != NULL ? field : header;
    return SKR_OK;
}

enum skr_code
skr_trace_check(const struct skr_message *message, struct skr_error *error)
{
    const char *parent = NULL, *state = NULL;
    enum skr_code code = find_given(message, message->traceparent,
                                    SKR_HEADER_TRACEPARENT, &parent, error);
    if (code == SKR_OK)
        code = find_given(message, message->tracestate, SKR_HEADER_TRACESTATE,
                          &state, error);
    if (code != SKR_OK)
        return code;
    if (parent != NULL && !skr_trace_is_parent(parent))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: traceparent is '%.80s'; 00-<32 "
                        "digits>-<16 digits>-<2 digits> is needed, in small "
                        "hexadecimal digits",
                        message->name, parent);
    if (state != NULL && parent == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: tracestate means nothing without a "
                        "traceparent",
                        message->name);
    if (state != NULL && !skr_trace_is_state(state))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: tracestate is '%.80s'; key=value,... is "
                        "needed, %d at most",
                        message->name, state, MOST_MEMBERS);
    return SKR_OK;
}

void
skr_trace_read(struct skr_message *message)
{
    const char *parent = skr_headers_find(
        message->headers, message->header_count, SKR_HEADER_TRACEPARENT);
    const char *state = skr_headers_find(
        message->headers, message->header_count, SKR_HEADER_TRACESTATE);
    bool is_traced = parent != NULL && skr_trace_is_parent(parent);
    bool has_state = is_traced && state != NULL && skr_trace_is_state(state);
    message->traceparent = is_traced ? parent : NULL;
    message->tracestate = has_state ? state : NULL;
}
