"""Disks and databases in trouble: it is said clearly, nothing is lost, and
the same process goes on when it is cured."""
import os
import pathlib
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

import databases
import shop as shops

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above
from servers import processes  # noqa: E402

ORDERS = 1000
FILES = ["shop", "queue"]
NOBODY = 65534
WAIT_S = 20  # twice the longest pause between two tries


def expect_all(shop, relay):
    """The relay that was in trouble carries everything, once it is over."""
    assert relay.is_running()
    shop.wait_until_relayed()
    assert set(shop.wire()) == shop.orders()
    assert shop.failed() == [], "trouble is nobody's fault"
    # One batch may have been written without an answer at each failure.
    assert shop.consume_all().returncode == 0
    shop.expect_effects_once()


def trouble(relay, pattern):
    relay.wait_for(
        rf"warning relay\.(settle_)?trouble name=outbox .*{pattern}", WAIT_S)
    assert relay.is_running()


def recovered(relay):
    relay.wait_for(r"info relay\.(settle_)?recovered name=outbox failures=",
                   WAIT_S)


def count_trouble(relay):
    return len(relay.events("relay.trouble")) + \
        len(relay.events("relay.settle_trouble"))


@pytest.fixture
def quick_shop(shop):
    """One that does not wait for locks."""
    shop.configure(parameters="?busy_timeout=50")
    shop.set_up()
    return shop


def lock(shop, name, timeout_s=60):
    other = sqlite3.connect(shop.path(name), isolation_level=None,
                            timeout=timeout_s)
    other.execute("BEGIN EXCLUSIVE")
    return other


def freeze(shop, program, *names):
    """Stops a program at a moment when it has no lock on any of the files."""
    while True:
        processes.freeze(program.pid)
        try:
            for name in names:
                lock(shop, name, timeout_s=1).close()
            return
        except sqlite3.OperationalError:
            os.kill(program.pid, signal.SIGCONT)


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("name", FILES)
def test_locked_database_is_waited_out_by_the_relay(shop, name, journal):
    shop.configure(parameters="?busy_timeout=50")
    shop.set_up(journal)
    relay = shop.start_relay()
    relay.wait_for(r"relay\.active")
    freeze(shop, relay, *FILES)
    shop.place_orders(ORDERS)
    other = lock(shop, name)
    os.kill(relay.pid, signal.SIGCONT)
    trouble(relay, f"{shop.path(name)}.* lock")
    other.execute("ROLLBACK")
    other.close()
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0


@pytest.mark.parametrize("name", ["queue", "billing"])
def test_locked_database_is_waited_out_by_the_consumer(quick_shop, name):
    shop = quick_shop
    consumer = shop.start_consumer()
    consumer.wait_for(r"consumer\.ready")
    freeze(shop, consumer, "queue", "billing")
    shop.place_orders(ORDERS)
    assert shop.relay_all().returncode == 0
    other = lock(shop, name)
    os.kill(consumer.pid, signal.SIGCONT)
    consumer.wait_for(rf"consumer\.trouble .*{shop.path(name)}.*lock")
    other.execute("ROLLBACK")
    other.close()
    shop.wait_until_consumed()
    shop.expect_effects_once()
    assert shop.failed() == []
    assert consumer.stop() == 0


def test_trouble_is_said_once(quick_shop):
    """A database that is locked for an hour writes no line a second."""
    shop = quick_shop
    relay = shop.start_relay()
    relay.wait_for(r"relay\.active")
    other = lock(shop, "queue")
    shop.place_orders(10)
    trouble(relay, "lock")
    # Long enough for several more tries: the number of them is told at the
    # end, and the first pauses are the shortest.
    began = time.monotonic()
    shops.until(lambda: time.monotonic() - began > 2, "some more tries")
    other.execute("ROLLBACK")
    other.close()
    recovered(relay)
    assert int(re.search(r"recovered .*failures=(\d+)", relay.log())[1]) > 1
    assert count_trouble(relay) == 1
    expect_all(shop, relay)


@pytest.mark.parametrize("name", FILES)
def test_table_that_is_dropped_while_the_relay_runs(shop, name):
    """Where the program may not make tables, it waits until they are made."""
    shop.configure(auto_setup="false", replace=[
        ("queue_name=outbox'", "queue_name=outbox&auto_setup=false'")])
    shop.set_up()
    relay = shop.start_relay()
    shop.place_orders(10)
    shop.wait_until_relayed()
    table = "messenger_outbox" if name == "shop" else "messenger_messages"
    shop.open(name).execute(f"DROP TABLE {table}")
    if name == "queue":
        shop.place_orders(10, first=11)
    trouble(relay, f"(no such table: {table}|no table {table})")
    shop.check("setup")
    recovered(relay)
    if name == "queue":
        # Gone with the table is what was in it; what comes now arrives.
        assert shop.wait_until_relayed() is None
        assert shop.count("queue", "messenger_messages") == 10
    else:
        shop.place_orders(10, first=11)
        shop.wait_until_relayed()
        assert shop.count("queue", "messenger_messages") == 20
    assert shop.failed() == []
    assert relay.stop() == 0


def test_queue_that_is_dropped_is_made_again_where_that_is_allowed(
        ready_shop):
    shop = ready_shop
    relay = shop.start_relay()
    relay.wait_for(r"relay\.active")
    shop.open("queue").execute("DROP TABLE messenger_messages")
    shop.place_orders(ORDERS)
    shop.wait_until_relayed()
    assert shop.count("queue", "messenger_messages") == ORDERS
    assert shop.failed() == []
    assert relay.stop() == 0


def test_deduplication_table_that_is_dropped_is_waited_for(ready_shop):
    shop = ready_shop
    consumer = shop.start_consumer()
    consumer.wait_for(r"consumer\.ready")
    shop.open("billing").execute("DROP TABLE message_broker_deduplication")
    shop.place_orders(10)
    assert shop.relay_all().returncode == 0
    consumer.wait_for(r"consumer\.trouble .*message_broker_deduplication")
    assert consumer.is_running()
    assert shop.effects() == [], "never without deduplication"
    shop.check("setup-deduplication", "--force")
    shop.wait_until_consumed()
    shop.expect_effects_once()
    assert consumer.stop() == 0


@pytest.mark.parametrize("name, table", [
    ("shop", "messenger_outbox"), ("queue", "messenger_messages"),
    ("shop", "messenger_messages")], ids=["outbox", "queue", "failed"])
def test_table_of_another_shape_is_named_and_waited_for(ready_shop, name,
                                                        table):
    shop = ready_shop
    shop.place_orders(ORDERS)
    connection = shop.open(name)
    connection.execute(f"DROP INDEX {table}_idx_delivered_at")
    connection.execute(f"ALTER TABLE {table} RENAME COLUMN delivered_at "
                       "TO taken_at")
    relay = shop.start_relay("--wait")
    trouble(relay, f"{table}.*delivered_at.*another shape")
    assert shop.wire() == []
    connection.execute(f"ALTER TABLE {table} RENAME COLUMN taken_at "
                       "TO delivered_at")
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0


def test_table_that_changes_its_shape_while_the_relay_runs(ready_shop):
    shop = ready_shop
    relay = shop.start_relay()
    relay.wait_for(r"relay\.active")
    connection = shop.open("queue")
    connection.execute("DROP TRIGGER to_wire")
    connection.execute("ALTER TABLE messenger_messages RENAME COLUMN headers "
                       "TO hats")
    shop.place_orders(ORDERS)
    trouble(relay, "headers.*another shape")
    connection.execute("ALTER TABLE messenger_messages RENAME COLUMN hats "
                       "TO headers")
    recovered(relay)
    shop.wait_until_relayed()
    assert shop.failed() == [], "no message is to blame"
    assert shop.count("queue", "messenger_messages") == ORDERS
    assert relay.stop() == 0


def test_consumer_names_a_table_of_another_shape(ready_shop):
    shop = ready_shop
    connection = shop.open("billing")
    connection.execute("DROP TABLE message_broker_deduplication")
    connection.execute("CREATE TABLE message_broker_deduplication (a)")
    result = shop.consume_all()
    assert result.returncode == 1
    assert str(shop.path("billing")) in result.stderr
    assert "message_id" in result.stderr
    assert "another shape" in result.stderr


@pytest.mark.parametrize("kind", databases.SERVERS, ids=lambda kind: kind.kind)
def test_an_idle_consumer_tells_that_its_database_is_away(shop, kind):
    """Its queue is elsewhere, and nothing comes."""
    database = kind()
    database.ask("CREATE TABLE effects (order_id INT, message_id CHAR(36), "
                 "name TEXT, body TEXT)")
    port = int(kind.setting("PORT"))
    try:
        with servers.Proxy(port) as proxy:
            shop.configure(replace=[
                (shop.url("billing"), proxy.url(database.url)),
                ("        database: billing",
                 "        database: billing\n"
                 "        deduplication: {auto_setup: true}"),
                ("json_extract(:body, '$.orderId')", "1")])
            consumer = shop.start_consumer()
            consumer.wait_for(r"consumer\.ready")
            proxy.refuse()
            consumer.wait_for(r"warning consumer\.trouble ")
            proxy.accept()
            consumer.wait_for(r"info consumer\.recovered ")
            assert len(consumer.events("consumer.trouble")) <= 2
            assert consumer.stop() == 0
    finally:
        database.drop()


class UserShop(shops.Shop):
    """Permissions mean nothing to the superuser: its programs run as nobody.
    """

    def __init__(self, folder):
        program = folder / "skirnir"
        shutil.copy(shops.PROGRAM, program)
        super().__init__(folder, str(program))
        if os.geteuid() == 0:
            self.options = {"user": NOBODY, "group": NOBODY,
                            "extra_groups": []}

    def give_away(self):
        if os.geteuid() == 0:
            for path in [self.folder, *self.folder.iterdir()]:
                os.chown(path, NOBODY, NOBODY)


@pytest.fixture
def user_shop():
    with tempfile.TemporaryDirectory(prefix="skirnir-test-") as name:
        os.chmod(name, 0o755)
        shop = UserShop(pathlib.Path(name))
        shop.give_away()
        # No files beside the database that a reader would have to write.
        shop.set_up("delete")
        shop.give_away()
        yield shop
        shop.close()
        os.chmod(name, 0o755)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only_database_is_named_and_waited_for(user_shop, name, what):
    shop = user_shop
    shop.place_orders(ORDERS)
    path = shop.path(name)
    if what == "folder":
        # The folder of this one database alone.
        folder = shop.folder / "read-only"
        folder.mkdir()
        shutil.move(path, folder / path.name)
        shop.configure(replace=[(str(path), str(folder / path.name))])
        path.symlink_to(folder / path.name)
        shop.give_away()
        os.chown(folder / path.name, os.stat(folder).st_uid, -1)
        guarded, closed, opened = folder, 0o555, 0o755
    else:
        guarded, closed, opened = path, 0o444, 0o644
    os.chmod(guarded, closed)
    relay = shop.start_relay("--wait")
    trouble(relay, f"{path.name}.*(writable|permission|Permission)")
    assert shop.wire() == [] or name == "shop"
    os.chmod(guarded, opened)
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0


def test_read_only_database_ends_a_command_with_the_cure(user_shop):
    shop = user_shop
    os.chmod(shop.path("shop"), 0o444)
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "writable" in result.stderr
    assert shop.count("shop", "messenger_outbox") == 0


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("command, name", [
    ("relay", "shop"), ("relay", "queue"), ("consume", "queue"),
    ("consume", "billing")])
def test_unwritable_file_ends_relay_and_consumer_with_the_cure(
        user_shop, command, name, journal, what):
    """Waiting makes no file writable. In WAL mode such a folder keeps readers
    out as well."""
    shop = user_shop
    path = shop.path(name)
    connection = sqlite3.connect(path)
    assert connection.execute(
        f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    connection.close()
    folder = shop.folder / "read-only"
    folder.mkdir()
    shutil.move(path, folder / path.name)
    shop.configure(replace=[(str(path), str(folder / path.name))])
    shop.give_away()
    os.chown(folder / path.name, os.stat(folder).st_uid, -1)
    if what == "file":
        os.chmod(folder / path.name, 0o444)
    else:
        os.chmod(folder, 0o555)
    transport = "outbox" if command == "relay" else "orders"
    result = shop.run(command, transport)
    assert result.returncode == 1
    assert f"skirnir {command}: SQLite {folder / path.name}: " in result.stderr
    assert "make the file and its folder writable for this user" in \
        result.stderr
    os.chmod(folder, 0o755)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder],
        stderr=subprocess.DEVNULL).returncode == 0
    if not mounted:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill_up(folder):
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        size = 65536
        while size > 0:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


@pytest.mark.parametrize("name", FILES)
def test_full_disk_is_named_and_waited_for(shop, small_disk, name):
    path = small_disk / f"{name}.db"
    shop.path(name).symlink_to(path)
    shop.configure(in_flight=200)
    shop.set_up()
    shop.place_orders(ORDERS)
    filler = fill_up(small_disk)
    relay = shop.start_relay()
    trouble(relay, "full")
    filler.unlink()
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0


def test_disk_that_is_full_at_the_start_is_named(shop, small_disk):
    """The index of the write-ahead log is made by the first connection."""
    shop.path("shop").symlink_to(small_disk / "shop.db")
    shop.set_up("wal")
    shop.close()
    fill_up(small_disk)
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "shop.db" in result.stderr
    assert "free some space on the disk" in result.stderr


def limit_file_size(size):
    """As a quota: what would be larger cannot be written."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE,
                           (size, resource.RLIM_INFINITY))
    return limit


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_file_that_cannot_grow_is_named_and_waited_for(shop, journal):
    shop.configure(in_flight=200)
    shop.set_up(journal)
    shop.place_orders(ORDERS)
    relay = shop.start_relay(preexec_fn=limit_file_size(40000))
    trouble(relay, r"(shop|queue)\.db.*(full|disk)")
    resource.prlimit(relay.pid, resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0


def test_effects_on_a_full_disk_are_tried_again(shop, small_disk):
    """The message is not to blame: no retry is spent, nothing is failed."""
    shop.path("billing").symlink_to(small_disk / "billing.db")
    shop.configure(max_retries=0)
    shop.set_up()
    shop.place_orders(ORDERS)
    assert shop.relay_all().returncode == 0
    filler = fill_up(small_disk)
    consumer = shop.start_consumer()
    consumer.wait_for(r"consumer\.trouble .*full")
    filler.unlink()
    shop.wait_until_consumed()
    shop.expect_effects_once()
    assert shop.failed() == []
    assert consumer.stop() == 0


@pytest.mark.parametrize("name", FILES)
def test_database_that_is_missing_at_the_start_is_waited_for(ready_shop,
                                                             name):
    """A disk that is mounted late."""
    shop = ready_shop
    shop.place_orders(ORDERS)
    folder = shop.folder / "mounted"
    path = folder / f"{name}.db"
    shop.configure(replace=[(str(shop.path(name)), str(path))])
    relay = shop.start_relay("--wait")
    trouble(relay, f"no folder {folder}")
    for connection in shop.connections:
        connection.close()
    arriving = shop.folder / "arriving"
    arriving.mkdir()
    for file in shop.folder.glob(f"{name}.db*"):
        if not file.name.endswith(".lock"):
            shutil.move(file, arriving / file.name)
    arriving.rename(folder)
    shop.path(name).symlink_to(path)
    recovered(relay)
    expect_all(shop, relay)
    assert relay.stop() == 0
