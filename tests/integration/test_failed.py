"""`skirnir failed show|retry|remove` as an operator uses them."""
import json
import os
import pty
import re
import subprocess

import pytest

import places
import shop as shops
import terminals
from symfony_rows import (BODIES, CLASS, ERROR_STAMP, FAILURE_STAMP, HEADERS,
                          IDS, PHP_BODIES, PHP_HEADERS, REDELIVERY_STAMP)

pytestmark = pytest.mark.alike

ID = "01932b6e-7c00-7000-8000-000000000001"


def shown(place, *arguments):
    """The numbers in the list, from top to bottom."""
    return [item["number"] for item in
            json.loads(place.check("failed", "show", "--json", *arguments))]


def test_nothing_has_failed(place):
    assert place.check("failed", "show") == "No failed messages match.\n"
    assert place.check("failed", "show", "--stats") == \
        "No failed messages match.\n"
    assert json.loads(place.check("failed", "show", "--json")) == []
    assert place.check("failed", "retry", "--all") == "0 messages retried.\n"
    assert place.check("failed", "remove", "--all", "--force") == \
        "0 messages removed.\n"


def test_the_list_names_transport_message_and_error(place):
    first = place.fail(error="no route", queue="failed")
    second = place.fail("orders", "order.paid", "a table is missing")
    lines = place.check("failed", "show").splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["ID", "FAILED", "AT", "TRANSPORT",
                                "MESSAGE", "RETRIES", "ERROR"]
    newest = lines[1].split(maxsplit=6)
    assert newest[0] == str(second)
    assert newest[3:] == ["orders", "order.paid", "3", "a table is missing"]
    assert lines[2].split()[0] == str(first), "both queues are read"


def test_filters_choose(place):
    place.fail(error="no route to it")
    place.fail("orders", "order.paid", "a table is missing")
    place.fail("orders", "report.made", "no route at all")
    place.fail(name=CLASS, queue="failed")
    old = places.failed_headers("outbox", "order.old", "long ago")
    place.write("{}", old, "failed",
                times="'2020-01-01 10:00:00', '2020-01-01 10:00:00', NULL")
    first = place.newest() - 4
    for arguments, expected in [
            ([], [4, 3, 2, 1, 0]),
            (["--transport=orders"], [2, 1]),
            (["--name=order.*"], [4, 3, 1, 0]),
            (["--name=order.paid"], [1]),
            ([r"--class=App\Event\*"], [3, 0]),
            (["--error=no route"], [3, 2, 0]),
            (["--since=2h"], [3, 2, 1, 0]),
            (["--since=2020-01-01"], [4, 3, 2, 1, 0]),
            (["--since=2020-01-01 10:00:01"], [3, 2, 1, 0]),
            (["--older-than=2h"], [4]),
            (["--older-than=2020-01-01 10:00:00"], []),
            (["--older-than=2020-01-01 10:00:01"], [4]),
            (["--since=2020-01-01", "--older-than=2020-01-02"], [4]),
            (["--max=2"], [4, 3]),
            (["--transport=orders", "--error=route", "--max=1"], [2]),
            (["--transport=nowhere"], [])]:
        assert [number - first for number in shown(place, *arguments)] == \
            expected, arguments


def test_what_failed_long_ago_is_removed(place):
    young = place.fail()
    for queue in ("failed", "failed.skirnir"):
        place.write("{}", places.failed_headers("outbox", "order.old", "x"),
                    queue, times="'2020-01-01 10:00:00', "
                    "'2020-01-01 10:00:00', NULL")
    said = place.check("failed", "remove", "--older-than=30d", "--dry-run")
    assert "2 messages would be removed." in said
    assert len(shown(place)) == 3
    place.check("failed", "remove", "--older-than=30d", "--force")
    assert shown(place) == [young]


@pytest.mark.parametrize("command", ["show", "retry", "remove"])
def test_the_failure_transport_is_not_where_they_failed(place, command):
    """Symfony's option of this name says where they stand."""
    number = place.fail()
    more = ["--force"] if command == "remove" else []
    result = place.run("failed", command, "--transport=failed", *more)
    assert result.returncode == 1
    assert "in which they failed" in result.stderr
    assert shown(place) == [number]


def test_other_queues_of_the_table_are_left_alone(place):
    headers = places.failed_headers("outbox", "order.placed", "no")
    for queue in ("Failed", "failed.skirnir.x", "orders"):
        place.write("{}", headers, queue)
    number = place.newest()
    assert shown(place) == []
    result = place.run("failed", "retry", number)
    assert result.returncode == 1
    assert f"there is no failed message {number}" in result.stderr


def test_one_message_in_full(place):
    number = place.fail(name=CLASS, body='{"orderId":"ü","lines":[1,{"a":[]}]}')
    text = place.check("failed", "show", number)
    for part in ("order.placed", CLASS, ID, "outbox", "no route",
                 r"Skirnir\refused", "312", "retries    3"):
        assert part in text
    assert "orderId" not in text
    text = place.check("failed", "show", number, "-vv")
    assert '    {\n      "orderId": "ü",\n      "lines": [\n        1,\n' in text
    assert f"    {FAILURE_STAMP}: " in text
    item = json.loads(place.check("failed", "show", number, "--json"))
    assert item["id"] == ID
    assert json.loads(item["body"])["orderId"] == "ü"


def test_text_from_outside_does_not_steer_the_terminal(place):
    number = place.fail(error="\x1b[2J\x9b31mred\nforged line")
    for arguments in ([], [number], [number, "-vv"], ["--stats"]):
        text = place.check("failed", "show", *arguments)
        assert "\x1b" not in text and "\x9b" not in text, arguments
        assert "\nforged" not in text
    place.fail("gone\x1b[2J")
    place.fail(name="order.\x1b[2J")
    result = place.run("failed", "retry", "--all", "--dry-run")
    assert "order. [2J would go back" in result.stdout
    assert "'gone [2J', which is not configured" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_groups_by_error_leave_out_its_numbers(place):
    for row in (12, 345, 6):
        place.fail(error=f"row {row} is too large")
    place.fail("orders", error="row 1 is too large")
    newest = place.fail(error="no route")
    groups = json.loads(place.check("failed", "show", "--stats", "--json"))
    assert [(group["count"], group["transport"], group["error"])
            for group in groups] == [
                (3, "outbox", "row 6 is too large"),
                (1, "outbox", "no route"),
                (1, "orders", "row 1 is too large")]
    assert groups[1]["newest"] == newest
    assert len(place.check("failed", "show", "--stats").splitlines()) == 4


def test_an_outbox_gets_its_message_back(place):
    number = place.fail(name=CLASS, queue="failed",
                        **{"X-Skirnir-Message-Name": "order.placed",
                           "X-Shop": "north"})
    assert place.check("failed", "retry", number) == (
        f"{number}: order.placed back to outbox (queue outbox of "
        "messenger_outbox)\n1 message retried.\n")
    (body, headers), = place.rows("outbox", "messenger_outbox")
    assert body == '{"orderId": "order-1"}'
    assert headers == {"type": "order.placed", "X-Message-Id": ID,
                       "X-Shop": "north"}
    assert place.number("SELECT COUNT(*) FROM messenger_messages") == 0
    # And it goes its way, under its id.
    place.check("relay", "outbox", "--stop-when-empty")
    (_, headers), = place.rows("orders")
    assert headers["X-Message-Id"] == ID


def test_what_came_from_a_broker_goes_to_its_queue_of_retries(place):
    place.fail("billing")
    place.check("failed", "retry", "--transport=billing")
    (_, headers), = place.rows("billing.retry")
    assert headers == {"type": "order.placed", "X-Message-Id": ID}


def test_a_queue_gets_its_message_back(place):
    number = place.fail("orders")
    assert "queue orders of messenger_messages" in \
        place.check("failed", "retry", number)
    assert len(place.rows("orders")) == 1


def test_rows_of_symfony_are_shown_and_retried(place):
    stamps = {
        FAILURE_STAMP: '[{"originalReceiverName":"outbox"}]',
        ERROR_STAMP: json.dumps([
            {"exceptionClass": "RuntimeException", "exceptionCode": 0,
             "exceptionMessage": "first"},
            {"exceptionClass": "LogicException", "exceptionCode": 0,
             "exceptionMessage": "Kaputt"}]),
        REDELIVERY_STAMP: '[{"retryCount":3}]'}
    for name, headers in HEADERS.items():
        place.write(BODIES[name], {**json.loads(headers), **stamps}, "failed")
    text = place.check("failed", "show")
    assert text.count("Kaputt") == len(HEADERS)
    assert text.count("order.placed") == len(HEADERS)
    place.check("failed", "retry", "--all")
    kept = place.rows("outbox", "messenger_outbox")
    assert [body for body, _ in kept] == list(BODIES.values())
    for (_, headers), name in zip(kept, HEADERS):
        assert IDS[name] in json.dumps(headers)
        assert not headers.keys() & stamps.keys()
        assert headers["type"] == CLASS


def test_rows_that_only_php_reads_are_for_symfony(place):
    for body in PHP_BODIES:
        place.write(body, PHP_HEADERS, "failed")
    assert place.check("failed", "show").count("(PHP)") == 2
    result = place.run("failed", "retry", "--all")
    assert result.returncode == 1
    assert result.stderr.count("messenger:failed:retry") == 2
    assert "0 messages retried, 2 left alone." in result.stdout
    assert len(shown(place)) == 2


def test_bytes_that_are_no_text_come_back_as_they_were(place):
    """They stand in the table as base64. A consumer has them as they came,
    refuses them once more, and they are not encoded a second time."""
    place.fail("orders", body="/wD+", **{"X-Skirnir-Body-Encoding": "base64"})
    place.check("failed", "retry", "--all")
    (body, headers), = place.rows("orders")
    assert (body, headers["X-Skirnir-Body-Encoding"]) == ("/wD+", "base64")
    place.check("consume", "orders", "--stop-when-empty")
    (body, headers), = place.rows("failed.skirnir")
    assert (body, headers["X-Skirnir-Body-Encoding"]) == ("/wD+", "base64")
    assert "not text" in headers[ERROR_STAMP]


def test_headers_that_made_no_sense_come_back_as_they_were(place):
    place.write("{}", "{broken", "outbox", table="messenger_outbox")
    place.check("relay", "outbox", "--stop-when-empty")
    number, = shown(place)
    assert place.check("failed", "retry", number)
    assert place.ask("SELECT headers FROM messenger_outbox") == "{broken"


@pytest.mark.parametrize("transport, named", [
    ("gone", "transport 'gone', which is not configured"),
    ("failed", "is the failure_transport")])
def test_a_transport_that_cannot_take_it_is_named(place, transport, named):
    number = place.fail(transport)
    result = place.run("failed", "retry", number)
    assert result.returncode == 1
    assert named in result.stderr and "--to" in result.stderr
    assert shown(place) == [number]
    place.check("failed", "retry", number, "--to=orders")
    assert len(place.rows("orders")) == 1


def test_a_broker_is_reached_through_the_outbox_that_relays_to_it(place):
    """A row for its consumers would not be read."""
    place.write_config(place.config_path.read_text().replace(
        "relay_to: orders", "relay_to: billing"))
    number = place.fail("outbox")
    result = place.run("failed", "retry", number, "--to=billing")
    assert result.returncode == 1 and "--to=outbox" in result.stderr
    assert shown(place) == [number]
    place.check("failed", "retry", number, "--to=outbox")
    assert len(place.rows("outbox", "messenger_outbox")) == 1


def test_a_row_that_does_not_say_where_it_failed(place):
    place.write("{}", '{"type":"order.placed"}', "failed")
    number = place.newest()
    result = place.run("failed", "retry", number)
    assert result.returncode == 1 and "--to" in result.stderr
    place.check("failed", "retry", number, "--to", "outbox")
    assert len(place.rows("outbox", "messenger_outbox")) == 1


def test_messages_that_are_not_there_are_named_and_others_done(place):
    number = place.fail()
    result = place.run("failed", "retry", number + 1, number)
    assert result.returncode == 1
    assert f"there is no failed message {number + 1}" in result.stderr
    assert "1 message retried, 1 left alone." in result.stdout
    second = place.fail()
    result = place.run("failed", "show", number, second)
    assert result.returncode == 1
    assert f"there is no failed message {number}" in result.stderr
    assert f"Failed message {second}\n" in result.stdout
    alone, third = result.stdout, place.fail()
    result = place.run("failed", "show", second, number, third, third + 1)
    shown_third = place.check("failed", "show", third)
    assert result.stdout == f"{alone}\n{shown_third}"
    for command in ("show", "retry", "remove"):
        result = place.run("failed", command, number,
                           *(["--force"] if command == "remove" else []))
        assert result.returncode == 1
        assert f"there is no failed message {number}" in result.stderr


def test_a_dry_run_changes_nothing(place):
    numbers = [place.fail(), place.fail("gone")]
    result = place.run("failed", "retry", "--all", "--dry-run")
    assert result.returncode == 1
    assert "order.placed would go back to outbox" in result.stdout
    assert "1 message would be retried, 1 left alone." in result.stdout
    assert "2 messages would be removed." in \
        place.check("failed", "remove", "--all", "--dry-run")
    assert shown(place) == numbers[::-1]


def test_the_oldest_are_retried_first_and_each_once(place):
    for number in range(7):
        place.fail(body=json.dumps({"n": number}))
    place.check("failed", "retry", "--all", "--max=5")
    assert [json.loads(body)["n"] for body, _ in
            place.rows("outbox", "messenger_outbox")] == list(range(5))
    assert len(shown(place)) == 2


def test_a_message_that_a_worker_has_is_left_to_it(place):
    number = place.fail()
    place.ask("UPDATE messenger_messages SET delivered_at = created_at")
    result = place.run("failed", "retry", number)
    assert result.returncode == 1
    assert "a worker has claimed it" in result.stderr
    assert place.number("SELECT COUNT(*) FROM messenger_outbox") == 0


def test_what_symfony_has_done_with_is_no_failed_message(place):
    """On MariaDB and MySQL it marks a row in place of deleting it."""
    number = place.fail(queue="failed")
    place.ask("UPDATE messenger_messages SET "
              "delivered_at = '9999-12-31 23:59:59'")
    assert shown(place) == []
    for command in (["retry"], ["remove", "--force"]):
        result = place.run("failed", *command, number)
        assert result.returncode == 1 and str(number) in result.stderr
    assert place.check("failed", "retry", "--all") == "0 messages retried.\n"
    assert place.number("SELECT COUNT(*) FROM messenger_outbox") == 0


def test_removing_asks_and_needs_force_without_a_terminal(place):
    number = place.fail()
    result = place.run("failed", "remove", number)
    assert result.returncode == 2 and "--force" in result.stderr
    for answer, left in (("n\n", 1), ("\n", 1), ("y\n", 0)):
        master, slave = pty.openpty()
        os.write(master, answer.encode())
        done = subprocess.run(place.command("failed", "remove", number),
                              stdin=slave, cwd=place.folder,
                              env=place.environment, capture_output=True,
                              timeout=shops.PATIENCE_S, check=True, text=True)
        os.close(master)
        os.close(slave)
        assert "Remove 1 message for good? [y/N]" in done.stderr
        assert len(shown(place)) == left, answer


def test_removing_by_a_filter_leaves_the_rest(place):
    place.fail("orders")
    kept = place.fail()
    assert place.check("failed", "remove", "--transport=orders", "--force") \
        == "1 message removed.\n"
    assert shown(place) == [kept]


@pytest.mark.parametrize("arguments, named", [
    (["retry"], "--all"), (["remove", "--force"], "--all"),
    (["retry", "x"], "'x'"), (["show", "0"], "'0'"),
    (["retry", "1", "--all"], "exclude"),
    (["show", "1", "--name=a.b"], "exclude"),
    (["show", "1", "--stats"], "exclude"),
    (["show", "--since=yesterday"], "--since=yesterday"),
    (["show", "--since=2026-13-40"], "--since"),
    (["remove", "--older-than=30", "--force"], "--older-than=30"),
    (["retry", "--all", "--rate=0"], "--rate=0"),
    ([], "failed show, failed retry, failed remove"),
    (["eat"], "failed show")], ids=lambda value: " ".join(value)
    if isinstance(value, list) else "")
def test_wrong_usage_is_named(shop, arguments, named):
    result = shop.run("failed", *arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["show", "retry", "remove"])
def test_symfony_names(place, command):
    number = place.fail()
    more = ["--force"] if command == "remove" else []
    assert str(number) in place.check(f"messenger:failed:{command}", number,
                                      *more)


def test_of_two_operators_one_wins_and_the_other_is_told(place):
    number = place.fail()
    held = place.hold_at("failed.stored", "failed", "retry", number)
    second = place.start("failed", "retry", number)
    held.kill()
    assert second.end() == 0, second.log()
    assert len(place.rows("outbox", "messenger_outbox")) == 1
    result = place.run("failed", "retry", number)
    assert result.returncode == 1


def test_many_operators_at_once_retry_each_message_once(place):
    for number in range(40):
        place.fail(body=json.dumps({"n": number}))
    operators = [place.start("failed", "retry", "--all") for _ in range(4)]
    for operator in operators:
        operator.end()
    sent = [json.loads(body)["n"] for body, _ in
            place.rows("outbox", "messenger_outbox")]
    assert sorted(sent) == list(range(40))
    logs = "".join(operator.log() for operator in operators)
    done = re.findall(r"^(\d+) messages? retried", logs, re.M)
    assert len(done) == 4 and sum(map(int, done)) == 40, logs
    # A person who lost a message to another is told.
    left = re.findall(r", (\d+) left alone", logs)
    assert sum(map(int, left)) == \
        logs.count("someone else retried or removed it")


def test_killed_between_two_databases_it_stays_and_is_handled_once(ready_shop):
    """The queue is in another file: it has the message, and so have we."""
    shop = ready_shop
    headers = places.failed_headers("orders", "order.placed", "no")
    shops.write_row(shop.open("shop"), '{"orderId": "order-1"}',
                    json.dumps(headers), "messenger_messages", "failed")
    shop.hold_at("failed.stored", "failed", "retry", "--all").kill()
    assert shop.count("shop", "messenger_messages") == 1
    assert shop.count("queue", "messenger_messages") == 1
    shop.check("failed", "retry", "--all")
    assert shop.count("shop", "messenger_messages") == 0
    assert shop.consume_all().returncode == 0
    assert shop.effects() == ["order-1"]


def test_a_consumer_s_failure_is_cured_and_retried(ready_shop):
    shop = ready_shop
    shop.configure(max_retries=0)
    shops.write_row(shop.open("queue"), "not JSON", '{"type":"order.placed",'
                    f'"X-Message-Id":"{ID}"}}', "messenger_messages", "orders")
    assert shop.consume_all().returncode == 0
    text = shop.check("failed", "show")
    assert "orders" in text and "order.placed" in text
    shop.configure(max_retries=0, replace=[
        ("json_extract(:body, '$.orderId')", "'cured'")])
    shop.check("failed", "retry", "--all")
    assert shop.consume_all().returncode == 0
    assert shop.query("billing", "SELECT order_id, message_id FROM effects") \
        == [("cured", ID)]


def test_retrying_keeps_to_a_rate_and_stops_when_told(place):
    for _ in range(5):
        place.fail()
    retry = place.start("failed", "retry", "--all", "--rate=1")
    shops.until(lambda: place.number("SELECT COUNT(*) FROM messenger_outbox"),
                lambda: retry.log())
    assert retry.stop() == 1
    assert "interrupted" in retry.log()
    left, done = len(shown(place)), len(place.rows("outbox",
                                                   "messenger_outbox"))
    assert left + done == 5 and left > 0
    place.check("failed", "retry", "--all")
    assert len(place.rows("outbox", "messenger_outbox")) == 5


def test_the_bar_goes_on_below_what_is_said(place):
    """On a terminal, where a message is left alone and others are named."""
    for transport in ("outbox", "gone", "outbox"):
        place.fail(transport)
    done, master = terminals.start(place, 80, "failed", "retry", "--all",
                                   "-v", has_errors=True)
    text = terminals.read_all(master)
    assert done.wait(shops.PATIENCE_S) == 1
    for number in (1, 2, 3):
        assert f"] {number}/3" in text, text
    # Nothing stands behind a bar.
    assert not re.search(r"] \d/3[^\r]", text), text
    assert "not configured any more" in text.split("] 1/3")[1]


def test_tables_that_are_not_made_yet(shop):
    result = shop.run("failed", "show")
    assert result.returncode == 1
    assert "skirnir setup" in result.stderr
