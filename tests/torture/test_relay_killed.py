"""SIGKILL of the relay between MariaDB or PostgreSQL and RabbitMQ, at every
place where a crash could hurt: the ledger is exact."""
import collections
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


def duplicates_of(numbers):
    return [number for number, count in collections.Counter(numbers).items()
            for _ in range(count - 1)]


def judge(world, waiting, has_flight):
    """Nothing is lost. Only what had not been settled came again, each once."""
    numbers = world.take_numbers()
    assert set(numbers) == set(range(ROWS))
    duplicates = duplicates_of(numbers)
    assert len(duplicates) == len(set(duplicates)) <= worlds.IN_FLIGHT
    assert set(duplicates) <= waiting
    assert has_flight is None or bool(duplicates) == has_flight
    assert world.failed() == []


@pytest.mark.parametrize("visit", ["first", "later"])
@pytest.mark.parametrize("failpoint", RELAY_CASES)
def test_killed_relay_loses_nothing(world, failpoint, visit):
    world.set_up()
    world.insert(ROWS)
    later, has_flight = RELAY_CASES[failpoint]
    world.hold_at(failpoint, "relay", "outbox",
                  visit=1 if visit == "first" else later).kill()
    waiting = waiting_numbers(world)
    world.relay_all()
    judge(world, waiting, has_flight)
    assert world.left() == 0


# How several relays may share a queue: both on each database in long runs.
SHORT_CLAIM = {"mariadb": "lease", "postgresql": "shared"}


@pytest.mark.parametrize("failpoint", RELAY_CASES)
@pytest.mark.parametrize("claim", ["lease", "shared"] if shops.LONG else [None])
def test_killed_relay_that_shares_its_queue_loses_nothing(world, claim,
                                                          failpoint):
    """Locks of the dead one are gone with it, leases after their time."""
    claim = claim or SHORT_CLAIM[world.database.kind]
    world.set_config(replace=[
        ("        relay_to: amqp", f"        relay_to: amqp\n"
         f"        claim: {claim}"),
        ("queue_name=outbox'", "queue_name=outbox&redeliver_timeout=3'")])
    world.set_up()
    world.insert(ROWS)
    later, has_flight = RELAY_CASES[failpoint]
    world.hold_at(failpoint, "relay", "outbox", visit=later).kill()
    waiting = waiting_numbers(world)
    relay = world.start_relay()
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    judge(world, waiting, has_flight)


@pytest.mark.parametrize("failpoint", ["relay.confirmed", "relay.settling"])
def test_relay_killed_again_and_again_moves_on(world, failpoint):
    world.set_up()
    world.insert(ROWS)
    for _ in range(LIVES):
        world.hold_at(failpoint, "relay", "outbox").kill()
    world.relay_all()
    numbers = world.take_numbers()
    assert set(numbers) == set(range(ROWS))
    assert len(duplicates_of(numbers)) <= LIVES * worlds.IN_FLIGHT
    assert world.failed() == []
