"""SIGKILL at every place in the source where a crash could hurt: nothing is
lost, effects happen once, and duplicates on the wire are those in flight."""
import json
import re

import pytest

import shop as shops

ORDERS = 200
IN_FLIGHT = 50

# The visit at which the process holds, late enough for several batches to be
# under way, and whether rows must be in flight there.
RELAY_CASES = {
    "relay.read": (3, None),
    "relay.submitted": (3, None),
    "relay.confirmed": (3, True),
    "relay.settling": (2, True),
    "relay.settled": (2, None),
}
# The visit alone; a message that fails is there once.
CONSUMER_CASES = {
    "consumer.received": 3,
    "consumer.handled": 3,
    "consumer.committed": 3,
    "consumer.acked": 3,
    "consumer.storing": 1,
    "consumer.failed_stored": 1,
}


def test_every_failpoint_has_a_case():
    found = set()
    for file in (shops.ROOT / "src").rglob("*.c"):
        found |= set(re.findall(r'skr_failpoint\("([^"]+)"\)',
                                file.read_text()))
    assert found == (RELAY_CASES.keys() | CONSUMER_CASES.keys()
                     | {"consumer.ran_outside"}
                     # Of a cleanup: integration/test_cleanup.py.
                     | {"cleaning.step"}
                     # Of an operator: integration/test_failed.py.
                     | {"failed.stored"}
                     # Of kafka_outbox: test_kafka_relay_order.py.
                     | {"relay.marked"}
                     # Of a broker that cannot delay: its integration tests.
                     | {"consumer.retry_stored"})


@pytest.mark.parametrize("failpoint", RELAY_CASES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_killed_relay_loses_nothing(ready_shop, failpoint, first):
    shop = ready_shop
    visit, has_flight = RELAY_CASES[failpoint]
    shop.place_orders(ORDERS)
    held = shop.hold_at(failpoint, "relay", "outbox",
                        visit=1 if first else visit)
    held.kill()
    in_flight = len(shop.in_flight())
    assert in_flight <= IN_FLIGHT
    assert has_flight is None or (in_flight > 0) == has_flight

    assert shop.relay_all().returncode == 0
    assert shop.duplicates() == in_flight
    assert set(shop.wire()) == shop.orders()
    assert shop.count("shop", "messenger_outbox") == 0
    assert shop.consume_all().returncode == 0
    shop.expect_effects_once()


@pytest.mark.parametrize("failpoint", ["relay.confirmed", "relay.settling"])
def test_relay_killed_again_and_again_moves_on(ready_shop, failpoint):
    """Each life of the relay ends at its first batch; with the one that is
    left alone, all of it arrives."""
    shop = ready_shop
    shop.place_orders(ORDERS)
    in_flight = 0
    for _ in range(5):
        shop.hold_at(failpoint, "relay", "outbox").kill()
        held = len(shop.in_flight())
        assert held <= IN_FLIGHT
        in_flight += held
    assert shop.relay_all().returncode == 0
    assert shop.duplicates() <= in_flight
    assert shop.consume_all().returncode == 0
    shop.expect_effects_once()


def put_failing_message_first(shop):
    """It has no handler."""
    shops.write_row(shop.open("queue"), "{}", shops.id_headers(
        "01932b6e-7c00-7000-8000-00000000ffff", type="order.unknown"),
        table="messenger_messages", queue="orders")


@pytest.mark.parametrize("failpoint", CONSUMER_CASES)
def test_killed_consumer_handles_each_message_once(ready_shop, failpoint):
    shop = ready_shop
    fails = failpoint in ("consumer.storing", "consumer.failed_stored")
    if fails:
        put_failing_message_first(shop)
    shop.place_orders(ORDERS)
    assert shop.relay_all().returncode == 0
    held = shop.hold_at(failpoint, "consume", "orders",
                        visit=CONSUMER_CASES[failpoint])
    held.kill()
    before = len(shop.effects())
    assert before < ORDERS

    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    shop.expect_effects_once()
    assert shop.duplicates() == 0
    assert consumer.stop() == 0
    # What was stored before the kill and not acked is not stored once more.
    failed = shop.failed()
    assert len(failed) == (1 if fails else 0)
    for _, headers, _ in failed:
        assert json.loads(headers)["type"] == "order.unknown"


def test_message_that_kills_its_consumer_ends_in_the_failed_table(ready_shop):
    """Each consumer that takes it dies; the others go their way."""
    shop = ready_shop
    shop.configure(max_retries=1)
    shop.place_orders(1)
    assert shop.relay_all().returncode == 0
    for _ in range(2):
        shop.hold_at("consumer.handled", "consume", "orders").kill()
    shop.place_orders(20, first=2)
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    assert sorted(shop.effects()) == sorted(shop.orders() - {"order-1"})
    (body, headers, _), = shop.failed()
    assert json.loads(body) == {"orderId": "order-1"}
    assert "not handled again after 2 deliveries" in headers


WORKER = """\
import json, sys
print('{"ready":true}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    with open("handled", "a") as file:
        file.write(json.loads(message["body"])["orderId"] + "\\n")
    print(json.dumps({"delivery": message["delivery"], "verdict": "accept"}),
          flush=True)
"""


@pytest.mark.parametrize("visit", [1, 30])
def test_killed_before_a_process_is_recorded_repeats_little(ready_shop, visit):
    """What a process did is recorded after it: a kill in between costs a
    second call for what was not recorded, and no message."""
    shop = ready_shop
    (shop.folder / "worker.py").write_text(WORKER)
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("handlers:")] + "handlers:\n"
                      "    order.placed: {command: [python3, worker.py]}\n")
    shop.place_orders(ORDERS)
    assert shop.relay_all().returncode == 0
    held = shop.hold_at("consumer.ran_outside", "consume", "orders",
                        visit=visit)
    held.kill()
    recorded = shop.count("billing", "message_broker_deduplication")
    handled = (shop.folder / "handled").read_text().split()
    assert len(handled) == visit > recorded

    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    handled = (shop.folder / "handled").read_text().split()
    assert set(handled) == shop.orders()
    assert len(handled) == ORDERS + visit - recorded
    assert shop.count("billing", "message_broker_deduplication") == ORDERS


# Order n is special at the n-th place, once: the worker kills itself there, or
# the consumer, which is its parent, or both.
RECORDER = """\
import json, os, sqlite3, sys
PLACES = [(step, victim)
          for step in ("begun", "recorded", "done", "committed", "answered")
          for victim in ("worker", "consumer", "both")]
def reach(step, number):
    if number >= len(PLACES) or PLACES[number][0] != step:
        return
    try:
        os.close(os.open(f"killed-{number}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    victim = PLACES[number][1]
    if victim != "worker":
        os.kill(os.getppid(), 9)
    if victim != "consumer":
        os.kill(os.getpid(), 9)
db = sqlite3.connect("billing.db", timeout=60, isolation_level=None)
print('{"ready":true,"deduplicates":true}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    place = message["deduplication"]
    order = json.loads(message["body"])["orderId"]
    number = int(order.partition("-")[2]) - 1
    db.execute("BEGIN IMMEDIATE")
    reach("begun", number)
    first = db.execute(
        f'INSERT INTO "{place["table"]}" (message_id, message_name, '
        "processed_at) VALUES (?, ?, datetime('now')) "
        "ON CONFLICT (message_id) DO NOTHING",
        (bytes.fromhex(message["id"].replace("-", "")), place["name"])
        ).rowcount == 1
    reach("recorded", number)
    if first:
        db.execute("INSERT INTO effects (order_id) VALUES (?)", (order,))
    reach("done", number)
    db.execute("COMMIT")
    reach("committed", number)
    print(json.dumps({"delivery": message["delivery"], "verdict": "accept"}),
          flush=True)
    reach("answered", number)
"""


def test_process_that_records_has_one_effect_wherever_it_is_killed(ready_shop):
    shop = ready_shop
    (shop.folder / "worker.py").write_text(RECORDER)
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("handlers:")] + "handlers:\n"
                      "    order.placed: {command: [python3, worker.py]}\n")
    shop.place_orders(40)
    assert shop.relay_all().returncode == 0
    queue = shop.open("queue")
    consumers = [shop.start_consumer()]

    def is_consumed():
        if not consumers[-1].is_running():
            # Instead of a wait for the lease of one that was killed.
            queue.execute("UPDATE messenger_messages SET delivered_at = NULL")
            consumers.append(shop.start_consumer())
        return shop.count("queue", "messenger_messages") == 0
    shops.until(is_consumed, lambda: "an empty queue; logs:\n" + shop.logs())
    assert consumers[-1].stop() == 0
    assert len(list(shop.folder.glob("killed-*"))) == 15
    assert len(consumers) == 11
    shop.expect_effects_once()
    assert shop.count("billing", "message_broker_deduplication") == 40
    assert shop.failed() == []
    assert "consumer.no_record" not in "".join(c.log() for c in consumers)
