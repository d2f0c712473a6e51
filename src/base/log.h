// SPDX-License-Identifier: MIT
// Events for people who run the thing. A log is passed in, never global; one
// without a function is silent.

#ifndef SKR_BASE_LOG_H
#define SKR_BASE_LOG_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_log {
    skr_log_fn *write;
    void *user;
    // Whether details of single messages are wanted. An event of each message
    // is not even made where they are not.
    bool each_message;
};

#define SKR_LOG_TEXT(field, value)       \
    (struct skr_log_field)               \
    {                                    \
        .name = (field), .text = (value) \
    }
#define SKR_LOG_NUMBER(field, value)                \
    (struct skr_log_field)                          \
    {                                               \
        .name = (field), .number = (int64_t)(value) \
    }

// skr_log(log, SKR_LOG_INFO, "relay.active", SKR_LOG_TEXT("queue", queue));
#define skr_log(log, level, event, ...)                                 \
    skr_log_write((log), (level), (event),                              \
                  (const struct skr_log_field[]){__VA_ARGS__},          \
                  sizeof((const struct skr_log_field[]){__VA_ARGS__}) / \
                      sizeof(struct skr_log_field))

// log may be NULL. A field whose text is NULL and number 0 is written as 0.
void skr_log_write(const struct skr_log *log, enum skr_log_level level,
                   const char *event, const struct skr_log_field *fields,
                   size_t count);

// Says the same trouble once and counts its repeats, so that a server that is
// down for an hour does not write a line a second.
struct skr_trouble {
    char text[sizeof(((struct skr_error *)NULL)->text)];
    uint64_t repeats;
    int64_t said_ms;  // by skr_clock_ms()
};

void skr_trouble_report(struct skr_trouble *trouble, const struct skr_log *log,
                        const char *event, const char *subject,
                        const struct skr_error *error);
// The same of what every attempt finds anew: error without a code says that
// there was none, so that it is told again when it comes back.
void skr_trouble_notice(struct skr_trouble *trouble, const struct skr_log *log,
                        const char *event, const char *subject,
                        const struct skr_error *error);
// Has the next report said although it is the same, once a minute has passed:
// while nothing has worked yet, a person is likely to look for the cause.
void skr_trouble_remind(struct skr_trouble *trouble, int64_t now_ms);
// Says that it is over, if there was any.
void skr_trouble_end(struct skr_trouble *trouble, const struct skr_log *log,
                     const char *event, const char *subject);

#endif
