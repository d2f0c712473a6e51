"""Symfony's own file, as its documentation writes it, and the options of its
console: each does what it means, or a line says what is ignored."""
import json
import pathlib

import pytest

DOCUMENTED = pathlib.Path(__file__).with_name("messenger.yaml").read_text()
# As a new project has it.
NEW_PROJECT = r"""
framework:
    messenger:
        failure_transport: failed

        transports:
            async:
                dsn: '%env(MESSENGER_TRANSPORT_DSN)%'
                options:
                    use_notify: true
                    check_delayed_interval: 60000
                retry_strategy:
                    max_retries: 3
                    multiplier: 2
            failed: 'doctrine://default?queue_name=failed'
            # sync: 'sync://'

        default_bus: messenger.bus.default

        buses:
            messenger.bus.default: []

        routing:
            Symfony\Component\Mailer\Messenger\SendEmailMessage: async
            Symfony\Component\Notifier\Message\ChatMessage: async
            Symfony\Component\Notifier\Message\SmsMessage: async
"""
IGNORED = {
    "--bus=command.bus": "--bus is ignored",
    "--no-reset": "--no-reset is ignored",
    "--keepalive": "--keepalive is ignored",
    "--keepalive=5": "--keepalive is ignored",
    "--env=prod": "--env is ignored",
    "--no-debug": "--no-debug is ignored",
    "--no-interaction": "--no-interaction is ignored",
}
LIMITS = ["--limit=1", "-l1", "--failure-limit=1", "--memory-limit=128M",
          "--time-limit=3600", "--sleep=0.5", "--sleep=1"]


def test_the_documented_file_is_read_with_warnings(shop):
    shop.write_config(DOCUMENTED)
    shop.environment.update(
        DATABASE_URL="sqlite:///%kernel.project_dir%/shop.db",
        MESSENGER_TRANSPORT_DSN="doctrine://default?auto_setup=0")
    result = shop.run("config", "check")
    assert result.returncode == 0, result.stderr
    said = result.stdout + result.stderr
    for word in ("use_notify", "check_delayed_interval", "get_notify_timeout",
                 "buses", "routing", "rate_limiter", "sync://", "redis://",
                 "when@test"):
        assert any(word in line and "warning" in line
                   for line in said.splitlines()), f"{word}:\n{said}"
    shop.check("messenger:setup-transports", "async")
    assert "async" in shop.check("messenger:stats", "async")
    assert (shop.folder / "shop.db").exists()


@pytest.mark.parametrize("dsn, words", [
    ("doctrine://default?auto_setup=0", ["async.relay_to is missing"]),
    ("amqp://guest:guest@localhost:5672/%2f/messages",
     ["the option 'use_notify' means nothing to amqp://"]),
    ("redis://localhost:6379/messages", ["redis:// is unknown"]),
    ("sync://", ["sync://"])])
def test_the_file_of_a_new_project_is_read_with_warnings(shop, dsn, words):
    file = shop.folder / "config/packages/messenger.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(NEW_PROJECT)
    (shop.folder / "var").mkdir()
    shop.environment.update(
        DATABASE_URL="sqlite:///%kernel.project_dir%/var/data.db",
        MESSENGER_TRANSPORT_DSN=dsn)
    said = shop.check("config", "check", "--config", str(file))
    for word in (*words, "buses", "default_bus", "routing"):
        assert any(word in line and "warning" in line
                   for line in said.splitlines()), f"{word}:\n{said}"
    shop.check("setup", "failed", "--config", str(file))
    assert (shop.folder / "var/data.db").exists()


def test_what_only_postgresql_knows_may_stand_in_a_dsn(shop):
    shop.configure(replace=[("queue_name=failed'",
                             "queue_name=failed&check_delayed_interval=1000"
                             "&get_notify_timeout=5&use_notify=0'")])
    result = shop.run("config", "check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "check_delayed_interval" in result.stdout + result.stderr


@pytest.mark.parametrize("option", [*IGNORED, *LIMITS])
def test_an_option_of_symfonys_worker_is_taken(ready_shop, option):
    ready_shop.place_orders(1)
    ready_shop.relay_all()
    result = ready_shop.run("messenger:consume", "orders", "--stop-when-empty",
                            *option.split())
    assert result.returncode == 0, result.stderr
    ready_shop.expect_effects_once()
    said = [line for line in result.stderr.splitlines()
            if "is ignored" in line]
    assert len(said) == (option in IGNORED), result.stderr
    assert IGNORED.get(option, "") in "".join(said)


@pytest.mark.parametrize("transport", ["orders", "outbox"])
def test_queues_are_those_of_rabbitmq(ready_shop, transport):
    """Symfony refuses it, too, where there are none to choose from."""
    result = ready_shop.run("messenger:consume", transport,
                            "--stop-when-empty", "--queues=fasttrack")
    assert result.returncode == 1
    line, = result.stderr.splitlines()
    assert "--queues" in line and "amqp://" in line


def test_all_is_every_transport_that_can_be_consumed(ready_shop):
    ready_shop.place_orders(3)
    ready_shop.relay_all()
    ready_shop.check("messenger:consume", "--all", "--stop-when-empty")
    ready_shop.expect_effects_once()
    result = ready_shop.run("messenger:consume", "orders", "--all")
    assert result.returncode == 2 and "--all" in result.stderr
    result = ready_shop.run("messenger:consume")
    assert result.returncode == 2 and "TRANSPORT" in result.stderr


@pytest.mark.parametrize("sleep", ["0", "-1", "soon", "0.0001", "4000"])
def test_a_sleep_that_makes_no_sense_is_refused(shop, sleep):
    result = shop.run("consume", "orders", f"--sleep={sleep}")
    assert result.returncode == 2
    assert "--sleep" in result.stderr and "seconds" in result.stderr


def test_stats_have_symfonys_format_too(ready_shop):
    ready_shop.place_orders(2)
    stats = json.loads(ready_shop.check("messenger:stats", "--format=json"))
    assert stats["transports"]["outbox"] == {"count": 2}
    assert stats["transports"]["orders"] == {"count": 0}
    assert stats["uncountable_transports"] == []
    assert "outbox" in ready_shop.check("messenger:stats", "--format=txt")
    result = ready_shop.run("stats", "--format=xml")
    assert result.returncode == 2


def test_a_retry_without_a_number_asks_for_one(ready_shop):
    """Symfony asks message by message; scripts get this line there, too."""
    result = ready_shop.run("messenger:failed:retry")
    assert result.returncode == 2
    line, = result.stderr.splitlines()
    assert "--all" in line
