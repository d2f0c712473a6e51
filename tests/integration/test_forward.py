"""The inbox with two hops: a consumer puts each message into a queue table
once, and handlers work that queue."""
import base64
import json
import uuid

import pytest

import shop as shops

MESSAGES = 12
CONFIG = """\
databases:
    default: '{database}'
transports:
    orders:
        dsn: '{broker}?queues[{queue}]='
        options: {{auto_setup: false}}
        forward_to: inbox
    near:
        dsn: 'queue://default?queue_name=near&redeliver_timeout=3'
        forward_to: inbox
    inbox: 'queue://default?queue_name=inbox&redeliver_timeout=3'
handlers:
    order.placed:
        sql: >
            INSERT INTO effects (message_id, body, headers)
            VALUES (:id_text, :body, :headers)
"""
RECORDS = ["message_broker_deduplication",
           "message_broker_deduplication_forward"]
# A message waits in a broker; it is forwarded once, and handled once.
HOPS = ["consumer.received", "consumer.handled", "consumer.committed",
        "consumer.acked"]


@pytest.fixture
def inbox(any_world):
    any_world.set_config(CONFIG, queue="orders")
    any_world.declare_queue("orders")
    any_world.check("setup")
    any_world.check("setup-deduplication", "--force")
    any_world.ask("CREATE TABLE effects (message_id VARCHAR(36) NOT NULL, "
                  "body VARCHAR(90), headers VARCHAR(2000))")
    return any_world


def number(world, table, condition="1 = 1"):
    return int(world.ask(f"SELECT COUNT(*) FROM {table} WHERE {condition}"))


def publish(world, count=MESSAGES, **headers):
    """Each of them twice."""
    ids = [str(uuid.uuid4()) for _ in range(count)]
    for at, identity in enumerate(ids * 2):
        world.client.publish(
            "", "orders", json.dumps({"n": at % count}).encode(),
            {"type": ("S", "order.placed"), "X-Message-Id": ("S", identity),
             **headers})
    world.client.confirm()
    return ids


def consume(world, *names):
    """Until nothing is left. No lease of a killed consumer is waited for."""
    world.ask("UPDATE messenger_messages SET delivered_at = NULL")
    consumer = world.start("consume", *names)
    shops.until(lambda: number(world, "effects") >= MESSAGES,
                lambda: consumer.log())
    shops.until(lambda: number(world, "messenger_messages") == 0,
                lambda: consumer.log())
    assert consumer.stop() == 0, consumer.log()
    # Duplicates may have been in hand beside the last message: they are back.
    world.check("consume", *names, "--stop-when-empty")


def expect_once(world, ids):
    assert sorted(world.ask("SELECT message_id FROM effects").split()) == \
        sorted(ids)
    assert [number(world, table) for table in RECORDS] == [len(ids)] * 2
    assert number(world, "messenger_messages") == 0
    assert world.client.count("orders") == 0


def test_a_message_passes_unchanged(inbox):
    """But for what hop one adds where the id stood beside the headers."""
    stamp = '[{"partitionKey":"customer-7"}]'
    name = r"X-Message-Stamp-Freyr\MessageBroker\Outbox\PartitionKeyStamp"
    identity = str(uuid.uuid4())
    given = {"type": "order.placed", name: stamp, "colour": "blue \u2603"}
    inbox.client.publish(
        "", "orders", '{"n": "\u2603"}'.encode(),
        {key: ("S", value) for key, value in given.items()},
        message_id=identity, content_type="application/json; v=2")
    inbox.client.confirm()
    inbox.check("consume", "orders", "--stop-when-empty")
    body, headers, queue = inbox.failed()[0]
    assert (body, queue) == ('{"n": "\u2603"}', "inbox")
    assert headers == {**given, "X-Message-Id": identity,
                       "Content-Type": "application/json; v=2"}
    assert number(inbox, "effects") == 0
    inbox.check("consume", "inbox", "--stop-when-empty")
    assert json.loads(inbox.ask("SELECT headers FROM effects")) == headers
    expect_once(inbox, [identity])


def test_what_is_no_text_is_kept_whole_and_others_pass(inbox):
    """A queue table holds text: such a body is a dead letter of the first hop,
    as base64, and is never in the queue."""
    raw = b"\xff\x00\xfe order"
    inbox.client.publish("", "orders", raw, {
        "type": ("S", "order.placed"), "X-Message-Id": ("S", str(uuid.uuid4()))})
    ids = publish(inbox, 1)
    inbox.check("consume", "orders", "--stop-when-empty")
    bodies = {body: queue for body, _, queue in inbox.failed()}
    assert bodies == {'{"n": 0}': "inbox",
                      base64.b64encode(raw).decode(): "failed.skirnir"}
    inbox.ask("DELETE FROM messenger_messages WHERE "
              "queue_name = 'failed.skirnir'")
    inbox.check("consume", "inbox", "--stop-when-empty")
    expect_once(inbox, ids)


@pytest.mark.parametrize("way, bodies", [("fail", []), ("derive", ["1", "2"])])
def test_a_message_without_an_id_is_forwarded_where_one_is_derived(
        inbox, way, bodies):
    """From a queue table, where its place gives it one, which it keeps."""
    inbox.set_config(CONFIG, queue="orders", replace=[
        ("        forward_to: inbox\n    inbox",
         f"        forward_to: inbox\n        missing_id: {way}\n    inbox")])
    inbox.write(*((body, '{"type":"order.placed"}') for body in "12"),
                queue="near", table="messenger_messages")
    inbox.check("consume", "near", "--stop-when-empty")
    stored = [(body, headers) for body, headers, queue in inbox.failed()
              if queue == "inbox"]
    assert sorted(body for body, _ in stored) == bodies
    assert len(inbox.failed()) == 2
    ids = sorted(headers["X-Message-Id"] for _, headers in stored)
    inbox.check("consume", "inbox", "--stop-when-empty")
    assert sorted(inbox.ask("SELECT message_id FROM effects").split()) == ids
    assert number(inbox, RECORDS[0]) == number(inbox, RECORDS[1]) == len(ids)


@pytest.mark.alike
@pytest.mark.parametrize("hop", ["orders", "inbox"])
@pytest.mark.parametrize("failpoint", HOPS)
def test_a_kill_in_either_hop_costs_nothing(inbox, failpoint, hop):
    ids = publish(inbox)
    if hop == "inbox":
        inbox.check("consume", "orders", "--stop-when-empty")
    inbox.hold_at(failpoint, "consume", hop).kill()
    consume(inbox, "orders", "inbox")
    expect_once(inbox, ids)


@pytest.mark.alike
@pytest.mark.parametrize("failpoint", HOPS)
def test_a_kill_before_a_queue_is_empty_costs_nothing(inbox, failpoint):
    """The first hop reads a queue table of the same database."""
    ids = [str(uuid.uuid4()) for _ in range(MESSAGES)]
    inbox.write(*((json.dumps({"n": 1}), json.dumps(
        {"type": "order.placed", "X-Message-Id": identity}))
        for identity in ids * 2), queue="near", table="messenger_messages")
    inbox.hold_at(failpoint, "consume", "near").kill()
    consume(inbox, "near", "inbox")
    expect_once(inbox, ids)


def test_what_cannot_be_stored_waits_and_has_its_tries_left(inbox):
    """A queue that is gone is no fault of a message; it is not made again by
    a consumer that runs, and the message is stored when it is back."""
    consumer = inbox.start("consume", "orders")
    consumer.wait_for(r"consumer\.ready")
    inbox.ask("ALTER TABLE messenger_messages RENAME TO away")
    ids = publish(inbox, MESSAGES)
    consumer.wait_for(r"consumer\.trouble.*messenger_messages")
    inbox.ask("ALTER TABLE away RENAME TO messenger_messages")
    shops.until(lambda: number(inbox, "messenger_messages") == MESSAGES,
                lambda: consumer.log())
    assert consumer.stop() == 0
    assert all("RedeliveryStamp" not in json.dumps(headers)
               for _, headers, _ in inbox.failed())
    consume(inbox, "inbox")
    expect_once(inbox, ids)


def test_without_its_record_table_nothing_is_forwarded(inbox):
    inbox.ask(f"DROP TABLE {RECORDS[1]}")
    publish(inbox, 1)
    result = inbox.run("consume", "orders", "--stop-when-empty")
    assert result.returncode != 0
    assert f"{RECORDS[1]} does not exist; create it with `skirnir " \
        "setup-deduplication --force`" in result.stderr
    assert inbox.client.count("orders") == 2
