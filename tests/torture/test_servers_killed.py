"""The servers die by SIGKILL, or freeze, while messages are written and
relayed, and come back on the same port and data: what was committed arrives,
what was not does not, and duplicates are those that were in flight."""
import itertools
import json
import pathlib
import subprocess
import sys
import threading
import uuid

import pytest

import amqp_client
import databases
import shop as shops
import worlds
from mortals import MortalDatabase, start

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

KILLS = 20 if shops.LONG else 1
# A batch is one transaction.
BATCH = 20
IN_FLIGHT = worlds.IN_FLIGHT


class Writer(threading.Thread):
    """Transactions of numbered messages, one after the other, until told to
    stop. Whether one that failed was committed is not known."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.committed, self.unknown = set(), []
        self.stopped = threading.Event()

    def run(self):
        for first in itertools.count(0, BATCH):
            if self.stopped.is_set():
                return
            batch = set(range(first, first + BATCH))
            try:
                self.world.insert(BATCH, first=first)
                self.committed |= batch
            except (servers.ServerError, subprocess.CalledProcessError):
                self.unknown.append(batch)

    def stop(self):
        self.stopped.set()
        self.join()


@pytest.fixture(scope="module")
def mortals():
    """A server of each kind that may be killed."""
    worlds.need("SKR_RABBITMQ_URL")
    with start("rabbitmq") as started:
        yield started


class MortalWorld(worlds.World):
    def __init__(self, folder, database, rabbitmq):
        self.rabbitmq = rabbitmq
        super().__init__(folder, database, "%2f", broker_url=rabbitmq.url)

    def set_up(self):
        super().set_up()
        self.rabbitmq.keep_declarations()

    def left(self):
        """A server that is down tells nothing."""
        try:
            return super().left()
        except servers.ServerError:
            return -1

    def take_numbers(self, queue="orders"):
        with amqp_client.Client(self.rabbitmq.url) as client:
            return [json.loads(message.body)["n"]
                    for message in client.take_all(queue)]


@pytest.fixture(params=databases.BY_KIND)
def mortal(request, tmp_path, mortals):
    opened = MortalWorld(tmp_path, MortalDatabase(mortals[request.param]),
                         mortals["rabbitmq"])
    yield opened
    opened.leave()


def expect_ledger(world, writer, relay, kills):
    writer.stop()
    world.wait_until_empty(relay, 120)
    assert relay.stop() == 0, relay.log()
    numbers = world.take_numbers()
    arrived = set(numbers)
    halves = [batch for batch in writer.unknown
              if arrived & batch and not batch <= arrived]
    ledger = {"kills": kills, "committed": len(writer.committed),
              "unknown": len(writer.unknown) * BATCH,
              "lost": len(writer.committed - arrived),
              "duplicates": len(numbers) - len(arrived)}
    print(", ".join(f"{name} {value}" for name, value in ledger.items()))
    assert ledger["committed"] >= BATCH * kills
    assert ledger["lost"] == 0
    assert halves == [], "half a transaction arrived"
    assert arrived <= writer.committed.union(*writer.unknown)
    assert ledger["duplicates"] <= kills * IN_FLIGHT
    assert world.failed() == []


def torture(world, victim):
    """Kills under load, each after some progress and before the next."""
    world.set_up()
    relay = world.start_relay()
    relay.wait_for(r"relay\.active")
    writer = Writer(world)
    writer.start()
    for _ in range(KILLS):
        goal = len(writer.committed) + 5 * BATCH
        shops.until(lambda: len(writer.committed) >= goal, relay.log)
        # It keeps up with the writer: it works.
        shops.until(lambda: 0 <= world.left() < 5 * BATCH, relay.log)
        said = len(relay.log())
        victim.kill()
        shops.until(lambda: len(relay.log()) > said, relay.log)
        assert relay.is_running(), relay.log()
        victim.start()
    goal = len(writer.committed) + 5 * BATCH
    shops.until(lambda: len(writer.committed) >= goal, relay.log)
    expect_ledger(world, writer, relay, KILLS)


def test_a_queue_that_is_kept_outlives_a_kill_with_its_messages(mortals):
    server, name = mortals["rabbitmq"], f"kept-{uuid.uuid4().hex[:8]}"
    with amqp_client.Client(server.url) as client:
        client.declare_queue(name)
        server.keep_declarations()
        client.publish("", name, b"{}")
        client.confirm()
    server.kill()
    server.start()
    with amqp_client.Client(server.url) as client:
        assert client.count(name) == 1
        client.delete_queue(name)


def test_killed_database_loses_nothing(mortal, mortals):
    torture(mortal, mortals[mortal.database.kind])


@pytest.mark.alike
def test_killed_rabbitmq_loses_nothing(mortal, mortals):
    torture(mortal, mortals["rabbitmq"])


def test_frozen_database_loses_nothing(mortal, mortals):
    """It accepts connections, and what is sent, and does not answer."""
    world = mortal
    server = mortals[world.database.kind]
    world.set_up()
    url = world.database.url
    world.set_config(replace=[(url, url + "?timeout=2&connect_timeout=2")])
    relay = world.start_relay()
    relay.wait_for(r"relay\.active")
    writer = Writer(world)
    writer.start()
    shops.until(lambda: len(writer.committed) >= 5 * BATCH, relay.log)
    server.freeze()
    try:
        relay.wait_for(r"relay\.trouble.*no answer")
        assert relay.is_running(), relay.log()
    finally:
        server.thaw()
    goal = len(writer.committed) + 5 * BATCH
    shops.until(lambda: len(writer.committed) >= goal, relay.log)
    expect_ledger(world, writer, relay, 1)


@pytest.mark.alike
def test_everything_killed_at_once_loses_nothing(mortal, mortals):
    """The relay too, as when the power fails."""
    world = mortal
    world.set_up()
    writer = Writer(world)
    writer.start()
    victims = [mortals[world.database.kind], mortals["rabbitmq"]]
    for _ in range(max(KILLS // 2, 1)):
        relay = world.start_relay()
        goal = len(writer.committed) + 5 * BATCH
        shops.until(lambda: len(writer.committed) >= goal, relay.log)
        relay.wait_for(r"relay\.active")
        for victim in victims:
            victim.kill()
        relay.kill()
        for victim in victims:
            victim.start()
    relay = world.start_relay()
    expect_ledger(world, writer, relay, max(KILLS // 2, 1))
