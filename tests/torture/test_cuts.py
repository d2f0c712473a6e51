"""A network that fails at each step between reading, publishing, confirming and
settling, on the side of the database and of the broker: nothing is lost, and
duplicates are those that were in flight."""
import os
import pathlib
import sys

import pytest

import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

ROWS = 2000 if shops.LONG else 300


class Line:
    """The relay's way to both of its servers leads through proxies."""

    def __init__(self, world, parameters="", database_parameters=""):
        self.world = world
        kind = world.database.kind.upper()
        self.database = servers.Proxy(int(os.environ[f"SKR_{kind}_PORT"]))
        self.broker = servers.Proxy(int(os.environ["SKR_RABBITMQ_PORT"]))
        world.set_up()
        url = self.database.url(world.database.url) + database_parameters
        broker = self.broker.url(world.broker) + parameters
        world.set_config(replace=[(world.database.url, url),
                                  (f"{world.broker}'", f"{broker}'")])
        self.relay = world.start_relay()
        # From now on the relay knows the exchange and need not ask for it.
        world.insert(1)
        world.wait_until_empty(self.relay)
        assert world.take_numbers() == [0]

    def close(self):
        self.relay.kill()
        self.database.close()
        self.broker.close()

    def until(self, condition):
        shops.until(condition, lambda: self.relay.log()[-3000:])

    # Each ends with the network just before what its name says.

    def before_the_rows_are_read(self):
        """The server has read them; they are on their way."""
        self.database.hold(to_server=False)
        self.world.insert(ROWS)
        self.until(lambda: self.database.waiting(to_server=False) > 0)

    def before_they_are_published(self):
        self.broker.hold(to_client=False)
        self.world.insert(ROWS)
        self.until(lambda: self.broker.waiting(to_server=True) > 0)
        assert self.world.client.count("orders") == 0

    def before_they_are_confirmed(self):
        self.broker.hold(to_server=False)
        self.world.insert(ROWS)
        self.until(lambda: self.world.client.count("orders") > 0)
        self.until(lambda: self.broker.waiting(to_server=False) > 0)

    def before_they_are_settled(self):
        """They are confirmed; that they may go from the outbox is on its way.
        """
        self.before_they_are_confirmed()
        self.database.hold(to_client=False)
        self.broker.resume()
        self.until(lambda: self.database.waiting(to_server=True) > 0)

    def before_the_settling_is_heard_of(self):
        self.before_they_are_confirmed()
        self.database.hold(to_server=False)
        self.broker.resume()
        self.until(lambda: self.database.waiting(to_server=False) > 0)

    def expect_all(self, cuts=1):
        """Lost: 0. Duplicates: at most what was in flight."""
        world = self.world
        world.wait_until_empty(self.relay)
        assert self.relay.stop() == 0, self.relay.log()
        numbers = world.take_numbers()
        assert set(numbers) == set(range(ROWS)), "lost"
        duplicates = len(numbers) - ROWS
        print(f"rows {ROWS}, lost 0, duplicates {duplicates}")
        assert duplicates <= cuts * worlds.IN_FLIGHT
        assert world.failed() == []


STEPS = [name for name in vars(Line) if name.startswith("before_")]


@pytest.fixture
def line(request, world):
    opened = Line(world, getattr(request, "param", ""))
    yield opened
    opened.close()


@pytest.mark.parametrize("cut", [
    "database", "broker", *(["both"] if shops.LONG else [])])
@pytest.mark.parametrize("step", STEPS)
def test_a_cut_loses_nothing(line, step, cut):
    getattr(line, step)()
    for side in ("database", "broker"):
        if cut in (side, "both"):
            getattr(line, side).cut()
    line.database.resume()
    line.broker.resume()
    line.expect_all()


@pytest.mark.alike
@pytest.mark.parametrize("side", ["database", "broker"])
@pytest.mark.parametrize("step", [
    "before_they_are_published", "before_they_are_settled"])
def test_servers_that_refuse_for_a_while_are_waited_for(line, step, side):
    getattr(line, step)()
    proxy = getattr(line, side)
    proxy.refuse()
    line.database.resume()
    line.broker.resume()
    line.relay.wait_for(r"relay\.(trouble|route_closed)")
    proxy.accept()
    line.expect_all()


QUICK = "?confirm_timeout=2&heartbeat=2"
IMPATIENT = "?timeout=2&connect_timeout=2"


@pytest.fixture
def impatient_line(world):
    opened = Line(world, database_parameters=IMPATIENT)
    yield opened
    opened.close()


@pytest.mark.parametrize("line", [QUICK], indirect=True, ids=["quick"])
@pytest.mark.parametrize("step", [
    "before_they_are_published", "before_they_are_confirmed"])
def test_a_broker_that_falls_silent_is_left(line, step):
    """Half open: no end, no reset, only silence."""
    getattr(line, step)()
    line.broker.swallow()
    line.broker.resume()
    line.relay.wait_for(r"has not answered|heard nothing|heartbeat|silent")
    line.expect_all()


@pytest.mark.parametrize("step", [
    "before_the_rows_are_read", "before_they_are_settled"])
def test_a_database_that_falls_silent_is_left(line, step):
    """The server frees the lock of the lost session by itself, and the relay
    comes back with a new one."""
    getattr(line, step)()
    line.database.swallow()
    line.database.resume()
    line.relay.wait_for(r"relay\.trouble")
    line.expect_all()


@pytest.mark.alike
@pytest.mark.parametrize("step", [
    "before_the_rows_are_read", "before_they_are_settled",
    "before_the_settling_is_heard_of"])
def test_a_database_that_does_not_answer_is_left(impatient_line, step):
    """What is sent to it is taken, as by a server that is stopped."""
    line = impatient_line
    getattr(line, step)()
    line.database.hold()
    line.relay.wait_for(r"relay\.trouble")
    line.database.resume()
    line.expect_all()


HANDLER = """\
handlers:
    order.placed:
        sql: INSERT INTO effects (message_id) VALUES (:id_text)
"""


class Consumer:
    """A consumer whose way to its database leads through a proxy."""

    def __init__(self, world):
        self.world = world
        kind = world.database.kind.upper()
        self.database = servers.Proxy(int(os.environ[f"SKR_{kind}_PORT"]))
        world.set_up()
        world.check("setup-deduplication", "--force")
        world.ask("CREATE TABLE effects (message_id VARCHAR(40) NOT NULL)")
        url = self.database.url(world.database.url) + IMPATIENT
        world.set_config(worlds.CONFIG + HANDLER, replace=[
            (world.database.url, url),
            (f"{world.broker}'", f"{world.broker}?queues[orders]='")])
        self.process = world.start("consume", "amqp")
        self.process.wait_for(r"consumer\.ready")
        # What reads it from now on goes the direct way.
        world.set_config()

    def close(self):
        self.process.kill()
        self.database.close()

    def send(self, count, first=0):
        self.world.insert(count, first=first)
        self.world.relay_all()

    def effects(self):
        """All, and how many different ones."""
        numbers = self.world.ask(
            "SELECT COUNT(*), COUNT(DISTINCT message_id) FROM effects")
        return tuple(map(int, numbers.split()))

    def until(self, condition):
        shops.until(condition, lambda: self.process.log()[-3000:])


@pytest.fixture
def consumer(world):
    opened = Consumer(world)
    yield opened
    opened.close()


def fall_silent_in_its_transaction(consumer):
    """Or on its way into it: the server has heard, and is not heard."""
    consumer.send(1)
    consumer.until(lambda: consumer.effects() == (1, 1))
    consumer.database.hold(to_server=False)
    consumer.send(ROWS, first=1)
    consumer.until(lambda: consumer.database.waiting(to_server=False) > 0)


def expect_all_effects_once(consumer):
    consumer.until(lambda: consumer.effects() == (1 + ROWS, 1 + ROWS))
    assert consumer.process.stop() == 0, consumer.process.log()
    assert consumer.effects() == (1 + ROWS, 1 + ROWS)
    assert consumer.world.failed() == []


def test_a_consumer_leaves_a_database_that_does_not_answer(consumer):
    fall_silent_in_its_transaction(consumer)
    consumer.database.hold()
    consumer.process.wait_for(r"consumer\.trouble")
    consumer.database.resume()
    expect_all_effects_once(consumer)


def test_a_consumer_leaves_a_connection_that_is_forgotten(consumer):
    fall_silent_in_its_transaction(consumer)
    consumer.database.swallow()
    consumer.database.resume()
    expect_all_effects_once(consumer)


@pytest.mark.alike
def test_many_cuts_at_random_moments_lose_nothing(line):
    world = line.world
    world.insert(ROWS)
    cuts = 0
    while world.left() > 0 and cuts < 20:
        before = world.left()
        (line.broker if cuts % 2 else line.database).cut()
        cuts += 1
        line.until(lambda: world.left() < before or world.left() == 0)
    line.expect_all(cuts)
