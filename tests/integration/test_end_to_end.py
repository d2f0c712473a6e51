"""From an INSERT to an effect, with rows of several writers."""
import base64
import collections
import json
import sqlite3

import pytest

import shop as shops
import symfony_rows as symfony

TYPES = [("    inbox:\n", "    inbox:\n"
          "        message_types: {order.placed: 'App\\Event\\OrderPlaced'}\n")]


def queue_rows(shop):
    """Body and headers of the rows in the queue, in order."""
    return [(body, json.loads(headers)) for body, headers in shop.query(
        "queue", "SELECT body, headers FROM messenger_messages "
        "WHERE queue_name = 'orders' ORDER BY id")]


def put(shop, body, headers, **options):
    shops.write_row(shop.open("shop"), body, headers, **options)


def test_published_message_has_its_effect(ready_shop):
    shop = ready_shop
    message_id = shop.check("publish", "order.placed", "--body",
                            '{"orderId":"a"}').strip()
    assert shop.relay_all().returncode == 0
    assert shop.count("shop", "messenger_outbox") == 0
    assert shop.consume_all().returncode == 0
    assert shop.query("billing", "SELECT * FROM effects") == [
        ("a", message_id, "order.placed", '{"orderId":"a"}')]
    (seen, name), = shop.query(
        "billing", "SELECT lower(hex(message_id)), message_name "
        "FROM message_broker_deduplication")
    assert seen == message_id.replace("-", "")
    assert name == "order.placed"
    assert shop.count("queue", "messenger_messages") == 0


def test_plain_insert_gets_one_id_that_stays(ready_shop):
    shop = ready_shop
    put(shop, '{"orderId":"a"}', '{"type":"order.placed"}')
    held = shop.hold_at("relay.confirmed", "relay", "outbox")
    held.kill()
    assert shop.relay_all().returncode == 0
    (_, first), (_, second) = queue_rows(shop)
    assert first["X-Message-Id"] == second["X-Message-Id"]
    assert first["X-Message-Id"][14] == "8", "a UUIDv8"
    assert json.loads(first[symfony.ID_STAMP]) == \
        [{"messageId": first["X-Message-Id"]}]
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["a"]


def test_equal_rows_are_different_messages(ready_shop):
    shop = ready_shop
    for _ in range(3):
        put(shop, '{"orderId":"a"}', '{"type":"order.placed"}')
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["a", "a", "a"]


def test_duplicate_ids_have_one_effect(ready_shop):
    shop = ready_shop
    headers = shops.id_headers(symfony.message_id(7))
    for _ in range(3):
        put(shop, '{"orderId":"a"}', headers)
    assert shop.relay_all().returncode == 0
    assert len(queue_rows(shop)) == 3
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["a"]
    assert shop.count("queue", "messenger_messages") == 0


@pytest.mark.parametrize("kind", ["plain", "bus"])
def test_symfony_row_on_the_wire(ready_shop, kind):
    """Its name by message_types, its class beside it, its id as it came;
    stamps that concern the sender stay at home."""
    shop = ready_shop
    shop.configure(replace=TYPES)
    put(shop, symfony.BODIES[kind], symfony.HEADERS[kind])
    assert shop.relay_all().returncode == 0
    (body, headers), = queue_rows(shop)
    assert body == symfony.BODIES[kind], "byte for byte"
    assert headers == {
        "type": "order.placed",
        "X-Message-Class": symfony.CLASS,
        symfony.ID_STAMP: json.dumps([{"messageId": symfony.IDS[kind]}],
                                     separators=(",", ":")),
        "X-Message-Id": symfony.IDS[kind],
        "Content-Type": "application/json",
    }
    assert shop.consume_all().returncode == 0
    (message_id, name, effect), = shop.query(
        "billing", "SELECT message_id, name, body FROM effects")
    assert (message_id, name, effect) == \
        (symfony.IDS[kind], "order.placed", body)
    assert shop.query("billing", "SELECT message_name FROM "
                      "message_broker_deduplication") == [(symfony.CLASS,)]


def test_class_without_a_name_travels_as_it_is(ready_shop):
    shop = ready_shop
    put(shop, symfony.BODIES["plain"], symfony.HEADERS["plain"])
    assert shop.relay_all().returncode == 0
    (_, headers), = queue_rows(shop)
    assert headers["type"] == symfony.CLASS
    assert "X-Message-Class" not in headers


def test_delayed_row_waits_for_its_time(ready_shop):
    shop = ready_shop
    shop.configure(replace=TYPES)
    put(shop, symfony.BODIES["delay"], symfony.HEADERS["delay"], delay_s=3600)
    put(shop, '{"orderId":"soon"}', '{"type":"order.placed"}', delay_s=2)
    put(shop, '{"orderId":"now"}', '{"type":"order.placed"}')
    (due,), = shop.query("shop", "SELECT julianday(available_at) FROM "
                         "messenger_outbox WHERE body LIKE '%soon%'")
    relay = shop.start_relay()
    shops.until(lambda: shop.wire() == ["now", "soon"], "both on the wire")
    (sent,), = shop.query("queue", "SELECT at FROM wire "
                          "WHERE order_id = 'soon'")
    assert -0.001 <= (sent - due) * 86400 < 1.5
    assert relay.stop() == 0
    rest = shop.query("shop", "SELECT headers FROM messenger_outbox")
    assert rest == [(symfony.HEADERS["delay"],)], "untouched"


def test_row_of_a_writer_in_another_time_zone_is_due(ready_shop):
    """Never delayed: both times are the same, whatever the zone."""
    shop = ready_shop
    connection = shop.open("shop")
    connection.execute(
        "INSERT INTO messenger_outbox "
        "(body, headers, queue_name, created_at, available_at) VALUES "
        "('{\"orderId\":\"a\"}', '{\"type\":\"order.placed\"}', 'outbox', "
        "datetime('now', '+5 hours'), datetime('now', '+5 hours'))")
    assert shop.relay_all().returncode == 0
    assert shop.wire() == ["a"]


ULID = "01JCNPWZ00E0080000000000N1"


def ulid_to_uuid(text):
    number = 0
    for letter in text:
        number = number << 5 | "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(letter)
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20],
                     digits[20:]))


@pytest.mark.parametrize("headers", [
    {symfony.ID_STAMP: json.dumps([{"messageId": ULID}])},
    {"X-Message-Id": ULID},
    {"X-Message-Stamp-MessageIdStamp": json.dumps([{"messageId": ULID}])},
    {r"X-Message-Stamp-My\Own\MessageIdStamp":
     json.dumps([{"messageId": ULID}])},
], ids=["full stamp", "plain header", "short stamp", "own stamp"])
def test_ulid_is_an_id_in_every_place(ready_shop, headers):
    shop = ready_shop
    put(shop, '{"orderId":"a"}', json.dumps({"type": "order.placed",
                                             **headers}))
    assert shop.relay_all().returncode == 0
    (_, sent), = queue_rows(shop)
    for name, value in headers.items():
        assert sent[name] == value, "passes unchanged"
    assert shop.consume_all().returncode == 0
    assert shop.query("billing", "SELECT message_id FROM effects") == \
        [(ulid_to_uuid(ULID),)]


def test_own_headers_travel(ready_shop):
    shop = ready_shop
    put(shop, '{"orderId":"a"}', json.dumps(
        {"type": "order.placed", "traceparent": "00-ab", "X-Note": "h\u00e9"}))
    assert shop.relay_all().returncode == 0
    (_, headers), = queue_rows(shop)
    assert headers["traceparent"] == "00-ab"
    assert headers["X-Note"] == "h\u00e9"


def test_stamp_namespace_decides_what_is_written(ready_shop):
    shop = ready_shop
    for value, header in [
            ("'My\\App'", r"X-Message-Stamp-My\App\MessageIdStamp"),
            ("~", None)]:
        shop.configure(replace=[
            ("        relay_to: orders",
             f"        relay_to: orders\n        stamp_namespace: {value}")])
        put(shop, '{"orderId":"a"}', '{"type":"order.placed"}')
        assert shop.relay_all().returncode == 0
        headers = queue_rows(shop)[-1][1]
        stamps = [name for name in headers if "MessageIdStamp" in name]
        assert stamps == ([header] if header else [])
        assert headers["X-Message-Id"]


def test_without_a_stamp_namespace_a_key_has_no_stamp_either(shop):
    """A Symfony that cannot load a stamp's class deletes the message."""
    shop.configure(replace=[
        ("doctrine://default?table_name", "ordered-doctrine://default?table_name"),
        ("        relay_to: orders",
         "        relay_to: orders\n        stamp_namespace: ~")])
    shop.check("publish", "order.placed", "--body", "{}", "-k", "a")
    (headers, key), = shop.query(
        "shop", "SELECT headers, partition_key FROM messenger_outbox")
    assert key == "a" and "Stamp" not in headers
    assert shop.relay_all().returncode == 0
    assert "Stamp" not in "".join(queue_rows(shop)[-1][1])


@pytest.mark.parametrize("body", symfony.PHP_BODIES, ids=["plain", "base64"])
def test_php_serialised_rows_stay_for_php_and_block_nothing(ready_shop, body):
    shop = ready_shop
    put(shop, body, symfony.PHP_HEADERS)
    before = shop.query("shop", "SELECT * FROM messenger_outbox")
    shop.place_orders(1000)
    put(shop, body, symfony.PHP_HEADERS)
    relay = shop.start_relay()
    shops.until(lambda: len(shop.wire()) == 1000, "1000 on the wire")
    relay.wait_for(
        r"serializer: messenger\.transport\.symfony_serializer", 5)
    assert relay.stop() == 0
    assert len(shop.wire()) == 1000
    rest = shop.query("shop", "SELECT * FROM messenger_outbox")
    assert len(rest) == 2 and rest[:1] == before
    assert shop.failed() == []
    said = [line for line in relay.log().splitlines()
            if "symfony_serializer" in line]
    assert len(said) == 1, "said once"


def test_rows_of_another_queue_are_left_alone(ready_shop):
    shop = ready_shop
    put(shop, "{}", '{"type":"order.placed"}', queue="other")
    shop.place_orders(3)
    assert shop.relay_all().returncode == 0
    assert shop.query("shop", "SELECT queue_name FROM messenger_outbox") == \
        [("other",)]


def test_rows_that_another_worker_has_are_left_alone(ready_shop):
    """Claimed a moment ago, or done and kept, as Symfony marks them."""
    shop = ready_shop
    shop.place_orders(3)
    shop.open("shop").execute(
        "UPDATE messenger_outbox SET delivered_at = CASE id "
        "WHEN 1 THEN datetime('now') WHEN 2 THEN '9999-12-31 23:59:59' END")
    assert shop.relay_all().returncode == 0
    assert shop.wire() == ["order-3"]
    assert shop.count("shop", "messenger_outbox") == 2


def test_order_is_kept(ready_shop):
    shop = ready_shop
    shop.place_orders(500)
    assert shop.relay_all().returncode == 0
    assert shop.wire() == [f"order-{number}" for number in range(1, 501)]


def test_several_consumers_share_a_queue(ready_shop):
    shop = ready_shop
    shop.place_orders(2000)
    assert shop.relay_all().returncode == 0
    consumers = [shop.start_consumer() for _ in range(3)]
    shop.wait_until_consumed()
    for consumer in consumers:
        assert consumer.stop() == 0, consumer.log()
    shop.expect_effects_once()


def test_handler_of_several_statements_and_all_parameters(ready_shop):
    shop = ready_shop
    shop.open("billing").execute("CREATE TABLE seen (id, text, headers, key)")
    shop.configure(replace=[
        (shops.CONFIG[shops.CONFIG.index("        sql: >"):],
         "        sql:\n"
         "            - INSERT INTO effects (order_id, name, body)\n"
         "              VALUES ('a', :name, :body)\n"
         "            - INSERT INTO seen VALUES\n"
         "              (:id, :id_text, :headers, :partition_key)\n")])
    message_id = shop.check("publish", "order.placed", "--body", "{}",
                            "--header", "X-A=b").strip()
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert shop.query("billing", "SELECT name, body FROM effects") == \
        [("order.placed", "{}")]
    (raw, text, headers, key), = shop.query("billing", "SELECT * FROM seen")
    assert raw.hex() == message_id.replace("-", "") and text == message_id
    assert json.loads(headers)["X-A"] == "b"
    assert key is None


def test_effect_and_deduplication_row_go_together(ready_shop):
    """A handler that fails half-way leaves neither, and is tried again."""
    shop = ready_shop
    shop.configure(replace=[
        (shops.CONFIG[shops.CONFIG.index("        sql: >"):],
         "        sql:\n"
         "            - INSERT INTO effects (order_id) VALUES ('a')\n"
         "            - INSERT INTO later (id) VALUES (:id_text)\n")])
    shop.check("publish", "order.placed", "--body", "{}")
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer("--wait")
    consumer.wait_for("no such table: later")
    assert shop.effects() == []
    assert shop.count("billing", "message_broker_deduplication") == 0
    shop.open("billing").execute("CREATE TABLE later (id)")
    shops.until(lambda: shop.effects() == ["a"],
                lambda: f"the effect:\n{consumer.log()}")
    assert shop.count("billing", "message_broker_deduplication") == 1
    assert consumer.stop() == 0


def test_transports_may_share_one_database(ready_shop):
    """Everything in one file: the embedded default."""
    shop = ready_shop
    shop.configure(replace=[
        ("    queue: ", "    unused: "), ("    billing: ", "    unused2: "),
        ("queue://queue", "queue://default"),
        ("database: billing", "database: default")])
    connection = shop.open("shop")
    connection.execute(
        "CREATE TABLE effects (order_id, message_id, name, body)")
    shop.check("setup")
    shop.check("setup-deduplication", "--force")
    relay, consumer = shop.start_relay(), shop.start_consumer()
    shop.place_orders(300)
    shops.until(lambda: shop.count("shop", "effects") == 300, "all effects")
    assert relay.stop() == 0 and consumer.stop() == 0
    effects = collections.Counter(
        row[0] for row in shop.query("shop", "SELECT order_id FROM effects"))
    assert set(effects.values()) == {1}
    assert "trouble" not in relay.log() + consumer.log()


def test_application_is_never_locked_out(ready_shop):
    """Its short transactions go through beside a busy relay."""
    shop = ready_shop
    shop.configure(in_flight=1000)
    relay, consumer = shop.start_relay(), shop.start_consumer()
    connection = sqlite3.connect(shop.path("shop"), timeout=5,
                                 isolation_level=None)
    for number in range(300):
        shop.place_orders(1, first=number, connection=connection)
    connection.close()
    shop.wait_until_relayed()
    shop.wait_until_consumed()
    assert relay.stop() == 0 and consumer.stop() == 0
    shop.expect_effects_once()


def test_large_bodies_travel(ready_shop):
    shop = ready_shop
    text = base64.b64encode(b"\1\2\3" * 1000000).decode()
    body = json.dumps({"orderId": "large", "data": text})
    put(shop, body, '{"type":"order.placed"}')
    shop.place_orders(10)
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert len(shop.effects()) == 11
    assert shop.query("billing", "SELECT body FROM effects "
                      "WHERE order_id = 'large'") == [(body,)]
