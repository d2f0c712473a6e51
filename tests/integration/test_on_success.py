"""What becomes of an outbox's rows that the broker has stored."""
import pytest

import shop as shops

CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name={queue}'
        relay_to: orders
        on_success: {what}
    orders:
        dsn: 'queue://default?queue_name=orders'
"""


@pytest.fixture
def world(tmp_path):
    opened = shops.Shop(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("what, queues", [
    ("delete", []), ("keep", [("outbox.sent",)] * 3)])
def test_rows_go_or_stay_aside(world, what, queues):
    world.write_config(CONFIG.format(what=what, queue="outbox"))
    world.check("setup")
    connection = world.open("shop")
    for _ in range(3):
        connection.execute(
            "INSERT INTO messenger_outbox (body, headers, queue_name, "
            "created_at, available_at) VALUES ('{}', "
            "'{\"type\":\"order.placed\"}', 'outbox', datetime(), datetime())")
    for _ in range(2):
        world.check("relay", "outbox", "--stop-when-empty")
        assert world.query("shop", "SELECT queue_name FROM messenger_outbox "
                           "WHERE delivered_at IS NOT NULL") == queues
        assert world.count("shop", "messenger_messages") == 3


@pytest.mark.parametrize("size, allowed", [(185, True), (186, False)])
def test_a_name_without_room_for_sent_is_a_mistake(world, size, allowed):
    world.write_config(CONFIG.format(what="keep", queue="q" * size))
    result = world.run("config", "check")
    assert (result.returncode == 0) == allowed
    assert allowed or "transports.outbox.on_success" in (result.stdout
                                                         + result.stderr)
