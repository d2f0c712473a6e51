"""Trouble that is no message's fault, on a queue of RabbitMQ's that drops what
comes back too often: nothing is lost, everything is handled after the cure, and
other handlers' messages do not wait."""
import json
import os
import pathlib
import sys
import uuid

import pytest

import databases
import shop as shops
import worlds
from test_metrics import get, port  # noqa: F401: a fixture

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

pytestmark = pytest.mark.alike

LIMIT = 3
GOOD = 1000
COUNT = 10
HANDLERS = """\
    order.placed: {{sql: 'INSERT INTO effects (body) VALUES (:body)'}}
    order.sick: {{{sick}}}
"""
SICK_SQL = "sql: 'INSERT INTO absent (body) VALUES (:body)'"
# It leaves a line for each time it was started.
SICK_WORKER = """\
import json, os, sys
with open("started", "a") as file:
    print(file=file)
if not os.path.exists("cure"):
    sys.exit(1)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    with open("handled", "a") as file:
        print(json.loads(line)["body"], file=file)
    print(json.dumps({"delivery": json.loads(line)["delivery"],
                      "verdict": "accept"}), flush=True)
"""


@pytest.fixture
def inbox(any_world):
    world = any_world
    set_sick(world, SICK_SQL)
    world.check("setup")
    world.declare_queue("limited", arguments={
        "x-queue-type": "quorum", "x-delivery-limit": LIMIT})
    world.ask("CREATE TABLE effects (body VARCHAR(30) NOT NULL)")
    return world


def set_sick(world, handler, replace=()):
    world.set_config(worlds.INBOX_CONFIG + HANDLERS, replace=replace,
                     queue="limited", sick=handler)


def put(world, name, numbers, **headers):
    for number in numbers:
        world.client.publish("", "limited", str(number).encode(), {
            "type": ("S", name), "X-Message-Id": ("S", str(uuid.uuid4())),
            **headers})
    world.client.confirm()


def bodies(world, table):
    return sorted(map(int, world.ask(f"SELECT body FROM {table}").split()))


def failed(world):
    return int(world.ask("SELECT COUNT(*) FROM messenger_messages"))


def await_tries(consumer, event, count):
    """More than the queue bears."""
    shops.until(lambda: len(consumer.events(event)) >= count, consumer.log, 60)


def await_bodies(world, consumer, table, count):
    shops.until(lambda: len(bodies(world, table)) == count, consumer.log, 60,
                0.1)


def end(world, consumer):
    """It is well, and the queue is empty since everything was handled."""
    shops.until(lambda: consumer.events("consumer.recovered"), consumer.log)
    assert len(consumer.events("consumer.trouble")) == 1
    assert consumer.stop() == 0, consumer.log()
    assert world.client.count("limited") == 0


def test_a_missing_table_loses_nothing(inbox):
    put(inbox, "order.sick", range(COUNT))
    consumer = inbox.start_consumer("-v")
    await_tries(consumer, "consumer.replay", LIMIT + 2)
    inbox.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL)")
    await_bodies(inbox, consumer, "absent", COUNT)
    assert bodies(inbox, "absent") == list(range(COUNT))
    end(inbox, consumer)
    assert failed(inbox) == 0


def test_a_process_that_does_not_start_loses_nothing(inbox):
    (inbox.folder / "worker.py").write_text(SICK_WORKER)
    set_sick(inbox, "command: [python3, worker.py]")
    put(inbox, "order.sick", range(COUNT))
    consumer = inbox.start_consumer()
    started = inbox.folder / "started"
    shops.until(lambda: started.exists() and
                len(started.read_text()) >= LIMIT + 2, consumer.log, 60)
    (inbox.folder / "cure").touch()
    handled = inbox.folder / "handled"
    shops.until(lambda: handled.exists() and
                len(handled.read_text().split()) == COUNT, consumer.log, 60)
    end(inbox, consumer)
    assert failed(inbox) == 0


def test_a_failed_table_that_refuses_loses_nothing(inbox):
    put(inbox, "order.placed", [1])
    consumer = inbox.start_consumer()
    await_bodies(inbox, consumer, "effects", 1)
    inbox.ask("ALTER TABLE messenger_messages RENAME TO away")
    # No handler has this name.
    put(inbox, "order.unknown", range(COUNT))
    consumer.wait_for(r"consumer\.keep_trouble")
    put(inbox, "order.placed", range(2, 102))
    await_bodies(inbox, consumer, "effects", 101)
    inbox.ask("ALTER TABLE away RENAME TO messenger_messages")
    shops.until(lambda: failed(inbox) == COUNT, consumer.log, 60, 0.1)
    consumer.wait_for(r"consumer\.keep_recovered")
    assert consumer.stop() == 0
    assert inbox.client.count("limited") == 0


@pytest.mark.parametrize("bad", [1, 150])
def test_a_thousand_pass_those_of_a_handler_in_trouble(inbox, bad):
    put(inbox, "order.sick", range(bad))
    put(inbox, "order.placed", range(GOOD))
    consumer = inbox.start_consumer()
    await_bodies(inbox, consumer, "effects", GOOD)
    assert not consumer.events("consumer.recovered")
    inbox.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL)")
    await_bodies(inbox, consumer, "absent", bad)
    end(inbox, consumer)
    assert bodies(inbox, "effects") == list(range(GOOD))
    assert bodies(inbox, "absent") == list(range(bad))
    assert failed(inbox) == 0


LARGE = {"large": ("S", "x" * 130_700)}  # with no room for a stamp beside it


@pytest.mark.parametrize("headers, exchange", [(LARGE, "direct"),
                                               ({}, "topic")])
def test_a_retry_that_no_delay_queue_takes_waits_in_a_row(inbox, headers,
                                                          exchange):
    inbox.declare_queue("elsewhere", "skr-later", kind=exchange)
    set_sick(inbox, SICK_SQL, replace=[
        ("max_retries: 0", "max_retries: 3"),
        ("?queues", "?retry_via=delay_queue&delay[exchange_name]=skr-later"
         "&queues")])
    inbox.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL "
              "CHECK (body <> '7'))")
    put(inbox, "order.sick", [7], **headers)
    put(inbox, "order.placed", range(20))
    consumer = inbox.start_consumer()
    await_bodies(inbox, consumer, "effects", 20)
    shops.until(lambda: inbox.ask("SELECT queue_name FROM messenger_messages")
                == "orders.retry", consumer.log, 60, 0.1)
    assert consumer.stop() == 0
    assert inbox.client.count("limited") == 0
    inbox.ask("DROP TABLE absent")
    inbox.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL)")
    inbox.ask("UPDATE messenger_messages SET available_at = created_at")
    consumer = inbox.start_consumer()
    await_bodies(inbox, consumer, "absent", 1)
    assert consumer.stop() == 0
    assert failed(inbox) == 0


def test_what_is_held_for_long_waits_in_rows(inbox):
    text = inbox.config_path.read_text()
    inbox.write_config(text.replace("?queues", "?hold_timeout=1&queues"))
    put(inbox, "order.sick", range(COUNT))
    consumer = inbox.start_consumer()
    shops.until(lambda: failed(inbox) == COUNT, consumer.log, 60, 0.1)
    headers = [json.loads(line) for line in inbox.ask(
        "SELECT headers FROM messenger_messages WHERE queue_name = "
        "'orders.retry'").splitlines()]
    assert len(headers) == COUNT
    assert "order.sick" in json.dumps(headers)
    assert inbox.client.count("limited") == 0
    inbox.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL)")
    inbox.ask("UPDATE messenger_messages SET available_at = created_at")
    await_bodies(inbox, consumer, "absent", COUNT)
    end(inbox, consumer)
    assert failed(inbox) == 0


def test_a_node_that_falls_silent_is_said_though_nothing_is_to_be_done(
        tmp_path, vhost, port):  # noqa: F811
    world = worlds.World(tmp_path, databases.SQLite(tmp_path), vhost)
    world.declare_queue("limited")
    world.ask("CREATE TABLE effects (body VARCHAR(30) NOT NULL)")
    world.ask("CREATE TABLE absent (body VARCHAR(30) NOT NULL)")
    try:
        with servers.Proxy(int(os.environ["SKR_RABBITMQ_PORT"])) as proxy:
            set_sick(world, SICK_SQL, replace=[
                (world.broker, proxy.url(world.broker)),
                ("?queues", "?heartbeat=1&connect_timeout=1&queues")])
            world.check("setup")
            consumer = world.start_consumer(f"--metrics-port={port}")
            shops.until(lambda: get(port, "/readyz")[0] == 200, consumer.log)
            proxy.hold()
            shops.until(lambda: get(port, "/readyz")[0] == 503, consumer.log)
            consumer.wait_for("consumer.trouble")
            proxy.resume()
            shops.until(lambda: get(port, "/readyz")[0] == 200, consumer.log)
            put(world, "order.placed", [1])
            await_bodies(world, consumer, "effects", 1)
            end(world, consumer)
    finally:
        world.leave()
