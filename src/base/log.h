// SPDX-License-Identifier: MIT
// Events for people who run the thing. A log is passed in, never global; one
// without a function is silent.

#ifndef SKR_BASE_LOG_H
#define SKR_BASE_LOG_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

// What a worker tells of its health beside the lines that it logs: what is read
// off it, as by /readyz, does not depend on the names of events.
enum skr_health_event {
    SKR_HEALTH_ACTIVE,         // it is at work
    SKR_HEALTH_STANDBY,        // it is connected, and another one is at work
    SKR_HEALTH_ENDED,          // it does nothing more
    SKR_HEALTH_TROUBLE,        // of the kind that the detail names
    SKR_HEALTH_RECOVERED,      // from that kind
    SKR_HEALTH_CLOSED_ROUTES,  // the detail is how many there are
};
// Each kind has an end of its own: to be connected again says nothing of a
// table that cannot be written.
enum skr_trouble_kind {
    SKR_TROUBLE_HARMLESS = 0,       // work goes on: it is no matter of health
    SKR_TROUBLE_RELAY = 1 << 0,     // a session of a relay
    SKR_TROUBLE_CONSUMER = 1 << 1,  // a session or a handler of a consumer
    SKR_TROUBLE_SETTLE = 1 << 2,    // writing results into an outbox
    SKR_TROUBLE_DEAD_LETTER = 1 << 3,  // writing a message that failed
    SKR_TROUBLE_RETRIES = 1 << 4,      // reading messages that are put off
    SKR_TROUBLE_BROKER = 1 << 5,       // a broker that does not answer
};
typedef void
skr_health_fn(void *user, enum skr_health_event event, uint64_t detail);

struct skr_log {
    skr_log_fn *write;
    void *user;
    skr_health_fn *tell;  // NULL: health is of no interest
    void *tell_user;
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

// Beside the line that says so.
void skr_health_tell(const struct skr_log *log, enum skr_health_event event,
                     uint64_t detail);

// Logs the same trouble once a minute and counts its repeats, so that a server
// that is down for an hour does not write a line a second.
struct skr_trouble {
    char text[sizeof(((struct skr_error *)NULL)->text)];
    uint64_t repeats;
    int64_t logged_ms;  // by skr_clock_ms()
};

// Health is told with each line.
void skr_trouble_report(struct skr_trouble *trouble, const struct skr_log *log,
                        enum skr_trouble_kind kind, const char *event,
                        const char *subject, const struct skr_error *error);
// The same of what is harmless and every attempt finds anew: error without a
// code says that there was none, so that it is told again when it comes back.
void skr_trouble_notice(struct skr_trouble *trouble, const struct skr_log *log,
                        const char *event, const char *subject,
                        const struct skr_error *error);
// Says that it is over, if there was any.
void skr_trouble_end(struct skr_trouble *trouble, const struct skr_log *log,
                     enum skr_trouble_kind kind, const char *event,
                     const char *subject);

#endif
