"""The cases of kafka-relay on MariaDB and PostgreSQL, with Kafka behind them.

The servers are started here, in folders of their own, and stopped at the end.
"""
from harness import (HELD_RATE, Background, Cases, Failure, load,
                     processor_us, run, wait_for)
from server_databases import KINDS, servers

TOPIC = "bench"
# What was consumed is of no use any more: the disk must not fill up.
KAFKA = {"log.retention.bytes": 8 << 20, "log.segment.bytes": 8 << 20,
         "log.retention.check.interval.ms": 5000}
COLUMNS = "topic, payload_json, payload_headers, {key}"
OPEN = "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS NULL"
MOST_MEMORY = 48


class KafkaCases(Cases):
    def __init__(self, kind, options, folder, report, programs):
        super().__init__(options, folder, report, programs)
        self.database = KINDS[kind]()
        is_mysql = kind.startswith("mariadb")
        self.key = "`key`" if is_mysql else '"key"'
        self.driver = "mysql" if is_mysql else "postgres"
        self.kafka = servers.Kafka(settings=KAFKA)
        self.made = set()
        try:
            self.database.start()
            self.kafka.start()
            self.version = f"{self.database.version()}, Kafka " + \
                servers.kafka.VERSION
            if is_mysql:
                self.database.ask("CREATE USER bench@localhost IDENTIFIED BY "
                                  "'bench'; GRANT ALL ON *.* TO "
                                  "bench@localhost")
            else:
                self.database.ask("CREATE ROLE bench SUPERUSER LOGIN")
            run(*self.command("migrate"))
            # The topic is made by its first record.
            self.kafka.produce(TOPIC, ["{}"])
            if self.counts:
                self.database.count_always()
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            self.kafka.close()
        finally:
            self.database.close()

    @property
    def brokers(self):
        return f"127.0.0.1:{self.kafka.port}"

    def command(self, *arguments):
        return [self.programs.skirnir, "kafka-relay", *arguments,
                f"--db-driver={self.driver}", "--db-host=127.0.0.1",
                f"--db-port={self.database.port}", "--db-user=bench",
                "--db-pass=bench", "--db-name=skirnir",
                f"--kafka-host={self.brokers}", "--listen="]

    # Small steps.

    def fill(self, name, kept=0, times=1):
        """A table of rows, made once: so many completed ones before `times`
        times the usual number of open ones."""
        if name in self.made:
            return name
        ask = self.database.ask
        ask("DELETE FROM kafka_outbox")
        run(self.programs.bench("fill-kafka"), self.database.url, TOPIC,
            self.rows)
        ask("CREATE TABLE one_more AS SELECT * FROM kafka_outbox")
        columns = COLUMNS.format(key=self.key)
        insert = f"INSERT INTO kafka_outbox ({columns}) " \
            f"SELECT {columns} FROM one_more"
        for _ in range(kept):
            ask("UPDATE kafka_outbox SET batch_id = '', push_attempts = 1, "
                "push_started_at = CURRENT_TIMESTAMP, push_completed_at = "
                "CURRENT_TIMESTAMP WHERE push_completed_at IS NULL")
            ask(insert)
        for _ in range(1, times):
            ask(insert)
        ask("DROP TABLE one_more")
        ask(f"CREATE TABLE {name} AS SELECT * FROM kafka_outbox")
        self.made.add(name)
        return name

    def stage(self, name):
        """kafka_outbox becomes a copy of a table, with nothing left for the
        server to write."""
        self.database.ask("TRUNCATE kafka_outbox" + (
            "" if name is None else
            f"; INSERT INTO kafka_outbox SELECT * FROM {name}"))
        if name is not None and self.driver == "postgres":
            self.database.ask(
                "ANALYZE kafka_outbox; SELECT SETVAL(PG_GET_SERIAL_SEQUENCE("
                "'kafka_outbox', 'id'), MAX(id)) FROM kafka_outbox")
        self.database.settle()

    def open_rows(self):
        return int(self.database.ask(OPEN))

    def start(self, name, *command):
        return Background(self.folder / name, *command)

    def processor_us(self):
        """By server, with all its processes."""
        return {server.name: processor_us(
            servers.processes.living_in(server.folder))
            for server in (self.kafka, self.database)}

    def drain(self, made, command, rows, ends):
        """(rate, memory) of a drain of a copy of that table. ends: by itself,
        else when it is told to."""
        self.stage(made)
        watch = self.start("watch", self.programs.bench("watch-kafka"),
                           self.brokers, TOPIC, rows)
        side = None
        try:
            watch.wait_for_text("ready")
            before = self.processor_us()
            asked = self.database.statements() if self.counts else 0
            side = Background(self.folder / "side", *command,
                              environment=self.counting())
            wait_for(lambda: watch.has_ended() | side.has_ended() & ends,
                     lambda: side.failure("does not end"))
            watch.wait()
            wait_for(lambda: self.open_rows() == 0,
                     lambda: side.failure("leaves rows"), 60)
            side.has_ended()
            if ends:
                side.wait()
            else:
                side.stop()
        finally:
            for background in filter(None, (watch, side)):
                background.end()
        self.costs = {who: (value - before[who]) / rows
                      for who, value in self.processor_us().items()}
        self.costs["itself"] = side.processor_us / rows
        if self.counts:
            self.take_counts(rows, self.database.statements() - asked)
        return float(watch.text().split("\n")[-1].split()[2]), side.most_memory

    # Sides of a pair.

    def ceiling(self, made, *how):
        return self.drain(made, [self.programs.bench("ceiling-kafka"),
                                 self.database.url, self.brokers, *how],
                          self.rows, True)[0]

    def relay(self, made, how, rows=None):
        return self.drain(made, self.command(f"--on-success={how}"),
                          rows or self.rows, False)

    # Cases.

    def compare_drain(self, name, how):
        made = self.fill("plain")
        self.compare(f"{name}: kafka-relay drains {self.rows:,} rows with "
                     f"--on-success={how}, against the loop; beside: the loop "
                     "without headers",
                     lambda: self.ceiling(made, how, "dressed"),
                     lambda: self.relay(made, how)[0], 0.7,
                     lambda: self.ceiling(made, how))

    def run_delete(self):
        self.compare_drain("kafka-delete", "delete")

    def run_mark(self):
        self.compare_drain("kafka-mark", "mark")

    def run_kept(self):
        plain, kept = self.fill("plain"), self.fill("kept", kept=10)
        self.compare(f"kafka-kept: {self.rows * 10:,} completed rows in the "
                     "table, against none", lambda: self.relay(
                         plain, "mark")[0],
                     lambda: self.relay(kept, "mark")[0], 0.8)

    def run_memory(self):
        plain, many = self.fill("plain"), self.rows * 10
        waiting = self.fill("waiting", times=10)
        most = 0

        def drain():
            nonlocal most
            rate, memory = self.relay(waiting, "delete", many)
            most = max(most, memory)
            return rate
        self.compare(f"kafka-memory: {many:,} rows waiting against "
                     f"{self.rows:,}", lambda: self.relay(plain, "delete")[0],
                     drain, 0.8)
        self.say(f"VmHWM {most:.1f} MB; target under {MOST_MEMORY} MB: "
                 f"{'met' if most < MOST_MEMORY else 'MISSED'}")

    def latency(self, count):
        """p50, p99 and the most in ms, of that many rows."""
        return [int(word) / 1000 for word in run(
            self.programs.bench("latency-kafka"), self.database.url,
            self.brokers, TOPIC, count, 10).split()]

    def run_latency(self):
        count = 500 if self.quick else 6000
        most50 = 5 if self.database.tells else 6
        self.title("kafka-latency: from the end of COMMIT to a consumer")
        for name in self.in_turns():
            self.stage(None)
            relay = self.start("relay", *self.command(), "--verbose")
            try:
                relay.wait_for_text("relay.active")
                # A Java server that has just begun is not what is measured.
                self.latency(count // 4)
                p50, p99, most = self.latency(count)
                self.say(f"{name}{count:,} rows, 100/s as a Poisson process: "
                         f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most "
                         f"{most:.1f} ms (targets {most50} and 25); load "
                         f"{load()}")
            finally:
                relay.stop()
            if self.open_rows() != 0:
                raise Failure("rows are left")

    def run_application(self):
        """Its inserts, beside the relay and beside the same load on Kafka."""
        def measure(*command):
            self.stage(None)
            return self.measure_application(self.start("beside", *command),
                                            TOPIC)
        self.compare_application(
            "kafka-application", "a producer",
            lambda: measure(self.programs.bench("load-kafka"), self.brokers,
                            TOPIC, HELD_RATE),
            lambda: measure(*self.command()))


KafkaCases.CASES = {
    "kafka-delete": KafkaCases.run_delete,
    "kafka-mark": KafkaCases.run_mark,
    "kafka-kept": KafkaCases.run_kept,
    "kafka-memory": KafkaCases.run_memory,
    "kafka-latency": KafkaCases.run_latency,
    "kafka-application": KafkaCases.run_application,
}
# On a server that is there for these alone.
KafkaCases.WAITING_CASES = {"kafka-latency": KafkaCases.run_latency}
