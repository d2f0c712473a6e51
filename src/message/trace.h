// SPDX-License-Identifier: MIT
// W3C Trace Context: which trace a message belongs to.

#ifndef SKR_MESSAGE_TRACE_H
#define SKR_MESSAGE_TRACE_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

#define SKR_HEADER_TRACEPARENT "traceparent"
#define SKR_HEADER_TRACESTATE "tracestate"

// "00-" trace id "-" parent id "-" flags, in small hexadecimal digits and with
// neither id all zero. A later version may have more behind it.
bool skr_trace_is_parent(const char *text);
// At most 32 members key=value, separated by commas, in printable ASCII.
bool skr_trace_is_state(const char *text);

// Of a message that is being published, in its fields or its headers:
// SKR_INVALID where it is malformed, given twice, or a state without a parent.
SKR_MUST_CHECK enum skr_code
skr_trace_check(const struct skr_message *message, struct skr_error *error);

// Fills the fields from the headers of a message that arrived. What is
// malformed counts as absent, as the standard wants it, and a state means
// nothing without its parent.
void skr_trace_read(struct skr_message *message);

#endif
