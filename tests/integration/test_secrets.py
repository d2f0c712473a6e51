"""A password never shows: not in output, logs or errors."""
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
