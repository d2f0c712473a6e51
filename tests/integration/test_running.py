"""How relay and consume are run: limits, verbosity, signals."""
import re
import signal
import subprocess
import time

import pytest

import shop as shops

COMMANDS = [["relay", "outbox"], ["consume", "orders"]]
READY = {"relay": r"relay\.active", "consume": r"consumer\.ready"}


def fill(shop, command, count):
    """So many messages wait for this command."""
    shop.place_orders(count)
    if command == "consume":
        assert shop.relay_all().returncode == 0


def waiting(shop, command):
    if command == "relay":
        return shop.count("shop", "messenger_outbox")
    return shop.count("queue", "messenger_messages")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("limit", [1, 10, 60])
def test_limit_ends_after_so_many_messages(ready_shop, command, limit):
    fill(ready_shop, command[0], 100)
    result = ready_shop.run(*command, "--limit", limit)
    assert result.returncode == 0
    assert waiting(ready_shop, command[0]) == 100 - limit


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_limit_counts_on_until_messages_come(ready_shop, command):
    shop = ready_shop
    fill(shop, command[0], 3)
    started = shop.start(*command, "--limit=5")
    shops.until(lambda: waiting(shop, command[0]) == 0, "the first three")
    assert started.is_running()
    shop.place_orders(10, first=4)
    if command[0] == "consume":
        assert shop.relay_all().returncode == 0
    assert started.end() == 0
    assert waiting(shop, command[0]) == 8


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_time_limit_ends_it(ready_shop, command):
    fill(ready_shop, command[0], 10)
    began = time.monotonic()
    result = ready_shop.run(*command, "--time-limit=1")
    assert result.returncode == 0
    assert 0.9 < time.monotonic() - began < 30
    assert "limit.time" in result.stderr
    assert waiting(ready_shop, command[0]) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_time_limit_holds_in_trouble_too(ready_shop, command):
    """When what it needs cannot be reached it still ends in time."""
    shop = ready_shop
    shop.configure(replace=[(str(shop.path("queue")), "/missing/queue.db")])
    started = shop.start(*command, "--time-limit=1", "--wait")
    assert started.end(15) == 0
    assert "trouble" in started.log()


def test_time_limit_holds_for_a_standby(ready_shop):
    active = ready_shop.start_relay()
    active.wait_for(READY["relay"])
    assert ready_shop.start_relay("--time-limit=2").end(15) == 0
    assert active.stop() == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_memory_limit_ends_it(ready_shop, command):
    result = ready_shop.run(*command, "--memory-limit=1M")
    assert result.returncode == 0
    assert "limit.memory" in result.stderr
    started = ready_shop.start(*command, "--memory-limit=1G")
    started.wait_for(READY[command[0]])
    assert started.stop() == 0
    assert "limit.memory" not in started.log()


@pytest.mark.parametrize("command", [
    ["relay", "outbox"], ["messenger:consume", "outbox"],
    ["consume", "orders"]], ids=" ".join)
def test_failure_limit_ends_it(ready_shop, command):
    """One failure is not enough, and good messages do not count."""
    shop = ready_shop
    fill(shop, command[0], 5)
    place = ("shop", "messenger_outbox", "outbox")
    if command[0] == "consume":
        place = ("queue", "messenger_messages", "orders")
    connection = shop.open(place[0])
    shops.write_row(connection, "{}", "{broken", *place[1:])
    started = shop.start(*command, "--failure-limit=2")
    shops.until(lambda: len(shop.failed()) == 1, started.log)
    assert started.is_running()
    shops.write_row(connection, "{}", "{broken", *place[1:])
    assert started.end() == 0, started.log()
    assert len(shop.failed()) == 2


def test_failure_limit_ends_it_where_partitions_are_blocked(ready_shop):
    shop = ready_shop
    shop.configure(replace=[("doctrine://default?table_name",
                             "ordered-doctrine://default?table_name")])
    shop.check("setup")
    connection = shop.open("shop")

    def blocked():
        return shop.count("shop", "messenger_outbox",
                          "available_at = '9999-12-31 23:59:59'")

    def refuse(key):
        connection.execute(
            "INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) VALUES ('{}', "
            "'{broken', 'outbox', ?, datetime('now'), datetime('now'))",
            (key,))

    refuse("a")
    started = shop.start_relay("--failure-limit=2")
    shops.until(lambda: blocked() == 1, started.log)
    assert started.is_running()
    refuse("b")
    assert started.end() == 0, started.log()
    assert blocked() == 2


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_stop_when_empty_handles_all_first(ready_shop, command):
    fill(ready_shop, command[0], 300)
    assert ready_shop.run(*command, "--stop-when-empty").returncode == 0
    assert waiting(ready_shop, command[0]) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_stop_when_empty_does_not_wait_for_work(ready_shop, command):
    """It ends when nothing is due, not a pause later."""
    began = time.monotonic()
    result = ready_shop.run(*command, "--stop-when-empty", "--sleep=30")
    assert result.returncode == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_sleep_bounds_the_wait_and_not_the_latency(ready_shop, command):
    """A message that comes meanwhile is taken at once."""
    shop = ready_shop
    started = shop.start(*command, "--sleep=600")
    started.wait_for(READY[command[0]])
    fill(shop, command[0], 1)
    shops.until(lambda: waiting(shop, command[0]) == 0, "the message", 5)
    assert started.stop() == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_quiet_says_nothing(ready_shop, command):
    fill(ready_shop, command[0], 5)
    for flag in ("-q", "--quiet"):
        result = ready_shop.run(*command, "--stop-when-empty", flag)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-v", "-vv", "-vvv", "--verbose"])
def test_verbose_is_understood(ready_shop, command, flag):
    result = ready_shop.run(*command, "--stop-when-empty", flag)
    assert result.returncode == 0
    assert re.search(READY[command[0]], result.stderr)


def test_verbose_says_why_a_batch_is_done_again(ready_shop):
    shop = ready_shop
    shop.configure(max_retries=0)
    shop.place_orders(50)
    shops.write_row(shop.open("shop"), "not json")
    shop.place_orders(50, first=51)
    assert shop.relay_all().returncode == 0
    result = shop.consume_all("-v")
    assert " debug consumer.replay " in result.stderr
    shop.expect_effects_once()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_log_lines_have_time_level_and_event(ready_shop, command):
    result = ready_shop.run(*command, "--stop-when-empty")
    for line in result.stderr.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
                        r"(info|warning|error) [a-z_]+\.[a-z_]+ name=", line)
    assert result.stdout == ""


def test_relay_sums_up_at_its_end(ready_shop):
    ready_shop.place_orders(7)
    result = ready_shop.relay_all()
    assert re.search(r"relay\.stopped name=outbox published=7 retried=0 "
                     r"failed=0", result.stderr)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_an_idle_program_at_once(ready_shop, command, number):
    started = ready_shop.start(*command, "--sleep=60")
    started.wait_for(READY[command[0]])
    began = time.monotonic()
    assert started.stop(number) == 0
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_signal_under_load_finishes_and_leaves_nothing_undone(ready_shop,
                                                              command):
    """No duplicates, no rows that wait for a lease to end."""
    shop = ready_shop
    shop.configure(in_flight=500)
    fill(shop, command[0], 20000)
    done = shop.wire if command[0] == "relay" else shop.effects
    started = shop.start(*command)
    shops.until(done, "the first")
    assert started.stop() == 0, started.log()
    assert len(done()) < 20000, "stopped before the end"
    if command[0] == "relay":
        assert shop.in_flight() == set()
        assert len(shop.wire()) + waiting(shop, "relay") == 20000
    else:
        assert shop.count("queue", "messenger_messages",
                          "delivered_at IS NOT NULL") == 0
        assert len(shop.effects()) + waiting(shop, "consume") == 20000


def test_relay_and_consumer_may_be_stopped_before_they_are_ready(ready_shop):
    """A signal in the first moments is no crash; either it came too early for
    the program to have a say, or it stops."""
    for command in COMMANDS:
        for _ in range(10):
            started = ready_shop.start(*command)
            assert started.stop() in (0, -signal.SIGTERM)


def test_output_that_nobody_reads_is_no_crash(ready_shop):
    result = ready_shop.run("config", "keys")
    assert result.returncode == 0 and len(result.stdout) > 4096
    with open("/dev/full", "w", encoding="utf-8") as full:
        code = subprocess.run(ready_shop.command("config", "keys"),
                              stdout=full, stderr=subprocess.PIPE,
                              cwd=ready_shop.folder,
                              env=ready_shop.environment).returncode
    assert code == 1
