// SPDX-License-Identifier: MIT
// A list of metrics that workers add to, and their samples in Prometheus' text
// format; metrics_text.c decides which metrics there are.

#include "app/service/metrics_set.h"

#include <string.h>

static const char *const kind_names[] = {
    [SKR_METRIC_COUNTER] = "counter",
    [SKR_METRIC_GAUGE] = "gauge",
    [SKR_METRIC_HISTOGRAM] = "histogram",
};

static struct skr_metric *
take(struct skr_metrics_set *set, enum skr_metric_kind kind, const char *name,
     const char *help, const char *transport)
{
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->items[i].name, name) == 0 &&
            strcmp(set->items[i].transport, transport) == 0)
            return &set->items[i];
    if (set->count == SKR_METRICS_MAX)
        return NULL;
    struct skr_metric *metric = &set->items[set->count++];
    *metric = (struct skr_metric){
        .kind = kind, .name = name, .help = help, .transport = transport};
    return metric;
}

void
skr_metrics_count(struct skr_metrics_set *set, const char *name,
                  const char *help, const char *transport, uint64_t value)
{
    struct skr_metric *metric =
        take(set, SKR_METRIC_COUNTER, name, help, transport);
    if (metric != NULL)
        metric->value += value;
}

void
skr_metrics_gauge(struct skr_metrics_set *set, const char *name,
                  const char *help, const char *transport, uint64_t value)
{
    struct skr_metric *metric =
        take(set, SKR_METRIC_GAUGE, name, help, transport);
    if (metric != NULL)
        metric->value += value;
}

void
skr_metrics_greatest(struct skr_metrics_set *set, const char *name,
                     const char *help, const char *transport, uint64_t value)
{
    struct skr_metric *metric =
        take(set, SKR_METRIC_GAUGE, name, help, transport);
    if (metric != NULL && value > metric->value)
        metric->value = value;
}

void
skr_metrics_time(struct skr_metrics_set *set, const char *name,
                 const char *help, const char *transport,
                 const struct skr_histogram *times)
{
    struct skr_metric *metric =
        take(set, SKR_METRIC_HISTOGRAM, name, help, transport);
    if (metric != NULL)
        skr_histogram_read(times, &metric->times);
}

void
skr_metrics_write_head(struct skr_text *text, const char *name,
                       const char *type, const char *help)
{
    skr_text_add_format(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                        type);
}

// In a label's value these have to be written so.
static void
add_escaped(struct skr_text *text, const struct skr_text *storable)
{
    const char *value = storable->bytes;
    for (size_t at = 0; at < storable->size; at++) {
        if (value[at] == '\\' || value[at] == '"')
            skr_text_add_string(text, "\\");
        if (value[at] == '\n')
            skr_text_add_string(text, "\\n");
        else
            skr_text_add(text, value + at, 1);
    }
}

// One byte that is no UTF-8 would have all of the scrape refused: it becomes a
// question mark, as in the text of an error.
static void
write_label(struct skr_text *text, const struct skr_metrics_label *label)
{
    struct skr_text storable = {0};
    skr_text_add_storable(&storable, label->value, strlen(label->value));
    text->broken |= storable.broken;
    skr_text_add_format(text, "%s=\"", label->name);
    add_escaped(text, &storable);
    skr_text_add_string(text, "\"");
    skr_text_fini(&storable);
}

static void
write_transport(struct skr_text *text, const char *transport)
{
    write_label(text, &(struct skr_metrics_label){"transport", transport});
}

void
skr_metrics_write_labelled(struct skr_text *text, const char *name,
                           const struct skr_metrics_label *labels, size_t count,
                           uint64_t value)
{
    skr_text_add_format(text, "%s{", name);
    for (size_t i = 0; i < count; i++) {
        skr_text_add_string(text, i == 0 ? "" : ",");
        write_label(text, &labels[i]);
    }
    skr_text_add_format(text, "} %llu\n", (unsigned long long)value);
}

void
skr_metrics_write_sample(struct skr_text *text, const char *name,
                         const char *transport, uint64_t value)
{
    const struct skr_metrics_label label = {"transport", transport};
    skr_metrics_write_labelled(text, name, &label, 1, value);
}

// Each step has all that is below it, too; the last has everything.
static void
write_histogram(struct skr_text *text, const struct skr_metric *metric)
{
    const struct skr_histogram_reading *times = &metric->times;
    uint64_t count = 0;
    for (int i = 0; i < SKR_HISTOGRAM_STEPS; i++) {
        count += times->counts[i];
        skr_text_add_format(text, "%s_bucket{", metric->name);
        write_transport(text, metric->transport);
        if (i < SKR_HISTOGRAM_STEPS - 1)
            skr_text_add_format(text, ",le=\"%g\"} %llu\n",
                                (double)skr_histogram_bounds_us[i] / 1e6,
                                (unsigned long long)count);
        else
            skr_text_add_format(text, ",le=\"+Inf\"} %llu\n",
                                (unsigned long long)count);
    }
    skr_text_add_format(text, "%s_sum{", metric->name);
    write_transport(text, metric->transport);
    skr_text_add_format(text, "} %llu.%06llu\n%s_count{",
                        (unsigned long long)times->sum_us / 1000000,
                        (unsigned long long)times->sum_us % 1000000,
                        metric->name);
    write_transport(text, metric->transport);
    skr_text_add_format(text, "} %llu\n", (unsigned long long)count);
}

static bool
is_first_of_name(const struct skr_metrics_set *set, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(set->items[i].name, set->items[index].name) == 0)
            return false;
    return true;
}

static void
write_all_of(const struct skr_metrics_set *set, size_t first,
             struct skr_text *text)
{
    const struct skr_metric *head = &set->items[first];
    skr_metrics_write_head(text, head->name, kind_names[head->kind],
                           head->help);
    for (size_t i = first; i < set->count; i++) {
        const struct skr_metric *metric = &set->items[i];
        if (strcmp(metric->name, head->name) != 0)
            continue;
        if (metric->kind == SKR_METRIC_HISTOGRAM)
            write_histogram(text, metric);
        else
            skr_metrics_write_sample(text, metric->name, metric->transport,
                                     metric->value);
    }
}

void
skr_metrics_set_write(const struct skr_metrics_set *set, struct skr_text *text)
{
    for (size_t i = 0; i < set->count; i++)
        if (is_first_of_name(set, i))
            write_all_of(set, i, text);
}
