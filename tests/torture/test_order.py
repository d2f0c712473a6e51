"""Order under torture, with a judge of its own. Publishers lock the row of an
aggregate before they publish for it, as applications do, and number what they
publish there; so the messages of a key are 1, 2, 3, ... in the order of their
ids. Relays are killed, stopped and cut off, the database is killed, the broker
refuses. The judge reads what reaches the broker: of each key the first
occurrences must be in order, all of them there, and none besides."""
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

import amqp_client
import shop as shops
import worlds
from test_servers_killed import MortalDatabase

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above
from servers.proxy import Proxy  # noqa: E402

KEYS = 200
PUBLISHERS = 8
# Of each publisher, at least: they go on while there are faults.
TRANSACTIONS = 14000 if shops.LONG else 60
SCRIPT = 20  # transactions that one client program runs
FAULTS = 200 if shops.LONG else 8
# The server ends the session of a relay that is frozen for 15 s.
FROZEN_S = 18 if shops.LONG else 2
SEED = os.environ.get("SKIRNIR_TEST_SEED") or str(random.randrange(10 ** 9))
CHANGES = [
    ("'doctrine://default?table_name=messenger_outbox",
     "'ordered-doctrine://default?table_name=messenger_outbox"),
    ("        relay_to: amqp\n",
     "        relay_to: amqp\n        claim: {claim}\n"
     "        unroutable: wait\n        failure_limit: 0\n"
     "        retry_strategy: {{max_retries: 1000, delay: 100, "
     "max_delay: 1000}}\n"),
    ("queues: {orders: ~}",
     "queues: {orders: {arguments: {x-max-length: 400, "
     "x-overflow: reject-publish}}}"),
]
SLEEP = {"mariadb": "SELECT SLEEP({:.3f})", "postgresql":
         "SELECT pg_sleep({:.3f})"}
NOW = {"mariadb": "UTC_TIMESTAMP()",
       "postgresql": "(now() AT TIME ZONE 'UTC')"}


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
    """Transactions of random length, one in ten rolled back."""

    def __init__(self, world, name):
        super().__init__(daemon=True)
        self.world = world
        self.rng = random.Random(f"{SEED}-{name}")
        self.may_end = threading.Event()
        self.problem = None

    def key(self):
        # A few are hot.
        return self.rng.randrange(5 if self.rng.random() < 0.4 else KEYS)

    def transaction(self):
        kind = self.world.database.kind
        keys = sorted({self.key() for _ in range(self.rng.randint(1, 3))})
        lines = ["BEGIN"]
        for key in keys:
            # In this order, so that no two wait for each other.
            lines.append(f"UPDATE aggregate SET version = version + 1 "
                         f"WHERE id = {key}")
        for key in keys:
            lines.append(
                "INSERT INTO messenger_outbox (body, headers, queue_name, "
                "partition_key, created_at, available_at) SELECT "
                "CONCAT('{\"k\":', id, ',\"n\":', version, '}'), "
                "'{\"type\":\"order.placed\"}', 'outbox', "
                f"CONCAT('key-', id), {NOW[kind]}, {NOW[kind]} "
                f"FROM aggregate WHERE id = {key}")
            if self.rng.random() < 0.1:
                lines.append(SLEEP[kind].format(self.rng.random() / 20))
        lines.append("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")
        return ";\n".join(lines) + ";\n"

    def run(self):
        try:
            done = 0
            while done < TRANSACTIONS or not self.may_end.is_set():
                done += SCRIPT
                script = "".join(self.transaction() for _ in range(SCRIPT))
                # Part of a script may be committed when the server dies: that
                # is in the versions.
                try:
                    self.world.database.ask(script)
                except (servers.ServerError, subprocess.CalledProcessError):
                    time.sleep(0.1)
        except Exception as problem:
            self.problem = problem


class Reader(threading.Thread):
    """Takes messages as they come. While it rests the queue fills up, and the
    broker refuses."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.client = amqp_client.Client(world.broker)
        self.arrivals = []
        self.rest_until = 0
        self.is_over = threading.Event()
        self.problem = None

    def run(self):
        try:
            while True:
                over = self.is_over.is_set()
                if time.monotonic() >= self.rest_until or over:
                    taken = self.client.take_all("orders")
                    self.arrivals += [(body["k"], body["n"]) for body in (
                        json.loads(message.body) for message in taken)]
                if over:
                    return
                self.is_over.wait(0.01)
        except Exception as problem:
            self.problem = problem

    def finish(self):
        self.is_over.set()
        self.join()
        if self.problem:
            raise self.problem
        return self.arrivals


class Faults:
    def __init__(self, world, reader, proxy, count):
        self.world, self.reader, self.proxy = world, reader, proxy
        self.rng = random.Random(f"{SEED}-faults")
        self.relays = [world.start_relay() for _ in range(count)]

    def kill_relay(self):
        place = self.rng.randrange(len(self.relays))
        self.relays[place].kill()
        self.relays[place] = self.world.start_relay()

    def freeze_relay(self):
        relay = self.rng.choice(self.relays)
        os.kill(relay.pid, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        os.kill(relay.pid, signal.SIGCONT)

    def cut_broker(self):
        self.proxy.cut()

    def refuse_messages(self):
        self.reader.rest_until = time.monotonic() + 1

    def return_messages(self):
        with amqp_client.Client(self.world.broker) as client:
            client.unbind("orders", "order.placed", "order.#")
            time.sleep(0.3)
            client.bind("orders", "order.placed", "order.#")

    def kill_database(self):
        self.world.database.server.kill()
        time.sleep(0.2)
        self.world.database.server.start()

    def add_relay(self):
        extra = self.world.start_relay()
        time.sleep(0.3)
        extra.stop()

    def all(self):
        return [self.kill_relay, self.freeze_relay, self.cut_broker,
                self.refuse_messages, self.return_messages,
                self.kill_database, self.add_relay]

    def inject(self):
        kinds = self.all()
        self.rng.shuffle(kinds)
        for number in range(FAULTS):
            kinds[number % len(kinds)]()
            time.sleep(self.rng.random() / 2)

    def logs(self):
        return "\n".join(relay.log()[-2000:] for relay in self.relays)


class OrderedWorld(worlds.World):
    def left(self):
        """A server that is down tells nothing."""
        try:
            return super().left()
        except (servers.ServerError, subprocess.CalledProcessError):
            return -1

    def prepare(self, claim, proxy):
        changes = [(old, new.format(claim=claim) if "{claim}" in new else new)
                   for old, new in CHANGES]
        self.set_config(replace=changes, broker=proxy.url(self.broker))
        self.set_up()
        self.ask("CREATE TABLE aggregate (id INT PRIMARY KEY, version INT "
                 "NOT NULL)")
        self.ask("INSERT INTO aggregate VALUES " + ", ".join(
            f"({key}, 0)" for key in range(KEYS)))

    def versions(self):
        rows = self.ask("SELECT CONCAT(id, ' ', version) FROM aggregate")
        return {int(key): int(version) for key, version in (
            row.split() for row in rows.splitlines())}


@pytest.fixture(scope="module")
def mortals():
    """Databases that may be killed."""
    worlds.need("SKR_RABBITMQ_URL")
    with servers.Group("mariadb,postgresql") as group:
        yield {server.name: server for server in group.servers}


@pytest.fixture(params=["mariadb", "postgresql"])
def ordered(request, tmp_path, mortals, vhost):
    opened = OrderedWorld(tmp_path, MortalDatabase(mortals[request.param]),
                          vhost)
    yield opened
    opened.leave()


@pytest.mark.parametrize("claim, relays", [("exclusive", 2), ("locked", 4)])
def test_order_holds_through_everything(ordered, claim, relays):
    print(f"seed {SEED}")
    port = urllib.parse.urlsplit(ordered.broker).port
    with Proxy(port) as proxy:
        ordered.prepare(claim, proxy)
        reader = Reader(ordered)
        publishers = [Publisher(ordered, name) for name in range(PUBLISHERS)]
        for thread in [reader, *publishers]:
            thread.start()
        faults = Faults(ordered, reader, proxy, relays)
        faults.inject()
        for publisher in publishers:
            publisher.may_end.set()
        for publisher in publishers:
            publisher.join()
            assert publisher.problem is None, publisher.problem
        shops.until(lambda: ordered.left() == 0,
                    lambda: f"{ordered.left()} are left\n{faults.logs()}", 120)
        for relay in faults.relays:
            assert relay.stop() == 0, relay.log()
        arrivals = reader.finish()
    versions = ordered.versions()
    committed = sum(versions.values())
    print(f"committed {committed}, duplicates {len(arrivals) - committed}")
    assert committed > PUBLISHERS * TRANSACTIONS / 2
    assert ordered.failed() == []
    judge(arrivals, versions)


# What an earlier design proposed: rows that somebody has are left out when the
# head of a partition is looked for.
UNSAFE = """SELECT id, partition_key FROM claims WHERE id IN (
    SELECT MIN(id) FROM claims WHERE delivered_at IS NULL
    GROUP BY partition_key) ORDER BY id LIMIT 1"""
# The head is the least of all that are there, and has to be free.
SAFE = """SELECT id, partition_key FROM claims WHERE id IN (
    SELECT MIN(id) FROM claims GROUP BY partition_key)
    AND delivered_at IS NULL ORDER BY id LIMIT 1"""


def work(ask, query, rng, count):
    """Two workers that claim, take their time, publish and delete."""
    arrivals, held = [], [None, None]
    while len(arrivals) < count:
        worker = rng.randrange(2)
        if held[worker]:
            row, key = held[worker]
            arrivals.append((int(key), int(row)))
            ask(f"DELETE FROM claims WHERE id = {row}")
            held[worker] = None
            continue
        found = ask(query).replace("|", "\t")
        if found:
            held[worker] = found.split("\t")
            ask("UPDATE claims SET delivered_at = 1 "
                f"WHERE id = {held[worker][0]}")
    return arrivals


@pytest.mark.parametrize("query, is_safe", [(UNSAFE, False), (SAFE, True)])
def test_the_judge_tells_a_wrong_claim_from_a_right_one(mortals, query,
                                                        is_safe):
    database = MortalDatabase(mortals["postgresql"])
    database.ask("CREATE TABLE claims (id INT PRIMARY KEY, partition_key INT, "
                 "delivered_at INT)")
    count = 30
    database.ask("INSERT INTO claims VALUES " + ", ".join(
        f"({number}, 0, NULL)" for number in range(1, count + 1)))
    arrivals = work(database.ask, query, random.Random(SEED), count)
    if is_safe:
        judge(arrivals, {0: count})
    else:
        with pytest.raises(Verdict, match="came before"):
            judge(arrivals, {0: count})


@pytest.mark.parametrize("arrivals, complaint", [
    ([(1, 1), (1, 2), (1, 1), (1, 3)], None),
    ([(1, 1), (1, 3), (1, 2)], "came before"),
    ([(1, 1), (1, 2)], "lost"),
    ([(1, 1), (1, 2), (1, 3), (1, 4)], "never committed"),
])
def test_the_judge_is_just(arrivals, complaint):
    if complaint is None:
        judge(arrivals, {1: 3})
    else:
        with pytest.raises(Verdict, match=complaint):
            judge(arrivals, {1: 3})
