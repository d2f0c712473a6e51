"""Load on a cluster whose nodes are killed and frozen, and a ledger at the end.

Numbered messages of aggregates go from an ordered outbox through a broker to a
handler, which writes a row for each. What reaches the broker is judged as in
test_order.py; of the effects each is there, and once."""
import collections
import contextlib
import json
import subprocess
import threading
import time

import aggregates
import servers
import shop as shops
import test_order
from test_kafka import SERIAL

PUBLISHERS = 3
PAUSE_S = 0.3  # of a publisher, so that the chain keeps up
# Effects: more than can be on the way at once.
STEP = 300 if shops.LONG else 150
STANDSTILL_S = 6
PATIENCE_S = 180
CONFIG = """\
databases:
    default: '{database}'{databases}
transports:
    outbox:
        dsn: 'ordered-doctrine://default?table_name=messenger_outbox&\
queue_name=outbox'
        options: {{redeliver_timeout: 3}}
        relay_to: broker
        claim: {claim}
        in_flight: 50
        unroutable: wait
        failure_limit: 0
        retry_strategy: {{max_retries: 1000000, delay: 100, max_delay: 1000}}
{brokers}
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
"""
# A queue in a file, and what was ever put into it.
QUEUE = """\
    broker: 'queue://queue?queue_name=orders&redeliver_timeout=3'
    orders:
        dsn: 'queue://queue?queue_name=orders&redeliver_timeout=3'
        retry_strategy: {max_retries: 1000000, delay: 100, max_delay: 1000}
"""
WIRE = ["CREATE TABLE wire (id INTEGER PRIMARY KEY, body TEXT)",
        "CREATE TRIGGER to_wire AFTER INSERT ON messenger_messages BEGIN "
        "INSERT INTO wire (body) VALUES (NEW.body); END"]


class Publisher(test_order.Publisher):
    least = 0
    pause_s = PAUSE_S


class World(shops.Shop):
    """An outbox and effects in one database; the broker is the queue of a file,
    unless a kind of world has another."""
    claim = "exclusive"
    databases = "\n    queue: 'sqlite:///%kernel.project_dir%/queue.db'"
    brokers = QUEUE

    def __init__(self, folder, database):
        super().__init__(folder)
        self.database = database
        self.use(database.url)

    def use(self, url):
        self.write_config(CONFIG.format(
            database=url, databases=self.databases, claim=self.claim,
            brokers=self.brokers))

    def set_up(self):
        self.check("setup")
        self.check("setup-deduplication", "--force")
        self.ask(f"CREATE TABLE effects (id {SERIAL[self.database.dialect]}, "
                 "body VARCHAR(255) NOT NULL)")
        aggregates.make(self)
        self.prepare_broker()

    def prepare_broker(self):
        queue = self.open("queue")
        queue.execute("PRAGMA journal_mode = wal")
        for sql in WIRE:
            queue.execute(sql)

    def wire(self):
        """All that has reached the broker, in its order."""
        return [body for body, in self.query(
            "queue", "SELECT body FROM wire ORDER BY id")]

    def ask(self, sql):
        return self.database.ask(sql)

    def count(self, table):
        """-1: it cannot be told now."""
        try:
            return int(self.ask(f"SELECT COUNT(*) FROM {table}"))
        except (servers.ServerError, subprocess.CalledProcessError):
            return -1

    def effects(self):
        return self.ask("SELECT body FROM effects ORDER BY id").splitlines()


class Watch(threading.Thread):
    """Sees for how long there is no effect."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.count, self.grown_at = 0, time.monotonic()
        self.longest_s = 0
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.wait(0.1):
            count = self.world.count("effects")
            if count <= self.count:
                continue
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - self.grown_at)
            self.count, self.grown_at = count, now

    def begin(self):
        self.longest_s = 0
        self.grown_at = time.monotonic()

    def wait_for_standstill(self):
        """Longer than any test waits for an answer."""
        shops.until(lambda: time.monotonic() - self.grown_at > STANDSTILL_S,
                    "a standstill", PATIENCE_S, 0.05)

    def wait_for_more(self):
        goal = self.count + STEP
        shops.until(lambda: self.count >= goal,
                    lambda: f"{self.count} effects to be {goal}; "
                    f"{self.world.logs()}", PATIENCE_S, 0.05)


@contextlib.contextmanager
def load(world):
    """Publishers, two relays, of which one may stand by, and a consumer, all of
    which are there while nodes come and go; the ledger when all of it has
    arrived."""
    print(f"seed {aggregates.SEED}")
    world.set_up()
    relays = [world.start_relay() for _ in range(2)]
    consumer = world.start_consumer()
    publishers = [Publisher(world, name) for name in range(PUBLISHERS)]
    watch = Watch(world)
    for thread in [watch, *publishers]:
        thread.start()
    watch.wait_for_more()
    yield watch
    watch.wait_for_more()
    aggregates.end(publishers)
    shops.until(lambda: world.count("messenger_outbox") == 0, world.logs,
                PATIENCE_S, 0.1)
    versions = aggregates.versions(world)
    shops.until(lambda: world.count("effects") >= sum(versions.values()),
                world.logs, PATIENCE_S, 0.1)
    watch.is_over.set()
    watch.join()
    for program in [*relays, consumer]:
        assert program.stop() == 0, program.log()
    settle(world, versions)


def settle(world, versions):
    """Nothing is lost, no effect is there twice, and the order holds."""
    effects = collections.Counter(world.effects())
    arrivals = [(body["k"], body["n"])
                for body in map(json.loads, world.wire())]
    committed = sum(versions.values())
    print(f"committed {committed}, lost {committed - len(effects)}, effects "
          f"doubled {sum(effects.values()) - len(effects)}, duplicates on "
          f"the wire {len(arrivals) - len(set(arrivals))}")
    aggregates.judge(arrivals, versions)
    assert len(effects) == sum(effects.values()) == committed
    assert world.count("messenger_messages WHERE queue_name = 'failed'") == 0


@contextlib.contextmanager
def fault(watch, name):
    """Whatever is done within; says for how long nothing went on."""
    watch.begin()
    yield
    watch.wait_for_more()
    print(f"{name}: {watch.longest_s:.1f} s without an effect")


def kill(watch, cluster, node, name):
    """The others go on without it."""
    with fault(watch, f"{name} killed"):
        node.kill()
    cluster.mend()


def freeze(watch, cluster, node, name):
    with fault(watch, f"{name} frozen"):
        node.freeze()
    cluster.mend()


def disturb(watch, cluster, is_long=shops.LONG):
    """Each node is killed and frozen in turn; in short form the first is killed
    and the second frozen."""
    nodes = list(enumerate(cluster.nodes, 1))
    for number, node in nodes if is_long else nodes[:1]:
        kill(watch, cluster, node, f"node {number}")
    for number, node in nodes if is_long else nodes[1:2]:
        freeze(watch, cluster, node, f"node {number}")
