"""What makes a message this one, and a database that one."""
import json
import uuid

import pytest

import shop as shops

TWO_OUTBOXES = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    first: {dsn: 'doctrine://default?table_name=outbox_a', relay_to: orders}
    second: {dsn: 'doctrine://default?table_name=outbox_b', relay_to: orders}
    orders: 'queue://default?queue_name=orders'
"""


@pytest.fixture
def world(tmp_path):
    opened = shops.Shop(tmp_path)
    yield opened
    opened.close()


def test_rows_without_an_id_get_others_in_another_table(world):
    world.write_config(TWO_OUTBOXES)
    world.check("setup")
    connection = world.open("shop")
    connection.execute("BEGIN IMMEDIATE")
    for table in ("outbox_a", "outbox_b"):
        connection.execute(
            f"INSERT INTO {table} (body, headers, queue_name, created_at, "
            "available_at) VALUES ('{}', '{\"type\":\"order.placed\"}', "
            "'default', '2026-01-01 00:00:00', '2026-01-01 00:00:00')")
    connection.execute("COMMIT")
    for transport in ("first", "second"):
        world.check("relay", transport, "--stop-when-empty")
    ids = world.query("shop", "SELECT json_extract(headers, '$.X-Message-Id') "
                              "FROM messenger_messages")
    assert len(ids) == 2
    assert len(set(ids)) == 2


def test_a_file_that_is_replaced_takes_no_more_messages(world):
    world.set_up()
    relay = world.start_relay()
    world.place_orders(1)
    world.wait_until_relayed()
    for file in world.folder.glob("queue.db*"):
        file.rename(world.folder / f"old-{file.name}")
    world.check("setup")
    world.place_orders(1, first=2)
    shops.until(lambda: world.count("queue", "messenger_messages") == 1,
                lambda: f"the message in the new file:\n{relay.log()}")
    assert "was deleted or replaced" in relay.log()
    assert relay.stop() == 0
    assert world.count("shop", "messenger_outbox") == 0


# Bytes that a careless writer would cut off, escape or take for text.
FIVE_IDS = [
    "01932b6e-7c00-7000-8000-000000000001",
    "ffffffff-ffff-4fff-bfff-ffffffffffff",
    "00000000-0000-0000-0000-000000000001",
    "275c2200-0a0d-4e25-a05f-1a7f80c3a900",
    "20202020-2020-4020-a020-202020202020",
]


def consume_ids(place, ids):
    """What is remembered of messages with these ids, by a handler that notes
    each: pairs of bytes and text."""
    place.set_config(replace=[("VALUES (:body)", "VALUES (:id_text)")])
    place.write_many([("{}", json.dumps({"type": "order.placed",
                                         "X-Message-Id": message_id}))
                      for message_id in ids], "orders", "messenger_messages")
    place.check("consume", "orders", "--stop-when-empty")
    as_hex = {"postgresql": "encode(message_id, 'hex')"}.get(
        place.database.dialect, "HEX(message_id)")
    stored = place.ask(f"SELECT {as_hex} FROM message_broker_deduplication")
    noted = place.ask("SELECT body FROM effects")
    return ({str(uuid.UUID(line)) for line in stored.splitlines()},
            set(noted.splitlines()))


@pytest.mark.parametrize("message_id", FIVE_IDS)
def test_v19_an_id_of_any_bytes_comes_back_as_it_was(place, message_id):
    assert consume_ids(place, [message_id]) == ({message_id}, {message_id})


def test_v20_five_ids_come_back_each_as_it_was(place):
    assert consume_ids(place, FIVE_IDS) == (set(FIVE_IDS), set(FIVE_IDS))
