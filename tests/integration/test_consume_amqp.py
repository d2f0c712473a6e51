"""From RabbitMQ to handlers: the options of a Symfony transport, made and
consumed by the real program."""
import json
import os
import uuid

import pytest

import amqp_client
import shop as shops

CONFIG = """\
databases:
    default: '{shop}'
    billing: '{billing}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: amqp
    amqp:
        dsn: '{broker}'
        options:
            exchange: {{name: '{name}', type: topic}}
            {queues}
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
message_broker:
    inbox:
        database: billing
handlers:
    order.placed:
        sql: >
            INSERT INTO effects (order_id, message_id, name, body)
            VALUES (json_extract(:body, '$.orderId'), :id_text, :name, :body)
"""
QUEUES = {
    "queues": "queues: {{'{name}': {{binding_keys: ['order.#']}}}}",
    "quorum": "queues: {{'{name}': {{binding_keys: ['#'], "
              "arguments: {{x-queue-type: quorum}}}}}}",
    "list": "queues: ['{name}', '{name} & more']\n"
            "            prefetch_count: 10\n"
            "            prefetch_bytes: 1000",
    "queue": "queue: {{name: '{name}'}}",
    "default": "prefetch_count: 1000",
}


class World(shops.Shop):
    def __init__(self, folder, queues):
        super().__init__(folder)
        if "SKR_RABBITMQ_URL" not in os.environ:
            pytest.skip("SKR_RABBITMQ_URL is not set")
        self.name = name = f"skr-{uuid.uuid4().hex}"
        self.write_config(CONFIG.format(
            shop=self.url("shop"), billing=self.url("billing"), name=name,
            broker=os.environ["SKR_RABBITMQ_URL"],
            queues=queues.format(name=name)))
        self.check("setup")
        self.check("setup-deduplication", "--force")
        self.open("shop").execute(
            "CREATE TABLE orders (order_id TEXT PRIMARY KEY)")
        self.open("billing").execute(
            "CREATE TABLE effects (order_id, message_id, name, body)")


@pytest.fixture(params=QUEUES)
def world(tmp_path, request):
    made = World(tmp_path, QUEUES[request.param])
    yield made
    made.close()


def test_a_transport_of_symfonys_is_set_up_and_consumed(world):
    result = world.run("consume", "amqp", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    assert "unknown_option" not in result.stderr
    with amqp_client.Client(os.environ["SKR_RABBITMQ_URL"]) as client:
        assert client.count(world.name) == 0
        if "more" in world.config_path.read_text():
            assert client.count(world.name + " & more") == 0
    if "binding_keys" not in world.config_path.read_text():
        # Without keys a topic exchange takes the empty one alone.
        return
    world.place_orders(500)
    assert world.relay_all().returncode == 0
    result = world.run("consume", "amqp", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    world.expect_effects_once()
    assert world.failed() == []


def test_queues_chooses_among_those_of_the_transport(tmp_path):
    world = World(tmp_path, "queues: ['{name}-a', '{name}-b', '{name}-c']")
    queues = [f"{world.name}-{letter}" for letter in "abc"]
    world.check("consume", "amqp", "--stop-when-empty")
    with amqp_client.Client(os.environ["SKR_RABBITMQ_URL"]) as client:
        for queue in queues:
            client.publish("", queue, json.dumps({"orderId": queue}).encode(), {
                "type": ("S", "order.placed"),
                "X-Message-Id": ("S", str(uuid.uuid4()))})
        client.confirm()
        world.check("messenger:consume", "amqp", "--stop-when-empty",
                    f"--queues={queues[1]}", f"--queues={queues[2]}")
        assert sorted(world.effects()) == queues[1:]
        assert [client.count(queue) for queue in queues] == [1, 0, 0]
        result = world.run("consume", "amqp", "--queues=elsewhere")
        assert result.returncode == 1
        assert "the transport has no queue elsewhere; it has: " \
            + ", ".join(queues) in result.stderr
        for queue in queues:
            client.delete_queue(queue)
        client.delete_exchange(world.name)
    world.close()


@pytest.mark.parametrize("kind", ["queues", "quorum"])
def test_consumers_that_are_killed_leave_nothing_and_double_nothing(
        tmp_path, kind):
    world = World(tmp_path, QUEUES[kind])
    try:
        world.check("consume", "amqp", "--stop-when-empty")
        world.place_orders(300)
        assert world.relay_all().returncode == 0
        for failpoint in ("consumer.received", "consumer.acked"):
            world.hold_at(failpoint, "consume", "amqp").kill()
        consumer = world.start("consume", "amqp")
        shops.until(lambda: len(world.effects()) == 300,
                    lambda: "300 effects; logs:\n" + world.logs())
        consumer.stop()
        world.expect_effects_once()
        assert world.failed() == []
    finally:
        world.close()


def send_unknown(world, count):
    """Messages as another program sends them, with a type of its own."""
    with amqp_client.Client(os.environ["SKR_RABBITMQ_URL"]) as client:
        for number in range(count):
            client.publish("", world.name, b'{"orderId":"%d"}' % number, {
                "X-Message-Id": ("S", str(uuid.uuid4())),
                "type": ("S", "StockMoved")})
        client.confirm()


def set_unhandled(world, word, handler=None):
    text = world.config_path.read_text().replace(
        "            queues:", "            prefetch_count: 5\n"
        "            queues:").replace(
        "    failed: 'doctrine", f"        unhandled: {word}\n"
        "    failed: 'doctrine")
    if handler is not None:
        text += (f"    {handler}:\n        sql: INSERT INTO effects "
                 "(order_id, name) VALUES (:body, :name)\n")
    world.config_path.write_text(text)


@pytest.mark.parametrize("kind", ["queues", "quorum"])
@pytest.mark.parametrize("word", ["ignore", "wait"])
def test_what_nobody_handles_holds_up_nothing(tmp_path, kind, word):
    world = World(tmp_path, QUEUES[kind])
    plain = world.config_path.read_text()
    set_unhandled(world, word)
    try:
        world.check("consume", "amqp", "--stop-when-empty")
        send_unknown(world, 30)
        consumer = world.start("consume", "amqp", "-vv")
        world.place_orders(10)
        assert world.relay_all().returncode == 0
        shops.until(lambda: len(world.effects()) == 10,
                    lambda: "10 effects; logs:\n" + world.logs())
        shops.until(
            lambda: len(consumer.events("consumer.unhandled")) >= 30,
            lambda: "30 that nobody handles; logs:\n" + world.logs())
        assert consumer.stop() == 0
        assert world.failed() == []
        if word == "ignore":
            assert len(consumer.events("consumer.unhandled")) == 30
            assert "ignored=30" in consumer.events("consumer.stopped")[0]
        world.config_path.write_text(plain)
        set_unhandled(world, word, handler="StockMoved")
        world.open("shop").execute(
            "UPDATE messenger_messages SET available_at = datetime('now')")
        handled = world.start("consume", "amqp", "-vv")
        handled.wait_for("consumer.ready")
        expected = 10 if word == "ignore" else 40
        shops.until(lambda: len(world.effects()) == expected,
                    lambda: f"{expected} effects; logs:\n" + world.logs())
        assert handled.stop() == 0
        assert world.failed() == []
        assert not handled.events("consumer.retry")
        assert world.count("shop", "messenger_messages") == 0
    finally:
        world.close()
