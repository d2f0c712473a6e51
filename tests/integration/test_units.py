"""Units for systemd: what they start runs, and goes on as services should."""
import pathlib
import re
import shlex
import signal

import pytest

import shop as shops

FOLDER = shops.ROOT / "packaging" / "systemd"
NAMES = ["relay", "consume", "kafka-relay"]
PROGRAM = "@bindir@/skirnir"


def read_unit(name):
    """Each key with all its values, and only keys that have a section."""
    keys, section = {}, None
    path = FOLDER / f"skirnir-{name}@.service.in"
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line
            continue
        key, separator, value = line.partition("=")
        assert separator and section, line
        keys.setdefault(key, []).append(value)
    return keys


def start_words(name, instance, options):
    """The command line as systemd makes it: $NAME without braces becomes the
    words of its value, none if it is empty."""
    line, = read_unit(name)["ExecStart"]
    words = []
    for word in shlex.split(line.replace("%i", instance)):
        words += shlex.split(options) if word == "$SKIRNIR_OPTIONS" else [word]
    assert words[0] == PROGRAM
    return words[1:]


@pytest.mark.parametrize("name", NAMES)
def test_a_service_is_started_again_after_a_limit(name):
    assert read_unit(name)["Restart"] == ["always"]


@pytest.mark.parametrize("name", NAMES)
def test_a_service_is_started_again_without_end_and_ever_more_slowly(name):
    """After a wrong password, say; a mistake in the file stays one."""
    unit = read_unit(name)
    assert unit["StartLimitIntervalSec"] == ["0"]
    first, steps, last = (int(unit[key][0]) for key in (
        "RestartSec", "RestartSteps", "RestartMaxDelaySec"))
    assert first < 10 and steps > 1 and last > 10 * first
    assert unit["RestartPreventExitStatus"] == [
        "2 255" if name == "kafka-relay" else "2 3"]


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_a_folder_and_options_of_its_own(name):
    unit = read_unit(name)
    assert unit["WorkingDirectory"] == ["/etc/skirnir"]
    assert any("%i.environment" in path for path in unit["EnvironmentFile"])
    # Unset it would be a warning at each start; a file comes later and wins.
    assert unit["Environment"] == ["SKIRNIR_OPTIONS="]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_not_allowed_fails_and_does_not_kill(name):
    """The file of a lock beside an SQLite database is given to the owner of
    that, where this is allowed."""
    assert read_unit(name)["SystemCallErrorNumber"] == ["EPERM"]


def test_handlers_may_compile():
    """Node and Java write code and run it, and set limits of their own."""
    unit = read_unit("consume")
    assert "MemoryDenyWriteExecute" not in unit
    assert not any("@resources" in value for value in unit["SystemCallFilter"])


@pytest.mark.parametrize("options", ["--stop-when-empty",
                                     "--stop-when-empty --time-limit=3600 -v"])
def test_what_the_units_start_runs(ready_shop, options):
    ready_shop.place_orders(3)
    for name, instance in (("relay", "outbox"), ("consume", "orders")):
        ready_shop.check(*start_words(name, instance, options))
    ready_shop.expect_effects_once()


@pytest.mark.parametrize("name, instance, ready", [
    ("relay", "outbox", "relay.active"), ("consume", "orders", "consumer.ready")])
def test_what_the_units_start_runs_without_options(ready_shop, name, instance,
                                                   ready):
    program = ready_shop.start(*start_words(name, instance, ""))
    program.wait_for(ready)
    assert program.stop() == 0


def catches(program, number):
    """Whether a signal is the program's to handle by now."""
    status = pathlib.Path(f"/proc/{program.pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)$", status, re.M).group(1), 16)
    return caught >> (number - 1) & 1


def test_what_the_unit_of_a_kafka_relay_starts_runs(shop):
    """Its environment is that of the unit's file."""
    environment = {"DB_DRIVER": "sqlite", "DB_NAME": str(shop.folder / "k.db"),
                   "POLLING_DISABLED": "true", "HTTP_LISTEN": ""}
    program = shop.start(*start_words("kafka-relay", "shop", "--verbose"),
                         environment=environment)
    shops.until((shop.folder / "k.db").exists, program.log)
    shops.until(lambda: catches(program, signal.SIGTERM), program.log)
    assert program.is_running()
    assert program.stop() == 0
