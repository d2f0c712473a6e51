"""What people see of a worker: how it starts, and each message that it moves."""
import json
import re

import shop as shops

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def started(program, event, name):
    line, = [line for line in program.events(event) if f" name={name} " in line]
    return dict(re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))


def version(shop):
    return shop.check("--version").split()[1]


def test_a_relay_says_what_it_moves_from_where_to_where(ready_shop):
    relay = ready_shop.start_relay()
    relay.wait_for("relay.active")
    fields = started(relay, "relay.started", "outbox")
    assert fields["version"] == version(ready_shop)
    assert fields["file"].endswith("skirnir.yaml")
    assert fields["source"] == \
        f'"{ready_shop.url("shop")} messenger_outbox/outbox"'
    assert fields["destination"] == \
        f'"orders {ready_shop.url("queue")} messenger_messages/orders"'
    assert relay.stop() == 0


def test_consumers_say_what_they_read_and_where_they_write(ready_shop):
    consumer = ready_shop.start_consumer("--consumers=2")
    consumer.wait_for("consumer.ready")
    fields = started(consumer, "consumer.started", "orders")
    assert fields["version"] == version(ready_shop)
    assert fields["file"].endswith("skirnir.yaml")
    assert fields["source"] == \
        f'"{ready_shop.url("queue")} messenger_messages/orders"'
    assert fields["destination"] == ready_shop.url("billing")
    assert fields["consumers"] == "2"
    assert consumer.stop() == 0


def test_a_broker_is_named_without_its_password(ready_shop):
    ready_shop.configure(replace=[
        ("relay_to: orders", "relay_to: bills"),
        ("failure_transport:",
         "    bills: 'amqp://app:hush-hush@127.0.0.1:1/%2f/bills'\n"
         "failure_transport:")])
    relay = ready_shop.start_relay()
    relay.wait_for("relay.trouble")
    fields = started(relay, "relay.started", "outbox")
    assert fields["destination"] == \
        '"bills amqp://app:***@127.0.0.1:1/%2f/bills"'
    assert "hush" not in relay.log()
    assert relay.stop() == 0


def test_each_message_is_told_of_with_its_id(ready_shop):
    """By -vv alone, in both commands."""
    published = []
    for number, flag in enumerate([None, "-v", "-vv"], 1):
        ready_shop.place_orders(2, first=2 * number)
        result = ready_shop.relay_all(*([flag] if flag else []))
        assert result.returncode == 0
        published = re.findall(
            rf" debug relay\.published name=outbox message=order\.placed "
            rf"id=({UUID}) row=\d+\n", result.stderr)
        assert len(published) == (2 if flag == "-vv" else 0)
    sent = [row[0] for row in ready_shop.query(
        "queue", "SELECT headers FROM messenger_messages ORDER BY id")]
    assert [message_id in headers for message_id, headers
            in zip(published, sent[-2:])] == [True, True]
    result = ready_shop.consume_all("-vv")
    for message_id in published:
        assert f"id={message_id}" in result.stderr


def test_an_id_that_the_relay_made_is_told_of(ready_shop):
    """A row of a name and a body is a message: its id is derived."""
    shops.write_row(ready_shop.open("shop"), '{"orderId":1}')
    result = ready_shop.relay_all("-vv")
    found = re.search(rf"relay\.published .* id=({UUID}) ", result.stderr)
    assert found
    headers, = ready_shop.query("queue",
                                "SELECT headers FROM messenger_messages")[0]
    assert found.group(1) in headers


def test_a_kafka_relay_says_what_it_moves_from_where_to_where(shop):
    relay = shop.start(
        "kafka-relay", "--db-driver=sqlite", "--db-host=h", "--db-port=1",
        "--db-user=shop", "--db-pass=hush-hush", "--db-name", shop.path("shop"),
        "--kafka-host", "shop:hush-hush@127.0.0.1:1", "--listen=")
    relay.wait_for("kafkarelay.started")
    line, = [line for line in relay.log().splitlines()
             if "kafkarelay.started" in line]
    fields = json.loads(line)
    assert fields["version"] == version(shop)
    assert fields["source"] == shop.url("shop")
    assert fields["brokers"] == "127.0.0.1:1"
    assert "hush" not in relay.log()
    assert relay.stop() == 0


def made(program):
    """Tables that it made: by name of the worker, and in which database."""
    lines = program.events("database.table_made")
    found = []
    for line in lines:
        assert " info " in line
        fields = dict(re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))
        found.append((fields["name"], fields["tables"].strip('"'),
                      fields["database"]))
    return sorted(found)


def test_tables_that_a_worker_makes_are_told_once(shop):
    shop.configure(replace=[
        ("        database: billing",
         "        database: billing\n"
         "        deduplication: {auto_setup: true}")])
    shop.make_effects()
    relay = shop.start_relay()
    relay.wait_for(r"relay\.active")
    assert made(relay) == [
        ("outbox", "messenger_outbox, messenger_messages, skirnir_meta",
         shop.url("shop")),
        ("queue", "messenger_messages, skirnir_meta", shop.url("queue"))]
    assert relay.stop() == 0
    consumer = shop.start_consumer()
    consumer.wait_for(r"consumer\.ready")
    assert made(consumer) == [
        ("orders", "message_broker_deduplication", shop.url("billing")),
        ("orders", "skirnir_attempt", shop.url("billing")),
        ("orders", "skirnir_attempt", shop.url("shop"))]
    assert consumer.stop() == 0
    again = shop.start_relay()
    again.wait_for(r"relay\.active")
    assert again.stop() == 0
    assert made(again) == []
