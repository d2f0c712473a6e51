"""An outbox on a real server, relayed to a queue in a file of its own: what the
relay asks of the server is then all that the server is asked."""
import pytest

import databases
import shop as shops

CONFIG = """\
databases:
    default: '{database}'
    queue: '{queue}'
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders{options}
    orders: 'queue://queue?queue_name=orders'
"""
COLUMNS = "(body, headers, queue_name, created_at, available_at)"
PLAIN_TYPE = '{"type":"order.placed"}'


class World(shops.Shop):
    def __init__(self, folder, server, options="", scheme="doctrine"):
        super().__init__(folder)
        self.server = server
        self.set_outbox(options, scheme)

    def set_outbox(self, options, scheme):
        self.write_config(CONFIG.format(
            database=self.server.url, queue=self.url("queue"),
            options=options, scheme=scheme))

    def set_up(self):
        self.check("setup")
        self.queue = self.open("queue")
        self.queue.execute("PRAGMA journal_mode = wal")

    def insert(self, body="{}", now=None):
        now = now or self.server.now
        self.server.send(f"INSERT INTO messenger_outbox {COLUMNS} VALUES "
                         f"('{body}', '{PLAIN_TYPE}', 'outbox', {now}, {now})")

    def arrived(self):
        return self.queue.execute(
            "SELECT COUNT(*) FROM messenger_messages").fetchone()[0]

    def leave(self):
        self.close()
        self.server.drop()


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path):
    made = World(tmp_path, request.param())
    yield made
    made.leave()


@pytest.fixture
def postgresql(tmp_path):
    made = World(tmp_path, databases.PostgreSQL())
    yield made
    made.leave()
