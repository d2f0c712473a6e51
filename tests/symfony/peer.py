"""Symfony Messenger beside Skirnir: one database, one broker, both programs.

console.php is a shop as Symfony's guides describe it. Its tables are those
that Symfony makes; Skirnir finds them there.
"""
import json
import pathlib
import subprocess
import uuid

import shop as shops
import worlds

CONSOLE = pathlib.Path(__file__).with_name("console.php")
CLASS = r"App\Event\OrderPlaced"
NAME = "order.placed"
CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        serializer: messenger.transport.symfony_serializer
        relay_to: orders
        claim: {claim}
        stamp_namespace: {namespace}
        options: {{redeliver_timeout: {lease_s}}}
    orders:
        dsn: '{broker}?confirm_timeout=10'
        serializer: messenger.transport.symfony_serializer
        options:
            exchange: {{name: order.placed, type: topic}}
            queues: {{orders: {{binding_keys: ['#']}}}}
        retry_strategy: {{max_retries: 0}}
    failed:
        dsn: 'doctrine://default?queue_name=failed'
        serializer: messenger.transport.symfony_serializer
message_broker:
    inbox:
        message_types: {types}
handlers:
    order.placed:
        sql: >-
            INSERT INTO effects (order_id, handler)
            VALUES ({order_id}, 'skirnir')
"""
ORDER_ID = {
    "mysql": "JSON_UNQUOTE(JSON_EXTRACT(:body, '$.orderId'))",
    "postgresql": "CAST(:body AS json) ->> 'orderId'",
}
# The bundle has ordered outboxes since its stamps are in their own package.
INBOX, CONTRACTS = (r"Freyr\MessageBroker" + "\\" + last
                    for last in ("Inbox", "Contracts"))
ORDERED = ("ALTER TABLE messenger_outbox ADD partition_key VARCHAR(255) "
           "NOT NULL DEFAULT ''")


def lines(text):
    """The lines of JSON among what a console command has printed."""
    return [json.loads(line) for line in text.splitlines()
            if line.startswith("{")]


class Peer(worlds.World):
    ordered = False
    plain = False

    def set_config(self, claim="exclusive", lease_s=3600, replace=(), **_):
        self.lease_s = lease_s
        super().set_config(CONFIG, replace, claim=claim, lease_s=lease_s,
                           order_id=ORDER_ID[self.database.dialect],
                           scheme="ordered-doctrine" if self.ordered
                           else "doctrine",
                           types="{}" if self.plain else
                           f"{{order.placed: '{CLASS}'}}",
                           namespace=CONTRACTS if self.ordered else INBOX)

    def set_up(self):
        """By Symfony first, as where it has been at work for years."""
        self.exchanges.add("delays")
        self.php("messenger:setup-transports")
        if self.ordered:
            self.ask(ORDERED)
        self.check("setup")
        self.check("setup-deduplication", "--force")
        self.ask("CREATE TABLE orders (order_id VARCHAR(60) PRIMARY KEY)")
        self.ask("CREATE TABLE effects (order_id VARCHAR(60), "
                 "handler VARCHAR(20))")

    def php_environment(self, settings):
        return {**self.environment, "DATABASE_URL": self.database.url,
                "MESSENGER_AMQP_DSN": self.broker,
                "SHOP_OUTBOX": f"&redeliver_timeout={self.lease_s}",
                "SHOP_ORDERED": "1" if self.ordered else "0",
                "SHOP_PLAIN": "1" if self.plain else "0",
                **{f"SHOP_{name.upper()}": str(value)
                   for name, value in settings.items()}}

    def run_php(self, *arguments, text_input=None, **settings):
        return subprocess.run(
            ["php", str(CONSOLE), "--no-ansi", *map(str, arguments)],
            env=self.php_environment(settings), encoding="utf-8",
            input=text_input or "", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self.folder,
            timeout=shops.PATIENCE_S)

    def php(self, *arguments, **settings):
        """A command of Symfony's console that must succeed; its output."""
        result = self.run_php(*arguments, **settings)
        assert result.returncode == 0, \
            f"{arguments}: {result.stdout}"
        return result.stdout

    def start_php(self, *arguments, **settings):
        started = shops.Program(
            ["php", str(CONSOLE), "--no-ansi", *map(str, arguments)],
            self.folder / f"log-{len(self.started)}",
            self.php_environment(settings), cwd=self.folder)
        self.started.append(started)
        return started

    def send(self, count, *options):
        """Orders by Symfony's Doctrine sender; the id of each."""
        return {line["order"]: line["id"]
                for line in lines(self.php("shop:send", count, *options))}

    def publish(self, count, *options):
        """The same by Symfony's AMQP sender."""
        return {line["order"]: line["id"]
                for line in lines(self.php("shop:publish", count, *options))}

    def work(self, transport, count, **settings):
        """Symfony's worker takes so many; what its handler saw."""
        return lines(self.php("messenger:consume", transport,
                              f"--limit={count}", "--sleep=0.01", **settings))

    def consume(self):
        return self.check("consume", "orders", "--stop-when-empty")

    def effects(self):
        """Which program handled which order."""
        return [tuple(line.split("\t")) for line in self.ask(
            "SELECT order_id, handler FROM effects ORDER BY order_id"
        ).splitlines()]

    def deduplicated(self):
        """The ids that were handled."""
        hexadecimal = "ENCODE(message_id, 'hex')" \
            if self.database.dialect == "postgresql" else "HEX(message_id)"
        return {str(uuid.UUID(digits)) for digits in self.ask(
            f"SELECT {hexadecimal} FROM message_broker_deduplication").split()}
