"""Names that the world gives its messages: topics, classes, plain words. Which
handler is theirs, and what becomes of those that have none."""
import json
import uuid

import pytest

import shop as shops

NOTE = "{sql: \"INSERT INTO effects (order_id, name) VALUES ('%s', :name)\"}"


def configure(shop, handlers, types=None, transport=""):
    """handlers: what each notes, by its name in the configuration."""
    lines = [f"    {json.dumps(name)}: {NOTE % note}\n"
             for name, note in handlers.items()]
    shop.configure(replace=[
        ("        database: billing\n",
         "        database: billing\n" +
         ("" if types is None else
          f"        message_types: {json.dumps(types)}\n")),
        ("delay: 1}\n", "delay: 1}\n" + transport)])
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("handlers:\n")] + "handlers:\n" +
                      "".join(lines))


def send(shop, name, **headers):
    """A message in the queue, as another program writes it; its id."""
    message_id = str(uuid.uuid4())
    shops.write_row(
        shop.open("queue"), "{}",
        json.dumps({"type": name, "X-Message-Id": message_id, **headers}),
        table="messenger_messages", queue="orders")
    return message_id


def noted(shop):
    return sorted(shop.query("billing", "SELECT order_id, name FROM effects"))


def test_any_name_has_a_handler(ready_shop):
    shop = ready_shop
    names = ["orders", "OrderPlaced", "order_placed", "order.placed",
             "App\\Message\\OrderPlaced", "shop/orders-v2", "Größe"]
    configure(shop, {name: f"by {number}"
                     for number, name in enumerate(names)})
    shop.check("config", "check")
    shown = shop.check("config", "show")
    for name in names:
        send(shop, name)
    assert shop.consume_all().returncode == 0
    assert noted(shop) == [(f"by {number}", name)
                           for number, name in enumerate(names)]
    assert not shop.failed()
    # What is shown can be loaded again.
    shop.write_config(shown)
    shop.check("config", "check")


def test_a_name_goes_before_a_pattern_and_the_longest_pattern_wins(ready_shop):
    shop = ready_shop
    configure(shop, {"*": "default", "order.*": "orders",
                     "order.placed.*": "placed", "order.placed.v2": "v2",
                     "App\\Message\\*": "class"})
    shop.check("config", "check")
    expected = {"order.placed.v2": "v2", "order.placed.v1": "placed",
                "order.paid": "orders", "order.paid.late": "orders",
                "App\\Message\\Paid": "class", "stock": "default"}
    for name in expected:
        send(shop, name)
    assert shop.consume_all().returncode == 0
    assert dict((name, note) for note, name in noted(shop)) == expected


def test_a_class_has_a_handler_under_its_own_name_or_its_message_name(
        ready_shop):
    shop = ready_shop
    configure(shop, {"App\\Message\\OrderPlaced": "class", "order.paid": "name"},
              types={"order.placed": "App\\Message\\OrderPlaced",
                     "order.paid": "OrderPaid"})
    send(shop, "App\\Message\\OrderPlaced")
    send(shop, "order.placed")
    send(shop, "OrderPaid")
    send(shop, "order.paid")
    assert shop.consume_all().returncode == 0
    assert noted(shop) == [("class", "order.placed"), ("class", "order.placed"),
                           ("name", "order.paid"), ("name", "order.paid")]
    assert not shop.failed()


def test_a_known_type_may_be_handled_by_a_pattern(ready_shop):
    shop = ready_shop
    configure(shop, {"order.*": "orders"}, types={"order.placed": "Placed"})
    send(shop, "Placed")
    assert shop.consume_all().returncode == 0
    assert noted(shop) == [("orders", "order.placed")]


@pytest.mark.parametrize("name, says", [
    ("", "it is empty"),
    (" orders", "a blank at its beginning or end"),
    ("order\tplaced", "a control character"),
    ("order.#", "'#' stands for itself; write * for any number of characters"),
    ("x" * 256, "longer than 255 bytes")])
def test_a_name_that_no_message_has_is_a_mistake(ready_shop, name, says):
    configure(ready_shop, {name: "x"})
    result = ready_shop.run("config", "check")
    assert result.returncode == 3, result.stdout
    assert says in result.stdout


@pytest.mark.parametrize("types, says", [
    ({"order.*": "OrderPlaced"}, "* stands for no name here"),
    ({"order.placed": ""}, "not an empty text"),
    ({"order.placed": "A\tB"}, "a control character"),
    ({"order.placed": "Order", "order.paid": "Order"},
     "'Order' is the type of 'order.placed' and of 'order.paid'")])
def test_message_types_name_one_message_each(ready_shop, types, says):
    configure(ready_shop, {"*": "x"}, types=types)
    result = ready_shop.run("config", "check")
    assert result.returncode == 3, result.stdout
    assert says in result.stdout


FLOOD = 300


def test_a_flood_of_unknown_messages_is_one_line_and_a_count(ready_shop):
    shop = ready_shop
    for number in range(FLOOD):
        send(shop, f"stock.moved{number}")
    result = shop.consume_all()
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    failed = [line for line in lines if " consumer.failed " in line]
    more = [line for line in lines if " consumer.unhandled_more " in line]
    assert len(failed) + len(more) <= 4, result.stderr
    assert "no handler" in failed[0]
    told = sum(int(line.split("deliveries=")[1].split()[0]) for line in more)
    assert len(failed) + told == FLOOD
    assert len(shop.failed()) == FLOOD


def test_failure_limit_ends_a_consumer_of_unknown_messages(ready_shop):
    shop = ready_shop
    shop.configure(replace=[("delay: 1}\n", "delay: 1}\n        batch: 5\n")])
    for _ in range(50):
        send(shop, "stock.moved")
    assert shop.run("consume", "orders", "--failure-limit=10").returncode == 0
    assert 10 <= len(shop.failed()) <= 20
    assert len(shop.failed()) + shop.count("queue", "messenger_messages") == 50


def test_failures_of_one_handler_are_bounded_and_others_go_on(ready_shop):
    """failure_limit of a transport holds for its consumers."""
    shop = ready_shop
    configure(shop, {"order.placed": "orders", "order.bad": "x"},
              transport="        failure_limit: 5\n")
    text = shop.config_path.read_text()
    shop.write_config(text.replace("max_retries: 3", "max_retries: 0"))
    connection = shop.open("billing")
    connection.execute("CREATE TRIGGER refuse BEFORE INSERT ON effects WHEN "
                       "NEW.order_id = 'x' BEGIN SELECT "
                       "RAISE(ABORT, 'no such order'); END")
    connection.commit()
    for _ in range(30):
        send(shop, "order.bad")
    consumer = shop.start("consume", "orders")
    consumer.wait_for(r"consumer.trouble.*5 messages of order.bad failed within "
                      r"a minute, and none succeeded \(failure_limit\): "
                      r".*no such order")
    for _ in range(20):
        send(shop, "order.placed")
    shops.until(lambda: len(noted(shop)) == 20, consumer.log)
    assert consumer.stop() == 0
    assert len(shop.failed()) == 5
    assert shop.count("queue", "messenger_messages") == 25
    assert len(consumer.events("consumer.failed")) == 5
    assert len(consumer.events("consumer.trouble")) == 1


def test_what_nobody_handles_can_be_ignored(ready_shop):
    shop = ready_shop
    configure(shop, {"order.placed": "orders"},
              types={"stock.moved": "App\\StockMoved"},
              transport="        unhandled: ignore\n")
    shop.check("config", "check")
    send(shop, "order.placed")
    ids = [send(shop, "stock.moved") for _ in range(20)]
    # One that no handler is for need not be understood any further.
    shops.write_row(shop.open("queue"), "{}", '{"type":"stock"}',
                    table="messenger_messages", queue="orders")
    result = shop.consume_all("-vv")
    assert result.returncode == 0
    assert shop.count("queue", "messenger_messages") == 0
    assert not shop.failed()
    assert noted(shop) == [("orders", "order.placed")]
    assert shop.count("billing", "message_broker_deduplication") == 1
    for message_id in ids:
        assert message_id in result.stderr
    stopped, = [line for line in result.stderr.splitlines()
                if " consumer.stopped " in line]
    assert "handled=1 " in stopped
    assert "ignored=21" in stopped


def test_what_nobody_handles_can_wait_for_its_handler(ready_shop):
    shop = ready_shop
    configure(shop, {"order.placed": "orders"},
              transport="        unhandled: wait\n")
    waiting = [send(shop, "stock.moved") for _ in range(5)]
    consumer = shop.start_consumer("-vv")
    for message_id in waiting:
        consumer.wait_for(f"consumer.unhandled .*{message_id}")
    send(shop, "order.placed")
    shops.until(lambda: noted(shop) == [("orders", "order.placed")],
                "the message behind those that wait")
    # Each was looked at once, and put back for a while.
    assert len(consumer.events("consumer.unhandled")) == len(waiting)
    assert consumer.stop() == 0
    assert shop.count("queue", "messenger_messages") == len(waiting)
    assert not shop.failed()
    configure(shop, {"order.placed": "orders", "stock.*": "stock"},
              transport="        unhandled: wait\n")
    # As if the time had come.
    shop.open("queue").execute(
        "UPDATE messenger_messages SET available_at = datetime('now')")
    result = shop.consume_all("-vv")
    assert result.returncode == 0
    assert noted(shop).count(("stock", "stock.moved")) == len(waiting)
    assert "consumer.retry" not in result.stderr


def test_unhandled_is_one_of_three_words(ready_shop):
    configure(ready_shop, {"order.placed": "x"},
              transport="        unhandled: drop\n")
    result = ready_shop.run("config", "check")
    assert result.returncode == 3
    assert "transports.orders.unhandled" in result.stdout
    assert "fail, ignore or wait" in result.stdout


def test_each_message_is_seen_with_its_id(ready_shop):
    shop = ready_shop
    configure(shop, {"order.placed": "orders",
                     "order.broken": "x', json('no') ) -- "})
    text = shop.config_path.read_text()
    shop.write_config(text.replace("max_retries: 3", "max_retries: 1"))
    good, bad = send(shop, "order.placed"), send(shop, "order.broken")
    consumer = shop.start_consumer("-vv")
    consumer.wait_for(f"consumer.handled .*id={good}")
    retry = consumer.wait_for("consumer.retry .*").group()
    assert f"id={bad}" in retry
    consumer.wait_for(f"consumer.failed .*id={bad}")
    assert consumer.stop() == 0
    stopped, = consumer.events("consumer.stopped")
    for field in ("name=orders", "handled=1", "retried=1", "failed=1"):
        assert field in stopped
