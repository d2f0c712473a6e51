"""SIGKILL at every step of a relay on an ordered outbox: the next relay begins
at the head of each partition, and what comes twice is what was in flight."""
import json
import time

import pytest

import databases
import outbox_world
import shop as shops
from test_failpoints import RELAY_CASES

# As if their time had passed: the next would have to wait for it.
LET_LEASES_RUN_OUT = ("UPDATE skirnir_lease SET "
                      "expires_at = '2000-01-01 00:00:00'")
KEYS = 8
EACH = 25
IN_FLIGHT = 50
CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    outbox:
        dsn: 'ordered-doctrine://default?table_name=messenger_outbox&\
redeliver_timeout=3'
        relay_to: orders
        in_flight: {in_flight}
        claim: {claim}
    orders:
        dsn: 'queue://default?queue_name=orders'
"""


@pytest.fixture(params=["exclusive", "lease"])
def ordered(request, tmp_path):
    shop = shops.Shop(tmp_path)
    shop.claim = request.param
    shop.write_config(CONFIG.format(claim=request.param, in_flight=IN_FLIGHT))
    shop.check("setup")
    yield shop
    shop.close()


def publish(shop):
    connection = shop.open("shop")
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(EACH):
        for key in range(KEYS):
            connection.execute(
                "INSERT INTO messenger_outbox (body, headers, queue_name, "
                "partition_key, created_at, available_at) VALUES (?, "
                "'{\"type\":\"order.placed\"}', 'default', ?, "
                "datetime('now'), datetime('now'))",
                (json.dumps([key, number]), f"key-{key}"))
    connection.execute("COMMIT")


def arrived(shop):
    return [tuple(json.loads(body)) for body, in shop.query(
        "shop", "SELECT body FROM messenger_messages ORDER BY id")]


def judge(came, each, most_duplicates):
    """First occurrences of each key are in order, and none is missing. One that
    is repeated is followed by all later ones, so that the newest is the last."""
    first = list(dict.fromkeys(came))
    for key in range(KEYS):
        assert [number for of, number in first if of == key] == list(
            range(each))
        last = -1
        for number in (number for of, number in came if of == key):
            assert number <= last + 1, (key, came)
            last = number
        assert last == each - 1, (key, came)
    assert len(first) == KEYS * each
    assert len(came) - len(first) <= most_duplicates


@pytest.mark.parametrize("failpoint", RELAY_CASES)
def test_order_survives_a_relay_killed_at_every_step(ordered, failpoint):
    publish(ordered)
    held = ordered.hold_at(failpoint, "relay", "outbox",
                           visit=RELAY_CASES[failpoint][0])
    held.kill()
    if ordered.claim == "lease":
        ordered.open("shop").execute(LET_LEASES_RUN_OUT)
    relay = ordered.start_relay()
    shops.until(lambda: ordered.count("shop", "messenger_outbox") == 0,
                lambda: relay.log())
    assert relay.stop() == 0
    judge(arrived(ordered), EACH, IN_FLIGHT)


SERVER_IN_FLIGHT = 20
# Enough for every life to come to its step.
SERVER_EACH = 50


class ServerWorld(outbox_world.World):
    def __init__(self, folder, server, claim, scheme="ordered-doctrine",
                 lease_s=3):
        super().__init__(
            folder, server, f"\n        claim: {claim}\n        in_flight: "
            f"{SERVER_IN_FLIGHT}\n        options: {{redeliver_timeout: "
            f"{lease_s}}}", scheme)
        self.is_ordered = scheme == "ordered-doctrine"
        self.set_up()

    def publish(self, keys, numbers):
        rows = [f"('{json.dumps([key, number])}', '{outbox_world.PLAIN_TYPE}', "
                f"'outbox', {self.server.now}, {self.server.now}"
                + (f", 'key-{key}')" if self.is_ordered else ")")
                for number in numbers for key in keys]
        self.server.ask(
            "INSERT INTO messenger_outbox (body, headers, queue_name, "
            "created_at, available_at"
            + (", partition_key) VALUES " if self.is_ordered else ") VALUES ")
            + ", ".join(rows))

    def came(self):
        return [tuple(json.loads(body)) for body, in self.query(
            "queue", "SELECT body FROM messenger_messages ORDER BY id")]

    def left(self):
        return int(self.server.ask("SELECT COUNT(*) FROM messenger_outbox"))

    def relays(self):
        """Those that have a part in the queue, or a seat."""
        return int(self.server.ask("SELECT COUNT(DISTINCT owner) FROM "
                                   "skirnir_lease WHERE owner <> ''"))


@pytest.mark.parametrize("claim", ["exclusive", "shared", "lease"])
@pytest.mark.parametrize("kind", databases.SERVERS, ids=lambda kind: kind.kind)
def test_order_survives_relays_of_servers_killed_at_every_step(
        tmp_path, kind, claim):
    """One life after the other, each ends at another step."""
    world = ServerWorld(tmp_path, kind(), claim)
    try:
        world.publish(range(KEYS), range(SERVER_EACH))
        for failpoint, (visit, _) in RELAY_CASES.items():
            world.hold_at(failpoint, "relay", "outbox", visit=visit).kill()
            if claim == "lease":
                world.server.ask(LET_LEASES_RUN_OUT)
        relay = world.start_relay()
        shops.until(lambda: world.left() == 0, relay.log)
        assert relay.stop() == 0
        judge(world.came(), SERVER_EACH, len(RELAY_CASES) * SERVER_IN_FLIGHT)
    finally:
        world.leave()


@pytest.mark.parametrize("scheme", ["ordered-doctrine", "doctrine"])
@pytest.mark.parametrize("kind", databases.SERVERS, ids=lambda kind: kind.kind)
def test_shards_of_a_killed_relay_go_on_soon(tmp_path, kind, scheme):
    """By the best of a few times, as this machine does other things too."""
    world = ServerWorld(tmp_path, kind(), "shared", scheme, lease_s=15)
    try:
        times = []
        for number in range(5):
            world.publish(range(KEYS), [number])
            dying = world.hold_at("relay.submitted", "relay", "outbox")
            # All shards are the one's, and the other waits for a share.
            relay = world.start_relay()
            shops.until(lambda: world.relays() == 2, relay.log)
            dying.kill()
            began = time.monotonic()
            shops.until(lambda: world.left() == 0, relay.log)
            times.append(time.monotonic() - began)
            assert relay.stop() == 0
        print("went on after", ", ".join(f"{each:.2f} s" for each in times))
        came = world.came()
        judge(came if world.is_ordered else sorted(came), len(times),
              len(times) * SERVER_IN_FLIGHT)
        assert min(times) < 1
    finally:
        world.leave()
