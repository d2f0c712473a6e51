"""What a relay costs: memory that does not grow with the backlog, and next to
nothing when there is nothing to do. On the program that users get, where
SKIRNIR_RELEASE names it."""
import json
import time

import pytest

import shop as shops

FEW = 1000
MANY = 1000000 if shops.LONG else 200000
MOST_KIB = 16 * 1024
NEAR_KIB = 2 * 1024
IDLE_S = 3


def fill(shop, count, delay_s=0):
    """Rows of about 300 bytes."""
    connection = shop.open("shop")
    body = json.dumps({"orderId": "o", "note": "x" * 180})
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO messenger_outbox "
        "(body, headers, queue_name, created_at, available_at) VALUES (?, "
        "'{\"type\":\"order.placed\"}', 'outbox', datetime('now'), "
        "datetime('now', '+' || ? || ' seconds'))",
        ((body, delay_s) for _ in range(count)))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def release_shop(tmp_path):
    def open_shop(name):
        folder = tmp_path / name
        folder.mkdir()
        shop = shops.Shop(folder, shops.RELEASE, in_flight=1000)
        opened.append(shop)
        shop.set_up()
        # Every message counts once; what reached the queue is not asked for.
        shop.open("queue").execute("DROP TRIGGER to_wire")
        return shop
    opened = []
    yield open_shop
    for shop in opened:
        shop.close()


def peak_of_draining(shop, count):
    fill(shop, count)
    relay = shop.start_relay()
    peak = 0

    def drained():
        nonlocal peak
        peak = max(peak, relay.status("VmRSS"))
        return not shop.query("shop",
                              "SELECT 1 FROM messenger_outbox LIMIT 1")
    shops.until(drained, lambda: f"an empty outbox:\n{relay.log()}", 600)
    peak = max(peak, relay.status("VmHWM"))
    assert relay.stop() == 0
    return peak


def test_memory_does_not_grow_with_the_backlog(release_shop):
    few = peak_of_draining(release_shop("few"), FEW)
    many = peak_of_draining(release_shop("many"), MANY)
    print(f"{FEW} rows: {few} KiB, {MANY} rows: {many} KiB")
    assert max(few, many) < MOST_KIB
    assert abs(many - few) < NEAR_KIB


def test_memory_does_not_grow_with_rows_that_wait(release_shop):
    """Scheduled for later, in front of one that is due."""
    sizes = []
    for name, count in [("few", FEW), ("many", MANY)]:
        shop = release_shop(name)
        fill(shop, count, delay_s=86400)
        relay = shop.start_relay()
        relay.wait_for(r"relay\.active")
        fill(shop, 1)
        shops.until(lambda: shop.count("queue", "messenger_messages") == 1,
                    "the one that is due")
        sizes.append(relay.status("VmHWM"))
        assert relay.stop() == 0
    print(f"{FEW} rows: {sizes[0]} KiB, {MANY} rows: {sizes[1]} KiB")
    assert max(sizes) < MOST_KIB
    assert abs(sizes[1] - sizes[0]) < NEAR_KIB


@pytest.mark.parametrize("command, ready", [
    (["relay", "outbox"], r"relay\.active"),
    (["consume", "orders"], r"consumer\.ready")], ids=["relay", "consume"])
@pytest.mark.parametrize("waiting", [0, 20000])
def test_idle_program_is_close_to_free(release_shop, command, ready, waiting):
    shop = release_shop("idle")
    if waiting:
        fill(shop, waiting, delay_s=86400)
    started = shop.start(*command)
    started.wait_for(ready)
    cpu, began = started.cpu_s(), time.monotonic()
    time.sleep(IDLE_S)  # this is the measurement
    share = (started.cpu_s() - cpu) / (time.monotonic() - began)
    print(f"{' '.join(command)}: {share:.2%} of a processor")
    assert share < 0.02
    assert started.stop() == 0
