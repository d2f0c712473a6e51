// SPDX-License-Identifier: MIT
// The commands, as users see them.

#include "app/app.h"

#define A_CENTURY_S (INT64_C(100) * 366 * 24 * 3600)

// An option of a kind; `...` begins with its help.
#define OPTION(kind_, name, letter, value, ...)                      \
    {                                                                \
        name, letter, value, __VA_ARGS__, .kind = SKR_OPTION_##kind_ \
    }
#define FLAG(name, letter, ...) OPTION(FLAG, name, letter, NULL, __VA_ARGS__)
#define SWITCH(name, letter, ...) \
    OPTION(SWITCH, name, letter, NULL, __VA_ARGS__)
#define TEXT(name, letter, value, ...) \
    OPTION(TEXT, name, letter, value, __VA_ARGS__)
// `...` begins with the highest number.
#define NUMBER(name, letter, value, help, least_, ...)         \
    OPTION(NUMBER, name, letter, value, help, .least = least_, \
           .most = __VA_ARGS__)

#define WORK_OPTIONS                                                           \
    NUMBER("limit", 'l', "N", "stop after N messages", 1, INT64_MAX),          \
        NUMBER("time-limit", 't', "SECONDS", "stop after so many seconds", 1,  \
               A_CENTURY_S),                                                   \
        OPTION(SIZE, "memory-limit", 'm', "SIZE",                              \
               "stop when memory reaches SIZE, as in 128M"),                   \
        NUMBER("failure-limit", 'f', "N", "stop after N retries and failures", \
               1, INT64_MAX),                                                  \
        OPTION(SECONDS, "sleep", '\0', "SECONDS",                              \
               "longest wait for work; 1 by default", .most = 3600),           \
        FLAG("stop-when-empty", '\0', "stop when nothing is due"),             \
        FLAG("wait", '\0', "wait for servers that are not ready yet"),         \
        NUMBER("stop-timeout", '\0', "SECONDS",                                \
               "end a stop after so many seconds", 1, 3600),                   \
        OPTION(PORTS, "metrics-port", '\0', "N",                               \
               "serve metrics there; 0: nowhere")

static const struct skr_option relay_options[] = {
    WORK_OPTIONS,
    {0},
};

static const struct skr_option consume_options[] = {
    WORK_OPTIONS,
    NUMBER("consumers", '\0', "N", "so many of each transport; 1 by default", 1,
           256),
    FLAG("all", '\0', "every transport that has something to consume"),
    TEXT("bus", 'b', "NAME", "Symfony's; ignored",
         .ignored = "handlers are found by the message's name"),
    TEXT("queues", '\0', "NAME",
         "only this queue of RabbitMQ; may be repeated"),
    FLAG("no-reset", '\0', "Symfony's; ignored",
         .ignored = "there are no services to reset"),
    FLAG("keepalive", '\0', "Symfony's; ignored",
         .ignored = "a message in hand is kept in hand anyway"),
    TEXT("env", 'e', "NAME", "Symfony's; ignored",
         .ignored = "--config chooses the configuration"),
    FLAG("no-debug", '\0', "Symfony's; ignored",
         .ignored = "there is no debug mode"),
    FLAG("no-interaction", 'n', "Symfony's; ignored",
         .ignored = "it never asks"),
    {0},
};

static const struct skr_option kafka_relay_options[] = {
    TEXT("db-host", '\0', "HOST", "the database server (DB_HOST)",
         .variable = "DB_HOST"),
    NUMBER("db-port", '\0', "PORT", "its port (DB_PORT)", 1, UINT16_MAX,
           .variable = "DB_PORT"),
    TEXT("db-user", '\0', "NAME", "the user (DB_USER)", .variable = "DB_USER"),
    TEXT("db-pass", '\0', "TEXT", "the password; better by DB_PASS",
         .is_secret = true, .variable = "DB_PASS"),
    TEXT("db-name", '\0', "NAME",
         "the database, or several with commas (DB_NAME)",
         .variable = "DB_NAME"),
    TEXT("db-driver", '\0', "NAME", "mysql, postgres or sqlite (DB_DRIVER)",
         .variable = "DB_DRIVER"),
    TEXT("dboutboxtable", '\0', "NAME", "the table; kafka_outbox by default"),
    TEXT("kafka-host", '\0', "LIST",
         "HOST:PORT, or several with commas (KAFKA_HOST)", .is_secret = true,
         .variable = "KAFKA_HOST"),
    TEXT("kafka-options", '\0', "LIST",
         "name=value&... of librdkafka (KAFKA_OPTIONS)", .is_secret = true,
         .variable = "KAFKA_OPTIONS"),
    NUMBER("kafka-publish-attempts", '\0', "N",
           "then a row is errored; 3 (KAFKA_PUBLISH_ATTEMPTS)", 1, 1000000,
           .variable = "KAFKA_PUBLISH_ATTEMPTS"),
    SWITCH("kafka-tls", '\0', "TLS to Kafka and database (TLS_ENABLE)",
           .variable = "TLS_ENABLE"),
    SWITCH("kafka-tls-verify-peer", '\0',
           "trust any server (TLS_SKIP_VERIFY_PEER)",
           .variable = "TLS_SKIP_VERIFY_PEER"),
    NUMBER("write-concurrency", '\0', "N",
           "accepted and ignored (WRITE_CONCURRENCY)", 1, INT32_MAX,
           .variable = "WRITE_CONCURRENCY"),
    NUMBER("poll-frequency-ms", '\0', "N",
           "longest wait for rows; 500 (POLL_FREQUENCY_MS)", 1, INT32_MAX,
           .variable = "POLL_FREQUENCY_MS"),
    NUMBER("batch-size", '\0', "N",
           "a quarter of what is in flight; 250 (BATCH_SIZE)", 1, 100000,
           .variable = "BATCH_SIZE"),
    SWITCH("cleanup", '\0',
           "delete what was completed an hour ago (RUN_CLEANUP)",
           .variable = "RUN_CLEANUP"),
    SWITCH("optimize", '\0', "tidy the table up (RUN_OPTIMIZE)",
           .variable = "RUN_OPTIMIZE"),
    FLAG("dry-run", '\0', "only count what --cleanup would delete"),
    NUMBER("cleanup-interval", '\0', "SECONDS",
           "clean beside the work, so often; 0: never", 0, 604800),
    TEXT("sidecar-proxy-url", '\0', "URL",
         "told to quit after a job (SIDECAR_PROXY_URL)",
         .variable = "SIDECAR_PROXY_URL"),
    SWITCH("polling-disabled", '\0', "make tables, and wait (POLLING_DISABLED)",
           .variable = "POLLING_DISABLED"),
    SWITCH("skip-migrations", '\0', "make no tables (SKIP_MIGRATIONS)",
           .variable = "SKIP_MIGRATIONS"),
    OPTION(CHOICE, "on-success", '\0', "WORD", "mark or delete; by the table",
           .choices = "delete mark", .variable = "ON_SUCCESS"),
    OPTION(CHOICE, "partitioner", '\0', "NAME",
           "murmur2 or fnv1a; by the table", .choices = "murmur2 fnv1a",
           .variable = "KAFKA_PARTITIONER"),
    FLAG("force", 'f', "remove without asking"),
    OPTION(SINCE, "older-than", '\0', "TIME",
           "errored rows written before 12h, 30d, or a time"),
    FLAG("json", '\0', "print errored rows as JSON"),
    FLAG("take-over", '\0', "what another relay has claimed is taken at once"),
    FLAG("wait", '\0', "wait for servers that are not ready yet"),
    SWITCH("publish-tombstones", '\0',
           "publish rows without payload_json (PUBLISH_TOMBSTONES)",
           .variable = "PUBLISH_TOMBSTONES"),
    TEXT("listen", '\0', "PLACE", "HOST:PORT of /healthz and /metrics; :80",
         .variable = "HTTP_LISTEN"),
    {0},
};

static const struct skr_option publish_options[] = {
    TEXT("body", 'b', "TEXT", "the body; @FILE reads a file, - standard input",
         .required = true),
    TEXT("transport", 't', "NAME", "the outbox; needed when there are several"),
    OPTION(ID, "id", '\0', "ID", "a UUID or ULID; made when not given"),
    OPTION(PAIR, "header", 'H', "NAME=VALUE",
           "a header; may be given several times"),
    TEXT("traceparent", '\0', "TEXT", "W3C trace context, kept as a header"),
    TEXT("tracestate", '\0', "TEXT", "what goes with it"),
    TEXT("partition-key", 'k', "KEY", "those that share it stay in order"),
    NUMBER("delay", 'd', "SECONDS",
           "publish not before so many seconds from now", 0, A_CENTURY_S),
    TEXT("content-type", '\0', "TYPE", "application/json by default"),
    FLAG("json", '\0', "print the result as JSON"),
    {0},
};

static const struct skr_option partition_options[] = {
    TEXT("transport", 't', "NAME",
         "the outbox; needed with KEY if there are several"),
    FLAG("all", '\0', "every blocked partition"),
    TEXT("error", 'e', "TEXT", "of those only where the error has this text"),
    FLAG("dry-run", '\0', "say how many it would be"),
    {0},
};

static const struct skr_option setup_options[] = {
    FLAG("print-sql", '\0', "print the statements and change nothing"),
    FLAG("dry-run", '\0', "look, and say what would be made"),
    FLAG("tune", '\0', "also change what setup otherwise only advises"),
    FLAG("notify", '\0', "let inserts wake a relay that sleeps (PostgreSQL)"),
    FLAG("no-notify", '\0', "take that away again"),
    {0},
};

static const struct skr_option setup_deduplication_options[] = {
    FLAG("force", 'f', "create the table"),
    FLAG("migration", '\0', "write a Doctrine migration instead"),
    FLAG("print-sql", '\0', "print the statements (the default)"),
    FLAG("dry-run", '\0', "look, and say what would be made"),
    {0},
};

static const struct skr_option setup_amqp_options[] = {
    FLAG("dry-run", '\0', "say what would be declared; asks no server"),
    FLAG("dump", '\0', "print RabbitMQ definitions as JSON instead"),
    TEXT("output", 'o', "FILE", "write the definitions into a file"),
    TEXT("vhost", '\0', "VHOST", "another vhost than the DSN's"),
    TEXT("dsn", '\0', "DSN", "another server than the amqp transport's",
         .is_secret = true),
    {0},
};

#define FAILED_FILTERS                                                        \
    TEXT("transport", 't', "NAME", "those that failed in this transport"),    \
        TEXT("name", 'n', "PATTERN", "messages of this name, as in order.*"), \
        TEXT("class", '\0', "PATTERN", "messages of this PHP class"),         \
        TEXT("error", 'e', "TEXT", "those whose error has this in it"),       \
        OPTION(SINCE, "since", 's', "TIME",                                   \
               "failed since 15m, 2h, 7d, or a time"),                        \
        OPTION(SINCE, "older-than", '\0', "TIME",                             \
               "failed before 12h, 30d, or a time"),                          \
        NUMBER("max", 'm', "N", "so many at most", 1, INT64_MAX),             \
        TEXT("database", '\0', "NAME", "only those in this database")

static const struct skr_option failed_show_options[] = {
    FAILED_FILTERS,
    FLAG("stats", '\0', "count them by their errors"),
    FLAG("json", '\0', "print as JSON"),
    {0},
};

static const struct skr_option failed_retry_options[] = {
    FAILED_FILTERS,
    FLAG("all", '\0', "all failed messages"),
    TEXT("to", '\0', "TRANSPORT", "there instead of where it failed"),
    NUMBER("rate", '\0', "N", "so many a second at most", 1, 1000000),
    FLAG("dry-run", '\0', "say what would be done"),
    FLAG("force", 'f', "as Symfony has it; it never asks"),
    {0},
};

static const struct skr_option failed_remove_options[] = {
    FAILED_FILTERS,
    FLAG("all", '\0', "all failed messages"),
    NUMBER("rate", '\0', "N", "so many a second at most", 1, 1000000),
    FLAG("dry-run", '\0', "say what would be done"),
    FLAG("force", 'f', "do not ask"),
    {0},
};

static const struct skr_option stats_options[] = {
    FLAG("watch", 'w', "show it again and again"),
    NUMBER("interval", 'i', "SECONDS",
           "how often, and what rates are measured over", 1, 3600),
    FLAG("json", '\0', "print as JSON"),
    OPTION(CHOICE, "format", '\0', "FORMAT",
           "txt, or json: counts as Symfony prints them",
           .choices = "txt json"),
    {0},
};

static const struct skr_option doctor_options[] = {
    NUMBER("age", '\0', "SECONDS",
           "what waits or is open for longer is told; 300 by default", 1,
           A_CENTURY_S),
    FLAG("json", '\0', "print the findings as JSON"),
    {0},
};

static const struct skr_option cleanup_outbox_options[] = {
    NUMBER("days", 'd', "N", "keep so many days; 7 by default", 0, 36500),
    NUMBER("batch-size", 'b', "N", "rows of a step at most; 1000 by default", 1,
           100000),
    FLAG("dry-run", '\0', "only count"),
    {0},
};

static const struct skr_option deduplication_cleanup_options[] = {
    NUMBER("days", 'd', "N", "keep so many days; 30 by default", 0, 36500),
    NUMBER("batch-size", 'b', "N", "rows of a step at most; 1000 by default", 1,
           100000),
    FLAG("dry-run", '\0', "only count"),
    {0},
};

static const struct skr_option init_options[] = {
    TEXT("database", '\0', "DSN", "the application's database; asked for else",
         .is_secret = true),
    TEXT("broker", '\0', "DSN", "the broker; else a table in that database",
         .is_secret = true),
    FLAG("ordered", '\0', "messages that share a key stay in order"),
    {0},
};

static const struct skr_option config_options[] = {
    FLAG("json", '\0', "print as JSON (show, keys)"),
    {0},
};

const struct skr_command skr_commands[] = {
    {
        .name = "relay",
        .arguments = "TRANSPORT...",
        .least_arguments = 1,
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Publish what applications wrote into an outbox",
        .help =
            "Reads the outbox in order, publishes each message to the "
            "transport that relay_to\nnames, and removes the row once the "
            "broker has stored the message. Started twice,\nthe second "
            "stands by and takes over when the first ends. SIGTERM finishes "
            "what is\nin flight. Several outboxes have a thread each, and "
            "limits count for each.\n\n"
            "Examples:\n"
            "  skirnir relay outbox\n"
            "  skirnir relay orders_outbox billing_outbox\n"
            "  skirnir relay outbox --stop-when-empty -v\n",
        .options = relay_options,
        .run = skr_command_relay,
    },
    {
        .name = "consume",
        .alias = "messenger:consume",
        .arguments = "TRANSPORT...",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Handle messages from a transport, each effect once",
        .help = "Runs the configured handler of each message inside the "
                "transaction that also\nrecords its id, then acknowledges it. "
                "What was seen before is skipped; what fails\nis retried, and "
                "kept in the failed table in the end. SIGTERM finishes the "
                "current\nbatch. Several consumers have a thread each, and "
                "limits count for all of them\ntogether.\n\n"
                "Examples:\n"
                "  skirnir consume orders\n"
                "  skirnir consume orders billing --consumers=4\n"
                "  skirnir consume orders --limit=1000 --time-limit=3600 "
                "--memory-limit=128M\n",
        .options = consume_options,
        .run = skr_command_consume,
    },
    {
        .name = "kafka-relay",
        .arguments = "[migrate|errored show|retry|remove [ID]]",
        .most_arguments = 3,
        .summary = "Publish the rows of kafka_outbox to Kafka",
        .help = "Takes the place of kafka-outbox-relay: the same table, "
                "environment and flags. Rows\nare published in the order of "
                "their ids and marked as completed, or deleted; both\nrelays "
                "can go on where the other stopped. errored lists rows that "
                "Kafka refused\nfor good, publishes them again, or removes "
                "them. migrate adds indexes that a table\nlacks.\n\n"
                "Examples:\n"
                "  DB_DRIVER=mysql DB_HOST=db DB_PORT=3306 DB_USER=shop "
                "DB_PASS=... DB_NAME=shop \\\n"
                "    KAFKA_HOST=kafka:9092 skirnir kafka-relay\n"
                "  skirnir kafka-relay errored show\n"
                "  skirnir kafka-relay errored remove 17 --force\n",
        .options = kafka_relay_options,
        .takes_one_dash = true,
        .run = skr_command_kafka_relay,
    },
    {
        .name = "publish",
        .arguments = "NAME",
        .least_arguments = 1,
        .most_arguments = 1,
        .summary = "Write a message into an outbox, for scripts and trials",
        .help = "Prints the message's id.\n\n"
                "Examples:\n"
                "  skirnir publish order.placed --body '{\"orderId\":1}'\n"
                "  skirnir publish order.placed --body @order.json "
                "--header X-Shop=north\n"
                "  generate | skirnir publish report.made --body - "
                "--delay 60\n",
        .options = publish_options,
        .work = skr_command_publish,
    },
    {
        .name = "partition",
        .arguments = "skip|retry [KEY]",
        .least_arguments = 1,
        .most_arguments = 2,
        .summary = "Let blocked partitions of an ordered outbox go on",
        .help = "retry  sends the message that blocks it once more\n"
                "skip   moves that message to the failed table; those behind "
                "it go on\n\n"
                "Examples:\n"
                "  skirnir partition retry order-4711\n"
                "  skirnir partition skip order-4711 --transport=outbox\n"
                "  skirnir partition retry --all\n"
                "  skirnir partition skip --all --error='too large' "
                "--dry-run\n",
        .options = partition_options,
        .reports = true,
        .run = skr_command_partition,
    },
    {
        .name = "init",
        .arguments = "",
        .summary = "Write a first configuration, its SQL, and units",
        .help = "Asks for what is not given. Writes skirnir.yaml, skirnir.sql "
                "with the tables, and a unit\nof systemd for the relay and one "
                "for the consumer; never over a file that is there.\n\n"
                "Examples:\n"
                "  skirnir init\n"
                "  skirnir init --database=sqlite:///shop.db\n"
                "  skirnir init --database=postgresql://shop:secret@localhost/"
                "shop \\\n"
                "    --broker=amqp://guest:guest@localhost/%2f --ordered\n",
        .options = init_options,
        .run = skr_command_init,
    },
    {
        .name = "setup",
        .alias = "messenger:setup-transports",
        .arguments = "[TRANSPORT]",
        .most_arguments = 1,
        .summary = "Make the tables of the configured transports",
        .help = "Harmless when run again, and from many hosts at once.\n\n"
                "Examples:\n"
                "  skirnir setup\n"
                "  skirnir setup outbox --print-sql\n"
                "  skirnir setup outbox --notify\n"
                "  skirnir setup --dry-run\n",
        .options = setup_options,
        .reports = true,
        .run = skr_command_setup,
    },
    {
        .name = "setup-deduplication",
        .alias = "message-broker:setup-deduplication",
        .arguments = "",
        .summary = "Make the table that remembers handled messages",
        .help = "Prints the SQL; --force runs it; --migration writes it into "
                "a Doctrine migration\nin the working folder.\n\n"
                "Examples:\n"
                "  skirnir setup-deduplication\n"
                "  skirnir setup-deduplication --force\n",
        .options = setup_deduplication_options,
        .run = skr_command_setup_deduplication,
    },
    {
        .name = "setup-amqp",
        .alias = "message-broker:setup-amqp",
        .arguments = "",
        .summary = "Declare exchanges, queues and bindings on RabbitMQ",
        .help = "Declares what message_broker_amqp.topology lists, and the "
                "exchange, queues and bindings\nin the options of amqp:// "
                "transports. An object that is there with other\nproperties "
                "is named and left alone.\n\n"
                "Examples:\n"
                "  skirnir setup-amqp\n"
                "  skirnir setup-amqp --dry-run\n"
                "  skirnir setup-amqp --dump --output definitions.json\n",
        .options = setup_amqp_options,
        .run = skr_command_setup_amqp,
    },
    {
        .name = "test-inbox-dedup",
        .alias = "fsm:test-inbox-dedup",
        .arguments = "[TRANSPORT]",
        .most_arguments = 1,
        .summary = "Show that a message that comes three times counts once",
        .help = "Publishes three identical messages to a queue of its own, "
                "consumes them as the\nconfiguration says, counts the effects "
                "in the database, and removes all of it\nagain. No handler of "
                "yours is called.\n\n"
                "Examples:\n"
                "  skirnir test-inbox-dedup\n"
                "  skirnir test-inbox-dedup orders\n",
        .reports = true,
        .work = skr_command_test_inbox_dedup,
    },
    {
        .name = "stats",
        .alias = "messenger:stats",
        .arguments = "[TRANSPORT...]",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Show how full transports are, and who works them",
        .help = "Numbers with a ~ are estimates: large tables are not counted "
                "row by row.\n\n"
                "Examples:\n"
                "  skirnir stats\n"
                "  skirnir stats --watch\n"
                "  skirnir stats --interval=1\n"
                "  skirnir stats outbox --json\n",
        .options = stats_options,
        .work = skr_command_stats,
    },
    {
        .name = "failed show",
        .alias = "messenger:failed:show",
        .arguments = "[NUMBER...]",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "List failed messages, or show one in full",
        .help = "The newest first. With -vv headers and body of a message are "
                "shown too. What\nblocks a partition of an ordered outbox is "
                "named as it is listed.\n\n"
                "Examples:\n"
                "  skirnir failed show --since=2h\n"
                "  skirnir failed show --stats\n"
                "  skirnir failed show 42 -vv\n"
                "  skirnir failed show outbox/4711 -vv\n",
        .options = failed_show_options,
        .run = skr_command_failed_show,
    },
    {
        .name = "failed retry",
        .alias = "messenger:failed:retry",
        .arguments = "[NUMBER...]",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Send failed messages back to where they failed",
        .help = "Each goes back under its id, in one transaction, the oldest "
                "first. Interrupted, it\nmay be run again.\n\n"
                "Examples:\n"
                "  skirnir failed retry 42 43\n"
                "  skirnir failed retry --transport=outbox --since=2h "
                "--dry-run\n"
                "  skirnir failed retry --all --rate=100\n",
        .options = failed_retry_options,
        .reports = true,
        .run = skr_command_failed_retry,
    },
    {
        .name = "failed remove",
        .alias = "messenger:failed:remove",
        .arguments = "[NUMBER...]",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Delete failed messages for good",
        .help = "Asks first; where there is no terminal it needs --force.\n\n"
                "Examples:\n"
                "  skirnir failed remove 42\n"
                "  skirnir failed remove --name='report.*' --since=7d "
                "--dry-run\n"
                "  skirnir failed remove --older-than=30d --force\n"
                "  skirnir failed remove --transport=old --force\n",
        .options = failed_remove_options,
        .reports = true,
        .run = skr_command_failed_remove,
    },
    {
        .name = "doctor",
        .arguments = "",
        .summary = "Look for what is wrong, and say what to do",
        .help = "Looks at the configuration, at databases and their tables, at "
                "brokers, and at what\nwaits; changes nothing. Each finding "
                "has its evidence, why it matters, and the\ncure. The exit "
                "code is 1 where there is an error or a warning.\n\n"
                "Examples:\n"
                "  skirnir doctor\n"
                "  skirnir doctor --age=60\n"
                "  skirnir doctor --json\n",
        .options = doctor_options,
        .run = skr_command_doctor,
    },
    {
        .name = "cleanup-outbox",
        .alias = "messenger:cleanup-outbox",
        .arguments = "[TRANSPORT...]",
        .most_arguments = SKR_MAX_POSITIONAL,
        .summary = "Remove sent messages that were kept long enough",
        .help = "In small steps, so that relays and applications need not "
                "wait.\n\n"
                "Examples:\n"
                "  skirnir cleanup-outbox --dry-run\n"
                "  skirnir cleanup-outbox outbox --days=7 "
                "--batch-size=1000\n",
        .options = cleanup_outbox_options,
        .reports = true,
        .work = skr_command_cleanup_outbox,
    },
    {
        .name = "deduplication-cleanup",
        .alias = "message-broker:deduplication-cleanup",
        .arguments = "",
        .summary = "Forget messages that were handled long ago",
        .help = "A message that comes again after its id was removed is "
                "handled again: keep ids for\nlonger than a broker may "
                "deliver late.\n\n"
                "Examples:\n"
                "  skirnir deduplication-cleanup --dry-run\n"
                "  skirnir deduplication-cleanup --days=30 "
                "--batch-size=1000\n",
        .options = deduplication_cleanup_options,
        .reports = true,
        .work = skr_command_deduplication_cleanup,
    },
    {
        .name = "config",
        .arguments = "check|show|keys [FILE]",
        .least_arguments = 1,
        .most_arguments = 2,
        .summary = "Check the configuration, or print what is in force",
        .help = "check  names file, line and key of every mistake\n"
                "show   prints the effective values, secrets masked\n"
                "keys   prints every key with its type, default and meaning\n\n"
                "Examples:\n"
                "  skirnir config check\n"
                "  skirnir config show /etc/skirnir/skirnir.yaml\n",
        .options = config_options,
        .run = skr_command_config,
    },
    {0},
};
