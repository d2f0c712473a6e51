"""How a relay waits: what that costs the server, and how soon it wakes."""
import random
import time

import pytest

import outbox_world
import shop as shops
from outbox_world import postgresql, world  # noqa: F401: fixtures

SYMFONY_TRIGGER = """
CREATE FUNCTION notify_messenger_outbox() RETURNS TRIGGER AS $$
BEGIN
    PERFORM pg_notify('messenger_outbox', NEW.queue_name::text);
    RETURN NEW;
END;
$$ LANGUAGE plpgsql;
CREATE TRIGGER notify_trigger AFTER INSERT OR UPDATE ON messenger_outbox
FOR EACH ROW EXECUTE PROCEDURE notify_messenger_outbox();
"""
SLEEPERS = """SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory'
AND mode = 'ExclusiveLock' AND objsubid = 2 AND database =
(SELECT oid FROM pg_database WHERE datname = current_database())"""


def start(world):
    relay = world.start("relay", "outbox")
    relay.wait_for("relay.active")
    return relay


def send_one(world):
    """How long a message takes that comes alone."""
    before = world.arrived()
    began = time.monotonic()
    world.insert()
    shops.until(lambda: world.arrived() > before, "the message")
    return time.monotonic() - began


def pass_time(seconds):
    """Nothing is waited for but the time itself."""
    end = time.monotonic() + seconds
    shops.until(lambda: time.monotonic() > end, "time to pass", seconds + 60)


def test_an_idle_relay_asks_at_most_one_query_a_second(tmp_path):
    """MariaDB counts for all, PostgreSQL for each session."""
    worlds = {}
    claims = [(outbox_world.MariaDB, "doctrine", "exclusive"),
              (outbox_world.PostgreSQL, "doctrine", "exclusive"),
              (outbox_world.PostgreSQL, "ordered-doctrine", "lease")]
    if shops.LONG:
        claims += [(outbox_world.PostgreSQL, "doctrine", "lease"),
                   (outbox_world.PostgreSQL, "doctrine", "shared"),
                   (outbox_world.PostgreSQL, "ordered-doctrine", "shared")]
    for kind, scheme, claim in claims:
        name = f"{kind.__name__}, {scheme}, {claim}"
        folder = tmp_path / name
        folder.mkdir()
        worlds[name] = outbox_world.World(
            folder, kind(), f"\n        claim: {claim}", scheme)
    try:
        for each in worlds.values():
            each.set_up()
            each.server.start_counting()
            start(each)
            send_one(each)
        pass_time(66)
        before = [each.server.count_own() for each in worlds.values()]
        began = time.monotonic()
        pass_time(60)
        counts = [each.server.count_own() for each in worlds.values()]
        seconds = time.monotonic() - began
        for name, first, last in zip(worlds, before, counts):
            rate = (last - first) / seconds
            print(f"{name}: {rate:.2f} queries/s")
            assert rate <= 1, name
    finally:
        for each in worlds.values():
            each.leave()


LEASE_S = 15
OWNERS = ("SELECT COUNT(DISTINCT owner) FROM skirnir_lease "
          "WHERE slot < 60 AND owner <> ''")


# After more than a minute of silence.
if shops.LONG:
    def test_a_share_is_taken_over_in_time_where_nothing_moves(tmp_path):
        made = outbox_world.World(tmp_path, outbox_world.PostgreSQL(),
                                  "\n        claim: lease", "ordered-doctrine")
        try:
            made.set_up()
            dying, other = start(made), start(made)
            shops.until(lambda: made.server.ask(OWNERS) == "2", other.log)
            pass_time(66)
            dying.kill()
            began = time.monotonic()
            shops.until(lambda: made.server.ask(OWNERS) == "1", other.log)
            seconds = time.monotonic() - began
            print(f"after {seconds:.1f} s")
            # By a clock of whole seconds.
            assert seconds < LEASE_S + 3
        finally:
            made.leave()


def test_a_steady_stream_costs_three_queries_a_message(world):  # noqa: F811
    """About every other look finds something: a look is one query, and what it
    found is one more. Where the machine holds up the writer, the looks go on:
    what counts are the messages of that time at this rate."""
    world.set_up()
    world.server.start_counting()
    start(world)
    send_one(world)
    random.seed(1)
    rows, rate = 500, 100
    before = world.server.count()
    began = next_at = time.monotonic()
    for _ in range(rows):
        next_at += random.expovariate(rate)
        time.sleep(max(0, next_at - time.monotonic()))
        world.insert()
    shops.until(lambda: world.arrived() == rows + 1, "all messages")
    queries = world.server.count() - before
    seconds = time.monotonic() - began
    # The inserts themselves are the application's, where they are counted.
    own = queries - (rows if isinstance(world.server, outbox_world.MariaDB)
                     else 0)
    messages = max(rows, rate * seconds)
    print(f"{own / messages:.2f} queries a message in {seconds:.1f} s")
    assert own <= 3 * messages


def test_an_insert_wakes_an_armed_relay_at_once(postgresql):  # noqa: F811
    postgresql.set_up()
    assert "wake a relay" in postgresql.check("setup", "outbox", "--notify")
    start(postgresql)
    for _ in range(3):
        shops.until(lambda: postgresql.server.ask(SLEEPERS) == "1",
                    "the relay to sleep")
        # It looks by itself every five seconds.
        assert send_one(postgresql) < 1


@pytest.mark.parametrize("claim", ["lease", "shared"])
def test_an_insert_wakes_a_relay_that_shares_its_queue(tmp_path, claim):
    made = outbox_world.World(tmp_path, outbox_world.PostgreSQL(),
                              f"\n        claim: {claim}")
    try:
        made.set_up()
        made.check("setup", "outbox", "--notify")
        start(made)
        for _ in range(3):
            shops.until(lambda: made.server.ask(SLEEPERS) == "1",
                        "the relay to sleep")
            assert send_one(made) < 1
    finally:
        made.leave()


def test_symfonys_trigger_wakes_a_relay_at_once(postgresql):  # noqa: F811
    postgresql.set_up()
    postgresql.server.ask(SYMFONY_TRIGGER)
    postgresql.server.start_counting()
    start(postgresql)
    # It listens from before its first read: of the second one it is told.
    send_one(postgresql)
    send_one(postgresql)
    shops.until(lambda: postgresql.server.ask(
        "SELECT COUNT(*) FROM messenger_outbox") == "0", "the row to go")
    before = postgresql.server.count()
    pass_time(2)
    # Otherwise fifty a second so soon after a row.
    assert postgresql.server.count() - before < 15
    for _ in range(3):
        assert send_one(postgresql) < 1


def test_notify_is_refused_where_nobody_can_be_told(tmp_path):
    made = outbox_world.World(tmp_path, outbox_world.MariaDB())
    try:
        made.set_up()
        result = made.run("setup", "outbox", "--notify")
        assert result.returncode != 0
        assert "only PostgreSQL has LISTEN" in result.stderr
    finally:
        made.leave()


def test_the_statements_of_notify_are_printed(postgresql):  # noqa: F811
    made = postgresql.check("setup", "outbox", "--notify", "--print-sql")
    assert "CREATE TRIGGER skirnir_notify" in made
    gone = postgresql.check("setup", "outbox", "--no-notify", "--print-sql")
    assert "DROP TRIGGER IF EXISTS skirnir_notify" in gone


def test_large_rows_cost_what_is_in_flight(world):  # noqa: F811
    rows = 200
    world.set_up()
    for number in range(rows):
        world.insert(f'"{number:04}{"x" * 1000000}"')
    shops.until(lambda: world.server.ask(
        "SELECT COUNT(*) FROM messenger_outbox") == str(rows), "the rows")
    relay = start(world)
    shops.until(lambda: world.arrived() == rows, relay.log)
    peak = relay.status("VmHWM")
    print(f"{peak} KiB")
    assert peak < 64 * 1024
