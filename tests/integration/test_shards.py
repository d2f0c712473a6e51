"""Shards of a queue (`claim: shared`) leave a relay that cannot send: one that is
without its broker gives them up within 30 s, and where no lock tells that a relay
has died its leases run out."""
import json
import pathlib
import sys
import time

import pytest

import databases
import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from servers.proxy import Proxy  # noqa: E402: found through the path above

PLAIN_TYPE = '{"type":"order.placed"}'
KEYS = 40  # spread over the shards of both relays
EACH = 50  # enough ids for many blocks of a plain queue
MOVED_S = 30
LEASE_S = 15
LOOK_S = 3  # a relay looks at leases that others have, and starts a session
OWNERS = "SELECT COUNT(DISTINCT owner) FROM skirnir_lease WHERE owner <> ''"


class World(worlds.World):
    """Its second relay reaches the broker through a proxy."""

    def __init__(self, folder, database, vhost, proxy, scheme):
        super().__init__(folder, database, vhost)
        self.is_ordered = scheme == "ordered-doctrine"
        replace = [("dsn: 'doctrine://default?table_name",
                    f"dsn: '{scheme}://default?table_name"),
                   ("        in_flight:", "        claim: shared\n"
                                          "        in_flight:")]
        self.set_config(replace=replace)
        self.other_path = self.config_path.with_name("other.yaml")
        self.other_path.write_text(self.config_path.read_text().replace(
            self.broker, proxy.url(self.broker)))
        self.set_up()

    def publish(self, numbers):
        """Messages of each key, so that each relay has some of them."""
        rows = [f"('{json.dumps([key, number])}', '{PLAIN_TYPE}', 'outbox', "
                "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP"
                + (f", 'key-{key}')" if self.is_ordered else ")")
                for number in numbers for key in range(KEYS)]
        self.ask("INSERT INTO messenger_outbox (body, headers, queue_name, "
                 "created_at, available_at"
                 + (", partition_key)" if self.is_ordered else ")")
                 + " VALUES " + ", ".join(rows))


@pytest.mark.parametrize("scheme, fault", [
    ("ordered-doctrine", "hold"), ("ordered-doctrine", "refuse"),
    ("doctrine", "refuse")])
def test_shards_leave_a_relay_without_its_broker(tmp_path, vhost, scheme,
                                                 fault):
    broker_port = int(worlds.need("SKR_RABBITMQ_PORT"))
    with Proxy(broker_port) as proxy:
        world = World(tmp_path, databases.PostgreSQL(), vhost, proxy, scheme)
        try:
            healthy = world.start_relay()
            healthy.wait_for("relay.active")
            cut_off = world.start("relay", "outbox", "-c", world.other_path)
            for relay in (healthy, cut_off):
                relay.wait_for("slots=30")
            world.publish([0])
            world.wait_until_empty(healthy)
            getattr(proxy, fault)()
            if fault == "refuse":
                proxy.cut()
            began = time.monotonic()
            world.publish(range(1, EACH))
            world.wait_until_empty(
                healthy, MOVED_S - (time.monotonic() - began))
            print(f"{fault}: all were sent after "
                  f"{time.monotonic() - began:.1f} s")
            cut_off.wait_for("relay.trouble")
            proxy.cut()
            assert healthy.stop() == 0
            cut_off.stop()
            came = [tuple(json.loads(message.body))
                    for message in world.take_all()]
            first = list(dict.fromkeys(came))
            assert sorted(first) == [(key, number) for key in range(KEYS)
                                     for number in range(EACH)]
            if world.is_ordered:
                for key in range(KEYS):
                    assert [number for of, number in first if of == key] == \
                        list(range(EACH))
        finally:
            world.leave()


CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    outbox:
        dsn: 'ordered-doctrine://default?table_name=messenger_outbox'
        relay_to: orders
        claim: shared
    orders:
        dsn: 'queue://default?queue_name=orders'
"""


def test_shards_of_a_killed_relay_go_on_when_its_leases_run_out(tmp_path):
    """SQLite has no locks that sessions hold, so that leases alone decide."""
    shop = shops.Shop(tmp_path)
    try:
        shop.write_config(CONFIG)
        shop.check("setup")
        connection = shop.open("shop")
        with connection:
            for key in range(KEYS):
                connection.execute(
                    "INSERT INTO messenger_outbox (body, headers, queue_name, "
                    "partition_key, created_at, available_at) VALUES ('{}', "
                    "'{\"type\":\"order.placed\"}', 'default', ?, "
                    "datetime('now'), datetime('now'))", (f"key-{key}",))
        dying = shop.hold_at("relay.submitted", "relay", "outbox")
        relay = shop.start_relay()
        shops.until(lambda: shop.query("shop", OWNERS) == [(2,)], relay.log)
        dying.kill()
        shops.until(lambda: shop.count("shop", "messenger_outbox") == 0,
                    relay.log, LEASE_S + LOOK_S)
        assert relay.stop() == 0
        assert shop.count("shop", "messenger_messages") >= KEYS
    finally:
        shop.close()
