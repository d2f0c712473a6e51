"""Messages that RabbitMQ cannot carry or has no place for: each is kept with
the reason, or waits where its route may be mended, and a thousand good ones
behind it arrive."""
import json

import pytest

import shop as shops
import symfony_rows as symfony
import worlds

pytestmark = pytest.mark.alike

GOOD = 1000
BODY = '{"n":-1}'


def headers(**more):
    return json.dumps({"type": "order.placed", **more})


# The row's headers, and what the reason says.
BAD = {
    "no queue is bound": (
        headers(**{"X-Skirnir-Routing-Key": "nobody.listens"}),
        ["no queue takes it", "exchange order.placed",
         "routing key nobody.listens"]),
    "headers are over a frame": (
        headers(**{"X-Large": "x" * 200000}),
        ["headers are too large", "131072"]),
    "a header's name is too long": (
        headers(**{"X-" + "n" * 300: "1"}), ["header name", "255"]),
    "a header holds a zero byte": (
        headers(**{"X-Zero": "a\0b"}), ["X-Zero", "zero byte"]),
    "a header's name holds a zero byte": (
        headers(**{"X-\0": "a"}), ["zero byte"]),
    "the routing key is too long": (
        headers(**{"X-Skirnir-Routing-Key": "k" * 256}),
        ["routing key", "255"]),
    "the name is too long": (
        json.dumps({"type": "order." + "x" * 300}), ["255"]),
    "the exchange's name is too long": (
        headers(**{"X-Skirnir-Exchange": "e" * 256}), ["exchange", "255"]),
    "the content type is too long": (
        headers(**{"Content-Type": "t" * 256}), ["content type", "255"]),
}


@pytest.fixture(autouse=True)
def ceiling(world):
    world.limit_memory()


def expect_good(world, numbers=None):
    numbers = world.take_numbers() if numbers is None else numbers
    assert numbers == list(range(GOOD))


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_carried_is_kept_with_the_reason(world, kind):
    bad, words = BAD[kind]
    world.set_up()
    world.write((BODY, bad))
    world.insert(GOOD)
    world.relay_all()
    expect_good(world)
    assert world.left() == 0
    (body, kept, _), = world.failed()
    assert body == BODY
    reason = json.loads(kept[symfony.ERROR_STAMP])[0]["exceptionMessage"]
    for word in words:
        assert word in reason, reason


@pytest.fixture
def small_messages():
    """The server takes 64 KiB on channels that are opened meanwhile."""
    worlds.need("SKR_RABBITMQ_URL")
    name = "application:{}_env(rabbit, max_message_size{})."
    before = worlds.control("eval", name.format("get", "")).strip()
    worlds.control("eval", name.format("set", ", 65536"))
    yield 65536
    value = before.removeprefix("{ok,").removesuffix("}")
    worlds.control("eval", name.format("set", f", {value}"))


def test_a_message_over_the_brokers_limit_is_kept(world, small_messages):
    """The server closes the channel in the middle of a window; the one that
    made it do so is found."""
    world.set_up()
    world.insert(GOOD // 2)
    large = json.dumps({"n": "x" * small_messages})
    world.write((large, headers()))
    world.insert(GOOD // 2, first=GOOD // 2)
    world.relay_all()
    numbers = world.take_numbers()
    assert set(numbers) == set(range(GOOD))
    assert len(numbers) <= GOOD + worlds.IN_FLIGHT
    (body, kept, _), = world.failed()
    assert body == large
    reason = json.loads(kept[symfony.ERROR_STAMP])[0]["exceptionMessage"]
    assert "size" in reason and "65536" in reason


def test_values_that_are_no_texts_travel_as_their_json(world):
    """Numbers, booleans, null, lists: headers are strings on the wire."""
    world.set_up()
    world.write((BODY, headers(**{
        "X-Number": 7, "X-Float": 1.5, "X-True": True, "X-Null": None,
        "X-List": [1, "a"], "X-Map": {"a": None}, "X-Empty": "",
        "X-\u00e9": "caf\u00e9 \U0001f600"})))
    world.insert(GOOD)
    world.relay_all()
    first, *rest = world.take_all()
    assert {name: value for name, value in first.headers.items()
            if name.startswith("X-") and not name.startswith("X-Message-")} \
        == {"X-Number": "7", "X-Float": "1.5", "X-True": "true",
            "X-Null": "null", "X-List": '[1,"a"]', "X-Map": '{"a":null}',
            "X-Empty": "", "X-\u00e9": "caf\u00e9 \U0001f600"}
    assert {letter for letter, _ in first.typed_headers.values()} == {"S"}
    expect_good(world, [json.loads(message.body)["n"] for message in rest])


def test_a_missing_exchange_holds_its_own_messages_only(world):
    """They wait for it, none fails, and once it is there they go."""
    world.set_up()
    world.insert(20, name="user.added.late")
    world.insert(GOOD)
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.route_closed.*").group()
    assert "no exchange 'user.added'" in said and world.vhost in said
    shops.until(lambda: world.left() == 20, relay.log)
    expect_good(world)
    assert world.failed() == []
    world.declare_queue("people", "user.added")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.take_numbers("people") == list(range(20))
    assert len(relay.events("relay.route_closed")) == 1


def test_a_name_with_two_dots_in_a_row_holds_nobody_up(world):
    """Publishing refuses it; what others wrote is sent where its name says,
    and there is no such exchange."""
    world.set_up()
    result = world.run("publish", "order..placed", "--body", "{}")
    assert result.returncode == 1
    assert "order..placed" in result.stderr
    assert "each of its words must begin" in result.stderr
    assert world.left() == 0
    world.write((BODY, json.dumps({"type": "order..placed"})))
    world.insert(GOOD)
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.route_closed.*").group()
    assert "'order.'" in said
    shops.until(lambda: world.left() == 1, relay.log)
    expect_good(world)
    assert relay.stop() == 0
    assert world.failed() == []


def test_a_wrong_route_does_not_empty_the_outbox_into_the_failed_table(world):
    """A hundred of one reason, then the route pauses and says so."""
    world.set_up()
    world.write(*[(BODY, headers(**{"X-Skirnir-Routing-Key":
                                    "nobody.listens"}))] * 300)
    world.insert(GOOD, name="order.other")
    world.declare_queue("others", "order.other")
    relay = world.start_relay()
    shops.until(lambda: world.client.count("others") == GOOD, relay.log)
    shops.until(lambda: world.left() + len(world.failed()) == 300, relay.log)
    assert relay.stop() == 0
    assert len(world.failed()) <= 100
    assert world.left() >= 200


def test_a_full_queue_pauses_its_route_and_costs_no_retry(world):
    world.set_up()
    world.client.delete_queue("orders")
    world.declare_queue("orders", "order.placed", arguments={
        "x-max-length": 10, "x-overflow": "reject-publish"})
    world.declare_queue("others", "order.other")
    world.insert(100)
    world.insert(GOOD, name="order.other")
    relay = world.start_relay()
    shops.until(lambda: world.client.count("others") == GOOD, relay.log)
    shops.until(lambda: world.left() == 90, relay.log)
    taken = []
    shops.until(lambda: taken.extend(world.take_numbers()) or
                world.left() == 0 and world.client.count("orders") == 0,
                lambda: f"{len(taken)} of 100\n{relay.log()}", 120)
    assert relay.stop() == 0
    assert set(taken) == set(range(100))
    assert world.failed() == []
