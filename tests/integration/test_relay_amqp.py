"""From each server to RabbitMQ: confirmed, routed, nothing lost when
the relay, the broker's connections or the route go away."""
import os
import pathlib
import random
import sys
import uuid

import pytest

import databases
import shop as shops
from worlds import control, need

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from servers.proxy import Proxy  # noqa: E402: found through the path above

IN_FLIGHT = 50
CONFIG = """\
databases:
    default: '{database}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: amqp
        in_flight: {in_flight}
    amqp: '{broker}'
message_broker_amqp:
    routing:
        'user.#': {{exchange: people, routing_key: everyone}}
    topology:
        exchanges:
            order.placed: {{type: topic}}
            people: {{type: direct}}
        queues: {{orders: ~, people: ~}}
        bindings:
            - {{exchange: order.placed, queue: orders, binding_key: 'order.#'}}
            - {{exchange: people, queue: people, binding_key: everyone}}
"""


class World(shops.Shop):
    """An outbox in a real database, a virtual host of its own."""

    def __init__(self, folder, database):
        super().__init__(folder)
        self.database = database
        self.vhost = f"skr-{uuid.uuid4().hex}"
        control("add_vhost", self.vhost)
        control("set_permissions", "-p", self.vhost, "guest", ".*", ".*", ".*")
        broker = need("SKR_RABBITMQ_URL").rsplit("/", 1)[0] + "/" + self.vhost
        self.write_config(CONFIG.format(database=database.url, broker=broker,
                                        in_flight=IN_FLIGHT))
        self.check("setup")

    def declare(self):
        self.check("setup-amqp")

    def leave(self):
        self.close()
        control("delete_vhost", self.vhost)
        self.database.drop()

    def insert(self, count, name="order.placed"):
        rows = ",".join(
            f"('{{\"n\":{number}}}', '{{\"type\":\"{name}\"}}', 'outbox', "
            "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)" for number in range(count))
        self.database.ask("INSERT INTO messenger_outbox (body, headers, "
                          "queue_name, created_at, available_at) VALUES "
                          + rows)

    def left(self):
        return int(self.database.ask("SELECT COUNT(*) FROM messenger_outbox"))

    def failed(self):
        return int(self.database.ask(
            "SELECT COUNT(*) FROM messenger_messages"))

    def queued(self, queue="orders"):
        for line in control("list_queues", "-q", "-p", self.vhost, "name",
                            "messages").splitlines():
            name, _, count = line.partition("\t")
            if name == queue:
                return int(count)
        return 0

    def wait_until_empty(self, relay):
        shops.until(lambda: self.left() == 0,
                    lambda: f"an empty outbox: {self.left()}\n{relay.log()}",
                    60)


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path):
    need("SKR_RABBITMQ_URL")
    opened = World(tmp_path, request.param())
    yield opened
    opened.leave()


def test_rows_arrive_where_convention_and_rules_send_them(world):
    world.declare()
    world.insert(500)
    world.insert(7, name="user.added.today")
    world.check("relay", "outbox", "--stop-when-empty")
    assert world.left() == 0
    assert world.queued("orders") == 500
    assert world.queued("people") == 7
    assert world.failed() == 0


def test_a_published_message_arrives(world):
    world.declare()
    world.check("publish", "order.placed", "--body", "{}")
    world.check("relay", "outbox", "--stop-when-empty")
    assert world.queued("orders") == 1


@pytest.mark.alike
def test_a_second_broker_that_falls_silent_holds_up_its_own_messages_only(
        world):
    with Proxy(int(os.environ["SKR_RABBITMQ_PORT"])) as proxy:
        config = world.config_path.read_text()
        broker = config.partition("    amqp: '")[2].partition("'")[0]
        world.write_config(config.replace(
            "message_broker_amqp:",
            f"    audit: '{proxy.url(broker)}?connect_timeout=1'\n"
            "message_broker_amqp:").replace(
            "'user.#': {", "'user.#': {sender: audit, "))
        world.declare()
        world.insert(7, name="user.added")
        relay = world.start_relay()
        world.wait_until_empty(relay)
        proxy.hold()
        world.insert(200, name="user.added")
        world.insert(1000)
        relay.wait_for(r"relay\.route_closed .*transport audit waits")
        shops.until(lambda: world.left() == 200,
                    lambda: f"1,000 to the first\n{relay.log()}", 60)
        assert world.queued("orders") == 1000
        proxy.cut()
        proxy.resume()
        world.wait_until_empty(relay)
        assert relay.stop() == 0
    assert 207 <= world.queued("people") <= 207 + IN_FLIGHT
    assert world.failed() == 0


def test_a_missing_exchange_waits_and_fails_nothing(world):
    world.insert(20)
    relay = world.start_relay()
    relay.wait_for("relay.route_closed")
    assert world.failed() == 0
    world.declare()
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.queued("orders") == 20
    assert world.failed() == 0
    assert len(relay.events("relay.route_closed")) == 1


def test_connections_that_are_closed_lose_nothing(world):
    world.declare()
    world.insert(3000)
    relay = world.start_relay()
    for _ in range(3):
        before = world.left()
        control("close_all_connections", "-p", world.vhost, "a test")
        shops.until(lambda: world.left() < before or before == 0,
                    lambda: f"progress\n{relay.log()}", 60)
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert 3000 <= world.queued("orders") <= 3000 + 3 * IN_FLIGHT
    assert world.failed() == 0


@pytest.mark.alike
@pytest.mark.parametrize("failpoint", [
    "relay.read", "relay.submitted", "relay.confirmed", "relay.settling",
    "relay.settled"])
def test_a_kill_costs_duplicates_of_what_was_in_flight_only(world, failpoint):
    world.declare()
    world.insert(300)
    held = world.hold_at(failpoint, "relay", "outbox", visit=2)
    held.kill()
    world.check("relay", "outbox", "--stop-when-empty")
    assert world.left() == 0
    assert 300 <= world.queued("orders") <= 300 + IN_FLIGHT
    assert world.failed() == 0


@pytest.mark.alike
def test_random_kills_lose_nothing(world):
    seed = int(os.environ.get("SKIRNIR_SEED", random.randrange(1 << 32)))
    print(f"SKIRNIR_SEED={seed}")
    chance = random.Random(seed)
    world.declare()
    kills = 0
    world.insert(4000)
    while world.left() > 0:
        relay = world.start_relay()
        target = world.left() - chance.randrange(1, 1500)
        shops.until(lambda: world.left() <= max(target, 0),
                    lambda: f"progress\n{relay.log()}", 60)
        relay.kill()
        kills += 1
    assert 4000 <= world.queued("orders") <= 4000 + kills * IN_FLIGHT
    assert world.failed() == 0


def test_a_second_relay_takes_over_at_once(world):
    world.declare()
    first = world.start_relay()
    first.wait_for("relay.active")
    second = world.start_relay()
    second.wait_for("relay.standby")
    first.kill()
    world.insert(10)
    second.wait_for("relay.active")
    world.wait_until_empty(second)
    assert second.stop() == 0
    assert world.queued("orders") == 10
