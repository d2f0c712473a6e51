"""Tables of another shape and users without the needed rights: what is missing
is named, nothing is lost or sent again and again, and once it is there the
relay goes on by itself."""
import json

import pytest

import databases
import outbox_world
import shop as shops
import worlds

GOOD = 1000
RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]
BAD = ('{"n":-1}', json.dumps({"type": "order.placed",
                               "X-Skirnir-Routing-Key": "nobody.listens"}))


class User:
    """A login with all rights on the tables but one."""

    def __init__(self, world):
        self.world = world
        self.name = world.database.name
        self.is_mariadb = world.database.dialect == "mysql"
        self.who = f"{self.name}@localhost" if self.is_mariadb else self.name

    def create(self):
        if self.is_mariadb:
            self.ask(f"CREATE USER {self.who}")
        else:
            self.ask(f"CREATE ROLE {self.name} LOGIN")
        url = self.world.database.url
        scheme, _, rest = url.partition("://")
        self.world.set_config(replace=[
            (url, f"{scheme}://{self.name}@{rest.partition('@')[2]}")])

    def drop(self):
        self.world.close()
        if self.is_mariadb:
            self.ask(f"DROP USER {self.who}")
        else:
            self.ask(f"DROP OWNED BY {self.name}; DROP ROLE {self.name}")

    def ask(self, sql):
        self.world.ask(sql)

    def allow(self, rights, table):
        self.ask(f"GRANT {rights} ON {table} TO {self.who}")

    def allow_all_but(self, right, table):
        for each in ("messenger_outbox", "messenger_messages",
                     "skirnir_meta"):
            for one in RIGHTS:
                if (one, each) != (right, table):
                    self.allow(one, each)


@pytest.fixture
def user(world):
    made = User(world)
    made.create()
    yield made
    made.drop()


def set_up(world):
    """As a user who may."""
    text = world.config_path.read_text()
    world.set_config()
    world.set_up()
    world.write_config(text)


def test_without_select_the_relay_waits(world, user):
    set_up(world)
    world.insert(GOOD)
    user.allow_all_but("SELECT", "messenger_outbox")
    relay = world.start_relay("--wait")
    said = relay.wait_for(r"relay\.trouble.*").group()
    assert "SELECT" in said and "messenger_outbox" in said
    assert user.name in said
    user.allow("SELECT", "messenger_outbox")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.take_numbers() == list(range(GOOD))
    assert len(relay.events("relay.trouble")) == 1


def test_who_may_only_select_is_told_at_the_start(world, user):
    set_up(world)
    world.insert(1)
    for table in ("messenger_outbox", "messenger_messages", "skirnir_meta"):
        user.allow("SELECT", table)
    result = world.run("relay", "outbox")
    assert result.returncode == 1, result.stderr
    assert "messenger_outbox" in result.stderr
    assert "DELETE" in result.stderr and "rant" in result.stderr.lower()
    assert world.client.count("orders") == 0


def test_without_delete_no_more_is_sent_than_may_be_in_flight(world, user):
    set_up(world)
    world.insert(GOOD)
    user.allow_all_but("DELETE", "messenger_outbox")
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.(settle_)?trouble.*").group()
    assert "DELETE" in said and "messenger_outbox" in said
    shops.until(lambda: world.client.count("orders") > 0, relay.log)
    user.allow("DELETE", "messenger_outbox")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    numbers = world.take_numbers()
    assert set(numbers) == set(range(GOOD))
    assert len(numbers) <= GOOD + worlds.IN_FLIGHT


@pytest.mark.alike
def test_without_insert_into_the_failed_table_the_message_stays(world, user):
    set_up(world)
    world.write(BAD)
    world.insert(GOOD)
    user.allow_all_but("INSERT", "messenger_messages")
    relay = world.start_relay()
    said = relay.wait_for(r"relay\.(settle_)?trouble.*").group()
    assert "INSERT" in said and "messenger_messages" in said
    assert world.ask("SELECT COUNT(*) FROM messenger_outbox "
                     "WHERE body = '{\"n\":-1}'") == "1"
    user.allow("INSERT", "messenger_messages")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    (body, _, _), = world.failed()
    assert body == BAD[0]
    numbers = world.take_numbers()
    assert set(numbers) == set(range(GOOD))
    assert len(numbers) <= GOOD + worlds.IN_FLIGHT


@pytest.mark.alike
def test_without_update_a_retry_cannot_be_noted(world, user):
    set_up(world)
    # Room for one: the next is refused, which is not its fault for ever.
    world.client.delete_queue("orders")
    world.declare_queue("orders", "order.placed", arguments={
        "x-max-length": 1, "x-overflow": "reject-publish"})
    world.declare_queue("people", "user.added")
    world.insert(2)
    world.insert(GOOD, name="user.added")
    user.allow_all_but("UPDATE", "messenger_outbox")
    relay = world.start_relay()
    # Where a full queue pauses its route, no retry is noted and no right is
    # missed; else it is named. The others arrive in any case, once it is there.
    shops.until(lambda: "UPDATE" in relay.log() or
                world.client.count("people") == GOOD, relay.log)
    user.allow("UPDATE", "messenger_outbox")
    shops.until(lambda: world.client.count("people") >= GOOD, relay.log)
    shops.until(lambda: world.left() == 1, relay.log)
    assert world.take_numbers() == [0]
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.take_numbers() == [1]
    assert set(world.take_numbers("people")) == set(range(GOOD))
    assert world.failed() == []


@pytest.fixture
def stranger(place):
    """A login without any right."""
    made = User(place)
    made.create()
    yield made
    made.drop()


@pytest.mark.parametrize("place, change, cure", [
    ("mariadb", "SELECT 1", "or correct its name in the DSN"),
    ("mariadb", "GRANT ALL ON *.* TO {0}@localhost; "
     "ALTER USER {0}@localhost WITH MAX_QUERIES_PER_HOUR 1",
     "raise that limit, by ALTER USER"),
    ("postgresql", "REVOKE CONNECT ON DATABASE {0} FROM PUBLIC",
     "GRANT CONNECT ON DATABASE"),
    ("postgresql", "ALTER ROLE {0} CONNECTION LIMIT 0",
     "the CONNECTION LIMIT of the role"),
    ("postgresql", "SELECT 1", "grant the right to SELECT to user {0}"),
], indirect=["place"])
def test_what_a_login_lacks_is_told_with_its_cure(place, stranger, change,
                                                  cure):
    stranger.ask(change.format(stranger.name))
    result = place.run("failed", "show")
    assert result.returncode == 1
    assert cure.format(stranger.name) in result.stderr, result.stderr


def test_setup_without_create_names_the_right(world, user):
    if not user.is_mariadb:
        user.ask(f"GRANT CONNECT ON DATABASE {user.name} TO {user.name}; "
                 "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    else:
        user.ask(f"GRANT SELECT, INSERT ON {user.name}.* TO {user.who}")
    result = world.run("setup")
    assert result.returncode == 1
    assert "CREATE" in result.stderr and user.name in result.stderr
    assert "rant" in result.stderr.lower()


@pytest.mark.parametrize("column", ["headers", "available_at", "delivered_at"])
def test_a_table_without_a_column_names_it(world, column):
    world.set_up()
    world.insert(GOOD)
    world.ask(f"ALTER TABLE messenger_outbox RENAME COLUMN {column} TO other")
    result = world.run("setup")
    assert result.returncode == 1
    relay = world.start_relay("--wait")
    logged = relay.wait_for(r"relay\.trouble.*").group()
    for said in (result.stderr, logged):
        assert column in said and "messenger_outbox" in said
    world.ask(f"ALTER TABLE messenger_outbox RENAME COLUMN other TO {column}")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.take_numbers() == list(range(GOOD))


@pytest.fixture(params=databases.MARIADB_AND_MYSQL,
                ids=lambda kind: kind.kind)
def mere_owner(request, tmp_path):
    """An ordered outbox of one who has all rights on its database alone."""
    server = request.param()
    made = outbox_world.World(tmp_path, server)
    who = f"{server.name}@localhost"
    server.ask(f"CREATE USER {who}; GRANT ALL ON {server.name}.* TO {who}")
    made.write_config(
        made.config_path.read_text().replace("root@", f"{server.name}@")
        .replace("'doctrine:", "'ordered-doctrine:"))
    yield made
    made.close()
    server.ask(f"DROP USER {who}")
    server.drop()


def test_without_process_an_ordered_relay_says_so_once(mere_owner):
    mere_owner.set_up()
    relay = mere_owner.start("relay", "outbox")
    for number in range(3):
        mere_owner.check("publish", "order.placed", "--body", str(number),
                         "--partition-key", "a")
        shops.until(lambda: mere_owner.arrived() == number + 1, "the message")
    said = relay.wait_for(r"relay\.right_missing.*").group()
    assert "GRANT PROCESS ON *.* TO" in said
    assert relay.stop() == 0
    assert len(relay.events("relay.right_missing")) == 1


def test_the_rights_that_the_manual_names_are_enough_to_set_up(mere_owner):
    """Those of a new table, and what adding to one takes besides."""
    server = mere_owner.server
    who = f"{server.name}@localhost"
    ordered = mere_owner.config_path.read_text()
    server.ask(f"REVOKE ALL ON {server.name}.* FROM {who}; "
               "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX "
               f"ON {server.name}.* TO {who}")
    mere_owner.write_config(ordered.replace("'ordered-doctrine:", "'doctrine:"))
    mere_owner.check("setup")
    mere_owner.write_config(ordered)
    result = mere_owner.run("setup")
    assert result.returncode == 1 and "ALTER" in result.stderr
    server.ask(f"GRANT ALTER ON {server.name}.* TO {who}")
    mere_owner.check("setup")
    mere_owner.check("setup")
