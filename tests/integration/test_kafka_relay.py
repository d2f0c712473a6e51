"""kafka_outbox to Kafka in the place of kafka-outbox-relay: its table, its
environment, its marks."""
import http.server
import json
import os
import threading
import urllib.error
import urllib.request
import uuid

import pytest

import shop as shops
import test_kafka
import worlds
from servers import ports

# As the other relay makes it.
OTHERS_TABLE = {
    "mariadb": """CREATE TABLE kafka_outbox (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        batch_id CHAR(36) NULL, push_started_at DATETIME NULL,
        push_completed_at DATETIME NULL, topic VARCHAR(255) NOT NULL,
        payload_json JSON NOT NULL, payload_headers JSON NOT NULL,
        push_attempts TINYINT NOT NULL DEFAULT 0,
        errored TINYINT NOT NULL DEFAULT 0,
        error_reason VARCHAR(255) NOT NULL DEFAULT '',
        created_at DATETIME DEFAULT CURRENT_TIMESTAMP,
        partition_key VARCHAR(255) NOT NULL DEFAULT '',
        `key` VARCHAR(255) NOT NULL DEFAULT '',
        INDEX outbox_push_completed_at (push_completed_at),
        INDEX outbox_batch_query (batch_id, created_at))""",
    "postgresql": """CREATE TABLE kafka_outbox (
        id SERIAL PRIMARY KEY, batch_id CHAR(36) NULL,
        push_started_at TIMESTAMP NULL, push_completed_at TIMESTAMP NULL,
        topic VARCHAR(255) NOT NULL, payload_json JSON NOT NULL,
        payload_headers JSON NOT NULL, push_attempts SMALLINT NOT NULL DEFAULT 0,
        errored SMALLINT NOT NULL DEFAULT 0,
        error_reason VARCHAR(255) NOT NULL DEFAULT '',
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        partition_key VARCHAR(255) NOT NULL DEFAULT '',
        key VARCHAR(255) NOT NULL DEFAULT '')""",
}
AGO = {"mariadb": "UTC_TIMESTAMP() - INTERVAL {} SECOND",
       "postgresql": "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP) - "
                     "INTERVAL '{} seconds'",
       "sqlite": "datetime('now', '-{} seconds')"}


def quote(text):
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


class World(shops.Shop):
    def __init__(self, folder, database, brokers=None):
        super().__init__(folder)
        self.database = database
        self.brokers = brokers or \
            worlds.need("SKR_KAFKA_URL").removeprefix("kafka://")
        self.topic = f"skr-{uuid.uuid4().hex}"
        self.port = ports.take()
        self.environment.update({
            "DB_NAME": str(getattr(database, "path", None) or database.name),
            "KAFKA_HOST": self.brokers, "LOG_LEVEL": "debug",
            "HTTP_LISTEN": f"127.0.0.1:{self.port.number}",
            "POLL_FREQUENCY_MS": "200"})
        if database.kind == "sqlite":
            self.environment["DB_DRIVER"] = "sqlite"
            return
        driver, variable = {"mariadb": ("mysql", "SKR_MARIADB_URL"),
                            "postgresql": ("postgres", "SKR_POSTGRESQL_URL")
                            }[database.kind]
        self.environment.update({
            "DB_DRIVER": driver, "DB_HOST": "127.0.0.1",
            "DB_PORT": os.environ[variable.replace("_URL", "_PORT")],
            "DB_USER": "root" if driver == "mysql" else "postgres",
            "DB_PASS": "unused" if driver == "postgres" else
            os.environ.get("SKR_MARIADB_PASSWORD", "secret")})
        if driver == "mysql":
            database.ask("CREATE USER IF NOT EXISTS kor@localhost IDENTIFIED "
                         "BY 'secret'; GRANT ALL ON *.* TO kor@localhost")
            self.environment["DB_USER"] = "kor"

    def ask(self, sql):
        return self.database.ask(sql)

    def key(self):
        return "`key`" if self.database.kind == "mariadb" else '"key"'

    def insert(self, *rows):
        """topic, payload, headers, key, partition key."""
        values = ",".join("(" + ",".join(map(quote, row)) + ")"
                          for row in rows)
        self.ask(f"INSERT INTO kafka_outbox (topic, payload_json, "
                 f"payload_headers, {self.key()}, partition_key) "
                 f"VALUES {values}")

    def insert_numbers(self, count, first=0):
        self.insert(*((self.topic, f'{{"n": {number}}}', "{}",
                       f"key-{number % 10}", "")
                      for number in range(first, first + count)))

    def start_relay(self, *arguments):
        relay = self.start("kafka-relay", *arguments)
        relay.wait_for("kafkarelay.started")
        return relay

    def open_rows(self):
        return int(self.ask("SELECT COUNT(*) FROM kafka_outbox "
                            "WHERE push_completed_at IS NULL AND errored = 0"))

    def wait_until_done(self, relay, patience_s=shops.PATIENCE_S):
        shops.until(lambda: self.open_rows() == 0,
                    lambda: f"{self.open_rows()} open rows\n{relay.log()}",
                    patience_s)

    def drain(self, *arguments):
        relay = self.start_relay(*arguments)
        self.wait_until_done(relay)
        assert relay.stop() == 0
        return relay

    def records(self, form="%p\t%k\t%K\t%h\t%s\n", topic=None):
        return [line.split("\t") for line in worlds.run(
            "kcat", "-C", "-q", "-e", "-b", self.brokers, "-t",
            topic or self.topic, "-o", "beginning", "-f",
            form.replace("\n", "\\n").replace("\t", "\\t")).splitlines()]

    def numbers(self):
        return [json.loads(value)["n"]
                for value, in self.records("%s\n")]

    def get(self, path):
        try:
            with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port.number}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def leave(self):
        self.close()
        self.port.close()
        self.database.drop()


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def world(request, tmp_path):
    opened = World(tmp_path, test_kafka.new_database(request.param, tmp_path))
    yield opened
    opened.leave()


@pytest.fixture
def sqlite_world(tmp_path):
    opened = World(tmp_path, test_kafka.SQLite(tmp_path / "shop.db"))
    yield opened
    opened.leave()


@pytest.fixture(params=["mariadb", "postgresql"])
def others_world(request, tmp_path):
    """A table that the other relay made."""
    opened = World(tmp_path, test_kafka.new_database(request.param, tmp_path))
    opened.ask(OTHERS_TABLE[request.param])
    yield opened
    opened.leave()


def test_k1_rows_reach_kafka_with_value_headers_and_key(others_world):
    world = others_world
    world.insert(
        (world.topic, '{"a":1}', '{"h":"x","n":2.50,"b":true,"o":{"c":[1]}}',
         "k1", ""),
        (world.topic, '{"a":2}', "{}", "k2", "p"),
        (world.topic, '{"a":3}', "{}", "", ""))
    relay = world.drain()
    # What was there before is marked, and keys stay where they were.
    assert '"on_success":"mark"' in relay.log()
    assert '"partitioner":"fnv1a"' in relay.log()
    found = {json.loads(value)["a"]: (int(partition), key, int(size), headers)
             for partition, key, size, headers, value in world.records()}
    assert found[1][1:] == ("k1", 2, 'h=x,n=2.50,b=true,o={"c":[1]}')
    assert found[2][1:] == ("k2", 2, "")
    assert found[3][1:] == ("", -1, "")
    assert found[1][0] == fnv1a(b"k1") and found[2][0] == fnv1a(b"p")
    assert world.ask(
        "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS NOT NULL "
        "AND push_started_at IS NOT NULL AND batch_id IS NOT NULL "
        "AND push_attempts = 1 AND errored = 0 AND error_reason = ''") == "3"


def fnv1a(text, partitions=4):
    value = 0x811c9dc5
    for byte in text:
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return (value if value < 1 << 31 else (1 << 32) - value) % partitions


def test_k2_rows_that_no_topic_takes_are_errored_and_others_pass(others_world):
    world = others_world
    world.insert(("", '{"a":1}', "{}", "", ""),
                 (world.topic, '{"a":2}', "[1]", "", ""),
                 ("a b", '{"a":3}', "{}", "", ""),
                 (world.topic, '{"a":4}', "[]", "", ""))
    world.insert_numbers(1000)
    world.drain()
    rows = [line.split("\t")[0] for line in world.ask(
        "SELECT error_reason, topic FROM kafka_outbox WHERE errored = 1 "
        "AND push_completed_at IS NULL ORDER BY id").splitlines()]
    assert len(rows) == 3
    assert "no name of a topic" in rows[0]
    assert rows[1].startswith("error unmarshalling message headers for "
                                 "publishing to Kafka: ")
    assert len(world.records()) == 1001
    shown = world.check("kafka-relay", "errored", "show").splitlines()
    assert len(shown) == 3
    # A topic is mended by hand and the row published again.
    row = shown[0].split("\t")[0]
    world.ask(f"UPDATE kafka_outbox SET topic = '{world.topic}' "
              f"WHERE id = {row}")
    world.check("kafka-relay", "errored", "retry", row)
    world.check("kafka-relay", "errored", "remove",
                shown[1].split("\t")[0])
    world.drain()
    assert len(world.records()) == 1002
    assert len(world.check("kafka-relay", "errored",
                           "show").splitlines()) == 1


def test_k3_rows_that_another_relay_left_are_taken_when_their_time_is_up(
        others_world):
    world = others_world
    ago = AGO[world.database.kind]
    world.insert_numbers(20)
    world.ask("UPDATE kafka_outbox SET batch_id = "
              "'11111111-1111-1111-1111-111111111111', push_attempts = 1, "
              f"push_started_at = {ago.format(3600)} WHERE id <= 10")
    world.ask("UPDATE kafka_outbox SET batch_id = "
              "'22222222-2222-2222-2222-222222222222', "
              f"push_started_at = {ago.format(10)} WHERE id > 10")
    relay = world.start_relay()
    shops.until(lambda: world.open_rows() == 10, relay.log)
    assert relay.stop() == 0
    assert sorted(world.numbers()) == list(range(10))
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox WHERE id <= 10 AND "
                     "push_attempts = 2 AND batch_id <> "
                     "'11111111-1111-1111-1111-111111111111'") == "10"
    # At once when it is told so.
    world.drain("--take-over")
    assert sorted(world.numbers()) == list(range(20))


def test_k4_k5_cleanup_removes_what_is_old_and_keeps_what_is_fresh(world):
    world.environment["ON_SUCCESS"] = "mark"
    world.start_relay().stop()
    ago = AGO[world.database.kind]
    world.insert_numbers(1502)
    world.ask(f"UPDATE kafka_outbox SET push_completed_at = {ago.format(7200)} "
              "WHERE id <= 1500")
    world.ask(f"UPDATE kafka_outbox SET push_completed_at = {ago.format(60)} "
              "WHERE id = 1501")
    world.environment["RUN_CLEANUP"] = "true"
    world.environment["RUN_OPTIMIZE"] = "true"
    assert world.check("kafka-relay") == \
        "deleted 1500 published outbox records\n"
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox") == "2"


def test_k6_cleanup_tells_the_sidecar(sqlite_world):
    world = sqlite_world
    world.start_relay().stop()
    told = []

    class Sidecar(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append((self.path, self.headers["Content-Type"]))
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Sidecar) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        world.environment["SIDECAR_PROXY_URL"] = \
            f"http://127.0.0.1:{server.server_port}"
        world.check("kafka-relay", "--cleanup")
    assert told == [("/quitquitquit", "text/plain")]
    result = world.run("kafka-relay", "--cleanup")
    assert result.returncode == 1
    assert "SIDECAR_PROXY_URL" in result.stderr


def test_a_new_table_takes_a_topic_and_a_payload_and_rows_go(world):
    relay = world.start_relay()
    assert '"on_success":"delete"' in relay.log()
    assert '"partitioner":"murmur2"' in relay.log()
    world.ask("INSERT INTO kafka_outbox (topic, payload_json) "
              f"VALUES ('{world.topic}', '{{\"n\":0}}')")
    world.ask("INSERT INTO kafka_outbox (topic, payload_json, payload_headers) "
              f"VALUES ('{world.topic}', NULL, '{{\"x\":null}}')")
    world.wait_until_done(relay)
    assert relay.stop() == 0
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox") == "0"
    sizes = sorted(int(size) for size, in world.records("%S\n"))
    assert sizes == [-1, 7]


def test_order_is_kept_and_a_kill_loses_nothing(world):
    world.start_relay().stop()
    world.insert_numbers(3000)
    for failpoint in ("relay.submitted", "relay.confirmed", "relay.settling"):
        world.hold_at(failpoint, "kafka-relay", visit=2).kill()
    world.drain()
    last = {}
    for number in world.numbers():
        # First occurrences are in order.
        key = number % 10
        assert number <= last.get(key, key - 10) + 10
        last[key] = max(last.get(key, -1), number)
    assert sorted(set(world.numbers())) == list(range(3000))


def test_two_relays_share_nothing_and_double_nothing(world):
    first = world.start_relay()
    first.wait_for("relay.active")
    other = ports.take()
    second = world.start("kafka-relay", f"--listen=127.0.0.1:{other.number}")
    second.wait_for("relay.standby")
    for start in range(0, 2000, 500):
        world.insert_numbers(500, start)
    world.wait_until_done(first)
    assert sorted(world.numbers()) == list(range(2000))
    first.kill()
    world.insert_numbers(100, 2000)
    second.wait_for("relay.active")
    world.wait_until_done(second)
    assert second.stop() == 0
    other.close()
    assert sorted(world.numbers()) == list(range(2100))


def test_k19_k20_health_and_metrics_tell_the_truth(sqlite_world):
    world = sqlite_world
    world.start_relay().stop()
    world.insert_numbers(5)
    world.insert(("a b", "{}", "{}", "", ""))
    world.ask("UPDATE kafka_outbox SET errored = 1 WHERE topic = 'a b'")
    waiting = world.start("kafka-relay", "--polling-disabled")
    shops.until(lambda: is_up(world), waiting.log)
    assert world.get("/healthz")[0] == 200
    assert world.get("/healthz?readiness=1")[0] == 200
    assert world.get("/nothing")[0] == 404
    status, text = world.get("/metrics")
    assert status == 200
    assert "\nkafka_outbox_queue_size 6\n" in text
    assert "\nkafka_outbox_total_size 6\n" in text
    assert "\nkafka_outbox_errored_size 1\n" in text
    assert waiting.stop() == 0
    world.environment["KAFKA_HOST"] = "127.0.0.1:1"
    waiting = world.start("kafka-relay", "--polling-disabled")
    shops.until(lambda: is_up(world), waiting.log)
    assert world.get("/healthz?readiness=1")[0] == 503
    world.ask("DROP TABLE kafka_outbox")
    assert world.get("/healthz")[0] == 503
    assert waiting.stop() == 0


def is_up(world):
    try:
        world.get("/healthz")
        return True
    except OSError:
        return False


def test_k22_settings_are_read_and_mistakes_named(sqlite_world):
    world = sqlite_world
    result = world.run("kafka-relay", environment={"DB_DRIVER": ""})
    assert result.returncode == 255
    assert "DB_DRIVER" in result.stderr
    result = world.run("kafka-relay", environment={"DB_DRIVER": "oracle"})
    assert result.returncode == 1
    assert "mysql or postgres" in result.stderr
    for name, value in (("BATCH_SIZE", "many"), ("RUN_CLEANUP", "perhaps"),
                        ("ON_SUCCESS", "forget"), ("KAFKA_HOST", "")):
        result = world.run("kafka-relay", environment={name: value})
        assert result.returncode == 1
        assert name in result.stderr
    relay = world.start("kafka-relay", "--db-name", world.path("flag"),
                        "--dboutboxtable", "other_outbox",
                        environment={"NEW_RELIC_ENABLED": "true"})
    relay.wait_for("kafkarelay.started")
    assert '"table":"other_outbox"' in relay.log()
    assert relay.stop() == 0
    assert world.count("flag", "other_outbox") == 0


def test_lines_are_json(sqlite_world):
    relay = sqlite_world.start_relay()
    relay.wait_for("relay.active")
    assert relay.stop() == 0
    lines = [json.loads(line) for line in relay.log().splitlines()]
    assert {"level", "msg", "time"} <= set(lines[0])
    assert "relay.stopped" in [line["msg"] for line in lines]
