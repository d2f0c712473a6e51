"""Whatever zone a server, a session or another writer has: times in tables are
UTC, or what the configuration says."""
import datetime
import time

import databases
import outbox_world
import pytest
import servers
import shop as shops
from outbox_world import World, world  # noqa: F401: a fixture

LONG_S = 4


def set_server_zone(server, zone):
    if server.dialect == "mysql":
        server.ask(f"SET GLOBAL time_zone = '{zone}'")
    else:
        server.ask(f"ALTER DATABASE {server.name} SET timezone = "
                   f"'{'Asia/Tokyo' if zone[0] == '+' else 'UTC'}'")


def newest(server, column, table="messenger_outbox"):
    """How far a time of the last row is from UTC, in seconds."""
    if server.dialect == "mysql":
        sql = f"TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), {column})"
    else:
        sql = (f"ROUND(EXTRACT(EPOCH FROM {column} - "
               "(now() AT TIME ZONE 'UTC')))")
    return int(server.ask(f"SELECT {sql} FROM {table} ORDER BY id DESC "
                          "LIMIT 1"))


def test_a_server_in_another_zone_changes_nothing(world):  # noqa: F811
    set_server_zone(world.server, "+09:00")
    try:
        world.set_up()
        world.check("publish", "order.placed", "--body", "{}")
        assert abs(newest(world.server, "created_at")) < 60
        assert abs(newest(world.server, "available_at")) < 60
        world.check("publish", "order.placed", "--body", "{}", "--delay", "1")
        assert abs(newest(world.server, "available_at")) < 60
        world.start("relay", "outbox")
        shops.until(lambda: world.arrived() == 2, "both messages", 20)
    finally:
        set_server_zone(world.server, "SYSTEM")


@pytest.mark.parametrize("kind, zone", [
    *((kind, "+05:00") for kind in databases.SERVERS),
    (databases.PostgreSQL, "Asia/Karachi")])
def test_time_zone_says_when_rows_of_others_are_due(tmp_path, kind, zone):
    made = World(tmp_path, kind(), f"\n        time_zone: '{zone}'")
    try:
        made.set_up()
        made.check("publish", "order.placed", "--body", "{}", "--delay", "2")
        assert abs(newest(made.server, "available_at") - 5 * 3600) < 60
        relay = made.start("relay", "outbox")
        shops.until(lambda: made.arrived() == 1, "the message", 20)
        assert not relay.events("relay.clock_skew")
    finally:
        made.leave()


def test_a_writer_in_another_zone_is_noticed_once(world):  # noqa: F811
    world.set_up()
    world.insert(now=f"{world.server.now} + INTERVAL '2' HOUR")
    shops.until(lambda: world.server.ask(
        "SELECT COUNT(*) FROM messenger_outbox") == "1", "the row")
    relay = world.start("relay", "outbox")
    found = relay.wait_for("relay.clock_skew .*")
    assert "hours=2" in found.group(0) and "ahead" in found.group(0)
    assert "time_zone" in found.group(0)
    # Never delayed: it goes at once all the same.
    shops.until(lambda: world.arrived() == 1, "the message")
    assert len(relay.events("relay.clock_skew")) == 1


def test_an_old_row_gives_nobody_away(world):  # noqa: F811
    """Nothing was written for three hours, and then something is."""
    world.set_up()
    world.server.ask(
        f"INSERT INTO messenger_outbox {outbox_world.COLUMNS} VALUES ('{{}}', "
        f"'{outbox_world.PLAIN_TYPE}', 'outbox', "
        f"{world.server.now} - INTERVAL '3' HOUR, "
        f"{world.server.now} + INTERVAL '1' DAY)")
    relay = world.start("relay", "outbox")
    relay.wait_for("relay.active")
    world.insert()
    shops.until(lambda: world.arrived() == 1, "the message")
    world.insert()
    shops.until(lambda: world.arrived() == 2, "the next")
    assert relay.stop() == 0
    assert not relay.events("relay.clock_skew")


def test_a_fresh_row_of_hours_ago_gives_its_writer_away(world):  # noqa: F811
    world.set_up()
    relay = world.start("relay", "outbox")
    relay.wait_for("relay.active")
    inserted = 0

    # A row is fresh when the relay had found nothing before it: one that comes
    # in the same breath as another is not known to be.
    def is_given_away():
        nonlocal inserted
        world.insert(now=f"{world.server.now} - INTERVAL '5' HOUR")
        inserted += 1
        shops.until(lambda: world.arrived() == inserted, "that of hours ago")
        return relay.events("relay.clock_skew")

    (found,) = shops.until(is_given_away, relay.log, pause_s=0.5)
    assert "hours=5" in found and "behind" in found
    assert relay.stop() == 0


@pytest.mark.parametrize("kind", databases.MARIADB_AND_MYSQL,
                         ids=lambda kind: kind.kind)
def test_a_zone_that_the_server_has_not_loaded_is_named(tmp_path, kind):
    made = World(tmp_path, kind(), "\n        time_zone: Europe/Berlin")
    try:
        result = made.run("setup", patience_s=60)
        relay = made.start("relay", "outbox")
        relay.wait_for("mysql_tzinfo_to_sql")
        assert "Europe/Berlin" in relay.log()
        assert result.returncode == 0 or "mysql_tzinfo_to_sql" in result.stderr
    finally:
        made.leave()


def zone_that_is_about_to_be_put_back():
    """Five hours ahead of UTC; until half an hour from now, six."""
    change = (datetime.datetime.now(datetime.timezone.utc) +
              datetime.timedelta(hours=6, minutes=30))
    day = change.timetuple().tm_yday - 1
    return f"AAA-5BBB-6,0/0,{day}/{change:%H:%M:%S}"


@pytest.fixture(params=databases.MARIADB_AND_MYSQL,
                ids=lambda kind: kind.kind)
def elsewhere(request, tmp_path, monkeypatch):
    """An ordered outbox on a machine with another clock."""
    kind = request.param
    databases.need(kind.variable("URL"))

    class Elsewhere(servers.KINDS[kind.kind]):
        def server_environment(self):
            return {"TZ": zone_that_is_about_to_be_put_back()}
    with Elsewhere() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        made = World(tmp_path, kind())
        made.write_config(made.config_path.read_text().replace(
            "'doctrine:", "'ordered-doctrine:"))
        yield made
        made.leave()


def insert_of(world, key, body):  # noqa: F811
    now = world.server.now
    return ("INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) VALUES "
            f"('{body}', '{outbox_world.PLAIN_TYPE}', 'outbox', '{key}', "
            f"{now}, {now})")


def test_the_machine_of_the_server_may_have_any_clock(elsewhere):
    """A transaction is known by the time at which it began."""
    world = elsewhere  # noqa: F811
    world.set_up()
    world.start("relay", "outbox")
    world.server.send(f"BEGIN; {insert_of(world, 'a', 'first')}")
    # Long enough for the relay to believe that nothing older is under way.
    others, until = 0, time.monotonic() + LONG_S
    while time.monotonic() < until:
        world.server.ask(insert_of(world, "b", others))
        others += 1
        shops.until(lambda: world.arrived() == others, "the others")
    world.server.send("COMMIT")
    shops.until(lambda: world.arrived() > others or world.server.ask(
        "SELECT 1 FROM messenger_outbox WHERE body = 'first'"), "the commit")
    world.server.ask(insert_of(world, "a", "second"))
    shops.until(lambda: world.arrived() == others + 2, "all of them")
    assert world.queue.execute(
        "SELECT body FROM messenger_messages ORDER BY id DESC LIMIT 2"
    ).fetchall() == [("second",), ("first",)]
