"""One relay process for several outboxes, and several destinations of one."""
import json
import sqlite3

import shop as shops

CONFIG = """\
databases:
    default: 'sqlite:///{folder}/shop.db'
    queue: 'sqlite:///{folder}/queue.db'
    broken: 'sqlite:///{folder}/missing/queue.db'
transports:
    orders_outbox:
        dsn: 'doctrine://default?table_name=orders_outbox&queue_name=orders'
        relay_to: orders
    bills_outbox:
        dsn: 'doctrine://default?table_name=bills_outbox&queue_name=bills'
        relay_to: {bills_to}
    orders: 'queue://queue?queue_name=orders'
    bills: 'queue://queue?queue_name=bills'
    audit: 'queue://queue?queue_name=audit'
    lost: 'queue://broken?queue_name=lost'
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
message_broker_amqp:
    routing:
        'order.seen': {{sender: {audit_to}}}
"""


def configure(shop, bills_to="bills", audit_to="audit"):
    shop.config_path.write_text(CONFIG.format(
        folder=shop.folder, bills_to=bills_to, audit_to=audit_to))
    for name in ("orders", "bills"):
        result = shop.run("publish", "order.first", "--transport",
                          f"{name}_outbox", "--body", "{}")
        assert result.returncode == 0, result.stderr


def publish(shop, outbox, name, count):
    connection = sqlite3.connect(shop.folder / "shop.db", timeout=30)
    with connection:
        connection.executemany(
            f"INSERT INTO {outbox}_outbox (body, headers, queue_name, "
            "created_at, available_at) VALUES (?, ?, ?, datetime('now'), "
            "datetime('now'))",
            [("{}", f'{{"type":"{name}"}}', outbox)] * count)
    connection.close()


def queued(shop, queue):
    try:
        connection = sqlite3.connect(f"file:{shop.folder}/queue.db?mode=ro",
                                     uri=True, timeout=30)
        try:
            return connection.execute(
                "SELECT COUNT(*) FROM messenger_messages WHERE queue_name = ?",
                [queue]).fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


def waiting(shop, outbox):
    connection = sqlite3.connect(shop.folder / "shop.db", timeout=30)
    count = connection.execute(
        f"SELECT COUNT(*) FROM {outbox}_outbox").fetchone()[0]
    connection.close()
    return count


def test_one_process_works_several_outboxes(shop):
    configure(shop)
    publish(shop, "orders", "order.placed", 500)
    publish(shop, "bills", "bill.sent", 500)
    relay = shop.start("relay", "orders_outbox", "bills_outbox")
    shops.until(lambda: queued(shop, "orders") == 501, "all orders")
    shops.until(lambda: queued(shop, "bills") == 501, "all bills")
    assert relay.stop() == 0
    assert len(relay.events("relay.stopped")) == 2


def test_trouble_of_one_does_not_stop_another(shop):
    configure(shop, bills_to="lost")
    relay = shop.start("relay", "bills_outbox", "orders_outbox")
    relay.wait_for(r"relay\.trouble name=bills_outbox")
    publish(shop, "orders", "order.placed", 500)
    shops.until(lambda: queued(shop, "orders") == 501, "all orders")
    assert waiting(shop, "bills") == 1
    (shop.folder / "missing").mkdir()
    shops.until(lambda: waiting(shop, "bills") == 0, "the bill")
    assert relay.stop() == 0


def test_publishing_into_one_of_several_needs_its_name(shop):
    configure(shop)
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "--transport: orders_outbox, bills_outbox\n" in result.stderr


def test_an_outbox_named_twice_is_refused(shop):
    configure(shop)
    result = shop.run("relay", "orders_outbox", "orders_outbox")
    assert result.returncode == 2
    assert "orders_outbox is named twice" in result.stderr


def test_a_rule_sends_some_messages_elsewhere(shop):
    configure(shop)
    publish(shop, "orders", "order.seen", 300)
    publish(shop, "orders", "order.placed", 300)
    result = shop.run("relay", "orders_outbox", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    assert queued(shop, "audit") == 300
    assert queued(shop, "orders") == 301


def test_a_destination_that_is_away_holds_up_its_own_messages_only(shop):
    configure(shop, audit_to="lost")
    publish(shop, "orders", "order.seen", 300)
    publish(shop, "orders", "order.placed", 300)
    relay = shop.start("relay", "orders_outbox")
    shops.until(lambda: queued(shop, "orders") == 301, "what can go")
    relay.wait_for(r"relay\.route_closed .*transport lost waits")
    shops.until(lambda: waiting(shop, "orders") == 300, "what went to leave")
    (shop.folder / "missing").mkdir()
    shops.until(lambda: waiting(shop, "orders") == 0, "the rest")
    assert relay.stop() == 0


APART = """\
databases:
    one: 'sqlite:///{folder}/one.db'
    two: 'sqlite:///{folder}/two.db'
    queue: 'sqlite:///{folder}/queue.db'
transports:
    one: {{dsn: 'doctrine://one?table_name=outbox', relay_to: orders}}
    two: {{dsn: 'doctrine://two?table_name=outbox', relay_to: orders}}
    orders: 'queue://queue?queue_name=orders'
message_broker:
    inbox: {{database: one}}
handlers:
    order.placed: {{sql: SELECT 1}}
"""


def test_outboxes_in_different_databases_keep_their_own_failures(shop):
    """A message moves in one transaction, so there is no failure_transport."""
    shop.config_path.write_text(APART.format(folder=shop.folder))
    printed = shop.check("setup")
    assert "\nfailed messages of consumers: table messenger_messages in " \
        "database one is" in printed
    for name in ("one", "two"):
        for headers in ('{"type":"order.placed"}', '{}'):
            shop.open(name).execute(
                "INSERT INTO outbox (body, headers, queue_name, created_at, "
                "available_at) VALUES (?, ?, 'default', datetime('now'), "
                "datetime('now'))", [f'{{"from":"{name}"}}', headers])
    relay = shop.start("relay", "one", "two")
    for name in ("one", "two"):
        shops.until(lambda name=name: shop.count(name, "outbox") == 0,
                    lambda: relay.log())
        (body,), = shop.query(name, "SELECT body FROM messenger_messages")
        assert body == f'{{"from":"{name}"}}'
    assert relay.stop() == 0
    assert queued(shop, "orders") == 2
    shown = json.loads(shop.check("failed", "show", "--json"))
    assert len(shown) == 2


def test_stopping_when_empty_says_what_it_could_not_send(shop):
    configure(shop, audit_to="lost")
    publish(shop, "orders", "order.seen", 3)
    publish(shop, "orders", "order.placed", 3)
    result = shop.run("relay", "orders_outbox", "--stop-when-empty")
    assert result.returncode == 1
    assert "orders_outbox: not empty: messages wait" in result.stderr
    assert queued(shop, "orders") == 4
    assert waiting(shop, "orders") == 3
    (shop.folder / "missing").mkdir()
    shop.check("relay", "orders_outbox", "--stop-when-empty")
    assert waiting(shop, "orders") == 0


def test_a_rule_for_a_transport_that_is_none_is_refused(shop):
    configure(shop)
    text = shop.config_path.read_text()
    shop.write_config(text.replace("sender: audit", "sender: nowhere"))
    assert shop.config_path.read_text() != text
    result = shop.run("relay", "orders_outbox", "--stop-when-empty")
    assert result.returncode == 3
    assert "message_broker_amqp.routing.order.seen.sender" in result.stderr
    assert "nowhere" in result.stderr
