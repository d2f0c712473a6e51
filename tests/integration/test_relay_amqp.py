"""From each server to RabbitMQ: confirmed, routed, nothing lost when
the relay, the broker's connections or the route go away."""
import os
import pathlib
import random
import sys

import pytest

import amqp_client
import databases
import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from servers.proxy import Proxy  # noqa: E402: found through the path above

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


class World(worlds.World):
    def __init__(self, folder, database, vhost):
        super().__init__(folder, database, vhost)
        self.exchanges.add("people")
        self.queues.add("people")
        self.set_config(CONFIG)
        self.check("setup")

    def queued(self, queue="orders"):
        return self.client.count(queue)


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path, vhost):
    opened = World(tmp_path, request.param(), vhost)
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
    assert world.failed() == []


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
    assert 207 <= world.queued("people") <= 207 + worlds.IN_FLIGHT
    assert world.failed() == []


def test_a_missing_exchange_waits_and_fails_nothing(world):
    world.insert(20)
    relay = world.start_relay()
    relay.wait_for("relay.route_closed")
    assert world.failed() == []
    world.declare()
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.queued("orders") == 20
    assert world.failed() == []
    assert len(relay.events("relay.route_closed")) == 1


def test_connections_that_are_closed_lose_nothing(world):
    world.declare()
    world.insert(3000)
    relay = world.start_relay()
    for _ in range(3):
        before = world.left()
        worlds.control("close_all_connections", "-p", world.vhost, "a test")
        shops.until(lambda: world.left() < before or before == 0,
                    lambda: f"progress\n{relay.log()}", 60)
    world.client = amqp_client.Client(world.broker)
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert 3000 <= world.queued("orders") <= 3000 + 3 * worlds.IN_FLIGHT
    assert world.failed() == []


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
    assert 300 <= world.queued("orders") <= 300 + worlds.IN_FLIGHT
    assert world.failed() == []


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
    assert 4000 <= world.queued("orders") <= 4000 + kills * worlds.IN_FLIGHT
    assert world.failed() == []


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
