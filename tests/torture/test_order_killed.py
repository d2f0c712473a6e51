"""SIGKILL at every step of a relay on an ordered outbox: whoever goes on begins
at the head of each partition, and what comes twice is what was in flight."""
import json

import pytest

import shop as shops
from test_failpoints import RELAY_CASES

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


@pytest.mark.parametrize("failpoint", RELAY_CASES)
def test_order_survives_a_relay_killed_at_every_step(ordered, failpoint):
    publish(ordered)
    held = ordered.hold_at(failpoint, "relay", "outbox",
                           visit=RELAY_CASES[failpoint][0])
    held.kill()
    # By leases the next has to wait for those of the dead one.
    relay = ordered.start_relay()
    shops.until(lambda: ordered.count("shop", "messenger_outbox") == 0,
                lambda: relay.log())
    assert relay.stop() == 0
    came = arrived(ordered)
    first = list(dict.fromkeys(came))
    for key in range(KEYS):
        assert [number for of, number in first if of == key] == list(
            range(EACH))
    assert len(first) == KEYS * EACH
    assert len(came) - len(first) <= IN_FLIGHT
