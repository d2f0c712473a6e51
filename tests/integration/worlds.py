"""An outbox in a real database and a place of its own on a real broker.

The servers are those of tests/servers/with-server; a test that needs one that
is not there is skipped.
"""
import contextlib
import json
import pathlib
import subprocess
import uuid

import amqp_client
import shop as shops
from databases import need

CONTROL = pathlib.Path(__file__).parents[1] / "servers" / "rabbitmq-control"
IN_FLIGHT = 50
CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        serializer: messenger.transport.symfony_serializer
        relay_to: amqp
        in_flight: {in_flight}
    failed:
        dsn: 'doctrine://default?queue_name=failed'
        serializer: messenger.transport.symfony_serializer
    amqp: '{broker}'
message_broker_amqp:
    topology:
        exchanges:
            order.placed: {{type: topic}}
        queues: {{orders: ~}}
        bindings:
            - {{exchange: order.placed, queue: orders, binding_key: 'order.#'}}
"""
# An inbox on a queue that a test declares; its handlers are added.
INBOX_CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    orders:
        dsn: '{broker}?queues[{queue}]='
        options: {{auto_setup: false}}
        retry_strategy: {{max_retries: 0}}
    failed: 'doctrine://default?queue_name=failed'
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
handlers:
"""


def run(*command, text=""):
    return subprocess.run([str(part) for part in command], check=True,
                          input=text, capture_output=True, text=True).stdout


def control(*arguments):
    return run(CONTROL, *arguments)


def quote(text):
    return "'" + text.replace("'", "''") + "'"


class World(shops.Shop):
    """A folder with a configuration, a database, a virtual host."""

    def __init__(self, folder, database, vhost, broker_url=None):
        super().__init__(folder)
        self.database = database
        self.vhost = vhost
        server = broker_url or need("SKR_RABBITMQ_URL")
        self.broker = server.rsplit("/", 1)[0] + "/" + vhost
        self.client = amqp_client.Client(self.broker)
        self.exchanges, self.queues = {"order.placed"}, {"orders"}
        self.set_config()

    def set_config(self, config=CONFIG, replace=(), **settings):
        """replace: pairs of texts."""
        text = config.format(**{"database": self.database.url,
                                "broker": self.broker,
                                "in_flight": IN_FLIGHT, **settings})
        for old, new in replace:
            assert old in text, old
            text = text.replace(old, new)
        self.write_config(text)

    def declare(self):
        self.check("setup-amqp")

    def set_up(self):
        self.check("setup")
        self.declare()

    def declare_queue(self, name, exchange=None, key="#", kind="topic",
                      arguments=()):
        """A queue, and an exchange that fills it; both go with the world."""
        self.client.declare_queue(name, arguments=arguments)
        self.queues.add(name)
        if exchange:
            self.client.declare_exchange(exchange, kind)
            self.exchanges.add(exchange)
            self.client.bind(name, exchange, key)

    def leave(self):
        self.close()
        self.client.close()
        with amqp_client.Client(self.broker) as client:
            for name in self.queues:
                client.delete_queue(name)
            for name in self.exchanges:
                client.delete_exchange(name)
        self.database.drop()

    def ask(self, sql):
        return self.database.ask(sql)

    def write(self, *rows, queue="outbox", table="messenger_outbox"):
        """Rows as another language would write them: body and headers."""
        values = ",\n".join(
            f"({quote(body)}, {quote(headers)}, {quote(queue)}, "
            "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)" for body, headers in rows)
        self.ask(f"INSERT INTO {table} (body, headers, queue_name, "
                 f"created_at, available_at) VALUES {values}")

    def insert(self, count, name="order.placed", first=0):
        """Numbered messages."""
        self.write(*((json.dumps({"n": number}), json.dumps({"type": name}))
                     for number in range(first, first + count)))

    def left(self):
        return int(self.ask("SELECT COUNT(*) FROM messenger_outbox"))

    def failed(self):
        """Body, headers, queue of each failed row."""
        return [(body, json.loads(headers), queue)
                for body, headers, queue in (
                    line.split("\t") for line in self.ask(
                        "SELECT body, headers, queue_name "
                        "FROM messenger_messages ORDER BY id").splitlines())]

    def take_all(self, queue="orders"):
        return self.client.take_all(queue)

    def take_numbers(self, queue="orders"):
        return [json.loads(message.body)["n"]
                for message in self.take_all(queue)]

    def relay_all(self):
        return self.check("relay", "outbox", "--stop-when-empty")

    def wait_until_empty(self, relay, patience_s=shops.PATIENCE_S):
        shops.until(lambda: self.left() == 0,
                    lambda: f"an empty outbox: {self.left()}\n{relay.log()}",
                    patience_s)


# As add_vhost and set_permissions do it, each of which takes a second to start.
MAKE_VHOST = """\
rabbit_vhost:add(<<"{name}">>, <<"tests">>),
rabbit_auth_backend_internal:set_permissions(
    <<"guest">>, <<"{name}">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>).
"""


@contextlib.contextmanager
def new_vhost():
    """A virtual host takes seconds to make: one serves many tests."""
    need("SKR_RABBITMQ_URL")
    name = f"skr-{uuid.uuid4().hex}"
    control("eval", MAKE_VHOST.format(name=name))
    yield name
    control("delete_vhost", name)
