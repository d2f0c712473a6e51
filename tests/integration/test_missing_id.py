"""A message in a queue table that has no id: three ways to deal with it."""
import pytest

import shop as shops

CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    orders:
        dsn: 'queue://default?queue_name=orders'
        missing_id: {way}
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
handlers:
    order.placed: {handler}
"""
SQL = "{sql: 'INSERT INTO effect VALUES (:id_text, :body)'}"
WORKER = f"""\
import sqlite3, sys
sys.path.insert(0, "{shops.ROOT}/clients/python")
from skirnir import inbox, worker
connection = sqlite3.connect("shop.db")
def place(connection, message):
    connection.execute("INSERT INTO effect VALUES (?, ?)",
                       (message.id, message.body))
worker.run(lambda message: inbox.handle(connection, message, place),
           deduplicates=True)
"""


@pytest.fixture
def world(tmp_path):
    opened = shops.Shop(tmp_path)
    yield opened
    opened.close()


def put(world, count):
    connection = world.open("shop")
    for number in range(count):
        connection.execute(
            "INSERT INTO messenger_messages (body, headers, queue_name, "
            "created_at, available_at) VALUES (?, '{\"type\":\"order.placed\"}'"
            ", 'orders', datetime(), datetime())", (f'{{"n":{number}}}',))


def consume(world, way, count=3, handler=SQL):
    world.write_config(CONFIG.format(way=way, handler=handler))
    world.check("setup")
    world.open("shop").execute("CREATE TABLE effect (id TEXT, body TEXT)")
    put(world, count)
    world.check("consume", "orders", "--stop-when-empty")
    return world.query("shop", "SELECT id, body FROM effect ORDER BY body")


def test_by_default_it_is_kept_in_the_failed_table(world):
    assert consume(world, "fail") == []
    assert world.count("shop", "messenger_messages",
                       "queue_name = 'failed.skirnir'") == 3


def test_it_can_be_handled_without_deduplication(world):
    assert len(consume(world, "handle")) == 3
    assert world.count("shop", "message_broker_deduplication") == 0
    assert world.count("shop", "messenger_messages") == 0


def test_a_process_that_records_its_messages_handles_each(world):
    (world.folder / "worker.py").write_text(WORKER)
    effects = consume(world, "handle", handler="{command: [python3, worker.py]}")
    assert effects == [(None, f'{{"n":{n}}}') for n in range(3)]
    assert world.count("shop", "message_broker_deduplication") == 0
    assert world.count("shop", "messenger_messages") == 0


def test_an_id_can_be_derived_from_its_place(world):
    effects = consume(world, "derive")
    assert [body for _, body in effects] == ['{"n":0}', '{"n":1}', '{"n":2}']
    # Version 8: made from a hash, and another for each row.
    assert all(identity[14] == "8" for identity, _ in effects)
    assert len({identity for identity, _ in effects}) == 3
    assert world.count("shop", "message_broker_deduplication") == 3


@pytest.mark.parametrize("transport, allowed", [
    ("'queue://default', missing_id: guess", False),
    ("'doctrine://default', missing_id: derive", False),
    ("'doctrine://default', missing_id: handle", True)])
def test_another_way_is_a_mistake(world, transport, allowed):
    world.write_config("databases: {default: 'sqlite:///x.db'}\n"
                       "transports: {a: {dsn: " + transport + "}, "
                       "amqp: 'queue://default?queue_name=b'}\n")
    result = world.run("config", "check")
    assert (result.returncode == 0) == allowed
    assert allowed or "transports.a.missing_id" in (result.stdout
                                                    + result.stderr)
