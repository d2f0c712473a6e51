// SPDX-License-Identifier: MIT
// What workers count, added up by name and transport.

#ifndef SKR_APP_SERVICE_METRICS_SET_H
#define SKR_APP_SERVICE_METRICS_SET_H

#include "base/histogram.h"
#include "base/text.h"

// Of as many as there may be transports, some for each.
enum { SKR_METRICS_MAX = 1024 };

enum skr_metric_kind {
    SKR_METRIC_COUNTER,
    SKR_METRIC_GAUGE,
    SKR_METRIC_HISTOGRAM,
};

struct skr_metric {
    const char *name;  // "skirnir_relay_published_total"
    const char *help;
    const char *transport;
    enum skr_metric_kind kind;
    uint64_t value;
    struct skr_histogram_reading times;
};

// Made by a zeroed calloc(): it is large.
struct skr_metrics_set {
    struct skr_metric items[SKR_METRICS_MAX];
    size_t count;
};

// Adds to what has the same name and transport; texts are borrowed.
void skr_metrics_count(struct skr_metrics_set *set, const char *name,
                       const char *help, const char *transport, uint64_t value);
void skr_metrics_gauge(struct skr_metrics_set *set, const char *name,
                       const char *help, const char *transport, uint64_t value);
// The greatest of those that have the same name and transport.
void
skr_metrics_greatest(struct skr_metrics_set *set, const char *name,
                     const char *help, const char *transport, uint64_t value);
void skr_metrics_time(struct skr_metrics_set *set, const char *name,
                      const char *help, const char *transport,
                      const struct skr_histogram *times);

// In Prometheus' format, all of a name together.
void
skr_metrics_set_write(const struct skr_metrics_set *set, struct skr_text *text);

struct skr_metrics_label {
    const char *name;
    const char *value;  // any bytes
};

// The lines before the samples of a name, and one of these.
void skr_metrics_write_head(struct skr_text *text, const char *name,
                            const char *type, const char *help);
void skr_metrics_write_sample(struct skr_text *text, const char *name,
                              const char *transport, uint64_t value);
// One with labels of its own. No two of a name have all of them equal.
void skr_metrics_write_labelled(struct skr_text *text, const char *name,
                                const struct skr_metrics_label *labels,
                                size_t count, uint64_t value);

#endif
