"""A relay that listens to the binary log of MariaDB or MySQL: what it costs the
server while nothing happens, and that messages flow as before where it cannot
listen, or no longer. What rings is in tests/conformance/mysql_doorbell_suite.c.
"""
import json
import pathlib
import sys
import threading
import time
import urllib.parse
import uuid

import pytest

import databases
import mortals
import outbox_world
import shop as shops

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

KINDS = {"mariadb": (servers.MariaDB, databases.MariaDB),
         "mysql": (servers.MySQL, databases.MySQL)}
BY_LOG = r"database\.wake .*by=binlog"
RIGHTS = "REPLICATION SLAVE, REPLICATION CLIENT"
# A relay that polls looks every second, one that listens every five.
SOON_S = 1


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def run(kind, tmp_path, monkeypatch):
    """Makes a world on a server of its own with such settings."""
    started = []

    def make(**settings):
        if kind == "mysql":
            mortals.needs_mysql()
        server = KINDS[kind][0](settings={
            "binlog-format": "ROW", **settings})
        started.append(server.start())
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        world = outbox_world.World(tmp_path, KINDS[kind][1]())
        started.append(world)
        world.process = server
        world.set_up()
        return world

    yield make
    for one in reversed(started):
        one.close()


def polls_for(reason):
    return rf"database\.wake .*by=poll .*{reason}"


def send_one(world):
    """How long a message takes that comes alone."""
    before = world.arrived()
    began = time.monotonic()
    world.insert()
    shops.until(lambda: world.arrived() > before, "the message")
    return time.monotonic() - began


def expect_woken(world):
    """A machine that is busy is slow, but not each time."""
    assert min(send_one(world) for _ in range(5)) < SOON_S / 10


def listen_as(world, user):
    """The world's DSN with this user."""
    world.server.ask(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'; "
                     f"GRANT ALL ON {world.server.name}.* TO "
                     f"{user}@'127.0.0.1'", "mysql")
    world.server.ask(f"CREATE USER {user}@localhost IDENTIFIED BY 'p'; "
                     f"GRANT ALL ON {world.server.name}.* TO "
                     f"{user}@localhost", "mysql")
    world.server.url = world.server.url.replace("root@", f"{user}:p@")
    world.set_outbox("", "doctrine")


def test_an_idle_relay_that_listens_asks_next_to_nothing(run):
    world = run()
    world.server.start_counting()
    relay = world.start("relay", "outbox")
    relay.wait_for(BY_LOG)
    send_one(world)
    # What it does about the message is over.
    time_passes(10)
    before, began = world.server.count_own(), time.monotonic()
    time_passes(30)
    rate = (world.server.count_own() - before) / (time.monotonic() - began)
    print(f"{rate:.2f} queries/s")
    assert rate < 0.6
    expect_woken(world)


def time_passes(seconds):
    end = time.monotonic() + seconds
    shops.until(lambda: time.monotonic() > end, "time to pass", seconds + 60)


def test_a_server_that_restarts_is_listened_to_again(run):
    world = run()
    relay = world.start("relay", "outbox")
    relay.wait_for(BY_LOG)
    expect_woken(world)
    world.process.restart()
    heard = len(relay.events("database.wake"))
    world.server.client = None  # it went with the server
    shops.until(lambda: len(relay.events("database.wake")) > heard or
                relay.events("relay.active")[1:], relay.log)
    send_one(world)
    shops.until(lambda: "by=binlog" in relay.events("database.wake")[-1],
                relay.log)
    expect_woken(world)


def test_without_a_binary_log_it_polls(run):
    world = run(**{"skip-log-bin": None})
    relay = world.start("relay", "outbox")
    relay.wait_for(polls_for("log_bin"))
    for _ in range(3):
        send_one(world)
    assert len(relay.events("database.wake")) == 1


def test_statements_in_the_log_are_no_rows(run):
    world = run(**{"binlog-format": "MIXED"})
    relay = world.start("relay", "outbox")
    relay.wait_for(polls_for("binlog_format"))
    send_one(world)


def test_a_right_that_is_taken_away_makes_it_poll(run):
    world = run()
    listen_as(world, "shop")
    for host in ("'127.0.0.1'", "localhost"):
        world.server.ask(f"GRANT {RIGHTS} ON *.* TO shop@{host}", "mysql")
    relay = world.start("relay", "outbox")
    relay.wait_for(BY_LOG)
    expect_woken(world)
    for host in ("'127.0.0.1'", "localhost"):
        world.server.ask(f"REVOKE {RIGHTS} ON *.* FROM shop@{host}", "mysql")
    reader = world.server.ask(
        "SELECT id FROM information_schema.processlist WHERE command LIKE "
        "'Binlog Dump%'")
    world.server.ask(f"KILL {reader}")
    relay.wait_for(polls_for("GRANT"))
    send_one(world)


def test_a_stream_that_falls_silent_makes_it_poll(run):
    """As behind a firewall that has forgotten the connection: it is not ended,
    and nothing comes any more, no heartbeat either."""
    world = run()
    with servers.Proxy(world.process.port) as proxy:
        bell = urllib.parse.quote(
            proxy.url(world.server.url) + "?timeout=6", safe="")
        world.server.url += f"?wake=binlog&wake_dsn={bell}"
        world.set_outbox("", "doctrine")
        relay = world.start("relay", "outbox")
        relay.wait_for(BY_LOG)
        expect_woken(world)
        proxy.hold()
        # What comes before the silence is noticed waits for the relay's own
        # look.
        assert send_one(world) < 10
        relay.wait_for(r"warning database\.wake .*by=poll .*no answer", 20)
        assert send_one(world) < 10
        proxy.cut()
        proxy.resume()
        shops.until(lambda: "by=binlog" in relay.events("database.wake")[-1],
                    relay.log)
        expect_woken(world)


def test_a_log_that_is_gone_is_listened_to_from_its_new_end(run, kind):
    """The server refuses to go on with it (1236), or ends the stream."""
    world = run()
    relay = world.start("relay", "outbox")
    relay.wait_for(BY_LOG)
    listener = ("SELECT id FROM information_schema.processlist WHERE command "
                "LIKE 'Binlog Dump%'")
    first = world.server.ask(listener)
    assert first
    world.server.ask(f"KILL {first}")
    world.server.ask("RESET MASTER" if kind == "mariadb" else
                     "RESET BINARY LOGS AND GTIDS")
    shops.until(lambda: world.server.ask(listener) not in ("", first),
                relay.log)
    shops.until(lambda: "by=binlog" in relay.events("database.wake")[-1],
                relay.log)
    expect_woken(world)


def test_a_consumer_of_a_queue_table_is_woken_too(run):
    world = run()
    world.write_config(f"""\
databases:
    default: '{world.server.url}'
transports:
    orders: 'queue://default?queue_name=orders'
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
""")
    world.check("setup")
    world.server.ask("CREATE TABLE effects (body TEXT)")
    consumer = world.start("consume", "orders")
    consumer.wait_for(BY_LOG)

    def handle_one():
        headers = json.dumps({"type": "order.placed",
                              "X-Message-Id": str(uuid.uuid4())})
        before = world.server.ask("SELECT COUNT(*) FROM effects")
        began = time.monotonic()
        world.server.ask(
            f"INSERT INTO messenger_messages {outbox_world.COLUMNS} VALUES "
            f"('{{}}', '{headers}', 'orders', {world.server.now}, "
            f"{world.server.now})")
        shops.until(lambda: world.server.ask("SELECT COUNT(*) FROM effects")
                    != before, consumer.log)
        return time.monotonic() - began

    # A client program is started for each statement.
    assert min(handle_one() for _ in range(5)) < SOON_S / 4


@pytest.mark.parametrize("kind", ["mariadb"])
def test_semi_synchronous_commits_are_seen_after_their_ring(run):
    """The log tells of a commit before the replica has it, and so before it can
    be seen."""
    world = run(**{"rpl-semi-sync-master-enabled": "ON",
                   "rpl-semi-sync-master-wait-point": "AFTER_SYNC"})
    with servers.MariaDB(settings={"server-id": "2",
                                   "rpl-semi-sync-slave-enabled": "ON"}
                         ) as replica:
        here = world.server.ask("SELECT @@GLOBAL.gtid_current_pos")
        # It takes in the log, and does nothing of it.
        replica.query(
            f"SET GLOBAL gtid_slave_pos = '{here}'; CHANGE MASTER TO "
            f"master_host = '127.0.0.1', master_port = {world.process.port}, "
            "master_user = 'root', master_use_gtid = slave_pos; "
            "START SLAVE IO_THREAD")
        status = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
        shops.until(lambda: world.server.ask(status).endswith("1"),
                    lambda: replica.query("SHOW SLAVE STATUS"))
        relay = world.start("relay", "outbox")
        relay.wait_for(BY_LOG)
        expect_woken(world)
        for _ in range(10):
            send_one(world)
        yes = world.server.ask("SHOW STATUS LIKE 'Rpl_semi_sync_master_yes_tx'")
        assert int(yes.split()[-1]) >= 10
        assert len(relay.events("database.wake")) == 1


def test_many_relays_of_one_queue_listen_side_by_side(run):
    relays = 20
    world = run()
    world.set_outbox("\n        claim: shared", "doctrine")
    world.check("setup")
    started = [world.start("relay", "outbox") for _ in range(relays)]
    for relay in started:
        relay.wait_for(BY_LOG, 120)
    before = world.arrived()
    writers = [threading.Thread(target=lambda: [
        world.server.ask(
            f"INSERT INTO messenger_outbox {outbox_world.COLUMNS} VALUES "
            f"('{{}}', '{outbox_world.PLAIN_TYPE}', 'outbox', "
            f"{world.server.now}, {world.server.now})")
        for _ in range(20)]) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    shops.until(lambda: world.arrived() == before + 40, "all messages")
