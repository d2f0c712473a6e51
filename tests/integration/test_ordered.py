"""Ordered outboxes as an application and its operators meet them."""
import json

import pytest

import prometheus_text
import shop as shops
import symfony_rows
import terminals
import test_metrics

CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders{options}
    orders:
        dsn: 'queue://default?queue_name=orders'
"""
BODIES = ("SELECT body FROM messenger_messages WHERE queue_name = 'orders' "
          "ORDER BY id")
COLUMNS = "SELECT name FROM pragma_table_info('messenger_outbox')"


def configure(world, scheme="ordered-doctrine", options=""):
    world.write_config(CONFIG.format(scheme=scheme, options=options))


@pytest.fixture
def world(tmp_path):
    opened = shops.Shop(tmp_path)
    configure(opened)
    yield opened
    opened.close()


def publish(world, number, key):
    world.check("publish", "order.placed", "--body", str(number),
                "--partition-key", key)


def bodies(world):
    return [row[0] for row in world.query("shop", BODIES)]


def test_setup_makes_the_column_and_its_index_and_may_run_again(world):
    for _ in range(2):
        world.check("setup")
        assert ("partition_key",) in world.query("shop", COLUMNS)
        assert world.query(
            "shop", "SELECT COUNT(*) FROM sqlite_master WHERE name = "
            "'messenger_outbox_idx_partition_id'") == [(1,)]


def test_setup_adds_the_column_to_a_table_with_rows(world):
    configure(world, "doctrine")
    world.check("publish", "order.placed", "--body", "1")
    configure(world)
    result = world.run("relay", "outbox", "--time-limit", "1")
    assert "skirnir setup" in result.stderr + result.stdout
    assert "run `skirnir setup`" in world.run("stats").stdout
    assert "would run: ALTER TABLE" in world.check("setup", "--dry-run")
    assert "ran: ALTER TABLE" in world.check("setup")
    assert "ran:" not in world.check("setup")
    publish(world, 2, "a")
    world.check("relay", "outbox", "--stop-when-empty")
    assert bodies(world) == ["1", "2"]


def test_a_message_without_a_key_is_refused(world):
    world.check("setup")
    result = world.run("publish", "order.placed", "--body", "1")
    assert result.returncode != 0
    assert "order.placed has no partition key" in result.stderr
    publish(world, 1, "")
    result = world.run("publish", "order.placed", "--body", "1",
                       "--partition-key", "x" * 256)
    assert result.returncode != 0 and "255 bytes" in result.stderr
    publish(world, 2, "x" * 255)
    assert world.query("shop", "SELECT partition_key FROM messenger_outbox "
                       "ORDER BY id") == [("",), ("x" * 255,)]


def test_the_key_stays_at_home(world):
    publish(world, 1, "customer-4711")
    world.check("relay", "outbox", "--stop-when-empty")
    [(headers,)] = world.query(
        "shop", "SELECT headers FROM messenger_messages")
    assert "4711" not in headers and json.loads(headers)["type"]


def test_the_key_travels_in_a_header_on_request(world):
    configure(world, options="\n        partition_header: X-Partition-Key")
    world.check("setup")
    publish(world, 1, "customer-4711")
    publish(world, 2, "")
    # A plain INSERT names it in the column alone.
    world.open("shop").execute(
        "INSERT INTO messenger_outbox (body, headers, queue_name, "
        "partition_key, created_at, available_at) SELECT '3', "
        "'{\"type\":\"order.placed\"}', 'outbox', 'customer-4712', "
        "CURRENT_TIMESTAMP, CURRENT_TIMESTAMP")
    world.check("relay", "outbox", "--stop-when-empty")
    rows = world.query("shop", "SELECT body, headers FROM messenger_messages "
                       "WHERE queue_name = 'orders'")
    keys = {body: json.loads(headers).get("X-Partition-Key")
            for body, headers in rows}
    assert keys == {"1": "customer-4711", "2": None, "3": "customer-4712"}
    assert "PartitionKeyStamp" not in str(rows)


@pytest.mark.parametrize("options, reason", [
    ("partition_header: type", "has a meaning of its own"),
    ("partition_header: X-Message-Id", "has a meaning of its own"),
    ("partition_header: 'X Y'", "is no name of a header"),
    ("partition_header: 'X:Y'", "is no name of a header"),
    ('partition_header: "X\\tY"', "is no name of a header"),
    ("commit_order: true", "needs PostgreSQL"),
    ("claim: rows", "exclusive, shared or lease"),
])
def test_what_an_ordered_outbox_cannot_do_is_refused(world, options, reason):
    configure(world, options="\n        " + options)
    result = world.run("config", "check")
    assert result.returncode != 0
    assert reason in result.stdout + result.stderr


@pytest.mark.parametrize("scheme", ["doctrine", "ordered-doctrine"])
def test_locked_of_earlier_versions_is_shared(world, scheme):
    configure(world, scheme, options="\n        claim: locked")
    result = world.run("config", "check")
    assert result.returncode == 0
    warning = "'locked' is read as 'shared': write that"
    assert (result.stdout + result.stderr).count(warning) == 1
    world.check("setup")
    relay = world.run("relay", "outbox", "--stop-when-empty")
    assert relay.returncode == 0
    assert "slots=60" in relay.stdout + relay.stderr


@pytest.mark.parametrize("options", ["partition_header: X-Partition-Key",
                                     "on_failure: skip",
                                     "commit_order: true"])
def test_a_plain_outbox_knows_no_order(world, options):
    configure(world, "doctrine", options="\n        " + options)
    result = world.run("config", "check")
    assert result.returncode != 0
    assert "ordered-doctrine://" in result.stdout + result.stderr


def relayed(world):
    world.check("relay", "outbox", "--stop-when-empty")
    return bodies(world)


def block(world):
    """The second of three messages of key a cannot be understood."""
    world.check("setup")
    for number, key in [(1, "a"), (2, "a"), (3, "a"), (4, "b")]:
        publish(world, number, key)
    connection = world.open("shop")
    connection.execute("UPDATE messenger_outbox SET headers = '{}' "
                       "WHERE body = '2'")
    world.check("relay", "outbox", "--stop-when-empty")
    assert bodies(world) == ["1", "4"]
    return connection


def test_a_blocked_partition_is_said_and_can_be_skipped(world):
    world.check("setup")
    for number in (1, 2, 3):
        publish(world, number, "a")
    world.open("shop").execute(
        "UPDATE messenger_outbox SET headers = '{}' WHERE body = '2'")
    result = world.run("relay", "outbox", "--stop-when-empty")
    said = [line for line in (result.stderr + result.stdout).splitlines()
            if "relay.partition_blocked" in line]
    assert len(said) == 1 and "partition=a" in said[0] and "row=2" in said[0]
    assert "length=2" in said[0]
    assert "row 2" in world.check("partition", "skip", "a")
    assert world.query("shop", "SELECT COUNT(*) FROM messenger_messages "
                       "WHERE queue_name LIKE 'failed%' AND body = '2'"
                       ) == [(1,)]
    world.check("relay", "outbox", "--stop-when-empty")
    # The next one was made due a second later, so that a relay that runs
    # notices it.
    shops.until(lambda: relayed(world) == ["1", "3"], "the rest")


def test_a_blocked_partition_can_be_tried_again(world):
    connection = block(world)
    assert world.run("partition", "retry", "b").returncode != 0
    assert world.run("partition", "skip", "none").returncode != 0
    connection.execute("UPDATE messenger_outbox SET headers = "
                       "'{\"type\":\"order.placed\"}' WHERE body = '2'")
    world.check("partition", "retry", "a", "--transport", "outbox")
    shops.until(lambda: relayed(world) == ["1", "4", "2", "3"], "the rest")


def test_keys_steer_no_terminal_and_fit_it(world):
    world.check("setup")
    publish(world, 1, "\x1b[2Jkey\x9b31m" + "-long" * 30)
    world.open("shop").execute("UPDATE messenger_outbox SET headers = '{}'")
    result = world.run("relay", "outbox", "--stop-when-empty")
    assert "[2Jkey" in result.stderr and "\x1b" not in result.stderr
    assert "\x9b" not in result.stderr
    for command in (["stats"], ["failed", "show"]):
        process, master = terminals.start(world, 40, *command)
        text = terminals.read_all(master)
        assert process.wait(shops.PATIENCE_S) == 0
        assert "[2Jkey" in text and "\x1b" not in text
        # All but what explains.
        lines = [line for line in text.split("\r\n")
                 if not line.startswith("These hold")]
        assert max(map(len, lines)) <= 40, text


def test_partitions_and_blocks_are_seen(world):
    block(world)
    said = world.check("stats")
    lines = [line.split() for line in said.splitlines()]
    counts = lines[lines.index(["ORDERED", "PARTITIONS", "BLOCKED", "LENGTH",
                                "LARGEST", "ROW", "SINCE", "OLDEST",
                                "HEAD"]) + 1]
    assert counts[:6] == ["outbox", "1", "1", "2", "a", "2"]
    assert counts[7] == "a"
    [line] = [line for line in said.splitlines() if "outbox/2" in line]
    assert line.split()[:3] == ["outbox/2", "a", "2"]
    [outbox] = [transport for transport in json.loads(world.check(
        "stats", "--json"))["transports"] if transport["transport"] == "outbox"]
    assert outbox["due"] == 0  # all of it stands behind the head
    assert outbox["partitions"]["count"] == 1
    assert outbox["partitions"]["largest_length"] == 2
    assert outbox["partitions"]["oldest_row"] == 2
    [head] = outbox["blocked_partitions"]
    assert (head["partition"], head["row"], head["length"]) == ("a", 2, 2)
    assert head["error"]


def test_the_largest_of_very_many_is_an_estimate_and_the_oldest_is_not(world):
    block_many(world, 1)
    connection = world.open("shop")
    connection.execute("UPDATE messenger_outbox SET partition_key = 'first'")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        "WHERE i < 100000) INSERT INTO messenger_outbox (body, headers, "
        "queue_name, partition_key, created_at, available_at) SELECT '{}', "
        "'{}', 'outbox', 'b', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP FROM n")
    said = world.check("stats")
    [line] = [line for line in said.splitlines() if "perhaps b" in line]
    assert line.split()[:6] == ["outbox", "~2", "1", "~100000", "perhaps", "b"]
    assert line.split()[6] == "1" and line.split()[-1] == "first"


def test_metrics_count_blocked_partitions(world):
    block(world)
    port = test_metrics.free_port()
    relay = world.start("relay", "outbox", f"--metrics-port={port}")
    wanted = {'skirnir_partitions{transport="outbox"} 1',
              'skirnir_largest_partition{transport="outbox"} 2',
              'skirnir_blocked_partitions{transport="outbox"} 1',
              'skirnir_blocked_messages{transport="outbox"} 2'}
    shops.until(lambda: wanted <= set(test_metrics.get(
        port, "/metrics")[1].splitlines()), "the metrics")
    relay.stop()


def test_failed_lists_blocked_heads_and_retries_them(world):
    connection = block(world)
    said = world.check("failed", "show")
    assert "No failed messages match." in said and "outbox/2" in said
    assert "outbox/2" not in world.check("failed", "show", "--name", "x")
    [head] = json.loads(world.check("failed", "show", "--json"))
    assert head["blocked_head"] == "outbox/2" and head["partition"] == "a"
    for mistake in ("outbox/1", "outbox/x", "orders/2", "nowhere/2"):
        assert world.run("failed", "retry", mistake).returncode != 0
    world.check("failed", "retry", "outbox/2", "--dry-run")
    missing = world.run("failed", "retry", "outbox/999", "--dry-run")
    assert missing.returncode != 0
    assert "is not the head of a blocked partition" in missing.stderr
    assert "outbox/2" in world.check("failed", "show")
    connection.execute("UPDATE messenger_outbox SET headers = "
                       "'{\"type\":\"order.placed\"}' WHERE body = '2'")
    assert "is due" in world.check("failed", "retry", "outbox/2")
    assert "outbox/2" not in world.check("failed", "show")
    shops.until(lambda: relayed(world) == ["1", "4", "2", "3"], "the rest")


def test_a_blocked_head_is_shown_in_full(world):
    block(world)
    said = world.check("failed", "show", "outbox/2", "-vv")
    assert said.startswith("Blocked head outbox/2\n")
    for line in ("partition  a", "transport  outbox", "published  ",
                 'add "type":"message.name"', "database   default",
                 "body, 1 bytes\n    2\n"):
        assert line in said
    [shown] = [json.loads(line) for line in world.check(
        "failed", "show", "outbox/2", "--json").splitlines()]
    assert (shown["blocked_head"], shown["partition"], shown["row"],
            shown["body"]) == ("outbox/2", "a", 2, "2")
    # One that is not blocked is named, and the others are shown.
    result = world.run("failed", "show", "outbox/3", "outbox/2")
    assert result.returncode != 0 and "Blocked head outbox/2" in result.stdout
    assert "row 3 of table messenger_outbox is not the head" in result.stderr
    for mistake in ("outbox/x", "orders/2", "nowhere/2", "x"):
        assert world.run("failed", "show", mistake).returncode != 0


def test_a_skipped_head_keeps_the_reason_why_it_was_blocked(world):
    block(world)
    [head] = json.loads(world.check("failed", "show", "--json"))
    world.check("partition", "skip", "a")
    [failed] = json.loads(world.check("failed", "show", "--json"))
    assert failed["error"] == head["error"] != "skipped by hand"


def block_many(world, count):
    """So many partitions of one message that cannot be understood."""
    world.check("setup")
    connection = world.open("shop")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        f"WHERE i < {count}) INSERT INTO messenger_outbox (body, headers, "
        "queue_name, partition_key, created_at, available_at) SELECT '{}', "
        "'{}', 'outbox', 'key ' || i, CURRENT_TIMESTAMP, "
        "'9999-12-31 23:59:59' FROM n")
    return connection


@pytest.mark.parametrize("count, is_cut", [(100, False), (101, True)])
def test_of_many_blocked_heads_some_are_shown(world, count, is_cut):
    block_many(world, count)
    for command in ("stats", "failed show"):
        said = world.check(*command.split())
        assert said.count("outbox/") == 100
        assert ("Of outbox there are more than these 100." in said) == is_cut
    [outbox] = [transport for transport in json.loads(world.check(
        "stats", "--json"))["transports"] if transport["transport"] == "outbox"]
    assert len(outbox["blocked_partitions"]) == 100
    assert outbox["blocked_partitions_are_cut"] == is_cut
    assert outbox["blocked_partitions"][0]["name"] is None


def blocked_in_metrics(world):
    port = test_metrics.free_port()
    relay = world.start("relay", "outbox", f"--metrics-port={port}")
    relay.wait_for("relay.active")
    blocked = shops.until(lambda: test_metrics.scrape(port).blocked,
                          relay.log, pause_s=0.2)
    assert relay.stop() == 0
    return blocked


def test_of_many_blocked_partitions_some_are_in_metrics(world):
    block_many(world, 101)
    assert list(blocked_in_metrics(world)) == [
        ("outbox", f"key {number}") for number in range(1, 101)]


@pytest.mark.parametrize("reason, told", [
    ("x" * 200, "x" * 200),
    ("x" * 201, "x" * 200 + "..."),
    # None is cut in two.
    ("x" + "\u00fc" * 150, "x" + "\u00fc" * 99 + "..."),
])
def test_a_label_is_text_of_some_length(world, reason, told):
    headers = {"type": "order.placed", symfony_rows.ERROR_STAMP: json.dumps(
        [{"exceptionMessage": reason}])}
    block_many(world, 1).execute(
        "UPDATE messenger_outbox SET headers = ?, "
        "partition_key = CAST(X'61ff62e282' AS TEXT)", (json.dumps(headers),))
    assert blocked_in_metrics(world) == {
        ("outbox", "a?b??"): prometheus_text.Blocked(1, told, 1)}


def test_a_key_that_is_no_text_costs_nobody_the_numbers(world):
    block_many(world, 1).execute("UPDATE messenger_outbox SET "
                                 "partition_key = CAST(X'61ff62' AS TEXT)")
    [outbox] = [transport for transport in json.loads(world.check(
        "stats", "--json"))["transports"] if transport["transport"] == "outbox"]
    assert outbox["blocked_partitions"][0]["partition"] == "a?b"
    assert json.loads(world.check("failed", "show", "--json"))


STILL_BLOCKED = ("SELECT COUNT(*) FROM messenger_outbox "
                 "WHERE available_at = '9999-12-31 23:59:59'")
FAILED = ("SELECT COUNT(*) FROM messenger_messages "
          "WHERE queue_name LIKE 'failed%'")
REASON = ("json_object('X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp"
          "\\ErrorDetailsStamp', '[{\"exceptionMessage\":\"no room\"}]', "
          "'type', 'order.placed')")


@pytest.mark.parametrize("what, dry, done, left, failed", [
    ("retry", "250 blocked heads would be made due.",
     "250 blocked heads are due within a second; their partitions go on once "
     "they are sent.",
     250, 0),
    ("skip", "250 blocked heads would be moved to the failed table.",
     "250 blocked heads moved to the failed table; their partitions go on.",
     0, 250),
])
def test_all_blocked_partitions_go_on_at_once(world, what, dry, done, left,
                                              failed):
    block_many(world, 250)
    assert world.check("partition", what, "--all", "--dry-run") == dry + "\n"
    assert world.query("shop", STILL_BLOCKED) == [(250,)]
    assert world.check("partition", what, "--all") == done + "\n"
    assert world.query("shop", STILL_BLOCKED) == [(0,)]
    assert world.query("shop", "SELECT COUNT(*) FROM messenger_outbox") == [
        (left,)]
    assert world.query("shop", FAILED) == [(failed,)]
    assert world.check("partition", what, "--all", "--transport=outbox"
                       ).startswith("0 blocked heads ")


@pytest.mark.parametrize("what", ["retry", "skip"])
def test_blocked_partitions_are_chosen_by_their_error(world, what):
    connection = block_many(world, 250)
    connection.execute(f"UPDATE messenger_outbox SET headers = {REASON} "
                       "WHERE id = 120 OR id > 240")
    said = world.check("partition", what, "--all", "--error=no room")
    assert said.startswith("11 blocked heads ")
    assert world.query("shop", STILL_BLOCKED) == [(239,)]
    assert world.query("shop", "SELECT COUNT(*) FROM messenger_outbox WHERE "
                       "headers LIKE '%no room%' AND available_at LIKE '9999%'"
                       ) == [(0,)]


def test_what_stands_behind_another_is_not_the_head_that_is_meant(world):
    connection = block_many(world, 2)
    connection.execute("UPDATE messenger_outbox SET partition_key = 'a'")
    connection.execute(f"UPDATE messenger_outbox SET headers = {REASON} "
                       "WHERE id = 2")
    said = world.check("partition", "skip", "--all", "--error=no room")
    assert said == ("0 blocked heads moved to the failed table; their "
                    "partitions go on. 1 was left alone: it blocks no "
                    "partition any more.\n")
    assert world.query("shop", STILL_BLOCKED) == [(2,)]


def test_a_head_that_cannot_be_moved_does_not_stop_the_others(world):
    block_many(world, 3)
    world.open("shop").execute(
        "CREATE TRIGGER no_room BEFORE UPDATE ON messenger_outbox WHEN "
        "OLD.id = 2 BEGIN SELECT RAISE(ABORT, 'no room'); END")
    result = world.run("partition", "retry", "--all")
    assert result.returncode == 1
    assert result.stdout.startswith("2 blocked heads are due within a second;")
    assert "outbox/2: " in result.stderr and "no room" in result.stderr
    assert world.query("shop", STILL_BLOCKED) == [(1,)]


@pytest.mark.parametrize("arguments, reason", [
    ([], "which partition?"),
    (["a", "--all"], "exclude each other"),
    (["a", "--error=x"], "go with --all"),
    (["a", "--dry-run"], "go with --all"),
])
def test_which_partition_is_meant_is_said_in_one_way(world, arguments, reason):
    result = world.run("partition", "retry", *arguments)
    assert result.returncode == 2 and reason in result.stderr


def test_all_needs_an_ordered_outbox(world):
    assert world.run("partition", "retry", "--all",
                     "--transport=orders").returncode != 0
    configure(world, "doctrine")
    result = world.run("partition", "retry", "--all")
    assert result.returncode != 0
    assert "no ordered outbox is configured" in result.stderr


@pytest.mark.parametrize("count, told", [
    (1, "1 partition is blocked; "),
    (100, "100 partitions are blocked; "),
    (101, "More than 100 partitions are blocked; "),
])
def test_failed_retry_names_the_command_for_blocked_partitions(
        world, count, told):
    block_many(world, count)
    told += "`skirnir partition retry --all` ends that.\n"
    for only in (["--all"], ["--transport=outbox"], ["--all", "--dry-run"]):
        said = world.check("failed", "retry", *only)
        assert said.startswith("0 messages ") and said.endswith(told)
    for only in (["--transport=orders"], ["--name=x"]):
        assert "blocked" not in world.check("failed", "retry", *only)
    world.check("partition", "retry", "--all")
    assert "blocked" not in world.check("failed", "retry", "--all")


def test_a_relay_that_runs_goes_on_by_itself(world):
    block(world)
    relay = world.start("relay", "outbox")
    world.check("partition", "skip", "a")
    shops.until(lambda: bodies(world) == ["1", "4", "3"], "the rest")
    relay.stop()


def test_on_failure_skip_goes_on_at_once(world):
    configure(world, options="\n        on_failure: skip")
    world.check("setup")
    for number in (1, 2, 3):
        publish(world, number, "a")
    world.open("shop").execute(
        "UPDATE messenger_outbox SET headers = '{}' WHERE body = '2'")
    world.check("relay", "outbox", "--stop-when-empty")
    assert bodies(world) == ["1", "3"]
    assert world.query("shop", "SELECT COUNT(*) FROM messenger_outbox"
                       ) == [(0,)]


def test_partitions_can_be_leased(world):
    configure(world, options="\n        claim: lease")
    world.check("setup")
    publish(world, 1, "a")
    publish(world, 2, "")
    assert relayed(world) == ["1", "2"]
    assert world.query("shop", "SELECT COUNT(*), COUNT(NULLIF(owner, '')) "
                       "FROM skirnir_lease") == [(100, 0)]


def test_leases_want_their_table(world):
    configure(world)
    world.check("setup")
    configure(world, options="\n        claim: lease"
              "\n        options: {auto_setup: false}")
    result = world.run("relay", "outbox", "--time-limit", "1")
    assert "skirnir_lease" in result.stderr
    assert "skirnir setup" in result.stderr


def test_setup_names_the_table_that_it_makes_beside_one_in_use(world):
    configure(world)
    world.check("setup")
    configure(world, options="\n        claim: lease")
    there = "outbox: table messenger_outbox in database default is there\n"
    looked = world.check("setup", "outbox", "--dry-run")
    assert looked.startswith(
        there + "  table skirnir_lease beside it would be made\n")
    made = world.check("setup", "outbox")
    assert made.startswith(there + "  table skirnir_lease beside it is made\n")
    assert "skirnir_lease" not in world.check("setup", "outbox")


def test_an_ordered_dsn_is_read_as_any_other(world):
    shown = world.check("config", "show")
    assert "ordered-doctrine://" in shown and "on_failure: block" in shown
    assert "redeliver_timeout: 3600" in shown
    world.write_config(CONFIG.format(scheme="ordered-doctrine", options="")
                       .replace("messenger_outbox", "no-name"))
    result = world.run("setup")
    assert result.returncode != 0
    assert "transports.outbox.dsn?table_name" in result.stderr
    world.write_config(CONFIG.format(scheme="ordered-doctrine", options="")
                       .replace("default?", "nowhere?"))
    result = world.run("config", "check")
    assert result.returncode != 0 and "nowhere" in result.stdout + result.stderr


@pytest.mark.parametrize("headers", [
    '{"type":"order.placed","X-Message-Id":"none"}',
    "not even JSON",
    '{"type":"order.placed","X-Message-Id":"none","X-Message-Stamp-Freyr'
    r'\\MessageBroker\\Inbox\\PartitionKeyStamp":"[{\"partitionKey\":\"b\"}]"}',
])
@pytest.mark.parametrize("on_failure", ["skip", "block"])
def test_a_message_that_failed_comes_back_to_its_partition(
        world, headers, on_failure):
    configure(world, options=f"\n        on_failure: {on_failure}")
    world.config_path.write_text(
        world.config_path.read_text() +
        "    failed: 'doctrine://default?queue_name=failed'\n"
        "failure_transport: failed\n")
    world.check("setup")
    database = world.open("shop")
    database.execute(
        "INSERT INTO messenger_outbox (body, headers, queue_name, "
        "partition_key, created_at, available_at) VALUES ('1', ?, 'outbox', "
        "'a', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)", (headers,))
    world.check("relay", "outbox", "--stop-when-empty")
    if on_failure == "block":
        world.check("partition", "skip", "a")
    assert not world.query("shop", "SELECT id FROM messenger_outbox")
    world.check("failed", "retry", "--all")
    assert world.query(
        "shop", "SELECT partition_key, headers FROM messenger_outbox") == [
            ("a", headers)]
