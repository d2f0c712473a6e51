"""The cases on SQLite: everything is a file, and nothing has to be started."""
import os
import shutil
import signal
import sqlite3
import subprocess
import time

from cleanup_cases import AGE, CleanupCases
from harness import STEP_LIMIT_S, Cases, Failure, resident, run

SAMPLE_S = 0.05
ARRIVED = "SELECT COALESCE(MAX(id), 0) FROM messenger_messages"
HANDLED = "SELECT COALESCE(MAX(rowid), 0) FROM effect"
CONFIG = """\
databases:
  default: sqlite:///{folder}/outbox.db
  queue: sqlite:///{folder}/queue.db
  inbox: sqlite:///{folder}/inbox.db
transports:
  outbox:
    dsn: {scheme}://default?table_name=messenger_outbox&queue_name=outbox
    relay_to: orders
  orders: queue://queue?queue_name=orders
  failed: doctrine://default?queue_name=failed
failure_transport: failed
message_broker:
  inbox:
    database: inbox
    message_types:
      order.placed: App\\Message\\OrderPlaced
handlers:
  order.placed:
    sql: INSERT INTO effect (id, body) VALUES (:id, :body)
"""


def query(file, sql):
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)
    try:
        return connection.execute(sql).fetchone()[0]
    finally:
        connection.close()


def middle_rate(samples, rows):
    """Rows per second between a tenth and nine tenths of the rows.

    samples: (seconds, rows arrived), ascending in both.
    """
    def moment(wanted):
        before = samples[0]
        for sample in samples[1:]:
            if sample[1] >= wanted and sample[1] > before[1]:
                share = (wanted - before[1]) / (sample[1] - before[1])
                return before[0] + share * (sample[0] - before[0])
            before = sample
        raise Failure(f"{before[1]} of {rows} rows arrived")
    return 0.8 * rows / (moment(0.9 * rows) - moment(0.1 * rows))
LONE = 20  # messages, of which each takes a minute


class SQLiteCases(CleanupCases, Cases):
    def __init__(self, options, folder, report, programs):
        super().__init__(options, folder, report, programs)
        self.skirnir = programs.skirnir
        self.config = folder / "run.yaml"
        self.here = folder / "run"  # where a run finds its files
        self.ordered = folder / "ordered.yaml"
        for file, scheme in ((self.config, "doctrine"),
                             (self.ordered, "ordered-doctrine")):
            file.write_text(CONFIG.format(folder=self.here, scheme=scheme))
        self.version = "SQLite"

    def close(self):
        pass

    # Files of a kind are made once; each run gets a copy.

    def make(self, name, *fillings):
        """An outbox filled with (queue, rows, delay in seconds), and an empty
        queue and inbox, as `skirnir setup` makes them."""
        made = self.folder / name
        if made.exists():
            return made
        self.clear()
        run(self.skirnir, "setup", "-c", self.config)
        run(self.skirnir, "setup-deduplication", "--force", "-c", self.config)
        for file in self.here.glob("*.db"):
            connection = sqlite3.connect(file)
            connection.execute("PRAGMA journal_mode = WAL")
            if file.name == "inbox.db":
                connection.execute("CREATE TABLE effect (id BLOB, body TEXT)")
            connection.close()
        for filling in fillings:
            self.version = run(self.programs.bench("fill-sqlite"),
                               self.here / "outbox.db", *filling)
        self.here.rename(made)
        return made

    def clear(self):
        shutil.rmtree(self.here, ignore_errors=True)
        self.here.mkdir()

    def stage(self, made):
        """What a copy leaves to be written to the disk would be paid for by
        the run: it is written before."""
        self.clear()
        for file in made.glob("*.db"):
            copy = self.here / file.name
            shutil.copyfile(file, copy)
            with open(copy, "rb+") as opened:
                os.fsync(opened.fileno())

    def watch(self, command, file, sql, rows):
        """Runs a command to its end: rows per second."""
        connection = sqlite3.connect(f"file:{self.here / file}?mode=ro",
                                     uri=True, timeout=30)
        errors = self.folder / "errors"
        try:
            with open(errors, "wb") as output:
                process = subprocess.Popen(
                    [str(part) for part in command], stdout=output,
                    stderr=output, stdin=subprocess.DEVNULL)
            samples = []
            end = time.monotonic() + STEP_LIMIT_S
            while process.poll() is None:
                samples.append((time.monotonic(),
                                connection.execute(sql).fetchone()[0]))
                if samples[-1][0] > end:
                    process.kill()
                time.sleep(SAMPLE_S)
            samples.append((time.monotonic(),
                            connection.execute(sql).fetchone()[0]))
        finally:
            connection.close()
        if process.returncode != 0 or samples[-1][1] != rows:
            raise Failure(
                f"{' '.join(str(part) for part in command)} exits with "
                f"{process.returncode} after {samples[-1][1]} of {rows} rows: "
                f"{errors.read_text(errors='replace').strip()[-500:]}")
        return middle_rate(samples, rows)

    # Two sides of a pair.

    def ceiling(self):
        self.stage(self.plain())
        return self.watch([self.programs.bench("ceiling-sqlite"),
                           self.here / "outbox.db", self.here / "queue.db"],
                          "queue.db", ARRIVED, self.rows)

    def relay(self, made, left=0, reader=False, config=None):
        """left: rows that must stay in the outbox. reader: another session
        has a read transaction open meanwhile."""
        self.stage(made)
        other = sqlite3.connect(self.here / "outbox.db", isolation_level=None)
        try:
            if reader:
                other.execute("BEGIN")
                other.execute("SELECT id FROM messenger_outbox LIMIT 1"
                              ).fetchone()
            rate = self.watch([self.skirnir, "relay", "outbox", "-c",
                               config or self.config, "--stop-when-empty"],
                              "queue.db", ARRIVED, self.rows)
        finally:
            other.close()
        for file, count, wanted in [
                ("queue.db", "COUNT(*) FROM messenger_messages", self.rows),
                ("queue.db", "COUNT(DISTINCT body) FROM messenger_messages",
                 self.rows),
                ("outbox.db", "COUNT(*) FROM messenger_outbox "
                 "WHERE queue_name <> 'outbox.sent'", left)]:
            found = query(self.here / file, f"SELECT {count}")
            if found != wanted:
                raise Failure(f"{count} is {found}, not {wanted}")
        return rate

    def make_old(self, rows):
        is_new = not (self.folder / "old").exists()
        made = self.make("old", ("outbox.sent", rows, 0),
                         ("outbox", self.rows, 0))
        if is_new:
            connection = sqlite3.connect(made / "outbox.db")
            connection.execute(AGE)
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        return made

    def ask_outbox(self, sql):
        return query(self.here / "outbox.db", sql)

    def drain_beside_old(self, made, config):
        return self.relay(made, config=config)

    # Cases.

    def plain(self):
        return self.make("plain", ("outbox", self.rows, 0))

    def run_plain(self):
        made = self.plain()
        self.compare(f"plain: {self.rows:,} rows", self.ceiling,
                     lambda: self.relay(made), 0.6)

    def run_scheduled(self):
        others = self.rows // 2
        made = self.make("scheduled", ("outbox", others, 86400),
                         ("outbox", self.rows, 0))
        self.compare(f"scheduled: {others:,} rows for tomorrow in front",
                     self.ceiling, lambda: self.relay(made, others), 0.5)

    def run_other_queue(self):
        others = self.rows * 5
        made = self.make("other-queue", ("other", others, 0),
                         ("outbox", self.rows, 0))
        self.compare(f"other-queue: {others:,} rows of another queue in front",
                     self.ceiling, lambda: self.relay(made, others), 0.5)
        shutil.rmtree(made)

    def run_open_read(self):
        made = self.plain()
        self.compare("open-read: a read transaction open on the outbox for "
                     "the whole drain", self.ceiling,
                     lambda: self.relay(made, reader=True), 0.5)

    def run_ordered(self):
        made = self.folder / "ordered"
        if not made.exists():
            self.stage(self.plain())
            run(self.skirnir, "setup", "-c", self.ordered)
            connection = sqlite3.connect(self.here / "outbox.db")
            connection.execute("UPDATE messenger_outbox SET partition_key = "
                               "'key-' || (id % 1000)")
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
            self.here.rename(made)
        self.compare(f"ordered: {self.rows:,} rows of 1,000 partitions in "
                     "order, against the same rows without order",
                     lambda: self.relay(made),
                     lambda: self.relay(made, config=self.ordered), 0.8)

    def run_consume(self):
        rows = self.rows // 4
        made = self.folder / "consume"
        if not made.exists():
            self.stage(self.make("consume-outbox", ("outbox", rows, 0)))
            run(self.skirnir, "relay", "outbox", "-c", self.config,
                "--stop-when-empty")
            self.here.rename(made)

        def side(command):
            self.stage(made)
            rate = self.watch(command, "inbox.db", HANDLED, rows)
            left = query(self.here / "queue.db",
                         "SELECT COUNT(*) FROM messenger_messages")
            if left != 0:
                raise Failure(f"{left} rows are left in the queue")
            return rate
        self.compare(
            f"consume: {rows:,} rows, 100 in a transaction (for information)",
            lambda: side([self.programs.bench("ceiling-consume-sqlite"),
                          self.here / "queue.db", self.here / "inbox.db"]),
            lambda: side([self.skirnir, "consume", "orders", "-c", self.config,
                          "--stop-when-empty"]))

    def start_relay(self):
        return subprocess.Popen(
            [str(self.skirnir), "relay", "outbox", "-c", str(self.config),
             "--quiet"], stdin=subprocess.DEVNULL)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "no answer"
        if code != 0:
            raise Failure(f"the relay answers SIGTERM with {code}")

    def drain_memory(self, rows):
        self.stage(self.make(f"memory-{rows}", ("outbox", rows, 0)))
        relay = self.start_relay()
        try:
            connection = sqlite3.connect(
                f"file:{self.here / 'outbox.db'}?mode=ro", uri=True, timeout=30)
            end = time.monotonic() + STEP_LIMIT_S
            while connection.execute("SELECT EXISTS (SELECT 1 FROM "
                                     "messenger_outbox)").fetchone()[0]:
                if relay.poll() is not None or time.monotonic() > end:
                    raise Failure("the relay did not drain the outbox")
                time.sleep(SAMPLE_S)
            connection.close()
            return resident(relay.pid)
        finally:
            self.stop(relay)

    def run_memory(self):
        self.title("memory of the relay, drained and idle")
        for rows in (1000, self.rows // 10, self.rows * 5):
            most, now = self.drain_memory(rows)
            self.say(f"{rows:9,} rows: VmHWM {most:.1f} MB, VmRSS {now:.1f} MB"
                     f"; target under 16 MB: "
                     f"{'met' if most < 16 else 'MISSED'}")
            shutil.rmtree(self.folder / f"memory-{rows}")

    def measure_latency(self, messages, pause_ms):
        return [int(number) / 1000 for number in run(
            self.programs.bench("latency-sqlite"), self.here / "outbox.db",
            self.here / "queue.db", messages, pause_ms).split()]

    def run_latency(self):
        count = 300 if self.quick else 3000
        self.title("latency from commit to queue (for information)")
        self.stage(self.make("empty"))
        relay = self.start_relay()
        try:
            p50, p99, most, publish50, publish99 = \
                self.measure_latency(count, 10)
            self.say(f"{count:,} messages, 100/s: p50 {p50:.1f} ms, p99 "
                     f"{p99:.1f} ms, most {most:.1f} ms; the application's "
                     f"transaction: p50 {publish50:.1f} ms, p99 "
                     f"{publish99:.1f} ms")
        finally:
            self.stop(relay)

    def run_lone(self):
        silence_s, count = (2, 2) if self.quick else (60, LONE)
        self.title("lone: a message after silence, from commit to queue")
        self.stage(self.make("empty"))
        relay = self.start_relay()
        try:
            times = sorted(self.measure_latency(1, silence_s * 1000)[0]
                           for _ in range(count))
            self.say(f"{count} messages, each after {silence_s} s: p50 "
                     f"{times[count // 2]:.1f} ms, most {times[-1]:.1f} ms")
        finally:
            self.stop(relay)


SQLiteCases.CASES = {
    "plain": SQLiteCases.run_plain,
    "scheduled": SQLiteCases.run_scheduled,
    "other-queue": SQLiteCases.run_other_queue,
    "open-read": SQLiteCases.run_open_read,
    "cleanup": SQLiteCases.run_cleanup,
    "ordered": SQLiteCases.run_ordered,
    "consume": SQLiteCases.run_consume,
    "memory": SQLiteCases.run_memory,
    "latency": SQLiteCases.run_latency,
    "lone": SQLiteCases.run_lone,
}
