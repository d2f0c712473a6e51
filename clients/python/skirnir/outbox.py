# SPDX-License-Identifier: MIT
"""Publishing: a message becomes a row in the caller's transaction, the same
row, to the byte, that skr_publish() of the C library writes."""
import json
import os
import re
import threading
import time
import uuid

from .database import SkirnirError, check_engine, insert, kind_of, table_name

NAMESPACE = "Freyr\\MessageBroker\\Inbox"
UNSET = "00000000-0000-0000-0000-000000000000"
ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LONGEST_HEADERS = 1024 * 1024  # bytes
MOST_HEADERS = 993
_lock = threading.Lock()
_last = 0


def _renew_lock():
    """A thread that held it is not there in a child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def new_id():
    """A UUID version 7. Ids of one process are ascending."""
    global _last
    random = os.urandom(10)
    start = int.from_bytes(random[:2], "big") & 0x3ff
    with _lock:
        _last = max((time.time_ns() // 1_000_000 << 12) | start, _last + 1)
        number = _last
    value = (number >> 12 << 80 | 7 << 76 | (number & 0xfff) << 64 | 2 << 62
             | int.from_bytes(random[2:], "big") >> 2)
    return str(uuid.UUID(int=value))


def read_id(text):
    """The canonical text of a UUID or a ULID."""
    if re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return text.lower()
    if re.fullmatch(f"[0-7][{ULID}]{{25}}", text.upper(), re.A) and \
            text.isascii():
        value = 0
        for letter in text.upper():
            value = value << 5 | ULID.index(letter)
        return str(uuid.UUID(int=value))
    raise SkirnirError(f"message id '{text}' is neither a UUID nor a ULID")


def is_text(text):
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text


def has_control(text):
    return re.search("[\x00-\x1f\x7f]", text) is not None


def to_json(value):
    """A ValueError for what JSON has no word for, such as a NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False,
                      separators=(",", ":"))


def check_name(name):
    word = "[a-z][a-z0-9]*"
    if not isinstance(name, str) or len(name) > 255 or \
            not re.fullmatch(rf"{word}(\.{word})+", name, re.A):
        raise SkirnirError(f"message name '{name}': words of lower case "
                           "letters and digits, joined by dots, are needed; "
                           "order.placed would do")


def check_headers(name, headers):
    if len(headers) > MOST_HEADERS:
        raise SkirnirError(f"message {name} has more than {MOST_HEADERS} "
                           "headers")
    for header, value in headers.items():
        if not header or not isinstance(value, str):
            raise SkirnirError(f"message {name}: header '{header}' has no "
                               "name or no value")
        if has_control(header):
            raise SkirnirError(f"message {name}: the name of header "
                               f"{header!r} holds a control character")
        if header in ("type", "Content-Type", "X-Message-Id") or \
                re.match("X-Message-Stamp-.*(MessageIdStamp|PartitionKeyStamp)"
                         r"\Z", header, re.S):
            raise SkirnirError(f"message {name}: header '{header}' is written "
                               "by the library")
        if not is_text(header) or not is_text(value):
            raise SkirnirError(f"message {name}: header '{header}' is not "
                               "UTF-8")
    check_trace(name, headers.get("traceparent"), headers.get("tracestate"))


def check_trace(name, parent, state):
    if parent is not None and (
            not re.match("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})"
                         r"[0-9a-f]{16}-[0-9a-f]{2}(\Z|-)", parent)
            or parent.startswith("00") and len(parent) != 55):
        raise SkirnirError(f"message {name}: traceparent is '{parent}'")
    if state is None:
        return
    if parent is None:
        raise SkirnirError(f"message {name}: tracestate means nothing without "
                           "a traceparent")
    members = state.split(",")
    if len(members) > 32 or not re.fullmatch("[\t -~]*", state) or \
            any(member.strip(" \t") and member.lstrip(" \t").find("=") < 1
                for member in members):
        raise SkirnirError(f"message {name}: tracestate is '{state}'")


class Outbox:
    """A table, and a queue in it. `ordered`: it has partition keys. `kafka`:
    it is the table of `skirnir kafka-relay`. May be shared by threads."""

    def __init__(self, table=None, queue="outbox", ordered=False, kafka=False,
                 topic=None, stamp_namespace=NAMESPACE):
        self.table = table or ("kafka_outbox" if kafka else "messenger_outbox")
        self.queue, self.ordered, self.kafka = queue, ordered, kafka
        self.topic, self.stamp_namespace = topic, stamp_namespace
        self.is_checked = False
        if not 0 < len(queue.encode()) <= 190 or not is_text(queue):
            raise SkirnirError(f"queue name '{queue}': 1 to 190 bytes of UTF-8 "
                               "text are needed")
        if topic is not None and (
                not kafka or not re.fullmatch("[A-Za-z0-9._-]{1,249}", topic)):
            raise SkirnirError(f"topic '{topic}': 1 to 249 letters, digits, "
                               "dots, underscores and hyphens are needed, in a "
                               "kafka_outbox only")

    def publish(self, connection, name, body, *, key=None, headers=None,
                id=None, delay=0, content_type="application/json"):
        """Adds a message in the caller's transaction, and returns its id. The
        relay sees it if and only if that commits.

        body: text is sent as it is, anything else as JSON. key: the partition
        key. headers: further ones, by name. delay: seconds, at least, until it
        is sent."""
        kind = kind_of(connection)
        table = table_name(kind, self.table)
        if not kind.may_publish(connection):
            raise SkirnirError("the connection is in autocommit: begin a "
                               "transaction first, and commit it afterwards")
        id = read_id(str(UNSET if id is None else id))
        if id == UNSET:
            id = new_id()
        if isinstance(body, (bytes, bytearray)):
            body = bytes(body).decode("utf-8", "surrogateescape")
        elif not isinstance(body, str):
            body = to_json(body)
        headers = dict(headers or {})
        self.check(name, body, key, headers, delay, content_type)
        text = to_json(self.all_headers(name, id, key, headers, content_type))
        if len(text.encode()) > LONGEST_HEADERS:
            raise SkirnirError(f"message {name}: the headers have over "
                               f"{LONGEST_HEADERS} bytes")
        if not self.is_checked:
            check_engine(connection, kind, self.table)
            self.is_checked = True
        self.insert(connection, kind, table, [name, id, key, body, text, delay])
        return id

    def check(self, name, body, key, headers, delay, content_type):
        check_name(name)
        if not is_text(body):
            raise SkirnirError(f"message {name}: the body is not UTF-8 text, "
                               "or holds a zero byte")
        if key is not None and (not is_text(key) or len(key.encode()) > 255):
            raise SkirnirError(f"message {name}: the partition key is over 255 "
                               "bytes, or not UTF-8 text")
        if not content_type or not is_text(content_type) or \
                has_control(content_type):
            raise SkirnirError(f"message {name}: the content type is empty, or "
                               "not UTF-8 text, or holds a control character")
        check_headers(name, headers)
        if self.kafka:
            self.check_kafka(name, body, delay)
        elif self.ordered and key is None:
            raise SkirnirError(f"message {name} has no partition key, which "
                               "this ordered outbox needs")
        elif not self.ordered and key:
            raise SkirnirError(f"message {name} has the partition key '{key}', "
                               "but this outbox keeps no order")
        if delay < 0:
            raise SkirnirError(f"message {name}: the delay is negative")

    @staticmethod
    def check_kafka(name, body, delay):
        if delay:
            raise SkirnirError(f"message {name} has a due time, which "
                               "kafka_outbox does not know")

        def refuse(word):
            raise ValueError(word)
        try:
            json.loads(body, parse_constant=refuse)
        except ValueError as error:
            raise SkirnirError(f"message {name}: its body must be JSON: "
                               f"{error}") from None

    def all_headers(self, name, id, key, headers, content_type):
        stamps = {}
        if self.stamp_namespace:
            stamp = f"X-Message-Stamp-{self.stamp_namespace}\\"
            stamps[stamp + "MessageIdStamp"] = to_json([{"messageId": id}])
        result = {"type": name, **stamps, "X-Message-Id": id}
        if self.stamp_namespace and key is not None:
            result[stamp + "PartitionKeyStamp"] = to_json(
                [{"partitionKey": key}])
        return {**result, **headers, "Content-Type": content_type}

    def insert(self, connection, kind, table, message):
        name, id, key, body, headers, delay = message
        mark = kind.mark
        if self.kafka:
            row = {"topic": self.topic or name, "payload_json": body,
                   "payload_headers": headers, kind.quote.format("key"):
                   key or id}
            clock = {}
        else:
            row = {"body": body, "headers": headers, "queue_name": self.queue}
            if self.ordered:
                row["partition_key"] = key
            clock = {"created_at": kind.now, "available_at": kind.now}
        values = list(row.values())
        if delay:
            clock["available_at"] = kind.later.format(ms=mark)
            values.append(int(delay * 1000))
        insert(connection,
               f"INSERT INTO {table} ({', '.join([*row, *clock])}) VALUES ("
               f"{', '.join([mark] * len(row) + [*clock.values()])})",
               tuple(values))


def publish(connection, name, body, **message):
    """Into the queue `outbox` of the table `messenger_outbox`; an `Outbox`
    publishes elsewhere. See Outbox.publish()."""
    return _outbox.publish(connection, name, body, **message)


_outbox = Outbox()
