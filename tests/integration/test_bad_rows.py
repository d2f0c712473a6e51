"""Rows that cannot be understood go to the failed table with the reason and
their bytes, and a thousand good ones behind them arrive."""
import base64
import json

import pytest

import shop as shops
import symfony_rows as symfony

GOOD = 1000
BODY = '{"orderId":"bad"}'
TYPED = '{"type":"order.placed"}'

# Name: (body, headers, words of the reason). Bytes are written as text that is
# none.
BAD = {
    "headers are not JSON": (
        BODY, "type=order.placed", ["not JSON", "a JSON object with"]),
    "headers end too early": (BODY, '{"type":"order.placed"', ["JSON"]),
    "headers are a list": (BODY, "[]", ["type"]),
    "headers are a list with words": (BODY, '["type"]', []),
    "headers are a text": (BODY, '"order.placed"', []),
    "headers are empty": (BODY, "", []),
    "headers are nothing": (BODY, "{}", ["type"]),
    "no type": (BODY, '{"X-Message-Id":"%s"}' % symfony.message_id(1),
                ["type"]),
    "empty type": (BODY, '{"type":""}', ["type"]),
    "id is neither UUID nor ULID": (
        BODY, '{"type":"order.placed","X-Message-Id":"17"}', ["17"]),
    "id in the stamp is neither": (
        BODY, shops.id_headers("not-an-id"), ["not-an-id"]),
    "stamp holds no id": (
        BODY, json.dumps({"type": "order.placed", symfony.ID_STAMP: "[{}]"}),
        ["MessageIdStamp"]),
    "stamp is not JSON": (
        BODY, json.dumps({"type": "order.placed", symfony.ID_STAMP: "["}),
        []),
    "body is not UTF-8": (b'{"orderId":"\xff\xfe\x80"}', TYPED.encode(),
                          ["UTF-8"]),
    "headers are not UTF-8": (BODY.encode(), b'{"type":"order.\xff"}', []),
    "everything is rubbish": (bytes(range(1, 256)), bytes(range(255, 0, -1)),
                              []),
}
# In the queue a message also needs an id and a handler.
BAD_IN_QUEUE = {
    **BAD,
    "no id": (BODY, TYPED, ["no id", "X-Message-Id"]),
    "nobody handles it": (
        BODY, shops.id_headers(symfony.message_id(2), type="order.unknown"),
        ["order.unknown", "no handler"]),
}


@pytest.fixture(autouse=True)
def ceiling(ready_shop):
    ready_shop.limit_memory()


def to_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def put_bad(shop, database, table, queue, body, headers):
    shops.write_row(shop.open(database), to_bytes(body), to_bytes(headers),
                    table=table, queue=queue, cast_to_text=True)


def only_failed(shop, transport, body, headers, words):
    """The row in the failed table has its bytes and tells why."""
    rows = shop.query(
        "shop", "SELECT CAST(body AS BLOB), CAST(headers AS BLOB), "
        "queue_name FROM messenger_messages "
        "WHERE queue_name IN ('failed', 'failed.skirnir')")
    (kept_body, kept_headers, queue), = rows
    kept = json.loads(kept_headers.decode("utf-8"))
    # Not every database keeps bytes that are no text in a column of text.
    if kept.get("X-Skirnir-Body-Encoding") == "base64":
        kept_body = base64.b64decode(kept_body)
    assert kept_body == to_bytes(body)
    reason = json.loads(kept[symfony.ERROR_STAMP])[0]
    for word in words:
        assert word in reason["exceptionMessage"]
    assert reason["exceptionMessage"]
    assert reason["exceptionClass"].startswith("Skirnir\\")
    assert json.loads(kept[symfony.FAILURE_STAMP]) == \
        [{"originalReceiverName": transport}]
    assert raw_headers(kept, headers) == to_bytes(headers)
    # Symfony deletes what it cannot decode: it must not see these.
    assert queue == "failed.skirnir"
    return reason["exceptionMessage"]


def raw_headers(kept, headers):
    """The headers as they came: whole, or among those that were added."""
    if "X-Skirnir-Raw-Headers" in kept:
        return kept["X-Skirnir-Raw-Headers"].encode()
    if "X-Skirnir-Raw-Headers-Base64" in kept:
        return base64.b64decode(kept["X-Skirnir-Raw-Headers-Base64"])
    came = json.loads(headers)
    assert {name: kept[name] for name in came} == came
    return to_bytes(headers)


@pytest.mark.parametrize("name", BAD)
def test_bad_row_in_the_outbox(ready_shop, name):
    shop = ready_shop
    body, headers, words = BAD[name]
    put_bad(shop, "shop", "messenger_outbox", "outbox", body, headers)
    shop.place_orders(GOOD)
    result = shop.relay_all()
    assert result.returncode == 0
    assert sorted(shop.wire()) == sorted(shop.orders())
    assert shop.count("shop", "messenger_outbox") == 0
    reason = only_failed(shop, "outbox", body, headers, words)
    said, = [line for line in result.stderr.splitlines()
             if " relay.failed " in line]
    assert "row=1" in said
    assert reason.split(";")[0].replace('"', '\\"') in said


@pytest.mark.parametrize("name", BAD_IN_QUEUE)
def test_bad_row_in_the_queue(ready_shop, name):
    shop = ready_shop
    body, headers, words = BAD_IN_QUEUE[name]
    put_bad(shop, "queue", "messenger_messages", "orders", body, headers)
    shop.open("queue").execute("DELETE FROM wire")
    shop.place_orders(GOOD)
    assert shop.relay_all("-q").returncode == 0
    result = shop.consume_all()
    assert result.returncode == 0
    shop.expect_effects_once()
    assert shop.count("queue", "messenger_messages") == 0
    only_failed(shop, "orders", body, headers, words)
    assert " consumer.failed " in result.stderr


def test_many_bad_rows_between_good_ones(ready_shop):
    shop = ready_shop
    connection = shop.open("shop")
    for number, (body, headers, _) in enumerate(BAD.values()):
        shops.write_row(connection, to_bytes(body), to_bytes(headers),
                        cast_to_text=True)
        shop.place_orders(10, first=1 + 10 * number, connection=connection)
    assert shop.relay_all().returncode == 0
    assert shop.wire() == [f"order-{number}"
                           for number in range(1, 10 * len(BAD) + 1)]
    assert shop.count("shop", "messenger_messages") == len(BAD)


def test_blob_columns_are_read_like_text(ready_shop):
    """Some writers bind bytes."""
    shop = ready_shop
    shops.write_row(shop.open("shop"), BODY.encode(), TYPED.encode())
    assert shop.relay_all().returncode == 0
    assert shop.wire() == ["bad"]
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["bad"]


def test_failed_row_of_a_known_class_is_for_symfony(ready_shop):
    """JSON body, class as type, stamps with full names."""
    shop = ready_shop
    shop.configure(max_retries=0, replace=[
        ("    inbox:\n", "    inbox:\n        message_types: "
         "{order.placed: 'App\\Event\\OrderPlaced'}\n"),
        ("INSERT INTO effects", "INSERT INTO nowhere")])
    shop.open("billing").execute(
        "CREATE TABLE nowhere (order_id, message_id, name, body, "
        "CHECK (0))")
    shops.write_row(shop.open("shop"), symfony.BODIES["plain"],
                    symfony.HEADERS["plain"])
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    (body, headers, queue), = shop.failed()
    kept = json.loads(headers)
    assert queue == "failed" and body == symfony.BODIES["plain"]
    assert kept["type"] == symfony.CLASS
    assert json.loads(kept[symfony.ID_STAMP]) == \
        [{"messageId": symfony.IDS["plain"]}]
    assert "CHECK" in kept[symfony.ERROR_STAMP]


def test_handler_that_refuses_one_message_lets_the_others_pass(ready_shop):
    """It is tried as often as was asked for, alone, then kept."""
    shop = ready_shop
    shop.configure(max_retries=2)
    shop.open("billing").execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON effects "
        "WHEN NEW.order_id = 'bad' BEGIN "
        "SELECT RAISE(ABORT, 'this order is refused'); END")
    shops.write_row(shop.open("shop"), BODY)
    shop.place_orders(GOOD)
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    shop.expect_effects_once()
    assert len(consumer.events("consumer.retry")) == 2
    (body, headers, _), = shop.failed()
    assert body == BODY
    kept = json.loads(headers)
    assert "this order is refused" in kept[symfony.ERROR_STAMP]
    assert json.loads(kept[symfony.REDELIVERY_STAMP])[0]["retryCount"] == 2
    # It has no effect, so it must not count as handled.
    assert shop.count("billing", "message_broker_deduplication") == GOOD


def test_failed_message_keeps_the_id_that_was_made_for_it(ready_shop):
    shop = ready_shop
    shop.configure(max_retries=0)
    shop.open("billing").execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON effects BEGIN "
        "SELECT RAISE(ABORT, 'refused'); END")
    shops.write_row(shop.open("shop"), BODY)
    assert shop.relay_all().returncode == 0
    (headers,), = shop.query("queue", "SELECT headers FROM wire")
    assert shop.consume_all().returncode == 0
    (_, kept, _), = shop.failed()
    assert json.loads(kept)["X-Message-Id"] == \
        json.loads(headers)["X-Message-Id"]


def test_row_that_the_queue_refuses_fails_alone(ready_shop):
    """A rule of the queue's owner that one message breaks."""
    shop = ready_shop
    shop.open("queue").execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON messenger_messages "
        "WHEN NEW.body LIKE '%bad%' BEGIN "
        "SELECT RAISE(ABORT, 'the queue refuses it'); END")
    shops.write_row(shop.open("shop"), BODY)
    shop.place_orders(GOOD)
    assert shop.relay_all().returncode == 0
    assert shop.wire() == [f"order-{number}" for number in range(1, GOOD + 1)]
    (body, headers, _), = shop.failed()
    assert body == BODY and "the queue refuses it" in headers


def test_bad_rows_stay_while_the_failed_table_is_away(ready_shop):
    """The failure path is as durable as the other: what cannot be kept stays
    where it was, and the good ones go on."""
    shop = ready_shop
    connection = shop.open("shop")
    shops.write_row(connection, BODY, "{}")
    shop.place_orders(GOOD)
    connection.execute(
        "CREATE TRIGGER away BEFORE INSERT ON messenger_messages BEGIN "
        "SELECT RAISE(ABORT, 'the failed table is away'); END")
    relay = shop.start_relay()
    shops.until(lambda: len(shop.wire()) == GOOD,
                lambda: f"the good ones:\n{relay.log()}")
    shops.until(lambda: shop.count("shop", "messenger_outbox") == 1,
                lambda: f"the bad one alone:\n{relay.log()}")
    relay.wait_for("the failed table is away")
    assert relay.stop() == 0
    connection.execute("DROP TRIGGER away")
    assert shop.relay_all().returncode == 0
    assert len(shop.failed()) == 1
    assert shop.count("shop", "messenger_outbox") == 0


def attempts(shop):
    return [count for count, in shop.query(
        "billing", "SELECT count FROM skirnir_attempt")]


def test_a_row_that_kills_on_its_way_to_the_failed_ones_is_counted(ready_shop):
    """It has no headers that a count could stand in."""
    shop = ready_shop
    shop.configure(max_retries=1)
    put_bad(shop, "queue", "messenger_messages", "orders", BODY, "no JSON")
    for counted in ([], [1], [2]):
        held = shop.hold_at("consumer.storing", "consume", "orders")
        assert attempts(shop) == counted
        held.kill()
    consumer = shop.start_consumer()
    consumer.wait_for("consumer.failed")
    shops.until(lambda: attempts(shop) == [], consumer.log)
    assert consumer.stop() == 0
    only_failed(shop, "orders", BODY, "no JSON", ["JSON"])


def test_a_row_that_stays_is_told_of_once(ready_shop):
    """It comes again and again, and is known to be handled."""
    shop = ready_shop
    shop.place_orders(1)
    assert shop.relay_all("-q").returncode == 0
    shop.open("queue").executescript("""
        CREATE TRIGGER no_delete BEFORE DELETE ON messenger_messages BEGIN
            SELECT RAISE(ABORT, 'keep it'); END;
        CREATE TRIGGER no_mark BEFORE UPDATE ON messenger_messages
            WHEN NEW.delivered_at LIKE '9999%' BEGIN
            SELECT RAISE(ABORT, 'keep it'); END;""")
    consumer = shop.start_consumer("-vv")
    shops.until(lambda: len(consumer.events("consumer.duplicate")) >= 2,
                consumer.log)
    assert consumer.stop() == 0
    assert len(consumer.events("queue.row_refused")) == 1
    shop.expect_effects_once()
