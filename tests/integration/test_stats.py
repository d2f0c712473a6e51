"""`skirnir stats`: how full transports are, and who works them."""
import json
import os
import re
import socket
import subprocess
import time

import pytest

import places
import shop as shops
import terminals

NOW = "CURRENT_TIMESTAMP"
LATER = "'2099-01-01 00:00:00'"
NEVER = "'9999-12-31 23:59:59'"
OLD = "'2020-01-01 10:00:00'"


def read(place, *arguments):
    stats = json.loads(place.run("stats", "--json", *arguments).stdout)
    return {item["transport"]: item for item in stats["transports"]}, stats


def write(place, count, times, queue="outbox", table="messenger_outbox"):
    for _ in range(count):
        place.write("{}", '{"type":"order.placed"}', queue, table, times)


def without_broker(place):
    place.set_config(replace=[
        ("    billing: 'amqp://127.0.0.1:1/%2f'\n", "")])


@pytest.mark.alike
def test_queues_that_nobody_reads_are_told_and_warned_of(place):
    without_broker(place)
    write(place, 3, f"{NOW}, {LATER}, NULL")
    write(place, 2, f"{NOW}, {NOW}, NULL", "Outbox")
    write(place, 1, f"{NOW}, {NOW}, NULL", "outbxo")
    write(place, 1, f"{NOW}, {NOW}, {NEVER}", "done")
    write(place, 1, f"{OLD}, {OLD}, {NOW}", "outbox.sent")
    write(place, 1, f"{NOW}, {NOW}, NULL", "orders.retry",
          "messenger_messages")
    write(place, 4, f"{NOW}, {NOW}, NULL", "gone.retry", "messenger_messages")
    place.fail("gone")
    unread = read(place)[1]["unread_queues"]
    assert sorted((item["table"], item["queue"], item["rows"])
                  for item in unread) == [
        ("messenger_messages", "gone.retry", 4),
        ("messenger_outbox", "Outbox", 2), ("messenger_outbox", "outbxo", 1)]
    assert "queue 'outbxo' of messenger_outbox (database" in \
        place.check("stats")
    assert [item["queue"] for item in
            read(place, "orders")[1]["unread_queues"]] == ["gone.retry"]
    relay = place.start("relay", "outbox")
    relay.wait_for(r"config\.unread_queue .*queue=outbxo rows=1")
    relay.wait_for(r"config\.unread_queue .*queue=Outbox rows=2")
    assert relay.stop() == 0
    assert "gone.retry" not in relay.log()


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_table_that_is_spelt_in_two_ways_is_one(place):
    """On MariaDB and MySQL, as they are set here, they are two."""
    place.set_config(replace=[
        ("    billing: 'amqp://127.0.0.1:1/%2f'\n",
         "    again: 'queue://default?table_name=Messenger_Outbox"
         "&queue_name=again'\n")])
    write(place, 1, f"{NOW}, {NOW}, NULL", "again")
    write(place, 1, f"{NOW}, {NOW}, NULL", "outbxo")
    assert [item["queue"] for item in read(place)[1]["unread_queues"]] == [
        "outbxo"]


@pytest.mark.alike
def test_every_kind_of_message_is_counted(place):
    without_broker(place)
    write(place, 3, f"{OLD}, {OLD}, NULL")
    write(place, 2, f"{NOW}, {NOW}, NULL")
    write(place, 4, f"{NOW}, {LATER}, NULL")
    write(place, 1, f"{NOW}, {NEVER}, NULL")
    write(place, 2, f"{NOW}, {NOW}, {NOW}")
    write(place, 5, f"{NOW}, {NOW}, {NEVER}")  # Symfony's: done
    write(place, 6, f"{OLD}, {OLD}, {NOW}", "outbox.sent")
    write(place, 7, f"{OLD}, {OLD}, NULL", "Outbox")
    write(place, 8, f"{NOW}, {NOW}, NULL", "orders", "messenger_messages")
    for transport in ("outbox", "outbox", "orders", "gone"):
        place.fail(transport)
    items, stats = read(place)
    assert list(items) == ["outbox", "orders"]
    outbox = items["outbox"]
    wanted = {"depth": 12, "due": 5, "delayed": 4, "blocked": 1,
              "in_flight": 2, "sent": 6, "failed": 2, "active": False,
              "holder": None, "error": None, "depth_is_estimate": False}
    assert {name: outbox[name] for name in wanted} == wanted
    years = (time.time() - time.mktime((2020, 1, 1, 10, 0, 0, 0, 0, 0)))
    assert abs(outbox["oldest_seconds"] - years) < 2 * 86400
    assert items["orders"]["depth"] == 8
    assert items["orders"]["failed"] == 1
    assert (stats["failed"], stats["failed_elsewhere"]) == (4, 1)
    assert "1 failed message is of no transport" in place.check("stats")
    assert list(read(place, "orders")[0]) == ["orders"]


def test_a_database_that_does_not_answer_is_asked_once(shop):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "%s:%d" % silent.getsockname()
        shop.write_config(f"""\
databases:
    default: 'sqlite:///shop.db'
    silent: 'pgsql://u@{address}/b?connect_timeout=1'
transports:
    one: {{dsn: 'doctrine://silent', relay_to: orders}}
    two: {{dsn: 'ordered-doctrine://silent?table_name=b', relay_to: orders}}
    three: 'queue://silent?table_name=c'
    orders: 'queue://default?queue_name=orders'
    failed: 'doctrine://silent?queue_name=failed'
failure_transport: failed
""")
        shop.check("setup", "orders")
        result = shop.run("stats", "--json")
        assert result.returncode == 1
        items = json.loads(result.stdout)["transports"]
        assert [item["depth"] for item in items] == [None, None, None, 0]
        assert all(address in item["error"] for item in items[:3])
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_the_failure_transport_has_its_line_when_it_is_named(place):
    without_broker(place)
    for transport in ("outbox", "orders", "gone"):
        place.fail(transport)
    items, stats = read(place, "failed")
    assert list(items) == ["failed"]
    assert items["failed"]["depth"] == stats["failed"] == 3
    title, line, *_ = place.check("stats", "failed").splitlines()
    assert title.startswith("TRANSPORT")
    assert line.split()[:2] == ["failed", "3"]
    assert "`skirnir failed show`" in line and "no relay" not in line
    assert "failed" not in read(place)[0]


def test_what_was_never_delayed_is_due_whatever_the_clock_says(place):
    """PostgreSQL rounds a time into the second that comes; others write the
    time of their zone."""
    without_broker(place)
    write(place, 2, f"{LATER}, {LATER}, NULL")
    outbox = read(place)[0]["outbox"]
    assert (outbox["depth"], outbox["due"], outbox["delayed"]) == (2, 2, 0)
    assert outbox["oldest_seconds"] == 0
    write(place, 1, f"{NOW}, {LATER}, NULL")
    outbox = read(place)[0]["outbox"]
    assert (outbox["due"], outbox["delayed"]) == (2, 1)
    assert outbox["oldest_seconds"] == 0
    write(place, 1, f"{OLD}, {OLD}, NULL")
    assert read(place)[0]["outbox"]["oldest_seconds"] > 86400


def test_what_waits_for_a_symfony_worker_is_told(place):
    without_broker(place)
    write(place, 2, f"{NOW}, {NOW}, NULL")
    assert read(place)[0]["outbox"]["php"] == 0
    assert "serializer:" not in place.check("stats")
    place.write("O:36:\"Symfony\"", "[]", "outbox", "messenger_outbox",
                f"{OLD}, {OLD}, NULL")
    outbox = read(place)[0]["outbox"]
    assert (outbox["php"], outbox["due"], outbox["depth"]) == (1, 2, 3)
    assert outbox["oldest_seconds"] < 86400
    assert "Of outbox 1 is in PHP's own serialisation" in place.check("stats")


def test_the_table_has_a_line_for_each_transport(place):
    without_broker(place)
    write(place, 3, f"{OLD}, {OLD}, NULL")
    lines = place.check("messenger:stats").splitlines()
    assert lines[0].split() == ["TRANSPORT", "DEPTH", "DUE", "IN", "FLIGHT",
                                "DELAYED", "BLOCKED", "FAILED", "OLDEST",
                                "IN/OUT", "STATE"]
    assert lines[1].split()[:7] == ["outbox", "3", "3", "0", "0", "0", "0"]
    assert lines[1].endswith("no relay")
    assert lines[2].split()[0] == "orders"
    assert len(lines) == 3


def test_who_relays_is_told(place):
    without_broker(place)
    relay = place.start("relay", "outbox")
    relay.wait_for("relay.active")
    item = read(place)[0]["outbox"]
    assert item["active"] is True
    word, number = item["holder"].split()[:2]
    assert word in ("session", "process") and int(number) > 0
    if word == "process":
        assert int(number) == relay.pid
    assert f"active: {item['holder']}" in place.check("stats")
    assert relay.stop() == 0
    assert read(place)[0]["outbox"]["active"] is False


def test_a_relay_that_waits_for_its_broker_is_told(place):
    """No server is where the broker is said to be: the relay has neither the
    lock nor a session, and runs all the same."""
    place.set_config(replace=[("relay_to: orders", "relay_to: billing")])
    first = place.start("relay", "outbox")
    first.wait_for("relay.trouble")
    shops.until(lambda: look_at_outbox(place)["waiting_for_broker"] == 1,
                first.log)
    assert look_at_outbox(place)["active"] is False
    assert "no relay works: 1 waits for the broker" in \
        place.run("stats").stdout
    second = place.start("relay", "outbox")
    shops.until(lambda: look_at_outbox(place)["waiting_for_broker"] == 2,
                second.log)
    assert "2 wait for the broker" in place.run("stats").stdout
    first.kill()
    shops.until(lambda: look_at_outbox(place)["waiting_for_broker"] == 1,
                second.log)
    assert second.stop() == 0
    shops.until(lambda: look_at_outbox(place)["waiting_for_broker"] == 0,
                "the end to be noticed")
    assert " no relay\n" in place.run("stats").stdout


def look_at_outbox(place):
    return read(place, "outbox")[0]["outbox"]


def test_a_relay_whose_broker_came_back_does_not_wait(shop):
    shop.check("setup")
    shop.configure(auto_setup="false")
    shop.path("queue").rename(shop.folder / "aside")
    relay = shop.start_relay("--wait")
    relay.wait_for("relay.trouble")
    shops.until(lambda: look_at_outbox(shop)["waiting_for_broker"] == 1,
                relay.log)
    (shop.folder / "aside").rename(shop.path("queue"))
    relay.wait_for("relay.active")
    outbox = look_at_outbox(shop)
    assert (outbox["active"], outbox["waiting_for_broker"]) == (True, 0)
    assert relay.stop() == 0


def test_consumers_of_a_table_are_counted(place):
    without_broker(place)
    place.check("setup-deduplication", "--force")
    assert read(place)[0]["orders"]["consumers"] == 0
    consumer = place.start("consume", "orders", "--consumers=2")
    shops.until(lambda: read(place)[0]["orders"]["consumers"] == 2,
                consumer.log)
    assert " 2 consumers\n" in place.check("stats")
    other = place.start("consume", "orders")
    shops.until(lambda: read(place)[0]["orders"]["consumers"] == 3, other.log)
    consumer.kill()
    shops.until(lambda: read(place)[0]["orders"]["consumers"] == 1, other.log)
    assert other.stop() == 0
    shops.until(lambda: read(place)[0]["orders"]["consumers"] == 0,
                "the end to be noticed")


def test_asking_does_not_disturb_a_relay(place):
    without_broker(place)
    relay = place.start("relay", "outbox")
    relay.wait_for("relay.active")
    for _ in range(5):
        place.check("stats")
    write(place, 1, f"{NOW}, {NOW}, NULL")
    shops.until(lambda: read(place)[0]["orders"]["depth"] == 1,
                lambda: relay.log())
    assert len(relay.events("relay.active")) == 1
    assert relay.stop() == 0


def test_what_cannot_be_asked_is_named_and_the_rest_shown(place):
    """No server is where the broker is said to be."""
    result = place.run("stats", "--json")
    assert result.returncode == 1
    assert "not every transport could be asked" in result.stderr
    items = {item["transport"]: item for item in
             json.loads(result.stdout)["transports"]}
    assert items["billing"]["error"]
    assert (items["billing"]["consumers"], items["billing"]["retries"]) == \
        (None, None)
    assert items["outbox"]["error"] is None
    assert items["outbox"]["depth"] == 0
    assert "trouble: " in place.run("stats").stdout


def test_failed_messages_that_cannot_be_counted_are_not_said_to_be_none(
        ready_shop):
    """They stand beside each outbox, and one of these is away."""
    shop = ready_shop
    shop.write_config("""\
databases:
    default: '{}'
    away: 'mysql://nobody@127.0.0.1:1/shop'
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox'
        relay_to: orders
    far: {{dsn: 'doctrine://away', relay_to: orders}}
    orders: 'queue://default'
""".format(shop.url("shop")))
    result = shop.run("stats", "outbox", "--json")
    assert result.returncode == 1
    assert "failed messages cannot be counted: database away" in result.stderr
    stats = json.loads(result.stdout)
    [outbox] = stats["transports"]
    assert outbox["error"] is None
    assert (outbox["failed"], stats["failed"]) == (None, None)


def test_tables_that_are_missing_are_named(shop):
    result = shop.run("stats")
    assert result.returncode == 1
    assert "trouble: " in result.stdout


def test_an_unknown_transport_is_named(place):
    result = place.run("stats", "nowhere")
    assert result.returncode == 1
    assert "nowhere" in result.stderr and "outbox" in result.stderr


def test_a_large_table_is_estimated_and_says_so(place):
    without_broker(place)
    write(place, 1, f"{OLD}, {OLD}, NULL")
    for _ in range(17):
        place.ask("INSERT INTO messenger_outbox (body, headers, queue_name, "
                  "created_at, available_at) SELECT body, headers, queue_name, "
                  "created_at, available_at FROM messenger_outbox")
    # What the server believes; left alone MariaDB finds out in its own time.
    if place.database.dialect == "mysql":
        place.ask("ANALYZE TABLE messenger_outbox")
    item = read(place)[0]["outbox"]
    assert item["depth_is_estimate"] is True
    assert 110000 < item["depth"] < 2 ** 18
    assert item["oldest_seconds"] > 0
    line = place.check("stats").splitlines()[1].split()
    assert line[1].startswith("~") and line[2].startswith("~")
    # What was sent and kept says nothing of the rest.
    place.ask("UPDATE messenger_outbox SET queue_name = 'outbox.sent' "
              "WHERE id > 3")
    item = read(place)[0]["outbox"]
    assert (item["depth"], item["depth_is_estimate"]) == (3, False)
    assert item["sent_is_estimate"] is True


@pytest.mark.alike
def test_rates_tell_what_came_and_went(place):
    """Of a table of its own; one that is shared tells the difference."""
    without_broker(place)
    write(place, 1, f"{NOW}, {NOW}, NULL")
    assert read(place)[0]["outbox"]["in_per_second"] is None
    watching = subprocess.Popen(
        place.command("stats", "--watch", "--json", "--interval=1"),
        stdout=subprocess.PIPE, cwd=place.folder, env=place.environment,
        text=True)
    relay = place.start("relay", "outbox")
    items = []

    def is_seen():
        write(place, 20, f"{NOW}, {NOW}, NULL")
        items.append({item["transport"]: item for item in json.loads(
            watching.stdout.readline())["transports"]})
        outbox = items[-1]["outbox"]
        return (outbox["in_per_second"] or 0) > 0 and \
            (outbox["out_per_second"] or 0) > 0 and \
            (items[-1]["orders"]["net_per_second"] or 0) > 0
    shops.until(is_seen, lambda: str(items[-1]))
    assert items[0]["outbox"]["in_per_second"] is None
    assert items[-1]["outbox"]["in_per_second"] <= 2000
    assert items[-1]["orders"]["in_per_second"] is None
    watching.terminate()
    watching.stdout.close()
    assert watching.wait(shops.PATIENCE_S) == 0
    assert relay.stop() == 0


@pytest.mark.alike
def test_an_interval_alone_measures_once(place):
    without_broker(place)
    item = read(place, "outbox", "--interval=1")[0]["outbox"]
    write(place, 1, f"{NOW}, {NOW}, NULL")
    item = read(place, "outbox", "--interval=1")[0]["outbox"]
    assert (item["in_per_second"], item["out_per_second"]) == (0, 0)
    assert " 0/0 " in place.check("stats", "--interval=1")


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("command", [["stats"], ["failed", "show"],
                                     ["failed", "show", "--stats"]],
                         ids=" ".join)
def test_lines_fit_the_terminal(ready_shop, columns, command):
    connection = ready_shop.open("shop")
    for word in ("first", "second", "third"):
        headers = places.failed_headers("outbox", "order.placed",
                                        f"the {word} " + "länger " * 40)
        shops.write_row(connection, "{}", json.dumps(headers),
                        "messenger_messages", "failed")
    process, master = terminals.start(ready_shop, columns, *command)
    lines = terminals.read_all(master).split("\r\n")
    assert process.wait(shops.PATIENCE_S) == 0
    assert len(lines) > 3
    assert max(map(len, lines)) <= max(columns, 24), lines


@pytest.mark.parametrize("columns, rows, has_more", [
    (80, 24, False), (20, 7, True), (80, 1, True)])
def test_watching_redraws_what_fits_until_it_is_told_to_stop(
        ready_shop, columns, rows, has_more):
    process, master = terminals.start(ready_shop, columns, "stats", "--watch",
                                      "--interval=1", rows=rows)
    told = b""
    deadline = time.monotonic() + shops.PATIENCE_S
    while told.count(b"\x1b[J") < 2:
        assert time.monotonic() < deadline, told
        told += os.read(master, 65536)
    text = told[:told.rindex(b"\x1b[J")].decode() + "\x1b[J"
    for picture in text.split("\x1b[J")[:2]:
        lines = picture.removeprefix("\x1b[H").split("\r\n")
        assert len(lines) == rows or not has_more
        assert ("… " in lines[-1]) == has_more, picture
        assert max(len(line.removesuffix("\x1b[K")) for line in lines) \
            <= columns
    assert text.startswith("\x1b[H") and text.count("\x1b[H") >= 2
    if not has_more:
        assert re.match(r"\x1b\[Hskirnir stats, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
                        r"UTC, every 1 s, skirnir\.yaml\x1b\[K\r\n", text)
    process.terminate()
    assert process.wait(shops.PATIENCE_S) == 0
    os.close(master)


@pytest.mark.parametrize("command", [
    ["stats"], ["failed", "show"], ["stats", "--watch"], ["config", "keys"],
    ["--help"]], ids=" ".join)
def test_a_closed_pipe_ends_it_quietly(ready_shop, command):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(ready_shop.command(*command), stdout=writer,
                            stderr=subprocess.PIPE, cwd=ready_shop.folder,
                            env=ready_shop.environment,
                            timeout=shops.PATIENCE_S, text=True)
    os.close(writer)
    assert result.stderr == ""
    assert result.returncode == 0


def test_rabbitmq_tells_how_many_wait(world):
    world.set_config(replace=[
        ("    amqp: '{}'".format(world.broker),
         "    amqp: '{}?queues[orders]='".format(world.broker))])
    world.set_up()
    world.insert(5)
    world.relay_all()
    item = read(world, "amqp")[0]["amqp"]
    assert (item["depth"], item["consumers"], item["retries"]) == (5, 0, 0)
    # Not to be read as an age of nothing.
    assert item["oldest_seconds"] is None
    assert "unknown" in world.check("stats", "amqp").splitlines()[1].split()
    world.write(("{}", '{"type":"order.placed"}'), queue="amqp.retry",
                table="messenger_messages")
    item = read(world, "amqp", "--interval=1")[0]["amqp"]
    assert item["retries"] == 1
    assert (item["in_per_second"], item["net_per_second"]) == (None, 0)
    assert len(world.take_numbers()) == 5, "looking takes nothing"


def test_a_broker_that_is_only_published_to_is_no_trouble(world):
    """What waits there is not known; that it can be reached is."""
    world.set_up()
    items = json.loads(world.check("stats", "--json"))["transports"]
    item = items[-1]
    assert item["transport"] == "amqp"
    assert (item["depth"], item["consumers"], item["error"]) == \
        (None, None, None)
    line = world.check("stats", "amqp").splitlines()[1].split()
    assert line == ["amqp", *"---0-0--", "reachable"]


def test_a_queue_that_is_missing_on_rabbitmq_is_named(world):
    world.set_config(replace=[
        ("    amqp: '{}'".format(world.broker),
         "    amqp: '{}?queues[nothing]='".format(world.broker))])
    world.check("setup")
    item = read(world, "amqp")[0]["amqp"]
    assert "queue nothing is not in vhost" in item["error"]
