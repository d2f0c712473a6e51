"""An outbox, a queue and failed messages in one database of any kind.

SQLite is always there; servers are those of tests/servers/with-server, and
what needs one that is not there is skipped.
"""
import json

import shop as shops
import worlds
from symfony_rows import ERROR_STAMP, FAILURE_STAMP, REDELIVERY_STAMP

CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        serializer: messenger.transport.symfony_serializer
        relay_to: orders
    orders:
        dsn: 'queue://default?queue_name=orders'
        retry_strategy: {{max_retries: 0}}
    billing: 'amqp://127.0.0.1:1/%2f'
    failed:
        dsn: 'doctrine://default?queue_name=failed'
        serializer: messenger.transport.symfony_serializer
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
message_broker:
    inbox:
        message_types:
            order.placed: 'App\\Event\\OrderPlaced'
"""


class Place(shops.Shop):
    def __init__(self, folder, database):
        super().__init__(folder)
        self.database = database
        self.set_config()

    def set_config(self, config=CONFIG, replace=(), **settings):
        text = config.format(database=self.database.url, **settings)
        for old, new in replace:
            assert old in text, old
            text = text.replace(old, new)
        self.write_config(text)

    def set_up(self):
        self.check("setup")
        self.check("setup-deduplication", "--force")
        self.ask("CREATE TABLE effects (body VARCHAR(1000))")

    def leave(self):
        self.close()
        self.database.drop()

    def ask(self, sql):
        return self.database.ask(sql)

    def number(self, sql):
        return int(self.ask(sql))

    def write(self, body, headers, queue, table="messenger_messages",
              times="CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, NULL"):
        """times: when it was created, is available, was delivered."""
        headers = headers if isinstance(headers, str) else json.dumps(headers)
        self.ask(f"INSERT INTO {table} (body, headers, queue_name, "
                 "created_at, available_at, delivered_at) VALUES "
                 f"({worlds.quote(body)}, {worlds.quote(headers)}, "
                 f"{worlds.quote(queue)}, {times})")

    def write_many(self, rows, queue="outbox", table="messenger_outbox"):
        """Body and headers of each, in one statement."""
        values = ", ".join(
            f"({worlds.quote(body)}, {worlds.quote(headers)}, "
            f"{worlds.quote(queue)}, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"
            for body, headers in rows)
        self.ask(f"INSERT INTO {table} (body, headers, queue_name, "
                 f"created_at, available_at) VALUES {values}")

    def wait_until_relayed(self, relay):
        shops.until(lambda: self.number("SELECT COUNT(*) FROM "
                                        "messenger_outbox") == 0,
                    lambda: relay.log(), pause_s=0.05)

    def rows(self, queue, table="messenger_messages"):
        """Body and headers."""
        text = self.ask(f"SELECT body, headers FROM {table} WHERE "
                        f"queue_name = {worlds.quote(queue)} ORDER BY id")
        return [(body, json.loads(headers)) for body, headers in
                (line.split("\t") for line in text.splitlines())]

    def newest(self, table="messenger_messages"):
        return self.number(f"SELECT MAX(id) FROM {table}")

    def fail(self, transport="outbox", name="order.placed", error="no route",
             queue="failed.skirnir", body='{"orderId": "order-1"}', **headers):
        """A row as a relay or a consumer leaves it; its number."""
        self.write(body, failed_headers(transport, name, error, **headers),
                   queue)
        return self.newest()


def failed_headers(transport, name, error, **more):
    return {
        "type": name,
        "X-Message-Id": "01932b6e-7c00-7000-8000-000000000001",
        REDELIVERY_STAMP: json.dumps([{
            "retryCount": 3, "exceptionMessage": None,
            "flattenException": None,
            "redeliveredAt": "2026-11-15T02:45:00+00:00"}]),
        ERROR_STAMP: json.dumps([{
            "exceptionClass": "Skirnir\\refused", "exceptionCode": "312",
            "exceptionMessage": error, "flattenException": None}]),
        FAILURE_STAMP: json.dumps([{"originalReceiverName": transport}]),
        **more}
