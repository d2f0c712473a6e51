"""The whole chain under SIGKILL at random moments, and a ledger at the end:
what was committed has its effect exactly once, what was rolled back has none,
and a kill costs no more duplicates on the wire than were in flight."""
import collections
import os
import pathlib
import random
import subprocess
import sys
import time

import shop as shops

PUBLISHER = pathlib.Path(__file__).with_name("publisher.py")
ROUNDS = 1000 if shops.LONG else 60
PUBLISHERS = 2
IN_FLIGHT = 50


def start_publisher(shop, name, seed):
    return subprocess.Popen(
        [sys.executable, PUBLISHER, shop.path("shop"), name, str(seed)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")


def ask_for(publisher, orders):
    publisher.stdin.write(f"{orders}\n")
    publisher.stdin.flush()


def let_pass(seconds):
    """A random moment is a time, not an event that could be waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(max(0, min(0.001, end - time.monotonic())))


class Chain:
    """A relay and a consumer that are killed and started again."""

    def __init__(self, shop, rng):
        self.shop = shop
        self.rng = rng
        self.relay = shop.start_relay()
        self.consumer = shop.start_consumer()
        self.in_flight = []  # at each kill of the relay

    def kill_relay(self):
        self.relay.kill()
        # Nothing is moved on either side of it now.
        self.in_flight.append(len(self.shop.in_flight()))
        self.relay = self.shop.start_relay()

    def kill_consumer(self):
        self.consumer.kill()
        self.consumer = self.shop.start_consumer()

    def kill_something(self):
        victims = self.rng.choice([
            (self.kill_relay,), (self.kill_consumer,),
            (self.kill_relay, self.kill_consumer)])
        for kill in victims:
            kill()


def say(shop, chain, rolled_back, seed):
    effects = collections.Counter(shop.effects())
    ledger = {
        "seed": seed,
        "rounds": ROUNDS,
        "committed": len(shop.orders()),
        "rolled back": len(rolled_back),
        "lost": len(shop.orders() - set(effects)),
        "effects": sum(effects.values()),
        "duplicates on the wire": shop.duplicates(),
        "in flight at kills": sum(chain.in_flight),
        "most in flight": max(chain.in_flight, default=0),
    }
    print(", ".join(f"{name} {value}" for name, value in ledger.items()))
    return ledger


def test_ledger_balances_when_both_sides_are_killed_at_random(shop):
    seed = int(os.environ.get("SKIRNIR_SEED", random.SystemRandom()
                              .randrange(1 << 32)))
    print(f"SKIRNIR_SEED={seed}")
    rng = random.Random(seed)
    # A message is not to blame for the kills: it may be tried for ever.
    shop.configure(in_flight=IN_FLIGHT, max_retries=1000000)
    shop.set_up()
    publishers = [start_publisher(shop, name, seed)
                  for name in "abcdefgh"[:PUBLISHERS]]
    try:
        chain = Chain(shop, rng)
        for _ in range(ROUNDS):
            for publisher in publishers:
                ask_for(publisher, rng.randrange(5, 60))
            let_pass(rng.random() ** 2 * 0.3)
            chain.kill_something()
        rolled_back = [line for publisher in publishers
                       for line in publisher.communicate()[0].split()]
    finally:
        for publisher in publishers:
            publisher.kill()
            publisher.wait()
    shop.wait_until_relayed()
    shop.wait_until_consumed()
    ledger = say(shop, chain, rolled_back, seed)

    assert not set(rolled_back) & shop.orders()
    assert rolled_back and ledger["committed"] > ROUNDS
    assert ledger["lost"] == 0
    shop.expect_effects_once()
    assert not set(rolled_back) & set(shop.wire())
    assert shop.failed() == []
    assert ledger["most in flight"] <= IN_FLIGHT
    assert ledger["duplicates on the wire"] <= ledger["in flight at kills"]
    assert chain.relay.stop() == 0
    assert chain.consumer.stop() == 0
