"""What RabbitMQ may hand to a consumer and no handler can do anything with, or
only looks so: each ends where it belongs with the reason, the consumer lives,
and a thousand good messages behind it arrive."""
import contextlib
import json
import uuid

import pytest

import shop as shops
import symfony_rows as symfony
import worlds

GOOD = 1000
HANDLER = """\
    order.placed:
        sql: 'INSERT INTO effects (n, headers) VALUES ({number}, :headers)'
"""
# The number in a body, as each database reads JSON.
NUMBER = {"sqlite": "json_extract(:body, ''$.n'')",
          "mysql": "JSON_EXTRACT(:body, ''$.n'')",
          "postgresql": "CAST(CAST(:body AS json) ->> ''n'' AS integer)"}


def identity(number=0):
    return str(uuid.UUID(int=number + (1 << 80)))


def headers(**more):
    return {"type": ("S", "order.placed"),
            "X-Message-Id": ("S", identity()), **more}


# Body, headers, and what the reason says of each that no handler can take.
LONG_ARRAY = b"[" * 100_000 + b"]" * 100_000
BAD = {
    "no type": (b'{"n":-1}', {"X-Message-Id": ("S", identity())}, "type"),
    "an unknown type": (
        b'{"n":-1}', headers(type=("S", "order.unknown")), "order.unknown"),
    "no id": (b'{"n":-1}', {"type": ("S", "order.placed")}, "no id"),
    "a bad id": (
        b'{"n":-1}', headers(**{"X-Message-Id": ("S", "17")}), "17"),
    "no JSON": (b"hello", headers(), ""),
    "JSON of another shape": (b'{"order":{"n":1}}', headers(), ""),
    "a number out of range": (b'{"n":99999999999}', headers(), ""),
    "deep nesting": (LONG_ARRAY, headers(), ""),
    "no bytes": (b"", headers(), ""),
    "zero bytes": (b'{"n":-1,"z":"\0"}', headers(), "UTF-8"),
    "invalid UTF-8": (b'{"n":-1,"z":"\xff\xfe"}', headers(), "UTF-8"),
    "many values of an unknown type": (
        b'{"n":[' + b"0," * 4_000_000 + b"0]}",
        headers(type=("S", "order.unknown"),
                **{"X-Message-Class": ("S", "App\\Unknown")}),
        "order.unknown"),
}
# Headers of messages that look odd, and are handled all the same; then what
# the handler is given of them.
ODD = {
    "every kind of header": (
        headers(a=("t", 1), b=("b", -1), B=("B", 255), c=("s", -2),
                d=("u", 3), e=("I", -4), f=("i", 5), g=("l", -6),
                h=("f", 0.5), i=("d", 1.5), j=("D", (2, 314)),
                k=("S", "text"), l=("x", b"\0\1"), m=("T", 1794711225),
                n=("V", None), o=("A", [("I", 1), ("S", "two"), ("V", None)]),
                p=("F", {"deep": ("F", {"deeper": ("t", 0)})})),
        {"a": "true", "b": "-1", "c": "-2", "g": "-6", "h": "0.5",
         "i": "1.5", "j": "3.14", "k": "text", "m": "1794711225",
         "n": "null", "o": '[1,"two",null]',
         "p": '{"deep":{"deeper":false}}'}),
    "invalid UTF-8 in a header": (
        headers(broken=("S", b"\xff\xfe")), {"broken": "//4="}),
    "a zero byte in a header": (
        headers(zero=("S", b"a\0b")), {"zero": "YQBi"}),
    "a negative count of deaths": (
        headers(**{"x-death": ("A", [("F", {
            "count": ("l", -5), "reason": ("S", "rejected"),
            "queue": ("S", "orders")})])}), {}),
}


@pytest.fixture
def inbox(any_world):
    world = any_world
    set_handler(world, NUMBER[world.database.dialect])
    world.limit_memory()
    world.check("setup")
    world.declare_queue("orders")
    # SQLite's integers are larger than those of others.
    world.ask("CREATE TABLE effects (n INTEGER NOT NULL CHECK (n < 2147483648)"
              ", headers TEXT)")
    return world


def set_handler(world, number):
    # Symfony reads failed messages, where they are JSON objects.
    failed = "'doctrine://default?queue_name=failed'"
    world.set_config(
        worlds.INBOX_CONFIG + HANDLER, queue="orders", number=number,
        replace=[(failed, "{dsn: " + failed + ", serializer: "
                  "messenger.transport.symfony_serializer}")])


def put_good(world, count=GOOD):
    for number in range(count):
        world.client.publish(
            "", "orders", json.dumps({"n": number}).encode(),
            headers(**{"X-Message-Id": ("S", identity(number + 1))}))
    world.client.confirm()


def handled(world):
    return [int(line) for line in
            world.ask("SELECT n FROM effects ORDER BY n").split()]


def failed_reasons(world):
    """By their headers: a body may be anything."""
    lines = world.ask("SELECT headers FROM messenger_messages WHERE "
                      "queue_name LIKE 'failed%' ORDER BY id").splitlines()
    return [json.loads(json.loads(line)[symfony.ERROR_STAMP])[0]
            ["exceptionMessage"] for line in lines]


def consume(world, *arguments):
    result = world.run("consume", "orders", "--stop-when-empty", *arguments)
    assert result.returncode == 0, result.stderr
    assert world.client.count("orders") == 0
    return result.stderr


@pytest.mark.alike
@pytest.mark.parametrize("kind", BAD)
def test_what_no_handler_can_take_is_kept_with_the_reason(inbox, kind):
    body, given, says = BAD[kind]
    inbox.client.publish("", "orders", body, given)
    put_good(inbox)
    consume(inbox)
    assert handled(inbox) == list(range(GOOD))
    reason, = failed_reasons(inbox)
    assert reason and says in reason


@pytest.mark.alike
@pytest.mark.parametrize("kind", ODD)
def test_what_only_looks_odd_is_handled(inbox, kind):
    given, expected = ODD[kind]
    inbox.client.publish("", "orders", b'{"n":-1}', given)
    put_good(inbox)
    consume(inbox)
    assert handled(inbox) == list(range(-1, GOOD))
    assert failed_reasons(inbox) == []
    found = json.loads(inbox.ask("SELECT headers FROM effects WHERE n = -1"))
    assert {name: found[name] for name in expected} == expected


def test_all_of_them_at_once_cost_nobody_else_anything(inbox):
    for number, (body, given, _) in enumerate(BAD.values()):
        # Each by itself: two of one id would be one message.
        if given.get("X-Message-Id", ("S", "17"))[1] != "17":
            given = {**given, "X-Message-Id": ("S", identity(10_000 + number))}
        inbox.client.publish("", "orders", body, given)
    put_good(inbox)
    consume(inbox, "--consumers=2")
    assert handled(inbox) == list(range(GOOD))
    assert len(failed_reasons(inbox)) == len(BAD)


def test_a_flood_is_no_flood_of_dead_letters(inbox):
    """What a handler cannot take: so many within a minute, where that is asked
    for. The rest stays where it was, or waits for its retry. What nobody
    understands could wait in no row."""
    flood, limit = 300, 20
    inbox.write_config(inbox.config_path.read_text().replace(
        "        retry_strategy:",
        f"        failure_limit: {limit}\n        retry_strategy:"))
    for number in range(flood):
        inbox.client.publish(
            "", "orders", b'{"n":99999999999}',
            headers(**{"X-Message-Id": ("S", identity(10_000 + number))}))
    for number in range(flood):
        inbox.client.publish("", "orders", b'{"n":-1}', headers(
            **{"X-Message-Id": ("S", f"no id {number}")}))
    inbox.client.confirm()
    consumer = inbox.start("consume", "orders")
    consumer.wait_for(f"{limit} messages of order.placed failed within")
    shops.until(lambda: len(failed_reasons(inbox)) == limit + flood,
                consumer.log)
    assert consumer.stop() == 0, consumer.log()
    rows = int(inbox.ask("SELECT COUNT(*) FROM messenger_messages"))
    assert inbox.client.count("orders") + rows == 2 * flood
    assert len(consumer.events("consumer.trouble")) == 1


LARGE = 64 * 1024 * 1024


@pytest.mark.parametrize("prefetch", [1, 200])
def test_64_megabytes_are_bounded_in_memory_and_hold_nobody_up(inbox,
                                                               prefetch):
    """Whether the database takes so much or not. Where it does not, not even
    as a failed message, it is put off and others pass it."""
    body = b'{"n":-1,"pad":"' + b"x" * LARGE + b'"}'
    inbox.limit_memory(shops.CEILING_MIB + 5 * LARGE // 1024 // 1024)
    inbox.client.publish("", "orders", body, headers())
    put_good(inbox)
    text = inbox.config_path.read_text()
    inbox.write_config(text.replace("?queues",
                                    f"?prefetch_count={prefetch}&queues"))
    consumer = inbox.start_consumer()
    shops.until(lambda: set(handled(inbox)) >= set(range(GOOD)),
                consumer.log, 120, 0.1)
    if inbox.database.dialect == "mysql":
        said, = consumer.events("consumer.keep_trouble")
        assert "max_allowed_packet" in said
    # It is in one place: handled, kept, or still with the broker.
    peak_kb = consumer.status("VmHWM")
    assert consumer.stop() == 0, consumer.log()
    places = [-1 in handled(inbox), len(failed_reasons(inbox)),
              inbox.client.count("orders")]
    print(f"peak {peak_kb} kB, {places}")
    assert sum(places) == 1
    assert peak_kb < 6 * LARGE // 1024


def test_messages_of_10_megabytes_are_bounded_in_memory(inbox):
    """As many bytes are here at a time as prefetch_bytes says, and one
    message more, whatever waits and however many may share a transaction."""
    size, count = 10_000_000, 30
    body = b'{"n":%d,"pad":"' + b"x" * size + b'"}'
    for number in range(count):
        inbox.client.publish("", "orders", body % number, headers(
            **{"X-Message-Id": ("S", identity(number + 1))}))
    inbox.client.confirm()
    consumer = inbox.start_consumer("--limit=" + str(count))
    peak_kb = 0

    def has_ended():
        nonlocal peak_kb
        with contextlib.suppress(OSError, AttributeError):
            peak_kb = consumer.status("VmHWM")
        return not consumer.is_running()
    shops.until(has_ended, consumer.log, 120)
    assert handled(inbox) == list(range(count))
    print(f"peak {peak_kb} kB")
    assert 0 < peak_kb < 100_000


@pytest.mark.alike
def test_a_queue_that_is_deleted_and_made_again_is_consumed_on(inbox):
    put_good(inbox, 10)
    consumer = inbox.start_consumer()
    shops.until(lambda: len(handled(inbox)) == 10, consumer.log)
    inbox.client.delete_queue("orders")
    said = consumer.wait_for(r"consumer\.trouble .*").group()
    assert "orders" in said
    inbox.declare_queue("orders")
    inbox.client.publish("", "orders", b'{"n":-1}', headers())
    inbox.client.confirm()
    shops.until(lambda: len(handled(inbox)) == 11, consumer.log)
    assert consumer.stop() == 0


@pytest.mark.alike
def test_a_missing_queue_is_named(inbox):
    inbox.client.delete_queue("orders")
    result = inbox.run("consume", "orders", "--stop-when-empty")
    assert result.returncode == 1
    assert "orders" in result.stderr and inbox.vhost in result.stderr
    inbox.declare_queue("orders")


@pytest.mark.alike
def test_refused_access_is_named(inbox):
    name = f"user-{uuid.uuid4().hex[:8]}"
    worlds.control("add_user", name, "secret")
    try:
        worlds.control("set_permissions", "-p", inbox.vhost, name,
                       "^$", "^$", "^$")
        text = inbox.config_path.read_text()
        inbox.write_config(text.replace("guest:guest", f"{name}:secret"))
        consumer = inbox.start_consumer()
        said = consumer.wait_for("(?s).*queue orders.*").group()
        assert "read" in said and inbox.vhost in said
        assert "secret" not in said
    finally:
        worlds.control("delete_user", name)


def test_a_syntax_error_in_sql_is_found_before_a_message_is_spent(inbox):
    set_handler(inbox, ":body FROM WHERE")
    check = inbox.run("config", "check")
    assert check.returncode == 3
    assert "handlers.order.placed.sql" in check.stdout
    put_good(inbox, 10)
    consumer = inbox.start_consumer()
    shops.until(lambda: "order.placed" in consumer.log() or
                not consumer.is_running(), consumer.log)
    if consumer.is_running():
        consumer.stop()
    assert failed_reasons(inbox) == []
    set_handler(inbox, NUMBER[inbox.database.dialect])
    consume(inbox)
    assert handled(inbox) == list(range(10))
