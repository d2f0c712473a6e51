"""Bytes that would grow: what is only looked at is never built in memory, so
that no message takes a consumer or a relay down, whatever its bytes are."""
import json

import pytest

import shop as shops
import symfony_rows as symfony

GOOD = 1000
LARGE = 8_000_000
TYPED = '{"type":"order.placed"}'
MOST_HEADERS = 1_048_576
# An idle program with its threads' stacks, and four times the message.
CEILING_MIB = 96


def values(size):
    """So many bytes of JSON that hold as many values as they can."""
    return "[" + "0," * (size // 2 - 1) + "0]"


def unknown(number):
    """Headers of a message that Symfony could read and no handler is for."""
    return shops.id_headers(symfony.message_id(number), type="order.unknown",
                            **{"X-Message-Class": "App\\\\Unknown"})


def put(shop, database, table, queue, body, headers):
    shops.write_row(shop.open(database), body, headers, table=table,
                    queue=queue)


def reason_of(headers):
    return json.loads(json.loads(headers)[symfony.ERROR_STAMP])[0][
        "exceptionMessage"]


def expect_good_relayed(shop):
    shop.place_orders(GOOD)
    result = shop.relay_all()
    assert result.returncode == 0, result.stderr[-3000:]
    assert sorted(shop.wire()) == sorted(shop.orders())
    assert shop.count("shop", "messenger_outbox") == 0


def expect_good_consumed(shop):
    shop.open("queue").execute("DELETE FROM wire")
    shop.place_orders(GOOD)
    assert shop.relay_all("-q").returncode == 0

    def is_consumed():
        """A row that had to be put off is not due yet, and is left behind."""
        result = shop.consume_all()
        assert result.returncode == 0, result.stderr[-3000:]
        return shop.count("queue", "messenger_messages") == 0
    shops.until(is_consumed, "an empty queue")
    shop.expect_effects_once()


def test_a_body_that_nobody_handles_is_not_taken_apart(ready_shop):
    """It goes where Symfony reads it, as it is a JSON object."""
    shop = ready_shop
    body = '{"n":' + values(LARGE) + "}"
    put(shop, "queue", "messenger_messages", "orders", body, unknown(1))
    shop.limit_memory(CEILING_MIB)
    expect_good_consumed(shop)
    (kept, headers, queue), = shop.failed()
    assert queue == "failed" and kept == body
    assert "order.unknown" in reason_of(headers)


# Headers of one row, and what the reason says of it.
HEADERS = {
    "many values": '{"type":"order.placed","n":' + values(6_000_000) + "}",
    "many texts": '{"type":"order.placed","n":[' + '"\\n",' * 1_500_000 +
                  '""]}',
    "one text": '{"type":"order.placed","n":"' + "x" * 6_000_000 + '"}',
    "just too much": '{"type":"order.placed","n":"' + "x" * MOST_HEADERS +
                     '"}',
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_over_the_limit_in_the_outbox(ready_shop, kind):
    shop = ready_shop
    put(shop, "shop", "messenger_outbox", "outbox", "{}", HEADERS[kind])
    shop.limit_memory(CEILING_MIB)
    expect_good_relayed(shop)
    (body, headers, _), = shop.failed()
    assert body == "{}"
    assert json.loads(headers)["X-Skirnir-Raw-Headers"] == HEADERS[kind]
    assert str(MOST_HEADERS) in reason_of(headers)


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_over_the_limit_in_the_queue(ready_shop, kind):
    shop = ready_shop
    put(shop, "queue", "messenger_messages", "orders", "{}", HEADERS[kind])
    shop.limit_memory(CEILING_MIB)
    expect_good_consumed(shop)
    (_, headers, _), = shop.failed()
    assert json.loads(headers)["X-Skirnir-Raw-Headers"] == HEADERS[kind]
    assert str(MOST_HEADERS) in reason_of(headers)


def stamped(number):
    """Nearly as much as headers may have, most of it a stamp of small parts."""
    stamp = "[" + "{}," * 320_000 + \
        '{"messageId":"%s"}]' % symfony.message_id(number)
    text = json.dumps({"type": "order.placed", symfony.ID_STAMP: stamp})
    assert len(text) < MOST_HEADERS
    return text


def test_stamps_of_many_parts_are_read_and_take_no_more_than_their_bytes(
        ready_shop):
    shop = ready_shop
    for number in range(12):
        put(shop, "shop", "messenger_outbox", "outbox",
            json.dumps({"orderId": f"stamped-{number}"}), stamped(number))
    shop.limit_memory(CEILING_MIB)
    shop.place_orders(GOOD)
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert shop.failed() == []
    found = {row[0] for row in shop.query(
        "billing", "SELECT message_id FROM effects "
        "WHERE order_id LIKE 'stamped-%'")}
    assert found == {symfony.message_id(number) for number in range(12)}


def test_a_large_failed_message_is_shown(ready_shop):
    shop = ready_shop
    body = '{"n":' + values(LARGE) + "}"
    put(shop, "shop", "messenger_messages", "failed", body, unknown(1))
    shop.limit_memory(CEILING_MIB)
    with open(shop.folder / "shown", "wb") as shown:
        result = shops.subprocess.run(
            shop.command("failed", "show", "1", "-vv"), stdout=shown,
            cwd=shop.folder, env=shop.environment,
            timeout=shops.PATIENCE_S, **shop.options)
    assert result.returncode == 0
    text = (shop.folder / "shown").read_text()
    assert text.count("\n        0") == LARGE // 2
    assert text.endswith("\n      ]\n    }\n")
