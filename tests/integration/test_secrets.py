"""A password never shows: not in output, logs or errors."""
import json
import pathlib

import pytest

import shop as shops

SECRET = "s3cr3t-Pa55"

COMMANDS = [
    ["config", "check"], ["config", "show"], ["config", "show", "--json"],
    ["setup"], ["setup", "--dry-run"], ["setup", "--print-sql"],
    ["setup-deduplication", "--force"], ["setup-deduplication"],
    ["publish", "order.placed", "--body", "{}"],
    ["relay", "nowhere"],
]
# These may try for ever.
RUNNERS = [["relay", "outbox", "-vvv"], ["consume", "orders", "-vvv"]]

BASE = """\
databases:
    default: '{database}'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders: '{broker}'
handlers: {{order.placed: {{sql: SELECT 1}}}}
"""
QUEUE = "queue://default?queue_name=orders"
SQLITE = "sqlite:///shop.db"

# Good and bad places for it.
PLACES = {
    "database": (f"mysql://shop:{SECRET}@localhost:3306/shop", QUEUE),
    "database without a user": (f"pgsql://:{SECRET}@localhost/shop", QUEUE),
    "broker": (SQLITE, f"amqp://guest:{SECRET}@localhost:5672/%2f"),
    "broker's parameter": (SQLITE, f"kafka://host?sasl_password={SECRET}"),
    "database's parameter": (f"mysql://h/shop?password={SECRET}", QUEUE),
    "broken port": (f"mysql://shop:{SECRET}@localhost:port/shop", QUEUE),
    "unescaped letters": (f"mysql://shop:{SECRET}#@/x@localhost/s", QUEUE),
    "unknown scheme": (f"oracle://shop:{SECRET}@localhost/shop", QUEUE),
    "unknown broker": (SQLITE, f"redis://:{SECRET}@localhost"),
    "queue with a user": (SQLITE, f"queue://shop:{SECRET}@default"),
    "missing database": (SQLITE, f"queue://shop:{SECRET}@elsewhere/x"),
    "SQLite with a user": (f"sqlite://shop:{SECRET}@localhost/shop", QUEUE),
    "no scheme": (f"shop:{SECRET}@localhost", QUEUE),
}


@pytest.mark.parametrize("place", PLACES)
def test_password_never_shows(shop, place):
    database, broker = PLACES[place]
    shop.write_config(BASE.format(database=database, broker=broker))
    for command in COMMANDS:
        result = shop.run(*command)
        assert SECRET not in result.stdout + result.stderr, command
    for command in RUNNERS:
        started = shop.start(*command)
        shops.until(lambda: not started.is_running() or
                    "trouble" in started.log() or "ready" in started.log() or
                    "active" in started.log(), "a word from it")
        started.kill()
        assert SECRET not in started.log(), command


@pytest.mark.parametrize("place", PLACES)
def test_password_from_the_environment_never_shows(shop, place):
    shop.write_config(BASE.format(database="%env(resolve:SHOP_URL)%",
                                  broker="%env(BROKER_URL)%"))
    database, broker = PLACES[place]
    for command in COMMANDS[:3] + COMMANDS[-1:]:
        result = shop.run(*command, environment={
            "SHOP_URL": database, "BROKER_URL": broker, "MANY": SECRET})
        assert SECRET not in result.stdout + result.stderr, command


def test_password_at_a_wrong_place_never_shows(shop):
    url = f"mysql://shop:{SECRET}@localhost/shop"
    for old, new in [("relay_to: orders", f"relay_to: '{url}'"),
                     ("relay_to: orders", f"in_flight: '{url}'"),
                     ("relay_to: orders", "in_flight: '%env(int:URL)%'"),
                     ("relay_to: orders", f"options: '{url}'"),
                     ("relay_to: orders", f"'{url}': x"),
                     ("handlers:", f"failure_transport: '{url}'\nhandlers:"),
                     ("sql: SELECT 1", f"sql: [\"DROP '{url}'\"]")]:
        text = BASE.format(database=SQLITE, broker=QUEUE)
        assert old in text
        shop.write_config(text.replace(old, new))
        for command in COMMANDS[:3]:
            result = shop.run(*command, environment={"URL": url})
            assert SECRET not in result.stdout + result.stderr, (new, command)


def test_shown_configuration_masks_the_password_and_nothing_else(shop):
    shop.write_config(BASE.format(
        database=PLACES["database"][0], broker=PLACES["broker"][1]))
    shown = shop.check("config", "show")
    assert "shop:***@localhost:3306/shop" in shown
    assert "guest:***@localhost:5672" in shown


KEY = f"""\
-----BEGIN PRIVATE KEY-----
{SECRET}
-----END PRIVATE KEY-----"""


@pytest.mark.parametrize("where", [
    "{dsn: 'kafka://h', options: {ssl.key.pem: '%env(ANY)%'}}",
    "{dsn: 'kafka://h?ssl.key.pem=%env(ANY)%'}",
    "{dsn: 'kafka://h', options: {x: {y: '%env(ANY)%'}}}",
    "{dsn: 'redis://h', options: {ssl.key.pem: '%env(ANY)%'}}",
    "{dsn: 'redis://h', options: {x: {y: '%env(ANY)%'}}}"])
def test_a_private_key_never_shows(shop, where):
    shop.write_config(f"transports: {{orders: {where}}}\n")
    for command in COMMANDS[:3]:
        result = shop.run(*command, environment={"ANY": KEY})
        assert SECRET not in result.stdout + result.stderr, command


def test_a_password_leaves_the_list_of_processes(shop):
    """As soon as it was read; the rest of the command line stays."""
    started = shop.start(
        "kafka-relay", "--db-driver=sqlite", "--db-host=h", "--db-port=1",
        "--db-user=shop", f"--db-pass={SECRET}", "--db-name", shop.path("shop"),
        "--kafka-host", f"shop:{SECRET}@127.0.0.1:1", "--listen=",
        "--kafka-options", f"sasl.password={SECRET}")
    started.wait_for("kafkarelay.started")
    line = pathlib.Path(f"/proc/{started.pid}/cmdline").read_bytes()
    assert SECRET.encode() not in line
    assert b"\0--db-user=shop\0--db-pass=***" in line
    assert started.is_running()
    assert SECRET not in started.log()


TELLS = """\
import json, os, sys
print('{"ready":true}', flush=True)
for line in sys.stdin:
    with open("environment", "w") as file:
        json.dump(dict(os.environ), file)
    print(json.dumps({"delivery": json.loads(line)["delivery"],
                      "verdict": "accept"}), flush=True)
"""


@pytest.mark.parametrize("env", ["", ", env: [SHOP_URL]", ", env: NESTED"])
def test_a_command_gets_no_secret_that_it_does_not_name(shop, env):
    (shop.folder / "tells.py").write_text(TELLS)
    shop.write_config(f"""\
databases: {{default: '%env(resolve:SHOP_URL)%'}}
transports:
    orders: 'queue://default?queue_name=orders'
handlers: {{order.placed: {{command: [python3, tells.py]{env}}}}}
""")
    shop.environment |= {"SHOP_URL": "%env(NESTED)%",
                         "NESTED": shop.url("shop"), "OTHER": "seen",
                         "PGPASSWORD": "not named"}
    shop.check("setup")
    shop.check("setup-deduplication", "--force")
    shops.write_row(shop.open("shop"), "{}", shops.id_headers(
        "01890f5c-8000-7000-8000-000000000001"), "messenger_messages", "orders")
    result = shop.run("consume", "orders", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    told = json.loads((shop.folder / "environment").read_text())
    assert ("SHOP_URL" in told) == ("SHOP_URL" in env)
    assert ("NESTED" in told) == ("NESTED" in env)
    assert told["OTHER"] == "seen" and told["PATH"]
    # Nor does it hide what the configuration does not name.
    assert told["PGPASSWORD"] == "not named"


@pytest.mark.parametrize("env", ["", ", env: [SHOP_URL]"])
def test_of_a_command_that_fails_it_is_told_what_it_did_not_get(shop, env):
    shop.write_config(f"""\
databases: {{default: '%env(SHOP_URL)%'}}
transports:
    orders: 'queue://default?queue_name=orders'
handlers: {{order.placed: {{command: ["false"]{env}}}}}
""")
    shop.environment["SHOP_URL"] = shop.url("shop")
    shop.check("setup")
    shop.check("setup-deduplication", "--force")
    shops.write_row(shop.open("shop"), "{}", shops.id_headers(
        "01890f5c-8000-7000-8000-000000000001"), "messenger_messages", "orders")
    consumer = shop.start("consume", "orders")
    consumer.wait_for("consumer.trouble")
    assert consumer.stop() == 0
    assert consumer.log().count("child.withheld") == (env == "")
    assert ("variables=SHOP_URL " in consumer.log()) == (env == "")


def test_a_variable_of_a_command_that_is_not_set_is_warned_of(shop):
    shop.write_config("""\
transports:
    orders: 'queue://default?queue_name=orders'
databases: {default: 'sqlite:///shop.db'}
handlers:
    order.placed: {command: [cat], env: [DATABASE_ULR]}
""")
    result = shop.run("config", "check")
    assert ("skirnir.yaml:5: warning: handlers.order.placed.env: the environment "
            "variable DATABASE_ULR is not set") in result.stdout + result.stderr


@pytest.mark.parametrize("handler, said", [
    ("{sql: SELECT 1, env: [A]}", "only a command"),
    ("{command: [x], env: [A=b]}", "no name of an environment variable"),
    ("{command: [x], env: []}", "the list of names is empty")])
def test_a_mistake_about_the_environment_is_named(shop, handler, said):
    shop.write_config(f"""\
databases: {{default: '{SQLITE}'}}
transports: {{orders: '{QUEUE}'}}
handlers: {{order.placed: {handler}}}
""")
    result = shop.run("config", "check")
    assert result.returncode == 3 and said in result.stderr + result.stdout
