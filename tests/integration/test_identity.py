"""What makes a message this one, and a database that one."""
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
