"""Paths in a configuration begin at its file, wherever the program is
started."""
import json
import stat

import pytest

import shop as shops
import test_handlers

CONFIG = """\
databases: {{default: '{database}'}}
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders: 'queue://default?queue_name=orders'
message_broker: {{inbox: {{deduplication: {{auto_setup: true}}}}}}
handlers:
    order.placed: {handler}
"""
HANDLER = """\
#!/bin/sh
echo '{"ready":true}'
while read line; do
    pwd >> "$0.log"
    n=$(echo "$line" | sed 's/.*"n":\\([0-9]*\\).*/\\1/')
    echo "{\\"n\\":$n,\\"verdict\\":\\"accept\\"}"
done
"""


@pytest.fixture
def project(tmp_path):
    made = shops.Shop(tmp_path)
    made.home = tmp_path / "project" / "config" / "packages"
    made.home.mkdir(parents=True)
    made.elsewhere = tmp_path / "elsewhere"
    made.elsewhere.mkdir()
    made.folder = made.elsewhere
    yield made
    made.close()


def configure(project, database, handler="{sql: 'SELECT 1'}"):
    path = project.home / "skirnir.yaml"
    path.write_text(CONFIG.format(database=database, handler=handler))
    return path


@pytest.mark.parametrize("database, place", [
    ("sqlite:///shop.db", "config/packages/shop.db"),
    ("sqlite:///../shop.db", "config/shop.db"),
    ("sqlite:///%kernel.project_dir%/shop.db", "shop.db"),
    ("%env(resolve:SHOP)%", "shop.db"),
    ("%env(SHOP_BESIDE)%", "config/packages/shop.db")])
@pytest.mark.parametrize("how", ["absolute", "relative", "variable"])
def test_a_file_of_sqlite_lies_beside_the_configuration(project, database,
                                                        place, how):
    path = configure(project, database)
    environment = {"SHOP": "sqlite:///%kernel.project_dir%/shop.db",
                   "SHOP_BESIDE": "sqlite:///shop.db"}
    given = path if how == "absolute" else \
        "../project/config/packages/skirnir.yaml"
    arguments = [] if how == "variable" else ["-c", given]
    if how == "variable":
        environment["SKIRNIR_CONFIG"] = str(given)
    project.check("setup", *arguments, environment=environment)
    assert (project.home.parents[1] / place).exists()
    assert list(project.elsewhere.iterdir()) == []


def test_a_credential_lies_beside_the_configuration(project):
    path = configure(project, "%env(file:DSN_FILE)%")
    (project.home / "dsn").write_text("sqlite:///shop.db\n")
    project.check("setup", "-c", path, environment={"DSN_FILE": "dsn"})
    assert (project.home / "shop.db").exists()


def test_the_folder_of_the_file_is_where_we_are(project):
    configure(project, "sqlite:///shop.db")
    project.folder = project.home
    project.check("setup")
    assert (project.home / "shop.db").exists()
    project.check("config", "check")


def consume(project, path):
    project.check("publish", "order.placed", "--body", "{}", "-c", path)
    project.check("relay", "outbox", "--stop-when-empty", "-c", path)
    return project.run("consume", "orders", "--stop-when-empty", "-c", path)


def test_a_command_with_a_slash_lies_beside_the_configuration(project):
    path = configure(project, "sqlite:///shop.db", "{command: ./handle.sh}")
    program = project.home / "handle.sh"
    program.write_text(HANDLER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    result = consume(project, path)
    assert result.returncode == 0, result.stderr
    # It works where we are.
    assert (project.home / "handle.sh.log").read_text().split() == \
        [str(project.elsewhere)]


def test_a_library_lies_beside_the_configuration(project):
    path = configure(project, "sqlite:///shop.db",
                     "{library: ./shop.so, function: note}")
    test_handlers.compile_library(project.home)
    project.check("setup", "-c", path)
    project.check("config", "check", "-c", path)


def test_certificates_lie_beside_the_configuration(project):
    path = configure(project, "pgsql://u@127.0.0.1:1/b?sslrootcert=ca.pem")
    shown = json.loads(project.check("config", "show", "--json", "-c", path))
    assert str(project.home / "ca.pem") in json.dumps(shown)
