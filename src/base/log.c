// SPDX-License-Identifier: MIT
// Passes events to the log that the caller has set, and keeps a lasting trouble
// from being logged at every attempt.

#include "base/log.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { REPEAT_MS = 60000 };

void
skr_log_write(const struct skr_log *log, enum skr_log_level level,
              const char *event, const struct skr_log_field *fields,
              size_t count)
{
    if (log != NULL && log->write != NULL)
        log->write(log->user, level, event, fields, count);
}

void
skr_health_tell(const struct skr_log *log, enum skr_health_event event,
                uint64_t detail)
{
    if (log != NULL && log->tell != NULL)
        log->tell(log->tell_user, event, detail);
}

void
skr_trouble_report(struct skr_trouble *trouble, const struct skr_log *log,
                   enum skr_trouble_kind kind, const char *event,
                   const char *subject, const struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    bool is_known = strcmp(trouble->text, error->text) == 0;
    trouble->repeats = is_known ? trouble->repeats + 1 : 0;
    if (is_known && now_ms - trouble->logged_ms < REPEAT_MS)
        return;
    snprintf(trouble->text, sizeof(trouble->text), "%s", error->text);
    trouble->logged_ms = now_ms;
    skr_log(log, SKR_LOG_WARNING, event, SKR_LOG_TEXT("name", subject),
            SKR_LOG_TEXT("native", error->native),
            SKR_LOG_TEXT("error", error->text));
    if (kind != SKR_TROUBLE_HARMLESS)
        skr_health_tell(log, SKR_HEALTH_TROUBLE, kind);
}

void
skr_trouble_notice(struct skr_trouble *trouble, const struct skr_log *log,
                   const char *event, const char *subject,
                   const struct skr_error *error)
{
    if (error->code == SKR_OK)
        *trouble = (struct skr_trouble){0};
    else
        skr_trouble_report(trouble, log, SKR_TROUBLE_HARMLESS, event, subject,
                           error);
}

void
skr_trouble_end(struct skr_trouble *trouble, const struct skr_log *log,
                enum skr_trouble_kind kind, const char *event,
                const char *subject)
{
    if (trouble->text[0] == '\0')
        return;
    skr_log(log, SKR_LOG_INFO, event, SKR_LOG_TEXT("name", subject),
            SKR_LOG_NUMBER("failures", trouble->repeats + 1));
    if (kind != SKR_TROUBLE_HARMLESS)
        skr_health_tell(log, SKR_HEALTH_RECOVERED, kind);
    *trouble = (struct skr_trouble){0};
}
