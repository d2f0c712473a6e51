"""The command line as a user meets it: help, version, and wrong usage."""
import json
import os
import pathlib
import re
import socket
import subprocess

import pytest

import shop as shops
import terminals

COMMANDS = {
    "relay": ["--limit=N", "--time-limit=SECONDS", "--memory-limit=SIZE",
              "--sleep=SECONDS", "--stop-when-empty", "--metrics-port=N"],
    "consume": ["--limit=N", "--time-limit=SECONDS", "--memory-limit=SIZE",
                "--sleep=SECONDS", "--stop-when-empty"],
    "publish": ["--body=TEXT", "--transport=NAME", "--id=ID",
                "--header=NAME=VALUE", "--partition-key=KEY", "--delay=SECONDS",
                "--content-type=TYPE", "--json"],
    "setup": ["--print-sql", "--dry-run", "--tune"],
    "setup-amqp": ["--dry-run", "--dump", "--output=FILE", "--vhost=VHOST",
                   "--dsn=DSN"],
    "setup-deduplication": ["--force", "--migration", "--print-sql",
                            "--dry-run"],
    "failed show": ["--transport=NAME", "--name=PATTERN", "--class=PATTERN",
                    "--error=TEXT", "--since=TIME", "--max=N",
                    "--database=NAME", "--stats", "--json"],
    "failed retry": ["--transport=NAME", "--all", "--to=TRANSPORT", "--rate=N",
                     "--dry-run", "--force"],
    "failed remove": ["--transport=NAME", "--all", "--rate=N", "--dry-run",
                      "--force"],
    "stats": ["--watch", "--interval=SECONDS", "--json"],
    "cleanup-outbox": ["--days=N", "--batch-size=N", "--dry-run"],
    "deduplication-cleanup": ["--days=N", "--batch-size=N", "--dry-run"],
    "config": ["--json", "check", "show", "keys"],
}
GLOBAL = ["--config=FILE", "--quiet", "--verbose", "--help", "--version"]
ALIASES = {
    "messenger:stats": "stats",
    "messenger:cleanup-outbox": "cleanup-outbox",
    "messenger:consume": "consume",
    "message-broker:deduplication-cleanup": "deduplication-cleanup",
    "messenger:failed:show": "failed show",
    "messenger:failed:retry": "failed retry",
    "messenger:failed:remove": "failed remove",
    "messenger:setup-transports": "setup",
    "message-broker:setup-amqp": "setup-amqp",
    "message-broker:setup-deduplication": "setup-deduplication",
}


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_names_its_options(shop, command, flag):
    result = shop.run(*command.split(), flag)
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: skirnir {command}")
    assert result.stderr == ""
    for option in COMMANDS[command] + GLOBAL:
        assert option in result.stdout
    assert f"  skirnir {command}" in result.stdout, "an example"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_configuration(shop, command):
    shop.config_path.unlink()
    assert shop.run(*command.split(), "--help").returncode == 0


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


@pytest.mark.parametrize("command", COMMANDS)
def test_help_takes_the_name_of_a_command(shop, command):
    result = shop.run("help", *command.split())
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout == shop.check(*command.split(), "--help")


@pytest.mark.parametrize("arguments", [
    ["failed", "--help"], ["failed", "-h"], ["help", "failed"],
    ["--help", "failed"], ["failed", "-v", "--help"]], ids=" ".join)
def test_help_of_a_first_word_lists_what_may_follow(shop, arguments):
    shop.config_path.unlink()
    result = shop.run(*arguments)
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.startswith("Usage: skirnir failed ")
    for command in ("failed show", "failed retry", "failed remove"):
        assert f"\n  {command} " in result.stdout
    assert "\n  relay" not in result.stdout


# What is written: what may have been meant; None: nothing is near.
NEAR = {
    "relya outbox": "'relay'",
    "consum orders": "'consume'",
    "faild show": "'failed show'",
    "failed shwo": "'failed show'",
    "failed": None,
    "failed zz": None,
    "retry 42": "'failed retry'",
    "messenger:consme orders": "'messenger:consume'",
    "help relya": "'relay'",
    "help failed shwo": "'failed show'",
    "fly": None,
    "relay outbox --limt=3": "--limit",
    "relay outbox --stop-when-emtpy": "--stop-when-empty",
    "relay outbox --verbos": "--verbose",
    "failed show --transports=x": "--transport",
    "--confg=x relay outbox": "--config",
    "--limit=3 relay outbox": "behind its name",
    "relay outbox -limit=3": "write --limit=3",
    "publish order.placed -body={}": "write --body={}",
    "relay -help": "write --help",
    "relay outbox --zzzzz": None,
}


@pytest.mark.parametrize("written", NEAR)
def test_what_may_have_been_meant_is_said(shop, written):
    result = shop.run(*written.split())
    assert result.returncode == 2
    assert result.stdout == ""
    line, = result.stderr.splitlines()
    meant = NEAR[written]
    if meant is None:
        assert "mean" not in line
    elif meant.startswith(("'", "--")):
        assert f"did you mean {meant}?" in line
    else:
        assert meant in line
    assert not shop.path("shop").exists()


def shown(shop, *arguments, **environment):
    _, master = terminals.start(shop, 100, *arguments, has_errors=True,
                                environment=environment)
    return terminals.read_all(master)


COLOURED = [["stats"], ["relay", "outbx"], ["relay", "--limt=3"], ["fly"],
            ["relay", "outbox", "--stop-when-empty"]]


@pytest.mark.parametrize("command", COLOURED, ids=" ".join)
def test_a_terminal_has_colours(ready_shop, command):
    assert re.search(r"\x1b\[\d+m.*\x1b\[0m",
                     shown(ready_shop, *command, NO_COLOR=""), re.S)


@pytest.mark.parametrize("command", COLOURED, ids=" ".join)
@pytest.mark.parametrize("environment", [
    {"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"},
    {"NO_COLOR": "", "TERM": ""}], ids=str)
def test_a_terminal_that_wants_no_colours_gets_none(ready_shop, command,
                                                    environment):
    assert "\x1b" not in shown(ready_shop, *command, **environment)


@pytest.mark.parametrize("command", COLOURED, ids=" ".join)
def test_a_pipe_has_no_colours(ready_shop, command):
    result = ready_shop.run(*command, environment={"TERM": "xterm",
                                                   "NO_COLOR": ""})
    assert "\x1b" not in result.stdout + result.stderr


def test_mistakes_have_colours_on_a_terminal(shop):
    shop.write_config("transport: {}\n")
    for command in (["config", "check"], ["setup"]):
        assert "\x1b[31mskirnir.yaml:1: " in \
            shown(shop, *command, NO_COLOR="")


def test_no_arguments_are_wrong_usage(shop):
    result = shop.run()
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: skirnir")


@pytest.mark.parametrize("arguments", [["--version"], ["-V"],
                                       ["relay", "--version"],
                                       ["-V", "setup"]], ids=" ".join)
def test_version_names_the_drivers(shop, arguments):
    result = shop.run(*arguments)
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
    (["publish", "order.placed", "another"], "'another'"),
    (["config"], "check|show|keys"),
    (["config", "explain"], "'explain'"),
    (["partition", "jump", "key"], "'jump'"),
    (["setup", "--notify", "--no-notify"], "exclude each other"),
    (["kafka-relay", "migrat"], "'migrat': migrate, errored show"),
    (["kafka-relay", "errored", "list"], "'errored list': migrate, errored"),
    (["kafka-relay", "errored", "show", "x"], "'x' is no id of a row"),
    (["kafka-relay", "errored", "show", "--older-than=x"], "15m, 2h, 7d"),
    (["kafka-relay", "errored", "retry", "7", "--older-than=2h"],
     "ID and --older-than exclude each other"),
    (["kafka-relay", "migrate", "--json"], "--json go with errored"),
    (["kafka-relay", "--older-than=2h"], "--json go with errored"),
    (["relay", "outbox", "--limit=x"], "--limit=x: N, a whole number from 1,"),
    (["relay", "outbox", "--time-limit=1h"], "SECONDS, a whole number"),
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
    ("--time-limit", ""), ("--sleep", "soon"), ("--sleep", "0"),
    ("--memory-limit", "12X"), ("--memory-limit", "12Q"),
    ("--memory-limit", "0"), ("--memory-limit", "-5M"),
    ("--memory-limit", " 5M"), ("--memory-limit", "99999999999G"),
])
def test_value_that_makes_no_sense_is_wrong_usage(ready_shop, command, option,
                                                  value):
    ready_shop.place_orders(1)
    result = ready_shop.run(*command, f"{option}={value}", "--stop-when-empty")
    assert result.returncode == 2
    assert f"{option}={value}" in result.stderr
    assert f"see skirnir {command[0]} --help" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert ready_shop.count("shop", "messenger_outbox") == 1


@pytest.mark.parametrize("arguments, named", [
    ([], "--body"),
    (["--body", "{}", "--delay=-1"], "--delay=-1"),
    (["--body", "{}", "-d", "1h"], "--delay=1h"),
    (["--body", "{}", "-H", "foo"], "--header=foo: NAME=VALUE"),
    (["--body", "{}", "--header==x"], "--header==x: NAME=VALUE"),
    (["--body", "{}", "--id=42"], "--id"),
    (["--body", "{}", "--id=00000000-0000-0000-0000-000000000000"], "--id"),
    (["--body", "{}", "--id=00000000000000000000000000"], "--id"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_publish_that_makes_no_sense_is_wrong_usage(shop, arguments, named):
    result = shop.run("publish", "order.placed", *arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert "see skirnir publish --help" in result.stderr
    assert not shop.path("shop").exists()


@pytest.mark.parametrize("arguments", [[], ["--db-driver=oracle"]], ids=str)
def test_databases_that_can_be_chosen_are_named(shop, arguments):
    result = shop.run("kafka-relay", *arguments)
    assert result.returncode == (2 if arguments else 255)
    assert "DB_DRIVER in the environment: mysql, postgres or sqlite is needed" \
        in result.stderr


DATABASE = {"DB_DRIVER": "mysql", "DB_HOST": "127.0.0.1", "DB_USER": "shop",
            "DB_PASS": "hunter2", "DB_NAME": "shop", "KAFKA_HOST": "mq"}


@pytest.mark.parametrize("port", ["http", "0", "65536"])
def test_port_that_is_none_is_named_as_it_was_given(shop, port):
    result = shop.run("kafka-relay", "migrate",
                      environment={**DATABASE, "DB_PORT": port})
    assert result.returncode == 1
    assert f"DB_PORT in the environment: --db-port={port}: PORT, a whole " \
        "number from 1 to 65535, is needed" in result.stderr


@pytest.mark.parametrize("option, variable, value, said", [
    ("--db-port", "DB_PORT", "abc", "--db-port=abc: PORT, a whole number"),
    ("--db-host", "DB_HOST", "localhost:3306",
     "--db-host, or DB_HOST in the environment: a host alone"),
    ("--db-host", "DB_HOST", "h/x", "a host alone"),
    ("--partitioner", "KAFKA_PARTITIONER", "random",
     "--partitioner=random: one of these is needed: murmur2 fnv1a"),
    ("--dboutboxtable", None, "my table",
     "--dboutboxtable: a table name of letters"),
    ("--kafka-host", "KAFKA_HOST", "kafka://mq:9092",
     "--kafka-host, or KAFKA_HOST in the environment: HOST:PORT"),
    ("--kafka-options", "KAFKA_OPTIONS", "acks=1",
     "--kafka-options, or KAFKA_HOST and KAFKA_OPTIONS in the environment: "
     "acks cannot be set"),
    ("--kafka-options", "KAFKA_OPTIONS", "topcs=1", "did you mean topics?"),
    ("--kafka-host", "KAFKA_HOST", "mq:9092\n",
     "--kafka-host, or KAFKA_HOST in the environment: HOST:PORT"),
    ("--db-host", "DB_HOST", "127.0.0.1\n", "a host alone"),
], ids=str)
def test_a_setting_of_kafka_relay_is_named_as_it_was_given(
        shop, option, variable, value, said):
    """On the command line it is wrong usage."""
    settings = {**DATABASE, "DB_PORT": "1"}
    result = shop.run("kafka-relay", f"{option}={value}", environment=settings)
    assert result.returncode == 2
    assert said in result.stderr
    assert "DB_NAME.0" not in result.stderr
    assert "DSN" not in result.stderr
    assert "KAFKA_HOST.0" not in result.stderr
    if variable is not None:
        result = shop.run("kafka-relay",
                          environment={**settings, variable: value})
        assert result.returncode == 1
        assert said in result.stderr


def test_a_database_that_is_not_there_is_not_waited_for(shop):
    """Before it waits it would say so."""
    result = shop.run("kafka-relay", "errored", "show", environment={
        "DB_DRIVER": "sqlite", "DB_NAME": "none.db"})
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == \
        "skirnir kafka-relay: database none.db: there is no such file; " \
        "`skirnir kafka-relay migrate` makes it\n"


def test_one_database_that_is_not_there_keeps_no_other_from_being_worked(shop):
    settings = {"DB_DRIVER": "sqlite", "DB_NAME": "no/one.db,two.db"}
    for words, said in [
            (["migrate"], "table kafka_outbox in database two.db is made"),
            (["errored", "show"], "database two.db has no errored rows"),
            (["--cleanup", "--optimize"], "database two.db is optimized")]:
        result = shop.run("kafka-relay", *words, environment=settings)
        assert result.returncode == 1
        assert said in result.stderr
        assert "database no/one.db: " in result.stderr.splitlines()[-1]
    assert result.stdout == "deleted 0 published outbox records\n"


def test_what_is_asked_of_errored_rows_is_told_with_what_there_is(shop):
    settings = {"DB_DRIVER": "sqlite", "DB_NAME": "k.db"}
    shop.check("kafka-relay", "migrate", environment=settings)
    shop.open("k").execute(
        "INSERT INTO kafka_outbox (topic, payload_json, errored) "
        "VALUES ('a', '{}', 1)")
    result = shop.run("kafka-relay", "errored", "show", "--older-than=30d",
                      environment=settings)
    assert result.returncode == 0
    assert result.stderr.endswith("has no errored rows that are that old\n")
    for row, code, said in [("17", 1, "there is no errored row 17"),
                            ("x", 2, "'x' is no id of a row")]:
        result = shop.run("kafka-relay", "errored", "retry", row,
                          environment=settings)
        assert result.returncode == code
        assert f"{said}; `skirnir kafka-relay errored show` lists them" \
            in result.stderr


SETTINGS = {"DB_DRIVER": "sqlite", "DB_NAME": "k.db",
            "KAFKA_HOST": "127.0.0.1:1", "LOG_LEVEL": "info"}


@pytest.mark.parametrize("options, told", [
    ("partitioner=fnv1a", '"partitioner":"fnv1a","compression":"none"'),
    ("compression.codec=lz4", '"partitioner":"murmur2","compression":"lz4"'),
    ("", '"partitioner":"murmur2","compression":"none"'),
    ("client.id=a%0Ab\nc\u00e4", '"partitioner":"murmur2"'),
    ("client.id=%25env(HOME)%25", '"partitioner":"murmur2"')], ids=str)
def test_kafka_relay_says_what_it_takes_of_its_options(shop, options, told):
    relay = shop.start("kafka-relay", "--listen=", "--kafka-options=" + options,
                       environment=SETTINGS)
    relay.wait_for(told)
    relay.wait_for("relay.trouble")
    relay.stop()


@pytest.mark.parametrize("place", [":65536", "127.0.0.1:0", "8081", ":x"])
def test_a_port_to_listen_on_has_its_range_named(shop, place):
    result = shop.run("kafka-relay", "--listen", place, environment=SETTINGS)
    assert result.returncode == 1
    assert f"HTTP_LISTEN, or --listen {place}: HOST:PORT or :PORT is needed, with a port " \
        "from 1 to 65535" in result.stderr


def test_each_port_of_a_list_of_brokers_is_checked(shop):
    result = shop.run("kafka-relay", "--listen=", environment={
        **SETTINGS, "KAFKA_HOST": "one:9092,two:99999"})
    assert result.returncode == 1
    assert "the port of two is not a number from 1 to 65535" \
        in result.stderr


@pytest.mark.parametrize("place", ["it's:8081", "%env(HOME)%:8081",
                                   "1'\nhandlers: {}\nx-a: ':8081"], ids=repr)
def test_kafka_relay_takes_no_place_for_settings(shop, place):
    result = shop.run("kafka-relay", "--listen", place, environment=SETTINGS)
    assert result.returncode == 1
    assert " is no address" in result.stderr
    assert str(pathlib.Path.home()) not in result.stderr


def test_kafka_relay_shows_no_password_behind_its_hosts(shop):
    relay = shop.start("kafka-relay", "--listen=", environment={
        **SETTINGS, "KAFKA_HOST": "127.0.0.1:1?sasl.username=me@corp&"
        "sasl.password=hun@ter2&security.protocol=sasl_plaintext"})
    relay.wait_for('"brokers":"127.0.0.1:1"')
    relay.stop()
    assert "ter2" not in relay.log()


def test_what_there_is_nothing_to_do_about_is_said(shop):
    shop.environment.update({"DB_DRIVER": "sqlite",
                             "DB_NAME": str(shop.folder / "k.db")})
    for end in (" is made\n", " is there, and lacks nothing\n"):
        made = shop.run("kafka-relay", "migrate")
        assert made.returncode == 0 and made.stdout == ""
        assert "table kafka_outbox in database " in made.stderr
        assert made.stderr.endswith(end)
    shown = shop.run("kafka-relay", "errored", "show")
    assert shown.returncode == 0 and shown.stdout == ""
    assert shown.stderr.endswith(" has no errored rows\n")
    done = shop.run("kafka-relay", "--optimize")
    assert done.returncode == 0 and done.stdout == ""
    assert done.stderr.endswith(" is optimized\n")


def test_a_database_that_is_away_is_said_to_be_waited_for(shop):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
        shop.environment.update({**DATABASE, "DB_PORT": port})
        waiting = shop.start("kafka-relay", "errored", "show")
        waiting.wait_for("kafka-relay: database shop is waited for, 30 s at "
                         f"most: .*127.0.0.1:{port}")
        waiting.kill()


@pytest.mark.parametrize("command", [["show"], ["show", "--stats"], ["retry"],
                                     ["remove", "--force"]], ids=" ".join)
def test_failed_messages_of_an_unknown_transport_are_warned_of(ready_shop,
                                                               command):
    """It may have been one when they failed."""
    result = ready_shop.run("failed", *command, "--transport=outbx")
    assert result.returncode == 0
    assert "warning: there is no transport 'outbx' in skirnir.yaml" in \
        result.stderr
    known = ready_shop.run("failed", *command, "--transport=outbox")
    assert known.returncode == 0 and known.stderr == ""


def test_help_is_given_whatever_else_is_missing(shop):
    assert shop.run("publish", "--help").returncode == 0


def run_into(shop, output, *arguments):
    """Runs with standard output at a path; None: closed."""
    def close_output():
        if output is None:
            os.close(1)
    with open(output or os.devnull, "wb") as out:
        return subprocess.run(
            shop.command(*arguments), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.PIPE, encoding="utf-8", cwd=shop.folder,
            timeout=shops.PATIENCE_S, env=shop.environment,
            preexec_fn=close_output)


OUTPUTS = {"full": "/dev/full", "closed": None}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_id_that_cannot_be_printed_is_said(ready_shop, output, flags):
    result = run_into(ready_shop, OUTPUTS[output], "publish", "order.placed",
                      "--body", "{}", *flags)
    assert result.returncode == 1
    (headers,), = ready_shop.query("shop",
                                   "SELECT headers FROM messenger_outbox")
    written = json.loads(headers)["X-Message-Id"]
    assert f"published as {written}, but the output cannot be written: " in \
        result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("arguments", [
    ["--version"], ["--help"], ["relay", "--help"], ["config", "check"],
    ["config", "show"], ["config", "keys"], ["setup", "--print-sql"],
    ["setup-deduplication"]], ids=" ".join)
def test_output_that_cannot_be_written_is_said(shop, output, arguments):
    result = run_into(shop, OUTPUTS[output], *arguments)
    assert result.returncode == 1
    assert "the output cannot be written" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("command", ["setup", "failed retry"])
def test_what_is_done_is_said_where_it_cannot_be_printed(
        ready_shop, output, command):
    more = ["--all"] if command == "failed retry" else []
    result = run_into(ready_shop, OUTPUTS[output], *command.split(), *more)
    assert result.returncode == 1
    assert f"skirnir {command}: it is done, but the output cannot be " \
        "written: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [
    ["--version"], ["--help"], ["relay", "--help"], ["config", "check"],
    ["config", "show"], ["config", "show", "--json"], ["config", "keys"],
    ["setup", "--print-sql"], ["setup-deduplication"], ["stats"],
    ["failed", "show"], ["publish", "order.placed", "--body", "{}"]],
    ids=" ".join)
def test_a_reader_that_has_seen_enough_is_no_failure(ready_shop, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = run_into(ready_shop, f"/dev/fd/{writer}", *arguments)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def test_closed_streams_do_not_become_files(ready_shop):
    """What is opened next would get their numbers."""
    def close_all():
        for number in (0, 1, 2):
            os.close(number)
    ready_shop.place_orders(1)
    code = subprocess.run(
        ready_shop.command("relay", "outbox", "--stop-when-empty"),
        cwd=ready_shop.folder, timeout=shops.PATIENCE_S,
        env=ready_shop.environment, preexec_fn=close_all).returncode
    assert code == 0
    assert ready_shop.count("shop", "messenger_outbox") == 0
    assert ready_shop.query("shop", "PRAGMA integrity_check") == [("ok",)]
    assert ready_shop.query("queue", "PRAGMA integrity_check") == [("ok",)]


def test_consuming_an_outbox_is_relaying_it(ready_shop):
    ready_shop.place_orders(3)
    result = ready_shop.run("messenger:consume", "outbox", "--limit=2")
    assert result.returncode == 0
    assert " relay.active name=outbox" in result.stderr
    assert ready_shop.count("shop", "messenger_outbox") == 1
    assert len(ready_shop.wire()) == 2


@pytest.mark.parametrize("command", ["consume", "relay"])
def test_failed_messages_are_neither_consumed_nor_relayed(ready_shop, command):
    result = ready_shop.run(command, "failed")
    assert result.returncode == 1
    assert "failed is the failure_transport" in result.stderr
    assert "skirnir relay failed" not in result.stderr
    # The command that it gives works.
    assert "see `skirnir failed show`" in result.stderr
    ready_shop.check("failed", "show")


def test_setup_names_transports_without_a_table(shop):
    shop.configure(replace=[("failure_transport:",
                             "    elsewhere: 'redis://host'\n"
                             "failure_transport:")])
    line = "elsewhere: nothing to make, since this build has no driver"
    assert line in shop.check("setup")
    assert f"-- {line}" in shop.check("setup", "--print-sql")


def test_more_is_said_the_more_verbose(ready_shop):
    """-v tells of batches, -vv of each message."""
    said = []
    for number, flag in enumerate([None, "-v", "-vv"], 1):
        ready_shop.place_orders(1, first=number)
        ready_shop.relay_all()
        result = ready_shop.consume_all(*([flag] if flag else []))
        said.append("consumer.handled" in result.stderr)
    assert said == [False, False, True]


@pytest.mark.parametrize("delay", [0, 1])
def test_retry_without_a_delay_does_not_get_the_default(ready_shop, delay):
    ready_shop.configure(replace=[("max_retries: 3, delay: 1",
                                   f"max_retries: 1, delay: {delay}"),
                                  ("json_extract(:body, '$.orderId')",
                                   "json_extract(:body, '$.')")])
    ready_shop.place_orders(1)
    ready_shop.relay_all()
    consumer = ready_shop.start_consumer()
    found = consumer.wait_for(r"consumer\.retry .* delay_ms=(\d+)")
    assert int(found.group(1)) <= 1
