"""Order under torture, with a judge of its own. Publishers number what they
publish of each key. Relays are killed, stopped and cut off, the database or
some of its sessions are killed, the broker refuses. The judge reads what reaches
the broker: of each key the first occurrences must be in order, all of them there,
and none besides.

Where publishers do not wait for each other there is no such order. Then what
was committed before another of its key, and has the smaller id, goes first."""
import bisect
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

import aggregates
import amqp_client
import databases
import shop as shops
import worlds
from aggregates import SEED, SLEEP, Verdict, judge
from mortals import MortalDatabase, start

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above
from servers.proxy import Proxy  # noqa: E402

PUBLISHERS = 8
# Of each publisher, at least: they go on while there are faults.
TRANSACTIONS = 17000 if shops.LONG else 60
FAULTS = 200 if shops.LONG else 8
# The server ends the session of a relay that is frozen for 15 s. Leases last
# for 3 s here: one that is frozen for longer goes on as if nothing had been.
FROZEN_S = {"exclusive": 18 if shops.LONG else 2, "shared": 4.5, "lease": 4.5}
LEASES = ("'ordered-doctrine://default?", "'ordered-doctrine://default?"
          "redeliver_timeout=3&")
# One of the hosts has a wrong clock.
CLOCK = pathlib.Path(shops.PROGRAM).parents[2] / "tests/wrong-clock.so"
AHEAD = {"LD_PRELOAD": str(CLOCK),
         "ASAN_OPTIONS": "verify_asan_link_order=0"}
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
NOW = {"mysql": "UTC_TIMESTAMP()",
       "postgresql": "(now() AT TIME ZONE 'UTC')"}
# Not that of the transaction's or the statement's begin.
CLOCK_NOW = {"mysql": "CAST(SYSDATE(6) AS CHAR)",
             "postgresql": "to_char(clock_timestamp(), "
                           "'YYYY-MM-DD HH24:MI:SS.US')"}
LAST_ID = {"mysql": "LAST_INSERT_ID()", "postgresql": "lastval()"}
NEVER = "9999"
SESSIONS = {"mysql": "SELECT id FROM information_schema.processlist "
                       "WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = "
                          "current_database() AND pid <> pg_backend_pid()"}
END_SESSION = {"mysql": "KILL {}",
               "postgresql": "SELECT pg_terminate_backend({})"}


Moment = collections.namedtuple("Moment", "key id began ended")


def judge_commits(arrivals, committed):
    """arrivals: names in the order of the broker. committed: the moment of
    each, as texts that compare like times; its commit lies between the two."""
    invented = set(arrivals) - set(committed)
    if invented:
        raise Verdict(f"never committed: {sorted(invented)[:5]}")
    lost = set(committed) - set(arrivals)
    if lost:
        raise Verdict(f"lost: {sorted(lost)[:5]}")
    sent = collections.defaultdict(list)
    for name in dict.fromkeys(arrivals):
        moment = committed[name]
        of_key = sent[moment.key]
        place = bisect.bisect(of_key, (moment.id, ""))
        for larger, began in of_key[place:]:
            if began > moment.ended:
                raise Verdict(f"{moment.key}: row {moment.id} came after row "
                              f"{larger}, which was committed later")
        of_key.insert(place, (moment.id, moment.began))


class Publisher(aggregates.Publisher):
    least = TRANSACTIONS

    def insert(self, key):
        now = NOW[self.world.database.dialect]
        return ("INSERT INTO messenger_outbox (body, headers, queue_name, "
                "partition_key, created_at, available_at) SELECT "
                "CONCAT('{\"k\":', id, ',\"n\":', version, '}'), "
                "'{\"type\":\"order.placed\"}', 'outbox', "
                f"CONCAT('key-', id), {now}, {now} "
                f"FROM aggregate WHERE id = {key}")


class Unordered(Publisher):
    """Locks nothing. Says when each was committed: not before it began to,
    and not after its end, where that is known."""

    def transaction(self):
        dialect = self.world.database.dialect
        name = f"{self.rng.getrandbits(64):016x}"
        lines = ["BEGIN"]
        for number in range(self.rng.randint(1, 3)):
            key = self.key()
            lines.append(
                "INSERT INTO messenger_outbox (body, headers, queue_name, "
                "partition_key, created_at, available_at) VALUES "
                f"('{{\"k\":{key},\"n\":\"{name}-{number}\"}}', "
                "'{\"type\":\"order.placed\"}', 'outbox', "
                f"'key-{key}', {NOW[dialect]}, {NOW[dialect]})")
            lines.append(f"INSERT INTO moment VALUES ('{name}-{number}', "
                         f"'{name}', {key}, {LAST_ID[dialect]}, '')")
            if self.rng.random() < 0.2:
                lines.append(SLEEP[dialect].format(self.rng.random() / 10))
        lines += self.linger()
        lines.append(f"UPDATE moment SET began = {CLOCK_NOW[dialect]} "
                     f"WHERE tx = '{name}'")
        lines.append("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")
        lines.append(f"INSERT INTO ending VALUES ('{name}', "
                     f"{CLOCK_NOW[dialect]})")
        return ";\n".join(lines) + ";\n"


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
    def __init__(self, world, reader, proxy, claim, count):
        self.world, self.reader, self.proxy = world, reader, proxy
        self.claim = claim
        self.rng = random.Random(f"{SEED}-faults")
        self.relays = [self.start_relay(place) for place in range(count)]

    def start_relay(self, place):
        return self.world.start_relay(
            environment=AHEAD if place == 0 else None)

    def kill_relay(self):
        place = self.rng.randrange(len(self.relays))
        self.relays[place].kill()
        self.relays[place] = self.start_relay(place)

    def freeze_relay(self):
        relay = self.rng.choice(self.relays)
        os.kill(relay.pid, signal.SIGSTOP)
        time.sleep(FROZEN_S[self.claim])
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

    def end_sessions(self):
        """Half of them: a relay may keep one and lose the other."""
        database = self.world.database
        sessions = database.ask(SESSIONS[database.dialect]).split()
        for session in self.rng.sample(sessions, len(sessions) // 2):
            try:
                database.ask(END_SESSION[database.dialect].format(session))
            except (servers.ServerError, subprocess.CalledProcessError):
                pass  # It has ended by itself.

    def add_relay(self):
        extra = self.world.start_relay()
        time.sleep(0.3)
        extra.stop()

    def all(self):
        return [self.kill_relay, self.freeze_relay, self.cut_broker,
                self.refuse_messages, self.return_messages,
                self.kill_database, self.end_sessions, self.add_relay]

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
        if claim != "exclusive":
            changes.append(LEASES)
        self.set_config(replace=changes, broker=proxy.url(self.broker))
        self.set_up()
        aggregates.make(self)
        self.ask("CREATE TABLE moment (name VARCHAR(40) PRIMARY KEY, "
                 "tx VARCHAR(20), k INT, row_id BIGINT, began VARCHAR(40))")
        self.ask("CREATE INDEX moment_tx ON moment (tx)")
        self.ask("CREATE TABLE ending (tx VARCHAR(20) PRIMARY KEY, "
                 "ended VARCHAR(40))")

    def moments(self):
        rows = self.ask(
            "SELECT CONCAT(name, '|', k, '|', row_id, '|', began, '|', "
            f"COALESCE(ended, '{NEVER}')) FROM moment "
            "LEFT JOIN ending ON ending.tx = moment.tx")
        found = [row.split("|") for row in rows.splitlines()]
        return {name: Moment(int(key), int(row), began, ended)
                for name, key, row, began, ended in found}


@pytest.fixture(scope="module")
def mortals():
    """Databases that may be killed."""
    worlds.need("SKR_RABBITMQ_URL")
    with start() as started:
        yield started


@pytest.fixture(params=databases.BY_KIND)
def ordered(request, tmp_path, mortals, vhost):
    opened = OrderedWorld(tmp_path, MortalDatabase(mortals[request.param]),
                          vhost)
    yield opened
    opened.leave()


def torture(world, claim, relays, kind):
    """What has arrived in the end."""
    print(f"seed {SEED}")
    port = urllib.parse.urlsplit(world.broker).port
    with Proxy(port) as proxy:
        world.prepare(claim, proxy)
        reader = Reader(world)
        publishers = [kind(world, name) for name in range(PUBLISHERS)]
        for thread in [reader, *publishers]:
            thread.start()
        faults = Faults(world, reader, proxy, claim, relays)
        faults.inject()
        aggregates.end(publishers)
        shops.until(lambda: world.left() == 0,
                    lambda: f"{world.left()} are left\n{faults.logs()}", 120)
        for relay in faults.relays:
            assert relay.stop() == 0, relay.log()
        return reader.finish()


MODES = [("exclusive", 2), ("shared", 4), ("lease", 4)]


@pytest.mark.alike
@pytest.mark.parametrize("claim, relays", MODES)
def test_order_holds_through_everything(ordered, claim, relays):
    arrivals = torture(ordered, claim, relays, Publisher)
    versions = aggregates.versions(ordered)
    committed = sum(versions.values())
    print(f"committed {committed}, duplicates {len(arrivals) - committed}")
    assert committed > PUBLISHERS * TRANSACTIONS / 2
    assert ordered.failed() == []
    judge(arrivals, versions)


@pytest.mark.parametrize("claim, relays", [
    mode for mode in MODES if shops.LONG or mode[0] != "lease"])
def test_nothing_passes_what_was_committed_before_it(ordered, claim, relays):
    arrivals = torture(ordered, claim, relays, Unordered)
    moments = ordered.moments()
    print(f"committed {len(moments)}, duplicates "
          f"{len(arrivals) - len(moments)}")
    assert len(moments) > PUBLISHERS * TRANSACTIONS / 2
    assert ordered.failed() == []
    judge_commits([name for _, name in arrivals], moments)


def test_the_wrong_clock_is_wrong(tmp_path):
    shop = shops.Shop(tmp_path)
    shop.set_up()
    relay = shop.start_relay(environment=AHEAD)
    said = relay.wait_for(r"time=(\S+)|^(\S+)").group(0)
    relay.stop()
    shop.close()
    hour = time.strftime("T%H:", time.gmtime(time.time() + 3600))
    assert hour in said, said


# What an earlier design proposed: rows that a relay has are left out when the
# head of a partition is looked for.
UNSAFE = """SELECT m.* FROM messenger_outbox m WHERE m.id IN (
    SELECT MIN(sub.id) FROM messenger_outbox sub
    WHERE sub.queue_name = 'outbox' AND (sub.delivered_at IS NULL
        OR sub.delivered_at < {now} - INTERVAL '1 hour')
    AND sub.available_at <= {now} GROUP BY sub.partition_key)
    FOR UPDATE SKIP LOCKED LIMIT 1"""
# The head is the least of all that are there, and has to be free.
SAFE = """SELECT m.* FROM messenger_outbox m WHERE m.id IN (
    SELECT MIN(sub.id) FROM messenger_outbox sub
    WHERE sub.queue_name = 'outbox' GROUP BY sub.partition_key)
    AND (m.delivered_at IS NULL
         OR m.delivered_at < {now} - INTERVAL '1 hour')
    AND m.available_at <= {now} FOR UPDATE SKIP LOCKED LIMIT 1"""
CLAIM = """WITH head AS ({query}) UPDATE messenger_outbox AS claimed
    SET delivered_at = {now} FROM head WHERE claimed.id = head.id
    RETURNING claimed.id, claimed.body"""


class HotPublisher(Publisher):
    """A few transactions on a few keys, all of them hot."""
    least = aggregates.SCRIPT

    def key(self):
        return self.rng.randrange(3)


class Worker(threading.Thread):
    """Claims a message, takes its time, publishes and deletes it."""

    def __init__(self, world, query, arrivals, name):
        super().__init__(daemon=True)
        now = NOW["postgresql"]
        self.world, self.arrivals = world, arrivals
        self.claim = CLAIM.format(query=query.format(now=now), now=now)
        self.rng = random.Random(f"{SEED}-worker-{name}")

    def run(self):
        while True:
            found = self.world.ask(self.claim)
            if found:
                row, body = found.split("|", 1)
                message = json.loads(body)
                time.sleep(self.rng.random() / 20)
                self.arrivals.append((message["k"], message["n"]))
                self.world.ask(f"DELETE FROM messenger_outbox WHERE id = {row}")
            elif self.world.left() == 0:
                return


@pytest.mark.parametrize("ordered", ["postgresql"], indirect=True)
@pytest.mark.parametrize("query, is_safe", [(UNSAFE, False), (SAFE, True)])
def test_the_judge_tells_a_wrong_claim_from_a_right_one(ordered, query,
                                                        is_safe):
    """Workers at the same rows as our relays, and before the same judge."""
    print(f"seed {SEED}")
    ordered.set_config(replace=CHANGES[:1])
    ordered.set_up()
    aggregates.make(ordered)
    publishers = [HotPublisher(ordered, name) for name in range(2)]
    arrivals = []
    workers = [Worker(ordered, query, arrivals, name) for name in range(4)]
    for publisher in publishers:
        publisher.start()
    aggregates.end(publishers)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    versions = aggregates.versions(ordered)
    if is_safe:
        judge(arrivals, versions)
    else:
        with pytest.raises(Verdict, match="came before"):
            judge(arrivals, versions)


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


@pytest.mark.parametrize("arrivals, complaint", [
    (["a", "b", "a", "c"], None),
    # Both were open at once: whichever was seen first goes first.
    (["b", "a", "c"], None),
    (["a", "c", "b"], "came after"),
    (["a", "b"], "lost"),
    (["a", "b", "c", "d"], "never committed"),
])
def test_the_judge_of_commits_is_just(arrivals, complaint):
    committed = {"a": Moment(1, 1, "10:00", "10:05"),
                 "b": Moment(1, 2, "10:03", "10:04"),
                 "c": Moment(1, 3, "10:07", NEVER)}
    if complaint is None:
        judge_commits(arrivals, committed)
    else:
        with pytest.raises(Verdict, match=complaint):
            judge_commits(arrivals, committed)
