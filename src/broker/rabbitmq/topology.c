// SPDX-License-Identifier: MIT
// What a transport has of its own on the server, as its DSN names it and by
// Symfony's conventions. Then: asking the server for it, and declaring what is
// missing.
//
// This process remembers what it has declared: a cluster of which a node hangs
// answers no declaration and no binding that it has to store, not even of what
// is there, for as long as it waits for that node.

#include "broker/rabbitmq/topology.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "broker/rabbitmq/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    // A delay queue lives so much longer than the messages in it.
    EXPIRES_AFTER_MS = 10000,
    TURN_MS = 100,
    // What a set-up did not mend is not mended by another right behind it.
    SET_UP_AGAIN_MS = 10000,
    // Beyond these the oldest is forgotten, which costs what it cost before.
    MOST_DECLARED = 1024,
};

#define RESERVED "amq."

static const char *const own_exchanges[] = {
    "amq.direct", "amq.fanout", "amq.headers",
    "amq.match",  "amq.topic",  "amq.rabbitmq.trace"};

enum skr_code
skr_rabbit_queue_add(struct rabbit_options *options, const char *name,
                     size_t size, struct rabbit_queue **queue,
                     struct skr_error *error)
{
    struct rabbit_topology *topology = &options->topology;
    for (size_t i = 0; i < topology->queue_count; i++) {
        *queue = &topology->queues[i];
        if (strlen((*queue)->name) == size &&
            memcmp((*queue)->name, name, size) == 0)
            return SKR_OK;
    }
    if (skr_text_starts_with(name, RESERVED))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "queues: names that begin with " RESERVED
                        " are RabbitMQ's own; choose another than %.*s",
                        size > 80 ? 80 : (int)size, name);
    if (size == 0 || size > UINT8_MAX)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "queues: a name of %zu bytes; from 1 to %d are "
                        "needed, as in {orders: ~} or [orders]",
                        size, UINT8_MAX);
    struct rabbit_queue *queues =
        skr_arena_grow(&options->arena, topology->queues, topology->queue_count,
                       &topology->queue_capacity, sizeof(*queues));
    const char *copy = skr_arena_text(&options->arena, name, size);
    if (queues == NULL || copy == NULL)
        return skr_fail_memory(error);
    topology->queues = queues;
    *queue = &queues[topology->queue_count++];
    **queue = (struct rabbit_queue){.name = copy};
    return SKR_OK;
}

enum skr_code
skr_rabbit_topology_complete(struct rabbit_options *options,
                             struct skr_error *error)
{
    struct rabbit_topology *topology = &options->topology;
    struct rabbit_queue *queue = NULL;
    if (topology->has_defaults && topology->exchange == NULL)
        topology->exchange = SKR_DEFAULT_EXCHANGE;
    if (topology->exchange != NULL &&
        skr_text_starts_with(topology->exchange, RESERVED) &&
        !skr_text_is_among(topology->exchange, own_exchanges,
                           SKR_COUNT_OF(own_exchanges)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "exchange: names that begin with " RESERVED
                        " are RabbitMQ's own; choose another than %.80s",
                        topology->exchange);
    topology->names_queues = topology->queue_count > 0;
    if (topology->names_queues)
        return SKR_OK;
    // As Symfony has it: a queue of the exchange's name.
    const char *name = topology->exchange;
    if (name == NULL || name[0] == '\0' || strlen(name) > UINT8_MAX ||
        skr_text_starts_with(name, RESERVED))
        name = SKR_DEFAULT_EXCHANGE;
    return skr_rabbit_queue_add(options, name, strlen(name), &queue, error);
}

// The default exchange is always there, and every queue bound to it.
static bool
has_exchange(const struct rabbit_topology *topology)
{
    return topology->exchange != NULL && topology->exchange[0] != '\0';
}

static bool
is_own_exchange(const struct rabbit_topology *topology, const char *exchange)
{
    return has_exchange(topology) && strcmp(topology->exchange, exchange) == 0;
}

// How many queues are the transport's own, in the DSN's words or by default; 0:
// it publishes to what others have made.
static size_t
own_queues(const struct rabbit_topology *topology)
{
    return topology->names_queues || topology->has_defaults
               ? topology->queue_count
               : 0;
}

static struct skr_amqp_declaration
exchange_of(const struct rabbit_topology *topology)
{
    return (struct skr_amqp_declaration){
        .object = SKR_AMQP_EXCHANGE,
        .name = topology->exchange,
        // Symfony's default.
        .type = topology->exchange_type == NULL ? "fanout"
                                                : topology->exchange_type,
        .type_is_default = topology->exchange_type == NULL,
        .durable = true,
        .arguments = topology->exchange_arguments.items,
        .argument_count = topology->exchange_arguments.count,
    };
}

static struct skr_amqp_declaration
queue_of(const struct rabbit_queue *queue)
{
    return (struct skr_amqp_declaration){
        .object = SKR_AMQP_QUEUE,
        .name = queue->name,
        .durable = !queue->is_transient,
        .arguments = queue->arguments.items,
        .argument_count = queue->arguments.count,
    };
}

static size_t
binding_count(const struct rabbit_topology *topology,
              const struct rabbit_queue *queue)
{
    if (!has_exchange(topology))
        return 0;
    return queue->key_count == 0 ? 1 : queue->key_count;
}

static struct skr_amqp_declaration
binding_of(const struct rabbit_topology *topology,
           const struct rabbit_queue *queue, size_t index)
{
    return (struct skr_amqp_declaration){
        .object = SKR_AMQP_BINDING,
        .exchange = topology->exchange,
        .queue = queue->name,
        .binding_key = queue->key_count == 0 ? "" : queue->binding_keys[index],
        .arguments = queue->binding_arguments.items,
        .argument_count = queue->binding_arguments.count,
    };
}

// Every length of delay has a queue of its own: two digits that count keep
// them few.
static uint32_t
round_up(uint32_t delay_ms)
{
    uint64_t step = 1;
    while (delay_ms / step >= 100)
        step *= 10;
    uint64_t rounded = (delay_ms + step - 1) / step * step;
    if (rounded > UINT32_MAX - EXPIRES_AFTER_MS)
        rounded = UINT32_MAX - EXPIRES_AFTER_MS;
    return rounded == 0 ? 1 : (uint32_t)rounded;
}

static enum skr_code
name_delay_queue(const struct rabbit_options *options, const char *queue,
                 uint32_t delay_ms, char to[RABBIT_DELAY_NAME_SIZE],
                 struct skr_error *error)
{
    const char *exchange = options->topology.exchange;
    char delay[16];
    size_t size = 0;
    snprintf(delay, sizeof(delay), "%u", (unsigned)delay_ms);
    const struct {
        const char *word, *value;
    } words[] = {
        {"%delay%", delay},
        {"%exchange_name%", exchange == NULL ? SKR_DEFAULT_EXCHANGE : exchange},
        {"%routing_key%", queue},
    };
    struct skr_text name = {0};
    for (const char *at = options->delay_queue_pattern; *at != '\0';
         at += size) {
        size_t i = 0;
        while (i < SKR_COUNT_OF(words) &&
               !skr_text_starts_with(at, words[i].word))
            i++;
        size = i < SKR_COUNT_OF(words) ? strlen(words[i].word) : 1;
        if (i < SKR_COUNT_OF(words))
            skr_text_add_string(&name, words[i].value);
        else
            skr_text_add(&name, at, 1);
    }
    skr_text_add_string(&name, "_retry");
    enum skr_code code = SKR_OK;
    if (name.broken)
        code = skr_fail_memory(error);
    else if (name.size < RABBIT_DELAY_NAME_SIZE)
        memcpy(to, name.bytes, name.size + 1);
    else
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the name of the delay queue is %zu bytes; at most %d "
                        "are carried",
                        name.size, RABBIT_DELAY_NAME_SIZE - 1);
    skr_text_fini(&name);
    return code;
}

enum skr_code
skr_rabbit_delay_queue(const struct rabbit_options *options, const char *queue,
                       uint32_t delay_ms, struct rabbit_delay_queue *delay,
                       struct skr_error *error)
{
    uint32_t rounded_ms = round_up(delay_ms);
    const struct rabbit_arguments *more = &options->delay_arguments;
    const struct skr_amqp_argument own[] = {
        {"x-message-ttl", SKR_AMQP_NUMBER, NULL, rounded_ms},
        {"x-expires", SKR_AMQP_NUMBER, NULL,
         (int64_t)rounded_ms + EXPIRES_AFTER_MS},
        {"x-dead-letter-exchange", SKR_AMQP_TEXT, "", 0},
        {"x-dead-letter-routing-key", SKR_AMQP_TEXT, queue, 0},
    };
    enum skr_code code =
        name_delay_queue(options, queue, rounded_ms, delay->name, error);
    if (code != SKR_OK)
        return code;
    size_t count = SKR_COUNT_OF(own);
    memcpy(delay->arguments, own, sizeof(own));
    for (size_t i = 0; i < more->count && count < RABBIT_DELAY_ARGUMENTS; i++)
        delay->arguments[count++] = more->items[i];
    delay->exchange =
        (struct skr_amqp_declaration){.object = SKR_AMQP_EXCHANGE,
                                      .name = options->delay_exchange,
                                      .type = "direct",
                                      .durable = true};
    delay->queue = (struct skr_amqp_declaration){.object = SKR_AMQP_QUEUE,
                                                 .name = delay->name,
                                                 .durable = true,
                                                 .arguments = delay->arguments,
                                                 .argument_count = count};
    delay->binding =
        (struct skr_amqp_declaration){.object = SKR_AMQP_BINDING,
                                      .exchange = options->delay_exchange,
                                      .queue = delay->name,
                                      .binding_key = delay->name};
    return SKR_OK;
}

static enum skr_code
plan_objects(struct rabbit_options *options, struct skr_plan *plan,
             struct skr_error *error)
{
    const struct rabbit_topology *topology = &options->topology;
    size_t queue_count = own_queues(topology);
    size_t most = 1 + queue_count;
    for (size_t i = 0; i < queue_count; i++)
        most += binding_count(topology, &topology->queues[i]);
    struct skr_amqp_declaration *declarations =
        skr_arena_take(&options->arena, most * sizeof(*declarations));
    if (declarations == NULL)
        return skr_fail_memory(error);
    plan->declarations = declarations;
    // One without a type and without queues is another's to declare.
    if (has_exchange(topology) &&
        (topology->exchange_type != NULL || queue_count > 0))
        declarations[plan->count++] = exchange_of(topology);
    for (size_t i = 0; i < queue_count; i++)
        declarations[plan->count++] = queue_of(&topology->queues[i]);
    for (size_t i = 0; i < queue_count; i++) {
        const struct rabbit_queue *queue = &topology->queues[i];
        for (size_t k = 0; k < binding_count(topology, queue); k++)
            declarations[plan->count++] = binding_of(topology, queue, k);
    }
    return SKR_OK;
}

static enum skr_code
plan_place(struct rabbit_options *options, struct skr_plan *plan,
           struct skr_error *error)
{
    const struct skr_amqp_options *connection = &options->connection;
    plan->vhost = connection->vhost;
    plan->server = "";
    for (const char *list = connection->hosts;
         list != NULL && plan->server != NULL;) {
        struct skr_host host;
        bool is_first = list == connection->hosts;
        list = skr_host_next(list, &host);
        if (host.port[0] == '\0')
            snprintf(host.port, sizeof(host.port), "%u", connection->port);
        plan->server =
            skr_arena_format(&options->arena, "%s%s%s:%s", plan->server,
                             is_first ? "" : ",", host.name, host.port);
    }
    return plan->server == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
plan_all(const char *text, const struct skr_url *url, struct skr_plan *plan,
         struct skr_error *error)
{
    const struct skr_log silent = {.write = NULL};
    struct rabbit_options options;
    *plan = (struct skr_plan){0};
    enum skr_code code =
        skr_rabbit_options_read(text, url, false, &silent, &options, error);
    if (code == SKR_OK)
        code = plan_place(&options, plan, error);
    if (code == SKR_OK)
        code = plan_objects(&options, plan, error);
    plan->arena = options.arena;
    return code;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct skr_hash declared[MOST_DECLARED];  // a ring
static size_t declared_count;

static struct skr_hash
add_text(struct skr_hash hash, const char *text)
{
    return skr_hash_add_text(hash, text == NULL ? "" : text);
}

static struct skr_hash
print_of(const struct rabbit_broker *broker,
         const struct skr_amqp_declaration *declaration)
{
    const struct skr_amqp_options *server = &broker->options.connection;
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), server->hosts);
    hash = skr_hash_add(hash, &server->port, sizeof(server->port));
    hash = add_text(hash, server->vhost);
    hash =
        skr_hash_add(hash, &declaration->object, sizeof(declaration->object));
    hash =
        skr_hash_add(hash, &declaration->durable, sizeof(declaration->durable));
    const char *const texts[] = {declaration->name, declaration->type,
                                 declaration->exchange, declaration->queue,
                                 declaration->binding_key};
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++)
        hash = add_text(hash, texts[i]);
    for (size_t i = 0; i < declaration->argument_count; i++) {
        const struct skr_amqp_argument *argument = &declaration->arguments[i];
        hash = add_text(hash, argument->name);
        hash = skr_hash_add(hash, &argument->kind, sizeof(argument->kind));
        hash = add_text(hash, argument->text);
        hash = skr_hash_add(hash, &argument->number, sizeof(argument->number));
    }
    return hash;
}

static bool
is_declared(struct skr_hash print)
{
    for (size_t i = 0; i < declared_count && i < MOST_DECLARED; i++)
        if (declared[i].high == print.high && declared[i].low == print.low)
            return true;
    return false;
}

static void
note_declared(const struct rabbit_broker *broker,
              const struct skr_amqp_declaration *declaration)
{
    struct skr_hash print = print_of(broker, declaration);
    pthread_mutex_lock(&lock);
    if (!is_declared(print))
        declared[declared_count++ % MOST_DECLARED] = print;
    pthread_mutex_unlock(&lock);
}

static bool
was_declared(const struct rabbit_broker *broker,
             const struct skr_amqp_declaration *declaration)
{
    struct skr_hash print = print_of(broker, declaration);
    pthread_mutex_lock(&lock);
    bool found = is_declared(print);
    pthread_mutex_unlock(&lock);
    return found;
}

static void
log_undeclared(const struct rabbit_broker *broker,
               const struct skr_error *reason)
{
    skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
            SKR_LOG_TEXT("reason", reason->text));
}

enum skr_code
skr_rabbit_topology_on_frame(struct rabbit_broker *broker,
                             const struct skr_amqp_frame *frame,
                             struct skr_error *error)
{
    struct rabbit_setup *setup = &broker->setup;
    struct skr_error reason = {0};
    bool is_binding = frame->channel == RABBIT_BINDING;
    enum skr_code code = SKR_OK;
    // A channel that was closed is opened again when it is needed.
    if (frame->kind == SKR_AMQP_CHANNEL_CLOSE) {
        code = skr_amqp_accept_close(&broker->amqp, frame, &reason, error);
        if (code == SKR_OK && is_binding) {
            setup->is_binding_open = false;
            log_undeclared(broker, &reason);
        } else if (code == SKR_OK) {
            setup->is_open = false;
            setup->answer = RABBIT_NO;
            setup->refusal = reason;
        }
        return code;
    }
    if (is_binding)
        return SKR_OK;
    setup->answer = RABBIT_YES;
    if (frame->kind == SKR_AMQP_QUEUE_DECLARE_OK) {
        setup->messages = frame->queue.messages;
        setup->consumers = frame->queue.consumers;
    }
    return SKR_OK;
}

// sent is what became of the question; if it was sent, this waits for the
// answer.
static enum skr_code
await_answer(struct rabbit_broker *broker, enum skr_code sent,
             struct skr_error *error)
{
    int64_t start_ms = skr_clock_ms();
    if (sent != SKR_OK)
        return sent;
    broker->setup.answer = RABBIT_NONE;
    while (broker->setup.answer == RABBIT_NONE) {
        enum skr_code code = skr_rabbit_turn(broker, TURN_MS, error);
        if (code == SKR_OK && broker->setup.answer == RABBIT_NONE)
            code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK && broker->setup.answer == RABBIT_NONE)
            code = skr_rabbit_check_silence(broker, start_ms, error);
        if (code != SKR_OK)
            return code;
    }
    if (broker->setup.answer == RABBIT_YES)
        return SKR_OK;
    return skr_fail_with(error, &broker->setup.refusal);
}

static enum skr_code
open_channel(struct rabbit_broker *broker, struct skr_error *error)
{
    if (broker->setup.is_open)
        return SKR_OK;
    enum skr_code code =
        skr_amqp_channel_open(&broker->amqp, RABBIT_DECLARING, false, error);
    code = await_answer(broker, code, error);
    broker->setup.is_open = code == SKR_OK;
    return code;
}

// SKR_MISSING: it is not there. error is written to in any case.
static enum skr_code
look_for(struct rabbit_broker *broker, enum skr_amqp_object object,
         const char *name, struct skr_error *error)
{
    enum skr_code code = open_channel(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_look_for(&broker->amqp, RABBIT_DECLARING, object, name,
                                 error);
    code = await_answer(broker, code, error);
    if (code == SKR_OK)
        skr_error_clear(error);
    return code;
}

// Deletes the exchange unless something is bound to it; it stays if that fails.
static void
take_back_exchange(struct rabbit_broker *broker)
{
    struct skr_error ignored = {0};
    enum skr_code code = open_channel(broker, &ignored);
    if (code == SKR_OK)
        code =
            skr_amqp_delete_unused(&broker->amqp, RABBIT_DECLARING,
                                   broker->options.topology.exchange, &ignored);
    code = await_answer(broker, code, &ignored);
    if (code != SKR_OK)
        log_undeclared(broker, &ignored);
}

// A binding of which no answer is waited for: a cluster of which a node hangs
// gives none. A refusal is logged.
static enum skr_code
bind_aside(struct rabbit_broker *broker,
           const struct skr_amqp_declaration *binding, struct skr_error *error)
{
    struct skr_amqp *amqp = &broker->amqp;
    enum skr_code code = SKR_OK;
    if (!broker->setup.is_binding_open)
        code = skr_amqp_channel_open(amqp, RABBIT_BINDING, false, error);
    broker->setup.is_binding_open = code == SKR_OK;
    return code == SKR_OK
               ? skr_amqp_declare(amqp, RABBIT_BINDING, binding, error)
               : code;
}

// The server tells where access was refused, and not to what; and how an object
// differs, not what to do.
static void
name_cure(const struct rabbit_broker *broker,
          const struct skr_amqp_declaration *declaration,
          struct skr_error *error)
{
    if (error != NULL && strcmp(error->native, "406") == 0)
        skr_error_advise(error,
                         "correct the configuration, or delete it there");
    if (error != NULL && strstr(error->text, "reserved prefix") != NULL)
        skr_error_advise(error, "choose another name");
    else if (error != NULL && strcmp(error->native, "403") == 0)
        skr_error_prefix(error, "user %.40s needs the permission to %s",
                         broker->options.connection.user,
                         declaration->object == SKR_AMQP_BINDING
                             ? "read the exchange and to write the queue"
                             : "configure it");
}

static enum skr_code
declare(struct skr_broker *base, const struct skr_amqp_declaration *declaration,
        struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    enum skr_code code = open_channel(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_declare(&broker->amqp, RABBIT_DECLARING, declaration,
                                error);
    code = await_answer(broker, code, error);
    if (code == SKR_REFUSED)
        name_cure(broker, declaration, error);
    return code;
}

enum skr_code
skr_rabbit_fail_queue(const struct rabbit_broker *broker, const char *queue,
                      const char *right, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    const char *peer = broker->amqp.stream.peer;
    const struct skr_error said = *error;
    bool is_exclusive = strstr(said.text, "exclusive") != NULL;
    // In another way of the connection's, it keeps its own words.
    if (said.native[0] == '\0')
        return said.code;
    if (strcmp(said.native, "404") == 0)
        skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                 "RabbitMQ at %.60s: queue %.80s is not in vhost %.40s; %s",
                 peer, queue, broker->options.connection.vhost,
                 own_queues(topology) > 0
                     ? "declare it with `skirnir setup-amqp`, or correct "
                       "`queues`"
                     : "name those to consume from in `queues`, and declare "
                       "them with `skirnir setup-amqp`");
    else if (strcmp(said.native, "405") == 0 || is_exclusive)
        skr_fail(error, SKR_REFUSED, SKR_RECONNECT,
                 "queue %.80s in vhost %.40s is in exclusive use by another "
                 "connection; end that one, or do not make it exclusive",
                 queue, broker->options.connection.vhost);
    else if (strcmp(said.native, "403") == 0)
        skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                 "RabbitMQ at %.60s: queue %.60s in vhost %.40s: access is "
                 "refused to user %.40s; see `rabbitmqctl set_permissions` "
                 "(%s needs %s)",
                 peer, queue, broker->options.connection.vhost,
                 broker->options.connection.user,
                 strcmp(right, "read") == 0 ? "consuming" : "making it", right);
    else
        skr_error_prefix(error, "queue %.80s in vhost %.40s", queue,
                         broker->options.connection.vhost);
    skr_error_set_native(error, "%s", said.native);
    return error->code;
}

enum skr_code
skr_rabbit_fail_exchange(const struct rabbit_broker *broker,
                         const char *exchange, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    const struct skr_error said = *error;
    bool is_own = is_own_exchange(topology, exchange);
    if (strcmp(said.native, "404") != 0)
        return said.code;
    // What kept it from being made says more.
    if (is_own && broker->setup.trouble.code != SKR_OK) {
        *error = broker->setup.trouble;
        error->code = said.code;
        return said.code;
    }
    skr_fail(error, said.code, said.remedy,
             "RabbitMQ at %.60s has no exchange '%.80s' in vhost '%.40s'; %s",
             broker->amqp.stream.peer, exchange,
             broker->options.connection.vhost,
             is_own ? "declare it and its queue with `skirnir setup-amqp`"
                    : "name it, and a queue that is bound to it, under "
                      "message_broker_amqp.topology, and run `skirnir "
                      "setup-amqp`");
    skr_error_set_native(error, "%s", said.native);
    return said.code;
}

static enum skr_code
prefix_exchange(const struct rabbit_broker *broker, enum skr_code code,
                struct skr_error *error)
{
    if (code != SKR_OK)
        skr_error_prefix(error,
                         "RabbitMQ at %.60s: exchange %.80s in vhost "
                         "%.40s",
                         broker->amqp.stream.peer,
                         broker->options.topology.exchange,
                         broker->options.connection.vhost);
    return code;
}

static enum skr_code
find_exchange(struct rabbit_broker *broker, bool *is_missing,
              struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    *is_missing = false;
    if (!has_exchange(topology))
        return SKR_OK;
    enum skr_code code =
        look_for(broker, SKR_AMQP_EXCHANGE, topology->exchange, error);
    *is_missing = code == SKR_MISSING;
    return *is_missing ? SKR_OK : prefix_exchange(broker, code, error);
}

static enum skr_code
declare_exchange(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct skr_amqp_declaration declaration =
        exchange_of(&broker->options.topology);
    return prefix_exchange(broker, declare(&broker->base, &declaration, error),
                           error);
}

// A server cannot be asked for a binding: that it is there is known of those
// that this process has made, of a queue and an exchange that were not new.
// These are made again, should one have taken them away, and not waited for.
static enum skr_code
bind(struct rabbit_broker *broker, const struct rabbit_queue *queue,
     size_t index, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    const struct skr_amqp_declaration declaration =
        binding_of(topology, queue, index);
    bool waits =
        broker->setup.is_unbound || !was_declared(broker, &declaration);
    enum skr_code code = waits ? declare(&broker->base, &declaration, error)
                               : bind_aside(broker, &declaration, error);
    if (code == SKR_OK)
        note_declared(broker, &declaration);
    else
        skr_error_prefix(error,
                         "RabbitMQ at %.60s: binding %.60s to %.60s in vhost "
                         "%.40s",
                         broker->amqp.stream.peer, queue->name,
                         topology->exchange, broker->options.connection.vhost);
    return code;
}

enum skr_code
skr_rabbit_queue_make(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue, struct skr_error *error)
{
    const struct skr_amqp_declaration declaration = queue_of(queue);
    const char *right = "read";
    enum skr_code code = look_for(broker, SKR_AMQP_QUEUE, queue->name, error);
    if (code == SKR_MISSING && broker->options.auto_setup) {
        code = declare(&broker->base, &declaration, error);
        right = "configure";
        broker->setup.is_unbound = true;
    }
    if (code != SKR_OK)
        return skr_rabbit_fail_queue(broker, queue->name, right, error);
    return SKR_OK;
}

enum skr_code
skr_rabbit_queue_bind(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    enum skr_code code = SKR_OK;
    size_t count =
        broker->options.auto_setup ? binding_count(topology, queue) : 0;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = bind(broker, queue, i, error);
    return code;
}

// An exchange that is there is left as it is: its type may be another's choice.
static enum skr_code
make_exchange(struct rabbit_broker *broker, bool *is_new,
              struct skr_error *error)
{
    *is_new = false;
    if (!broker->options.auto_setup)
        return SKR_OK;
    enum skr_code code = find_exchange(broker, is_new, error);
    broker->setup.is_unbound |= *is_new;
    return code == SKR_OK && *is_new ? declare_exchange(broker, error) : code;
}

enum skr_code
skr_rabbit_consuming_bind(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    bool is_new = false;
    enum skr_code code = make_exchange(broker, &is_new, error);
    bool is_made = is_new && code == SKR_OK;
    for (size_t i = 0; i < topology->queue_count && code == SKR_OK; i++)
        if (broker->consumer.subscriptions[i].state != RABBIT_MISSING)
            code = skr_rabbit_queue_bind(broker, &topology->queues[i], error);
    if (code != SKR_REFUSED)
        return code;
    log_undeclared(broker, error);
    if (is_made)
        take_back_exchange(broker);
    return SKR_OK;
}

// One whose type the DSN gives has to be of that type, which is asked once in
// the life of a process.
static enum skr_code
check_type(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    const struct skr_amqp_declaration declaration = exchange_of(topology);
    if (topology->exchange_type == NULL || was_declared(broker, &declaration))
        return SKR_OK;
    enum skr_code code = declare_exchange(broker, error);
    if (code == SKR_OK)
        note_declared(broker, &declaration);
    return code;
}

// Exchange and bindings, once the queues are there. An exchange that nothing
// could be bound to is taken back: without it messages wait, with it they find
// no queue.
static enum skr_code
make_routes(struct rabbit_broker *broker, bool is_missing, size_t queues,
            struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    enum skr_code code = SKR_OK;
    if (!has_exchange(topology))
        return SKR_OK;
    if (!is_missing)
        code = check_type(broker, error);
    else if (queues > 0 || topology->exchange_type != NULL)
        code = declare_exchange(broker, error);
    if (code != SKR_OK)
        return code;
    for (size_t i = 0; i < queues && code == SKR_OK; i++)
        code = skr_rabbit_queue_bind(broker, &topology->queues[i], error);
    if (code == SKR_REFUSED && is_missing)
        take_back_exchange(broker);
    return code;
}

// A default queue comes with its exchange. Beside one that is there, it is
// bound if it is there too, or was before, and else left out: others are bound,
// and messages without a consumer would pile up.
static bool
is_left_out(const struct rabbit_broker *broker, bool is_missing)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    if (is_missing || topology->names_queues || !topology->has_defaults ||
        !has_exchange(topology))
        return false;
    const struct skr_amqp_declaration binding =
        binding_of(topology, &topology->queues[0], 0);
    return !was_declared(broker, &binding);
}

static enum skr_code
make_queues(struct rabbit_broker *broker, bool is_missing, size_t *queues,
            struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    enum skr_code code = SKR_OK;
    *queues = own_queues(topology);
    if (is_left_out(broker, is_missing)) {
        code =
            look_for(broker, SKR_AMQP_QUEUE, topology->queues[0].name, error);
        *queues = code == SKR_OK;
        return code == SKR_MISSING ? SKR_OK : code;
    }
    for (size_t i = 0; i < *queues && code == SKR_OK; i++)
        code = skr_rabbit_queue_make(broker, &topology->queues[i], error);
    return code;
}

static enum skr_code
set_up(struct rabbit_broker *broker, struct skr_error *error)
{
    bool is_missing = false;
    size_t queues = 0;
    enum skr_code code = find_exchange(broker, &is_missing, error);
    broker->setup.is_unbound |= is_missing;
    if (code == SKR_OK)
        code = make_queues(broker, is_missing, &queues, error);
    if (code == SKR_OK)
        code = make_routes(broker, is_missing, queues, error);
    return code;
}

enum skr_code
skr_rabbit_publishing_set_up(struct rabbit_broker *broker,
                             struct skr_error *error)
{
    struct skr_error *trouble = &broker->setup.trouble;
    struct skr_error said = {0};
    if (!broker->options.auto_setup)
        return SKR_OK;
    enum skr_code code = set_up(broker, &said);
    if (code == SKR_REFUSED && strcmp(said.native, "406") != 0) {
        if (strcmp(said.text, trouble->text) != 0)
            log_undeclared(broker, &said);
        *trouble = said;
        broker->setup.done_ms = skr_clock_ms();
        return SKR_OK;
    }
    skr_error_clear(trouble);
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &said);
}

bool
skr_rabbit_may_set_up_again(struct rabbit_broker *broker, const char *exchange,
                            int64_t sent_ms)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    if (!broker->options.auto_setup || !is_own_exchange(topology, exchange) ||
        own_queues(topology) == 0)
        return false;
    if (broker->setup.is_due || sent_ms <= broker->setup.done_ms)
        return true;
    broker->setup.is_due =
        broker->setup.done_ms == 0 ||
        skr_clock_ms() - broker->setup.done_ms >= SET_UP_AGAIN_MS;
    return broker->setup.is_due;
}

void
skr_rabbit_set_up_again(struct rabbit_broker *broker)
{
    struct skr_error trouble = {0};
    broker->setup.is_unbound = true;
    enum skr_code code = skr_rabbit_publishing_set_up(broker, &trouble);
    if (code != SKR_OK && trouble.remedy == SKR_RECONNECT &&
        broker->failure.code == SKR_OK)
        broker->failure = trouble;
    if (code != SKR_OK && code != SKR_STOPPED)
        log_undeclared(broker, &trouble);
    broker->setup.is_due = false;
    broker->setup.done_ms = skr_clock_ms();
}

enum skr_code
skr_rabbit_depth(struct skr_broker *base, struct skr_depth *depth,
                 struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    const struct rabbit_topology *topology = &broker->options.topology;
    struct skr_error trouble = {0};
    enum skr_code code = SKR_OK;
    *depth = (struct skr_depth){
        .has_messages = true, .are_due = true, .has_consumers = true};
    for (size_t i = 0; i < topology->queue_count && code == SKR_OK; i++) {
        const char *name = topology->queues[i].name;
        code = look_for(broker, SKR_AMQP_QUEUE, name, &trouble);
        // One that only convention names is not missed: the transport may be
        // there to publish to exchanges.
        if (code == SKR_MISSING && !topology->names_queues) {
            *depth = (struct skr_depth){.has_messages = false};
            return SKR_OK;
        }
        if (code != SKR_OK)
            code = skr_rabbit_fail_queue(broker, name, "read", &trouble);
        depth->messages += broker->setup.messages;
        depth->consumers += broker->setup.consumers;
    }
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &trouble);
}

const struct skr_topology_ops skr_rabbit_topology = {
    .plan = plan_all,
    .declare = declare,
};
