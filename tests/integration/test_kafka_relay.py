"""kafka_outbox to Kafka in the place of kafka-outbox-relay: its table, its
environment, its marks."""
import contextlib
import http.server
import json
import os
import pty
import socket
import subprocess
import threading
import uuid

import pytest

import databases
import shop as shops
import test_mysql
from kafka_outbox_world import (AGO, OTHERS_TABLE, World, fnv1a,
                                new_world)
from servers import ports


def errored(world, word="show", *arguments):
    return json.loads(world.check("kafka-relay", "errored", word, *arguments,
                                  "--json"))


@pytest.fixture(scope="module")
def strict_server():
    with test_mysql.group(test_mysql.SETTINGS) as started:
        yield started


@pytest.fixture(params=databases.KINDS)
def world(request, tmp_path):
    opened = new_world(request.param, tmp_path)
    yield opened
    opened.leave()


@pytest.fixture
def sqlite_world(tmp_path):
    opened = new_world("sqlite", tmp_path)
    yield opened
    opened.leave()


@pytest.fixture(params=databases.BY_KIND)
def others_world(request, tmp_path):
    """A table that the other relay made."""
    opened = new_world(request.param, tmp_path)
    opened.ask(OTHERS_TABLE[opened.database.dialect])
    yield opened
    opened.leave()


@pytest.mark.quick
def test_k1_rows_reach_kafka_with_value_headers_and_key(others_world):
    world = others_world
    world.insert(
        (world.topic, '{"a":1}', '{"h":"x","n":2.50,"b":true,"o":{"c":[1]}}',
         "k1", ""),
        (world.topic, '{"a":2}', "{}", "k2", "p"),
        (world.topic, '{"a":3}', "{}", "", ""))
    relay = world.drain()
    # What was there before is marked, and keys stay where they were.
    assert '"on_success":"mark"' in relay.log()
    assert '"partitioner":"fnv1a"' in relay.log()
    found = {json.loads(value)["a"]: (int(partition), key, int(size), headers)
             for partition, key, size, headers, value in world.records()}
    headers = 'b=true,h=x,n=2.5,o={"c":[1]}' if world.database.rewrites_json \
        else 'h=x,n=2.50,b=true,o={"c":[1]}'
    assert found[1][1:] == ("k1", 2, headers)
    assert found[2][1:] == ("k2", 2, "")
    assert found[3][1:] == ("", -1, "")
    assert found[1][0] == fnv1a(b"k1") and found[2][0] == fnv1a(b"p")
    assert world.ask(
        "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS NOT NULL "
        "AND push_started_at IS NOT NULL AND batch_id IS NOT NULL "
        "AND push_attempts = 1 AND errored = 0 AND error_reason = ''") == "3"


@pytest.mark.quick
def test_k2_rows_that_no_topic_takes_are_errored_and_others_pass(others_world):
    world = others_world
    world.insert(("", '{"a":1}', "{}", "", ""),
                 (world.topic, '{"a":2}', "[1]", "", ""),
                 ("a b", '{"a":3}', "{}", "", ""),
                 (world.topic, '{"a":4}', "[]", "", ""))
    world.insert_numbers(1000)
    world.drain()
    rows = [line.split("\t")[0] for line in world.ask(
        "SELECT error_reason, topic FROM kafka_outbox WHERE errored = 1 "
        "AND push_completed_at IS NULL ORDER BY id").splitlines()]
    assert len(rows) == 3
    assert "no name of a topic" in rows[0]
    assert rows[1].startswith("error unmarshalling message headers for "
                                 "publishing to Kafka: ")
    assert len(world.records()) == 1001
    shown = errored(world)
    assert len(shown) == 3
    # A topic is mended by hand and the row published again.
    row = str(shown[0]["id"])
    world.ask(f"UPDATE kafka_outbox SET topic = '{world.topic}' "
              f"WHERE id = {row}")
    world.check("kafka-relay", "errored", "retry", row)
    other = str(shown[1]["id"])
    assert errored(world, "show", other) == [shown[1]]
    world.check("kafka-relay", "errored", "remove", other, "--force")
    result = world.run("kafka-relay", "errored", "show", other)
    assert result.returncode == 1 and f"errored row {other}" in result.stderr
    world.drain()
    assert len(world.records()) == 1002
    assert len(errored(world)) == 1


def test_errored_rows_are_a_report_and_chosen_by_their_age(world):
    """Of both kinds of --older-than, by the clock of the database."""
    world.check("kafka-relay", "migrate")
    ago = AGO[world.database.dialect]
    world.insert(*((name, "{}", "{}", "", "") for name in ("a\tb", "c", "d")))
    world.ask("UPDATE kafka_outbox SET errored = 1, push_attempts = 2, "
              "error_reason = 'because'")
    world.ask("UPDATE kafka_outbox SET created_at = "
              f"{ago.format(7200)} WHERE topic = 'c'")
    world.ask("UPDATE kafka_outbox SET created_at = '2020-01-02 03:04:05' "
              "WHERE topic = 'd'")
    row = errored(world)[2]
    assert row == {"database": world.environment["DB_NAME"], "id": row["id"],
                   "topic": "d", "attempts": 2, "error": "because",
                   "created_at": row["created_at"]}
    assert row["created_at"].startswith("2020-01-02 03:04:05")
    lines = world.check("kafka-relay", "errored", "show").splitlines()
    assert lines[0].split("  ")[0] == "DATABASE"
    assert len(lines) == 4 and "a b" in lines[1]
    for age, topics in (("1m", "cd"), ("1d", "d"), ("2020-01-02", ""),
                        ("2020-01-03", "d"), ("2020-01-02 03:04:06", "d"),
                        ("2020-01-02 03:04:05", "")):
        assert "".join(row["topic"] for row in errored(
            world, "show", f"--older-than={age}")) == topics, age
    assert errored(world, "retry", "--older-than=1d") == [
        {"database": world.environment["DB_NAME"], "rows": 1}]
    assert errored(world, "remove", "--older-than=1m", "--force")[0][
        "rows"] == 1
    assert [row["topic"] for row in errored(world)] == ["a\tb"]
    assert errored(world, "show", "--older-than=1m") == []


@pytest.mark.quick
def test_k3_rows_that_another_relay_left_are_taken_when_their_time_is_up(
        others_world):
    world = others_world
    ago = AGO[world.database.dialect]
    world.insert_numbers(20)
    world.ask("UPDATE kafka_outbox SET batch_id = "
              "'11111111-1111-1111-1111-111111111111', push_attempts = 1, "
              f"push_started_at = {ago.format(3600)} WHERE id <= 10")
    world.ask("UPDATE kafka_outbox SET batch_id = "
              "'22222222-2222-2222-2222-222222222222', "
              f"push_started_at = {ago.format(10)} WHERE id > 10")
    relay = world.start_relay()
    shops.until(lambda: world.open_rows() == 10, relay.log)
    assert relay.stop() == 0
    assert sorted(world.numbers()) == list(range(10))
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox WHERE id <= 10 AND "
                     "push_attempts = 2 AND batch_id <> "
                     "'11111111-1111-1111-1111-111111111111'") == "10"
    # At once when it is told so.
    world.drain("--take-over")
    assert sorted(world.numbers()) == list(range(20))


def test_k4_k5_cleanup_removes_what_is_old_and_keeps_what_is_fresh(world):
    world.environment["ON_SUCCESS"] = "mark"
    world.start_relay().stop()
    ago = AGO[world.database.dialect]
    world.insert_numbers(1502)
    world.ask(f"UPDATE kafka_outbox SET push_completed_at = {ago.format(7200)} "
              "WHERE id <= 1500")
    world.ask(f"UPDATE kafka_outbox SET push_completed_at = {ago.format(60)} "
              "WHERE id = 1501")
    world.environment["RUN_CLEANUP"] = "true"
    world.environment["RUN_OPTIMIZE"] = "true"
    assert world.check("kafka-relay", "--dry-run") == \
        "would delete 1500 published outbox records\n"
    assert world.check("kafka-relay") == \
        "deleted 1500 published outbox records\n"
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox") == "2"


def test_a_relay_cleans_beside_its_work_when_it_is_told_to(sqlite_world):
    world = sqlite_world
    world.environment["ON_SUCCESS"] = "mark"
    relay = world.start_relay("--cleanup-interval=1")
    world.insert_numbers(20)
    world.wait_until_done(relay)
    ago = AGO[world.database.dialect]
    world.ask(f"UPDATE kafka_outbox SET push_completed_at = {ago.format(7200)} "
              "WHERE id <= 15")
    shops.until(lambda: world.ask("SELECT COUNT(*) FROM kafka_outbox") == "5",
                relay.log)
    assert relay.stop() == 0


@contextlib.contextmanager
def sidecar():
    """Its URL, and what it is told: once."""
    told = []

    class Sidecar(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append((self.path, self.headers["Content-Type"]))
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Sidecar) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", told


def test_k6_cleanup_tells_the_sidecar(sqlite_world):
    world = sqlite_world
    world.start_relay().stop()
    with sidecar() as (url, told):
        world.environment["SIDECAR_PROXY_URL"] = url
        world.check("kafka-relay", "--cleanup")
    assert told == [("/quitquitquit", "text/plain")]
    with sidecar() as (url, told):
        world.environment["SIDECAR_PROXY_URL"] = f"{url}/a%20b?c=d"
        world.check("kafka-relay", "--cleanup")
    assert told == [("/a%20b/quitquitquit", "text/plain")]
    result = world.run("kafka-relay", "--cleanup")
    assert result.returncode == 1
    assert "SIDECAR_PROXY_URL" in result.stderr


@pytest.mark.quick
@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:1", "http:",
                                 "unix:///run/sidecar"])
def test_a_sidecar_that_cannot_be_told_is_refused_before_the_job(sqlite_world,
                                                                 url):
    world = sqlite_world
    world.check("kafka-relay", "migrate")
    result = world.run("kafka-relay", "--cleanup",
                       environment={"SIDECAR_PROXY_URL": url})
    assert result.returncode == 1
    assert "SIDECAR_PROXY_URL: " in result.stderr
    assert result.stdout == ""


@pytest.mark.quick
def test_a_new_table_takes_a_topic_and_a_payload_and_rows_go(world):
    relay = world.start_relay()
    assert '"on_success":"delete"' in relay.log()
    assert '"partitioner":"murmur2"' in relay.log()
    world.ask("INSERT INTO kafka_outbox (topic, payload_json) "
              f"VALUES ('{world.topic}', '{{\"n\":0}}')")
    world.ask("INSERT INTO kafka_outbox (topic, payload_json, payload_headers) "
              f"VALUES ('{world.topic}', '{{}}', '')")
    world.wait_until_done(relay)
    assert relay.stop() == 0
    assert world.ask("SELECT COUNT(*) FROM kafka_outbox") == "0"
    sizes = sorted(int(size) for size, in world.records("%S\n"))
    assert sizes == [2, 8 if world.database.rewrites_json else 7]


@pytest.mark.quick
def test_a_row_without_payload_is_errored_and_a_tombstone_only_where_asked(
        sqlite_world):
    world = sqlite_world
    # As an earlier release made it.
    world.ask("CREATE TABLE kafka_outbox (id INTEGER PRIMARY KEY "
              "AUTOINCREMENT NOT NULL, batch_id CHAR(36), push_started_at "
              "DATETIME, push_completed_at DATETIME, topic TEXT NOT NULL, "
              "payload_json TEXT, payload_headers TEXT, push_attempts INT NOT "
              "NULL DEFAULT 0, errored INT NOT NULL DEFAULT 0, error_reason "
              "TEXT NOT NULL DEFAULT '', created_at DATETIME DEFAULT "
              "CURRENT_TIMESTAMP, partition_key TEXT NOT NULL DEFAULT '', "
              "\"key\" TEXT NOT NULL DEFAULT '')")
    world.ask("INSERT INTO kafka_outbox (topic, payload_json, \"key\") VALUES "
              f"('{world.topic}', NULL, 'a'), ('{world.topic}', '{{}}', 'b')")
    relay = world.start_relay()
    world.wait_until_done(relay)
    assert relay.stop() == 0
    assert "--publish-tombstones" in world.check("kafka-relay", "errored",
                                                 "show")
    assert world.records("%k\t%S\n") == [["b", "2"]]
    assert world.check("kafka-relay", "errored", "retry")
    relay = world.start_relay("--publish-tombstones")
    world.wait_until_done(relay)
    assert relay.stop() == 0
    assert sorted(world.records("%k\t%S\n")) == [["a", "-1"], ["b", "2"]]


@pytest.mark.parametrize("failpoint", ["relay.read", "relay.submitted",
                                       "relay.confirmed", "relay.settling",
                                       "relay.settled"])
def test_a_relay_that_is_killed_loses_nothing_and_keeps_the_order(
        world, failpoint):
    world.start_relay().stop()
    world.insert_numbers(3000)
    world.hold_at(failpoint, "kafka-relay", visit=2).kill()
    world.drain()
    world.expect_in_order(3000)


def test_a_second_relay_stands_by_and_takes_over(world):
    first = world.start_relay()
    first.wait_for("relay.active")
    with contextlib.closing(ports.take()) as other:
        second = world.start("kafka-relay",
                             f"--listen=127.0.0.1:{other.number}")
        second.wait_for("relay.standby")
        for start in range(0, 2000, 500):
            world.insert_numbers(500, start)
        world.wait_until_done(first)
        assert world.expect_in_order(2000) == 0
        first.kill()
        world.insert_numbers(100, 2000)
        second.wait_for("relay.active")
        world.wait_until_done(second)
        assert second.stop() == 0
    assert world.expect_in_order(2100) == 0


def claim(world, condition, ago_s):
    world.ask("UPDATE kafka_outbox SET batch_id = "
              "'22222222-2222-2222-2222-222222222222', push_started_at = "
              f"{AGO[world.database.dialect].format(ago_s)} WHERE {condition}")


@pytest.mark.quick
def test_a_row_that_another_claimed_holds_back_newer_ones_of_its_key(
        others_world):
    world = others_world
    world.insert_numbers(1000)
    # Of key-3 the third, of key-7 the first; the claims of the others are old.
    claim(world, "id IN (24, 8)", 10)
    claim(world, "id = 5", 3600)
    relay = world.start_relay()
    shops.until(lambda: world.open_rows() == 98 + 100, relay.log)
    numbers = world.numbers()
    assert [number for number in numbers if number % 10 == 3] == [3, 13]
    assert [number for number in numbers if number % 10 == 7] == []
    # One is given back, the other is published by who claimed it.
    world.insert_numbers(1000, 1000)
    world.ask("UPDATE kafka_outbox SET batch_id = NULL, push_started_at = NULL "
              "WHERE id = 24")
    world.ask("UPDATE kafka_outbox SET push_completed_at = push_started_at "
              "WHERE id = 8")
    world.wait_until_done(relay)
    assert relay.stop() == 0
    numbers = world.numbers()
    for key in range(10):
        first = 17 if key == 7 else key
        assert [number for number in numbers if number % 10 == key] == \
            list(range(first, 2000, 10))


def test_migrate_adds_what_a_table_lacks_and_start_alters_nothing(world):
    if world.database.dialect == "sqlite":
        assert world.check("kafka-relay", "migrate") == ""
        world.insert_numbers(10)
        world.drain()
        assert sorted(world.numbers()) == list(range(10))
        return
    others = OTHERS_TABLE[world.database.dialect]
    table, *indexes = others.split(",\n        INDEX")
    world.ask(table + (")" if indexes else ""))
    world.start_relay().stop()
    said = world.check("kafka-relay", "migrate")
    assert "outbox_push_completed_at" in said and "outbox_batch_query" in said
    assert world.check("kafka-relay", "migrate") == ""


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_several_databases_are_served_by_one_process(tmp_path, kind):
    first, second = (new_world(kind, tmp_path / name)
                     for name in ("a", "b") if not (tmp_path / name).mkdir())
    try:
        both = f"{first.database.name},{second.database.name}"
        first.environment["DB_NAME"] = both
        relay = first.start_relay()
        shops.until(lambda: relay.log().count("relay.active") == 2, relay.log)
        second.topic = first.topic
        first.insert_numbers(500)
        second.insert_numbers(500, 500)
        first.wait_until_done(relay)
        second.wait_until_done(relay)
        first.insert(("a b", "{}", "{}", "", ""))
        second.insert(("a b", "{}", "{}", "", ""))
        shops.until(lambda: first.errored() and second.errored(), relay.log)
        assert "\nkafka_outbox_queue_size 2\n" in first.get("/metrics")[1]
        assert relay.stop() == 0
        assert sorted(first.numbers()) == list(range(1000))
        assert [row["database"] for row in errored(first)] == both.split(",")
        result = first.run("kafka-relay", "errored", "retry", "1")
        assert result.returncode == 1 and "--db-name" in result.stderr
    finally:
        first.leave()
        second.leave()


@pytest.mark.quick
def test_a_database_that_is_missing_stops_no_other(sqlite_world):
    """Each relay looks at its own table, and goes on trying while another can
    work; alone it ends."""
    world = sqlite_world
    late = world.folder / "late" / "two.db"
    good = world.environment["DB_NAME"]
    world.environment["DB_NAME"] = f"{late},{good}"
    relay = world.start("kafka-relay")
    relay.wait_for("relay.active")
    world.insert_numbers(10)
    world.wait_until_done(relay)
    said, = [json.loads(line) for line in relay.log().splitlines()
             if "relay.trouble" in line]
    assert said["name"] == str(late) and str(late) in said["error"]
    status, text = world.get("/readyz")
    assert status == 503
    assert f"{good}: active\n" in text and f"{late}: in trouble\n" in text
    late.parent.mkdir()
    shops.until(lambda: world.get("/readyz")[0] == 200, relay.log)
    assert relay.log().count("kafkarelay.started") == 2
    assert relay.stop() == 0
    world.environment["DB_NAME"] = str(late.parent / "no" / "three.db")
    result = world.run("kafka-relay")
    assert result.returncode == 1 and "three.db" in result.stderr
    # A stop is heard meanwhile.
    waiting = world.start("kafka-relay", "--wait")
    waiting.wait_for("relay.trouble")
    assert waiting.stop() == 0


def test_removing_asks_and_needs_force_without_a_terminal(sqlite_world):
    world = sqlite_world
    world.check("kafka-relay", "migrate")
    world.insert(("a\x1b[2J", "{}", "{}", "", ""), ("b", "{}", "{}", "", ""))
    world.ask("UPDATE kafka_outbox SET errored = 1, error_reason = 'no'")
    assert "\x1b" not in world.check("kafka-relay", "errored", "show")
    command = ["kafka-relay", "errored", "remove"]
    result = world.run(*command)
    assert result.returncode == 1 and "--force" in result.stderr
    for answer, left in (("n\n", 2), ("\n", 2), ("y\n", 0)):
        master, slave = pty.openpty()
        os.write(master, answer.encode())
        done = subprocess.run(world.command(*command), stdin=slave,
                              cwd=world.folder, env=world.environment,
                              capture_output=True, check=True, text=True,
                              timeout=shops.PATIENCE_S)
        os.close(master)
        os.close(slave)
        assert "Remove 2 rows for good? [y/N]" in done.stderr
        assert len(world.errored()) == left, answer


def test_k19_k20_health_and_metrics_tell_the_truth(sqlite_world):
    world = sqlite_world
    world.start_relay().stop()
    world.insert_numbers(5)
    world.insert(("a b", "{}", "{}", "", ""))
    world.ask("UPDATE kafka_outbox SET errored = 1 WHERE topic = 'a b'")
    waiting = world.start("kafka-relay", "--polling-disabled")
    shops.until(world.is_up, waiting.log)
    # It is not silent, although it publishes nothing.
    said, = [json.loads(line) for line in waiting.log().splitlines()
             if "kafkarelay.started" in line]
    assert said["polling"] == "disabled" and said["table"] == "kafka_outbox"
    assert world.get("/healthz")[0] == 200
    assert world.get("/healthz?readiness=1")[0] == 200
    assert world.get("/nothing")[0] == 404
    status, text = world.get("/metrics")
    assert status == 200
    assert "\nkafka_outbox_queue_size 6\n" in text
    assert "\nkafka_outbox_total_size 6\n" in text
    assert "\nkafka_outbox_errored_size 1\n" in text
    assert waiting.stop() == 0
    # A login is none of the host's name.
    host = world.environment["KAFKA_HOST"]
    world.environment["KAFKA_HOST"] = f"bob:not-for-logs@{host}"
    waiting = world.start("kafka-relay", "--polling-disabled")
    shops.until(world.is_up, waiting.log)
    assert world.get("/healthz?readiness=1")[0] == 200
    assert waiting.stop() == 0
    world.environment["KAFKA_HOST"] = "127.0.0.1:1"
    waiting = world.start("kafka-relay", "--polling-disabled")
    shops.until(world.is_up, waiting.log)
    assert world.get("/healthz?readiness=1")[0] == 503
    world.ask("DROP TABLE kafka_outbox")
    assert world.get("/healthz")[0] == 503
    assert waiting.stop() == 0


@pytest.mark.quick
@pytest.mark.parametrize("flags, status", [
    ([], "active"), (["--polling-disabled"], None)])
def test_systemd_is_told(sqlite_world, flags, status):
    world = sqlite_world
    path = world.folder / "notify"
    expected = {"READY=1", "WATCHDOG=1"}
    if status is not None:
        expected.add(f"STATUS={world.environment['DB_NAME']}: {status}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(shops.PATIENCE_S)
        relay = world.start("kafka-relay", *flags, environment={
            "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})
        told = set()
        while not expected <= told:
            told.add(listener.recv(4096).decode())
        relay.process.terminate()
        while "STOPPING=1" not in told:
            told.add(listener.recv(4096).decode())
        assert relay.end() == 0


@pytest.mark.quick
def test_k22_settings_are_read_and_mistakes_named(sqlite_world):
    world = sqlite_world
    result = world.run("kafka-relay", environment={"DB_DRIVER": ""})
    assert result.returncode == 255
    assert "DB_DRIVER" in result.stderr
    result = world.run("kafka-relay", environment={"DB_DRIVER": "oracle"})
    assert result.returncode == 1
    assert "mysql, postgres or sqlite" in result.stderr
    for name, value in (("BATCH_SIZE", "many"), ("RUN_CLEANUP", "perhaps"),
                        ("ON_SUCCESS", "forget"), ("KAFKA_HOST", "")):
        result = world.run("kafka-relay", environment={name: value})
        assert result.returncode == 1
        assert name in result.stderr
    relay = world.start("kafka-relay", "--db-name", world.path("flag"),
                        "--dboutboxtable", "other_outbox",
                        environment={"NEW_RELIC_ENABLED": "true"})
    relay.wait_for("kafkarelay.started")
    assert '"table":"other_outbox"' in relay.log()
    assert relay.stop() == 0
    assert world.count("flag", "other_outbox") == 0


@pytest.mark.quick
@pytest.mark.parametrize("password", ["not-for-logs", "not-for@logs"])
def test_a_password_before_the_brokers_is_not_logged(sqlite_world, password):
    relay = sqlite_world.start(
        "kafka-relay", "--verbose",
        environment={"KAFKA_HOST": f"bob:{password}@127.0.0.1:1"})
    relay.wait_for("relay.trouble")
    assert '"brokers":"127.0.0.1:1"' in relay.log()
    assert "not-for" not in relay.log()
    assert "logs" not in relay.log()
    assert relay.stop() == 0


@pytest.mark.quick
def test_k22_flags_are_written_as_go_has_them(sqlite_world):
    world = sqlite_world
    world.check("kafka-relay", "migrate")
    for flag in ("--cleanup", "-cleanup", "--cleanup=true", "-cleanup=1",
                 "--cleanup=T"):
        assert world.check("kafka-relay", flag) == \
            "deleted 0 published outbox records\n"
    # The flag has the last word.
    result = world.run("kafka-relay", "--cleanup=false", "--dry-run",
                       environment={"RUN_CLEANUP": "true"})
    assert result.returncode == 2 and "RUN_CLEANUP" in result.stderr
    world.check("kafka-relay", "-db-name", world.path("flag"), "-v",
                "-dboutboxtable=other_outbox", "migrate")
    assert world.count("flag", "other_outbox") == 0
    for flag, said in (("-cleanupp", "unknown option --cleanupp"),
                       ("-port=80", "unknown option --port"),
                       ("-cleanup=perhaps", "--cleanup=perhaps: true or false"),
                       ("--cleanup=", "--cleanup=: true or false"),
                       ("-db-host", "--db-host needs a value"),
                       ("-take-over=true", "--take-over takes no value")):
        result = world.run("kafka-relay", flag)
        assert result.returncode == 2, flag
        assert said in result.stderr, flag


def test_k21_jobs_do_not_hide_mistakes_and_the_sidecar_is_told(world):
    world.environment["RUN_OPTIMIZE"] = "true"
    with sidecar() as (url, told):
        world.environment["SIDECAR_PROXY_URL"] = url
        # There is no table yet.
        result = world.run("kafka-relay")
        assert result.returncode == 1
        assert str(world.environment["DB_NAME"]) in result.stderr
    assert told == [("/quitquitquit", "text/plain")]
    world.check("kafka-relay", "migrate")
    with sidecar() as (url, told):
        world.environment["SIDECAR_PROXY_URL"] = url
        world.check("kafka-relay")
    assert told == [("/quitquitquit", "text/plain")]
    # The relay is not there any more.
    result = world.run("kafka-relay")
    assert result.returncode == 1
    assert "SIDECAR_PROXY_URL" in result.stderr


def test_lines_are_json(sqlite_world):
    relay = sqlite_world.start_relay()
    relay.wait_for("relay.active")
    assert relay.stop() == 0
    lines = [json.loads(line) for line in relay.log().splitlines()]
    assert {"level", "msg", "time"} <= set(lines[0])
    assert "relay.stopped" in [line["msg"] for line in lines]


class StrictDatabase:
    """One of a MySQL as strict hosts configure it, in a replication group."""
    dialect = "mysql"

    def __init__(self, server):
        self.server = server
        self.name = f"skr_{uuid.uuid4().hex[:12]}"
        self.url = f"mysql://root@127.0.0.1:{server.port}/{self.name}"
        server.query(f"CREATE DATABASE {self.name}")

    def ask(self, sql):
        return self.server.query(sql, self.name).strip()

    def drop(self):
        self.server.query(f"DROP DATABASE {self.name}")


@pytest.mark.quick
@pytest.mark.parametrize("on_success", ["mark", "delete"])
def test_rows_of_a_strict_mysql_are_published_errored_and_retried(
        strict_server, tmp_path, on_success):
    world = World(tmp_path, StrictDatabase(strict_server))
    try:
        world.check("kafka-relay", "migrate")
        world.insert((world.topic, '{"n": 0}', '{"h": "it\'s \\\\"}', "k", ""),
                     ("no topic", '{"n": 1}', "{}", "k", ""),
                     (world.topic, '{"n": 2}', "{}", "k", ""))
        world.drain(f"--on-success={on_success}", "--take-over")
        assert world.numbers() == [0, 2]
        assert len(world.errored()) == 1
        world.ask(f"UPDATE kafka_outbox SET topic = '{world.topic}' "
                  "WHERE errored = 1")
        world.check("kafka-relay", "errored", "retry", "--force")
        world.drain(f"--on-success={on_success}", "--take-over")
        assert world.numbers() == [0, 2, 1]
        assert world.ask("SELECT COUNT(*) FROM kafka_outbox") == \
            ("3" if on_success == "mark" else "0")
    finally:
        world.leave()
