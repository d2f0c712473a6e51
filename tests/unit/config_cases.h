// SPDX-License-Identifier: MIT
// Configurations with mistakes or warnings, and the reports they must give.
// The environment is that of set_environment() in test_config.c.

#ifndef SKR_TESTS_CONFIG_CASES_H
#define SKR_TESTS_CONFIG_CASES_H

struct config_case {
    const char *yaml;
    const char *reports;  // "line: text" each, "warning" before a warning
};

#define FORWARD(to, more) \
    "transports:\n  a: {dsn: 'amqp://h', forward_to: " to more "}\n"
#define OUTBOX "transports:\n  outbox:\n    dsn: doctrine://default\n"

static const struct config_case config_cases[] = {
    // Not a configuration at all.
    {"", "0: the file is empty; it needs at least 'transports:'\n"},
    {"# nothing\n", "0: the file is empty; it needs at least 'transports:'\n"},
    {"- a\n- b\n", "1: a map of keys such as 'transports:' is needed\n"},
    {"transports: {a: 'queue://default'\n",
     "2: not YAML: did not find expected ',' or '}' (column 1); while "
     "parsing a flow mapping that begins in line 1\n"},
    {"a: b: c\n", "1: not YAML: mapping values are not allowed in this "
                  "context (column 5)\n"},
    {"a: \x01\n",
     "1: not YAML: control characters are not allowed at byte 3\n"},
    {"a: \"x\\0y\"\n", "1: a text holds a zero byte\n"},
    {"transports: {}\n---\ntransports: {}\n",
     "2: a second document begins here; one file holds one document\n"},
    {"? [a, b]\n: c\n", "1: a key must be a text\n"},
    {"x-a: &a [*a, *a]\n", "1: nested too deeply (32 levels at most)\n"},
    {"x-a: &a {b: 1}\ntransports:\n  <<: [*a, text]\n",
     "3: << needs a map or a list of maps, and stands once in a map\n"},

    // Keys.
    {OUTBOX "    claim: rows\n",
     "4: transports.outbox.claim: exclusive, shared or lease is needed, not "
     "text 'rows'\n"},
    {"transprots: {}\n",
     "1: transprots: unknown key; did you mean 'transports'?\n"},
    {"nonsense: 1\n",
     "1: nonsense: unknown key; known here: databases, transports, "
     "failure_transport, message_broker, handlers, message_broker_amqp, "
     "cleanup, metrics, framework\n"},
    {OUTBOX "    retry_strategy:\n      dealy: 5\n",
     "5: transports.outbox.retry_strategy.dealy: unknown key; did you mean "
     "'delay'?\n"},
    {OUTBOX "    options: {tabel_name: a, exchange: b}\n",
     "4: transports.outbox.options.tabel_name: unknown key; did you mean "
     "'table_name'?\n"
     "4: transports.outbox.options.exchange: unknown key; known here: "
     "table_name, queue_name, redeliver_timeout, auto_setup, time_zone\n"},
    {OUTBOX "    options: {in_flight: 5, claim: lease}\n",
     "4: transports.outbox.options.in_flight: unknown key; it belongs beside "
     "'options', not into it\n"
     "4: transports.outbox.options.claim: unknown key; it belongs beside "
     "'options', not into it\n"},
    {"transports: {a: 'queue://default?on_success=keep'}\n",
     "1: transports.a?on_success: unknown parameter; it belongs beside "
     "'options', not into it\n"},
    {"framework:\n  messenger:\n    transport: {}\n",
     "3: framework.messenger.transport: unknown key; did you mean "
     "'transports'?\n"},
    {"message_broker:\n  inbox:\n    message_type: {}\n",
     "3: message_broker.inbox.message_type: unknown key; did you mean "
     "'message_types'?\n"},
    {OUTBOX "    dsn: doctrine://default\n",
     "4: transports.outbox.dsn: stands twice, first in line 3\n"},
    {"transports:\n  a: queue://default\n  a: queue://default\n",
     "3: transports.a: stands twice, first in line 2\n"},
    {"transports: {}\nframework: {messenger: {transports: {}}}\n",
     "2: framework.messenger.transports: is the same as transports, which is "
     "given in line 1\n"},
    {"message_broker:\n  inbox:\n    deduplication_table_name: a\n"
     "    deduplication: {table_name: b}\n",
     "4: message_broker.inbox.deduplication.table_name: is the same as "
     "message_broker.inbox.deduplication_table_name, which is given in line "
     "3\n"},
    {"transports:\n  outbox: {serializer: a}\n",
     "2: transports.outbox: the key 'dsn' is missing\n"},
    {"handlers: {order.placed: {}}\n",
     "1: handlers.order.placed: one of the keys 'sql', 'library' and 'command' "
     "is needed\n"},
    {"handlers: {order.placed: {script: a.py, sql: 'DELETE FROM a'}}\n",
     "1: handlers.order.placed.script: unknown key; known here: sql, library, "
     "function, command, env, timeout, deduplicates, transaction\n"},
    {"handlers: {order.placed: {sql: 'DELETE FROM a', deduplicates: true}}\n",
     "1: handlers.order.placed.deduplicates: only a command may record "
     "messages "
     "by itself; leave this out\n"},
    {"handlers: {order.placed: {library: a.so, function: b, sql: 'DELETE FROM "
     "a'}}\n",
     "1: handlers.order.placed.library: the handler has 'sql' already; one is "
     "enough\n"},
    {"handlers: {order.placed: {library: a.so}}\n",
     "1: handlers.order.placed.library: the key 'function' is missing beside "
     "it\n"},
    {"handlers:\n  order.placed:\n    command: php worker.php\n",
     "3: handlers.order.placed.command: a program with arguments is written as "
     "a list, such as [php, worker.php]\n"},
    {"handlers: {order.placed: {command: []}}\n",
     "1: handlers.order.placed.command: the list of words is empty\n"},
    {"handlers: {order.placed: {command: [a], transaction: true}}\n",
     "1: handlers.order.placed.transaction: a command cannot take part in the "
     "transaction; leave this out\n"},
    {"handlers: {order.placed: {sql: 'DELETE FROM a', transaction: false}}\n",
     "1: handlers.order.placed.transaction: SQL runs in the transaction; only "
     "the function of a library can do without\n"},
    {"handlers: {order.placed: {command: [a], timeout: 0}}\n",
     "1: handlers.order.placed.timeout: a whole number from 1 to 86400 is "
     "needed, not 0\n"},

    // Types and ranges.
    {OUTBOX "    retry_strategy: {delay: soon, max_retries: 1.5, multiplier: "
            "x, max_delay: [1]}\n",
     "4: transports.outbox.retry_strategy.delay: a whole number is needed, "
     "not text 'soon'\n"
     "4: transports.outbox.retry_strategy.max_retries: a whole number is "
     "needed, not text '1.5'\n"
     "4: transports.outbox.retry_strategy.multiplier: a number is needed, not "
     "text 'x'\n"
     "4: transports.outbox.retry_strategy.max_delay: a whole number is "
     "needed, not a list\n"},
    {OUTBOX "    retry_strategy:\n      delay:\n      max_retries: -1\n"
            "      multiplier: 0.5\n      jitter: 1.1\n",
     "5: transports.outbox.retry_strategy.delay: a whole number is needed, "
     "not nothing\n"
     "6: transports.outbox.retry_strategy.max_retries: a whole number from 0 "
     "to 1000000 is needed, not -1\n"
     "7: transports.outbox.retry_strategy.multiplier: a number from 1 to 1000 "
     "is needed, not 0.5\n"
     "8: transports.outbox.retry_strategy.jitter: a number from 0 to 1 is "
     "needed, not 1.1\n"},
    {OUTBOX "    in_flight: 0\n    in_flight_bytes: 8 MB/s\n    batch: "
            "99999999999999999999\n",
     "4: transports.outbox.in_flight: a whole number from 1 to 1000000 is "
     "needed, not 0\n"
     "5: transports.outbox.in_flight_bytes: a size such as 65536, 64 KiB or 8 "
     "MiB is needed, not text '8 MB/s'\n"
     "6: transports.outbox.batch: a whole number from 1 to 10000 is needed, "
     "not 99999999999999999999\n"},
    {OUTBOX "    options: {auto_setup: maybe, redeliver_timeout: 2, "
            "table_name: 'a; DROP', queue_name: ''}\n",
     "4: transports.outbox.options.auto_setup: true or false is needed, not "
     "text 'maybe'\n"
     "4: transports.outbox.options.redeliver_timeout: a whole number from 3 "
     "to 604800 is needed, not 2\n"
     "4: transports.outbox.options.table_name: a table name of letters, "
     "digits and underscores, 63 at most and no digit first, is needed, not "
     "text 'a; DROP'\n"
     "4: transports.outbox.options.queue_name: a text is needed, not an empty "
     "text\n"},
    {"transports: [a]\ndatabases: a\n",
     "1: transports: a map of names is needed, not a list\n"
     "2: databases: a map of names is needed, not text 'a'\n"},
    {"transports:\n  a: [1]\n  b:\n  c: {dsn: {}}\n",
     "2: transports.a: a DSN or a map is needed, not a list\n"
     "3: transports.b: a DSN or a map is needed, not nothing\n"
     "4: transports.c.dsn: a DSN is needed, not a map\n"},
    // A secret at the wrong place is not shown either.
    {OUTBOX "    in_flight: 'mysql://u:hidden@h/d'\n",
     "4: transports.outbox.in_flight: a whole number is needed, not text "
     "'mysql://u:***@h/d'\n"},

    // DSNs.
    {"transports: {a: 'user:hidden@host'}\n",
     "1: transports.a: a DSN begins with scheme://, as in sqlite:///shop.db\n"},
    {"transports: {a: 'doctrine://default?tabel_name=x&redeliver_timeout=soon&"
     "table_name=1a'}\n",
     "1: transports.a?tabel_name: unknown parameter; did you mean "
     "'table_name'?\n"
     "1: transports.a?redeliver_timeout: a whole number is needed\n"
     "1: transports.a?table_name: a table name of letters, digits and "
     "underscores, 63 at most and no digit first, is needed\n"},
    {"transports: {a: 'doctrine://user:hidden@default:1/path'}\n",
     "1: transports.a: doctrine://DATABASE?... is needed: the name of a "
     "database, without user, port or path\n"},
    {"transports: {a: 'doctrin://default'}\n",
     "warning 1: transports.a: doctrin:// is unknown, so that nothing can use "
     "this transport; did you mean doctrine://?\n"},
    {"transports: {a: 'redis://default'}\n",
     "warning 1: transports.a: redis:// is unknown, so that nothing can use "
     "this transport; doctrine, queue, ordered-doctrine, amqp, amqps and "
     "kafka are known\n"},
    {"databases: {default: 'oracle://u:hidden@h/d'}\n",
     "1: databases.default: no database has the scheme oracle://; sqlite, "
     "mysql and pgsql are known\n"},
    {"transports: {a: 'queue://default?queue_name=a&queue_name=b&queue=c'}\n",
     "1: transports.a: the parameter 'queue_name' stands twice in the DSN\n"
     "1: transports.a?queue: unknown parameter; known here: table_name, "
     "queue_name, redeliver_timeout, auto_setup, time_zone\n"},
    {"transports: {a: 'amqp://h?vhost=1&vhost=2&queues[]=1&queues[]=2'}\n",
     "1: transports.a: the parameter 'vhost' stands twice in the DSN\n"},
    {"databases: {default: 'sqlite:///a?busy_timeout=1&busy_timeout=2'}\n",
     "1: databases.default: the parameter 'busy_timeout' stands twice in the "
     "DSN\n"},
    {"transports: {a: 'queue://default?queue_name=a%00b'}\n",
     "1: transports.a: the parameter value of the DSN holds %00, a zero byte, "
     "which ends every text\n"},
    // Databases that could never be opened.
    {"databases:\n  a: 'sqlite://x.db'\n  b: 'sqlite:///'\n"
     "  c: 'sqlite:///:memory:'\n  d: 'sqlite:///x.db?mode=ro'\n"
     "  e: 'sqlite://user:hidden@host/x.db'\n"
     "  f: 'sqlite://user:hidden@/x.db'\n"
     "  g: 'sqlite:///x.db?busy_timeout=soon'\n",
     "2: databases.a: sqlite://x.db: a file needs three slashes, "
     "sqlite:///shop.db, or four where the path is absolute, and neither host "
     "nor user\n"
     "3: databases.b: the DSN names no file; write sqlite:///shop.db\n"
     "4: databases.c: sqlite:///:memory: is refused: every connection would "
     "have a database of its own, which no other sees\n"
     "5: databases.d: mode is not a parameter of a sqlite:// DSN; it has "
     "busy_timeout\n"
     "6: databases.e: sqlite://host: a file needs three slashes, "
     "sqlite:///shop.db, or four where the path is absolute, and neither host "
     "nor user\n"
     "7: databases.f: sqlite://: a file needs three slashes, "
     "sqlite:///shop.db, or four where the path is absolute, and neither host "
     "nor user\n"
     "8: databases.g: busy_timeout=soon in the DSN: a whole number from 0 to "
     "3600000 is needed\n"},
    // Options of drivers are of the types that the table has.
    {"transports:\n  a:\n    dsn: amqps://localhost\n    options:\n"
     "      prefetch_count: 0\n      heartbeat: soon\n      verify: maybe\n"
     "      retry_via: post\n      vhost: [a]\n      read_timeout: x\n"
     "  b:\n    dsn: kafka://localhost/a\n    options:\n"
     "      connect_timeout: 0.5\n      partitioner: random\n",
     "5: transports.a.options.prefetch_count: a whole number from 1 to 65535 "
     "is needed, not 0\n"
     "6: transports.a.options.heartbeat: a number is needed, not text 'soon'\n"
     "7: transports.a.options.verify: true or false is needed, not text "
     "'maybe'\n"
     "8: transports.a.options.retry_via: row or delay_queue is needed, not "
     "text 'post'\n"
     "9: transports.a.options.vhost: a text is needed, not a list\n"
     "14: transports.b.options.connect_timeout: a whole number is needed, not "
     "text '0.5'\n"
     "15: transports.b.options.partitioner: murmur2 or fnv1a is needed, not "
     "text 'random'\n"},
    // Schemas and quotes. Words of SQL are names like others.
    {OUTBOX "    options: {table_name: shop.outbox}\n"
            "message_broker: {inbox: {deduplication: {table_name: key}}}\n",
     "4: transports.outbox.options.table_name: a table name of letters, "
     "digits and underscores, 63 at most and no digit first, is needed, not "
     "text 'shop.outbox'\n"},
    {"transports: {a: 'queue://default?table_name=%60select%60', "
     "b: 'queue://default?table_name=Order'}\n",
     "1: transports.a?table_name: a table name of letters, digits and "
     "underscores, 63 at most and no digit first, is needed\n"},
    // A queue has one name.
    {"transports:\n  a:\n    dsn: queue://default\n    options:\n"
     "      queue_name: b\n      queue: {name: c, nmae: d}\n",
     "6: transports.a.options.queue.nmae: unknown key; did you mean 'name'?\n"
     "6: transports.a.options.queue.name: is the same as queue_name, which is "
     "given in line 5\n"},

    // Names that lead nowhere.
    {"databases: {shop: 'sqlite:///a', other: 'sqlite:///b'}\n" OUTBOX,
     "4: transports.outbox.dsn: there is no database 'default'; configured: "
     "shop, other\n"},
    {OUTBOX "    relay_to: nowhere\nfailure_transport: failed\n",
     "4: transports.outbox.relay_to: there is no transport 'nowhere'; "
     "configured: outbox\n"
     "5: failure_transport: there is no transport 'failed'; configured: "
     "outbox\n"},
    {"message_broker: {inbox: {database: other}}\n",
     "1: message_broker.inbox.database: there is no database 'other'; "
     "configured: default\n"},
    {"databases: {shop: 'sqlite:///a'}\n"
     "handlers: {order.placed: {sql: 'DELETE FROM a'}}\n",
     "2: handlers: handlers run in the database 'default', which is not "
     "configured; name another in message_broker.inbox.database\n"},
    {"transports: {'a b': 'queue://default', '-a': 'queue://default'}\n",
     "1: transports.a b: a name needs letters, digits, '_', '.' and '-', and "
     "no '-' first\n"
     "1: transports.-a: a name needs letters, digits, '_', '.' and '-', and "
     "no '-' first\n"},

    // Transports that do not fit each other.
    {OUTBOX "    relay_to: b\n  b: doctrine://default?queue_name=b\n",
     "4: transports.outbox.relay_to: 'b' is an outbox itself (doctrine://); a "
     "broker such as queue:// is needed\n"},
    {OUTBOX "    relay_to: b\n  b: queue://default\n",
     "4: transports.outbox.relay_to: 'b' is the same queue in the same table; "
     "messages would go round in circles\n"},
    {OUTBOX "    relay_to: b\n"
            "  b: queue://default?table_name=Messenger_Messages\n",
     "4: transports.outbox.relay_to: 'b' is the same queue in the same table; "
     "messages would go round in circles\n"},
    // A server in its default setting keeps these two apart.
    {"databases: {default: 'mysql://h/a'}\n" OUTBOX "    relay_to: b\n"
     "  b: queue://default?table_name=Messenger_Messages\n",
     ""},
    {"transports:\n  a: {dsn: 'queue://default', relay_to: a}\n",
     "2: transports.a.relay_to: only an outbox (doctrine://) is relayed, not "
     "queue://\n"},
    {FORWARD("inbox", "") "  inbox: queue://default\n", ""},
    {FORWARD(
         "inbox",
         ", deduplication: {table_name: seen}") "  inbox: queue://default\n",
     ""},
    {FORWARD("inbox", "") "  other: queue://default\n",
     "2: transports.a.forward_to: there is no transport 'inbox'; configured: "
     "a, other\n"},
    {FORWARD("inbox", "") "  inbox: amqp://h\n",
     "2: transports.a.forward_to: 'inbox' is amqp://; a queue:// in the "
     "database 'default' is needed\n"},
    {FORWARD("inbox", "") "  inbox: doctrine://default\n",
     "2: transports.a.forward_to: 'inbox' is doctrine://; a queue:// in the "
     "database 'default' is needed\n"},
    {FORWARD("a", ""),
     "2: transports.a.forward_to: 'a' is the same queue; messages would go "
     "round in circles\n"},
    {"transports:\n  a: {dsn: 'queue://default', forward_to: b}\n"
     "  b: queue://default\n",
     "2: transports.a.forward_to: 'b' is the same queue; messages would go "
     "round in circles\n"},
    {FORWARD("b", "") "  b: {dsn: 'queue://default', forward_to: c}\n"
                      "  c: queue://default?queue_name=c\n",
     "2: transports.a.forward_to: 'b' forwards its messages itself; handlers "
     "have to work that queue\n"},
    {"transports:\n  a: {dsn: 'doctrine://default', forward_to: b}\n"
     "  b: queue://default?queue_name=b\n",
     "2: transports.a.forward_to: doctrine:// is not consumed but relayed; "
     "write relay_to\n"},
    {FORWARD("b", "") "  b: \"queue://default?queue_name=b%27\"\n",
     "2: transports.a.forward_to: the queue_name of 'b' has a quote or a "
     "backslash; give it another\n"},
    {"databases: {default: 'sqlite:///a', b: 'sqlite:///b'}\n" FORWARD(
         "b", "") "  b: queue://b\n",
     "3: transports.a.forward_to: 'b' stands in the database 'b', but messages "
     "are recorded in 'default'; both need one. Name it in "
     "message_broker.inbox.database\n"},
    {"databases: {b: 'sqlite:///b'}\n" FORWARD("b", "") "  b: queue://b\n",
     "3: transports.a.forward_to: 'b' stands in the database 'b', but messages "
     "are recorded in 'none'; both need one. Name it in "
     "message_broker.inbox.database\n"},
    {FORWARD("b", ", deduplication: {table_name: "
                  "message_broker_deduplication}") "  b: queue://default\n",
     "2: transports.a.deduplication: the table message_broker_deduplication is "
     "that in which the handlers of 'b' record messages: they would take each "
     "for a duplicate. With forward_to, table_name is another table, or left "
     "out\n"},
    {FORWARD(
         "b",
         ", missing_id: handle, unhandled: ignore") "  b: queue://default\n",
     "2: transports.a.missing_id: 'handle': with forward_to it is fail or "
     "derive, as a message without an id would be stored each time that it "
     "comes\n"
     "2: transports.a.unhandled: every message is forwarded to 'b': set this "
     "there, and leave it out here\n"},
    {"databases: {default: 'sqlite:///a', b: 'sqlite:///b'}\n" OUTBOX
     "    relay_to: q\n  q: queue://b\n  failed: doctrine://b?queue_name=f\n"
     "failure_transport: failed\n",
     "8: failure_transport: 'failed' stands in the database 'b', but the "
     "outbox 'outbox' in 'default'; both need one, since a message moves in "
     "one transaction. Without a failure_transport each outbox keeps its "
     "own\n"},
    {OUTBOX "    relay_to: q\n  q: queue://default?queue_name=q\n"
            "  failed: doctrine://default\nfailure_transport: failed\n",
     "7: failure_transport: 'failed' is the queue of the outbox 'outbox' "
     "itself; give it another queue_name\n"},
    {OUTBOX "    relay_to: q\n  q: queue://default?queue_name=q\n"
            "failure_transport: outbox\n",
     "6: failure_transport: 'outbox' is an outbox that is relayed to 'q'; "
     "failed messages need a transport without relay_to\n"},
    {"transports: {q: 'queue://default'}\nfailure_transport: q\n",
     "2: failure_transport: 'q' is queue://; failed messages need "
     "doctrine://, in the database of the outbox\n"},

    // The environment.
    {"transports:\n  a: '%env(SKR_TEST_ABSENT)%'\n",
     "2: transports.a: the environment variable SKR_TEST_ABSENT is not set\n"},
    {OUTBOX "    batch: '%env(int:SKR_TEST_TEXT)%'\n",
     "4: transports.outbox.batch: the environment variable SKR_TEST_TEXT is "
     "not a whole number\n"},
    {OUTBOX "    batch: '%env(SKR_TEST_TEXT)%'\n",
     "4: transports.outbox.batch: a whole number is needed, not text "
     "'%env(SKR_TEST_TEXT)%'\n"},
    {OUTBOX "    options: {auto_setup: '%env(bool:SKR_TEST_TEXT)%'}\n",
     "4: transports.outbox.options.auto_setup: the environment variable "
     "SKR_TEST_TEXT is no boolean: true or false is needed\n"},
    {OUTBOX "    options: {auto_setup: '%env(bool:SKR_TEST_EMPTY)%'}\n",
     "4: transports.outbox.options.auto_setup: the environment variable "
     "SKR_TEST_EMPTY is empty: true or false is needed\n"},
    {OUTBOX "    options: {auto_setup: ''}\n",
     "4: transports.outbox.options.auto_setup: true or false is needed, not an "
     "empty text\n"},
    {"databases: {default: '%env(SKR_TEST_EMPTY)%'}\n",
     "1: databases.default: a DSN is needed, not an empty text, which is what "
     "stands in %env(SKR_TEST_EMPTY)%\n"},
    {"transports: {a: 'doctrine://default?auto_setup='}\n",
     "1: transports.a?auto_setup: true or false is needed\n"},
    {"transports: {a: 'amqps://h?verify=%env(SKR_TEST_EMPTY)%'}\n",
     "1: transports.a: verify= in the DSN: true or false is needed\n"},
    {"transports:\n  a: {dsn: 'amqps://h', options: {verify: ''}}\n",
     "2: transports.a.options.verify: true or false is needed, not an empty "
     "text\n"},
    {"transports:\n  a: {dsn: 'amqp://h', options: {prefetch_count: ''}}\n",
     "2: transports.a.options.prefetch_count: a whole number is needed, not an "
     "empty text\n"},
    {"transports:\n  a: {dsn: 'amqp://h', options: {retry_via: ''}}\n",
     "2: transports.a.options.retry_via: row or delay_queue is needed, not an "
     "empty text\n"},
    {OUTBOX "    serializer: '%env(file:SKR_TEST_TEXT)%'\n",
     "4: transports.outbox.serializer: the file /etc/words, which the "
     "environment "
     "variable SKR_TEST_TEXT names, cannot be read: No such file or "
     "directory\n"},
    {OUTBOX "    serializer: '%env(json:SKR_TEST_TEXT)%'\n",
     "4: transports.outbox.serializer: %env(json:SKR_TEST_TEXT)% is not "
     "understood; resolve:, int:, bool:, string:, file: and urlencode: may "
     "stand before the name\n"},
    {OUTBOX "    serializer: 'a%env(b'\n    stamp_namespace: '%env(a b)%'\n",
     "4: transports.outbox.serializer: %env( is not closed by )%; write %% "
     "for a plain %\n"
     "5: transports.outbox.stamp_namespace: %env()% needs the name of an "
     "environment variable, not 'a b'\n"},
    {OUTBOX "    serializer: '%env(resolve:SKR_TEST_LOOP)%'\n",
     "4: transports.outbox.serializer: environment variables refer to each "
     "other too deeply (8 levels at most)\n"},
    {OUTBOX "    serializer: '%env(SKR_TEST_BYTES)%'\n",
     "4: transports.outbox.serializer: the environment variable "
     "SKR_TEST_BYTES is not UTF-8\n"},

    // What belongs to others is named once a section.
    {"framework:\n  secret: a\n  messenger:\n    default_middleware: "
     "{enabled: true}\n    buses: {a: ~}\n    routing:\n"
     "doctrine: {dbal: {}}\nservices: {a: b}\nx-b: 1\nwhen@test: {a: b}\n",
     "warning 2: framework: ignored, since it means nothing here: secret, "
     "messenger.default_middleware, messenger.buses\n"
     "warning 7: doctrine: ignored: it means nothing here\n"
     "warning 8: services: ignored: it means nothing here\n"
     "warning 10: when@test: ignored: it means nothing here\n"},
    {OUTBOX "    rate_limiter: a\n    retry_strategy: {service: b}\n",
     "warning 4: transports: ignored, since it means nothing here: "
     "outbox.rate_limiter, outbox.retry_strategy.service\n"},
    {"message_broker_amqp:\n  topology:\n    exchanges: {a: {durable: x}}\n"
     "    bindings: [{exchange: a}]\n  routing: {order.placed: {sendre: b}}\n",
     "3: message_broker_amqp.topology.exchanges.a.durable: true or false is "
     "needed, not text 'x'\n"
     "3: message_broker_amqp.topology.exchanges.a: the key 'type' is missing\n"
     "4: message_broker_amqp.topology.bindings[0]: the key 'queue' is "
     "missing\n"
     "5: message_broker_amqp.routing.order.placed.sendre: unknown key; did "
     "you mean 'sender'?\n"},
    {"message_broker_amqp:\n  topology:\n    exchanges: {a: {type: topical}}\n"
     "    queues: {b: {arguments: {x-expires: soon, x-queue-type: [c]}}}\n"
     "    bindings: [{exchange: a, queue: b, arguments: [d]}]\n"
     "  routing: {order.placed: {sender: e, headers: {f: [g]}}}\n",
     "3: message_broker_amqp.topology.exchanges.a.type: no exchange has the "
     "type 'topical'; direct, fanout, topic or headers is needed\n"
     "4: message_broker_amqp.topology.queues.b.arguments.x-expires: a whole "
     "number is needed\n"
     "4: message_broker_amqp.topology.queues.b.arguments.x-queue-type: a text, "
     "a number or a boolean is needed\n"
     "5: message_broker_amqp.topology.bindings[0].arguments: a map is needed\n"
     "6: message_broker_amqp.routing.order.placed.sender: there is no "
     "transport 'e'; name one, or leave sender out for the outbox's relay_to\n"
     "6: message_broker_amqp.routing.order.placed.headers: a map of texts is "
     "needed\n"},
    {"transports:\n  amqp:\n    dsn: 'amqp://localhost'\n"
     "    options: {exchange: {name: a, type: b}}\n"
     "  other:\n    dsn: 'amqp://localhost'\n    options: {exchange: a}\n",
     "warning 7: transports.other.options: the option 'exchange' means nothing "
     "to amqp://\n"
     "4: transports.amqp.options.exchange.type: no exchange has the type 'b'; "
     "direct, fanout, topic or headers is needed\n"
     "7: transports.other.options.exchange: a map is needed, such as {name: "
     "orders, type: topic}\n"},
};

static const char full_config[] =
    "databases: {default: 'sqlite:///shop.db', queue: 'sqlite:///queue.db'}\n"
    "failure_transport: failed\n"
    "transports:\n"
    "  outbox:\n"
    "    dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=o'\n"
    "    serializer: messenger.transport.symfony_serializer\n"
    "    options: {table_name: other, redeliver_timeout: 7, auto_setup: no}\n"
    "    retry_strategy: {max_retries: 5, delay: 20, multiplier: 1.5,\n"
    "                     max_delay: 90, jitter: 0.25}\n"
    "    relay_to: orders\n"
    "    stamp_namespace: ~\n"
    "    in_flight: '2000'\n"
    "    in_flight_bytes: 4 MiB\n"
    "    batch: 50\n"
    "  orders: 'queue://queue?queue_name=orders'\n"
    "  failed: 'doctrine://default?queue_name=failed'\n"
    "message_broker:\n"
    "  inbox:\n"
    "    database: queue\n"
    "    message_types: {order.placed: 'App\\OrderPlaced'}\n"
    "    deduplication: {table_name: seen, auto_setup: true}\n"
    "handlers:\n"
    "  order.placed: {sql: 'INSERT INTO a (b) VALUES (:body)'}\n"
    "  order.paid:\n"
    "    sql:\n"
    "      - |\n"
    "        UPDATE a\n"
    "          SET b = '100%'\n"
    "      - DELETE FROM a WHERE id = :id\n"
    "  order.sent: {library: ./a.so, function: send, transaction: false}\n"
    "  order.lost: {command: [php, 'a b.php', ''], timeout: 5}\n";

// The sections, keys and forms of value of Symfony projects that use Freyr.
static const char symfony_config[] =
    "framework:\n"
    "  messenger:\n"
    "    failure_transport: failed\n"
    "    default_middleware: {enabled: true, allow_no_handlers: false}\n"
    "    buses:\n"
    "      messenger.bus.default:\n"
    "        middleware:\n"
    "          - 'Freyr\\MessageBroker\\Outbox\\MessageIdStampMiddleware'\n"
    "          - doctrine_transaction\n"
    "    transports:\n"
    "      outbox:\n"
    "        dsn: 'doctrine://default?table_name=messenger_outbox&"
    "queue_name=outbox'\n"
    "        serializer: 'Freyr\\MessageBroker\\Serializer\\OutboxSerializer'\n"
    "        options:\n"
    "          auto_setup: true  # made on first use\n"
    "        retry_strategy: {max_retries: 3, delay: 1000, multiplier: 2}\n"
    "      amqp:\n"
    "        dsn: '%env(MESSENGER_AMQP_DSN)%'\n"
    "        options: {auto_setup: false}\n"
    "      amqp_orders:\n"
    "        dsn: '%env(MESSENGER_AMQP_DSN)%'\n"
    "        options:\n"
    "          auto_setup: false\n"
    "          queue: {name: 'orders_queue'}\n"
    "          queues: {orders: {binding_keys: [order.*, '%env("
    "SKR_TEST_TEXT)%']}}\n"
    "          password: hidden\n"
    "      ordered: 'ordered-doctrine://default?queue_name=a'\n"
    "      failed:\n"
    "        dsn: 'doctrine://default?queue_name=failed'\n"
    "        options: {auto_setup: true}\n"
    "    routing:\n"
    "      # 'App\\Domain\\Event\\OrderPlaced': outbox\n"
    "doctrine:\n"
    "    dbal:\n"
    "        types:\n"
    "            id_binary: Freyr\\MessageBroker\\Doctrine\\Type\\IdType\n"
    "message_broker:\n"
    "  inbox:\n"
    "    message_types:\n"
    "    deduplication_table_name: seen\n"
    "message_broker_amqp:\n"
    "  routing: {order.placed: {sender: amqp, routing_key: orders.placed}}\n"
    "  topology:\n"
    "    exchanges: {orders: {type: topic, arguments: {a: 1}}}\n"
    "    queues: {orders_queue: {durable: true}, plain: ~}\n"
    "    bindings: [{exchange: orders, queue: orders_queue, binding_key: "
    "'#'}]\n"
    "services:\n"
    "  _defaults: {autowire: false}\n"
    "  Freyr\\MessageBroker\\Serializer\\Normalizer\\:\n"
    "    resource: '../src/Serializer/Normalizer/'\n"
    "    tags: [{ name: 'serializer.normalizer', priority: -1000 }]\n";

#endif
