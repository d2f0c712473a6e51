"""Servers that can only be read: a standby, a replica, a primary that becomes
one. Who works passes them over or waits, and says so; who only reads, reads.
Where another server becomes the primary, nothing is settled there that was read
from the old one: its ids may be those of other rows."""
import contextlib
import json
import pathlib
import sys
import threading

import pytest

import databases
import mortals
import shop as shops

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above

CONFIG = """\
databases:
    default: '{database}'
    queue: '{queue}'
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
        in_flight: {in_flight}{options}
    orders:
        dsn: 'queue://queue?queue_name=orders'
        options: {{auto_setup: true}}
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
handlers:
    order.placed: {{sql: "INSERT INTO effects VALUES (:body)"}}
"""


def hosts(*running):
    """A DSN that names these servers in this order."""
    scheme, _, rest = running[0].url.partition("://")
    user, _, rest = rest.partition("@")
    names = ",".join(f"127.0.0.1:{server.port}" for server in running)
    return f"{scheme}://{user}@{names}/{rest.partition('/')[2]}"


class World(shops.Shop):
    """An outbox in a server; the queue is a file."""

    def __init__(self, folder, server, scheme="doctrine"):
        super().__init__(folder)
        self.server = server
        self.scheme = scheme
        self.use(server.url)

    def use(self, url, in_flight=50, options=""):
        self.write_config(CONFIG.format(
            database=url, queue=self.url("queue"), scheme=self.scheme,
            in_flight=in_flight, options=options))

    def set_up(self):
        self.check("setup")

    def insert(self, count, first=0, server=None, key="", before="",
               after=""):
        server = server or self.server
        now = databases.BY_KIND[server.name].now
        column, value = ("", "") if self.scheme == "doctrine" else \
            (", partition_key", f", '{key}'")
        values = ", ".join(
            f"('{json.dumps({'n': number})}', '{{\"type\":\"order.placed\"}}', "
            f"'outbox', {now}, {now}{value})"
            for number in range(first, first + count))
        server.query(
            f"{before}INSERT INTO messenger_outbox (body, headers, "
            f"queue_name, created_at, available_at{column}) "
            f"VALUES {values}{after}", "skirnir")

    def left(self, server=None):
        return int((server or self.server).query(
            "SELECT COUNT(*) FROM messenger_outbox", "skirnir"))

    def arrived(self):
        """Numbers in the order of their arrival."""
        if not self.path("queue").exists():
            return []
        return [json.loads(body)["n"] for body, in self.query(
            "queue", "SELECT body FROM messenger_messages ORDER BY id")]


@pytest.fixture(scope="module")
def pair():
    """A primary and a standby of it, which stay so."""
    with servers.PostgreSQL() as primary, servers.Standby(primary) as standby:
        yield primary, standby


@pytest.fixture
def pair_world(tmp_path, pair):
    primary, standby = pair
    opened = World(tmp_path, primary)
    opened.set_up()
    shops.until(standby.has_all, "the standby")
    yield opened
    opened.close()
    primary.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def test_a_standby_that_is_named_first_is_passed_over(pair_world, pair):
    world, (primary, standby) = pair_world, pair
    world.insert(300)
    world.use(hosts(standby, primary))
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.passed_over.*").group()
    assert f"127.0.0.1:{standby.port}" in said
    assert "it is a standby" in said
    shops.until(lambda: world.left() == 0, relay.log)
    # One who works there already keeps out one who has the other order.
    world.use(hosts(primary, standby))
    other = world.start_relay()
    other.wait_for(r"relay\.standby")
    assert other.stop() == 0
    assert relay.stop() == 0
    assert sorted(world.arrived()) == list(range(300))
    assert len(relay.events("relay.passed_over")) == 1
    assert relay.events("relay.trouble") == []


@pytest.mark.parametrize("attributes", ["any", "read-write"])
def test_what_the_dsn_says_of_sessions_does_not_lead_to_a_standby(
        pair_world, pair, attributes):
    world, (primary, standby) = pair_world, pair
    world.insert(20)
    world.use(hosts(standby, primary) + f"?target_session_attrs={attributes}")
    world.check("relay", "outbox", "--stop-when-empty")
    assert world.left() == 0
    assert sorted(world.arrived()) == list(range(20))


def test_a_consumer_works_on_the_primary(pair_world, pair):
    world, (primary, standby) = pair_world, pair
    primary.query("CREATE TABLE effects (body TEXT)")
    world.check("setup-deduplication", "--force")
    world.insert(20)
    world.use(hosts(standby, primary))
    world.check("relay", "outbox", "--stop-when-empty")
    consumer = world.start("consume", "orders", "--stop-when-empty")
    assert consumer.end() == 0, consumer.log()
    assert primary.query("SELECT COUNT(*) FROM effects").strip() == "20"
    assert len(consumer.events("consumer.passed_over")) == 1


def test_a_lone_standby_is_read_and_not_worked_on(pair_world, pair):
    world, (primary, standby) = pair_world, pair
    world.insert(20)
    shops.until(standby.has_all, "the standby")
    world.use(standby.url)
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.trouble.*").group()
    assert f"127.0.0.1:{standby.port}/skirnir" in said
    assert "name the primary in the DSN" in said
    result = world.run("setup")
    assert result.returncode == 1
    assert "it is a standby" in result.stderr
    assert "20" in world.check("stats", "outbox")
    world.check("failed", "show")
    world.check("config", "check")
    assert relay.events("relay.active") == []
    assert relay.stop() == 0
    assert world.arrived() == []
    assert world.left() == 20


def test_one_who_waits_says_why_each_host_will_not_do(pair_world, pair):
    world, (_, standby) = pair_world, pair
    world.use(hosts(standby).replace("/skirnir", ",127.0.0.1:1/skirnir"))
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.trouble.*").group()
    assert "it is a standby" in said and "127.0.0.1:1/" in said, said
    assert relay.stop() == 0


CLERK = {"mysql": "CREATE USER clerk@localhost; "
                  "GRANT ALL ON skirnir.* TO clerk@localhost; "
                  "GRANT PROCESS ON *.* TO clerk@localhost",
         "postgresql": "CREATE ROLE clerk LOGIN; "
                       "GRANT ALL ON SCHEMA public TO PUBLIC"}


def is_mysql(server):
    return databases.BY_KIND[server.name].dialect == "mysql"


class Demotion:
    """What makes a server that is worked on one that can only be read, and
    back."""

    def __init__(self, server, user):
        self.server, self.user = server, user
        self.is_mysql = is_mysql(server)

    def set(self, value):
        if self.is_mysql:
            self.server.query(f"SET GLOBAL read_only = {value}")
            return
        word = "on" if value else "off"
        self.server.query("ALTER SYSTEM SET default_transaction_read_only "
                          f"= {word}", "postgres")
        self.server.query("SELECT pg_reload_conf()")
        shops.until(lambda: self.server.query(
            "SHOW default_transaction_read_only").strip() == word, word)

    def insert(self, world, number):
        if self.is_mysql:
            world.insert(1, first=number)
        else:
            world.insert(1, first=number, before="SET default_transaction_"
                         "read_only = off; COMMIT; BEGIN; ",
                         after="; COMMIT")

    def url(self):
        return self.server.url.replace("root@", f"{self.user}@")


@pytest.fixture(scope="module")
def lone_servers():
    with mortals.start() as started:
        for server in started.values():
            server.query(CLERK[databases.BY_KIND[server.name].dialect])
        yield started


@pytest.fixture(params=["mariadb-clerk", "mariadb-root", "mysql-clerk",
                        "mysql-root", "postgresql-clerk"])
def demotion(request, lone_servers):
    """root may write on MariaDB and MySQL all the same."""
    name, _, user = request.param.partition("-")
    made = Demotion(lone_servers[name], user)
    yield made
    made.set(0)


def test_a_relay_leaves_a_server_that_becomes_read_only(tmp_path, demotion):
    server = demotion.server
    world = World(tmp_path, server)
    world.use(demotion.url())
    world.set_up()
    try:
        relay = world.start_relay()
        relay.wait_for(r"relay\.active")
        world.insert(20)
        shops.until(lambda: world.left() == 0, relay.log)
        demotion.set(1)
        # There are always some who may write. A relay that is busy looks more
        # often whether the queue is still its own.
        inserted = []

        def insert_until_trouble():
            inserted.append(20 + len(inserted))
            demotion.insert(world, inserted[-1])
            return relay.events("relay.trouble") != []
        shops.until(insert_until_trouble, relay.log, pause_s=0.1)
        said = relay.wait_for(r"relay\.trouble.*").group()
        assert "read-only" in said or "read_only" in said, said
        assert f"127.0.0.1:{server.port}/skirnir" in said, said
        assert world.left() == len(inserted) or demotion.user == "root"
        demotion.set(0)
        # It has let go of the lock with its session.
        relay.wait_for(r"relay\.recovered")
        world.insert(20, first=1000)
        shops.until(lambda: world.left() == 0, relay.log)
        assert relay.stop() == 0
        assert set(world.arrived()) == {*range(20), *inserted,
                                        *range(1000, 1020)}
    finally:
        world.close()
        demotion.set(0)
        clear(server)


def test_a_server_that_is_read_only_is_read_and_not_worked_on(
        tmp_path, demotion):
    server = demotion.server
    world = World(tmp_path, server)
    world.use(demotion.url())
    world.set_up()
    world.insert(20)
    try:
        demotion.set(1)
        relay = world.start_relay()
        said = relay.wait_for(r"relay\.trouble.*").group()
        assert f"127.0.0.1:{server.port}/skirnir" in said, said
        assert "make this server writable" in said, said
        assert "20" in world.check("stats", "outbox")
        assert world.arrived() == []
        demotion.set(0)
        relay.wait_for(r"relay\.recovered")
        shops.until(lambda: world.left() == 0, relay.log)
        assert relay.stop() == 0
        assert world.arrived() == list(range(20))
    finally:
        world.close()
        demotion.set(0)
        clear(server)


def clear(server):
    if is_mysql(server):
        server.query("DROP DATABASE skirnir; CREATE DATABASE skirnir")
    else:
        server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public; "
                     "GRANT ALL ON SCHEMA public TO PUBLIC")


@pytest.mark.alike
@pytest.mark.parametrize("kind", databases.MARIADB_AND_MYSQL,
                         ids=lambda kind: kind.kind)
def test_a_replica_that_is_named_first_is_passed_over(tmp_path, kind):
    databases.need(kind.variable("URL"))
    kind = servers.KINDS[kind.kind]
    with kind(settings={"server-id": 1}) as primary, \
            kind(settings={"server-id": 2, "read-only": 1}) as replica:
        world = World(tmp_path, primary)
        world.set_up()
        world.insert(100)
        world.use(hosts(replica, primary))
        relay = world.start_relay()
        said = relay.wait_for(r"relay\.passed_over.*").group()
        assert f"127.0.0.1:{replica.port}/skirnir" in said
        shops.until(lambda: world.left() == 0, relay.log)
        assert relay.stop() == 0
        assert world.arrived() == list(range(100))
        world.close()


def hold_rows(server):
    """Keeps deletions of rows of the outbox waiting, while the server lives.
    """
    def hold():
        with contextlib.suppress(servers.ServerError):
            server.query("BEGIN; SELECT id FROM messenger_outbox FOR UPDATE; "
                         "SELECT pg_sleep(600)")
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    shops.until(lambda: server.query(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    ).strip() == "1", "locked rows")
    return holder


def wait_for_settler(server, relay):
    """The relay knows what the broker has, and wants to delete those rows."""
    shops.until(lambda: server.query(
        "SELECT COUNT(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%DELETE%'"
    ).strip() != "0", relay.log)


@pytest.mark.parametrize("may_ask", [True, False])
def test_a_restart_leaves_what_was_read_to_be_settled(
        tmp_path, lone_servers, may_ask):
    """It is the same server. Where the user may not ask who it is it counts as
    another, and the rows are sent again: none is lost."""
    server = lone_servers["postgresql"]
    world = World(tmp_path, server)
    world.use(server.url.replace("postgres@", "clerk@"), in_flight=200)
    world.set_up()
    world.insert(100)
    if not may_ask:
        server.query("REVOKE EXECUTE ON FUNCTION pg_control_system() "
                     "FROM PUBLIC")
    try:
        holder = hold_rows(server)
        relay = world.start_relay()
        shops.until(lambda: len(world.arrived()) == 100, relay.log)
        wait_for_settler(server, relay)
        server.kill()
        holder.join()
        server.start()
        shops.until(lambda: world.left() == 0, relay.log)
        assert relay.stop() == 0
        changes = relay.events("relay.server_changed")
        if may_ask:
            assert sorted(world.arrived()) == list(range(100))
            assert changes == []
        else:
            assert set(world.arrived()) == set(range(100))
            assert changes != []
    finally:
        world.close()
        server.query("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        clear(server)


@pytest.mark.parametrize("scheme", ["doctrine", "ordered-doctrine"])
def test_nothing_of_the_old_primary_is_settled_on_the_new_one(
        tmp_path, scheme):
    """The standby lacks the last rows, and so gives their ids to others."""
    with servers.PostgreSQL() as old, servers.Standby(old) as new:
        world = World(tmp_path, old, scheme)
        world.set_up()
        world.insert(40)
        world.check("relay", "outbox", "--stop-when-empty")
        shops.until(new.has_all, "the standby")
        # It stays behind from here on.
        new.settings["primary_conninfo"] = ""
        new.restart()
        world.insert(100, first=100)
        holder = hold_rows(old)
        world.use(hosts(old, new), in_flight=400)
        relay = world.start_relay()
        shops.until(lambda: len(world.arrived()) == 140, relay.log)
        wait_for_settler(old, relay)
        last = int(old.query("SELECT MAX(id) FROM messenger_outbox"))
        old.kill()
        holder.join()
        new.promote()
        world.insert(40, first=300, server=new)
        # Sequences are known on a standby for 32 ids ahead.
        first = int(new.query("SELECT MIN(id) FROM messenger_outbox"))
        assert first < last, "no id is given twice"
        shops.until(lambda: world.left(new) == 0, relay.log)
        assert relay.stop() == 0
        lost = set(range(300, 340)) - set(world.arrived())
        assert lost == set(), relay.log()
        assert relay.events("relay.server_changed") != []
        world.close()
