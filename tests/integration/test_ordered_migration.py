"""From a plain outbox, and from Freyr's ordered transport, to an ordered one:
by the steps of docs/ordered-delivery.md, with writers and relays at work."""
import collections
import itertools
import time

import pytest

import outbox_world
import shop as shops
import symfony_rows as symfony
import test_take_over
import worlds
import writers
from databases import SERVERS, MariaDB, MySQL, PostgreSQL, SQLite
from writers import Row, insert

OPTIONS = """
        serializer: messenger.transport.symfony_serializer
        claim: {claim}"""
CLAIMS = ["exclusive", "lease", "shared"]
BODIES = "SELECT body FROM messenger_messages ORDER BY id"


class World(outbox_world.World):
    def __init__(self, folder, server):
        super().__init__(folder, server)
        self.sessions, self.writers = [], []
        self.use()

    def leave(self):
        """No session may use a database that is dropped."""
        for writer in self.writers:
            writer.stop()
        for session in self.sessions:
            session.close()
        super().leave()

    def use(self, scheme="ordered-doctrine", claim="exclusive"):
        self.set_outbox(OPTIONS.format(claim=claim), scheme)

    def connect(self):
        self.sessions.append(writers.connect(self.server))
        return self.sessions[-1]

    def begin(self, sql):
        """A session whose transaction stays open."""
        session = self.connect()
        session.ask(f"BEGIN; {sql}")
        return session

    def start_writer(self, label="w", keys=(None,),
                     headers=lambda key: outbox_world.PLAIN_TYPE):
        self.writers.append(writers.Writer(self.server, self.connect(), label,
                                           keys, headers))
        self.writers[-1].start()
        self.writers[-1].wait_for_more()
        return self.writers[-1]

    def bodies(self):
        return [body for body, in self.queue.execute(BODIES)]

    def left(self):
        return int(self.server.ask("SELECT COUNT(*) FROM messenger_outbox"))

    def wait_for(self, bodies):
        shops.until(lambda: set(bodies) <= set(self.bodies()),
                    lambda: f"{set(bodies) - set(self.bodies())} in\n" +
                    self.logs(), pause_s=0.05)

    def wait_for_more(self):
        """Of what each writes from now on something arrives."""
        self.wait_for([f"{writer.label}-{len(writer.rows) + 20}"
                       for writer in self.writers])


@pytest.fixture(params=SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path):
    kind = request.param
    made = World(tmp_path, SQLite(tmp_path) if kind is SQLite else kind())
    yield made
    made.leave()


on_postgresql = pytest.mark.parametrize("world", [PostgreSQL], indirect=True)


def judge(bodies, rows):
    """Nothing lost, nothing invented, and of each key the first occurrences in
    the order of ids."""
    known = {row.body: row for row in rows}
    assert set(bodies) == set(known)
    arrived = collections.defaultdict(list)
    for body in dict.fromkeys(bodies):
        arrived[known[body].key].append(known[body].id)
    arrived.pop("", None)
    for key, ids in arrived.items():
        assert ids == sorted(ids), key


@pytest.mark.parametrize("bodies, is_right", [
    ("p2 a1 p1 b1 a1 a2", True), ("p1 p2 a2 b1 a1", False),
    ("p1 p2 a1 b1", False), ("p1 p2 a1 a2 b1 b2", False)])
def test_the_judge_is_just(bodies, is_right):
    rows = [Row(1, "", "p1"), Row(2, "a", "a1"), Row(3, "", "p2"),
            Row(4, "b", "b1"), Row(5, "a", "a2")]
    if is_right:
        judge(bodies.split(), rows)
    else:
        with pytest.raises(AssertionError):
            judge(bodies.split(), rows)


# From a plain outbox.

def start_plain_relays(world):
    relays = []
    for state in ("active", "active|standby"):
        relays.append(world.start_relay())
        relays[-1].wait_for(f"relay.({state})")
    return relays


def replace(world, relay):
    assert relay.stop() == 0, relay.log()
    return world.start_relay()


def replace_in_turn(world, relays):
    """Who is of another scheme than those at work stands by."""
    relays[1] = replace(world, relays[1])
    relays[1].wait_for("relay.standby")
    world.wait_for_more()
    relays[0] = replace(world, relays[0])
    # The first relay where one works alone.
    shops.until(lambda: any(relay.events("relay.active") for relay in relays),
                world.logs)


@pytest.mark.alike
@pytest.mark.parametrize("world, claim", [
    (kind, claim) for kind in (*SERVERS, SQLite) for claim in CLAIMS],
    indirect=["world"])
def test_a_plain_outbox_becomes_an_ordered_one_at_work(world, claim):
    world.use("doctrine", claim)
    world.set_up()
    relays = start_plain_relays(world)
    writers = [world.start_writer(label) for label in "abc"]
    world.wait_for_more()
    # Step 1, beside relays that know nothing of it.
    world.use("ordered-doctrine", claim)
    assert "ran: ALTER TABLE" in world.check("setup")
    assert "ran: " not in world.check("setup")
    world.wait_for_more()
    # Step 2.
    replace_in_turn(world, relays)
    world.wait_for_more()
    # Step 3; one of them never comes to know keys.
    for writer in writers[1:]:
        writer.keys = [f"{writer.label}{number}" for number in range(5)]
        world.wait_for_more()
    rows = [row for writer in writers for row in writer.finish()]
    shops.until(lambda: world.left() == 0, world.logs, pause_s=0.05)
    for relay in relays:
        assert relay.stop() == 0, relay.log()
    judge(world.bodies(), rows)
    keyed = [row.id for row in rows if row.key]
    plain = [row.id for row in rows if not row.key]
    assert len(plain) > 300 and len(keyed) > 50
    assert min(keyed) < max(plain)


# From Freyr's ordered transport.

FREYR_COLUMNS = (
    "body {text} NOT NULL, headers {text} NOT NULL, "
    "queue_name VARCHAR(190) NOT NULL, created_at {time} NOT NULL, "
    "available_at {time} NOT NULL, delivered_at {time} DEFAULT NULL, "
    "partition_key VARCHAR(255) NOT NULL DEFAULT ''")
FREYR_INDEXES = {
    "idx_outbox_available": "queue_name, available_at, delivered_at, id",
    "idx_outbox_partition_order":
        "queue_name, partition_key, available_at, delivered_at, id"}
MYSQL_TABLE = (
    "CREATE TABLE messenger_outbox (id {id} NOT NULL AUTO_INCREMENT "
    "PRIMARY KEY, " + FREYR_COLUMNS.format(text="LONGTEXT", time="DATETIME") +
    ") ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_ci")
# Of different versions.
FREYR_TABLES = {
    "unsigned": MYSQL_TABLE.format(id="BIGINT UNSIGNED"),
    "signed": MYSQL_TABLE.format(id="BIGINT"),
    "numbered": "CREATE TABLE messenger_outbox (id BIGSERIAL PRIMARY KEY, " +
                FREYR_COLUMNS.format(text="TEXT", time="TIMESTAMP(0)") +
                ", transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id())"}
LONG_AGO = {"mysql": "UTC_TIMESTAMP() - INTERVAL 2 HOUR",
            "postgresql": "(now() AT TIME ZONE 'UTC') - INTERVAL '2 hours'"}
NUMBERS = itertools.count(1)


def freyr_headers(key):
    """As Symfony's serializer writes them for an envelope with a key."""
    return symfony.FREYR_HEADERS["ordered"].replace(
        "customer-7", key).replace(
        symfony.ULID, symfony.message_id(next(NUMBERS)))


class FreyrTable:
    """One with what its workers have left behind."""
    # What a relay takes, and what it leaves alone.
    free = {"dead-0", "dead-1", "dead-2", "none-0", "none-3", "none-4"}
    held = {"alive-0", "alive-1", "php-0", "php-1", "none-1", "none-2"}

    def __init__(self, world, sql):
        self.server, self.session = world.server, world.connect()
        self.session.run(sql)
        for name, columns in FREYR_INDEXES.items():
            self.session.run(
                f"CREATE INDEX {name} ON messenger_outbox ({columns})")
        self.rows = []
        dead, alive = LONG_AGO[self.server.dialect], self.server.now
        for number in range(3):  # the first was claimed by one that died
            self.add(f"dead-{number}", "dead", "NULL" if number else dead)
        self.add("alive-0", "alive", alive)
        self.add("alive-1", "alive")
        self.add_php("php-0", "php")
        self.add("php-1", "php")
        self.add("none-0", "")
        self.add("none-1", "", alive)
        self.add_php("none-2", "")
        self.add("none-3", "", dead)
        self.add("none-4", "")

    def add(self, body, key, delivered_at="NULL"):
        row = insert(self.session, self.server, body, key, freyr_headers(key),
                     delivered_at)
        self.rows.append(Row(row, key, body))

    def add_php(self, body, key):
        text = worlds.quote(symfony.PHP_BODIES[0])[1:-1]
        row = insert(self.session, self.server, text, key, symfony.PHP_HEADERS)
        self.rows.append(Row(row, key, body))

    def take_as_php(self):
        """What a worker does with rows that only PHP reads."""
        self.session.run("DELETE FROM messenger_outbox WHERE headers = "
                         f"'{symfony.PHP_HEADERS}'")
        self.rows = [row for row in self.rows
                     if row.body not in ("php-0", "none-2")]

    def forget_workers(self):
        """Time passes, and none of them has come back."""
        self.session.run("UPDATE messenger_outbox SET delivered_at = "
                         f"{LONG_AGO[self.server.dialect]} "
                         "WHERE delivered_at IS NOT NULL")


def expect_indexes(world):
    """They are added once, and those that are there stay."""
    before = test_take_over.indexes(world.server).split()
    added = [line for line in world.check("setup").splitlines()
             if "ran: " in line and "INDEX" in line and "DROP" not in line]
    assert len(added) == 2 and "(delivered_at)" in added[0]
    assert PARTITION_INDEX in added[1]
    after = test_take_over.indexes(world.server).split()
    assert set(before) < set(after) and len(after) == len(before) + 2
    assert "ran: " not in world.check("setup")


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("world, table", [
    (MariaDB, "unsigned"), (MariaDB, "signed"), (MySQL, "unsigned"),
    pytest.param(MySQL, "signed", marks=pytest.mark.alike),
    (PostgreSQL, "numbered")],
    indirect=["world"])
def test_freyrs_table_is_taken_over(world, table, claim):
    world.use(claim=claim)
    table = FreyrTable(world, FREYR_TABLES[table])
    writer = world.start_writer("w", ["w0", "w1", "w2"], freyr_headers)
    expect_indexes(world)
    writer.wait_for_more()
    rows = writer.finish()
    # What a worker may have in its hands is left alone, and what only PHP
    # reads, and whatever comes after those in their partitions.
    world.queue = world.open("queue")
    relay = world.start_relay()
    relay.wait_for("relay.foreign_rows.*symfony_serializer")
    world.wait_for(table.free | {row.body for row in rows})
    assert relay.stop() == 0
    assert not table.held & set(world.bodies())
    table.take_as_php()
    table.forget_workers()
    world.check("relay", "outbox", "--stop-when-empty")
    assert world.left() == 0
    judge(world.bodies(), table.rows + rows)


# Setup, while writers write.

PARTITION_INDEX = "(queue_name, partition_key, id)"
MANY = {
    "mysql": "SELECT '{}', '{}', 'outbox', UTC_TIMESTAMP(), UTC_TIMESTAMP() "
             "FROM JSON_TABLE(CONCAT('[1', REPEAT(',1', 299999), ']'), "
             "'$[*]' COLUMNS (n INT PATH '$')) AS numbers",
    "postgresql": "SELECT '{}', '{}', 'outbox', now(), now() "
                  "FROM generate_series(1, 300000)"}
DROP_INDEX = {"mysql": "DROP INDEX idx_partition_id ON messenger_outbox",
              "postgresql": "DROP INDEX messenger_outbox_idx_partition_id"}
USES = {
    "read": "SELECT COUNT(*) FROM messenger_outbox",
    "write": f"INSERT INTO messenger_outbox {outbox_world.COLUMNS} VALUES "
             f"('{{}}', '{outbox_world.PLAIN_TYPE}', 'outbox', "
             "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP); SELECT 1"}
# Setup waits for one second. Its other statements do for five: they keep nobody
# waiting.
BEARABLE_S = 4


def fill(world):
    """Indexes come last, which is faster."""
    dialect = world.server.dialect
    world.server.ask(
        test_take_over.TABLES[dialect] +
        "INSERT INTO messenger_outbox "
        f"{outbox_world.COLUMNS} {MANY[dialect]};" +
        test_take_over.SHAPES["three"])


def test_writers_go_on_while_a_large_table_is_altered(world):
    """By several at once, of whom one does it."""
    fill(world)
    writer = world.start_writer()
    began = time.monotonic()
    setups = [world.start("setup") for _ in range(3)]
    for setup in setups:
        assert setup.end() == 0, setup.log()
    took_s = time.monotonic() - began
    writer.wait_for_more()
    writer.finish()
    said = "".join(line for setup in setups
                   for line in setup.log().splitlines() if "ran: " in line)
    assert said.count("ADD COLUMN") == said.count(PARTITION_INDEX) == 1
    # Waiting for the index a writer would wait for nearly all of that time.
    assert writer.longest_wait(began) < took_s / 2


def lack_column(world):
    world.use("doctrine")
    world.set_up()
    world.use()
    return "partition_key"


def lack_index(world):
    world.set_up()
    world.server.ask(DROP_INDEX[world.server.dialect])
    return "idx_partition_id"


@pytest.mark.parametrize("world, lack, use", [
    *((kind, lack_column, use) for kind in SERVERS for use in USES),
    (MariaDB, lack_index, "read"), (MySQL, lack_index, "read")], indirect=["world"])
def test_setup_gives_up_before_writers_have_waited_for_long(world, lack, use):
    """They queue up behind who waits to alter a table that another uses."""
    name = lack(world)
    writer = world.start_writer()
    began = time.monotonic()
    session = world.begin(USES[use])
    for _ in range(2):
        result = world.run("setup")
        assert result.returncode == 1
        assert f"{name} was not added; run this again when the transaction " \
            "is over" in result.stderr
        writer.wait_for_more()
    session.run("COMMIT")
    assert "ran: " in world.check("setup")
    writer.wait_for_more()
    writer.finish()
    assert writer.longest_wait(began) < BEARABLE_S


# PostgreSQL makes an index beside transactions, and waits for their ends.

def count_indexes(world, is_valid):
    return int(world.server.ask(
        "SELECT COUNT(*) FROM pg_index WHERE indexrelid = "
        "to_regclass('messenger_outbox_idx_partition_id') "
        f"AND indisvalid = {is_valid}"))


def start_index(world):
    """A setup that waits for the transaction of a session."""
    lack_index(world)
    session = world.begin(USES["write"])
    setup = world.start("setup")
    setup.wait_for("running: CREATE INDEX CONCURRENTLY")
    assert "ran: CREATE" not in setup.log()
    shops.until(lambda: count_indexes(world, False) == 1, "the index")
    return session, setup


def expect_wait(setup):
    setup.wait_for("waits for another setup in this database")


@on_postgresql
def test_writers_do_not_wait_for_an_index_that_waits(world):
    session, first = start_index(world)
    others = [world.start("setup") for _ in range(7)]
    for other in others:
        expect_wait(other)
    writer = world.start_writer()
    writer.wait_for_more(200)
    assert all(setup.is_running() for setup in (first, *others))
    session.run("COMMIT")
    for setup in (first, *others):
        assert setup.end() == 0, setup.log()
    writer.finish()
    assert not any("ran: " in other.log() for other in others)
    assert count_indexes(world, True) == 1


@on_postgresql
def test_what_a_killed_setup_began_the_server_ends(world):
    session, setup = start_index(world)
    setup.kill()
    again = world.start("setup")
    expect_wait(again)
    session.run("COMMIT")
    assert again.end() == 0, again.log()
    assert "ran: " not in again.log()
    assert count_indexes(world, True) == 1


@on_postgresql
def test_what_the_server_did_not_end_is_made_anew(world):
    session, setup = start_index(world)
    world.server.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname "
        "= current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%'")
    assert setup.end() == 1
    session.run("COMMIT")
    assert count_indexes(world, False) == 1
    assert "ran: DROP INDEX" in world.check("setup")
    assert count_indexes(world, True) == 1
