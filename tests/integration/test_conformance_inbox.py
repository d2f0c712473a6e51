"""The numbered list of test_conformance_list.py: the part that consumes, from a
real RabbitMQ into each database."""
import json
import uuid

import pytest

import shop as shops
import symfony_messages
import symfony_rows as symfony

CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    orders:
        dsn: '{broker}?queues[orders]=&prefetch_count=1'
        options: {{auto_setup: false}}
        retry_strategy: {{max_retries: {max_retries}, delay: 1}}
    failed: 'doctrine://default?queue_name=failed'
message_broker:
    inbox:
        message_types:
            order.placed: 'App\\Event\\OrderPlaced'
        deduplication: {{auto_setup: true}}
handlers:
    order.placed:
        sql: >
            INSERT INTO effects (message_id, body) VALUES
            (:id_text, {body})
"""
# Fails so many times, then succeeds.
FAILS_FIRST = "CASE WHEN :headers LIKE '%retryCount__:{}%' THEN :body END"


@pytest.fixture
def inbox(any_world):
    world = any_world
    configure(world)
    world.check("setup")
    world.declare_queue("orders")
    world.ask("CREATE TABLE effects (message_id VARCHAR(36), "
              "body VARCHAR(2000) NOT NULL)")
    return world


def configure(world, body=":body", max_retries=0):
    world.set_config(CONFIG, body=body, max_retries=max_retries)


def identity(number):
    return str(uuid.UUID(int=number + (1 << 100)))


def publish(world, *numbers, body=b'{"orderId":1}', **headers):
    for number in numbers:
        world.client.publish("", "orders", body, {
            "type": ("S", "order.placed"),
            "X-Message-Id": ("S", identity(number)), **headers})
    world.client.confirm()


def consume(world):
    world.check("consume", "orders", "--stop-when-empty")
    assert world.client.count("orders") == 0


def effects(world):
    return world.ask("SELECT message_id FROM effects ORDER BY message_id") \
        .split()


def remembered(world):
    return int(world.ask("SELECT COUNT(*) FROM message_broker_deduplication"))


def expect_only(world, *numbers):
    assert effects(world) == [identity(number) for number in sorted(numbers)]
    assert remembered(world) == len(numbers)
    assert world.failed() == []


def test_v13_a_new_id_is_no_duplicate(inbox):
    publish(inbox, 1)
    consume(inbox)
    expect_only(inbox, 1)


def test_v14_the_same_id_is_a_duplicate(inbox):
    publish(inbox, 1)
    consume(inbox)
    publish(inbox, 1)
    consume(inbox)
    expect_only(inbox, 1)


def test_v15_different_ids_are_independent(inbox):
    publish(inbox, 1, 2, 1, 3, 2)
    consume(inbox)
    expect_only(inbox, 1, 2, 3)


def test_v16_the_row_has_the_binary_id_the_class_and_the_time(inbox):
    publish(inbox, 1)
    consume(inbox)
    digits, now, minute = {
        "sqlite": ("HEX(message_id)", "datetime('now')",
                   "datetime('now', '-60 seconds')"),
        "mysql": ("HEX(message_id)", "UTC_TIMESTAMP()",
                    "UTC_TIMESTAMP() - INTERVAL 60 SECOND"),
        "postgresql": ("encode(message_id, 'hex')", "timezone('UTC', now())",
                       "timezone('UTC', now()) - interval '60 seconds'"),
    }[inbox.database.dialect]
    stored, name, is_recent = inbox.ask(
        f"SELECT {digits}, message_name, CASE WHEN processed_at BETWEEN "
        f"{minute} AND {now} THEN 1 ELSE 0 END "
        "FROM message_broker_deduplication").split("\t")
    assert uuid.UUID(stored) == uuid.UUID(identity(1))
    assert (name, is_recent) == (symfony.CLASS, "1")


def test_v27_consuming_handles_remembers_and_empties_the_queue(inbox):
    publish(inbox, *range(20))
    consume(inbox)
    expect_only(inbox, *range(20))


def test_v28_a_duplicate_is_acknowledged_and_not_handled(inbox):
    publish(inbox, 1, 1, 1)
    consume(inbox)
    expect_only(inbox, 1)


@pytest.mark.parametrize("kind", symfony_messages.MESSAGES)
def test_v29_what_symfony_and_freyr_publish_finds_its_handler(inbox, kind):
    """By the name, or by the class that message_types maps to it."""
    configure(inbox, max_retries=3)
    message_id, headers, properties, body = symfony_messages.MESSAGES[kind]
    inbox.client.publish("", "orders", body.encode(), headers,
                         **symfony_messages.PROPERTIES, **properties)
    inbox.client.confirm()
    consume(inbox)
    assert effects(inbox) == [message_id]
    assert inbox.failed() == []


def test_v30_values_reach_the_handler_as_they_were_published(inbox):
    body = symfony.BODIES["bus"]
    publish(inbox, 1, body=body.encode())
    consume(inbox)
    assert inbox.ask("SELECT body FROM effects") == body


@pytest.mark.parametrize("value", ["17", "", "not-a-uuid", "0" * 31])
def test_v31_an_invalid_id_is_refused_and_not_remembered(inbox, value):
    publish(inbox, 1, **{"X-Message-Id": ("S", value)})
    consume(inbox)
    assert effects(inbox) == [] and remembered(inbox) == 0
    assert len(inbox.failed()) == 1


def test_v32_a_type_without_a_handler_is_refused(inbox):
    publish(inbox, 1, type=("S", "order.unknown"))
    publish(inbox, 2, type=("S", "App\\Event\\Unknown"))
    consume(inbox)
    assert effects(inbox) == [] and remembered(inbox) == 0
    assert len(inbox.failed()) == 2


def test_v33_a_duplicate_waits_for_the_first_and_steps_in(inbox):
    """The first has it in an open transaction; it dies, and its effect with
    it."""
    publish(inbox, 1, 1)
    first = inbox.hold_at("consumer.handled", "consume", "orders")
    second = inbox.start_consumer()
    second.wait_for(r"consumer\.ready")
    shops.until(lambda: inbox.client.count("orders") == 0, second.log)
    assert effects(inbox) == []
    first.kill()
    shops.until(lambda: effects(inbox), second.log)
    assert second.stop() == 0
    consume(inbox)
    expect_only(inbox, 1)


def test_v34_a_handler_that_fails_is_not_remembered(inbox):
    configure(inbox, body="NULL")
    publish(inbox, 1)
    consume(inbox)
    assert effects(inbox) == [] and remembered(inbox) == 0
    assert len(inbox.failed()) == 1


def expect_success_after(world, failures):
    configure(world, body=FAILS_FIRST.format(failures), max_retries=failures)
    publish(world, 1)
    consumer = world.start_consumer("-v")
    shops.until(lambda: effects(world), consumer.log)
    assert consumer.stop() == 0
    assert len(consumer.events("consumer.retry")) == failures
    consume(world)
    expect_only(world, 1)


def test_v35_success_after_a_retry_is_remembered(inbox):
    expect_success_after(inbox, 1)


def test_v36_three_failures_and_then_a_success(inbox):
    expect_success_after(inbox, 3)


def test_v36_with_a_retry_less_it_fails_for_good(inbox):
    configure(inbox, body=FAILS_FIRST.format(3), max_retries=2)
    publish(inbox, 1)
    consumer = inbox.start_consumer()
    shops.until(lambda: [row for row in inbox.failed()
                         if row[2].startswith("failed")], consumer.log)
    assert consumer.stop() == 0
    assert effects(inbox) == [] and remembered(inbox) == 0


def test_v37_two_workers_get_different_messages(inbox):
    publish(inbox, *range(10))
    held = inbox.hold_at("consumer.received", "consume", "orders")
    other = inbox.start_consumer()
    shops.until(lambda: len(effects(inbox)) == 9, other.log)
    held.kill()
    shops.until(lambda: len(effects(inbox)) == 10, other.log)
    assert other.stop() == 0
    expect_only(inbox, *range(10))


def test_v38_a_second_worker_skips_what_the_first_has_committed(inbox):
    publish(inbox, 1, 1)
    first = inbox.hold_at("consumer.committed", "consume", "orders")
    second = inbox.start_consumer("-vv")
    second.wait_for(r"consumer\.duplicate ")
    first.kill()
    assert second.stop() == 0
    consume(inbox)
    expect_only(inbox, 1)


def test_v39_what_another_has_recorded_is_a_duplicate(inbox):
    """As a PHP consumer on the same table does."""
    consume(inbox)
    digits = uuid.UUID(identity(1)).hex
    inbox.ask("INSERT INTO message_broker_deduplication "
              "(message_id, message_name, processed_at) VALUES (" +
              {"postgresql": f"decode('{digits}', 'hex')"}
              .get(inbox.database.dialect, f"X'{digits}'") +
              ", 'App\\Event\\OrderPlaced', CURRENT_TIMESTAMP)")
    publish(inbox, 1, 2)
    consume(inbox)
    assert effects(inbox) == [identity(2)]
    assert remembered(inbox) == 2
    assert inbox.failed() == []


def test_v53_what_cannot_be_decoded_is_kept_with_the_reason(inbox):
    publish(inbox, 1, type=("I", 7))
    inbox.client.publish("", "orders", b"{}")
    inbox.client.confirm()
    publish(inbox, 2)
    consume(inbox)
    assert effects(inbox) == [identity(2)]
    reasons = [json.loads(headers[symfony.ERROR_STAMP])[0]["exceptionMessage"]
               for _, headers, _ in inbox.failed()]
    assert len(reasons) == 2 and all(reasons)
