"""PostgreSQL behind a pooler that gives each transaction to another session: no
lock of a session means anything there. A relay that lives by one says so and what
to do; relays that live by leases share the queue.
"""
import json
import pathlib
import sys

import pytest

import databases
import outbox_world
import shop as shops

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

ROWS = 200
UNLOCKED = r"relay\.unlocked .*pooler"


@pytest.fixture
def pooled(tmp_path):
    """Makes a world whose DSN leads through a pooler in such a mode."""
    opened = []

    def make(mode, options="", scheme="doctrine"):
        database = databases.PostgreSQL()
        pooler = servers.PgBouncer(database.setting("PORT"), mode)
        try:
            opened.append(pooler.start())
        except servers.NotInstalled:
            database.drop()
            pytest.skip("PgBouncer is not installed here")
        database.url = pooler.url(database.url)
        world = outbox_world.World(tmp_path, database, options, scheme)
        opened.append(world)
        world.set_up()
        world.pooler = pooler
        return world

    yield make
    for one in reversed(opened):
        one.close()
        if isinstance(one, outbox_world.World):
            one.server.drop()


def insert_all(world):
    key = "'key-' || n % 7"
    world.server.ask(
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        f"available_at{', partition_key' if world.is_ordered else ''}) SELECT "
        f"n, '{outbox_world.PLAIN_TYPE}', 'outbox', {world.server.now}, "
        f"{world.server.now}{', ' + key if world.is_ordered else ''} "
        f"FROM generate_series(1, {ROWS}) AS n")


def test_a_relay_that_needs_a_lock_says_what_to_do(pooled):
    world = pooled("transaction")
    world.insert()
    relay = world.start("relay", "outbox")
    assert relay.end() != 0
    said = next(line for line in relay.log().splitlines()
                if line.startswith("skirnir relay: "))
    for words in ("PostgreSQL reach several sessions", "connect past the pooler",
                  "pool_mode to session", "`claim: shared`"):
        assert words in said
    assert not relay.events("relay.active") and world.arrived() == 0


@pytest.mark.parametrize("scheme", ["doctrine", "ordered-doctrine"])
def test_relays_share_by_leases_alone(pooled, scheme):
    world = pooled("transaction", "\n        claim: shared", scheme)
    world.is_ordered = scheme == "ordered-doctrine"
    relays = [world.start("relay", "outbox") for _ in range(2)]
    for relay in relays:
        relay.wait_for(UNLOCKED)
    insert_all(world)
    shops.until(lambda: world.arrived() >= ROWS, relays[0].log)
    numbers = [json.loads(body) for body, in world.queue.execute(
        "SELECT body FROM messenger_messages ORDER BY id")]
    assert set(numbers) == set(range(1, ROWS + 1))
    if world.is_ordered:
        first_seen = list(dict.fromkeys(numbers))
        for key in range(7):
            own = [number for number in first_seen if number % 7 == key]
            assert own == sorted(own)
    # Leases need not run out: the other goes on when it is stopped.
    assert relays[0].stop() == 0
    world.insert('"late"')
    shops.until(lambda: world.queue.execute(
        "SELECT 1 FROM messenger_messages WHERE body = '\"late\"'").fetchone(),
        relays[1].log)
    assert relays[1].stop() == 0
    for relay in relays:
        assert len(relay.events("relay.unlocked")) == 1


def test_a_pooler_of_sessions_is_as_good_as_none(pooled):
    world = pooled("session")
    first = world.start("relay", "outbox")
    first.wait_for(r"relay\.active")
    second = world.start("relay", "outbox")
    second.wait_for(r"relay\.standby")
    world.insert()
    shops.until(lambda: world.arrived() == 1, first.log)
    first.kill()
    second.wait_for(r"relay\.active")
    world.insert()
    shops.until(lambda: world.arrived() >= 2, second.log)
