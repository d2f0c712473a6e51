"""Mistakes in the configuration: file, line and key of each are named, and
nothing is touched."""
import json
import os
import pathlib
import re
import subprocess
import threading

import pytest

import shop as shops

# A line that is marked here is the one that must be named.
HERE = "  # here"

GOOD = """\
databases:
    default: 'sqlite:///shop.db'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders: 'queue://default?queue_name=orders'
handlers:
    order.placed:
        sql: SELECT 1
"""

# Name: (what stands in GOOD, what stands there instead, what is said).
MISTAKES = {
    "unknown key": (
        "        relay_to: orders", "        relay_too: orders  # here",
        ["transports.outbox.relay_too", "did you mean 'relay_to'?"]),
    "unknown section": (
        "handlers:", "handler:  # here", ["handler", "'handlers'"]),
    "unknown parameter of a DSN": (
        "&queue_name=outbox'", "&queue=outbox'  # here",
        ["transports.outbox.dsn?queue", "queue_name"]),
    "text where a number is needed": (
        "        relay_to: orders",
        "        relay_to: orders\n        in_flight: many  # here",
        ["transports.outbox.in_flight", "a whole number", "'many'"]),
    "number out of range": (
        "        relay_to: orders",
        "        relay_to: orders\n        in_flight: 0  # here",
        ["transports.outbox.in_flight", "from 1 to", "not 0"]),
    "list where a map is needed": (
        "transports:\n", "transports: []  # here\nx-unused:\n",
        ["transports", "a map", "not a list"]),
    "map where a text is needed": (
        "    default: 'sqlite:///shop.db'", "    default: {a: b}  # here",
        ["databases.default", "a DSN", "not a map"]),
    "text where a truth value is needed": (
        "        relay_to: orders",
        "        relay_to: orders\n        options:\n"
        "            auto_setup: perhaps  # here",
        ["transports.outbox.options.auto_setup", "true or false",
         "'perhaps'"]),
    "nothing where a DSN is needed": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:  # here", ["transports.orders", "needed"]),
    "option of RabbitMQ that makes no sense": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'amqp://guest:hunter2@mq/?heartbeat=soon'  # here",
        ["transports.orders", "heartbeat=soon", "seconds"]),
    "option of RabbitMQ's transport that makes no sense": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options: {prefetch_count: few}  # here",
        ["transports.orders.options.prefetch_count", "'few'",
         "a whole number"]),
    "map among the options of RabbitMQ's transport that is mistyped": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options:\n            exchang: {name: shop}  # here",
        ["transports.orders.options.exchang", "did you mean 'exchange'?"]),
    "list among the options of RabbitMQ's transport that is mistyped": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqps://guest:hunter2@mq/'\n"
        "        options:\n            queus: [billing]  # here",
        ["transports.orders.options.queus", "did you mean 'queues'?"]),
    "map in the query of a DSN of RabbitMQ that is mistyped": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'amqp://guest:hunter2@mq/?exchang[name]=shop'  # here",
        ["transports.orders", "'exchang[name]'", "did you mean 'exchange'?"]),
    "queue with a name of RabbitMQ's own": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options:\n            queues: {amq.bills: ~}  # here",
        ["transports.orders", "RabbitMQ's own", "another than amq.bills"]),
    "exchange with a name of RabbitMQ's own": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options:\n            exchange: {name: amq.shop}  # here",
        ["transports.orders", "RabbitMQ's own", "another than amq.shop"]),
    "list of queues that are maps": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options:\n            queues: [{orders: ~}]  # here",
        ["transports.orders.options", "queues", "{orders: ~} or [orders]"]),
    "option of Kafka that is mistyped": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'kafka://mq/?topcs=orders'  # here",
        ["transports.orders", "topcs", "did you mean topics?"]),
    "parameter of a mysql DSN that is mistyped": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:hunter2@db/shop?ssl_cer=a'  # here",
        ["databases.default", "ssl_cer is", "did you mean ssl_cert?"]),
    "argument of a queue that is no number": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@mq/'\n"
        "        options:\n            queues:\n"
        "                other: {arguments: {x-delivery-limit: 5}}\n"
        "                billing:\n                    arguments:\n"
        "                        x-delivery-limit: many  # here",
        ["transports.orders.options: queues[billing][arguments]"
         "[x-delivery-limit]: a whole number is needed, not 'many'"]),
    "path of a RabbitMQ DSN that goes on": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'amqp://guest:hunter2@mq/a/b/c/d'  # here",
        ["transports.orders", "a vhost and an exchange", "%2f"]),
    "slash in a password": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:hun/ter2@db/shop'  # here",
        ["databases.default", "the port", "/ is written %2f"]),
    "slash behind the digits of a password": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:20/hunter2@db/shop'  # here",
        ["databases.default", "/ is written %2f"]),
    "question mark in a password": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'pgsql://shop:20?hunter2@db/shop'  # here",
        ["databases.default", "? %3f"]),
    "at sign and slash in the password of a database": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:p@hunter2/w@db/shop'  # here",
        ["databases.default", "@ %40"]),
    "at sign and slash in the password of a broker": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'amqp://guest:p@hunter2/w@mq/'  # here",
        ["transports.orders", "@ %40"]),
    "at sign and question mark in the password of a broker": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'kafka://guest:p@hunter2?w=1@mq:9092'  # here",
        ["transports.orders", "@ %40"]),
    "line break at the end of a DSN": (
        "    default: 'sqlite:///shop.db'",
        "    default: \"sqlite:///shop.db\\n\"  # here",
        ["databases.default", "a line break ends the DSN", "variable or file"]),
    "list of options": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://guest:hunter2@127.0.0.1/'\n"
        "        options: [{queues: orders}]  # here",
        ["transports.orders.options", "a map", "not a list"]),
    "option of a queue that means nothing": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'amqp://127.0.0.1/'\n"
        "        options: {queues: {orders: {binding_key: '#'}}}  # here",
        ["transports.orders.options", "queues[orders][binding_key]",
         "a queue has binding_keys"]),
    "address of metrics that is none": (
        "handlers:", "metrics: {port: 9187, address: myhost}  # here\n"
        "handlers:",
        ["metrics.address", "127.0.0.1 or ::1", "not 'myhost'"]),
    "unknown parameter of a mysql DSN": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:hunter2@db/shop?colour=red'  # here",
        ["databases.default", "colour is not a parameter", "lock_timeout"]),
    "mysql without a database": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:hunter2@db:3306'  # here",
        ["databases.default", "names no database"]),
    "mysql with a port that is none": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://shop:hunter2@db:http/shop'  # here",
        ["databases.default", "port"]),
    "unknown parameter of a pgsql DSN": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'postgresql://shop:hunter2@db/shop?colour=red'  # here",
        ["databases.default", "colour is not a parameter", "sslmode"]),
    "pgsql without a database": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'pgsql://shop:hunter2@db'  # here",
        ["databases.default", "names no database"]),
    "pgsql with a port that is none": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'pgsql://shop:hunter2@one:5432,two:99999/shop'  # here",
        ["databases.default", "port of two"]),
    "time zone by name on SQLite": (
        "        relay_to: orders",
        "        relay_to: orders\n        time_zone: Europe/Berlin  # here",
        ["transports.outbox.time_zone", "SQLite knows no zones by name", "+02:00"]),
    "time zone that is none": (
        "        relay_to: orders",
        "        relay_to: orders\n        time_zone: \"'; DROP\"  # here",
        ["transports.outbox.time_zone", "neither an offset"]),
    "missing DSN": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: {batch: 10}  # here",
        ["transports.orders", "dsn"]),
    "missing environment variable": (
        "    default: 'sqlite:///shop.db'",
        "    default: '%env(SHOP_URL)%'  # here",
        ["databases.default", "SHOP_URL", "is not set"]),
    "environment variable of another type": (
        "        relay_to: orders",
        "        relay_to: orders\n"
        "        in_flight: '%env(int:HOME)%'  # here",
        ["transports.outbox.in_flight", "HOME", "not a whole number"]),
    "DSN without a scheme": (
        "    default: 'sqlite:///shop.db'", "    default: shop.db  # here",
        ["databases.default", "://"]),
    "DSN in the words of a shell": (
        "    default: 'sqlite:///shop.db'",
        "    default: '${SHOP_DB}'  # here",
        ["databases.default", "and not with $", "%env(NAME)%"]),
    "DSN in quotes of its own": (
        "    default: 'sqlite:///shop.db'",
        """    default: "'sqlite:///shop.db'"  # here""",
        ["databases.default", "and not with a quote"]),
    "DSN behind a blank": (
        "    default: 'sqlite:///shop.db'",
        "    default: ' sqlite:///shop.db'  # here",
        ["databases.default", "and not with a blank"]),
    "DSN of Java": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'jdbc:mysql://shop:hunter2@db/shop'  # here",
        ["databases.default", "and not with jdbc:"]),
    "DSN with a scheme that has an underline": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'ordered_doctrine://default'  # here",
        ["transports.orders", "a scheme has lower case letters", "-"]),
    "DSN of an unknown database": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'oracle://host/shop'  # here",
        ["databases.default", "oracle", "sqlite, mysql and pgsql"]),
    "DSN with a broken port": (
        "    default: 'sqlite:///shop.db'",
        "    default: 'mysql://host:abc/shop'  # here",
        ["databases.default", "port"]),
    "unknown database": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'queue://defalt?queue_name=orders'  # here",
        ["transports.orders", "no database 'defalt'", "default"]),
    "unknown transport": (
        "        relay_to: orders", "        relay_to: order  # here",
        ["transports.outbox.relay_to", "no transport 'order'",
         "outbox, orders"]),
    "unknown failure transport": (
        "handlers:", "failure_transport: nowhere  # here\nhandlers:",
        ["failure_transport", "no transport 'nowhere'"]),
    "failure transport in another database": (
        "transports:\n",
        "    other: 'sqlite:///other.db'\n"
        "failure_transport: failed  # here\ntransports:\n"
        "    failed: 'doctrine://other?queue_name=failed'\n",
        ["failure_transport", "'failed'", "'other'"]),
    "relay to a scheme that nothing uses": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'rabbitmq://mq'",
        ["transports.outbox.relay_to", "'orders' is rabbitmq://"]),
    "relay in circles": (
        "    orders: 'queue://default?queue_name=orders'",
        "    orders: 'queue://default?table_name=messenger_outbox"
        "&queue_name=outbox'",
        ["transports.outbox.relay_to", "circles"]),
    "handler that would change the schema": (
        "        sql: SELECT 1", "        sql: DROP TABLE orders  # here",
        ["handlers.order.placed.sql", "DROP"]),
    "handler that would commit": (
        "        sql: SELECT 1", "        sql: [SELECT 1, COMMIT]  # here",
        ["handlers.order.placed.sql[1]", "COMMIT"]),
    "handler with an unknown parameter": (
        "        sql: SELECT 1", "        sql: 'SELECT :order_id'  # here",
        ["handlers.order.placed.sql", ":order_id"]),
    "table name that is none": (
        "table_name=messenger_outbox", "table_name=messenger-outbox",
        ["transports.outbox.dsn?table_name", "letters, digits and"]),
    "key given twice": (
        "handlers:", "databases: {}  # here\nhandlers:", ["databases"]),
    "broken YAML": (
        "        relay_to: orders", "      relay_to: orders  # here", [""]),
    "percent sign without quotes": (
        "    default: 'sqlite:///shop.db'",
        "    default: %env(SHOP_DB)%  # here",
        ["not YAML", "put quotes around"]),
    "asterisk without quotes": (
        "    order.placed:", "    *:  # here",
        ["not YAML", "put quotes around"]),
    "tab in the indentation": (
        "        relay_to: orders", "\trelay_to: orders  # here",
        ["a tab", "blanks"]),
    "tab behind blanks": (
        "        relay_to: orders", "      \trelay_to: orders  # here",
        ["a tab", "blanks"]),
    "tab before a key at the beginning": (
        "    orders: 'queue://default?queue_name=orders'",
        "\torders: 'queue://default?queue_name=orders'  # here",
        ["a tab", "blanks"]),
    "tab before the line of a list": (
        "        sql: SELECT 1", "        sql:\n\t- SELECT 1  # here",
        ["a tab", "blanks"]),
    "quote that is not closed, and a tab that is no indentation": (
        "        relay_to: orders", "        relay_to:\t'orders",
        ["not YAML: did not find expected key", "begins in line 5"]),
}


def write(shop, text):
    """Writes the file without the mark; the marked line, or None."""
    lines = text.splitlines()
    marked = [number for number, line in enumerate(lines, 1)
              if line.endswith(HERE)]
    shop.write_config(text.replace(HERE, ""))
    return marked[0] if marked else None


def test_good_configuration_is_ok(shop):
    write(shop, GOOD)
    printed = shop.check("config", "check")
    assert printed == "skirnir.yaml: ok, 2 transports, 1 database\n"


@pytest.mark.parametrize("name", MISTAKES)
def test_check_names_file_line_and_key(shop, name):
    old, new, expected = MISTAKES[name]
    assert old in GOOD
    line = write(shop, GOOD.replace(old, new, 1))
    result = shop.run("config", "check")
    assert result.returncode == 3
    place = "skirnir.yaml:" + (f"{line}:" if line else "")
    said = [text for text in result.stdout.splitlines()
            if text.startswith(place)
            and all(word in text for word in expected)]
    assert said, result.stdout
    assert "hunter2" not in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 mistake,")


@pytest.mark.parametrize("written, name", [
    ("'amqp://guest:hunter2@mq/?bogus=1'", "bogus"),
    ("'amqp://guest:hunter2@mq/?heartbeet=5'", "did you mean 'heartbeat'?"),
    ("{dsn: 'amqp://mq/', options: {exchange: {typ: topic}}}", "[typ]"),
    ("{dsn: 'amqp://mq/', options: {delay: {exchange: a}}}", "[exchange]"),
    ("'amqps://guest:hunter2@mq/?connection_timeout=5'", "connection_timeout"),
    ("{dsn: 'amqp://mq/', options: {retry: {delay: 5}}}", "retry[delay]"),
])
def test_an_option_that_means_nothing_is_warned_of(shop, written, name):
    old = "'queue://default?queue_name=orders'"
    write(shop, GOOD.replace(old, written))
    result = shop.run("config", "check")
    assert result.returncode == 0, result.stdout
    said, = [line for line in result.stdout.splitlines() if name in line]
    assert said.startswith("skirnir.yaml:7: ") and "transports.orders" in said
    assert "means nothing to amqp" in said
    assert "hunter2" not in result.stdout


@pytest.mark.parametrize("scheme, said", [
    ("ampq", "did you mean amqp://?"), ("kafak", "did you mean kafka://?"),
    ("rabbitmq", "did you mean amqp://?"),
    ("redis", "amqps and kafka are known")])
def test_a_scheme_that_nothing_uses_is_warned_of(shop, scheme, said):
    write(shop, GOOD.replace("handlers:", f"    mq: '{scheme}://mq'\nhandlers:"))
    printed = shop.check("config", "check")
    assert f"skirnir.yaml:8: warning: transports.mq: {scheme}:// " in printed
    assert said in printed


@pytest.mark.parametrize("command", [
    ["relay", "outbox"], ["consume", "orders"], ["setup"],
    ["setup-deduplication", "--force"], ["config", "show"],
    ["publish", "order.placed", "--body", "{}"]], ids=" ".join)
def test_every_command_refuses_a_mistaken_file(shop, command):
    old, new, expected = MISTAKES["unknown key"]
    line = write(shop, GOOD.replace(old, new))
    result = shop.run(*command)
    assert result.returncode == 3
    assert result.stdout == ""
    assert f"skirnir.yaml:{line}: " in result.stderr
    for word in expected:
        assert word in result.stderr
    assert os.listdir(shop.folder) == ["skirnir.yaml"]


# DSN: the host that is named, or nothing where no password is open to others.
EXPOSED = [
    ("mysql://shop:hunter2@db.example/shop?ssl=0", "db.example"),
    ("mysql://shop:hunter2@127.evil.example/shop?ssl=0", "127.evil.example"),
    ("mysql://shop:hunter2@localhost.evil.example/shop?ssl=0",
     "localhost.evil.example"),
    ("mysql://shop:hunter2@[fe80::1]/shop?ssl=0", "fe80::1"),
    ("mysql://shop:hunter2@db.example/shop", None),
    ("mysql://shop:hunter2@db.example/shop?ssl_verify=0", None),
    ("mysql://shop@db.example/shop?ssl=0", None),
    ("mysql://shop:hunter2@127.0.0.1/shop?ssl=0", None),
    ("mysql://shop:hunter2@[::1]/shop?ssl=0", None),
    ("mysql://shop:hunter2@db.example/shop?ssl=0&unix_socket=/s", None),
    ("pgsql://shop:hunter2@db.example/shop?sslmode=disable", "db.example"),
    ("pgsql://shop:hunter2@db.example/shop?sslmode=prefer", "db.example"),
    ("pgsql://shop:hunter2@127.0.0.1:1,127.0.0.1.nip.io:2/shop?sslmode=allow",
     "127.0.0.1.nip.io"),
    ("pgsql://shop:hunter2@db.example/shop", None),
    ("pgsql://shop:hunter2@db.example/shop?sslmode=require", None),
    ("pgsql://shop:hunter2@127.0.0.1:1,[::1]:2/shop?sslmode=disable", None),
    ("pgsql://shop:hunter2@/shop?host=/run&sslmode=disable", None),
    ("amqp://shop:hunter2@mq.example/", "mq.example"),
    ("amqp://shop:hunter2@127.0.0.1:1,mq.example:2/", "mq.example"),
    ("amqps://shop:hunter2@mq.example/", None),
    ("amqp://shop:hunter2@localhost/", None),
    ("amqp://mq.example/", None),
    ("kafka://shop:hunter2@mq.example?security.protocol=sasl_plaintext"
     "&sasl.mechanisms=PLAIN", "mq.example"),
    ("kafka://shop:hunter2@mq.example?security.protocol=sasl_plaintext", None),
    ("kafka://shop:hunter2@mq.example", None),
]


@pytest.mark.parametrize("dsn, host", EXPOSED)
def test_a_password_that_others_may_read_is_warned_of_once(shop, dsn, host):
    of_broker = dsn.startswith(("amqp", "kafka"))
    text = GOOD.replace("queue://default?queue_name=orders", dsn) \
        if of_broker else GOOD.replace(
            "databases:\n", f"databases:\n    far: '{dsn}'\n")
    write(shop, text)
    check = shop.run("config", "check")
    warnings = [line for line in check.stdout.splitlines()
                if "warning: " in line]
    assert "hunter2" not in check.stdout + check.stderr
    assert check.returncode == 0, check.stdout
    assert len(warnings) == (0 if host is None else 1), check.stdout
    if host is not None:
        cure = {"mysql": "ssl_ca", "pgsql": "sslrootcert", "amqp": "amqps://",
                "kafka": "SCRAM"}[dsn.split("://")[0]]
        assert f"{host} " in warnings[0] and cure in warnings[0]


# What is in a file: whether it is a boolean.
BOOLEANS = [("true", True), ("True", True), ("FALSE", True), ("'Yes'", True),
            ("on", True), ("0", True), ("''", False), ("2", False)]


@pytest.mark.parametrize("value, is_good", BOOLEANS)
@pytest.mark.parametrize("option", ["kafka://mq: tls", "amqps://mq: verify",
                                    "mysql://db/shop: ssl",
                                    "mysql://db/shop: ssl_verify"])
def test_a_boolean_is_the_same_everywhere(shop, option, value, is_good):
    dsn, name = option.split(": ")
    text = value.strip("'")
    if dsn.startswith("mysql"):
        write(shop, GOOD.replace(
            "databases:\n", f"databases:\n    far: '{dsn}?{name}={text}'\n"))
    else:
        write(shop, GOOD.replace(
            "'queue://default?queue_name=orders'",
            f"{{dsn: '{dsn}', options: {{{name}: {value}}}}}"))
    check = shop.run("config", "check")
    assert (check.returncode == 0) == is_good, check.stdout
    if not is_good:
        assert name in check.stdout
        assert "true or false is needed" in check.stdout


@pytest.mark.parametrize("name", ["cacert", "cert", "key"])
def test_a_certificate_for_plain_amqp_is_refused(shop, name):
    write(shop, GOOD.replace("queue://default?queue_name=orders",
                             f"amqp://mq/?{name}=/etc/mq.pem"))
    check = shop.run("config", "check")
    assert check.returncode != 0
    assert "amqps://" in check.stdout and name in check.stdout


def test_a_key_without_its_certificate_is_refused(shop):
    write(shop, GOOD.replace("queue://default?queue_name=orders",
                             "amqps://mq/?key=/etc/mq.pem"))
    check = shop.run("config", "check")
    assert check.returncode == 3
    assert "key in the DSN" in check.stdout and "cert" in check.stdout


def test_properties_of_librdkafka_are_those_of_the_manual(shop):
    root = pathlib.Path(__file__).resolve().parents[2]
    source = (root / "src/broker/kafka/settings.c").read_text()
    allowed = set(re.findall(r'^    "([a-z.]+)",$', source, re.M))
    manual = (root / "docs/skirnir.yaml.5.md").read_text()
    part = manual.split("# KAFKA\n")[1].split("\n# ")[0]
    listed = part.split("of librdkafka can be set:\n")[1].split("\n\n")[0]
    assert len(allowed) > 50
    assert allowed == set(re.findall("`([a-z.]+)`", listed))


def test_a_property_that_breaks_a_promise_is_a_mistake(shop):
    write(shop, GOOD.replace(
        "    orders: 'queue://default?queue_name=orders'",
        "    orders:\n        dsn: 'kafka://mq'\n"
        "        options: {test.mock.num.brokers: 3}"))
    check = shop.run("config", "check")
    assert check.returncode != 0
    assert "transports.orders" in check.stdout
    assert "test.mock.num.brokers" in check.stdout
    assert "brokers that are none" in check.stdout


def test_all_mistakes_are_named_in_one_go(shop):
    text = GOOD
    for name in ("unknown key", "text where a truth value is needed",
                 "unknown database", "handler that would change the schema"):
        old, new, _ = MISTAKES[name]
        text = text.replace(old, new, 1) if old in text else text
    write(shop, text)
    result = shop.run("config", "check")
    assert result.returncode == 3
    assert "relay_too" in result.stdout and "'defalt'" in result.stdout
    assert "DROP" in result.stdout
    assert "3 mistakes" in result.stdout


def test_missing_file_is_named(shop):
    for arguments in (["-c", "nowhere.yaml"], ["--config=nowhere.yaml"]):
        result = shop.run("relay", "outbox", *arguments)
        assert result.returncode == 3
        assert "nowhere.yaml: there is no such file" in result.stderr
    result = shop.run("relay", "outbox",
                      environment={"SKIRNIR_CONFIG": "gone.yaml"})
    assert result.returncode == 3
    assert "gone.yaml: there is no such file" in result.stderr
    shop.config_path.unlink()
    result = shop.run("relay", "outbox")
    assert result.returncode == 3
    assert "SKIRNIR_CONFIG" in result.stderr


def test_an_empty_name_is_no_file(shop):
    """As from a variable of a script that is not set."""
    write(shop, GOOD)
    for arguments in (["-c", ""], ["--config="]):
        result = shop.run("setup", *arguments)
        assert result.returncode == 3
        assert result.stderr == "--config: the name of the file is empty\n"
    shop.check("config", "check", environment={"SKIRNIR_CONFIG": ""})


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(shop):
    os.mkfifo(shop.folder / "pipe")
    result = shop.run("config", "check", "-c", "pipe")
    assert result.returncode == 3
    assert "pipe: it is a pipe that nobody writes into" in result.stdout


def test_a_pipe_is_read(shop):
    """As of a shell's <(command), written in two parts."""
    reader, writer = os.pipe()
    os.write(writer, GOOD[:100].encode())

    def write_rest():
        os.write(writer, GOOD[100:].encode())
        os.close(writer)
    later = threading.Timer(0.1, write_rest)
    later.start()
    result = subprocess.run(
        shop.command("config", "check", "-c", f"/dev/fd/{reader}"),
        cwd=shop.folder, env=shop.environment, pass_fds=[reader],
        capture_output=True, text=True, timeout=shops.PATIENCE_S)
    later.join()
    os.close(reader)
    assert result.returncode == 0, result.stdout
    assert "ok, 2 transports" in result.stdout


def test_file_is_found_in_the_order_of_the_manual(shop):
    other = shop.folder / "other.yaml"
    other.write_text(GOOD)
    shop.write_config("transports: {}\n")
    by_option = shop.check("config", "check", "-c", "other.yaml",
                           environment={"SKIRNIR_CONFIG": "none.yaml"})
    assert by_option.startswith("other.yaml: ok")
    by_variable = shop.check("config", "check",
                             environment={"SKIRNIR_CONFIG": str(other)})
    assert by_variable.startswith(f"{other}: ok")
    assert shop.check("config", "check").startswith("skirnir.yaml: ok")


@pytest.mark.parametrize("content", [b"", b"\n# only words\n", b"---\n"])
def test_empty_file_is_named(shop, content):
    shop.config_path.write_bytes(content)
    result = shop.run("config", "check")
    assert result.returncode == 3
    assert "empty" in result.stdout


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \0", b"a: &a [*a]",
                                     b"{" * 10000, b"just a word"])
def test_file_that_is_no_configuration_is_refused(shop, content):
    shop.config_path.write_bytes(content)
    result = shop.run("config", "check")
    assert result.returncode == 3
    assert "skirnir.yaml" in result.stdout


def test_folder_instead_of_a_file_is_named(shop):
    result = shop.run("config", "check", "-c", ".")
    assert result.returncode == 3
    assert "directory" in result.stdout


@pytest.mark.parametrize("command, transport", [
    ("relay", "outbx"), ("consume", "order"), ("setup", "x")])
def test_unknown_transport_on_the_command_line_is_not_the_files_fault(
        shop, command, transport):
    write(shop, GOOD)
    result = shop.run(command, transport)
    assert result.returncode == 1
    assert f"'{transport}'" in result.stderr
    assert "outbox, orders" in result.stderr


def test_transport_of_the_other_kind_is_named_with_the_right_command(shop):
    write(shop, GOOD)
    result = shop.run("relay", "orders")
    assert result.returncode == 1
    assert "not an outbox" in result.stderr


def test_setup_of_a_transport_without_a_table_names_the_right_command(shop):
    old = "'queue://default?queue_name=orders'"
    for dsn, named in [("amqp://mq/", True), ("kafka://mq/", False)]:
        write(shop, GOOD.replace(old, f"'{dsn}'"))
        result = shop.run("setup", "orders")
        assert result.returncode == 1
        assert "which has no table" in result.stderr
        assert ("skirnir setup-amqp" in result.stderr) == named


def test_setup_says_that_nothing_waits_for_failed_messages(shop):
    write(shop, GOOD.replace("handlers:", "    failed: 'doctrine://default?"
                             "queue_name=failed'\nfailure_transport: failed\n"
                             "handlers:"))
    assert "waits for rows of failed: --notify is left out" in \
        shop.check("setup", "failed", "--notify")


def test_transport_without_a_driver_is_named(shop):
    write(shop, GOOD.replace("'queue://default?queue_name=orders'",
                             "'redis://localhost'")
          .replace("        relay_to: orders\n", ""))
    result = shop.run("consume", "orders")
    assert result.returncode == 1
    assert "redis://" in result.stderr and "no driver" in result.stderr


def test_outbox_without_a_destination_is_named(shop):
    write(shop, GOOD.replace("        relay_to: orders\n", ""))
    result = shop.run("config", "check")
    assert result.returncode == 3
    assert "transports.outbox.relay_to is missing" in result.stdout
    assert result.stdout.startswith("skirnir.yaml:")
    result = shop.run("relay", "outbox")
    assert result.returncode == 1
    assert "transports.outbox.relay_to" in result.stderr


def test_consumer_without_handlers_is_named(shop):
    write(shop, GOOD[:GOOD.index("handlers:")])
    result = shop.run("consume", "orders")
    assert result.returncode == 1
    assert "handlers" in result.stderr


def test_type_without_a_handler_is_named_before_it_fails(shop):
    write(shop, GOOD + "message_broker: {inbox: {message_types: "
          "{order.paid: 'App\\Paid'}}}\n")
    result = shop.run("consume", "orders")
    assert result.returncode == 1
    assert "handlers.order.paid" in result.stderr


def test_environment_fills_in_values(shop):
    write(shop, GOOD.replace("'sqlite:///shop.db'", "'%env(SHOP_URL)%'")
          .replace("relay_to: orders",
                   "relay_to: orders\n        in_flight: '%env(int:MANY)%'"))
    shown = json.loads(shop.check(
        "config", "show", "--json",
        environment={"SHOP_URL": "sqlite:///other.db", "MANY": "17"}))
    assert shown["databases"]["default"] == "sqlite:///other.db"
    assert shown["transports"]["outbox"]["in_flight"] == 17


def test_database_url_is_the_default_database(shop):
    write(shop, GOOD.replace("databases:\n    default: 'sqlite:///shop.db'\n",
                             ""))
    result = shop.run("config", "check")
    assert result.returncode == 3
    assert "DATABASE_URL" in result.stdout
    given = {"DATABASE_URL": "sqlite:///by-environment.db"}
    shop.check("publish", "order.placed", "--body", "{}", environment=given)
    assert (shop.folder / "by-environment.db").exists()


def test_shown_configuration_loads_again(shop):
    write(shop, GOOD)
    shown = shop.check("config", "show")
    (shop.folder / "shown.yaml").write_text(shown)
    assert shop.check("config", "show", "shown.yaml") == shown
    assert json.loads(shop.check("config", "show", "--json"))["transports"] \
        ["outbox"]["in_flight"] == 1000


def test_keys_are_listed_with_their_defaults(shop):
    keys = {key["path"]: key for key in json.loads(
        shop.check("config", "keys", "--json"))}
    assert keys["transports.*.in_flight"]["default"] == "1000"
    assert keys["transports.*.dsn"]["required"]
    text = shop.check("config", "keys")
    result = shop.run("config", "keys", "transports.*.in_flight")
    assert result.returncode == 2 and "one argument too many" in result.stderr
    for path in keys:
        assert f"{path}\n" in text


SYMFONY = r"""
framework:
    messenger:
        failure_transport: failed
        default_bus: messenger.bus.default
        buses: {messenger.bus.default: {middleware: [doctrine_transaction]}}
        serializer:
            default_serializer: messenger.transport.symfony_serializer
        transports:
            outbox:
                dsn: 'doctrine://default?table_name=messenger_outbox'
                options: {queue_name: outbox}
            amqp:
                dsn: '%env(MESSENGER_AMQP_DSN)%'
                options: {auto_setup: false, exchange: {name: shop}}
            failed: 'doctrine://default?queue_name=failed'
        routing:
            App\Event\OrderPlaced: outbox
"""


def test_symfonys_file_is_accepted_with_warnings(shop):
    write(shop, SYMFONY)
    given = {"DATABASE_URL": "sqlite:///shop.db",
             "MESSENGER_AMQP_DSN": "amqp://localhost"}
    printed = shop.check("config", "check", environment=given)
    assert "warning" in printed and "routing" in printed
    shown = json.loads(shop.check("config", "show", "--json",
                                  environment=given))
    assert shown["failure_transport"] == "failed"
    assert shown["transports"]["outbox"]["relay_to"] == "amqp"
    shop.check("publish", "order.placed", "--body", "{}", environment=given)
    # Warnings are not for those who asked for quiet.
    quiet = shop.run("setup", "-q", environment=given)
    assert quiet.returncode == 0 and quiet.stderr == ""
