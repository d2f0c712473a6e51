"""A table kafka_outbox in a database of its own and a topic of its own, and
`skirnir kafka-relay` by the environment of kafka-outbox-relay."""
import json
import urllib.error
import urllib.parse
import urllib.request
import uuid

import shop as shops
import test_kafka
import worlds
from servers import ports

# As the other relay makes it.
OTHERS_TABLE = {
    "mysql": """CREATE TABLE kafka_outbox (
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
AGO = {"mysql": "UTC_TIMESTAMP() - INTERVAL {} SECOND",
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
        if database.dialect == "sqlite":
            self.environment["DB_DRIVER"] = "sqlite"
            return
        is_mysql = database.dialect == "mysql"
        self.environment.update({
            "DB_DRIVER": "mysql" if is_mysql else "postgres",
            "DB_HOST": "127.0.0.1",
            "DB_PORT": str(urllib.parse.urlsplit(database.url).port),
            "DB_USER": "kor" if is_mysql else "postgres",
            "DB_PASS": "secret"})
        if is_mysql:
            # Its root has no password, which the other relay would not take.
            database.ask("CREATE USER IF NOT EXISTS kor@localhost IDENTIFIED "
                         "BY 'secret'; GRANT ALL ON *.* TO kor@localhost")

    def ask(self, sql):
        return self.database.ask(sql)

    def key(self):
        return "`key`" if self.database.dialect == "mysql" else '"key"'

    def insert(self, *rows):
        """topic, payload, headers, key, partition key."""
        values = ",".join("(" + ",".join(map(quote, row)) + ")"
                          for row in rows)
        self.ask(f"INSERT INTO kafka_outbox (topic, payload_json, "
                 f"payload_headers, {self.key()}, partition_key) "
                 f"VALUES {values}")

    def insert_numbers(self, count, first=0):
        """Of ten keys, each in order."""
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

    def expect_in_order(self, count):
        """All of them arrived, of each key the first occurrences in order;
        how many came twice."""
        numbers = self.numbers()
        following = {key: key for key in range(10)}
        for number in numbers:
            key = number % 10
            assert number <= following[key], \
                f"{number} came before {following[key]}"
            if number == following[key]:
                following[key] += 10
        assert set(numbers) == set(range(count))
        return len(numbers) - count

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

    def is_up(self):
        try:
            self.get("/healthz")
            return True
        except OSError:
            return False

    def errored(self):
        """The reasons, in the order of ids."""
        return self.ask("SELECT error_reason FROM kafka_outbox "
                        "WHERE errored = 1 AND push_completed_at IS NULL "
                        "ORDER BY id").splitlines()

    def leave(self):
        self.close()
        self.port.close()
        self.database.drop()


def fnv1a(text, partitions=4):
    value = 0x811c9dc5
    for byte in text:
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return (value if value < 1 << 31 else (1 << 32) - value) % partitions


def new_world(kind, folder, brokers=None):
    return World(folder, test_kafka.new_database(kind, folder), brokers)
