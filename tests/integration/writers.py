"""Applications that write into an outbox all the time, and what that costs
them: each insert is a transaction of its own, and is timed."""
import collections
import itertools
import sqlite3
import subprocess
import threading
import time

import outbox_world
import shop as shops

Row = collections.namedtuple("Row", "id key body")
Wait = collections.namedtuple("Wait", "began ended")


class Session:
    """A connection to a server, in its client program."""

    def __init__(self, server):
        self.client = subprocess.Popen(
            server.command(server.name), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ask(self, sql):
        """The one number that it gives."""
        self.client.stdin.write(sql + ";\n")
        self.client.stdin.flush()
        answer = self.client.stdout.readline()
        assert answer.strip().isdigit(), f"{sql}: {answer or 'no answer'}"
        return int(answer)

    def run(self, sql):
        self.ask(f"{sql}; SELECT 0")

    def close(self):
        if self.client.poll() is None:
            self.client.stdin.close()
        self.client.wait(shops.PATIENCE_S)
        self.client.stdout.close()


class SQLiteSession:
    def __init__(self, database):
        self.connection = sqlite3.connect(
            database.path, timeout=shops.PATIENCE_S, isolation_level=None,
            check_same_thread=False)

    def ask(self, sql):
        return self.connection.execute(sql).fetchall()[0][0]

    def close(self):
        self.connection.close()


def connect(server):
    return (SQLiteSession if server.dialect == "sqlite" else Session)(server)


def insert(session, server, body, key=None, headers=outbox_world.PLAIN_TYPE,
           delivered_at="NULL"):
    """The row's id. key None: as an application does that knows none."""
    names = "body, headers, queue_name, created_at, available_at, delivered_at"
    values = (f"'{body}', '{headers}', 'outbox', {server.now}, {server.now}, "
              f"{delivered_at}")
    if key is not None:
        names, values = names + ", partition_key", values + f", '{key}'"
    return session.ask(f"INSERT INTO messenger_outbox ({names}) "
                       f"VALUES ({values})" + server.inserted_id)


class Writer(threading.Thread):
    """Inserts one row after the other, each in a transaction of its own."""

    def __init__(self, server, session, label, keys, headers):
        super().__init__(daemon=True)
        self.server, self.session = server, session
        self.label, self.headers = label, headers
        self.keys = keys  # taken in turns; no other writer has them
        self.rows, self.waits = [], []
        self.is_over = threading.Event()
        self.problem = None

    def run(self):
        try:
            for number in itertools.count():
                if self.is_over.wait(0.001):
                    return
                self.write(number)
        except (AssertionError, OSError, sqlite3.Error) as problem:
            self.problem = problem

    def write(self, number):
        keys = self.keys
        key = keys[number % len(keys)]
        body = f"{self.label}-{number}"
        began = time.monotonic()
        row = insert(self.session, self.server, body, key, self.headers(key))
        self.waits.append(Wait(began, time.monotonic()))
        self.rows.append(Row(row, key or "", body))

    def wait_for_more(self, count=20):
        target = len(self.rows) + count
        shops.until(lambda: len(self.rows) >= target or self.problem,
                    lambda: f"{target} rows")

    def stop(self):
        self.is_over.set()
        self.join(shops.PATIENCE_S)

    def finish(self):
        """What it has written; it could write all that it wanted to."""
        self.stop()
        assert self.problem is None and not self.is_alive()
        return self.rows

    def longest_wait(self, since):
        return max(wait.ended - max(wait.began, since)
                   for wait in self.waits if wait.ended > since)
