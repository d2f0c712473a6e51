"""SIGTERM while the broker says nothing: an end within the time that the manual
promises, and nothing is lost."""
import os
import pathlib
import sys
import time

import pytest

import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

pytestmark = pytest.mark.alike

SOON_S = 4
PROMISED_S = 8 + 2  # and what a busy machine takes
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
