"""RabbitMQ at the first try: an amqp:// DSN on a server where nothing is yet.
What it names, or Symfony's defaults name, is made by the first who needs it, and
made again when it is taken away; what cannot be made is named with its cure."""
import re
import uuid

import pytest

import amqp_client
import shop as shops
import test_guides
import worlds

NAMES = {"messages", "shop", "bills", "other", "order.placed"}
QUEUE = "'queue://queue?queue_name=orders&redeliver_timeout=3'"


class FirstShop(shops.Shop):
    """Its orders travel through a virtual host in which nothing is."""

    def __init__(self, folder, vhost):
        super().__init__(folder)
        self.vhost = vhost
        server = worlds.need("SKR_RABBITMQ_URL")
        self.broker = server.rsplit("/", 1)[0] + "/" + vhost
        self.address = server.rpartition("@")[2].partition("/")[0]
        self.set_up()
        self.use()

    def use(self, behind="", user="guest:guest", **settings):
        """behind: the end of the DSN."""
        dsn = self.broker.replace("guest:guest", user) + behind
        self.configure(replace=[(QUEUE, f"'{dsn}'")], **settings)

    def client(self):
        return amqp_client.Client(self.broker)

    def listed(self, what, *fields):
        said = worlds.control(f"list_{what}", "-q", "--no-table-headers",
                              "-p", self.vhost, *fields)
        return [tuple(line.split("\t")) for line in said.splitlines()]

    def exchanges(self):
        return {name for name, in self.listed("exchanges", "name")
                if name and not name.startswith("amq.")}

    def queues(self):
        return {name for name, in self.listed("queues", "name")}

    def bindings(self):
        """Exchange and queue of each, but for those of the default one."""
        return {(source, queue) for source, queue in self.listed(
            "bindings", "source_name", "destination_name") if source}

    def close(self):
        super().close()
        with self.client() as client:
            for name in NAMES:
                client.delete_queue(name)
                client.delete_exchange(name)


@pytest.fixture
def first(tmp_path, vhost):
    shop = FirstShop(tmp_path, vhost)
    yield shop
    shop.close()


@pytest.fixture
def writer(first):
    """A user who may read and write everything, and make nothing."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    worlds.control("add_user", name, "secret")
    worlds.control("set_permissions", "-p", first.vhost, name, "^$", ".*",
                   ".*")
    yield name
    worlds.control("delete_user", name)


def test_getting_started_gets_started_with_rabbitmq(first, tmp_path):
    said = test_guides.run_page(
        tmp_path, "getting-started.md",
        ("queue://billing?queue_name=orders", first.broker))
    assert "1|4200\n" in said
    assert "order.forgotten" in said.rpartition("1|4200")[2]


@pytest.mark.parametrize("behind, exchange, queue", [
    ("", "messages", "messages"),
    ("/shop", "shop", "shop"),
    ("/shop?queues[bills]=", "shop", "bills"),
    ("?queue[name]=bills", "messages", "bills"),
], ids=["nothing named", "an exchange", "both", "a queue"])
@pytest.mark.parametrize("comes", ["relay", "consumer", "setup-amqp"])
def test_whoever_comes_first_makes_it(first, behind, exchange, queue, comes):
    first.use(behind)
    first.place_orders(10)
    if comes == "consumer":
        assert first.consume_all().returncode == 0
    if comes == "setup-amqp":
        said = first.check("setup-amqp")
        assert f"[OK] binding {exchange} -> {queue}\n" in said
    result = first.relay_all()
    assert result.returncode == 0, result.stderr
    result = first.consume_all()
    assert result.returncode == 0, result.stderr
    first.expect_effects_once()
    assert len(first.effects()) == 10 and first.failed() == []
    assert first.bindings() == {(exchange, queue)}
    with first.client() as client:
        client.declare_exchange(exchange, "fanout")  # as which it was made


def test_both_may_come_at_once(first):
    relay, consumer = first.start_relay(), first.start_consumer()
    first.place_orders(100)
    shops.until(lambda: len(first.effects()) == 100, first.logs)
    assert relay.stop() == 0 and consumer.stop() == 0
    first.expect_effects_once()


def test_no_queue_is_added_to_an_exchange_that_is_there(first):
    """One without a consumer would grow for ever."""
    first.use("/shop")
    with first.client() as client:
        client.declare_exchange("shop", "topic")
        client.declare_queue("bills")
        client.bind("bills", "shop", "#")
        first.place_orders(3)
        assert first.relay_all().returncode == 0
        assert client.count("bills") == 3
    assert first.queues() == {"bills"}


def test_a_topology_of_the_files_own_is_waited_for(first):
    """A list of exchanges says where messages go by their names."""
    text = first.config_path.read_text() + """\
message_broker_amqp:
    topology:
        exchanges: {order.placed: {type: topic}}
        queues: {messages: ~}
        bindings: [{exchange: order.placed, queue: messages, binding_key: '#'}]
"""
    first.write_config(text)
    first.place_orders(3)
    relay = first.start_relay()
    said = relay.wait_for(r"relay\.route_closed.*").group()
    assert "no exchange 'order.placed'" in said and "setup-amqp" in said
    assert first.exchanges() == set()
    first.check("setup-amqp")
    first.wait_until_relayed()
    assert relay.stop() == 0
    assert first.consume_all().returncode == 0
    first.expect_effects_once()


@pytest.mark.parametrize("command, missing", [
    ("relay", "no exchange 'messages'"),
    ("consume", "queue messages is not in vhost")])
def test_without_auto_setup_what_is_missing_is_named(first, command, missing):
    first.use(auto_setup="false")
    first.place_orders(1)
    result = first.relay_all() if command == "relay" else first.consume_all()
    assert result.returncode != 0
    said = result.stderr
    for words in (f"RabbitMQ at {first.address}", missing, first.vhost,
                  "`skirnir setup-amqp`"):
        assert words in said, said
    assert first.bindings() == set() and first.failed() == []
    first.check("setup-amqp")  # the cure that it named
    assert first.relay_all().returncode == 0
    assert first.consume_all().returncode == 0
    first.expect_effects_once()


@pytest.mark.parametrize("command", ["relay", "consume"])
def test_a_right_that_is_missing_is_named(first, writer, command):
    first.use(user=f"{writer}:secret")
    first.place_orders(1)
    if command == "relay":
        result = first.relay_all()
        assert result.returncode != 0
        said = result.stderr
    else:
        consumer = first.start_consumer()
        assert consumer.end() == 1
        said = consumer.log()
    for words in (f"RabbitMQ at {first.address}", "messages", "configure",
                  writer):
        assert words in said, said
    assert first.failed() == []
    assert first.exchanges() == set() and first.queues() == set()


def test_an_exchange_that_nothing_may_be_bound_to_is_not_left(first, writer):
    """With it, messages that wait would be ones that no queue takes."""
    worlds.control("set_permissions", "-p", first.vhost, writer, ".*", ".*",
                   "^$")
    first.use(user=f"{writer}:secret")
    first.place_orders(1)
    result = first.relay_all()
    assert result.returncode != 0
    assert "permission to read the exchange" in result.stderr
    assert first.exchanges() == set() and first.failed() == []


def test_who_may_make_nothing_consumes_from_what_is_there(first, writer):
    first.place_orders(3)
    assert first.relay_all().returncode == 0
    with first.client() as client:
        client.delete_exchange("messages")
    first.use(user=f"{writer}:secret")
    result = first.consume_all()
    assert result.returncode == 0, result.stderr
    assert re.search(r"amqp\.not_declared.*configure", result.stderr)
    first.expect_effects_once()


@pytest.mark.parametrize("taken", ["binding", "queue", "exchange"])
def test_what_is_taken_away_comes_back_before_the_next_message(first, taken):
    """A relay that runs finds out by a message that no queue takes."""
    relay = first.start_relay()
    first.place_orders(1)
    first.wait_until_relayed()
    with first.client() as client:
        if taken == "binding":
            client.unbind("messages", "messages", "")
        if taken == "queue":
            assert len(client.take_all("messages")) == 1
            client.delete_queue("messages")
        if taken == "exchange":
            client.delete_exchange("messages")
        first.place_orders(200, first=2)
        first.wait_until_relayed()
        assert first.failed() == []
        assert client.count("messages") == (200 if taken == "queue" else 201)
    assert relay.stop() == 0


def test_a_binding_comes_back_with_the_next_connection(first):
    """Although another queue takes all messages meanwhile."""
    relay = first.start_relay()
    first.place_orders(1)
    first.wait_until_relayed()
    with first.client() as client:
        client.declare_queue("other")
        client.bind("other", "messages", "")
        client.unbind("messages", "messages", "")
        worlds.control("close_all_user_connections", "guest", "test")
    with first.client() as client:
        shops.until(lambda: ("messages", "messages") in first.bindings(),
                    relay.log)
        first.place_orders(1, first=2)
        first.wait_until_relayed()
        assert client.count("messages") == 2
    assert relay.stop() == 0


def test_what_no_binding_takes_is_told_all_the_same(first):
    """A key that no queue wants is not cured by making the queues again."""
    first.use("/shop?exchange[type]=direct&queues[bills][binding_keys][0]=b")
    first.place_orders(5)
    assert first.relay_all().returncode == 0
    assert len(first.failed()) == 5
    assert all("no queue takes it" in headers
               for _, headers, _ in first.failed())
