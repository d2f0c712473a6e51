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
    """Nobody handles it."""
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
    """Every time somebody takes it he dies; the others go their way."""
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
