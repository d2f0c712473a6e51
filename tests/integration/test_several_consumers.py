"""One process with several consumers, of one transport and of several."""
import json

import pytest

import shop as shops

ORDERS = 200
SECOND = ("    failed:\n",
          "    bills:\n"
          "        dsn: 'queue://queue?queue_name=bills'\n"
          "        options: {auto_setup: true}\n"
          "    failed:\n")


def fill(shop, queue, count, first=1):
    """Orders that stand in the queue already."""
    connection = shop.open("queue")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(first, first + count):
        shops.write_row(
            connection, json.dumps({"orderId": f"order-{number}"}),
            shops.id_headers(f"01932b6e-7c00-7000-8000-{number:012d}"),
            table="messenger_messages", queue=queue)
    connection.execute("COMMIT")


def expect_effects(shop, count):
    effects = shop.effects()
    assert len(effects) == len(set(effects)) == count


def test_consumers_share_a_queue_and_stop_together(ready_shop):
    shop = ready_shop
    fill(shop, "orders", ORDERS)
    consumer = shop.start_consumer("--consumers=4", "-v")
    shop.wait_until_consumed()
    shops.until(lambda: len(consumer.events("consumer.ready")) == 4,
                "four consumers")
    assert consumer.stop() == 0
    expect_effects(shop, ORDERS)


def test_several_transports_are_consumed_by_one_process(ready_shop):
    shop = ready_shop
    shop.configure(replace=[SECOND])
    fill(shop, "orders", ORDERS)
    fill(shop, "bills", ORDERS, first=ORDERS + 1)
    consumer = shop.start("consume", "orders", "bills", "--consumers=2", "-v")
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    assert len(consumer.events("consumer.ready")) == 4
    expect_effects(shop, 2 * ORDERS)


@pytest.mark.parametrize("deduplication, handled", [
    # A consumer that used the shared table before, one that is new, and one that
    # goes on to share it.
    ("{table_name: bills_seen}", ORDERS // 2),
    ("{table_name: bills_seen, read_default: false}", ORDERS),
    (None, 0)])
def test_two_queues_that_get_the_same_messages(ready_shop, deduplication,
                                               handled):
    shop = ready_shop
    fill(shop, "orders", ORDERS // 2)
    fill(shop, "bills", ORDERS)
    assert shop.consume_all().returncode == 0
    # A while ago: the moment in which a table took over is told to the second.
    shop.open("billing").execute(
        "UPDATE message_broker_deduplication SET processed_at = "
        "datetime('now', '-1 hour')")
    own = "" if deduplication is None else \
        f"        deduplication: {deduplication}\n"
    shop.configure(replace=[(SECOND[0], SECOND[1].replace(
        "    failed:\n", own + "    failed:\n"))])
    shop.check("setup-deduplication", "--force")
    # What others record from now on does not count.
    fill(shop, "orders", ORDERS // 2, first=ORDERS // 2 + 1)
    assert shop.consume_all().returncode == 0
    result = shop.run("consume", "bills", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    # Only where the file does not say that it is meant.
    assert ("consumer.inherits" in result.stderr) == \
        (deduplication == "{table_name: bills_seen}"), result.stderr
    assert shop.count("queue", "messenger_messages") == 0
    assert len(shop.effects()) == ORDERS + handled
    assert shop.failed() == []


def test_stop_when_empty_waits_for_the_last(ready_shop):
    shop = ready_shop
    shop.configure(replace=[SECOND])
    fill(shop, "bills", ORDERS)
    shop.check("consume", "orders", "bills", "--stop-when-empty")
    expect_effects(shop, ORDERS)


@pytest.mark.parametrize("limit", [1, 50, 150])
def test_the_limit_counts_for_all_together(ready_shop, limit):
    shop = ready_shop
    shop.configure(replace=[SECOND])
    fill(shop, "orders", ORDERS)
    shop.check("consume", "orders", "bills", "--consumers=3",
               f"--limit={limit}")
    expect_effects(shop, limit)
    assert shop.count("queue", "messenger_messages") == ORDERS - limit
    # What was received too many is free again, and costs no attempt.
    assert shop.count("queue", "messenger_messages",
                      "delivered_at IS NOT NULL") == 0
    assert shop.count("queue", "messenger_messages",
                      "headers LIKE '%RedeliveryStamp%'") == 0


def test_the_time_limit_ends_them_all(ready_shop):
    shop = ready_shop
    consumer = shop.start_consumer("--consumers=3", "--time-limit=1", "-v")
    assert consumer.end() == 0
    assert len(consumer.events("limit.time")) == 1


def test_the_memory_limit_ends_them_all(ready_shop):
    shop = ready_shop
    consumer = shop.start_consumer("--consumers=3", "--memory-limit=1K", "-v")
    assert consumer.end() == 0
    assert len(consumer.events("limit.memory")) == 1


def test_the_failure_limit_counts_for_all_together(ready_shop):
    shop = ready_shop
    connection = shop.open("queue")
    for number in range(20):
        shops.write_row(
            connection, "{}", shops.id_headers(
                f"01932b6e-7c00-7000-8000-{number:012d}", type="order.lost"),
            table="messenger_messages", queue="orders")
    consumer = shop.start_consumer("--consumers=2", "--failure-limit=5")
    assert consumer.end() == 0
    # Those in hand are finished, and nothing is lost.
    kept = len(shop.failed())
    assert kept >= 5
    assert kept + shop.count("queue", "messenger_messages") == 20


def test_the_mistake_of_one_does_not_stop_another(ready_shop):
    shop = ready_shop
    shop.configure(replace=[(SECOND[0], SECOND[1].replace(
        "queue_name=bills", "queue_name=bills&table_name=nowhere").replace(
        "auto_setup: true", "auto_setup: false"))])
    consumer = shop.start("consume", "bills", "orders", "-v")
    consumer.wait_for("consumer.trouble name=bills")
    fill(shop, "orders", 20)
    shop.wait_until_consumed()
    expect_effects(shop, 20)
    assert consumer.stop() == 0
    assert "nowhere" in consumer.log()


def test_outboxes_and_queues_are_not_mixed(ready_shop):
    result = ready_shop.run("consume", "orders", "outbox")
    assert result.returncode == 1
    assert "skirnir relay" in result.stderr


def test_a_killed_process_leaves_nothing_undone(ready_shop):
    shop = ready_shop
    fill(shop, "orders", ORDERS)
    held = shop.hold_at("consumer.committed", "consume", "orders",
                        "--consumers=3", visit=3)
    held.kill()
    consumer = shop.start_consumer("--consumers=3")
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    expect_effects(shop, ORDERS)
    assert shop.failed() == []
