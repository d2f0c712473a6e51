"""The command line as a user meets it: help, version, and wrong usage."""
import pytest

COMMANDS = {
    "relay": ["--limit=N", "--time-limit=SECONDS", "--memory-limit=SIZE",
              "--sleep=SECONDS", "--stop-when-empty"],
    "consume": ["--limit=N", "--time-limit=SECONDS", "--memory-limit=SIZE",
                "--sleep=SECONDS", "--stop-when-empty"],
    "publish": ["--body=TEXT", "--transport=NAME", "--id=ID",
                "--header=NAME=VALUE", "--key=KEY", "--delay=SECONDS",
                "--content-type=TYPE", "--json"],
    "setup": ["--print-sql", "--dry-run"],
    "setup-deduplication": ["--force", "--migration", "--print-sql",
                            "--dry-run"],
    "config": ["--json", "check", "show", "keys"],
}
GLOBAL = ["--config=FILE", "--quiet", "--verbose", "--help", "--version"]
ALIASES = {
    "messenger:consume": "consume",
    "messenger:setup-transports": "setup",
    "message-broker:setup-deduplication": "setup-deduplication",
}


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_names_its_options(shop, command, flag):
    result = shop.run(command, flag)
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: skirnir {command}")
    assert result.stderr == ""
    for option in COMMANDS[command] + GLOBAL:
        assert option in result.stdout
    assert f"  skirnir {command}" in result.stdout, "an example"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_configuration(shop, command):
    shop.config_path.unlink()
    assert shop.run(command, "--help").returncode == 0


@pytest.mark.parametrize("alias, command", ALIASES.items())
def test_symfony_names_are_understood(shop, alias, command):
    result = shop.run(alias, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: skirnir {command}")


@pytest.mark.parametrize("arguments", [["--help"], ["help"], ["-h"]])
def test_overview_lists_every_command(shop, arguments):
    result = shop.run(*arguments)
    assert result.returncode == 0
    assert result.stderr == ""
    for command in COMMANDS:
        assert f"\n  {command} " in result.stdout
    assert "Exit codes" in result.stdout


def test_no_arguments_are_wrong_usage(shop):
    result = shop.run()
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: skirnir")


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_names_the_drivers(shop, flag):
    result = shop.run(flag)
    assert result.returncode == 0
    assert result.stdout.startswith("skirnir 0.")
    assert "sqlite" in result.stdout and "queue" in result.stdout


@pytest.mark.parametrize("arguments, named", [
    (["fly"], "'fly'"),
    (["relay", "outbox", "--fast"], "--fast"),
    (["--fast"], "--fast"),
    (["consume", "orders", "-x"], "-x"),
    (["relay", "outbox", "--limit"], "--limit"),
    (["setup", "--dry-run=yes"], "--dry-run"),
    (["relay"], "TRANSPORT"),
    (["consume"], "TRANSPORT"),
    (["publish"], "NAME"),
    (["relay", "outbox", "another"], "'another'"),
    (["config"], "check|show|keys"),
    (["config", "explain"], "'explain'"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_usage_is_named_and_ends_with_2(shop, arguments, named):
    result = shop.run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not shop.path("shop").exists()


@pytest.mark.parametrize("command", [["relay", "outbox"],
                                     ["consume", "orders"]], ids=" ".join)
@pytest.mark.parametrize("option, value", [
    ("--limit", "abc"), ("--limit", "0"), ("--limit", "-1"),
    ("--limit", "99999999999999999999"), ("--time-limit", "1.5"),
    ("--time-limit", ""), ("--sleep", "soon"), ("--memory-limit", "12X"),
    ("--memory-limit", "0"), ("--memory-limit", "-5M"),
])
def test_value_that_makes_no_sense_is_named(ready_shop, command, option,
                                            value):
    ready_shop.place_orders(1)
    result = ready_shop.run(*command, f"{option}={value}", "--stop-when-empty")
    assert result.returncode in (1, 2)
    assert f"{option}={value}" in result.stderr
    assert ready_shop.count("shop", "messenger_outbox") == 1
