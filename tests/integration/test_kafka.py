"""From an outbox to Kafka and from there to handlers: confirmed, in order, and
nothing lost or done twice when relay or consumer are killed."""
import json
import re
import subprocess
import uuid

import pytest

import databases
import shop as shops
import test_guides
import worlds

IN_FLIGHT = 50
KEYS = 10
CONFIG = """\
databases:
    default: '{database}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: kafka
        in_flight: {in_flight}
    ordered:
        dsn: 'ordered-doctrine://default?table_name=ordered_outbox'
        relay_to: kafka
        in_flight: {in_flight}
    kafka:
        dsn: '{broker}'
        options:
            topic: '{topic}'
            topics: ['{topic}']
            group: '{topic}'
            session.timeout.ms: 6000
        batch: 20
        missing_id: {missing_id}
        retry_strategy: {{max_retries: {max_retries}, delay: 100,
                          max_delay: 200}}
    failed:
        dsn: 'doctrine://default?queue_name=failed'
        serializer: messenger.transport.symfony_serializer
failure_transport: failed
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
    order.keyed:
        sql: >
            INSERT INTO effects (body)
            VALUES (COALESCE(:partition_key, '{{"n":-1}}'))
"""
# Nothing says that what is published is read.
PUBLISHING_CONFIG = """\
databases:
    default: '{database}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: kafka
    kafka: '{broker}'
"""
SERIAL = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
          "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
          "postgresql": "BIGSERIAL PRIMARY KEY"}


class World(shops.Shop):
    """An outbox and effects in one database, a topic of its own."""

    def __init__(self, folder, database, broker, **settings):
        super().__init__(folder)
        self.database = database
        self.topic = f"skr-{uuid.uuid4().hex}"
        self.broker = broker
        self.set_config(**settings)

    def set_config(self, max_retries=3, missing_id="fail", broker=None):
        self.write_config(CONFIG.format(
            database=self.database.url, broker=broker or self.broker,
            topic=self.topic, in_flight=IN_FLIGHT, max_retries=max_retries,
            missing_id=missing_id))

    def set_up(self):
        self.check("setup")
        self.check("setup-deduplication", "--force")
        self.ask(f"CREATE TABLE effects (id {SERIAL[self.database.dialect]}, "
                 "body VARCHAR(255) NOT NULL)")

    def ask(self, sql):
        return self.database.ask(sql)

    def insert(self, count, first=0, headers='{"type":"order.placed"}'):
        rows = ",".join(
            f"('{{\"n\":{number}}}', '{headers}', 'outbox', "
            "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"
            for number in range(first, first + count))
        self.ask("INSERT INTO messenger_outbox (body, headers, queue_name, "
                 f"created_at, available_at) VALUES {rows}")

    def insert_ordered(self, count, first=0):
        """Of ten keys in turn, into the ordered outbox."""
        rows = ",".join(
            f"('{{\"n\":{number}}}', '{{\"type\":\"order.placed\"}}', "
            f"'default', 'key-{number % KEYS}', CURRENT_TIMESTAMP, "
            "CURRENT_TIMESTAMP)" for number in range(first, first + count))
        self.ask("INSERT INTO ordered_outbox (body, headers, queue_name, "
                 f"partition_key, created_at, available_at) VALUES {rows}")

    def left(self, table="messenger_outbox"):
        return int(self.ask(f"SELECT COUNT(*) FROM {table}"))

    def failed(self):
        return int(self.ask("SELECT COUNT(*) FROM messenger_messages"))

    def effects(self):
        """In the order in which they were handled."""
        return [json.loads(line)["n"] for line in self.ask(
            "SELECT body FROM effects ORDER BY id").splitlines()]

    def expect_in_order(self, count):
        """Of each key, and nothing twice."""
        effects = self.effects()
        for key in range(KEYS):
            assert [number for number in effects if number % KEYS == key] == \
                list(range(key, count, KEYS))

    def expect_once(self, count):
        assert sorted(self.effects()) == list(range(count))
        assert self.failed() == 0

    def wait_for_effects(self, count, patience_s=shops.PATIENCE_S):
        shops.until(lambda: len(self.effects()) >= count,
                    lambda: f"{count} effects, not {len(self.effects())}; "
                    f"{self.left()} in the outbox; {self.logs()}", patience_s)

    def relay(self):
        self.check("relay", "outbox", "--stop-when-empty")

    def consume(self):
        return self.check("consume", "kafka", "--stop-when-empty")

    def leave(self):
        self.close()
        self.database.drop()


def new_database(kind, folder):
    database = databases.open_database(kind, folder)
    if kind == "sqlite":
        database.ask("PRAGMA journal_mode = wal")
    return database


@pytest.fixture(params=databases.KINDS)
def world(request, tmp_path):
    opened = World(tmp_path, new_database(request.param, tmp_path),
                   worlds.need("SKR_KAFKA_URL"))
    opened.set_up()
    yield opened
    opened.leave()


@pytest.fixture
def sqlite_world(tmp_path):
    opened = World(tmp_path, new_database("sqlite", tmp_path),
                   worlds.need("SKR_KAFKA_URL"))
    opened.set_up()
    yield opened
    opened.leave()


@pytest.mark.quick
def test_messages_go_through_kafka_and_are_handled_once(world):
    world.insert(500)
    world.relay()
    assert world.left() == 0
    world.consume()
    world.expect_once(500)
    # The group has come to the end.
    world.consume()
    world.expect_once(500)


@pytest.mark.quick
def test_an_ordered_outbox_arrives_in_the_order_of_its_keys(sqlite_world):
    """Although its relay is killed between two batches."""
    world = sqlite_world
    consumer = world.start("consume", "kafka")
    world.insert_ordered(300)
    world.hold_at("relay.confirmed", "relay", "ordered", visit=2).kill()
    relay = world.start("relay", "ordered")
    for first in range(300, 600, 100):
        world.insert_ordered(100, first)
    world.wait_for_effects(600)
    assert relay.stop() == 0
    assert consumer.stop() == 0
    assert world.left("ordered_outbox") == 0
    world.expect_in_order(600)
    world.expect_once(600)


@pytest.mark.parametrize("failpoint", [
    "relay.read", "relay.submitted", "relay.confirmed", "relay.settling",
    "relay.settled"])
def test_a_relay_that_is_killed_loses_nothing(sqlite_world, failpoint):
    world = sqlite_world
    world.insert(300)
    world.hold_at(failpoint, "relay", "outbox", visit=2).kill()
    world.relay()
    assert world.left() == 0
    world.consume()
    world.expect_once(300)


@pytest.mark.parametrize("failpoint", ["consumer.received", "consumer.acked"])
def test_a_consumer_that_is_killed_loses_and_doubles_nothing(
        sqlite_world, failpoint):
    world = sqlite_world
    world.insert(300)
    world.relay()
    world.hold_at(failpoint, "consume", "kafka", visit=2).kill()
    consumer = world.start("consume", "kafka")
    world.wait_for_effects(300)
    assert consumer.stop() == 0
    world.expect_once(300)


@pytest.mark.quick
def test_consumers_come_and_go_under_load(sqlite_world):
    """Messages are on their way whenever partitions change hands."""
    world = sqlite_world
    relay = world.start_relay()

    def join():
        consumer = world.start("consume", "kafka", "-v")
        consumer.wait_for("kafka.rebalanced .*change=given")
        return consumer

    first = join()
    world.insert(1000)
    second = join()
    world.insert(1000, 1000)
    assert first.stop() == 0
    world.insert(1000, 2000)
    third = join()
    world.insert(1000, 3000)
    second.kill()
    world.insert(1000, 4000)
    world.wait_for_effects(5000)
    assert third.stop() == 0
    assert relay.stop() == 0
    world.expect_once(5000)


def test_a_row_that_is_too_large_fails_alone(sqlite_world):
    world = sqlite_world
    world.limit_memory()
    world.insert(500)
    body = json.dumps({"n": -1, "text": "x" * 2000000})
    connection = world.database.connect()
    connection.execute(
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        "available_at) VALUES (?, '{\"type\":\"order.placed\"}', 'outbox', "
        "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)", (body,))
    connection.close()
    world.insert(1000, 500)
    world.relay()
    assert world.left() == 0
    assert world.failed() == 1
    world.consume()
    assert sorted(world.effects()) == list(range(1500))


def test_rows_whose_topic_cannot_be_fail_and_others_go_on(sqlite_world):
    world = sqlite_world
    world.limit_memory()
    for topic in ("", ".", "no/topic", "x" * 250):
        world.insert(1, -1, json.dumps(
            {"type": "order.placed", "X-Skirnir-Topic": topic}))
    world.insert(1000)
    world.relay()
    assert world.left() == 0
    assert world.failed() == 4
    assert world.check("failed", "show").count("no name of a topic") == 4
    world.consume()
    assert sorted(world.effects()) == list(range(1000))


def test_records_that_make_no_sense_are_kept_and_others_go_on(sqlite_world):
    world = sqlite_world
    world.limit_memory()
    world.consume()  # makes the topic
    number = "X-Message-Id=01932b6e-7c00-7000-8000-00000000ffff"
    for body, *headers in [(b"{}", "type=order.placed"),  # no id
                           (b"{}", "type=order.placed", "X-Message-Id=7"),
                           (b"{}", number),  # no type
                           (b"\xff", "type=order.placed", number)]:
        options = [part for header in headers for part in ("-H", header)]
        kcat(world, "-P", *options, given=body)
    world.insert(1000)
    world.relay()
    world.consume()
    assert sorted(world.effects()) == list(range(1000))
    shown = world.check("failed", "show")
    for reason in ("has no id", "neither", "unknown message type",
                   "not text in UTF-8"):
        assert reason in shown
    assert world.failed() == 4


def test_order_is_kept_through_retries_and_others_go_on(sqlite_world):
    world = sqlite_world
    world.set_config(max_retries=1000)
    world.ask("CREATE TABLE refused (body TEXT)")
    world.ask("CREATE TRIGGER refuses BEFORE INSERT ON effects WHEN EXISTS "
              "(SELECT 1 FROM refused WHERE body = NEW.body) BEGIN "
              "SELECT RAISE(ABORT, 'not now'); END")
    world.ask("INSERT INTO refused VALUES ('{\"n\":7}')")
    rows = [(f'{{"n":{number}}}', json.dumps(
        {"type": "order.placed", "X-Skirnir-Key": f"key-{number % KEYS}"}))
        for number in range(1000)]
    connection = world.database.connect()
    connection.executemany(
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        "available_at) VALUES (?, ?, 'outbox', CURRENT_TIMESTAMP, "
        "CURRENT_TIMESTAMP)", rows)
    connection.close()
    world.relay()
    consumer = world.start("consume", "kafka")
    consumer.wait_for("consumer.retry")
    # The other keys of its partition wait, those of other partitions do not.
    world.wait_for_effects(300)
    assert 7 not in world.effects() and 17 not in world.effects()
    world.ask("DELETE FROM refused")
    world.wait_for_effects(1000)
    assert consumer.stop() == 0
    world.expect_in_order(1000)
    world.expect_once(1000)


def test_a_record_that_waits_for_its_retry_is_waited_for(sqlite_world):
    world = sqlite_world
    world.set_config(max_retries=1000)
    world.ask("CREATE TRIGGER refuses BEFORE INSERT ON effects BEGIN "
              "SELECT RAISE(ABORT, 'not now'); END")
    world.insert(1)
    world.relay()
    consumer = world.start("consume", "kafka", "--stop-when-empty")
    consumer.wait_for("consumer.retry")
    world.ask("DROP TRIGGER refuses")
    assert consumer.end() == 0
    world.expect_once(1)


def test_what_cannot_be_handled_is_kept_and_others_go_on(sqlite_world):
    world = sqlite_world
    world.limit_memory()
    world.insert(1, -1, '{"type":"order.unknown"}')
    world.insert(1000)
    world.relay()
    world.consume()
    assert sorted(world.effects()) == list(range(1000))
    assert world.failed() == 1


def test_records_without_an_id_can_be_given_one(sqlite_world):
    world = sqlite_world
    world.set_config(missing_id="derive")
    world.consume()  # makes the topic
    produce(world, [f'{{"n":{number}}}' for number in range(100)])
    world.hold_at("consumer.acked", "consume", "kafka").kill()
    consumer = world.start("consume", "kafka")
    world.wait_for_effects(100)
    assert consumer.stop() == 0
    world.expect_once(100)


@pytest.mark.quick
@pytest.mark.parametrize("hop", ["kafka", "inbox"])
def test_records_are_forwarded_once_with_the_id_that_they_were_given(
        sqlite_world, hop):
    """A consumer is killed in either hop. Some have an id of their own."""
    world = sqlite_world
    world.set_config(missing_id="derive")
    text = world.config_path.read_text()
    world.write_config(text.replace(
        "    failed:\n", "    inbox: 'queue://default?queue_name=inbox&"
        "redeliver_timeout=3'\n    failed:\n").replace(
            "        batch: 20\n", "        batch: 20\n"
            "        forward_to: inbox\n"))
    world.check("setup")
    world.check("setup-deduplication", "--force")
    world.consume()  # makes the topic
    produce(world, [f'{{"n":{number}}}' for number in range(50)])
    world.insert(50, 50)
    world.relay()
    if hop == "inbox":
        world.consume()
    world.hold_at("consumer.acked", "consume", hop).kill()
    consumer = world.start("consume", "kafka", "inbox")
    world.wait_for_effects(100)
    assert consumer.stop() == 0
    world.expect_once(100)
    assert world.ask("SELECT message_id FROM message_broker_deduplication "
                     "ORDER BY message_id") == world.ask(
        "SELECT message_id FROM message_broker_deduplication_forward "
        "WHERE message_name NOT LIKE 'message_broker%' ORDER BY message_id")


@pytest.mark.quick
def test_a_record_that_fails_tells_where_it_stood(sqlite_world):
    """And its handler has its key, also when it is tried again from there."""
    world = sqlite_world
    world.set_config(missing_id="derive", max_retries=0)
    world.ask("CREATE TRIGGER refuses BEFORE INSERT ON effects BEGIN "
              "SELECT RAISE(ABORT, 'not now'); END")
    world.consume()  # makes the topic
    produce(world, ["{}"], "-k", '{"n":7}', name="order.keyed")
    world.consume()
    number = world.ask("SELECT id FROM messenger_messages")
    headers = json.loads(world.ask("SELECT headers FROM messenger_messages"))
    assert headers["X-Kafka-Topic"] == world.topic
    assert kcat(world, "-C", "-c1", "-p", headers["X-Kafka-Partition"],
                "-o", headers["X-Kafka-Offset"], "-f", "%k") == '{"n":7}'
    shown = world.check("failed", "show", number, "-vv")
    for name in ("Topic", "Partition", "Offset", "Key"):
        assert f"X-Kafka-{name}" in shown
    world.ask("DROP TRIGGER refuses")
    world.check("failed", "retry", number)
    world.consume()
    assert world.effects() == [7]
    # The relay makes the id the key of what has none.
    world.insert(1, headers='{"type":"order.keyed"}')
    world.relay()
    world.consume()
    assert world.effects() == [7, -1]
    assert world.failed() == 0


def kcat(world, *arguments, given=b""):
    return subprocess.run(
        ["kcat", "-b", world.broker.removeprefix("kafka://"), "-t",
         world.topic, *arguments], input=given, check=True,
        capture_output=True).stdout.decode()


def produce(world, lines, *options, name="order.placed"):
    kcat(world, "-P", "-H", f"type={name}", *options,
         given="\n".join(lines).encode())


@pytest.mark.quick
def test_the_guide_does_what_it_says(tmp_path):
    said = test_guides.run_page(
        tmp_path, "kafka.md",
        ("kafka://localhost:9092", worlds.need("SKR_KAFKA_URL")))
    assert "1|4200\n" in said
    assert re.search(r"^kafka +0 ", said, re.M)


def kafka_stats(world):
    return json.loads(world.check("stats", "kafka", "--json"))["transports"][0]


def test_stats_tell_how_far_the_group_is_behind(sqlite_world):
    world = sqlite_world
    world.insert(40)
    world.relay()
    item = kafka_stats(world)
    assert (item["depth"], item["consumers"]) == (40, 0)
    shops.until(lambda: kafka_stats(world)["oldest_seconds"] >= 1,
                lambda: str(kafka_stats(world)))
    world.check("consume", "kafka", "--limit=15")
    item = kafka_stats(world)
    assert item["depth"] == 25, "looking takes nothing"
    lags = item["lags"]
    assert [lag["behind"] for lag in lags] == sorted(
        (lag["behind"] for lag in lags), reverse=True)
    assert sum(lag["behind"] for lag in lags) == 25
    assert sum(lag["end"] for lag in lags) == 40
    assert sum(lag["committed"] or 0 for lag in lags) == 15
    first = f"{world.topic}/{lags[0]['partition']} {lags[0]['behind']} "
    assert first in " ".join(world.check("stats", "kafka").split())
    consumer = world.start("consume", "kafka")
    shops.until(lambda: kafka_stats(world)["depth"] == 0,
                lambda: consumer.log())
    item = kafka_stats(world)
    assert (item["consumers"], item["oldest_seconds"]) == (1, None)
    assert consumer.stop() == 0
    world.expect_once(40)


def test_rates_of_a_group_are_told(sqlite_world):
    world = sqlite_world
    world.insert(1)
    world.relay()
    watching = subprocess.Popen(
        world.command("stats", "kafka", "--watch", "--json", "--interval=1"),
        stdout=subprocess.PIPE, cwd=world.folder, env=world.environment,
        text=True)
    consumer = world.start("consume", "kafka")
    items = []

    def are_seen():
        world.insert(20)
        world.relay()
        items.append(json.loads(watching.stdout.readline())["transports"][0])
        return all(any(item[name] for item in items)
                   for name in ("in_per_second", "out_per_second"))
    shops.until(are_seen, lambda: f"{items[-1]}\n{consumer.log()}")
    assert items[0]["in_per_second"] is None
    watching.terminate()
    watching.stdout.close()
    assert watching.wait(shops.PATIENCE_S) == 0
    assert consumer.stop() == 0


def test_a_cluster_that_is_only_published_to_is_no_trouble(sqlite_world):
    """Whether it names a topic or leaves that to the messages."""
    world = sqlite_world
    world.insert(4)
    world.relay()
    for place in ("", "/" + world.topic, "/nothing"):
        world.write_config(PUBLISHING_CONFIG.format(
            database=world.database.url, broker=world.broker + place))
        item = kafka_stats(world)
        assert (item["depth"], item["error"]) == (None, None), place
        assert "lags" not in item


def test_stats_name_a_topic_that_is_missing(sqlite_world):
    world = sqlite_world
    result = world.run("stats", "kafka", "--json")
    assert result.returncode == 1
    error = json.loads(result.stdout)["transports"][0]["error"]
    assert f"topic {world.topic} does not exist" in error


def set_unhandled(world, word, *names):
    """What becomes of records without a handler, and handlers of others."""
    world.set_config()
    text = world.config_path.read_text().replace(
        "        batch: 20\n", f"        batch: 20\n        unhandled: {word}\n")
    world.write_config(text + "".join(
        f"    '{name}': {{sql: 'INSERT INTO effects (body) VALUES (:body)'}}\n"
        for name in names))


def send_records(world, names):
    """One record each, its number as the body; None: without a type."""
    for number, name in enumerate(names):
        header = [] if name is None else ["-H", f"type={name}"]
        kcat(world, "-P", "-p", "0", "-H", f"X-Message-Id={uuid.uuid4()}",
             *header, given=b'{"n":%d}' % number)


@pytest.mark.quick
def test_a_topic_is_the_name_of_records_without_a_type(sqlite_world):
    world = sqlite_world
    world.consume()  # makes the topic
    set_unhandled(world, "ignore", world.topic, "Order*")
    send_records(world, [None, "OrderPlaced", "StockMoved", "order.placed"])
    world.consume()
    assert world.effects() == [0, 1, 3]
    assert world.failed() == 0


@pytest.mark.quick
def test_records_without_a_handler_wait_and_their_partition_with_them(
        sqlite_world):
    world = sqlite_world
    world.consume()  # makes the topic
    set_unhandled(world, "wait")
    send_records(world, ["order.placed", "StockMoved", "order.placed"])
    consumer = world.start("consume", "kafka", "-vv")
    consumer.wait_for("consumer.unhandled .*message=StockMoved")
    shops.until(lambda: world.effects() == [0], "what came before")
    assert consumer.stop() == 0
    assert world.effects() == [0]
    assert world.failed() == 0
    set_unhandled(world, "wait", "StockMoved")
    world.consume()
    assert world.effects() == [0, 1, 2]
    assert world.failed() == 0
