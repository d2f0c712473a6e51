"""Tables that Symfony made, in the shapes that its versions give them."""
import pytest
import shop as shops
from outbox_world import world  # noqa: F401: a fixture

TABLES = {
    "mysql":
        "CREATE TABLE messenger_outbox (id BIGINT AUTO_INCREMENT NOT NULL, "
        "body LONGTEXT NOT NULL, headers LONGTEXT NOT NULL, "
        "queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL, "
        "available_at DATETIME NOT NULL, delivered_at DATETIME DEFAULT NULL, "
        "PRIMARY KEY(id)) DEFAULT CHARACTER SET utf8mb4 "
        "COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;",
    "postgresql":
        "CREATE TABLE messenger_outbox (id BIGSERIAL NOT NULL, "
        "body TEXT NOT NULL, headers TEXT NOT NULL, "
        "queue_name VARCHAR(190) NOT NULL, "
        "created_at TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL, "
        "available_at TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL, "
        "delivered_at TIMESTAMP(0) WITHOUT TIME ZONE DEFAULT NULL, "
        "PRIMARY KEY(id));",
}
SHAPES = {
    "three": "CREATE INDEX IDX_1 ON messenger_outbox (queue_name);"
             "CREATE INDEX IDX_2 ON messenger_outbox (available_at);"
             "CREATE INDEX IDX_3 ON messenger_outbox (delivered_at);",
    "composite": "CREATE INDEX IDX_1 ON messenger_outbox "
                 "(queue_name, available_at, delivered_at, id);",
    "bare": "",
}


def indexes(server):
    if server.dialect == "mysql":
        return server.ask("SELECT DISTINCT index_name FROM "
                          "information_schema.statistics WHERE table_schema = "
                          "DATABASE() AND table_name = 'messenger_outbox' "
                          "ORDER BY 1")
    return server.ask("SELECT indexname FROM pg_indexes WHERE tablename = "
                      "'messenger_outbox' ORDER BY 1")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_relay_works_on_the_table_as_it_is(world, shape):  # noqa: F811
    world.server.ask(TABLES[world.server.dialect] + SHAPES[shape])
    before = indexes(world.server)
    world.insert()
    shops.until(lambda: world.server.ask(
        "SELECT COUNT(*) FROM messenger_outbox") == "1", "the row")
    # Nothing was set up: the relay makes what is missing beside the table.
    world.start("relay", "outbox").wait_for("relay.active")
    shops.until(lambda: world.path("queue").exists() and world.count(
        "queue", "sqlite_master", "name = 'messenger_messages'") and
        world.count("queue", "messenger_messages") == 1, "the message")
    assert indexes(world.server) == before


@pytest.mark.parametrize("shape, added", [
    ("three", []), ("composite", ["delivered_at"]),
    ("bare", ["queue_name", "available_at", "delivered_at"])])
def test_setup_adds_what_is_missing_and_says_so(world, shape,  # noqa: F811
                                                added):
    world.server.ask(TABLES[world.server.dialect] + SHAPES[shape])
    before = indexes(world.server)
    planned = world.check("setup", "outbox", "--dry-run")
    assert indexes(world.server) == before
    done = world.check("setup", "outbox")
    for column in added:
        assert any("would run" in line and f"({column})" in line
                   for line in planned.splitlines())
        assert any("ran: " in line and f"({column})" in line
                   for line in done.splitlines())
    assert ("would run" in planned) == bool(added)
    assert len(indexes(world.server).split()) == \
        len(before.split()) + len(added)
    again = world.check("setup", "outbox")
    assert "ran: " not in again


FOREIGN = (
    "CREATE TABLE messenger_outbox (id INT PRIMARY KEY, other INT, "
    "queue_name VARCHAR(190), available_at INT, delivered_at INT);"
    "CREATE INDEX messenger_outbox_idx_queue_name ON messenger_outbox (other);"
    "CREATE TABLE unrelated (a INT);"
    "CREATE INDEX messenger_outbox_idx_available_at ON unrelated (a);")
EVERYTHING = {
    "mysql": "SELECT table_name, index_name, column_name FROM "
             "information_schema.statistics WHERE table_schema = DATABASE() "
             "ORDER BY table_name, index_name, seq_in_index",
    "postgresql": "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname "
                  "= current_schema() ORDER BY 1, 2",
}


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["run", "dry-run"])
def test_setup_changes_nothing_around_a_table_of_others(world,  # noqa: F811
                                                        flags):
    world.server.ask(FOREIGN)
    before = world.server.ask(EVERYTHING[world.server.dialect])
    result = world.run("setup", "outbox", *flags)
    assert result.returncode == 1
    assert "messenger_outbox has no column body: this is a table of another " \
        "shape; rename it or configure another name" in result.stderr
    assert "run" not in result.stdout
    assert world.server.ask(EVERYTHING[world.server.dialect]) == before


@pytest.mark.parametrize("place", ["messenger_outbox (body(9))", "unrelated (a)"])
def test_setup_drops_no_index_of_others(world, place):  # noqa: F811
    """A name that is taken, in the table itself or another."""
    dialect = world.server.dialect
    name = "messenger_outbox_idx_queue_name"
    if dialect == "mysql":
        name = "idx_queue_name"
    else:
        place = place.replace("(9)", "")
    world.server.ask(TABLES[dialect] + "CREATE TABLE unrelated (a INT);"
                     f"CREATE INDEX {name} ON {place};")
    before = world.server.ask(EVERYTHING[dialect])
    result = world.run("setup", "outbox")
    assert set(before.splitlines()) <= \
        set(world.server.ask(EVERYTHING[dialect]).splitlines())
    if dialect == "mysql" and place == "unrelated (a)":
        assert result.returncode == 0, result.stderr
        return
    # On MariaDB and MySQL the statement fails.
    assert result.returncode == (dialect == "mysql")
    said = result.stdout + result.stderr
    assert name in said and "rename" in said
    world.server.ask(f"ALTER INDEX {name} RENAME TO mine"
                     if dialect == "postgresql" else
                     f"ALTER TABLE messenger_outbox RENAME INDEX {name} TO mine")
    said = world.check("setup", "outbox")
    assert "(queue_name)" in said and "missing" not in said
    assert "mine" in world.server.ask(EVERYTHING[dialect])
