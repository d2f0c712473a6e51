"""skirnir publish: what it writes, and what it refuses to write."""
import json
import os
import re
import time
import uuid

import pytest

import shop as shops

UUID_V7 = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
GIVEN = "01932b6e-7c00-7000-8000-000000000001"


def rows(shop):
    return shop.query("shop", "SELECT body, headers, queue_name, created_at, "
                      "available_at, delivered_at FROM messenger_outbox "
                      "ORDER BY id")


def only_row(shop):
    (body, headers, queue, created_at, available_at, delivered_at), = \
        rows(shop)
    assert queue == "outbox" and delivered_at is None
    return body, json.loads(headers), created_at, available_at


def test_row_is_what_symfony_writes(shop):
    printed = shop.check("publish", "order.placed", "--body", '{"orderId":1}')
    assert UUID_V7.fullmatch(printed.strip())
    body, headers, created_at, available_at = only_row(shop)
    assert body == '{"orderId":1}'
    assert headers["type"] == "order.placed"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(headers[shops.ID_STAMP]) == \
        [{"messageId": printed.strip()}]
    assert created_at == available_at
    written = time.mktime(time.strptime(created_at, "%Y-%m-%d %H:%M:%S"))
    now = time.mktime(time.gmtime())
    assert abs(now - written) < 60, "the time is UTC"


def test_ids_differ_and_grow(shop):
    ids = [shop.check("publish", "order.placed", "--body", "{}").strip()
           for _ in range(5)]
    assert len(set(ids)) == 5 and ids == sorted(ids)


@pytest.mark.parametrize("body", [
    "plain text", '{"note":"h\u00e9llo \U0001f600 \\"quoted\\" \\\\"}', "",
    "line\nline\r\n\ttab", "-- DROP TABLE orders; '", "x" * 100000])
def test_body_is_kept_as_it_is(shop, body):
    shop.check("publish", "order.placed", f"--body={body}",
               "--content-type=text/plain")
    assert only_row(shop)[0] == body


@pytest.mark.parametrize("body, place", [
    ("{bad", "byte 1"), ("", "byte 0"), ('{"a":1}}', "byte 7"),
    ("@cut.json", "byte 6"), ("plain text", "byte 0")])
@pytest.mark.parametrize("content_type", [
    None, "application/json; charset=utf-8", "application/cloudevents+json"])
def test_a_body_that_is_no_json_is_refused_with_the_place(
        shop, body, place, content_type):
    shop.check("setup")
    (shop.folder / "cut.json").write_text('{"a":"')
    result = shop.run("publish", "order.placed", f"--body={body}", *(
        [f"--content-type={content_type}"] if content_type else []))
    assert result.returncode == 1
    assert "not JSON at " + place in result.stderr
    assert "--content-type" in result.stderr
    assert rows(shop) == []


def test_the_name_of_a_file_is_no_body(shop):
    result = shop.run("publish", "order.placed", "--body", "skirnir.yaml")
    assert result.returncode == 1
    assert "--body @skirnir.yaml" in result.stderr
    assert "--content-type" not in result.stderr


def test_nothing_from_standard_input_is_said(shop):
    result = shop.run("publish", "order.placed", "--body", "-", text_input="")
    assert result.returncode == 1
    assert "nothing came from standard input" in result.stderr


def test_body_from_a_file(shop):
    text = '{"orderId":"from a file"}\n'
    (shop.folder / "order.json").write_text(text)
    shop.check("publish", "order.placed", "--body", "@order.json")
    assert only_row(shop)[0] == text


def test_a_pipe_is_no_file_of_a_body(ready_shop):
    os.mkfifo(ready_shop.folder / "pipe")
    result = ready_shop.run("publish", "order.placed", "--body", "@pipe")
    assert result.returncode == 1
    assert "pipe: it is no regular file" in result.stderr
    assert "--body -" in result.stderr


def test_body_from_standard_input(shop):
    text = "{}" + " " * 200000
    shop.check("publish", "order.placed", "--body", "-", text_input=text)
    assert only_row(shop)[0] == text


def test_headers_and_content_type(shop):
    shop.check("publish", "order.placed", "--body", "{}",
               "--header", "X-Sum=00-ab=cd", "-H", "X-Empty=",
               "--content-type", "text/plain")
    headers = only_row(shop)[1]
    assert headers["X-Sum"] == "00-ab=cd"
    assert headers["X-Empty"] == ""
    assert headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize("given, kept", [
    (GIVEN, GIVEN),
    (GIVEN.upper(), GIVEN),
    # A ULID is the same 16 bytes in other letters.
    ("01JCNPWZ00E0080000000000N1", None),
    (str(uuid.UUID(int=1 << 127 | 5)), str(uuid.UUID(int=1 << 127 | 5))),
])
def test_given_id_is_kept(shop, given, kept):
    printed = shop.check("publish", "order.placed", "--body", "{}",
                         f"--id={given}").strip()
    assert uuid.UUID(printed)
    assert kept in (None, printed)
    headers = only_row(shop)[1]
    assert json.loads(headers[shops.ID_STAMP]) == [{"messageId": printed}]


def test_partition_key_is_refused_by_a_plain_outbox(shop):
    shop.check("setup")
    result = shop.run("publish", "order.placed", "--body", "{}", "-k",
                      "customer")
    assert result.returncode == 1
    assert "customer" in result.stderr
    assert "ordered-doctrine://" in result.stderr
    assert rows(shop) == []
    shop.check("publish", "order.placed", "--body", "{}", "-k", "")
    assert len(rows(shop)) == 1


def test_partition_key_travels_in_a_stamp(shop):
    shop.configure(replace=[("doctrine://default?table_name=messenger_outbox",
                             "ordered-doctrine://default?table_name="
                             "messenger_outbox")])
    shop.check("publish", "order.placed", "--body", "{}", "--partition-key", "customer")
    headers = only_row(shop)[1]
    stamp, = [value for name, value in headers.items()
              if name.endswith("PartitionKeyStamp")]
    assert json.loads(stamp) == [{"partitionKey": "customer"}]


def test_delay_is_a_due_time(shop):
    shop.check("publish", "order.placed", "--body", "{}", "--delay", "3600")
    (seconds,), = shop.query(
        "shop", "SELECT (julianday(available_at) - julianday(created_at)) "
        "* 86400 FROM messenger_outbox")
    assert 3599 <= round(seconds) <= 3601
    assert shop.relay_all().returncode == 0
    assert len(rows(shop)) == 1, "not due yet"


def test_result_as_json(shop):
    printed = json.loads(shop.check("publish", "order.placed", "--body", "{}",
                                    "--json"))
    assert UUID_V7.fullmatch(printed.pop("id"))
    assert printed == {"name": "order.placed", "transport": "outbox"}


def test_one_of_several_outboxes_is_chosen_by_name(shop):
    shop.configure(replace=[
        ("failure_transport:",
         "    second:\n"
         "        dsn: 'doctrine://default?table_name=messenger_outbox"
         "&queue_name=second'\n"
         "        relay_to: orders\n"
         "failure_transport:")])
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "--transport" in result.stderr
    shop.check("publish", "order.placed", "--body", "{}", "-t", "second")
    (queue,), = shop.query("shop", "SELECT queue_name FROM messenger_outbox")
    assert queue == "second"


# Values that no option can have are wrong usage.
@pytest.mark.parametrize("arguments, code, named", [
    (["order", "--body", "{}"], 1, "'order'"),
    (["Order.Placed", "--body", "{}"], 1, "'Order.Placed'"),
    (["order..placed", "--body", "{}"], 1, "'order..placed'"),
    (["order.placed ", "--body", "{}"], 1, "'order.placed '"),
    (["order.placed"], 2, "--body"),
    (["order.placed", "--body", "@missing.json"], 1, "missing.json"),
    (["order.placed", "--body", "@."], 1, "."),
    (["order.placed", "--body", "{}", "--id", "17"], 2, "'17'"),
    (["order.placed", "--body", "{}", "--id", GIVEN[:-1]], 2, GIVEN[:-1]),
    (["order.placed", "--body", "{}", "--delay", "soon"], 2, "--delay=soon"),
    (["order.placed", "--body", "{}", "--header", "novalue"], 2, "novalue"),
    (["order.placed", "--body", "{}", "--header", "=x"], 2, "=x"),
    (["order.placed", "--body", "{}", "--transport", "orders"], 1, "orders"),
    (["order.placed", "--body", "{}", "--transport", "nowhere"], 1,
     "nowhere"),
    (["order.placed", "--body", "@broken"], 1, "UTF-8"),
    (["order.placed", "--body", "@zero"], 1, "body"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_message_is_named_and_not_written(shop, arguments, code, named):
    shop.check("setup")
    (shop.folder / "broken").write_bytes(b'{"name":"\xff\xfe"}')
    (shop.folder / "zero").write_bytes(b'{"name":"\0"}')
    result = shop.run("publish", *arguments)
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("skirnir publish: ")
    assert named in result.stderr
    assert rows(shop) == []


def test_bad_bytes_on_the_command_line_are_not_written(shop):
    shop.check("setup")
    for arguments in ([b"order.placed", b"--body", b"\xff"],
                      [b"order.placed", b"--body", b"{}", b"-H", b"a=\xff"],
                      [b"order.placed", b"--body", b"{}", b"-k", b"\xc3"],
                      [b"order.pl\xffced", b"--body", b"{}"]):
        result = shop.run_bytes("publish", *arguments)
        assert result.returncode in (1, 2)
        assert b"UTF-8" in result.stderr or b"order.pl" in result.stderr
    assert rows(shop) == []


def test_database_that_cannot_be_opened_is_named(shop):
    shop.configure(replace=[(str(shop.path("shop")), "/missing/shop.db")])
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "/missing/" in result.stderr
    assert result.stdout == ""


def test_missing_table_is_made_only_where_allowed(shop):
    shop.configure(replace=[
        ("queue_name=outbox'", "queue_name=outbox&auto_setup=false'")])
    shop.open("shop").execute("CREATE TABLE orders (order_id)")
    result = shop.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "messenger_outbox" in result.stderr
    assert "skirnir setup" in result.stderr


def test_a_trace_is_kept_in_the_headers(shop):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    shop.check("publish", "order.placed", "--body", "{}",
               "--traceparent", parent, "--tracestate", "congo=t61")
    headers = only_row(shop)[1]
    assert headers["traceparent"] == parent
    assert headers["tracestate"] == "congo=t61"


@pytest.mark.parametrize("given", [
    ["--traceparent", "00-ab"], ["--header", "traceparent=00-ab"],
    ["--tracestate", "congo=t61"]])
def test_a_malformed_trace_is_refused(shop, given):
    result = shop.run("publish", "order.placed", "--body", "{}", *given)
    assert result.returncode == 1
    assert "traceparent" in result.stderr
