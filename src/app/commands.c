// SPDX-License-Identifier: MIT
// The commands, as users see them.

#include "app/app.h"

#define A_CENTURY_S (INT64_C(100) * 366 * 24 * 3600)

static const struct skr_option relay_options[] = {
    {"limit", 'l', "N", "stop after N messages", .kind = SKR_OPTION_NUMBER,
     .least = 1, .most = INT64_MAX},
    {"time-limit", 't', "SECONDS", "stop after so many seconds",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = A_CENTURY_S},
    {"memory-limit", 'm', "SIZE", "stop when memory reaches SIZE, as in 128M",
     .kind = SKR_OPTION_SIZE},
    {"failure-limit", 'f', "N", "stop after N retries and failures",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = INT64_MAX},
    {"sleep", '\0', "SECONDS", "longest wait for work; 1 by default",
     .kind = SKR_OPTION_SECONDS, .most = 3600},
    {"stop-when-empty", '\0', NULL, "stop when nothing is due",
     .kind = SKR_OPTION_FLAG},
    {"wait", '\0', NULL, "wait for servers that are not ready yet",
     .kind = SKR_OPTION_FLAG},
    {"stop-timeout", '\0', "SECONDS", "end a stop after so many seconds",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 3600},
    {"metrics-port", '\0', "N", "serve metrics there; 0: nowhere",
     .kind = SKR_OPTION_PORTS},
    {0},
};

static const struct skr_option consume_options[] = {
    {"limit", 'l', "N", "stop after N messages", .kind = SKR_OPTION_NUMBER,
     .least = 1, .most = INT64_MAX},
    {"time-limit", 't', "SECONDS", "stop after so many seconds",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = A_CENTURY_S},
    {"memory-limit", 'm', "SIZE", "stop when memory reaches SIZE, as in 128M",
     .kind = SKR_OPTION_SIZE},
    {"failure-limit", 'f', "N", "stop after N retries and failures",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = INT64_MAX},
    {"consumers", '\0', "N", "so many of each transport; 1 by default",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 256},
    {"sleep", '\0', "SECONDS", "longest wait for work; 1 by default",
     .kind = SKR_OPTION_SECONDS, .most = 3600},
    {"stop-when-empty", '\0', NULL, "stop when nothing is due",
     .kind = SKR_OPTION_FLAG},
    {"wait", '\0', NULL, "wait for servers that are not ready yet",
     .kind = SKR_OPTION_FLAG},
    {"stop-timeout", '\0', "SECONDS", "end a stop after so many seconds",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 3600},
    {"metrics-port", '\0', "N", "serve metrics there; 0: nowhere",
     .kind = SKR_OPTION_PORTS},
    {"all", '\0', NULL, "every transport that has something to consume",
     .kind = SKR_OPTION_FLAG},
    {"bus", 'b', "NAME", "Symfony's; ignored", .kind = SKR_OPTION_TEXT,
     .ignored = "handlers are found by the message's name"},
    {"queues", '\0', "NAME", "only this queue of RabbitMQ; may be repeated",
     .kind = SKR_OPTION_TEXT},
    {"no-reset", '\0', NULL, "Symfony's; ignored", .kind = SKR_OPTION_FLAG,
     .ignored = "there are no services to reset"},
    {"keepalive", '\0', NULL, "Symfony's; ignored", .kind = SKR_OPTION_FLAG,
     .ignored = "a message in hand is kept in hand anyway"},
    {"env", 'e', "NAME", "Symfony's; ignored", .kind = SKR_OPTION_TEXT,
     .ignored = "--config chooses the configuration"},
    {"no-debug", '\0', NULL, "Symfony's; ignored", .kind = SKR_OPTION_FLAG,
     .ignored = "there is no debug mode"},
    {"no-interaction", 'n', NULL, "Symfony's; ignored", .kind = SKR_OPTION_FLAG,
     .ignored = "it never asks"},
    {0},
};

static const struct skr_option kafka_relay_options[] = {
    {"db-host", '\0', "HOST", "the database server (DB_HOST)",
     .kind = SKR_OPTION_TEXT, .variable = "DB_HOST"},
    {"db-port", '\0', "PORT", "its port (DB_PORT)", .kind = SKR_OPTION_TEXT,
     .variable = "DB_PORT"},
    {"db-user", '\0', "NAME", "the user (DB_USER)", .kind = SKR_OPTION_TEXT,
     .variable = "DB_USER"},
    {"db-pass", '\0', "TEXT", "the password; better by DB_PASS",
     .kind = SKR_OPTION_TEXT, .is_secret = true, .variable = "DB_PASS"},
    {"db-name", '\0', "NAME", "the database, or several with commas (DB_NAME)",
     .kind = SKR_OPTION_TEXT, .variable = "DB_NAME"},
    {"db-driver", '\0', "NAME", "mysql, postgres or sqlite (DB_DRIVER)",
     .kind = SKR_OPTION_TEXT, .variable = "DB_DRIVER"},
    {"dboutboxtable", '\0', "NAME", "the table; kafka_outbox by default",
     .kind = SKR_OPTION_TEXT},
    {"kafka-host", '\0', "LIST",
     "HOST:PORT, or several with commas (KAFKA_HOST)", .kind = SKR_OPTION_TEXT,
     .is_secret = true, .variable = "KAFKA_HOST"},
    {"kafka-options", '\0', "LIST",
     "name=value&... of librdkafka (KAFKA_OPTIONS)", .kind = SKR_OPTION_TEXT,
     .is_secret = true, .variable = "KAFKA_OPTIONS"},
    {"kafka-publish-attempts", '\0', "N",
     "then a row is errored; 3 (KAFKA_PUBLISH_ATTEMPTS)",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 1000000,
     .variable = "KAFKA_PUBLISH_ATTEMPTS"},
    {"kafka-tls", '\0', NULL, "TLS to Kafka and database (TLS_ENABLE)",
     .kind = SKR_OPTION_SWITCH, .variable = "TLS_ENABLE"},
    {"kafka-tls-verify-peer", '\0', NULL,
     "trust any server (TLS_SKIP_VERIFY_PEER)", .kind = SKR_OPTION_SWITCH,
     .variable = "TLS_SKIP_VERIFY_PEER"},
    {"write-concurrency", '\0', "N", "accepted and ignored (WRITE_CONCURRENCY)",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = INT32_MAX,
     .variable = "WRITE_CONCURRENCY"},
    {"poll-frequency-ms", '\0', "N",
     "longest wait for rows; 500 (POLL_FREQUENCY_MS)",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = INT32_MAX,
     .variable = "POLL_FREQUENCY_MS"},
    {"batch-size", '\0', "N",
     "a quarter of what is in flight; 250 (BATCH_SIZE)",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 100000,
     .variable = "BATCH_SIZE"},
    {"cleanup", '\0', NULL,
     "delete what was completed an hour ago (RUN_CLEANUP)",
     .kind = SKR_OPTION_SWITCH, .variable = "RUN_CLEANUP"},
    {"optimize", '\0', NULL, "tidy the table up (RUN_OPTIMIZE)",
     .kind = SKR_OPTION_SWITCH, .variable = "RUN_OPTIMIZE"},
    {"dry-run", '\0', NULL, "only count what --cleanup would delete",
     .kind = SKR_OPTION_FLAG},
    {"cleanup-interval", '\0', "SECONDS",
     "clean beside the work, so often; 0: never", .kind = SKR_OPTION_NUMBER,
     .least = 0, .most = 604800},
    {"sidecar-proxy-url", '\0', "URL",
     "told to quit after a job (SIDECAR_PROXY_URL)", .kind = SKR_OPTION_TEXT,
     .variable = "SIDECAR_PROXY_URL"},
    {"polling-disabled", '\0', NULL, "make tables, and wait (POLLING_DISABLED)",
     .kind = SKR_OPTION_SWITCH, .variable = "POLLING_DISABLED"},
    {"skip-migrations", '\0', NULL, "make no tables (SKIP_MIGRATIONS)",
     .kind = SKR_OPTION_SWITCH, .variable = "SKIP_MIGRATIONS"},
    {"on-success", '\0', "WORD", "mark or delete; by the table",
     .kind = SKR_OPTION_CHOICE, .choices = "mark delete",
     .variable = "ON_SUCCESS"},
    {"partitioner", '\0', "NAME", "murmur2 or fnv1a; by the table",
     .kind = SKR_OPTION_TEXT, .variable = "KAFKA_PARTITIONER"},
    {"force", 'f', NULL, "remove without asking", .kind = SKR_OPTION_FLAG},
    {"take-over", '\0', NULL, "what another relay has claimed is taken at once",
     .kind = SKR_OPTION_FLAG},
    {"wait", '\0', NULL, "wait for servers that are not ready yet",
     .kind = SKR_OPTION_FLAG},
    {"publish-tombstones", '\0', NULL,
     "publish rows without payload_json (PUBLISH_TOMBSTONES)",
     .kind = SKR_OPTION_SWITCH, .variable = "PUBLISH_TOMBSTONES"},
    {"listen", '\0', "PLACE", "HOST:PORT of /healthz and /metrics; :80",
     .kind = SKR_OPTION_TEXT, .variable = "HTTP_LISTEN"},
    {0},
};

static const struct skr_option publish_options[] = {
    {"body", 'b', "TEXT", "the body; @FILE reads a file, - standard input",
     .kind = SKR_OPTION_TEXT, .required = true},
    {"transport", 't', "NAME", "the outbox; needed when there are several",
     .kind = SKR_OPTION_TEXT},
    {"id", '\0', "ID", "a UUID or ULID; made when not given",
     .kind = SKR_OPTION_ID},
    {"header", 'H', "NAME=VALUE", "a header; may be given several times",
     .kind = SKR_OPTION_PAIR},
    {"traceparent", '\0', "TEXT", "W3C trace context, kept as a header",
     .kind = SKR_OPTION_TEXT},
    {"tracestate", '\0', "TEXT", "what goes with it", .kind = SKR_OPTION_TEXT},
    {"partition-key", 'k', "KEY", "those that share it stay in order",
     .kind = SKR_OPTION_TEXT},
    {"delay", 'd', "SECONDS", "publish not before so many seconds from now",
     .kind = SKR_OPTION_NUMBER, .least = 0, .most = A_CENTURY_S},
    {"content-type", '\0', "TYPE", "application/json by default",
     .kind = SKR_OPTION_TEXT},
    {"json", '\0', NULL, "print the result as JSON", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option partition_options[] = {
    {"transport", 't', "NAME",
     "the outbox; needed with KEY if there are several",
     .kind = SKR_OPTION_TEXT},
    {"all", '\0', NULL, "every blocked partition", .kind = SKR_OPTION_FLAG},
    {"error", 'e', "TEXT", "of those only where the error has this text",
     .kind = SKR_OPTION_TEXT},
    {"dry-run", '\0', NULL, "say how many it would be",
     .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option setup_options[] = {
    {"print-sql", '\0', NULL, "print the statements and change nothing",
     .kind = SKR_OPTION_FLAG},
    {"dry-run", '\0', NULL, "look, and say what would be made",
     .kind = SKR_OPTION_FLAG},
    {"tune", '\0', NULL, "also change what setup otherwise only advises",
     .kind = SKR_OPTION_FLAG},
    {"notify", '\0', NULL, "let inserts wake a relay that sleeps (PostgreSQL)",
     .kind = SKR_OPTION_FLAG},
    {"no-notify", '\0', NULL, "take that away again", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option setup_deduplication_options[] = {
    {"force", 'f', NULL, "create the table", .kind = SKR_OPTION_FLAG},
    {"migration", '\0', NULL, "write a Doctrine migration instead",
     .kind = SKR_OPTION_FLAG},
    {"print-sql", '\0', NULL, "print the statements (the default)",
     .kind = SKR_OPTION_FLAG},
    {"dry-run", '\0', NULL, "look, and say what would be made",
     .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option setup_amqp_options[] = {
    {"dry-run", '\0', NULL, "say what would be declared; asks no server",
     .kind = SKR_OPTION_FLAG},
    {"dump", '\0', NULL, "print RabbitMQ definitions as JSON instead",
     .kind = SKR_OPTION_FLAG},
    {"output", 'o', "FILE", "write the definitions into a file",
     .kind = SKR_OPTION_TEXT},
    {"vhost", '\0', "VHOST", "another vhost than the DSN's",
     .kind = SKR_OPTION_TEXT},
    {"dsn", '\0', "DSN", "another server than the amqp transport's",
     .kind = SKR_OPTION_TEXT, .is_secret = true},
    {0},
};

#define FAILED_FILTERS                                                    \
    {"transport", 't', "NAME", "those that failed in this transport",     \
     .kind = SKR_OPTION_TEXT},                                            \
        {"name", 'n', "PATTERN", "messages of this name, as in order.*",  \
         .kind = SKR_OPTION_TEXT},                                        \
        {"class", '\0', "PATTERN", "messages of this PHP class",          \
         .kind = SKR_OPTION_TEXT},                                        \
        {"error", 'e', "TEXT", "those whose error has this in it",        \
         .kind = SKR_OPTION_TEXT},                                        \
        {"since", 's', "TIME", "failed since 15m, 2h, 7d, or a time",     \
         .kind = SKR_OPTION_SINCE},                                       \
        {"older-than", '\0', "TIME", "failed before 12h, 30d, or a time", \
         .kind = SKR_OPTION_SINCE},                                       \
        {"max",                                                           \
         'm',                                                             \
         "N",                                                             \
         "so many at most",                                               \
         .kind = SKR_OPTION_NUMBER,                                       \
         .least = 1,                                                      \
         .most = INT64_MAX},                                              \
    {                                                                     \
        "database", '\0', "NAME", "only those in this database",          \
            .kind = SKR_OPTION_TEXT                                       \
    }

static const struct skr_option failed_show_options[] = {
    FAILED_FILTERS,
    {"stats", '\0', NULL, "count them by their errors",
     .kind = SKR_OPTION_FLAG},
    {"json", '\0', NULL, "print as JSON", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option failed_retry_options[] = {
    FAILED_FILTERS,
    {"all", '\0', NULL, "all failed messages", .kind = SKR_OPTION_FLAG},
    {"to", '\0', "TRANSPORT", "there instead of where it failed",
     .kind = SKR_OPTION_TEXT},
    {"rate", '\0', "N", "so many a second at most", .kind = SKR_OPTION_NUMBER,
     .least = 1, .most = 1000000},
    {"dry-run", '\0', NULL, "say what would be done", .kind = SKR_OPTION_FLAG},
    {"force", 'f', NULL, "as Symfony has it; it never asks",
     .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option failed_remove_options[] = {
    FAILED_FILTERS,
    {"all", '\0', NULL, "all failed messages", .kind = SKR_OPTION_FLAG},
    {"rate", '\0', "N", "so many a second at most", .kind = SKR_OPTION_NUMBER,
     .least = 1, .most = 1000000},
    {"dry-run", '\0', NULL, "say what would be done", .kind = SKR_OPTION_FLAG},
    {"force", 'f', NULL, "do not ask", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option stats_options[] = {
    {"watch", 'w', NULL, "show it again and again", .kind = SKR_OPTION_FLAG},
    {"interval", 'i', "SECONDS", "how often, and what rates are measured over",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 3600},
    {"json", '\0', NULL, "print as JSON", .kind = SKR_OPTION_FLAG},
    {"format", '\0', "FORMAT", "txt, or json: counts as Symfony prints them",
     .kind = SKR_OPTION_CHOICE, .choices = "txt json"},
    {0},
};

static const struct skr_option cleanup_outbox_options[] = {
    {"days", 'd', "N", "keep so many days; 7 by default",
     .kind = SKR_OPTION_NUMBER, .least = 0, .most = 36500},
    {"batch-size", 'b', "N", "rows of a step at most; 1000 by default",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 100000},
    {"dry-run", '\0', NULL, "only count", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option deduplication_cleanup_options[] = {
    {"days", 'd', "N", "keep so many days; 30 by default",
     .kind = SKR_OPTION_NUMBER, .least = 0, .most = 36500},
    {"batch-size", 'b', "N", "rows of a step at most; 1000 by default",
     .kind = SKR_OPTION_NUMBER, .least = 1, .most = 100000},
    {"dry-run", '\0', NULL, "only count", .kind = SKR_OPTION_FLAG},
    {0},
};

static const struct skr_option no_options[] = {
    {0},
};

static const struct skr_option config_options[] = {
    {"json", '\0', NULL, "print as JSON (show, keys)", .kind = SKR_OPTION_FLAG},
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
        .run = skr_command_publish,
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
        .options = no_options,
        .reports = true,
        .run = skr_command_test_inbox_dedup,
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
        .run = skr_command_stats,
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
        .run = skr_command_cleanup_outbox,
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
        .run = skr_command_deduplication_cleanup,
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
