// SPDX-License-Identifier: MIT
// Where what is declared on RabbitMQ belongs: each transport has its own server
// and virtual host, and the topology is declared on one of them.

#include "app/config/topology.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

bool
skr_transport_is_amqp(const struct skr_config_transport *transport)
{
    return transport->scheme != NULL &&
           (strcmp(transport->scheme, "amqp") == 0 ||
            strcmp(transport->scheme, "amqps") == 0);
}

// --dsn, the transport that is called amqp, the first of its kind, or what
// Symfony's recipe puts into the environment.
static enum skr_code
find_url(const struct skr_config *config, const char *dsn, char **url,
         struct skr_error *error)
{
    const struct skr_config_transport *chosen = NULL;
    for (size_t i = 0; dsn == NULL && i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (skr_transport_is_amqp(transport) &&
            (chosen == NULL || strcmp(transport->name, "amqp") == 0))
            chosen = transport;
    }
    if (chosen != NULL)
        return skr_config_broker_url(chosen, url, error);
    if (dsn == NULL)
        dsn = getenv("MESSENGER_AMQP_DSN");
    if (dsn == NULL)
        return SKR_OK;
    *url = strdup(dsn);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

// A parameter beats the vhost in the path.
static enum skr_code
set_vhost(char **url, const char *vhost, struct skr_error *error)
{
    struct skr_text text = {0};
    if (vhost == NULL || *url == NULL)
        return SKR_OK;
    skr_text_add_string(&text, *url);
    skr_url_add_parameter(&text, "vhost", vhost);
    free(*url);
    *url = skr_text_take(&text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

const struct skr_broker_ops *
skr_site_driver(const char *url)
{
    char scheme[16] = "";
    size_t size = strcspn(url, ":");
    if (size < sizeof(scheme))
        memcpy(scheme, url, size);
    const struct skr_broker_ops *ops = skr_driver_find_broker(scheme);
    return ops == NULL || ops->declare == NULL ? NULL : ops;
}

// Of a URL that no driver here understands it is empty: the command that
// connects says so.
static enum skr_code
make_plan(struct skr_sites *sites, const char *text, struct skr_plan **plan,
          struct skr_error *error)
{
    struct skr_url url;
    const struct skr_broker_ops *ops =
        text == NULL ? NULL : skr_site_driver(text);
    *plan = &sites->plans[sites->plan_count++];
    **plan = (struct skr_plan){.server = "", .vhost = "/"};
    if (ops == NULL)
        return SKR_OK;
    enum skr_code code = skr_url_parse(text, &url, error);
    if (code != SKR_OK)
        return code;
    code = ops->plan(text, &url, *plan, error);
    skr_url_fini(&url);
    return code;
}

static enum skr_code
add_topology(struct skr_sites *sites, const struct skr_config *config,
             const char *dsn, const char *vhost, struct skr_error *error)
{
    struct skr_site *site = &sites->items[sites->count++];
    struct skr_plan *plan = NULL;
    enum skr_code code = find_url(config, dsn, &site->url, error);
    if (code == SKR_OK)
        code = set_vhost(&site->url, vhost, error);
    if (code == SKR_OK)
        code = make_plan(sites, site->url, &plan, error);
    if (code != SKR_OK)
        return code;
    site->server = plan->server;
    site->vhost = vhost == NULL ? plan->vhost : vhost;
    return skr_topology_read(config, &site->topology, error);
}

static struct skr_site *
find_site(const struct skr_sites *sites, const struct skr_plan *plan)
{
    for (size_t i = 0; i < sites->count; i++)
        if (strcmp(sites->items[i].server, plan->server) == 0 &&
            strcmp(sites->items[i].vhost, plan->vhost) == 0)
            return &sites->items[i];
    return NULL;
}

static enum skr_code
add_transport(struct skr_sites *sites,
              const struct skr_config_transport *transport, const char *dsn,
              const char *vhost, struct skr_error *error)
{
    char *url = NULL;
    struct skr_plan *plan = NULL;
    enum skr_code code = skr_config_broker_url(transport, &url, error);
    if (code == SKR_OK)
        code = set_vhost(&url, vhost, error);
    if (code == SKR_OK)
        code = make_plan(sites, url, &plan, error);
    if (code == SKR_OK && plan->count > 0) {
        struct skr_site *site =
            dsn == NULL ? find_site(sites, plan) : &sites->items[0];
        if (site == NULL) {
            site = &sites->items[sites->count++];
            *site = (struct skr_site){
                url, plan->server, plan->vhost, {{0}, NULL, 0}};
            url = NULL;
        }
        code = skr_topology_add(&site->topology, plan->declarations,
                                plan->count, error);
    }
    free(url);
    return code;
}

enum skr_code
skr_sites_find(const struct skr_config *config, const char *dsn,
               const char *vhost, struct skr_sites *sites,
               struct skr_error *error)
{
    size_t most = config->transport_count + 1, total = 0;
    *sites = (struct skr_sites){
        .items = calloc(most, sizeof(*sites->items)),
        .plans = calloc(most, sizeof(*sites->plans)),
    };
    if (sites->items == NULL || sites->plans == NULL)
        return skr_fail_memory(error);
    enum skr_code code = add_topology(sites, config, dsn, vhost, error);
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++)
        if (skr_transport_is_amqp(&config->transports[i]))
            code =
                add_transport(sites, &config->transports[i], dsn, vhost, error);
    for (size_t i = 0; i < sites->count; i++)
        total += sites->items[i].topology.count;
    if (code == SKR_OK && total == 0)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s has nothing to declare; write exchanges, queues "
                        "and bindings under message_broker_amqp.topology, or "
                        "`queues` into the options of an amqp:// transport",
                        config->path);
    return code;
}

void
skr_sites_fini(struct skr_sites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        skr_topology_fini(&sites->items[i].topology);
        free(sites->items[i].url);
    }
    for (size_t i = 0; i < sites->plan_count; i++)
        skr_arena_fini(&sites->plans[i].arena);
    free(sites->items);
    free(sites->plans);
    *sites = (struct skr_sites){0};
}
