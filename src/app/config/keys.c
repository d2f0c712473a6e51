// SPDX-License-Identifier: MIT
// The table of keys itself, which parser, `config keys`, `config show` and the
// checks of the documentation all read; and what a name in a file means by it,
// or may have meant where it means nothing.

#include "app/config/keys.h"
#include "app/config/config.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define IN_CONFIG(member) \
    .scope = SKR_SCOPE_CONFIG, .offset = offsetof(struct skr_config, member)
#define IN_TRANSPORT(member)      \
    .scope = SKR_SCOPE_TRANSPORT, \
    .offset = offsetof(struct skr_config_transport, member)
#define IN_HANDLER(member)      \
    .scope = SKR_SCOPE_HANDLER, \
    .offset = offsetof(struct skr_config_handler, member)
#define DEFAULT(value) .fallback = (value)
#define RANGE(from, to) .least = (from), .most = (to)

#define KEY(name, kind, text, ...)                                           \
    {                                                                        \
        .path = (name), .type = SKR_TYPE_##kind, .help = (text), __VA_ARGS__ \
    }
#define PLAIN(name, kind, text)                                 \
    {                                                           \
        .path = (name), .type = SKR_TYPE_##kind, .help = (text) \
    }
#define IGNORED(name, text) PLAIN(name, IGNORED, text)

// In the order of the manual: a key stands after the one that it is below,
// and a pattern after its siblings.
static const struct skr_config_key keys[] = {
    KEY("databases", NAMES,
        "The databases, by names that transports use. Without this section "
        "there is one, `default`, at the DSN in the environment variable "
        "DATABASE_URL.",
        .scope = SKR_SCOPE_DATABASE),
    KEY("databases.*", DSN,
        "`sqlite:///shop.db` (beside this file), "
        "`sqlite:////var/lib/shop.db` "
        "(absolute), `mysql://user:password@host:3306/shop`, "
        "`pgsql://user:password@host:5432/shop`.",
        .scope = SKR_SCOPE_DATABASE,
        .offset = offsetof(struct skr_config_database, url)),

    KEY("transports", NAMES,
        "Where messages wait and travel, by names of your choice.",
        .scope = SKR_SCOPE_TRANSPORT),
    PLAIN("transports.*", TRANSPORT,
          "One transport: a plain DSN, or a map of the keys below."),
    KEY("transports.*.dsn", DSN,
        "`doctrine://DATABASE?...` is an outbox or the failed messages, "
        "`queue://DATABASE?...` a table used as a broker. The parameters are "
        "the keys of `options`, and win over them.",
        IN_TRANSPORT(dsn), .required = true),
    KEY("transports.*.serializer", TEXT,
        "Symfony's name of the serializer of the rows. Where Symfony works on "
        "the same table, set `messenger.transport.symfony_serializer` here and "
        "there: rows in PHP's own format are left alone.",
        IN_TRANSPORT(serializer), .null = SKR_NULL_ABSENT),
    PLAIN("transports.*.options", MAP,
          "What a DSN can also say in its parameters."),
    KEY("transports.*.options.table_name", TABLE, "The table.",
        DEFAULT("messenger_messages"), IN_TRANSPORT(place.table),
        .table_only = true),
    KEY("transports.*.options.queue_name", TEXT,
        "The queue in the table; several may share one.", DEFAULT("default"),
        IN_TRANSPORT(place.queue), .table_only = true),
    KEY("transports.*.options.redeliver_timeout", NUMBER,
        "Seconds after which a message whose consumer fell silent goes to "
        "another: from 3 to 604800, a week.",
        DEFAULT("3600"), IN_TRANSPORT(place.redeliver_timeout_s),
        RANGE(3, 604800), .for_queue = "60", .table_only = true),
    KEY("transports.*.options.auto_setup", BOOLEAN,
        "Whether the table is made on first use when it is missing.",
        DEFAULT("true"), IN_TRANSPORT(auto_setup)),
    KEY("transports.*.options.time_zone", TEXT,
        "The same as `time_zone` of the transport; only one of the two may be "
        "given.",
        .same_as = "transports.*.time_zone", .table_only = true),
    KEY("transports.*.options.use_notify", IGNORED,
        "Symfony's on PostgreSQL; ignored with a warning. `setup --notify` "
        "lets inserts wake a relay.",
        .table_only = true),
    KEY("transports.*.options.check_delayed_interval", IGNORED,
        "Symfony's on PostgreSQL; ignored with a warning.", .table_only = true),
    KEY("transports.*.options.get_notify_timeout", IGNORED,
        "Symfony's on PostgreSQL; ignored with a warning.", .table_only = true),
    KEY("transports.*.options.queue", MAP,
        "The queue, in the way of `amqp://`: so that a project can change "
        "from one to the other by its DSN alone.",
        .table_only = true, .unoffered = true),
    KEY("transports.*.options.queue.name", TEXT,
        "The same as `queue_name`; only one of the two may be given.",
        .same_as = "transports.*.options.queue_name"),
    KEY("transports.*.options.*", ANYTHING,
        "Options of a scheme that has a driver of its own: parameters of its "
        "DSN, written as a map. `exchange: {name: orders, type: topic}` of "
        "`amqp://` is the exchange of all messages that no route sends "
        "elsewhere, made on first use with its queues where `auto_setup` "
        "allows; its `default_publish_routing_key` is theirs.",
        .other_only = true),
    PLAIN("transports.*.retry_strategy", MAP,
          "How often and when a message that was refused is tried again."),
    KEY("transports.*.retry_strategy.max_retries", NUMBER,
        "After so many retries it goes to `failure_transport`.", DEFAULT("3"),
        IN_TRANSPORT(retry.max_retries), RANGE(0, 1000000)),
    KEY("transports.*.retry_strategy.delay", NUMBER,
        "Milliseconds before the first retry. Tables keep whole seconds: there "
        "a retry comes up to a second after its time.",
        DEFAULT("1000"), IN_TRANSPORT(retry.delay_ms), RANGE(0, UINT32_MAX)),
    KEY("transports.*.retry_strategy.multiplier", DECIMAL,
        "Each delay is the one before times this.", DEFAULT("2"),
        IN_TRANSPORT(retry.multiplier), RANGE(1, 1000)),
    KEY("transports.*.retry_strategy.max_delay", NUMBER,
        "Milliseconds that no delay exceeds; 0 is a day.", DEFAULT("0"),
        IN_TRANSPORT(retry.max_delay_ms), RANGE(0, UINT32_MAX)),
    KEY("transports.*.retry_strategy.jitter", DECIMAL,
        "Each delay is moved at random by up to this part of it, either way, "
        "so that what failed together does not come again together.",
        DEFAULT("0.1"), IN_TRANSPORT(retry.jitter), RANGE(0, 1)),
    IGNORED("transports.*.retry_strategy.service",
            "A PHP service; ignored with a warning."),
    KEY("transports.*.relay_to", REFERENCE,
        "The transport that an outbox is relayed to. Default: `amqp`, where "
        "there is a transport of that name.",
        IN_TRANSPORT(relay_to)),
    KEY("transports.*.forward_to", REFERENCE,
        "The `queue://` transport in the inbox's database into which a "
        "consumer puts each message once, instead of handling it: handlers "
        "work that queue. Not for outboxes.",
        IN_TRANSPORT(forward_to)),
    KEY("transports.*.stamp_namespace", TEXT,
        "PHP namespace of the stamp headers that carry id and partition key; "
        "null writes none. Default: `Freyr\\MessageBroker\\Inbox`.",
        IN_TRANSPORT(stamp_namespace), .null = SKR_NULL_EMPTY),
    KEY("transports.*.time_zone", TEXT,
        "In which zone other writers write the table's times: an offset such "
        "as `+02:00`, or a name such as `Europe/Berlin` that the server knows. "
        "Symfony 5.4 writes PHP's local zone.",
        DEFAULT("UTC"), IN_TRANSPORT(place.time_zone)),
    KEY("transports.*.in_flight", NUMBER,
        "Messages that a relay has sent and not yet deleted, at most: what a "
        "crash may send twice.",
        DEFAULT("1000"), IN_TRANSPORT(relay.in_flight), RANGE(1, 1000000)),
    KEY("transports.*.in_flight_bytes", SIZE,
        "The same in bytes. A larger message travels alone.", DEFAULT("8 MiB"),
        IN_TRANSPORT(relay.in_flight_bytes), RANGE(1, INT64_C(1) << 40)),
    KEY("transports.*.claim", CHOICE,
        "How a relay makes rows its own. `exclusive`: one relay works the "
        "queue, and others stand by. `shared`: several divide it into 60 "
        "shards, of which each leases some in the table skirnir_lease, for "
        "`redeliver_timeout`, at most 15 s; nothing is written for a message. "
        "Where sessions of the database hold locks, a relay that is gone is "
        "replaced within about a second. `lease`: several relays and Symfony's "
        "workers share it, each row marked in the table for "
        "`redeliver_timeout`. A relay marks rows before there is room to send "
        "them: one that is killed leaves up to one and a half times "
        "`in_flight` of them, which others take when `redeliver_timeout` is "
        "over. In an ordered outbox `lease` is `shared`.",
        DEFAULT("exclusive"), IN_TRANSPORT(relay.claim),
        .choices = "exclusive, shared or lease", .former = "locked",
        .read_as = "shared"),
    KEY("transports.*.unroutable", CHOICE,
        "What a relay does with a message that no queue of the broker takes: "
        "`fail` moves it to the failed table, `drop` is content, `wait` keeps "
        "it in the outbox until a queue is bound.",
        DEFAULT("fail"), IN_TRANSPORT(relay.unroutable),
        .choices = "fail, drop or wait", .first_choice = SKR_UNROUTABLE_FAIL),
    KEY("transports.*.failure_limit", NUMBER,
        "Of an outbox: messages of one route that may go to the failed table "
        "within a minute; then the route waits until it is over, so that one "
        "mistake does not move a whole backlog there. Of what is consumed: "
        "messages of one handler, without one that succeeds in between; then "
        "all messages of that handler wait, good ones too: in their queue, "
        "or, where they are too many to be held, as rows of "
        "`TRANSPORT.retry`. Each of several consumers counts for itself. What "
        "cannot be understood, and what no handler is for, is not bounded. 0 "
        "is no limit.",
        DEFAULT("100"), IN_TRANSPORT(failure_limit), RANGE(0, 1000000),
        .for_inbound = "0"),
    KEY("transports.*.on_success", CHOICE,
        "What becomes of an outbox's message that the broker has stored: "
        "`delete`, or `keep` as a row of the queue `QUEUE.sent`, which nobody "
        "reads.",
        DEFAULT("delete"), IN_TRANSPORT(relay.on_success),
        .choices = "delete or keep"),
    KEY("transports.*.on_failure", CHOICE,
        "What becomes of an ordered outbox's message that cannot be sent: "
        "`block` keeps it as the head of its partition, which waits until "
        "somebody runs `skirnir partition`; `skip` moves it to the failed "
        "table, and the partition goes on without it. `skip` is of "
        "ordered outboxes only.",
        DEFAULT("block"), IN_TRANSPORT(relay.on_failure),
        .choices = "block or skip"),
    KEY("transports.*.partition_header", TEXT,
        "The header in which messages of an ordered outbox carry their "
        "partition key to the broker: a name without blanks, control "
        "characters or colons. Without it the key stays in the table.",
        IN_TRANSPORT(relay.partition_header), .null = SKR_NULL_ABSENT),
    KEY("transports.*.commit_order", BOOLEAN,
        "Whether messages of an ordered outbox also wait for transactions that "
        "began to write before theirs and are still open, which may come "
        "before them. PostgreSQL only; `skirnir setup` adds the column "
        "`transaction_id`.",
        DEFAULT("false"), IN_TRANSPORT(relay.commit_order)),
    KEY("transports.*.batch", NUMBER,
        "Messages that a consumer handles in one transaction, at most.",
        DEFAULT("100"), IN_TRANSPORT(batch), RANGE(1, 10000)),
    KEY("transports.*.missing_id", CHOICE,
        "What a consumer does with a message that has no id: `fail` keeps it "
        "in the failed table, `handle` handles it whenever it comes, `derive` "
        "makes an id from its place in a queue table or a topic.",
        DEFAULT("fail"), IN_TRANSPORT(missing_id),
        .choices = "fail, handle or derive"),
    KEY("transports.*.unhandled", CHOICE,
        "What a consumer does with a message that no handler is for: `fail` "
        "keeps it in the failed table, `ignore` acknowledges and counts it, "
        "`wait` leaves it in the queue, or holds it, and looks for a handler "
        "again every 30 seconds and after a reload.",
        DEFAULT("fail"), IN_TRANSPORT(unhandled),
        .choices = "fail, ignore or wait"),
    PLAIN("transports.*.deduplication", MAP,
          "How messages that a consumer of this transport handled are "
          "remembered, apart from those of others."),
    KEY("transports.*.deduplication.table_name", TABLE,
        "The table, in the database of the inbox. Two consumers that may get "
        "the same message need a table each, or the second takes it for a "
        "duplicate. Default: `message_broker.inbox.deduplication.table_name`, "
        "which all transports share; with `forward_to` that name with "
        "`_forward` behind it. Where the file has handlers and itself "
        "shows that two `amqp://` transports, by which nothing in it "
        "publishes, get the same message (`queues` that bindings of one "
        "exchange overlap for), or two `kafka://` transports of different "
        "groups (one topic in both `topics`), sharing a table is a mistake.",
        IN_TRANSPORT(deduplication.table), .null = SKR_NULL_ABSENT),
    KEY("transports.*.deduplication.read_default", BOOLEAN,
        "Whether what stood in the shared table when this one was made counts "
        "as handled, until it is cleaned away: for a consumer that used the "
        "shared table before. A consumer that is new needs `false`: with "
        "`true` it acknowledges unhandled what others had recorded there.",
        DEFAULT("true"), IN_TRANSPORT(deduplication.reads_default)),
    IGNORED("transports.*.failure_transport",
            "One `failure_transport` serves all transports; ignored with a "
            "warning."),
    IGNORED("transports.*.rate_limiter",
            "A PHP service; ignored with a warning."),

    KEY("failure_transport", REFERENCE,
        "The transport that keeps messages that cannot be delivered. It "
        "stands in the database of the outbox, since a message moves there in "
        "one transaction. Without it they go to `messenger_messages`: those "
        "of an outbox in its own database, so that outboxes may be in "
        "several, those of consumers in the database where handlers run.",
        IN_CONFIG(failure_transport), .null = SKR_NULL_ABSENT),

    PLAIN("message_broker", MAP, "The consuming side."),
    PLAIN("message_broker.inbox", MAP, "How messages are received."),
    KEY("message_broker.inbox.message_types", NAMES,
        "What other programs call messages in their header `type`, a PHP class "
        "or any other word, by message name.",
        .scope = SKR_SCOPE_MESSAGE_TYPE),
    KEY("message_broker.inbox.message_types.*", TEXT,
        "`order.placed: 'App\\Message\\OrderPlaced'` or `order.placed: "
        "OrderPlaced`.",
        .scope = SKR_SCOPE_MESSAGE_TYPE,
        .offset = offsetof(struct skr_name_pair, class_name)),
    KEY("message_broker.inbox.database", REFERENCE,
        "The database that handlers run in and that remembers which messages "
        "were handled.",
        DEFAULT("default"), IN_CONFIG(inbox_database_name)),
    PLAIN("message_broker.inbox.deduplication", MAP,
          "How handled messages are remembered."),
    KEY("message_broker.inbox.deduplication.table_name", TABLE,
        "The table. Consumers with a table each handle each message once each.",
        DEFAULT("message_broker_deduplication"),
        IN_CONFIG(deduplication_table)),
    KEY("message_broker.inbox.deduplication.auto_setup", BOOLEAN,
        "Whether the table is made on first use when it is missing.",
        DEFAULT("false"), IN_CONFIG(deduplication_auto_setup)),
    KEY("message_broker.inbox.deduplication_table_name", TABLE,
        "The older place of `message_broker.inbox.deduplication.table_name`.",
        .same_as = "message_broker.inbox.deduplication.table_name"),

    KEY("handlers", NAMES,
        "What is done with a message, by its name: `order.placed`, a topic "
        "`orders`, a class `App\\Message\\OrderPlaced`, or a pattern in which "
        "`*` stands for any number of characters, `'order.*'`. A name goes "
        "before a pattern, a longer pattern before a shorter one, and `'*'`, "
        "the handler of all others, comes last.",
        .scope = SKR_SCOPE_HANDLER),
    PLAIN("handlers.*", MAP,
          "One handler: one of `sql`, `library` and `command`."),
    KEY("handlers.*.sql", SQL,
        "One statement, or a list of them, run in the transaction that "
        "remembers the message. Parameters: `:id`, the message's id as 16 "
        "bytes, `:id_text`, the same as text, `:name`, `:body`, `:headers`, "
        "one JSON object, and `:partition_key`.",
        IN_HANDLER(sql)),
    KEY("handlers.*.library", TEXT,
        "A shared object, such as `./shop.so`, whose `function` handles the "
        "message in that transaction.",
        IN_HANDLER(library)),
    KEY("handlers.*.function", TEXT, "The function in the `library`.",
        IN_HANDLER(function)),
    KEY("handlers.*.command", COMMAND,
        "A program and its arguments, such as `[php, worker.php]`: a process "
        "that is kept and asked line by line, as skirnir-handler(7) says. No "
        "shell is between. Its effects may happen more than once, unless it "
        "`deduplicates`.",
        IN_HANDLER(command)),
    KEY("handlers.*.env", VARIABLES,
        "Variables of the environment that a `command` needs although the "
        "configuration uses them too, such as `[DATABASE_URL]`. Those that "
        "`%env()%` names are withheld from commands otherwise.",
        IN_HANDLER(env)),
    KEY("handlers.*.timeout", NUMBER,
        "Seconds that a `command` has for a message before it is killed.",
        DEFAULT("30"), IN_HANDLER(timeout_s), RANGE(1, 86400)),
    KEY("handlers.*.deduplicates", CHOICE,
        "Whether a `command` records each message by itself, in the "
        "transaction of its effects, as skirnir-handler(7) says: `true` in the "
        "table of `message_broker.inbox`, where the record is looked for, "
        "`own` in a database of its own. What the command says itself counts.",
        DEFAULT("false"), IN_HANDLER(deduplicates),
        .choices = "false, true or own"),
    KEY("handlers.*.transaction", BOOLEAN,
        "Whether the function of a `library` runs in the transaction that "
        "remembers the message. With false it runs before it, and its effects "
        "may happen more than once.",
        DEFAULT("true"), IN_HANDLER(transaction)),

    PLAIN("message_broker_amqp", MAP,
          "RabbitMQ: checked and kept for its driver."),
    PLAIN("message_broker_amqp.routing", NAMES,
          "Where messages go, by message name; `*` stands for one word of it "
          "and `#` for any number. A name goes before a pattern."),
    PLAIN("message_broker_amqp.routing.*", MAP, "One route."),
    PLAIN("message_broker_amqp.routing.*.sender", TEXT,
          "The transport. Otherwise that of the outbox's `relay_to`."),
    PLAIN("message_broker_amqp.routing.*.exchange", TEXT,
          "The exchange. Otherwise the transport's `exchange.name`, or the "
          "first two words of the message name."),
    PLAIN("message_broker_amqp.routing.*.routing_key", TEXT,
          "The routing key. Otherwise the message name."),
    PLAIN("message_broker_amqp.routing.*.topic", TEXT,
          "The topic, where the transport is `kafka://`. Otherwise the "
          "transport's `topic`, or the message name."),
    PLAIN("message_broker_amqp.routing.*.key", TEXT,
          "The record's key there. Otherwise the partition key, or the id."),
    PLAIN("message_broker_amqp.routing.*.headers", ANYTHING,
          "Headers to add: a map of texts."),
    KEY("message_broker_amqp.routing.*.unroutable", CHOICE,
        "As `transports.*.unroutable`, for these messages alone.",
        .choices = "fail, drop or wait", .first_choice = SKR_UNROUTABLE_FAIL),
    PLAIN("message_broker_amqp.topology", MAP,
          "What is declared on the server."),
    PLAIN("message_broker_amqp.topology.exchanges", NAMES,
          "Exchanges, by name."),
    PLAIN("message_broker_amqp.topology.exchanges.*", MAP, "One exchange."),
    KEY("message_broker_amqp.topology.exchanges.*.type", TEXT,
        "`direct`, `fanout`, `topic` or `headers`.", .required = true),
    KEY("message_broker_amqp.topology.exchanges.*.durable", BOOLEAN,
        "Whether it outlives the server.", DEFAULT("true")),
    PLAIN("message_broker_amqp.topology.exchanges.*.arguments", ANYTHING,
          "The server's own arguments."),
    PLAIN("message_broker_amqp.topology.queues", NAMES, "Queues, by name."),
    PLAIN("message_broker_amqp.topology.queues.*", MAP, "One queue."),
    KEY("message_broker_amqp.topology.queues.*.durable", BOOLEAN,
        "Whether it outlives the server.", DEFAULT("true")),
    PLAIN("message_broker_amqp.topology.queues.*.arguments", ANYTHING,
          "The server's own arguments."),
    PLAIN("message_broker_amqp.topology.bindings", LIST,
          "Which queue takes what from which exchange."),
    PLAIN("message_broker_amqp.topology.bindings.*", MAP, "One binding."),
    KEY("message_broker_amqp.topology.bindings.*.exchange", TEXT,
        "The exchange.", .required = true),
    KEY("message_broker_amqp.topology.bindings.*.queue", TEXT, "The queue.",
        .required = true),
    PLAIN("message_broker_amqp.topology.bindings.*.binding_key", TEXT,
          "The pattern of routing keys."),
    PLAIN("message_broker_amqp.topology.bindings.*.arguments", ANYTHING,
          "The server's own arguments."),

    PLAIN("cleanup", MAP,
          "What relays and consumers remove by themselves, beside their work: "
          "what the commands `cleanup-outbox` and `deduplication-cleanup` "
          "remove, and "
          "failed messages."),
    KEY("cleanup.interval", NUMBER,
        "Seconds between two times that each does so, from 1 to 604800; 0 is "
        "never. Of several one at a time does it.",
        DEFAULT("0"), IN_CONFIG(cleanup.interval_s), RANGE(0, 604800)),
    KEY("cleanup.outbox_days", NUMBER,
        "Days that sent messages are kept where `on_success` is `keep`, from 0 "
        "to 36500.",
        DEFAULT("7"), IN_CONFIG(cleanup.outbox_days), RANGE(0, 36500)),
    KEY("cleanup.deduplication_days", NUMBER,
        "Days that the ids of handled messages are kept, from 0 to 36500: a "
        "message that comes again after that is handled again.",
        DEFAULT("30"), IN_CONFIG(cleanup.deduplication_days), RANGE(0, 36500)),
    KEY("cleanup.failed_days", NUMBER,
        "Days that failed messages are kept, up to 36500; then they are gone "
        "for good. 0 is for ever.",
        DEFAULT("0"), IN_CONFIG(cleanup.failed_days), RANGE(0, 36500)),

    PLAIN("metrics", MAP,
          "What `relay` and `consume` serve by HTTP: /metrics for Prometheus, "
          "/healthz and /readyz."),
    KEY("metrics.port", PORTS,
        "The port; 0 is none. Of a range such as 9187-9197 each process takes "
        "the first that is free, and says which. Where none is, it says so and "
        "works without. `--metrics-port` takes its place.",
        DEFAULT("0"), IN_CONFIG(metrics_ports)),
    KEY("metrics.address", TEXT,
        "The address on which it is served. There is no password: others than "
        "this host should not reach it.",
        DEFAULT("127.0.0.1"), IN_CONFIG(metrics_address)),

    PLAIN("framework", MAP, "A Symfony project's section, accepted as it is."),
    PLAIN("framework.messenger", MAP, "Symfony Messenger's configuration."),
    KEY("framework.messenger.transports", NAMES, "The same as `transports`.",
        .same_as = "transports"),
    KEY("framework.messenger.failure_transport", REFERENCE,
        "The same as `failure_transport`.", .same_as = "failure_transport"),
    PLAIN("framework.messenger.serializer", MAP, "Symfony's serializers."),
    KEY("framework.messenger.serializer.default_serializer", TEXT,
        "The `serializer` of transports that set none.",
        IN_CONFIG(default_serializer), .null = SKR_NULL_ABSENT),
    IGNORED("framework.messenger.serializer.symfony_serializer",
            "Ignored with a warning."),
    IGNORED("framework.messenger.buses", "Ignored with a warning."),
    IGNORED("framework.messenger.default_bus", "Ignored with a warning."),
    IGNORED("framework.messenger.default_middleware",
            "Ignored with a warning."),
    IGNORED("framework.messenger.routing",
            "Routing of PHP classes; ignored with a warning."),
    IGNORED("framework.messenger.enabled", "Ignored with a warning."),
    IGNORED("framework.messenger.reset_on_message", "Ignored with a warning."),
    IGNORED("framework.messenger.stop_worker_on_signals",
            "Ignored with a warning."),
    IGNORED("framework.*", "Ignored with a warning."),
    IGNORED("doctrine", "Ignored with a warning."),
    IGNORED("services", "Ignored with a warning."),
    IGNORED("parameters", "Ignored with a warning."),
    IGNORED("imports", "Ignored with a warning."),
    IGNORED(
        "when@*",
        "Sections for one of Symfony's environments; ignored with a warning."),
    KEY("x-*", IGNORED, "A place for YAML anchors; ignored.", .silent = true),

    // Options of drivers: parameters of a DSN. Those of brokers are keys of a
    // transport's options, too.
    PLAIN("amqp://?vhost", TEXT, "The virtual host, in place of the path's."),
    KEY("amqp://?connect_timeout", DECIMAL,
        "Seconds to try to connect to a server.", DEFAULT("10"),
        RANGE(0, 3600)),
    KEY("amqp://?confirm_timeout", DECIMAL,
        "Seconds that a server may take to answer before the connection counts "
        "as lost.",
        DEFAULT("25"), RANGE(0, 3600)),
    KEY("amqp://?heartbeat", DECIMAL,
        "Seconds; a side that is silent for twice as long is taken for dead. 0 "
        "is none.",
        DEFAULT("30"), RANGE(0, 3600)),
    PLAIN("amqp://?cacert", TEXT,
          "A file with the authority that signed the server's certificate, "
          "where the system does not trust it."),
    PLAIN("amqp://?cert", TEXT, "A file with the client's own certificate."),
    PLAIN("amqp://?key", TEXT, "A file with its key."),
    KEY("amqp://?verify", BOOLEAN,
        "Whether the server has to prove that it is the host in the DSN.",
        DEFAULT("true")),
    KEY("amqp://?connection_name", TEXT, "What the server shows.",
        DEFAULT("skirnir")),
    PLAIN("amqp://?exchange", ANYTHING,
          "A map: `name`, `type`, `arguments`, `default_publish_routing_key`."),
    PLAIN("amqp://?queues", ANYTHING,
          "The queues: names, or a map of them to `binding_keys`, `arguments`, "
          "`binding_arguments` and `flags`."),
    PLAIN("amqp://?queue", ANYTHING, "One queue, by `name`."),
    KEY("amqp://?prefetch_count", NUMBER,
        "Messages that the server hands out ahead. Default: twice `batch`, and "
        "at least 20.",
        RANGE(1, 65535)),
    KEY("amqp://?prefetch_bytes", NUMBER,
        "Bytes of such messages that are held in memory.", DEFAULT("16777216"),
        RANGE(1, INT64_C(1) << 40)),
    KEY("amqp://?hold_timeout", DECIMAL,
        "Seconds that a message may wait here for its handler.", DEFAULT("300"),
        RANGE(0, 3600)),
    KEY("amqp://?retry_via", CHOICE,
        "Where a message waits that is to be tried again: `row` or "
        "`delay_queue`.",
        DEFAULT("row"), .choices = "row or delay_queue"),
    PLAIN("amqp://?delay", ANYTHING,
          "A map: `exchange_name`, `queue_name_pattern` and `arguments` of "
          "delay queues, as Symfony has them."),
    IGNORED("amqp://?persistent", "Of Symfony's client; accepted."),
    IGNORED("amqp://?channel_max", "Of Symfony's client; accepted."),
    IGNORED("amqp://?frame_max", "Of Symfony's client; accepted."),
    IGNORED("amqp://?read_timeout", "Of Symfony's client; accepted."),
    IGNORED("amqp://?write_timeout", "Of Symfony's client; accepted."),
    IGNORED("amqp://?rpc_timeout", "Of Symfony's client; accepted."),
    IGNORED("amqp://?sasl_method", "Of Symfony's client; accepted."),
    PLAIN("kafka://?topic", TEXT,
          "The topic that a relay sends to. Default: by `topic_by`."),
    KEY("kafka://?topic_by", CHOICE,
        "What a topic is called: `name`, that of the message, or `two_words`, "
        "its first two words.",
        DEFAULT("name"), .choices = "name or two_words",
        .first_choice = SKR_TOPICS_NAME),
    KEY("kafka://?partitioner", CHOICE,
        "Where a key goes: as Java's clients have it, `murmur2`, or Go's "
        "Sarama, `fnv1a`.",
        DEFAULT("murmur2"), .choices = "murmur2 or fnv1a"),
    KEY("kafka://?missing_topic", CHOICE,
        "What becomes of messages to a topic that does not exist: `wait` or "
        "`fail`.",
        DEFAULT("wait"), .choices = "wait or fail"),
    PLAIN("kafka://?topics", ANYTHING,
          "The topics that are consumed; a name that begins with `^` is a "
          "pattern."),
    KEY("kafka://?group", TEXT, "The consumer group.", DEFAULT("skirnir")),
    KEY("kafka://?prefetch_bytes", NUMBER,
        "Bytes of messages that are fetched ahead.", DEFAULT("16777216"),
        RANGE(1024, INT64_C(2) << 30)),
    KEY("kafka://?connect_timeout", NUMBER,
        "Seconds for a broker to answer at first.", DEFAULT("10"),
        RANGE(1, 3600)),
    KEY("kafka://?confirm_timeout", NUMBER,
        "Seconds that a broker may be silent before the connection counts as "
        "lost.",
        DEFAULT("25"), RANGE(1, 3600)),
    PLAIN("kafka://?tls", BOOLEAN,
          "Whether the connection is encrypted. Default: where a file of "
          "certificates is named."),
    PLAIN("kafka://?cacert", TEXT,
          "A file with the authority that signed the server's certificate, "
          "where the system does not trust it."),
    PLAIN("kafka://?cert", TEXT, "A file with the client's own certificate."),
    PLAIN("kafka://?key", TEXT, "A file with its key."),
    KEY("kafka://?verify", BOOLEAN,
        "Whether the server has to prove that it is the host in the DSN.",
        DEFAULT("true")),
    PLAIN("mysql://?unix_socket", TEXT, "A socket instead of a host."),
    KEY("mysql://?connect_timeout", NUMBER, "Seconds to try to connect.",
        DEFAULT("10")),
    KEY("mysql://?timeout", NUMBER,
        "Seconds that the server may be silent while an answer is waited for.",
        DEFAULT("30")),
    KEY("mysql://?lock_timeout", NUMBER,
        "Seconds that a statement waits for another transaction.",
        DEFAULT("5")),
    KEY("mysql://?wake", CHOICE,
        "How a relay, or a consumer of a table, learns of new rows: `binlog` "
        "by listening to the server's binary log, `poll` by looking again and "
        "again, `auto` by the log where it can be listened to; `binlog` warns "
        "where it cannot.",
        DEFAULT("auto"), .choices = "auto, binlog or poll"),
    PLAIN("mysql://?wake_dsn", TEXT,
          "A DSN with another user or way for listening to the log, as "
          "`%env(urlencode:WAKE_URL)%`. Default: the DSN itself."),
    KEY("mysql://?wake_ceiling", NUMBER,
        "Bytes a second of other tables' changes; where there are more, the "
        "log is left alone for a while.",
        DEFAULT("1048576")),
    PLAIN("mysql://?idle_poll", NUMBER,
          "Milliseconds between looks into an idle queue, from 20 to 60000, "
          "where nothing tells of rows. Default: a second, and after a minute "
          "a second and a half."),
    PLAIN("mysql://?ssl", BOOLEAN,
          "Whether the connection is encrypted. Default: where the host is "
          "another machine."),
    KEY("mysql://?ssl_verify", BOOLEAN,
        "Whether the server has to prove that it is the host in the DSN.",
        DEFAULT("true")),
    PLAIN("mysql://?ssl_ca", TEXT,
          "A file with the authority that signed the server's certificate."),
    PLAIN("mysql://?ssl_cert", TEXT,
          "A file with the client's own certificate."),
    PLAIN("mysql://?ssl_key", TEXT, "A file with its key."),
    IGNORED("mysql://?serverVersion", "Doctrine's; accepted."),
    IGNORED("mysql://?charset", "Doctrine's; accepted: it is always utf8mb4."),
    PLAIN("pgsql://?host", TEXT, "The folder of a socket, instead of a host."),
    KEY("pgsql://?connect_timeout", NUMBER,
        "Seconds to try to connect to a server.", DEFAULT("10")),
    KEY("pgsql://?timeout", NUMBER,
        "Seconds that the server may be silent while an answer is waited for.",
        DEFAULT("30")),
    KEY("pgsql://?lock_timeout", NUMBER,
        "Milliseconds that a statement waits for another transaction.",
        DEFAULT("5000")),
    PLAIN("pgsql://?statement_timeout", NUMBER,
          "Milliseconds that a statement may run. Default: the server's."),
    PLAIN("pgsql://?sslmode", TEXT,
          "libpq's. Default: `verify-full`, and `prefer` where the host is "
          "this machine."),
    PLAIN("pgsql://?sslrootcert", TEXT,
          "A file with the authority that signed the server's certificate."),
    PLAIN("pgsql://?sslcert", TEXT,
          "A file with the client's own certificate."),
    PLAIN("pgsql://?sslkey", TEXT, "A file with its key."),
    PLAIN("pgsql://?target_session_attrs", TEXT,
          "Given to libpq for each host."),
    KEY("pgsql://?application_name", TEXT, "What the server shows.",
        DEFAULT("skirnir")),
    IGNORED("pgsql://?serverVersion", "Doctrine's; accepted."),
    IGNORED("pgsql://?charset", "Doctrine's; accepted."),
    KEY("sqlite://?busy_timeout", NUMBER,
        "Milliseconds that a statement waits for another writer.",
        DEFAULT("5000"), RANGE(0, 3600000)),
    IGNORED("sqlite://?serverVersion", "Doctrine's; accepted."),
    IGNORED("sqlite://?charset", "Doctrine's; accepted."),
};

const struct skr_config_type_words skr_config_types[] = {
    [SKR_TYPE_MAP] = {"map", "a map"},
    [SKR_TYPE_NAMES] = {"map of names", "a map of names"},
    [SKR_TYPE_LIST] = {"list", "a list"},
    [SKR_TYPE_TRANSPORT] = {"DSN or map", "a DSN or a map"},
    [SKR_TYPE_DSN] = {"DSN", "a DSN"},
    [SKR_TYPE_TEXT] = {"text", "a text"},
    [SKR_TYPE_CHOICE] = {"text", "a text"},
    [SKR_TYPE_TABLE] = {"table name", "a table name"},
    [SKR_TYPE_REFERENCE] = {"name", "a name"},
    [SKR_TYPE_NUMBER] = {"whole number", "a whole number"},
    [SKR_TYPE_SIZE] = {"size", "a size such as 65536, 64 KiB or 8 MiB"},
    [SKR_TYPE_PORTS] = {"port or range",
                        "a port from 0 to 65535, or a range such as 9187-9197"},
    [SKR_TYPE_DECIMAL] = {"number", "a number"},
    [SKR_TYPE_BOOLEAN] = {"boolean", "true or false"},
    [SKR_TYPE_SQL] = {"SQL", "a statement or a list of statements"},
    [SKR_TYPE_COMMAND] = {"command", "a program or a list of words"},
    [SKR_TYPE_VARIABLES] = {"variables", "a name or a list of names"},
    [SKR_TYPE_ANYTHING] = {"anything", "anything"},
    [SKR_TYPE_IGNORED] = {"ignored", "anything"},
};

static const struct skr_config_collection collections[] = {
    [SKR_SCOPE_DATABASE] = {offsetof(struct skr_config, databases),
                            offsetof(struct skr_config, database_count),
                            sizeof(struct skr_config_database)},
    [SKR_SCOPE_TRANSPORT] = {offsetof(struct skr_config, transports),
                             offsetof(struct skr_config, transport_count),
                             sizeof(struct skr_config_transport)},
    [SKR_SCOPE_MESSAGE_TYPE] = {offsetof(struct skr_config, message_types),
                                offsetof(struct skr_config, message_type_count),
                                sizeof(struct skr_name_pair)},
    [SKR_SCOPE_HANDLER] = {offsetof(struct skr_config, handlers),
                           offsetof(struct skr_config, handler_count),
                           sizeof(struct skr_config_handler)},
};

const struct skr_config_collection *
skr_config_collection(enum skr_config_scope scope)
{
    return &collections[scope];
}

const struct skr_config_key *
skr_config_keys(size_t *count)
{
    *count = SKR_COUNT_OF(keys);
    return keys;
}

size_t
skr_config_key_index(const struct skr_config_key *key)
{
    return (size_t)(key - keys);
}

void
skr_config_describe(const struct skr_config_key *key, struct skr_text *text)
{
    skr_text_add_string(text, skr_config_types[key->type].text);
    if (key->required)
        skr_text_add_string(text, ", required");
    if (key->fallback != NULL)
        skr_text_add_format(text, ", default %s", key->fallback);
    if (key->for_queue != NULL)
        skr_text_add_format(text, " (queue://: %s)", key->for_queue);
    if (key->for_inbound != NULL)
        skr_text_add_format(text, " (of what is consumed: %s)",
                            key->for_inbound);
    skr_text_add_format(text, ". %s", key->help);
}

// The next word of "fail, drop or wait"; 0: there is none.
static size_t
next_word(const char **at)
{
    *at += strspn(*at, ", ");
    if (strncmp(*at, "or ", strlen("or ")) == 0)
        *at += strlen("or ");
    return strcspn(*at, ", ");
}

bool
skr_config_find_choice(const struct skr_config_key *key, const char *word,
                       unsigned *value)
{
    const char *at = key->choices;
    *value = key->first_choice;
    for (size_t size; (size = next_word(&at)) > 0; at += size, ++*value)
        if (strlen(word) == size && strncmp(at, word, size) == 0)
            return true;
    return false;
}

const char *
skr_config_choice_word(const struct skr_config_key *key, unsigned value,
                       char word[SKR_CHOICE_SIZE])
{
    const char *at = key->choices;
    size_t size = next_word(&at);
    for (unsigned i = key->first_choice; i < value; i++) {
        at += size;
        size = next_word(&at);
    }
    snprintf(word, SKR_CHOICE_SIZE, "%.*s", (int)size, at);
    return word;
}

const struct skr_config_key *
skr_config_find_key(const char *path)
{
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

bool
skr_config_is_child(const struct skr_config_key *parent,
                    const struct skr_config_key *key)
{
    const char *name = key->path;
    if (strstr(name, SKR_OPTION_OF) != NULL)
        return false;
    if (parent != NULL) {
        size_t length = strlen(parent->path);
        if (strncmp(key->path, parent->path, length) != 0 ||
            key->path[length] != '.')
            return false;
        name += length + 1;
    }
    return strchr(name, '.') == NULL;
}

const char *
skr_config_key_name(const struct skr_config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot == NULL ? key->path : dot + 1;
}

const struct skr_config_key *
skr_config_find_option(const char *scheme, const char *name)
{
    size_t size = strlen(scheme);
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++) {
        const char *path = keys[i].path;
        if (strncmp(path, scheme, size) == 0 &&
            skr_text_starts_with(path + size, SKR_OPTION_OF) &&
            strcmp(path + size + strlen(SKR_OPTION_OF), name) == 0)
            return &keys[i];
    }
    return NULL;
}

static bool
is_pattern(const char *name)
{
    return skr_text_ends_with(name, "*");
}

static bool
fits(const char *pattern, const char *name)
{
    return strncmp(pattern, name, strlen(pattern) - 1) == 0;
}

const struct skr_config_key *
skr_config_find_child(const struct skr_config_key *parent, const char *name,
                      bool other_driver)
{
    // Patterns stand last among their siblings, so that an exact name wins.
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++) {
        if (!skr_config_is_child(parent, &keys[i]))
            continue;
        if (other_driver ? keys[i].table_only : keys[i].other_only)
            continue;
        const char *child = skr_config_key_name(&keys[i]);
        if (is_pattern(child) ? fits(child, name) : strcmp(child, name) == 0)
            return &keys[i];
    }
    return NULL;
}
