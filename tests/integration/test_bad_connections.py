"""Servers that cannot be reached, or will not have us: every command names the
thing and the fix, the relay waits and goes on by itself where that can help,
and a password never shows."""
import contextlib
import os
import pathlib
import shutil
import uuid

import pytest

import databases
import shop as shops
import worlds

SECRET = "s3cr3t-Pa55"
GOOD = 1000


def expect_refusal(world, words, command="setup", lasts=True):
    """The command ends with it; so does a relay, where waiting mends nothing,
    unless it is told to wait: then it says so and goes on trying."""
    for words_given in [(command,)] + [("relay", "outbox")] * lasts:
        result = world.run(*words_given)
        assert result.returncode == 1
        for word in words:
            assert word in result.stderr.replace('\\"', '"'), result.stderr
        assert SECRET not in result.stderr
    relay = world.start_relay("--wait")
    said = relay.wait_for(r"relay\.trouble.*").group()
    for word in words:
        assert word in said.replace('\\"', '"'), said
    assert SECRET not in result.stderr + relay.log()
    return relay


def expect_recovery(world, relay):
    """Nothing was lost meanwhile, and nothing else has to be done."""
    relay.wait_for(r"relay\.recovered")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert world.take_numbers() == list(range(GOOD))
    assert len(relay.events("relay.trouble")) == 1


@contextlib.contextmanager
def passwords_count(user):
    """PostgreSQL asks this user for a password while it lasts."""
    path = pathlib.Path(os.environ["SKR_POSTGRESQL_FOLDER"],
                        "data/pg_hba.conf")
    kept = path.with_name("pg_hba.kept")
    shutil.copy2(path, kept)
    path.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n"
                    + kept.read_text())
    yield
    path.write_text(kept.read_text())


@contextlib.contextmanager
def login(database, name):
    """A user with this password, who may do anything."""
    if database.dialect == "mysql":
        database.ask(f"CREATE USER {name}@localhost "
                     f"IDENTIFIED BY '{SECRET}'; "
                     f"GRANT ALL ON *.* TO {name}@localhost")
        yield f"ALTER USER {name}@localhost IDENTIFIED BY '{SECRET}-new'"
        database.ask(f"DROP USER {name}@localhost")
    else:
        database.ask(f"CREATE ROLE {name} SUPERUSER LOGIN "
                     f"PASSWORD '{SECRET}'")
        with passwords_count(name):
            database.ask("SELECT pg_reload_conf()")
            yield f"ALTER ROLE {name} PASSWORD '{SECRET}-new'"
        database.ask(f"SELECT pg_reload_conf(); "
                     f"DROP OWNED BY {name}; DROP ROLE {name}")


def with_user(url, user):
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}@{rest.partition('@')[2]}"


def test_wrong_password_of_a_database(world):
    world.set_up()
    world.insert(GOOD)
    name = world.database.name
    with login(world.database, name) as change:
        good = with_user(world.database.url, f"{name}:{SECRET}-new")
        world.set_config(replace=[(world.database.url, good)])
        relay = expect_refusal(world, [
            name, "check user and password in the DSN", "127.0.0.1"])
        world.ask(change)
        expect_recovery(world, relay)


def expect_rotation(world, url, name, change, cut, said):
    """A password that stands in a file is changed at the server, and then in
    the file. url: of the server, for which there is the user name now; cut: ends
    its sessions."""
    file = world.folder / "password"
    file.write_text(SECRET + "\n")
    world.environment["PASSWORD_FILE"] = str(file)
    world.set_config(replace=[(url, with_user(
        url, f"{name}:%env(urlencode:file:PASSWORD_FILE)%"))])
    relay = world.start_relay()
    relay.wait_for(r"relay\.active")
    world.insert(1)
    world.wait_until_empty(relay)
    change()

    def is_refused():
        cut()
        return said in relay.log()
    shops.until(is_refused, relay.log)
    world.insert(GOOD, first=1)
    file.write_text(SECRET + "-new")
    relay.wait_for(r"config\.reloaded")
    world.wait_until_empty(relay)
    assert relay.stop() == 0
    assert set(world.take_numbers()) == set(range(GOOD + 1))
    assert SECRET not in relay.log()


def test_a_rotated_password_of_a_database_is_picked_up(world):
    world.set_up()
    name = world.database.name
    with login(world.database, name) as change:
        expect_rotation(world, world.database.url, name,
                        lambda: world.ask(change),
                        lambda: world.database.end_sessions(name),
                        "check user and password in the DSN")


def test_a_rotated_password_of_rabbitmq_is_picked_up(broker_world):
    name = f"skr-{uuid.uuid4().hex[:12]}"
    worlds.control("add_user", name, SECRET)
    try:
        worlds.control("set_permissions", "-p", broker_world.vhost, name, ".*",
                       ".*", ".*")
        broker_world.ask("DELETE FROM messenger_outbox")
        expect_rotation(
            broker_world, broker_world.broker, name,
            lambda: worlds.control("change_password", name, f"{SECRET}-new"),
            lambda: worlds.control("close_all_user_connections", name, "test"),
            "ACCESS_REFUSED")
    finally:
        worlds.control("delete_user", name)


def test_no_password_where_one_is_asked_for(world):
    name = world.database.name
    world.set_up()
    with login(world.database, name):
        world.set_config(replace=[(world.database.url, with_user(
            world.database.url, name))])
        relay = expect_refusal(world, [
            name, "check user and password in the DSN", "127.0.0.1"])
        assert relay.stop() == 0


def test_unknown_database(world):
    world.set_up()
    world.insert(GOOD)
    missing = f"{world.database.name}_x"
    world.set_config(replace=[(f"/{world.database.name}'", f"/{missing}'")])
    relay = expect_refusal(world, [missing, "create the database", "DSN"])
    assert relay.stop() == 0
    world.set_config()
    world.relay_all()
    assert world.take_numbers() == list(range(GOOD))


def test_unknown_host_of_a_database(world):
    world.set_config(replace=[("127.0.0.1", "nowhere.invalid")])
    result = world.run("setup")
    assert result.returncode == 1
    assert "nowhere.invalid" in result.stderr


@pytest.fixture
def broker_world(tmp_path, vhost):
    """For what no database has a part in; a thousand messages wait."""
    opened = worlds.World(tmp_path, databases.MariaDB(), vhost)
    opened.set_up()
    opened.insert(GOOD)
    yield opened
    opened.leave()


def test_wrong_password_of_rabbitmq(broker_world):
    world = broker_world
    worlds.control("add_user", "shop", SECRET)
    try:
        worlds.control("set_permissions", "-p", world.vhost, "shop", ".*",
                       ".*", ".*")
        world.set_config(replace=[("guest:guest", f"shop:{SECRET}-new")])
        relay = expect_refusal(world, [
            "user shop cannot log in", "check user and password in the DSN",
            "127.0.0.1"], "setup-amqp")
        worlds.control("change_password", "shop", f"{SECRET}-new")
        expect_recovery(world, relay)
    finally:
        worlds.control("delete_user", "shop")


def test_wrong_vhost(broker_world):
    world = broker_world
    world.set_config(replace=[(f"/{world.vhost}'", "/nowhere'")])
    relay = expect_refusal(world, [
        "vhost nowhere cannot be opened", "correct it in the DSN"],
        "setup-amqp")
    assert relay.stop() == 0
    assert world.left() == GOOD
    world.set_config()
    world.relay_all()
    assert world.take_numbers() == list(range(GOOD))


def test_unknown_host_of_rabbitmq(broker_world):
    world = broker_world
    world.set_config(replace=[("@127.0.0.1:" + os.environ["SKR_RABBITMQ_PORT"],
                               "@nowhere.invalid")])
    relay = expect_refusal(world, ["nowhere.invalid", "correct it in the DSN"],
                           "setup-amqp", lasts=False)
    assert relay.stop() == 0
    assert world.left() == GOOD and world.failed() == []


def test_user_without_rights_on_the_exchange(broker_world):
    """Refused access is a matter of the route: rows wait, none fails."""
    world = broker_world
    worlds.control("add_user", "shop", SECRET)
    try:
        worlds.control("set_permissions", "-p", world.vhost, "shop", "^$",
                       "^$", ".*")
        world.set_config(replace=[("guest:guest", f"shop:{SECRET}")])
        relay = world.start_relay()
        said = relay.wait_for(r"relay\.route_closed.*").group()
        assert "order.placed" in said and "permission to write" in said
        assert "shop" in said
        assert world.left() == GOOD and world.failed() == []
        worlds.control("set_permissions", "-p", world.vhost, "shop", "^$",
                       ".*", ".*")
        world.wait_until_empty(relay)
        assert relay.stop() == 0
        assert world.failed() == []
        assert world.take_numbers() == list(range(GOOD))
    finally:
        worlds.control("delete_user", "shop")


# This address leads to the same server, but is not in its certificate.
@pytest.mark.parametrize("host, authority, says", [
    ("127.0.0.1", "stranger", "certificate"),
    ("0.0.0.0", "authority", "ertificate"),
])
def test_tls_of_a_database_that_proves_nothing(world, host, authority, says):
    certificates = os.environ[
        f"SKR_{world.database.kind.upper()}_CERTIFICATES"]
    parameter = {"mysql": "ssl_ca", "postgresql": "sslrootcert"}[
        world.database.dialect]
    good = f"{world.database.url}?{parameter}={certificates}/authority.pem"
    world.set_config(replace=[(world.database.url, good)])
    world.set_up()
    world.insert(GOOD)
    bad = good.replace("@127.0.0.1", f"@{host}").replace(
        "/authority.pem", f"/{authority}.pem")
    world.set_config(replace=[(world.database.url, bad)])
    # Another of several servers may have a better one: libpq does not tell.
    relay = expect_refusal(world, [says, parameter, host],
                           lasts=world.database.dialect == "mysql")
    assert relay.stop() == 0
    world.set_config(replace=[(world.database.url, good)])
    world.relay_all()
    assert world.take_numbers() == list(range(GOOD))


@pytest.mark.parametrize("place, parameters, says", [
    ("mariadb", "ssl_ca=/none.pem", "ssl_ca=/none.pem in the DSN cannot be "
     "read: No such file"),
    ("mariadb", "ssl_cert=/none.pem&ssl_key={0}/client.key",
     "ssl_cert=/none.pem in the DSN cannot be read: No such file"),
    ("mariadb", "ssl_cert={0}/client.pem&ssl_key={0}/stranger.key",
     "name in ssl_key the key of ssl_cert"),
    ("postgresql", "sslcert=/none.pem&sslkey=/none.key",
     "sslcert=/none.pem in the DSN cannot be read: No such file"),
    ("postgresql", "sslcert={0}/client.pem",
     "let it be the key of sslcert"),
    ("postgresql", "sslcert={0}/client.pem&sslkey={0}/stranger.key",
     "let it be the key of sslcert"),
    ("postgresql", "sslcert={0}/client.pem&sslkey={1}/open.key",
     "chmod 600 sslkey"),
], indirect=["place"])
def test_a_certificate_of_ours_that_cannot_be_used_is_named(
        place, parameters, says):
    kind = place.database.kind.upper()
    certificates = databases.need(f"SKR_{kind}_CERTIFICATES")
    key = place.folder / "open.key"
    shutil.copy(f"{certificates}/client.key", key)
    key.chmod(0o644)
    authority = "ssl_ca" if kind == "MARIADB" else "sslrootcert"
    if authority not in parameters:
        parameters += f"&{authority}={{0}}/authority.pem"
    url = place.database.url
    place.set_config(replace=[
        (url, f"{url}?" + parameters.format(certificates, place.folder))])
    result = place.run("failed", "show")
    assert result.returncode == 1, result.stderr
    assert says in result.stderr, result.stderr


@pytest.mark.parametrize("scheme, port, says", [
    ("amqp", "SKR_RABBITMQ_TLS_PORT", "is this the TLS port?"),
    ("amqps", "SKR_RABBITMQ_PORT", "is this a plain port?"),
])
def test_a_port_of_the_other_kind_is_guessed(broker_world, scheme, port, says):
    world = broker_world
    wrong = f"{scheme}://guest:guest@127.0.0.1:{os.environ[port]}/" \
        f"{world.vhost}"
    world.set_config(replace=[(world.broker, wrong)])
    relay = expect_refusal(world, ["127.0.0.1", says], "setup-amqp",
                           lasts=False)
    assert relay.stop() == 0
    assert world.left() == GOOD and world.failed() == []


def test_tls_that_asks_for_no_proof_is_warned_of(broker_world):
    world = broker_world
    url = os.environ["SKR_RABBITMQ_TLS_URL"].replace("%2f", world.vhost)
    world.set_config(replace=[(world.broker, url + "?verify=false")])
    relay = world.start_relay()
    said = relay.wait_for(r"amqp\.unverified.*").group()
    assert "127.0.0.1" in said and "cacert" in said
    world.wait_until_empty(relay)
    assert relay.stop() == 0


@pytest.mark.parametrize("host, authority, says", [
    ("127.0.0.1", "stranger", "self-signed"),
    ("0.0.0.0", "authority", "IP address mismatch"),
])
def test_tls_of_rabbitmq_that_proves_nothing(broker_world, host, authority,
                                             says):
    world = broker_world
    url = os.environ["SKR_RABBITMQ_TLS_URL"].replace("%2f", world.vhost)
    good = f"{url}?cacert={os.environ['SKR_RABBITMQ_CERTIFICATES']}/" \
        "authority.pem"
    bad = good.replace("@127.0.0.1", f"@{host}").replace(
        "/authority.pem", f"/{authority}.pem")
    world.set_config(replace=[(world.broker, bad)])
    relay = expect_refusal(world, ["certificate is not trusted", says,
                                   "cacert", host], "setup-amqp")
    assert relay.stop() == 0
    world.set_config(replace=[(world.broker, good)])
    world.relay_all()
    assert world.take_numbers() == list(range(GOOD))
