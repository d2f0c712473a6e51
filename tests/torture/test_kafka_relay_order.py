"""kafka_outbox under torture. Publishers number what they publish of each key.
Relays are killed and stopped, the database and Kafka are killed. The judge
reads the topic: of each key the first occurrences must be in order, all of them
there, and none besides. As long as nothing is killed nothing comes twice."""
import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest

import aggregates
import databases
import servers
import shop as shops
import worlds
from aggregates import SEED, judge
from kafka_outbox_world import World
from mortals import MortalDatabase, start

PUBLISHERS = 6
FAULTS = 60 if shops.LONG else 5
CALM_S = 600 if shops.LONG else 60
FROZEN_S = 18 if shops.LONG else 2


class Publisher(aggregates.Publisher):
    def insert(self, key):
        world = self.world
        return ("INSERT INTO kafka_outbox (topic, payload_json, "
                f"payload_headers, {world.key()}) SELECT '{world.topic}', " +
                world.as_json("CONCAT('{\"k\":', id, ',\"n\":', version, "
                              "'}')") +
                f", '{{}}', CONCAT('key-', id) FROM aggregate WHERE id = {key}")


class CalmPublisher(Publisher):
    pause_s = 0.5


class OrderedWorld(World):
    def as_json(self, text):
        return text if self.database.dialect == "mysql" else \
            f"CAST({text} AS JSON)"

    def prepare(self):
        self.start_relay().stop()
        aggregates.make(self)

    def start_one(self):
        """Without a page: several would want one port."""
        return self.start("kafka-relay", "--listen=")

    def open_rows(self):
        """A server that is down tells nothing."""
        try:
            return super().open_rows()
        except (servers.ServerError, subprocess.CalledProcessError):
            return -1

    def arrivals(self):
        return [(body["k"], body["n"]) for body in (
            json.loads(value) for value, in self.records("%s\n"))]


@pytest.fixture(scope="module")
def mortals():
    """Servers that may be killed."""
    worlds.need("SKR_KAFKA_URL")
    with start("kafka") as started:
        yield started


@pytest.fixture(params=databases.BY_KIND)
def ordered(request, tmp_path, mortals):
    opened = OrderedWorld(tmp_path, MortalDatabase(mortals[request.param]),
                          mortals["kafka"].url.removeprefix("kafka://"))
    opened.prepare()
    yield opened
    opened.leave()


def start_publishers(world, kind, count):
    print(f"seed {SEED}")
    publishers = [kind(world, name) for name in range(count)]
    for publisher in publishers:
        publisher.start()
    return publishers


def expect_all(world, relays, publishers):
    """What was published must have arrived. How many came twice."""
    aggregates.end(publishers)
    shops.until(lambda: world.open_rows() == 0,
                lambda: f"{world.open_rows()} are left\n" + "\n".join(
                    relay.log()[-2000:] for relay in relays), 120)
    for relay in relays:
        assert relay.stop() == 0, relay.log()
    versions, arrivals = aggregates.versions(world), world.arrivals()
    committed = sum(versions.values())
    print(f"committed {committed}, duplicates {len(arrivals) - committed}")
    assert committed > 100
    assert world.errored() == []
    judge(arrivals, versions)
    return len(arrivals) - committed


@pytest.mark.quick
def test_two_relays_on_one_table_double_nothing(tmp_path):
    """What counts is how long it goes well: all databases at once, and not
    much work."""
    with contextlib.ExitStack() as stack:
        runs = []
        for server in databases.available():
            folder = tmp_path / server.kind
            folder.mkdir()
            world = OrderedWorld(folder, server())
            stack.callback(world.leave)
            world.prepare()
            relays = [world.start_one() for _ in range(2)]
            runs.append((world, relays,
                         start_publishers(world, CalmPublisher, 2)))
        time.sleep(CALM_S)
        for run in runs:
            assert expect_all(*run) == 0


FROZEN_ROWS = 1200
# By then the server has ended the sessions of a relay that is frozen.
BOUND_S = 15
SLACK_S = 15


def freeze_while_it_marks(world):
    """Its transaction is open: gaps make more than one statement of it."""
    world.insert_numbers(FROZEN_ROWS)
    world.ask("DELETE FROM kafka_outbox WHERE id % 3 = 0")
    relay = world.hold_at("relay.marked", "kafka-relay", "--listen=")
    os.kill(relay.pid, signal.SIGSTOP)
    return relay


@pytest.mark.quick
def test_standby_settles_what_a_frozen_relay_has_locked(tmp_path):
    """It is the standby's turn as soon as the lock on the queue is free, and
    then nothing else of the frozen relay is in its way."""
    with contextlib.ExitStack() as stack:
        runs = []
        for server in databases.available():
            folder = tmp_path / server.kind
            folder.mkdir()
            world = OrderedWorld(folder, server())
            stack.callback(world.leave)
            world.prepare()
            frozen = freeze_while_it_marks(world)
            runs.append((world, frozen, world.start_one()))
        end = time.monotonic() + BOUND_S + SLACK_S
        for world, frozen, standby in runs:
            world.wait_until_done(standby, end - time.monotonic())
            assert standby.stop() == 0
            assert "confirm_timeout" not in standby.log()
            # Once by each of the two at the most.
            numbers = world.numbers()
            assert len(set(numbers)) == FROZEN_ROWS * 2 // 3
            assert max(map(numbers.count, set(numbers))) <= 2
            frozen.kill()


def test_order_holds_when_everything_is_killed(ordered, mortals):
    relays = [ordered.start_one() for _ in range(2)]
    publishers = start_publishers(ordered, Publisher, PUBLISHERS)
    rng = random.Random(f"{SEED}-faults")

    def restart(server):
        server.kill()
        server.start()

    def kill_relay():
        place = rng.randrange(len(relays))
        relays[place].kill()
        relays[place] = ordered.start_one()

    def freeze_relay():
        relay = rng.choice(relays)
        os.kill(relay.pid, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        os.kill(relay.pid, signal.SIGCONT)

    kinds = [kill_relay, freeze_relay, lambda: restart(mortals["kafka"]),
             lambda: restart(mortals[ordered.database.kind]), kill_relay]
    for number in range(FAULTS):
        time.sleep(rng.random())
        kinds[number % len(kinds)]()
    time.sleep(1)
    expect_all(ordered, relays, publishers)
