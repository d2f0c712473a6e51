"""The databases that tests run on. Each opened one is a database of its own
on a server of tests/servers/with-server, or a file; a test that needs a server
that is not there is skipped.

`kind` names the product, `dialect` its SQL: MySQL's is MariaDB's. What else
differs is an attribute; SERVERS lists what tests of all servers run on.
"""
import contextlib
import os
import pathlib
import re
import sqlite3
import subprocess
import uuid

import pytest

import shop as shops


def need(variable):
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set")
    return os.environ[variable]


class Server:
    # A JSON column gives back another text than it was given.
    rewrites_json = False

    def __init__(self):
        self.name = f"skr_{uuid.uuid4().hex[:16]}"
        self.url = need(self.variable("URL")).rsplit("/", 1)[0] + "/" + \
            self.name
        self.client = None
        self.ask(f"CREATE DATABASE {self.name}", self.maintenance)

    @classmethod
    def variable(cls, word):
        return f"SKR_{cls.kind.upper()}_{word}"

    @classmethod
    def setting(cls, word):
        return os.environ[cls.variable(word)]

    def ask(self, sql, database=None):
        """Rows as lines, columns parted by tabs, by the client program."""
        return subprocess.run(
            self.command(database or self.name), check=True, input=sql,
            capture_output=True, text=True).stdout.strip()

    def send(self, sql):
        """Runs it soon, on a connection that stays open."""
        if self.client is None:
            self.client = subprocess.Popen(
                self.command(self.name), stdin=subprocess.PIPE, text=True,
                stdout=subprocess.DEVNULL)
        self.client.stdin.write(sql + ";\n")
        self.client.stdin.flush()

    def drop(self):
        if self.client is not None:
            self.client.stdin.close()
            self.client.wait(shops.PATIENCE_S)
        self.ask(self.dropping.format(self.name), self.maintenance)


class MariaDB(Server):
    kind = "mariadb"
    dialect = "mysql"
    maintenance = "mysql"
    dropping = "DROP DATABASE {}"
    now = "UTC_TIMESTAMP()"
    inserted_id = "; SELECT LAST_INSERT_ID()"
    counts_writers = True  # as statements that the server was asked to run
    counted = 0

    def command(self, database):
        return ["mariadb", "--no-defaults", "--unbuffered", "-N", "--raw",
                "--binary-mode", "-u", "root", "-S", self.setting("SOCKET"),
                "--default-character-set=utf8mb4",
                # Quotes end texts, backslashes are letters.
                "--init-command=SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
                database]

    def end_sessions(self, user):
        """Some may end by themselves meanwhile."""
        for session in self.ask("SELECT id FROM information_schema.processlist "
                                f"WHERE user = '{user}'").split():
            with contextlib.suppress(subprocess.CalledProcessError):
                self.ask(f"KILL {session}")

    def start_counting(self):
        pass

    def count(self):
        """Statements that the server was asked to run; this one too."""
        return int(self.ask("SHOW GLOBAL STATUS LIKE 'Questions'").split()[1])

    def count_own(self):
        """The same without those that count."""
        self.counted += 1
        return self.count() - self.counted


class MySQL(MariaDB):
    kind = "mysql"
    rewrites_json = True

    def count(self):
        """Those of the sessions that are open on this database now: others
        use the server, too."""
        return int(self.ask(
            "SELECT SUM(variable_value) FROM "
            "performance_schema.status_by_thread JOIN "
            "performance_schema.threads USING (thread_id) WHERE "
            f"processlist_db = '{self.name}' AND variable_name = 'Questions' "
            "AND processlist_id <> CONNECTION_ID()"))

    def count_own(self):
        return self.count()


class PostgreSQL(Server):
    kind = dialect = "postgresql"
    maintenance = "postgres"
    dropping = "DROP DATABASE {} WITH (FORCE)"
    now = "(now() AT TIME ZONE 'UTC')"
    inserted_id = " RETURNING id"
    counts_writers = False

    def command(self, database):
        """What it asks is not counted, whenever its session begins."""
        return ["psql", "-X", "-q", "-A", "-t", "-F", "\t",
                "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h",
                self.setting("SOCKET_FOLDER"), "-p", self.setting("PORT"),
                "-d", f"dbname={database} options='-c log_statement=none'"]

    def end_sessions(self, user):
        self.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                 f"WHERE usename = '{user}'")

    def start_counting(self):
        """For sessions that begin from now on."""
        self.ask(f"ALTER DATABASE {self.name} SET log_statement = 'all'")

    def _log(self):
        return pathlib.Path(self.setting("LOG")).read_text("utf-8", "replace")

    def count(self):
        return len(re.findall(r"LOG:  (?:statement|execute)", self._log()))

    def count_own(self):
        """Those of the sessions that are open on this database now."""
        sessions = self.ask("SELECT pid FROM pg_stat_activity WHERE datname = "
                            f"'{self.name}' AND pid <> pg_backend_pid()")
        return len(re.findall(
            rf"\[(?:{'|'.join(sessions.split())})\] LOG:  "
            "(?:statement|execute)", self._log()))


class SQLite:
    kind = dialect = "sqlite"
    rewrites_json = False
    now = "CURRENT_TIMESTAMP"
    inserted_id = " RETURNING id"
    server = None

    def __init__(self, folder):
        self.path = folder / "place.db"
        self.url = f"sqlite:///{self.path}"

    def connect(self):
        """Each statement commits by itself."""
        return sqlite3.connect(self.path, timeout=shops.PATIENCE_S,
                               isolation_level=None)

    def ask(self, sql):
        connection = self.connect()
        try:
            rows = connection.execute(sql).fetchall()
        finally:
            connection.close()
        return "\n".join("\t".join("NULL" if value is None else str(value)
                                   for value in row) for row in rows)

    def drop(self):
        pass


SERVERS = [MariaDB, MySQL, PostgreSQL]
MARIADB_AND_MYSQL = [MariaDB, MySQL]
BY_KIND = {server.kind: server for server in SERVERS}
KINDS = ["sqlite", *BY_KIND]


def available():
    """For a test of all at once: some machines cannot get MySQL."""
    return [server for server in SERVERS
            if server is not MySQL or server.variable("URL") in os.environ]


def open_database(kind, folder):
    return BY_KIND[kind]() if kind in BY_KIND else SQLite(folder)
