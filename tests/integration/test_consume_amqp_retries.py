"""From RabbitMQ to handlers in each server: retries as rows, killed
consumers, messages that cannot be handled."""
import json
import uuid

import pytest

import amqp_client
import databases
import shop as shops
from worlds import need, new_vhost

MESSAGES = 200
CONFIG = """\
databases:
    default: '{database}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders:
        dsn: '{broker}?queues[orders]='
        retry_strategy: {{max_retries: {max_retries}, delay: 1}}
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
message_broker_amqp:
    topology:
        exchanges:
            order.placed: {{type: topic}}
        queues: {{orders: ~}}
        bindings:
            - {{exchange: order.placed, queue: orders, binding_key: '#'}}
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
"""


class World(shops.Shop):
    """Messages in a queue, handlers in a real database."""

    def __init__(self, folder, database, broker):
        super().__init__(folder)
        self.database = database
        self.broker = broker
        self.set_retries(3)
        self.check("setup")
        self.check("setup-amqp")
        # A body of another shape than this the handler cannot take.
        database.ask("CREATE TABLE effects (body VARCHAR(30) NOT NULL)")

    def set_retries(self, max_retries):
        self.write_config(CONFIG.format(
            database=self.database.url, broker=self.broker,
            max_retries=max_retries))

    def leave(self):
        self.close()
        with amqp_client.Client(self.broker) as client:
            client.delete_queue("orders")
        self.database.drop()

    def send(self, bodies):
        headers = json.dumps({"type": "order.placed"})
        rows = ",".join(
            f"('{body}', '{headers}', 'outbox', CURRENT_TIMESTAMP, "
            "CURRENT_TIMESTAMP)" for body in bodies)
        self.database.ask("INSERT INTO messenger_outbox (body, headers, "
                          "queue_name, created_at, available_at) VALUES "
                          + rows)
        assert self.run("relay", "outbox", "--stop-when-empty") \
            .returncode == 0

    def ask_number(self, sql):
        return int(self.database.ask(sql))

    def effects(self):
        return self.database.ask("SELECT body FROM effects").split()

    def rows(self, queue):
        return self.ask_number("SELECT COUNT(*) FROM messenger_messages WHERE "
                               f"queue_name = '{queue}'")

    def attempts(self):
        return self.ask_number("SELECT COUNT(*) FROM skirnir_attempt")

    def queued(self):
        """Those that no consumer has."""
        with amqp_client.Client(self.broker) as client:
            return client.count("orders")


@pytest.fixture(scope="module")
def broker():
    """A virtual host of our own."""
    url = need("SKR_RABBITMQ_URL").rsplit("/", 1)[0]
    with new_vhost() as vhost:
        yield f"{url}/{vhost}"


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path, broker):
    opened = World(tmp_path, request.param(), broker)
    yield opened
    opened.leave()


def numbers(count):
    return [json.dumps({"n": number}).replace(" ", "")
            for number in range(count)]


def test_messages_are_handled_once_by_several_consumers(world):
    world.send(numbers(MESSAGES))
    consumer = world.start_consumer("--consumers=3", "-v")
    shops.until(lambda: len(world.effects()) == MESSAGES,
                lambda: consumer.log())
    assert consumer.stop() == 0
    assert sorted(world.effects()) == sorted(numbers(MESSAGES))
    assert world.queued() == 0


def test_a_message_that_fails_waits_in_a_row_and_is_kept_in_the_end(world):
    world.set_retries(1)
    too_long = json.dumps({"n": "x" * 40})
    world.send([too_long] + numbers(20))
    consumer = world.start_consumer("-v")
    consumer.wait_for("consumer.retry ")
    shops.until(lambda: len(world.effects()) == 20, lambda: consumer.log())
    # Gone from the broker before it comes again.
    shops.until(lambda: world.queued() == 0, lambda: consumer.log())
    shops.until(lambda: world.rows("failed.skirnir") == 1,
                lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.rows("orders.retry") == 0
    assert len(consumer.events("consumer.retry")) == 1


# What this program writes into rows of its own, and a stranger into messages.
STRANGE = {"X-Skirnir-Body-Encoding": ("S", "base64"),
           "X-Skirnir-Raw-Headers": ("S", '{"type":"order.strange"}'),
           "X-Skirnir-Message-Name": ("S", "order.strange")}


def put_strange(world, body):
    with amqp_client.Client(world.broker) as client:
        client.publish("", "orders", body.encode(), {
            "type": ("S", "order.placed"),
            "X-Message-Id": ("S", str(uuid.uuid4())), **STRANGE})
        client.confirm()


def widen(world):
    """The handler can take longer bodies from now on."""
    world.database.ask("ALTER TABLE effects " + (
        "MODIFY body" if world.database.dialect == "mysql"
        else "ALTER body TYPE") + " VARCHAR(90)")


def test_headers_of_a_stranger_do_not_change_how_a_retry_is_read(world):
    """This body is base64 of zero bytes, too."""
    body = "A" * 40
    put_strange(world, body)
    consumer = world.start_consumer("-v")
    consumer.wait_for("consumer.retry ")
    widen(world)
    shops.until(lambda: world.effects() == [body], lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.rows("failed.skirnir") == 0


def test_headers_of_a_stranger_do_not_change_what_is_retried_by_hand(world):
    world.set_retries(0)
    body = "A" * 40
    put_strange(world, body)
    consumer = world.start_consumer("-v")
    shops.until(lambda: world.rows("failed.skirnir") == 1,
                lambda: consumer.log())
    widen(world)
    world.check("failed", "retry", "--all")
    shops.until(lambda: world.effects() == [body], lambda: consumer.log())
    assert consumer.stop() == 0


def test_a_retry_is_due_by_the_clock_of_the_failed_table(world):
    """Taken for UTC it would wait for hours."""
    world.write_config(world.config_path.read_text().replace(
        "    orders:\n", "    failed: {dsn: 'doctrine://default?queue_name="
        "failed', time_zone: '+05:00'}\n    orders:\n", 1).replace(
        "transports:", "failure_transport: failed\ntransports:", 1))
    world.send([json.dumps({"n": "x" * 40})])
    consumer = world.start_consumer("-v")
    shops.until(lambda: world.rows("failed.skirnir") == 1,
                lambda: consumer.log())
    assert consumer.stop() == 0
    assert len(consumer.events("consumer.retry")) == 3


@pytest.mark.parametrize("failpoint", ["consumer.received", "consumer.handled",
                                       "consumer.committed", "consumer.acked"])
def test_a_killed_consumer_handles_each_message_once(world, failpoint):
    world.send(numbers(MESSAGES))
    world.hold_at(failpoint, "consume", "orders").kill()
    consumer = world.start_consumer()
    shops.until(lambda: len(world.effects()) >= MESSAGES,
                lambda: consumer.log())
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.queued() == 0
    assert sorted(world.effects()) == sorted(numbers(MESSAGES))
    assert world.rows("orders.retry") == 0
    assert world.rows("failed.skirnir") == 0


def test_a_message_that_kills_its_consumers_is_kept_unrun(world):
    world.set_retries(1)
    world.send(numbers(1))
    for _ in range(2):
        world.hold_at("consumer.handled", "consume", "orders").kill()
    world.send(['{"n":7}'])
    consumer = world.start_consumer("-v")
    shops.until(lambda: world.rows("failed.skirnir") == 1,
                lambda: consumer.log())
    shops.until(lambda: world.effects() == ['{"n":7}'], lambda: consumer.log())
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.queued() == 0


@pytest.mark.parametrize("failpoint", ["consumer.failed_stored",
                                       "consumer.retry_stored"])
def test_what_was_stored_before_a_kill_is_stored_once(world, failpoint):
    fails = failpoint == "consumer.failed_stored"
    world.set_retries(0 if fails else 5)
    world.send([json.dumps({"n": "x" * 40})])
    world.hold_at(failpoint, "consume", "orders").kill()
    queue = "failed.skirnir" if fails else "orders.retry"
    assert world.rows(queue) == 1
    # It is not due while this runs.
    world.database.ask("UPDATE messenger_messages SET available_at = "
                       "'2099-01-01 00:00:00'")
    consumer = world.start_consumer("-v")
    # What is known of it is forgotten once the broker has heard of it.
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.queued() == 0
    assert world.rows(queue) == 1


def test_what_has_no_id_is_stored_once_as_well(world):
    """Two say the same, and one of them was stored before the kill."""
    with amqp_client.Client(world.broker) as client:
        for _ in range(2):
            client.publish("", "orders", b'{"n":1}',
                           {"type": ("S", "order.placed")})
        client.confirm()
    world.hold_at("consumer.failed_stored", "consume", "orders").kill()
    assert world.rows("failed.skirnir") == 1
    assert world.attempts() == 1
    consumer = world.start_consumer("-v")
    shops.until(lambda: world.rows("failed.skirnir") >= 2,
                lambda: consumer.log())
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.queued() == 0
    assert world.rows("failed.skirnir") == 2


def test_what_is_handled_after_a_kill_leaves_no_trace(world):
    """It was stored for its retry, and the broker had not heard of it: both
    come, one is handled, and nothing tells of it any more."""
    world.set_retries(5)
    body = json.dumps({"n": "x" * 40})
    world.send([body])
    world.hold_at("consumer.retry_stored", "consume", "orders").kill()
    assert world.attempts() == 1
    world.database.ask("DROP TABLE effects")
    world.database.ask("CREATE TABLE effects (body VARCHAR(90) NOT NULL)")
    consumer = world.start_consumer("-vv")
    consumer.wait_for("consumer.handled ")
    consumer.wait_for("consumer.duplicate ")
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    shops.until(lambda: world.rows("orders.retry") == 0,
                lambda: consumer.log())
    assert consumer.stop() == 0
    assert world.queued() == 0
    assert world.ask_number("SELECT COUNT(*) FROM effects") == 1


SLOW = {"mysql": "FROM (SELECT SLEEP(0.3)) AS pause",
        "postgresql": "FROM pg_sleep(0.3)"}


@pytest.mark.alike
def test_a_slow_handler_keeps_no_message_for_too_long(world):
    """Six seconds of work came at once, and each message may be here for one:
    some are settled and the rest given back, again and again."""
    text = world.config_path.read_text()
    world.write_config(
        text.replace("?queues", "?hold_timeout=1&queues")
        .replace("(body) VALUES (:body)",
                 "(body) SELECT :body " + SLOW[world.database.dialect]))
    world.send(numbers(20))
    consumer = world.start_consumer("--consumers=1")
    shops.until(lambda: 0 < len(world.effects()) < 20, lambda: consumer.log())
    shops.until(lambda: world.queued() > 0, lambda: consumer.log())
    shops.until(lambda: len(world.effects()) == 20, lambda: consumer.log())
    shops.until(lambda: world.attempts() == 0, lambda: consumer.log())
    assert consumer.stop() == 0
    assert sorted(world.effects()) == sorted(numbers(20))
    assert world.queued() == 0
    assert world.rows("failed.skirnir") == 0
