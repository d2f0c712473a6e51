"""Rows, tables and settings that are no good: said as such, and whatever is
good behind them arrives."""
import os

import pytest

import databases
import servers
import shop as shops
import test_kafka
import worlds
from kafka_outbox_world import OTHERS_TABLE, new_world

GOOD = 1000
TOPIC = object()  # the world's own
UNMARSHALLING = "error unmarshalling message headers for publishing to Kafka: "
# topic, payload, headers; words of the reason, None: it is published.
ROWS = {
    "headers that are a list": (TOPIC, "{}", "[1]", UNMARSHALLING),
    "headers that are a number": (TOPIC, "{}", "5", UNMARSHALLING),
    "headers that are a text": (TOPIC, "{}", '"x"', UNMARSHALLING),
    "headers that are no JSON": (TOPIC, "{}", "{", UNMARSHALLING),
    "a header with a zero byte": (TOPIC, "{}", '{"a":"\\u0000"}', "zero byte"),
    "no headers": (TOPIC, "{}", None, None),
    "empty headers": (TOPIC, "{}", "", None),
    "an empty list of headers": (TOPIC, "{}", "[]", None),
    "no topic": ("", "{}", "{}", "is no name of a topic"),
    "a topic of two words": ("a b", "{}", "{}", "is no name of a topic"),
    "a long topic": ("x" * 250, "{}", "{}", "is no name of a topic"),
    "a topic of dots": ("..", "{}", "{}", "is no name of a topic"),
    "large headers": (
        TOPIC, "{}", '{"n":[' + "0," * 3_000_000 + "0]}", "1048576"),
    "a large payload": (TOPIC, '"' + "x" * 1500000 + '"', "{}",
                        "larger than this client sends"),
}
COLUMNS = ("batch_id", "push_started_at", "push_completed_at", "topic",
           "payload_json", "payload_headers", "push_attempts", "errored",
           "error_reason", "partition_key", "key")


@pytest.fixture
def world(tmp_path):
    opened = new_world("sqlite", tmp_path)
    opened.limit_memory()
    yield opened
    opened.leave()


@pytest.mark.quick
def test_a_bad_row_is_errored_at_once_and_good_ones_arrive(world):
    world.start_relay().stop()
    connection = world.database.connect()
    connection.executemany(
        "INSERT INTO kafka_outbox (topic, payload_json, payload_headers) "
        "VALUES (?, ?, ?)",
        [(world.topic if topic is TOPIC else topic, payload, headers)
         for topic, payload, headers, _ in ROWS.values()])
    connection.close()
    world.insert_numbers(GOOD)
    relay = world.drain()
    bad = {name: reason for name, (_, _, _, reason) in ROWS.items()
           if reason is not None}
    assert len(world.records("%s\n")) == GOOD + len(ROWS) - len(bad), \
        relay.log()
    errored = world.errored()
    assert len(errored) == len(bad)
    for (name, reason), said in zip(bad.items(), errored):
        assert reason in said, name
        assert len(said) <= 255, name
    assert world.ask("SELECT DISTINCT push_attempts FROM kafka_outbox") == "1"


def test_one_mistake_does_not_error_the_whole_table(world):
    world.start_relay().stop()
    world.insert(*(("a b", "{}", "{}", "", "") for _ in range(300)))
    world.insert_numbers(GOOD)
    relay = world.start_relay()
    relay.wait_for("relay.route_closed.*failure_limit")
    shops.until(lambda: world.open_rows() <= 200,
                lambda: f"{world.open_rows()} open rows\n{relay.log()}")
    # So many more in every minute.
    assert 100 <= len(world.errored()) < 300
    assert relay.stop() == 0
    assert len(world.records()) == GOOD


@pytest.mark.quick
@pytest.mark.parametrize("kind", databases.BY_KIND)
def test_a_large_row_in_a_batch_does_not_take_others_along(tmp_path, kind):
    world = new_world(kind, tmp_path)
    world.limit_memory()
    try:
        world.ask(OTHERS_TABLE[world.database.dialect])
        world.insert_numbers(500)
        # Two, of which each would end the batch that it is in.
        payload = {"mysql": "CONCAT('\"', REPEAT('x', 1500000), '\"')",
                   "postgresql": "to_json(REPEAT('x', 1500000))"}[
                       world.database.dialect]
        for key in ("key-3", "key-4"):
            world.ask(f"INSERT INTO kafka_outbox (topic, payload_json, "
                      f"payload_headers, {world.key()}) SELECT "
                      f"'{world.topic}', {payload}, '{{}}', '{key}'")
        world.insert_numbers(GOOD, 500)
        world.drain()
        assert world.expect_in_order(500 + GOOD) == 0
        assert len(world.errored()) == 2
    finally:
        world.leave()


def make_topic(folder, kafka, topic):
    """By consuming from it."""
    folder.mkdir()
    consuming = test_kafka.World(
        folder, test_kafka.new_database("sqlite", folder), kafka.url)
    consuming.topic = topic
    consuming.set_config()
    consuming.set_up()
    consuming.consume()
    consuming.leave()


def test_a_topic_that_nobody_makes_is_errored_and_others_arrive(tmp_path):
    worlds.need("SKR_KAFKA_URL")
    with servers.Kafka(settings={
            "auto.create.topics.enable": "false"}) as kafka:
        world = new_world("sqlite", tmp_path, kafka.url.removeprefix(
            "kafka://"))
        world.limit_memory()
        try:
            make_topic(tmp_path / "good", kafka, world.topic)
            world.start_relay().stop()
            world.insert(*((name, "{}", "{}", "", "")
                           for name in ("no-such-topic", "nor-this-one")))
            world.insert_numbers(GOOD)
            relay = world.drain()
            assert world.expect_in_order(GOOD) == 0, relay.log()
            assert len(world.errored()) == 2
            assert "no-such-topic: it does not exist" in world.errored()[0]
            # People make it, and the row is published.
            make_topic(tmp_path / "late", kafka, "no-such-topic")
            world.check("kafka-relay", "errored", "retry", "1")
            world.drain()
            assert len(world.records("%s\n", topic="no-such-topic")) == 1
        finally:
            world.leave()


@pytest.mark.quick
def test_a_table_that_lacks_a_column_is_named(tmp_path):
    world = new_world("postgresql", tmp_path)
    world.limit_memory()
    try:
        world.ask(OTHERS_TABLE["postgresql"])
        for column in COLUMNS:
            world.ask(f"ALTER TABLE kafka_outbox RENAME {column} TO gone")
            result = world.run("kafka-relay")
            assert result.returncode == 1, column
            assert f"table kafka_outbox has no column {column}:" \
                in result.stderr, result.stderr
            assert "kafka_outbox" in result.stderr
            world.ask(f"ALTER TABLE kafka_outbox RENAME gone TO {column}")
    finally:
        world.leave()


def expect_trouble(world, words):
    """Said once, waited out, and nothing is errored."""
    relay = world.start_relay()
    relay.wait_for("relay.trouble")
    assert any(word in relay.log() for word in words), relay.log()
    assert relay.stop() == 0
    assert len([line for line in relay.log().splitlines()
                if '"msg":"relay.trouble"' in line]) == 1
    assert world.errored() == [] and world.open_rows() == GOOD
    assert world.ask("SELECT MAX(push_attempts) FROM kafka_outbox") == "0"


def connect(world, **settings):
    world.start_relay().stop()
    world.insert_numbers(GOOD)
    world.environment.update(settings)


def test_a_wrong_list_of_brokers_is_said_and_waited_out(world):
    good = world.environment["KAFKA_HOST"]
    connect(world, KAFKA_HOST="127.0.0.1:1,127.0.0.1:2",
            KAFKA_OPTIONS="connect_timeout=2&confirm_timeout=2")
    # It is seen where no level is set.
    del world.environment["LOG_LEVEL"]
    expect_trouble(world, ["127.0.0.1:1"])
    # One of several is enough.
    world.environment.update(KAFKA_HOST=f"127.0.0.1:1,{good}",
                             KAFKA_OPTIONS="connect_timeout=2")
    world.drain()
    assert world.expect_in_order(GOOD) == 0


@pytest.mark.parametrize("speaks_tls", [True, False])
def test_tls_to_a_plain_port_and_the_other_way_round(world, speaks_tls):
    plain, tls = (f"127.0.0.1:{worlds.need(name)}" for name in (
        "SKR_KAFKA_PORT", "SKR_KAFKA_TLS_PORT"))
    authority = worlds.need("SKR_KAFKA_CERTIFICATES") + "/authority.pem"
    limits = "connect_timeout=2&confirm_timeout=2"
    connect(world, KAFKA_HOST=plain if speaks_tls else tls,
            TLS_ENABLE="true" if speaks_tls else "false",
            KAFKA_OPTIONS=limits)
    expect_trouble(world, ["TLS", "SSL"])
    world.environment.update(
        KAFKA_HOST=tls, TLS_ENABLE="true",
        KAFKA_OPTIONS=f"cacert={authority}")
    world.drain()
    assert world.expect_in_order(GOOD) == 0


def test_a_wrong_password_is_said_and_no_storm(world):
    port = worlds.need("SKR_KAFKA_SASL_PORT")
    authority = worlds.need("SKR_KAFKA_CERTIFICATES") + "/authority.pem"
    options = ("security.protocol=sasl_ssl&sasl.mechanisms=PLAIN&"
               f"cacert={authority}&sasl.username="
               f"{os.environ['SKR_KAFKA_USER']}&sasl.password=")
    connect(world, KAFKA_HOST=f"127.0.0.1:{port}",
            KAFKA_OPTIONS=options + "not-it&connect_timeout=2")
    relay = world.start_relay("--wait")
    relay.wait_for("relay.trouble")
    assert "the login was refused" in relay.log()
    assert "not-it" not in relay.log()
    assert relay.stop() == 0
    assert relay.log().count('"msg":"relay.trouble"') == 1
    assert world.open_rows() == GOOD
    world.environment["KAFKA_OPTIONS"] = \
        options + os.environ["SKR_KAFKA_PASSWORD"]
    world.drain()
    assert world.expect_in_order(GOOD) == 0


# 0.0.0.0 leads to this machine, which is known only by trying.
def test_a_password_in_plaintext_is_warned_of_once(world):
    port = worlds.need("SKR_KAFKA_SASL_PLAINTEXT_PORT")
    connect(world, KAFKA_HOST=f"0.0.0.0:{port}",
            KAFKA_OPTIONS="security.protocol=sasl_plaintext&"
            f"sasl.mechanisms=PLAIN&sasl.username={os.environ['SKR_KAFKA_USER']}"
            f"&sasl.password={os.environ['SKR_KAFKA_PASSWORD']}")
    relay = world.start_relay()
    world.wait_until_done(relay)
    assert relay.stop() == 0
    said = [line for line in relay.log().splitlines()
            if "kafkarelay.plaintext" in line]
    assert len(said) == 1
    assert "0.0.0.0 " in said[0] and "SCRAM" in said[0]
    assert os.environ["SKR_KAFKA_PASSWORD"] not in relay.log()


def test_a_broker_that_is_away_costs_no_attempt(tmp_path):
    worlds.need("SKR_KAFKA_URL")
    with servers.Kafka() as kafka:
        world = new_world("sqlite", tmp_path,
                          kafka.url.removeprefix("kafka://"))
        try:
            world.environment.update(
                ON_SUCCESS="mark",
                KAFKA_OPTIONS="connect_timeout=2&confirm_timeout=2")
            relay = world.start_relay()
            world.insert_numbers(GOOD)
            world.wait_until_done(relay)
            kafka.kill()
            world.insert_numbers(GOOD, GOOD)
            relay.wait_for("relay.trouble")
            kafka.start()
            world.wait_until_done(relay)
            assert relay.stop() == 0
            world.expect_in_order(2 * GOOD)
            assert world.errored() == []
            assert world.ask("SELECT MAX(push_attempts) FROM kafka_outbox") \
                == "1"
        finally:
            world.leave()


def test_the_port_of_another_is_said(world):
    first = world.start_relay()
    shops.until(world.is_up, first.log)
    result = world.run("kafka-relay")
    assert result.returncode == 1
    assert "--listen" in result.stderr
    assert first.stop() == 0
