"""Standard error is a pipe that is not read: work goes on, a stop has an end,
and a reader who comes at last is told what is missing."""
import fcntl
import os
import re
import subprocess
import threading
import time

import pytest

import kafka_outbox_world
import shop as shops

MESSAGES = 3000
LINES = 8  # of each message
BAD = 90  # more in a minute would make a relay pause
# What is buffered at the end is waited for, and a busy machine takes its time.
SOON_S = 8
TALKS = f"""\
import json, sys
print('{{"ready":true}}', flush=True)
number = 0
for line in sys.stdin:
    for _ in range({LINES}):
        number += 1
        sys.stderr.write(f"line {{number}} {{'.' * 200}}\\n")
    sys.stderr.flush()
    print(json.dumps({{"delivery": json.loads(line)["delivery"],
                       "verdict": "accept"}}),
          flush=True)
"""


class Unread:
    """A program whose log goes into a small pipe, by whichever output."""

    def __init__(self, shop, *arguments, **environment):
        self.output, ours = os.pipe()
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            shop.command(*arguments), stdin=subprocess.DEVNULL, stderr=ours,
            stdout=ours, cwd=shop.folder,
            env={**shop.environment, **environment})
        os.close(ours)
        self.bytes = b""
        self.reader = None

    def is_full(self, line=300):
        """Whether a writer of such a line would wait now."""
        waiting = bytearray(4)
        fcntl.ioctl(self.output, 0x541B, waiting)  # FIONREAD
        return int.from_bytes(waiting, "little") > 4096 - line

    def read(self):
        """From now on it is read."""
        def run():
            while piece := os.read(self.output, 65536):
                self.bytes += piece
        self.reader = threading.Thread(target=run)
        self.reader.start()

    def lines(self):
        return self.bytes.decode().splitlines()

    def stop(self):
        """Seconds that it takes."""
        began = time.monotonic()
        self.process.terminate()
        assert self.process.wait(shops.PATIENCE_S) == 0
        return time.monotonic() - began

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(shops.PATIENCE_S)
        if self.reader is not None:
            self.reader.join()
        os.close(self.output)


@pytest.fixture
def start(ready_shop):
    started = []

    def begin(*arguments, **environment):
        started.append(Unread(ready_shop, *arguments, **environment))
        return started[-1]
    yield begin
    for program in started:
        program.close()


@pytest.fixture
def talking_shop(ready_shop):
    """What handles messages there says much of each."""
    shop = ready_shop
    (shop.folder / "talks.py").write_text(TALKS)
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("    order.placed:")] +
                      "    order.placed: {command: [python3, talks.py]}\n")
    shop.place_orders(MESSAGES)
    assert shop.relay_all().returncode == 0
    return shop


def test_a_relay_goes_on_and_stops(ready_shop, start):
    shop = ready_shop
    connection = shop.open("shop")
    for number in range(30):
        for _ in range(BAD // 30):
            shops.write_row(connection, "{}", "{broken")
        shop.place_orders(MESSAGES // 30, 1 + number * MESSAGES // 30,
                          connection)
    relay = start("relay", "outbox")
    shop.wait_until_relayed()
    assert len(shop.wire()) == MESSAGES
    assert len(shop.failed()) == BAD
    assert relay.is_full()
    assert relay.stop() < SOON_S


@pytest.mark.quick
def test_a_kafka_relay_goes_on_and_stops(tmp_path):
    world = kafka_outbox_world.new_world("sqlite", tmp_path)
    bad = (world.topic, '{"n": 0}', "{broken", "", "")
    relay = None
    try:
        world.drain()  # makes the table
        relay = Unread(world, "kafka-relay")

        def is_full():
            """Each is told, until nothing can be told any more."""
            world.insert(bad)
            return relay.is_full(line=1000)  # JSON
        shops.until(is_full, "a full pipe", pause_s=0.1)
        told = len(world.errored())
        world.insert(bad)
        world.insert_numbers(MESSAGES)
        shops.until(lambda: world.open_rows() == 0,
                    lambda: f"{world.open_rows()} open rows")
        world.expect_in_order(MESSAGES)
        assert len(world.errored()) > told
        assert relay.stop() < SOON_S
    finally:
        if relay is not None:
            relay.close()
        world.leave()


def test_a_consumer_goes_on_and_stops(talking_shop, start):
    shop = talking_shop
    consumer = start("consume", "orders")
    shop.wait_until_consumed()
    assert shop.count("billing", "message_broker_deduplication") == MESSAGES
    assert consumer.is_full()
    assert consumer.stop() < SOON_S


def test_who_reads_at_last_is_told_what_is_missing(talking_shop, start):
    shop = talking_shop
    consumer = start("consume", "orders")
    shop.wait_until_consumed()
    consumer.read()
    shops.until(lambda: f"line {MESSAGES * LINES} " in consumer.bytes.decode(),
                "the last line")
    assert consumer.stop() < SOON_S
    consumer.reader.join()
    lines = consumer.lines()
    said = [line for line in lines if "line " in line]
    numbers = [int(re.search(r"line (\d+) ", line).group(1)) for line in said]
    dropped = [int(re.search(r"output\.dropped lines=(\d+)$", line).group(1))
               for line in lines if "output.dropped" in line]
    assert len(dropped) == 1
    assert numbers == sorted(set(numbers))
    # All that was said came or is counted: some lines were not of messages.
    missing = MESSAGES * LINES - len(numbers)
    assert missing <= dropped[0] <= missing + 10
    # It stands where they are missing.
    at = next(i for i, line in enumerate(lines) if "output.dropped" in line)
    before = [line for line in lines[:at] if "line " in line]
    assert numbers[len(before)] - numbers[len(before) - 1] > 1000


def test_the_last_word_of_a_service_comes_out(ready_shop, start):
    """What ends it is said through the same pipe, behind all the rest."""
    shop = ready_shop
    shop.place_orders(500)
    assert shop.relay_all().returncode == 0
    shop.check("config", "check")
    shop.open("billing").execute("DROP TABLE message_broker_deduplication")
    consumer = start("consume", "orders", "-vv")
    consumer.read()
    assert consumer.process.wait(shops.PATIENCE_S) == 1
    consumer.reader.join()
    assert "setup-deduplication" in consumer.lines()[-1]
