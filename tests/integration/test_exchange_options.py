"""A transport's own exchange, as Symfony's configuration has it: made on first
use where that is allowed, and the place of all that no route sends elsewhere.
"""
import pytest

import amqp_client
import databases
import worlds

PLAIN = "    amqp: '"
WITH = "    amqp:\n        options: {options}\n        dsn: '"


@pytest.fixture
def world(tmp_path, vhost):
    opened = worlds.World(tmp_path, databases.PostgreSQL(),
                          vhost)
    opened.exchanges |= {"shop", "other"}
    yield opened
    opened.leave()


def set_options(world, options, parameters="", path=""):
    """parameters: of the DSN."""
    world.set_config(replace=[
        (PLAIN, WITH.replace("{options}", options)),
        (f"/{world.vhost}'", f"/{world.vhost}{path}{parameters}'")])
    world.check("setup")


def relay_one(world, queue="all", name="order.placed"):
    world.insert(1, name=name)
    relay = world.start_relay()
    world.wait_until_empty(relay)
    assert relay.stop() == 0, relay.log()
    assert world.failed() == []
    message, = world.take_all(queue)
    return message


def exchange_type(world, name):
    """Declaring it again with another type tells; None: it is not there."""
    for kind in ("topic", "fanout", "direct", "headers"):
        try:
            world.client.declare_exchange(name, kind)
        except amqp_client.Refused:
            continue
        return kind


def test_an_exchange_with_a_type_is_made_on_first_use(world):
    set_options(world, "{exchange: {name: shop, type: fanout}}")
    relay = world.start_relay()
    relay.wait_for(r"relay\.active")
    world.declare_queue("all")
    world.client.bind("all", "shop", "")
    world.insert(1)
    world.wait_until_empty(relay)
    assert exchange_type(world, "shop") == "fanout"
    message, = world.take_all("all")
    assert message.exchange == "shop"
    assert message.routing_key == "order.placed"
    assert relay.stop() == 0


def test_nothing_is_made_where_that_is_switched_off(world):
    set_options(world, "{auto_setup: false, exchange: {name: shop, "
                "type: fanout}}")
    world.insert(1)
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.route_closed.*").group()
    assert "shop" in said
    assert world.left() == 1 and world.failed() == []
    # The relay needs no restart once it is made.
    world.declare_queue("all", "shop", kind="direct", key="order.placed")
    world.wait_until_empty(relay)
    assert len(world.take_all("all")) == 1
    assert relay.stop() == 0


@pytest.mark.parametrize("kind, queues", [
    ("type: topic", "{all: {binding_keys: ['order.#', 'user.#']}}"),
    ("type: fanout", "[all, more]"), ("flags: 2", "{all: ~}")])
def test_a_message_that_comes_before_its_consumer_waits_in_its_queue(
        world, kind, queues):
    """The queues of the transport are made by the first who needs them."""
    world.queues |= {"all", "more"}
    set_options(world, f"{{exchange: {{name: shop, {kind}}}, "
                f"queues: {queues}}}")
    assert relay_one(world).exchange == "shop"


def test_a_relay_without_the_right_to_make_queues_goes_on(world):
    world.declare_queue("all", "shop", kind="topic")
    set_options(world, "{exchange: {name: shop}, queues: {all: ~, more: ~}}")
    worlds.control("add_user", "writer", "secret")
    try:
        worlds.control("set_permissions", "-p", world.vhost, "writer", "^$",
                       ".*", ".*")
        world.write_config(world.config_path.read_text().replace(
            "guest:guest", "writer:secret"))
        world.insert(1)
        relay = world.start_relay()
        world.wait_until_empty(relay)
        assert relay.stop() == 0
        assert "more" in relay.wait_for(r"amqp\.not_declared.*").group()
        assert world.failed() == [] and len(world.take_all("all")) == 1
    finally:
        worlds.control("delete_user", "writer")


def test_an_exchange_of_another_type_is_named_and_left_alone(world):
    world.declare_queue("all", "shop", kind="topic")
    set_options(world, "{exchange: {name: shop, type: direct}}")
    world.insert(1000)
    relay = world.start_relay("--wait")
    said = relay.wait_for(r"relay\.trouble.*").group()
    assert "shop" in said and "type" in said and "direct" in said
    assert "correct the configuration, or delete it" in said
    assert world.left() == 1000
    set_options(world, "{exchange: {name: shop, type: topic}}")
    assert relay.stop() == 0
    world.relay_all()
    assert world.take_numbers("all") == list(range(1000))


def test_the_default_routing_key_is_that_of_the_transport(world):
    set_options(world, "{exchange: {name: shop, type: direct, "
                "default_publish_routing_key: everything}}")
    world.declare_queue("all", "shop", kind="direct", key="everything")
    assert relay_one(world).routing_key == "everything"


def test_a_route_beats_the_transports_exchange_and_key(world):
    set_options(world, "{exchange: {name: shop, "
                "default_publish_routing_key: everything}}")
    world.write_config(
        world.config_path.read_text() + "    routing: {user.added: "
        "{exchange: other, routing_key: people}}\n")
    world.declare_queue("all", "shop")
    world.declare_queue("people", "other")
    message = relay_one(world, queue="people", name="user.added")
    assert (message.exchange, message.routing_key) == ("other", "people")
    assert relay_one(world).routing_key == "everything"


@pytest.mark.parametrize("options, parameters, path", [
    ("{exchange: {name: other}}", "?exchange[name]=shop", ""),
    ("{exchange: {name: shop}}", "", "/other"),
    ("{}", "", "/shop"),
    ("{}", "?exchange%5Bname%5D=shop", "/other"),
], ids=["parameter before option", "option before path", "path alone",
        "parameter before path"])
def test_what_names_the_exchange_first(world, options, parameters, path):
    world.declare_queue("all", "shop")
    set_options(world, options, parameters, path)
    assert relay_one(world).exchange == "shop"


def test_other_options_reach_the_driver(world):
    with pytest.raises(AssertionError, match="connect_timeout=0.01"):
        set_options(world, "{connect_timeout: 0.01}")
    with pytest.raises(AssertionError, match="heartbeat: a number is needed"):
        set_options(world, "{heartbeat: soon}")
