"""SIGKILL of the relay between MariaDB or PostgreSQL and RabbitMQ, at every
place where a crash could hurt: the ledger is exact."""
import json

import pytest

import shop as shops
import worlds
from test_failpoints import RELAY_CASES

ROWS = 5000 if shops.LONG else 300
LIVES = 5


def waiting_numbers(world):
    return {json.loads(line)["n"] for line in world.ask(
        "SELECT body FROM messenger_outbox").splitlines()}


def take(world, taken):
    taken += world.take_numbers()


def kill_at(world, failpoint, visit, taken):
    """How many rows were on the wire and still in the outbox."""
    world.hold_at(failpoint, "relay", "outbox", visit=visit).kill()
    # What it wrote before it died may still be on its way through the broker,
    # which closes the connection when it has read all of it.
    shops.until(lambda: worlds.control(
        "list_connections", "-q", "name", "vhost").count(world.vhost) == 1,
        "the broker to notice")
    already = set(taken)
    take(world, taken)
    return len(waiting_numbers(world) & (set(taken) - already))


@pytest.mark.parametrize("visit", ["first", "later"])
@pytest.mark.parametrize("failpoint", RELAY_CASES)
def test_killed_relay_loses_nothing(world, failpoint, visit):
    world.set_up()
    world.insert(ROWS)
    later, has_flight = RELAY_CASES[failpoint]
    taken = []
    in_flight = kill_at(world, failpoint, 1 if visit == "first" else later,
                        taken)
    assert in_flight <= worlds.IN_FLIGHT
    assert has_flight is None or (in_flight > 0) == has_flight
    world.relay_all()
    take(world, taken)
    assert set(taken) == set(range(ROWS))
    assert len(taken) - ROWS == in_flight
    assert world.failed() == [] and world.left() == 0


@pytest.mark.parametrize("failpoint", ["relay.confirmed", "relay.settling"])
def test_relay_killed_again_and_again_moves_on(world, failpoint):
    world.set_up()
    world.insert(ROWS)
    taken = []
    for _ in range(LIVES):
        world.hold_at(failpoint, "relay", "outbox").kill()
    world.relay_all()
    take(world, taken)
    assert set(taken) == set(range(ROWS))
    assert len(taken) - ROWS <= LIVES * worlds.IN_FLIGHT
    assert world.failed() == []
