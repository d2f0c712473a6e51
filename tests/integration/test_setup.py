"""setup and setup-deduplication: harmless again, at once, and on paper."""
import re
import shutil
import sqlite3
import subprocess

import pytest

import shop as shops

TABLES = {
    "shop": {"messenger_outbox", "messenger_messages", "skirnir_meta"},
    "queue": {"messenger_messages", "skirnir_meta"},
}
DEDUPLICATION = "message_broker_deduplication"


def schema(shop, name):
    """Every table and index, with its text."""
    return dict(shop.query(
        name, "SELECT name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite_%'"))


def files(shop):
    return sorted(path.name for path in shop.folder.iterdir())


def test_setup_makes_the_tables_and_may_be_repeated(shop):
    first = shop.check("setup")
    assert "table messenger_outbox in database default is made" in first
    assert "table messenger_messages in database queue is made" in first
    before = {name: schema(shop, name) for name in TABLES}
    for name, tables in TABLES.items():
        assert tables <= before[name].keys()
    namespace = shop.query("shop", "SELECT * FROM skirnir_meta")

    second = shop.check("setup")
    assert "is made" not in second
    assert "table messenger_outbox in database default is there" in second
    assert {name: schema(shop, name) for name in TABLES} == before
    assert shop.query("shop", "SELECT * FROM skirnir_meta") == namespace


@pytest.mark.parametrize("command", [
    ["setup"], ["setup", "--tune"], ["setup-deduplication", "--force"],
    ["cleanup-outbox"], ["deduplication-cleanup"], ["failed", "retry", "--all"],
    ["failed", "remove", "--all", "--force"], ["test-inbox-dedup"]],
    ids=" ".join)
def test_what_was_done_is_not_said_to_the_quiet(shop, command):
    if not command[0].startswith("setup"):
        shop.set_up()
    assert shop.check(*command, "-q") == ""
    assert shop.check(*command) != ""


@pytest.mark.parametrize("command", [
    ["setup", "--print-sql"], ["setup", "--dry-run"], ["setup-deduplication"],
    ["setup-deduplication", "--dry-run"], ["config", "check"],
    ["cleanup-outbox", "--dry-run"]], ids=" ".join)
def test_what_was_asked_for_is_said_to_the_quiet(ready_shop, command):
    assert ready_shop.check(*command, "-q") == ready_shop.check(*command) != ""


def test_an_error_is_said_to_the_quiet(shop):
    shop.configure(replace=[("/shop.db", "/no/shop.db")])
    result = shop.run("setup", "-q")
    assert result.returncode == 1 and result.stdout == ""
    assert "no/shop.db" in result.stderr


def test_setup_names_the_command_that_makes_the_table_of_the_inbox(shop):
    line = ("handled messages: table message_broker_deduplication in database "
            "billing is missing; `skirnir setup-deduplication --force` makes "
            "it\n")
    assert shop.check("setup").endswith(line)
    assert shop.check("setup", "--dry-run").endswith(line)
    assert not shop.path("billing").exists()
    shop.check("setup-deduplication", "--force")
    assert "handled messages" not in shop.check("setup")


def test_setup_names_no_table_that_nobody_needs_or_that_makes_itself(shop):
    shop.configure(replace=[
        ("        database: billing",
         "        database: billing\n"
         "        deduplication: {auto_setup: true}")])
    assert "handled messages" not in shop.check("setup")
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("message_broker:")])
    assert "handled messages" not in shop.check("setup")


def test_setup_says_that_it_ran_what_ran(shop):
    shop.check("setup")
    connection = shop.open("shop")
    connection.execute("DROP INDEX messenger_outbox_idx_available_at")
    # A name that is taken: the statement fails.
    connection.execute(
        "CREATE TABLE messenger_outbox_idx_available_at (a INTEGER)")
    result = shop.run("setup")
    assert result.returncode == 1
    assert "running: CREATE INDEX" in result.stdout
    assert "ran: " not in result.stdout
    connection.execute("DROP TABLE messenger_outbox_idx_available_at")
    assert "  ran: CREATE INDEX" in shop.check("setup")


def test_setup_of_one_transport_leaves_the_others_alone(shop):
    shop.check("setup", "orders")
    assert schema(shop, "queue").keys() >= TABLES["queue"]
    assert not shop.path("shop").exists()


def test_ids_are_never_used_again(shop):
    shop.check("setup")
    assert "AUTOINCREMENT" in schema(shop, "shop")["messenger_outbox"]
    assert "AUTOINCREMENT" in schema(shop, "queue")["messenger_messages"]


def test_setup_adds_an_index_that_is_missing(shop):
    shop.check("setup")
    shop.open("shop").execute("DROP INDEX messenger_outbox_idx_available_at")
    shop.check("setup")
    assert "messenger_outbox_idx_available_at" in schema(shop, "shop")


@pytest.mark.parametrize("command", [["setup"],
                                     ["setup-deduplication"]], ids=" ".join)
def test_dry_run_says_what_it_would_make_and_makes_nothing(shop, command):
    result = shop.run(*command, "--dry-run")
    assert result.returncode == 0
    assert re.search("would be (made|created)", result.stdout)
    for name in ("shop", "queue", "billing"):
        assert not shop.path(name).exists() or schema(shop, name) == {}


@pytest.mark.parametrize("command", [["setup"], ["setup-deduplication"]],
                         ids=" ".join)
def test_print_sql_touches_nothing(shop, command):
    before = files(shop)
    assert "CREATE TABLE" in shop.check(*command, "--print-sql")
    assert files(shop) == before


def test_printed_sql_makes_tables_that_work(shop):
    """As an administrator would who lets no program change his schema."""
    shop.configure(auto_setup="false")
    for transport, name in [("outbox", "shop"), ("failed", "shop"),
                            ("orders", "queue")]:
        sql = shop.check("setup", transport, "--print-sql")
        run_script(shop.path(name), sql)
    run_script(shop.path("billing"), shop.check("setup-deduplication"))
    shop.open("billing").execute(
        "CREATE TABLE effects (order_id, message_id, name, body)")
    printed = {name: schema(shop, name) for name in TABLES}

    shop.check("publish", "order.placed", "--body", '{"orderId":"a"}')
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["a"]
    assert {name: schema(shop, name) for name in TABLES} == printed


def run_script(path, sql):
    """With the shell that administrators use, where there is one."""
    shell = shutil.which("sqlite3")
    if shell is not None:
        subprocess.run([shell, "-bail", path], input=sql, encoding="utf-8",
                       check=True)
        return
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


@pytest.mark.parametrize("command, name", [
    (["setup"], "shop"), (["setup-deduplication", "--force"], "billing")])
def test_setup_from_eight_processes_at_once(shop, command, name):
    for _ in range(10):
        for file in shop.folder.glob("*.db*"):
            file.unlink()
        started = [shop.start(*command) for _ in range(8)]
        for process in started:
            assert process.end() == 0, process.log()
        assert shop.query(name, "PRAGMA integrity_check") == [("ok",)]
        if name == "shop":
            # Two would give one row two ids.
            assert shop.count("shop", "skirnir_meta") == 1
            assert TABLES["shop"] <= schema(shop, "shop").keys()
        else:
            assert DEDUPLICATION in schema(shop, "billing")


def test_first_use_from_eight_processes_at_once(shop):
    """Tables are made on first use, too."""
    started = [shop.start("publish", "order.placed", "--body", "{}")
               for _ in range(8)]
    for process in started:
        assert process.end() == 0, process.log()
    assert shop.count("shop", "messenger_outbox") == 8
    assert shop.count("shop", "skirnir_meta") == 1


def test_setup_of_an_unknown_transport_names_those_that_are_there(shop):
    result = shop.run("setup", "order")
    assert result.returncode == 1
    assert "'order'" in result.stderr
    assert "outbox, orders, failed" in result.stderr


def test_setup_names_a_folder_that_is_missing(shop):
    missing = shop.folder / "missing"
    shop.configure(replace=[(str(shop.path("queue")), f"{missing}/queue.db")])
    result = shop.run("setup")
    assert result.returncode == 1
    assert f"there is no folder {missing}" in result.stderr
    assert "an absolute path has four slashes" in result.stderr


def test_setup_names_a_file_that_is_no_database(shop):
    shop.path("queue").write_text("these are not the bytes you expect\n" * 99)
    result = shop.run("setup", "orders")
    assert result.returncode == 1
    assert str(shop.path("queue")) in result.stderr
    assert "not a database" in result.stderr
    assert "or correct the path in the DSN" in result.stderr


def test_setup_refuses_a_table_of_another_shape(shop):
    shop.open("shop").execute("CREATE TABLE messenger_outbox (id, payload)")
    result = shop.run("setup", "outbox")
    assert result.returncode == 1
    assert "messenger_outbox" in result.stderr
    assert "another shape" in result.stderr
    assert schema(shop, "shop")["messenger_outbox"] == \
        "CREATE TABLE messenger_outbox (id, payload)"


def test_setup_changes_nothing_around_a_table_of_others(shop):
    connection = shop.open("shop")
    connection.execute("CREATE TABLE messenger_outbox (id, queue_name, "
                       "available_at, delivered_at, other)")
    connection.execute("CREATE TABLE unrelated (a)")
    connection.execute("CREATE INDEX messenger_outbox_idx_available_at "
                       "ON unrelated (a)")
    before = schema(shop, "shop")
    assert shop.run("setup", "outbox").returncode == 1
    assert schema(shop, "shop") == before


MISSING = "an index is still missing, as another has its name"


def test_setup_says_that_another_index_has_its_name(shop):
    """As in the cure for a table that uses ids again."""
    shop.check("setup")
    connection = shop.open("shop")
    connection.execute("ALTER TABLE messenger_outbox RENAME TO old")
    assert MISSING in shop.check("setup", "outbox")
    connection.execute("DROP TABLE old")
    assert MISSING not in shop.check("setup", "outbox")
    assert "messenger_outbox_idx_available_at" in schema(shop, "shop")


def test_a_failed_table_of_others_is_found_before_a_table_is_made(shop):
    shop.open("shop").execute("CREATE TABLE messenger_messages (id, other)")
    before = schema(shop, "shop")
    result = shop.run("setup", "outbox")
    assert result.returncode == 1
    assert "messenger_messages has no column body" in result.stderr
    assert schema(shop, "shop") == before


REUSING = ("CREATE TABLE {} (id INTEGER PRIMARY KEY, body TEXT NOT NULL, "
           "headers TEXT NOT NULL, queue_name TEXT NOT NULL, created_at "
           "DATETIME NOT NULL, available_at DATETIME NOT NULL, delivered_at "
           "DATETIME)")


def make_reusing(shop, database, table):
    """The id of a row that is deleted is given to the next one."""
    connection = shop.open(database)
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(REUSING.format(table))


@pytest.mark.parametrize("database, table, commands", [
    ("shop", "messenger_outbox",
     [("setup", "outbox"), ("config", "check"), ("cleanup-outbox",),
      ("publish", "order.placed", "--body", "{}")]),
    ("queue", "messenger_messages",
     [("setup", "orders"), ("config", "check")]),
    ("shop", "messenger_messages",
     [("setup", "outbox"), ("config", "check"), ("failed", "show")]),
])
def test_a_table_that_uses_ids_again_is_refused_with_the_cure(
        ready_shop, database, table, commands):
    shop = ready_shop
    make_reusing(shop, database, table)
    for command in commands:
        result = shop.run(*command)
        assert result.returncode != 0, command
        assert f"table {table} has no AUTOINCREMENT" in \
            result.stdout + result.stderr, command
        assert f"ALTER TABLE {table} RENAME TO old" in \
            result.stdout + result.stderr, command


def test_nothing_is_relayed_or_consumed_from_such_a_table(ready_shop):
    shop = ready_shop
    make_reusing(shop, "shop", "messenger_outbox")
    make_reusing(shop, "queue", "messenger_messages")
    shop.place_orders(1)
    relay, consumer = shop.start_relay(), shop.start_consumer()
    for program in relay, consumer:
        assert program.end() == 1
        assert "has no AUTOINCREMENT" in program.log()
    assert shop.count("shop", "messenger_outbox") == 1


def test_deduplication_prints_its_sql_by_default(shop):
    printed = shop.check("setup-deduplication")
    assert printed.startswith(
        f'CREATE TABLE IF NOT EXISTS "{DEDUPLICATION}"')
    assert not shop.path("billing").exists()
    assert shop.check("setup-deduplication", "--print-sql") == printed


def test_deduplication_is_created_once(shop):
    assert shop.check("setup-deduplication", "--force") == \
        f"Table '{DEDUPLICATION}' created successfully.\n"
    assert shop.check("setup-deduplication", "--force") == \
        f"Table '{DEDUPLICATION}' already exists, skipping.\n"
    assert DEDUPLICATION in schema(shop, "billing")
    assert "already exists" in shop.check("setup-deduplication", "--dry-run")


def test_deduplication_table_may_have_another_name(shop):
    shop.configure(replace=[
        ("        database: billing",
         "        database: billing\n"
         "        deduplication: {table_name: seen_by_billing}")])
    assert "'seen_by_billing' created" in \
        shop.check("setup-deduplication", "--force")
    assert "seen_by_billing" in schema(shop, "billing")


def test_migration_is_written_for_doctrine(shop):
    printed = shop.check("setup-deduplication", "--migration")
    path, = shop.folder.glob("Version*.php")
    assert re.fullmatch(r"Version\d{14}\.php", path.name)
    assert path.name in printed
    text = path.read_text()
    assert text.startswith("<?php\n")
    assert f"final class {path.stem} extends AbstractMigration" in text
    assert f'DROP TABLE "{DEDUPLICATION}"' in text
    # Its statements are those that are printed.
    statements = re.findall(r"<<<'SQL'\n(.*?)\nSQL\n", text, re.S)
    sql = shop.check("setup-deduplication")
    assert "".join(f"{one};\n" for one in statements) == sql
    assert not shop.path("billing").exists()


@pytest.mark.parametrize("flags", [
    ["--force", "--migration"], ["--force", "--dry-run"],
    ["--migration", "--print-sql"],
    ["--force", "--migration", "--print-sql", "--dry-run"]], ids=" ".join)
def test_flags_that_exclude_each_other_are_refused(shop, flags):
    before = files(shop)
    result = shop.run("setup-deduplication", *flags)
    assert result.returncode == 1
    assert "exclude each other" in result.stderr
    assert files(shop) == before


def test_consumer_without_deduplication_names_the_cure(shop):
    shop.check("setup")
    result = shop.consume_all()
    assert result.returncode == 1
    assert DEDUPLICATION in result.stderr
    assert "skirnir setup-deduplication --force" in result.stderr


def test_consumer_makes_its_table_when_the_configuration_says_so(shop):
    shop.configure(replace=[
        ("        database: billing",
         "        database: billing\n"
         "        deduplication: {auto_setup: true}")])
    shop.make_effects()
    assert shop.consume_all().returncode == 0
    assert DEDUPLICATION in schema(shop, "billing")


def test_consumer_without_its_failed_table_names_a_cure_that_works(shop):
    shop.configure(auto_setup="false")
    shop.check("setup")
    shop.check("setup-deduplication", "--force")
    shop.make_effects()
    result = shop.consume_all()
    if result.returncode != 0:
        assert "`skirnir setup`" in result.stderr
        shop.check("setup")
        again = shop.consume_all()
        assert again.returncode == 0, again.stderr


def test_setup_advises_write_ahead_logging(shop):
    """Without it readers and writers of one file wait for each other. The
    file is its owner's: setup says so and changes nothing."""
    printed = shop.check("setup")
    # Once for each of two files, one of which has two transports.
    assert printed.count("advice") == 2 and "WAL" in printed.upper()
    assert shop.query("shop", "PRAGMA journal_mode") == [("delete",)]
    shop.check("setup", "--tune")
    assert shop.query("shop", "PRAGMA journal_mode") == [("wal",)]
    assert "advice" not in shop.check("setup")


def test_program_is_the_one_under_test():
    assert shutil.which(shops.PROGRAM), \
        f"{shops.PROGRAM} is missing; build it or set SKIRNIR"
