"""Three nodes of Galera under load: each is killed and frozen, and the others go
on. What one node commits late is not passed by what another has committed."""
import itertools
import json
import random
import subprocess
import threading
import time

import pytest

import aggregates
import load
import servers
import shop as shops
from servers.proxy import Proxy
from test_order import NOW


# Of what is asked of a node that may be frozen: of a script, and of one who only
# looks.
LIMIT_S, LOOK_LIMIT_S = 15, 2
LATE_KEYS, OTHER_KEYS = range(12), range(100, 105)
LATE_TURNS = 5
LATE_S = 4
# Messages of each of so many keys.
TURNS, EACH = 40, 50
BULK_ROWS = 50000
# What was committed on another node is seen.
CAUSAL = "SET SESSION wsrep_sync_wait = 15; "


class Database:
    """Any of the nodes: each script goes to one of those that answer."""
    dialect = "mysql"

    def __init__(self, cluster):
        self.cluster = cluster
        # A server that hangs is left soon.
        self.url = cluster.url + "?timeout=4&connect_timeout=3&lock_timeout=3"

    def ask(self, sql):
        nodes = [node for node in self.cluster.nodes
                 if node.is_running() and not node.is_frozen]
        # An application's transaction sees what its node has.
        sees_all = "" if sql.startswith("BEGIN") else CAUSAL
        limit_s = LOOK_LIMIT_S if sql.startswith("SELECT COUNT") else LIMIT_S
        return random.choice(nodes).query(sees_all + sql, "skirnir",
                                          limit_s).strip()


class World(load.World):
    claim = "shared"  # which `lease` is, too, in an ordered outbox


@pytest.fixture(scope="module")
def cluster():
    started = servers.Galera()
    try:
        started.nodes[0].find_programs()
    except servers.NotInstalled:
        pytest.skip("Galera is not installed here")
    with started:
        yield started


@pytest.fixture
def world(tmp_path, cluster):
    cluster.nodes[0].query("CREATE OR REPLACE DATABASE skirnir")
    opened = World(tmp_path, Database(cluster))
    yield opened
    opened.close()
    cluster.mend()


class Balancer(Proxy):
    """Sends connections to the nodes in turn, as those before a cluster do."""

    def __init__(self, nodes):
        self.targets = itertools.cycle([("127.0.0.1", node.port)
                                        for node in nodes])
        super().__init__(nodes[0].port)

    def _take_connection(self):
        self._target = next(self.targets)
        super()._take_connection()


def insert_sql(*messages):
    """A statement that publishes these: key and number of each."""
    now = NOW["mysql"]
    return "INSERT INTO messenger_outbox (body, headers, queue_name, " \
        "partition_key, created_at, available_at) VALUES " + ", ".join(
            f"('{json.dumps({'k': key, 'n': number})}', "
            f"'{{\"type\":\"order.placed\"}}', 'outbox', 'key-{key}', "
            f"{now}, {now})" for key, number in messages)


def arrivals(world):
    return [(body["k"], body["n"]) for body in map(json.loads, world.wire())]


class LateWriter:
    """A transaction on a node that has written, and is committed later."""

    def __init__(self, node, sql):
        self.client = subprocess.Popen(
            ["mariadb", "--no-defaults", "--unbuffered", "-N", "-u", "root",
             "-S", node.socket, "skirnir"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.client.stdin.write(f"BEGIN;\n{sql};\nSELECT 'written';\n")
        self.client.stdin.flush()
        assert self.client.stdout.readline() == "written\n"

    def commit(self):
        self.client.communicate("COMMIT;\n")
        assert self.client.returncode == 0


def wait_for_arrivals(world, messages):
    shops.until(lambda: messages <= set(arrivals(world)), world.logs)


def publish_others(world, node, numbers):
    """Until no transaction is open that this node has known for seconds."""
    until = time.monotonic() + LATE_S
    while time.monotonic() < until:
        number = next(numbers)
        others = {(key, number) for key in OTHER_KEYS}
        node.query(insert_sql(*others), "skirnir")
        wait_for_arrivals(world, others)


def publish_around_a_late_one(world, cluster, number, others):
    """The first of each key is written on the second node, and committed when
    the relay, on the first, has sent what was written after it; the next of each
    key follows on the third node."""
    early, late, last = cluster.nodes
    first = {(key, number) for key in LATE_KEYS}
    writer = LateWriter(late, insert_sql(*first))
    publish_others(world, early, others)
    writer.commit()
    began = time.monotonic()
    last.query(CAUSAL + insert_sql(*((key, number + 1) for key in LATE_KEYS)),
               "skirnir")
    wait_for_arrivals(world, first)
    print(f"late ones arrived after {time.monotonic() - began:.2f} s")


def relay_late_ones(world, cluster):
    world.set_up()
    relay = world.start_relay()
    others = itertools.count(1)
    for turn in range(LATE_TURNS):
        publish_around_a_late_one(world, cluster, 2 * turn + 1, others)
    shops.until(lambda: world.count("messenger_outbox") == 0, relay.log)
    assert relay.stop() == 0
    aggregates.judge(arrivals(world), {
        **dict.fromkeys(LATE_KEYS, 2 * LATE_TURNS),
        **dict.fromkeys(OTHER_KEYS, next(others) - 1)})


class Bulk(threading.Thread):
    """Large transactions on a node, one after the other: what follows them comes
    to another node when that has done them, too."""

    def __init__(self, node, table):
        super().__init__(daemon=True)
        self.node, self.table = node, table
        node.query(f"{CAUSAL}CREATE TABLE {table} (a INT PRIMARY KEY, b INT); "
                   f"INSERT INTO {table} SELECT seq, 0 FROM "
                   f"seq_1_to_{BULK_ROWS}", "skirnir")
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.is_set():
            self.node.query(f"UPDATE {self.table} SET b = b + 1", "skirnir")

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.is_over.set()
        self.join()


def relay_behind_a_balancer(world, cluster):
    """What reads and what deletes are on different nodes, of which each is
    behind the other now and then."""
    world.set_up()
    first, second, third = cluster.nodes
    with Balancer([first, second]) as balancer, Bulk(first, "bulk_1"), \
            Bulk(second, "bulk_2"):
        world.use(balancer.url(first.url))
        relay = world.start_relay()
        for number in range(1, TURNS + 1):
            third.query(insert_sql(*((key, number) for key in range(EACH))),
                        "skirnir")
        shops.until(lambda: world.count("messenger_outbox") == 0, relay.log,
                    load.PATIENCE_S, 0.1)
        assert relay.stop() == 0
    came = arrivals(world)
    print(f"duplicates on the wire {len(came) - len(set(came))}")
    aggregates.judge(came, dict.fromkeys(range(EACH), TURNS))
    assert len(came) == len(set(came))


# A cluster takes a quarter of a minute to start.
if shops.LONG:
    def test_nothing_is_lost_or_doubled_whichever_node_is_away(world, cluster):
        with load.load(world) as watch:
            load.disturb(watch, cluster)

    def test_what_another_node_commits_late_is_not_passed(world, cluster):
        relay_late_ones(world, cluster)

    def test_what_is_deleted_on_another_node_is_not_sent_again(world, cluster):
        relay_behind_a_balancer(world, cluster)
