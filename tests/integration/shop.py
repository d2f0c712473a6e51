"""A small shop to test the real program on.

An application writes orders and messages into shop.db, `skirnir relay outbox`
carries them to the queue in queue.db, and `skirnir consume orders` runs a
handler in billing.db, which writes one row into `effects` for each order.

SKIRNIR names the program under test, built with failpoints. SKIRNIR_RELEASE
names one built for users, where that makes a difference. SKIRNIR_LONG=1 or
SKIRNIR_TEST_LONG=1 asks for the large sizes.
"""
import json
import os
import pathlib
import re
import resource
import signal
import sqlite3
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get(
    "SKIRNIR", str(ROOT / "build-test" / "src" / "app" / "skirnir"))
RELEASE = os.environ.get("SKIRNIR_RELEASE", PROGRAM)
LONG = any(os.environ.get(name, "") not in ("", "0")
           for name in ("SKIRNIR_LONG", "SKIRNIR_TEST_LONG"))
# Long enough for a machine that does other things too.
PATIENCE_S = 60
# For messages of little size: an idle program, the stacks of its threads, and
# what it may have in flight.
CEILING_MIB = 160

ID_STAMP = r"X-Message-Stamp-Freyr\MessageBroker\Inbox\MessageIdStamp"

CONFIG = """\
databases:
    default: '{shop}'
    queue: '{queue}'
    billing: '{billing}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        serializer: messenger.transport.symfony_serializer
        relay_to: orders
        in_flight: {in_flight}
    orders:
        dsn: 'queue://queue?queue_name=orders&redeliver_timeout=3'
        options: {{auto_setup: {auto_setup}}}
        retry_strategy: {{max_retries: {max_retries}, delay: 1}}
    failed:
        dsn: 'doctrine://default?queue_name=failed'
        serializer: messenger.transport.symfony_serializer
failure_transport: failed
message_broker:
    inbox:
        database: billing
handlers:
    order.placed:
        sql: >
            INSERT INTO effects (order_id, message_id, name, body)
            VALUES (json_extract(:body, '$.orderId'), :id_text, :name, :body)
"""


def until(condition, what, patience_s=PATIENCE_S, pause_s=0.002):
    """The first true result of condition(); fails when there is none in time.
    """
    deadline = time.monotonic() + patience_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"waited {patience_s} s for {text}")
        time.sleep(pause_s)


class Program:
    """A skirnir process in the background, its log in a file."""

    def __init__(self, command, log_path, environment, **options):
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, **options)
        self.pid = self.process.pid

    def log(self):
        return self.log_path.read_text("utf-8", "replace")

    def events(self, name):
        """The lines of the log that tell of this event."""
        return [line for line in self.log().splitlines()
                if f" {name} " in f"{line} "]

    def is_running(self):
        return self.process.poll() is None

    def wait_for(self, pattern, patience_s=PATIENCE_S):
        """The first match in the log."""
        def look():
            # Asked first: what a process said before it ended is in its log.
            ended = not self.is_running()
            found = re.search(pattern, self.log())
            assert found or not ended, \
                f"ended without {pattern!r}:\n{self.log()[-3000:]}"
            return found
        return until(look, lambda: f"{pattern!r} in:\n{self.log()[-3000:]}",
                     patience_s)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self, patience_s=PATIENCE_S):
        """Waits for the end that comes by itself; the exit code."""
        return self.process.wait(patience_s)

    def stop(self, number=signal.SIGTERM):
        """Asks the process to stop; its exit code."""
        self.process.send_signal(number)
        return self.end()

    def status(self, field):
        """A number of /proc/PID/status, such as VmRSS in KiB."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M).group(1))

    def cpu_s(self):
        text = pathlib.Path(f"/proc/{self.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Shop:
    def __init__(self, folder, program=PROGRAM, **settings):
        self.folder = pathlib.Path(folder)
        self.program = program
        self.options = {}  # for every process that is started
        self.started = []
        self.connections = []
        self.config_path = self.folder / "skirnir.yaml"
        self.environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith(("SKIRNIR", "DATABASE_URL"))}
        self.configure(**settings)

    def close(self):
        for started in self.started:
            if started.is_running():
                started.kill()
        for connection in self.connections:
            connection.close()

    def path(self, name):
        return self.folder / f"{name}.db"

    def url(self, name, parameters=""):
        return f"sqlite:///{self.path(name)}{parameters}"

    def configure(self, in_flight=50, max_retries=3, auto_setup="true",
                  parameters="", replace=()):
        """Writes skirnir.yaml; replace: pairs of texts."""
        text = CONFIG.format(
            shop=self.url("shop", parameters),
            queue=self.url("queue", parameters),
            billing=self.url("billing", parameters), in_flight=in_flight,
            max_retries=max_retries, auto_setup=auto_setup)
        for old, new in replace:
            assert old in text, old
            text = text.replace(old, new)
        self.write_config(text)

    def limit_memory(self, most_mib=CEILING_MIB):
        """Whatever is started from now on gets no more memory than this: what
        it may write to, the stacks of its threads included. A program that is
        instrumented takes more, and has no limit."""
        if b"__asan_init" in pathlib.Path(self.program).read_bytes():
            return
        most = most_mib * 1024 * 1024
        self.options["preexec_fn"] = lambda: resource.setrlimit(
            resource.RLIMIT_DATA, (most, most))

    def write_config(self, text):
        self.config_path.write_text(text)

    def set_up(self, journal="wal"):
        """All tables, and a log of what reaches the queue."""
        self.check("setup")
        self.check("setup-deduplication", "--force")
        for name in ("shop", "queue", "billing"):
            self.open(name).execute(f"PRAGMA journal_mode = {journal}")
        self.open("shop").execute(
            "CREATE TABLE orders (order_id TEXT PRIMARY KEY)")
        self.make_effects()
        queue = self.open("queue")
        queue.execute("CREATE TABLE wire (order_id, body, headers, at)")
        queue.execute("""
            CREATE TRIGGER to_wire AFTER INSERT ON messenger_messages
            WHEN NEW.queue_name = 'orders' BEGIN
                INSERT INTO wire VALUES (
                    CASE WHEN json_valid(NEW.body)
                        THEN json_extract(NEW.body, '$.orderId') END,
                    NEW.body, NEW.headers, julianday('now'));
            END""")

    def make_effects(self):
        """The table that the handler writes to: without it none begins."""
        self.open("billing").execute(
            "CREATE TABLE effects (order_id, message_id, name, body)")

    def open(self, name):
        """A connection in autocommit, closed with the shop."""
        connection = sqlite3.connect(self.path(name), timeout=PATIENCE_S,
                                     isolation_level=None)
        # As the application's own commits, which are not what is tested.
        connection.execute("PRAGMA synchronous = NORMAL")
        self.connections.append(connection)
        return connection

    def query(self, name, sql, *values):
        connection = sqlite3.connect(self.path(name), timeout=PATIENCE_S)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def count(self, name, table, condition="1"):
        sql = f"SELECT COUNT(*) FROM {table} WHERE {condition}"
        return self.query(name, sql)[0][0]

    def command(self, *arguments):
        return [self.program, *map(str, arguments)]

    def run(self, *arguments, text_input=None, environment=None,
            patience_s=PATIENCE_S, **options):
        """Runs a command to its end; text in and out."""
        given = {"stdin": subprocess.DEVNULL} if text_input is None else \
            {"input": text_input}
        return subprocess.run(
            self.command(*arguments), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
            cwd=self.folder, timeout=patience_s,
            env={**self.environment, **(environment or {})},
            **given, **self.options, **options)

    def run_bytes(self, command, *arguments):
        """The same with arguments that are no text, and bytes out."""
        return subprocess.run(
            [os.fsencode(self.program), os.fsencode(command), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=self.folder, timeout=PATIENCE_S,
            env=self.environment)

    def check(self, *arguments, **options):
        """Runs a command that must succeed; what it printed."""
        result = self.run(*arguments, **options)
        assert result.returncode == 0, \
            f"{arguments}: exit {result.returncode}\n{result.stderr}"
        return result.stdout

    def start(self, *arguments, environment=None, **options):
        log_path = self.folder / f"log-{len(self.started)}"
        started = Program(
            self.command(*arguments), log_path,
            {**self.environment, **(environment or {})}, cwd=self.folder,
            **self.options, **options)
        self.started.append(started)
        return started

    def start_relay(self, *arguments, **options):
        return self.start("relay", "outbox", *arguments, **options)

    def start_consumer(self, *arguments, **options):
        return self.start("consume", "orders", *arguments, **options)

    def hold_at(self, failpoint, *arguments, visit=1):
        """Starts a program and waits until it holds at a failpoint."""
        path = self.folder / f"held-{len(self.started)}"
        held = self.start(*arguments, environment={
            "SKIRNIR_FAILPOINT": f"{failpoint}:{visit}",
            "SKIRNIR_FAILPOINT_FILE": str(path)})

        def look():
            assert held.is_running(), \
                f"ended before {failpoint}:\n{held.log()}"
            return path.exists() and path.read_text().endswith("\n")
        until(look, lambda: f"{failpoint}:{visit} in:\n{held.log()}")
        assert int(path.read_text()) == held.pid
        return held

    def relay_all(self, *arguments):
        return self.run("relay", "outbox", "--stop-when-empty", *arguments)

    def consume_all(self, *arguments):
        return self.run("consume", "orders", "--stop-when-empty", *arguments)

    def place_orders(self, count, first=1, connection=None):
        """Orders and their messages in one transaction, as plain SQL."""
        connection = connection or self.open("shop")
        connection.execute("BEGIN IMMEDIATE")
        for number in range(first, first + count):
            order_id = f"order-{number}"
            connection.execute("INSERT INTO orders VALUES (?)", (order_id,))
            write_row(connection, json.dumps({"orderId": order_id}))
        connection.execute("COMMIT")

    def orders(self):
        return {row[0] for row in self.query("shop",
                                             "SELECT order_id FROM orders")}

    def effects(self):
        return [row[0] for row in self.query("billing",
                                             "SELECT order_id FROM effects")]

    def wire(self):
        """The order of each row that ever reached the queue."""
        return [row[0] for row in self.query("queue",
                                             "SELECT order_id FROM wire")]

    def duplicates(self):
        wire = self.wire()
        return len(wire) - len(set(wire))

    def in_flight(self):
        """Orders that are on the wire and still in the outbox."""
        waiting = {row[0] for row in self.query(
            "shop", "SELECT json_extract(body, '$.orderId') "
            "FROM messenger_outbox WHERE json_valid(body)")}
        return waiting & set(self.wire())

    def failed(self):
        """Rows of the failed table: body, headers as they are, queue."""
        return self.query(
            "shop", "SELECT body, headers, queue_name FROM messenger_messages "
            "WHERE queue_name IN ('failed', 'failed.skirnir') ORDER BY id")

    def expect_effects_once(self):
        effects = self.effects()
        assert len(effects) == len(set(effects)), "an effect twice"
        assert set(effects) == self.orders()

    def wait_until_relayed(self, patience_s=PATIENCE_S):
        until(lambda: self.count("shop", "messenger_outbox",
                                 "queue_name = 'outbox'") == 0,
              lambda: "an empty outbox; logs:\n" + self.logs(), patience_s)

    def wait_until_consumed(self, patience_s=PATIENCE_S):
        until(lambda: self.count("queue", "messenger_messages") == 0,
              lambda: "an empty queue; logs:\n" + self.logs(), patience_s)

    def logs(self):
        return "\n".join(f"-- {started.process.args}\n{started.log()[-4000:]}"
                         for started in self.started[-4:])


def write_row(connection, body, headers='{"type":"order.placed"}', table=None,
              queue="outbox", delay_s=0, cast_to_text=False):
    """A row as another language would write it."""
    value = "CAST(? AS TEXT)" if cast_to_text else "?"
    connection.execute(
        f"INSERT INTO {table or 'messenger_outbox'} "
        "(body, headers, queue_name, created_at, available_at) VALUES "
        f"({value}, {value}, ?, datetime('now'), "
        "datetime('now', '+' || ? || ' seconds'))",
        (body, headers, queue, delay_s))


def id_headers(message_id, **more):
    """Headers as an application with its own ids writes them."""
    return json.dumps({"type": "order.placed",
                       ID_STAMP: json.dumps([{"messageId": message_id}]),
                       **more})
