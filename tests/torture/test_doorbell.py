"""A relay that listens to the binary log, killed, and cut off from the log, at
random moments between messages that come alone: what was committed arrives,
what was rolled back does not."""
import contextlib
import os
import random
import subprocess
import time

import pytest

import databases
import outbox_world
import shop as shops

ROUNDS = 200 if shops.LONG else 20
READERS = ("SELECT id FROM information_schema.processlist WHERE command LIKE "
           "'Binlog Dump%' AND db = DATABASE()")


def let_pass(seconds):
    """A random moment is a time, not an event that could be waited for."""
    end = time.monotonic() + seconds
    shops.until(lambda: time.monotonic() > end, "time to pass")


@pytest.mark.parametrize("kind", [databases.MariaDB, databases.MySQL],
                         ids=lambda kind: kind.kind)
def test_what_was_committed_arrives_whatever_becomes_of_the_bell(
        tmp_path, kind):
    seed = int(os.environ.get("SKIRNIR_SEED", random.SystemRandom()
                              .randrange(1 << 32)))
    print(f"SKIRNIR_SEED={seed}")
    rng = random.Random(seed)
    world = outbox_world.World(tmp_path, kind())
    was = world.server.ask("SELECT @@GLOBAL.binlog_format")
    try:
        world.server.ask("SET GLOBAL binlog_format = 'ROW'")
        world.set_up()
        relay = world.start("relay", "outbox")
        heard = 0
        for number in range(ROUNDS):
            if number % 4 == 0:
                relay.wait_for("by=binlog")
                heard += 1
            world.server.send("BEGIN")
            world.insert('"rolled back"')
            world.server.send("ROLLBACK")
            world.insert(f'"{number}"')
            let_pass(rng.random() * 0.05)
            deed = rng.choice(["kill", "cut", "nothing"])
            if deed == "kill":
                relay.kill()
                relay = world.start("relay", "outbox")
            if deed == "cut":
                for reader in world.server.ask(READERS).split():
                    # One of a relay that was killed may be gone by now.
                    with contextlib.suppress(subprocess.CalledProcessError):
                        world.server.ask(f"KILL {reader}")
        shops.until(lambda: bodies(world) == {
            f'"{number}"' for number in range(ROUNDS)}, relay.log)
        print(f"listened {heard} times, arrived {world.arrived()}")
    finally:
        world.server.ask(f"SET GLOBAL binlog_format = '{was}'")
        world.leave()


def bodies(world):
    return {row[0] for row in world.queue.execute(
        "SELECT DISTINCT body FROM messenger_messages")}
