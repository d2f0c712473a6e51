"""SIGTERM while the broker or the database says nothing: an end within the time
that the manual promises, and nothing is lost."""
import json
import os
import pathlib
import sys
import time
import uuid

import pytest

import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

pytestmark = pytest.mark.alike

SOON_S = 4
PROMISED_S = 8 + 2  # and what a busy machine takes
LIMIT_S = 2
MANY = 2000  # of five at a time: not done before the database is frozen
LIMITED_S = LIMIT_S + 1 + 3  # what the manual adds, and a busy machine
HANGS = """\
import sys
print('{"ready":true}', flush=True)
for line in sys.stdin:
    open("begun", "a").close()
"""
HANDLER = """\
handlers:
    order.placed: {{command: [python3, hangs.py]}}
"""


class Line:
    """The way to the broker leads through a proxy."""

    def __init__(self, world):
        self.world = world
        self.proxy = servers.Proxy(int(os.environ["SKR_RABBITMQ_PORT"]))
        world.set_up()
        world.check("setup-deduplication", "--force")
        (world.folder / "hangs.py").write_text(HANGS)
        url = self.proxy.url(world.broker)
        world.set_config(worlds.CONFIG + HANDLER, replace=[
            (f"{world.broker}'", f"{url}?queues[orders]='")])

    def until(self, condition, program):
        shops.until(condition, lambda: program.log()[-3000:])


@pytest.fixture
def line(world):
    opened = Line(world)
    yield opened
    opened.proxy.close()


def seconds_to_stop(program):
    began = time.monotonic()
    assert program.stop() == 0, program.log()
    return time.monotonic() - began


@pytest.mark.parametrize("command", [["relay", "outbox"], ["consume", "amqp"]],
                         ids=" ".join)
def test_one_that_connects_in_vain_stops_at_once(line, command):
    line.proxy.hold()
    program = line.world.start(*command)
    line.until(lambda: line.proxy.accepted > 0, program)
    assert seconds_to_stop(program) < SOON_S


def test_a_relay_with_messages_in_flight_stops_in_time(line):
    world = line.world
    world.insert(1)
    relay = world.start("relay", "outbox")
    line.until(lambda: world.left() == 0, relay)
    line.proxy.hold()
    world.insert(20, first=1)
    line.until(lambda: line.proxy.waiting(to_server=True) > 0, relay)
    assert seconds_to_stop(relay) < PROMISED_S
    assert world.left() == 20
    line.proxy.cut()
    line.proxy.resume()
    world.relay_all()
    assert set(world.take_numbers()) == set(range(21))


def test_a_consumer_that_waits_stops_at_once(line):
    consumer = line.world.start("consume", "amqp")
    consumer.wait_for(r"consumer\.ready")
    line.proxy.hold()
    assert seconds_to_stop(consumer) < SOON_S


def test_a_consumer_whose_command_hangs_stops_in_time(line):
    world = line.world
    consumer = world.start("consume", "amqp")
    consumer.wait_for(r"consumer\.ready")
    world.insert(1)
    world.relay_all()
    line.until((world.folder / "begun").exists, consumer)
    line.proxy.hold()
    assert seconds_to_stop(consumer) < PROMISED_S
    line.proxy.cut()
    # As soon as the broker has noticed.
    line.until(lambda: world.take_numbers() == [0], consumer)


class DatabaseLine:
    """The way to the database leads through a proxy; the world's own does not."""

    def __init__(self, world):
        self.world = world
        port = int(world.database.setting("PORT"))
        self.proxy = servers.Proxy(port)
        world.set_up()
        world.check("setup-deduplication", "--force")
        world.ask("CREATE TABLE effects (body VARCHAR(30) NOT NULL)")
        world.set_config(
            worlds.CONFIG + "handlers:\n    order.placed: {{sql: "
            "'INSERT INTO effects (body) VALUES (:body)'}}\n",
            database=self.proxy.url(world.database.url), in_flight=5,
            replace=[(f"{world.broker}'", f"{world.broker}?queues[orders]='")])

    def start(self, *command):
        return self.world.start(*command, f"--stop-timeout={LIMIT_S}")

    def effects(self):
        return sorted(json.loads(body)["n"] for body in self.world.ask(
            "SELECT body FROM effects").splitlines())

    def is_waited_for(self):
        return self.proxy.waiting(True) + self.proxy.waiting(False) > 0

    def go_on(self):
        """As a server does that was frozen and ends what is not waited for."""
        self.proxy.cut()
        self.proxy.resume()


@pytest.fixture
def database_line(world):
    opened = DatabaseLine(world)
    yield opened
    opened.proxy.close()


def expect_end(program):
    began = time.monotonic()
    program.process.terminate()
    code = program.end(4 * LIMITED_S)
    assert time.monotonic() - began < LIMITED_S, program.log()
    assert code == 0 or program.events("stop.timeout"), program.log()


@pytest.mark.parametrize("command", [["relay", "outbox"], ["consume", "amqp"]],
                         ids=" ".join)
def test_a_frozen_database_that_is_connected_to_does_not_hold_up_a_stop(
        database_line, command):
    database_line.proxy.hold()
    program = database_line.start(*command)
    shops.until(lambda: database_line.proxy.accepted > 0, program.log)
    expect_end(program)


def test_a_frozen_database_does_not_hold_up_the_stop_of_a_relay(database_line):
    """In the midst of its work."""
    line, world = database_line, database_line.world
    world.insert(MANY)
    relay = line.start("relay", "outbox")
    shops.until(lambda: world.left() < MANY, relay.log)
    line.proxy.hold()
    shops.until(line.is_waited_for, relay.log)
    expect_end(relay)
    line.go_on()
    world.relay_all()
    assert set(world.take_numbers()) == set(range(MANY))


def test_a_frozen_database_does_not_hold_up_the_stop_of_a_consumer(
        database_line):
    """Which has a message in hand, whose effect is there once in the end."""
    line, world = database_line, database_line.world
    consumer = line.start("consume", "amqp")
    consumer.wait_for(r"consumer\.ready")
    line.proxy.hold()
    world.client.publish("", "orders", b'{"n":1}', {
        "type": ("S", "order.placed"),
        "X-Message-Id": ("S", str(uuid.uuid4()))})
    world.client.confirm()
    shops.until(line.is_waited_for, consumer.log)
    expect_end(consumer)
    line.go_on()
    consumer = line.start("consume", "amqp")
    shops.until(lambda: line.effects() == [1], consumer.log)
    assert consumer.stop() == 0, consumer.log()
    assert world.take_numbers() == []
