"""Aggregates whose messages are numbered, and a judge of their order. Publishers
lock the row of an aggregate before they publish for it, as applications do; so
the messages of a key are 1, 2, 3, ... in the order of their ids."""
import collections
import os
import random
import subprocess
import threading
import time

import servers

KEYS = 200
SCRIPT = 20  # transactions that one client program runs
SEED = os.environ.get("SKIRNIR_TEST_SEED") or str(random.randrange(10 ** 9))
LINGERING = 0.005  # of all transactions stay open for seconds
SLEEP = {"mysql": "SELECT SLEEP({:.3f})", "postgresql":
         "SELECT pg_sleep({:.3f})"}


class Verdict(AssertionError):
    """What the judge has against the relays."""


def judge(arrivals, versions):
    """arrivals: key and number in the order of the broker. versions: how many
    were committed of each key."""
    following = collections.Counter()
    for key, number in arrivals:
        if number > versions.get(key, 0):
            raise Verdict(f"{key}:{number} was never committed")
        if number > following[key] + 1:
            raise Verdict(f"{key}:{number} came before {key}:"
                          f"{following[key] + 1}")
        if number == following[key] + 1:
            following[key] = number
    lost = {key: (following[key], version) for key, version in versions.items()
            if following[key] < version}
    if lost:
        raise Verdict(f"lost: {lost}")


class Publisher(threading.Thread):
    """Transactions of random length, one in ten rolled back. A few stay open
    for seconds while others commit."""

    least = 0  # transactions, also when it may end before
    pause_s = 0  # after each script

    def __init__(self, world, name):
        super().__init__(daemon=True)
        self.world = world
        self.rng = random.Random(f"{SEED}-{name}")
        self.may_end = threading.Event()
        self.problem = None

    def key(self):
        # A few are hot.
        return self.rng.randrange(5 if self.rng.random() < 0.4 else KEYS)

    def linger(self):
        """Statements for the end of a transaction that has written."""
        if self.rng.random() >= LINGERING:
            return []
        return [SLEEP[self.world.database.dialect].format(
            2 + 2 * self.rng.random())]

    def insert(self, key):
        """A statement that publishes {"k": id, "n": version} of aggregate."""
        raise NotImplementedError

    def transaction(self):
        keys = sorted({self.key() for _ in range(self.rng.randint(1, 3))})
        lines = ["BEGIN"]
        for key in keys:
            # In this order, so that no two wait for each other.
            lines.append("UPDATE aggregate SET version = version + 1 "
                         f"WHERE id = {key}")
        for key in keys:
            lines.append(self.insert(key))
            if self.rng.random() < 0.1:
                lines.append(SLEEP[self.world.database.dialect].format(
                    self.rng.random() / 20))
        lines += self.linger()
        lines.append("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")
        return ";\n".join(lines) + ";\n"

    def run(self):
        try:
            done = 0
            while done < self.least or not self.may_end.is_set():
                done += SCRIPT
                script = "".join(self.transaction() for _ in range(SCRIPT))
                # Part of a script may be committed when the server dies: that
                # is in the versions.
                try:
                    self.world.database.ask(script)
                except (servers.ServerError, subprocess.CalledProcessError):
                    time.sleep(0.1)
                self.may_end.wait(self.pause_s)
        except Exception as problem:
            self.problem = problem


def end(publishers):
    """All of them; what went wrong is raised."""
    for publisher in publishers:
        publisher.may_end.set()
    for publisher in publishers:
        publisher.join()
        assert publisher.problem is None, publisher.problem


def make(world):
    world.ask("CREATE TABLE aggregate (id INT PRIMARY KEY, version INT "
              "NOT NULL)")
    world.ask("INSERT INTO aggregate VALUES " + ", ".join(
        f"({key}, 0)" for key in range(KEYS)))


def versions(world):
    rows = world.ask("SELECT CONCAT(id, ' ', version) FROM aggregate")
    return {int(key): int(version) for key, version in (
        row.split() for row in rows.splitlines())}
