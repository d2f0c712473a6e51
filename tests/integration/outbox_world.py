"""An outbox on a real server, relayed to a queue in a file of its own: what the
relay asks of the server is then all that the server is asked."""
import os
import pathlib
import re
import subprocess
import uuid

import pytest

import shop as shops

CONFIG = """\
databases:
    default: '{database}'
    queue: '{queue}'
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders{options}
    orders: 'queue://queue?queue_name=orders'
"""
COLUMNS = "(body, headers, queue_name, created_at, available_at)"
PLAIN_TYPE = '{"type":"order.placed"}'


def need(variable):
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set")
    return os.environ[variable]


class Server:
    """A database of its own, asked through the server's client program."""

    def __init__(self):
        self.name = f"skr_{uuid.uuid4().hex[:16]}"
        self.url = need(self.variable).rsplit("/", 1)[0] + "/" + self.name
        self.ask(f"CREATE DATABASE {self.name}", self.maintenance)
        self.client = subprocess.Popen(
            self.command(self.name), stdin=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL)

    def ask(self, sql, database=None):
        return subprocess.run(
            self.command(database or self.name), check=True, input=sql,
            capture_output=True, text=True).stdout.strip()

    def send(self, sql):
        """Runs it soon, on a connection that stays open."""
        self.client.stdin.write(sql + ";\n")
        self.client.stdin.flush()

    def drop(self):
        self.client.stdin.close()
        self.client.wait(shops.PATIENCE_S)
        self.ask(self.dropping.format(self.name), self.maintenance)


class MariaDB(Server):
    variable = "SKR_MARIADB_URL"
    maintenance = "mysql"
    dropping = "DROP DATABASE {}"
    now = "UTC_TIMESTAMP()"
    counted = 0

    def command(self, database):
        return ["mariadb", "--no-defaults", "--unbuffered", "-N", "-u", "root",
                "-S", os.environ["SKR_MARIADB_SOCKET"], database]

    def start_counting(self):
        pass

    def count(self):
        """Statements that the server was asked to run; this one too."""
        return int(self.ask("SHOW GLOBAL STATUS LIKE 'Questions'").split()[1])

    def count_own(self):
        """The same without those that count."""
        self.counted += 1
        return self.count() - self.counted


class PostgreSQL(Server):
    variable = "SKR_POSTGRESQL_URL"
    maintenance = "postgres"
    dropping = "DROP DATABASE {} WITH (FORCE)"
    now = "(now() AT TIME ZONE 'UTC')"

    def command(self, database):
        """What it asks is not counted, whenever its session begins."""
        return ["psql", "-X", "-q", "-A", "-t", "-U", "postgres", "-h",
                os.environ["SKR_POSTGRESQL_SOCKET_FOLDER"], "-p",
                os.environ["SKR_POSTGRESQL_PORT"], "-d",
                f"dbname={database} options='-c log_statement=none'"]

    def start_counting(self):
        """For sessions that begin from now on."""
        self.ask(f"ALTER DATABASE {self.name} SET log_statement = 'all'")

    def count(self):
        log = pathlib.Path(os.environ["SKR_POSTGRESQL_LOG"]).read_text(
            "utf-8", "replace")
        return len(re.findall(r"LOG:  (?:statement|execute)", log))

    def count_own(self):
        """Those of the sessions that are open on this database now."""
        sessions = self.ask("SELECT pid FROM pg_stat_activity WHERE datname = "
                            f"'{self.name}' AND pid <> pg_backend_pid()")
        log = pathlib.Path(os.environ["SKR_POSTGRESQL_LOG"]).read_text(
            "utf-8", "replace")
        return len(re.findall(
            rf"\[(?:{'|'.join(sessions.split())})\] LOG:  "
            "(?:statement|execute)", log))


class World(shops.Shop):
    def __init__(self, folder, server, options="", scheme="doctrine"):
        super().__init__(folder)
        self.server = server
        self.set_outbox(options, scheme)

    def set_outbox(self, options, scheme):
        self.write_config(CONFIG.format(
            database=self.server.url, queue=self.url("queue"),
            options=options, scheme=scheme))

    def set_up(self):
        self.check("setup")
        self.queue = self.open("queue")
        self.queue.execute("PRAGMA journal_mode = wal")

    def insert(self, body="{}", now=None):
        now = now or self.server.now
        self.server.send(f"INSERT INTO messenger_outbox {COLUMNS} VALUES "
                         f"('{body}', '{PLAIN_TYPE}', 'outbox', {now}, {now})")

    def arrived(self):
        return self.queue.execute(
            "SELECT COUNT(*) FROM messenger_messages").fetchone()[0]

    def leave(self):
        self.close()
        self.server.drop()


@pytest.fixture(params=[MariaDB, PostgreSQL])
def world(request, tmp_path):
    made = World(tmp_path, request.param())
    yield made
    made.leave()


@pytest.fixture
def postgresql(tmp_path):
    made = World(tmp_path, PostgreSQL())
    yield made
    made.leave()
