"""A small AMQP 0-9-1 client of the tests' own: what is on the wire is looked at
byte by byte, without a library.

    with Client(url, vhost) as client:
        client.declare_queue("orders")
        for message in client.take_all("orders"):
            message.exchange, message.properties, message.headers, message.body
        client.publish("", "orders", b"{}", {"type": ("S", "order.placed")})
        client.confirm()
"""
import socket
import struct
import urllib.parse

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
PROPERTIES = [
    "content_type", "content_encoding", "headers", "delivery_mode",
    "priority", "correlation_id", "reply_to", "expiration", "message_id",
    "timestamp", "type", "user_id", "app_id", "cluster_id"]
# How a field of a table is read: its letter, its struct, or None for text.
NUMBERS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I",
           "l": ">q", "L": ">Q", "f": ">f", "d": ">d", "T": ">Q"}


class Refused(Exception):
    """The server closed the channel or the connection."""


class Message:
    def __init__(self, exchange, routing_key, properties, body):
        self.exchange = exchange
        self.routing_key = routing_key
        # Names to values, in the order of the wire; only those that are set.
        self.properties = properties
        # Names to (letter, value), in the order of the wire.
        self.typed_headers = properties.pop("headers", {})
        self.body = body

    @property
    def headers(self):
        return {name: value for name, (_, value)
                in self.typed_headers.items()}


def short_text(text):
    encoded = text.encode()
    return struct.pack(">B", len(encoded)) + encoded


def long_text(text):
    encoded = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">I", len(encoded)) + encoded


def field(letter, value):
    """A value of a table as it stands on the wire, whatever it says."""
    if letter in NUMBERS:
        value = struct.pack(NUMBERS[letter], value)
    elif letter in "Sx":
        value = long_text(value)
    elif letter == "t":
        value = bytes([value])
    elif letter == "F":
        value = table(value)
    elif letter == "A":
        value = long_text(b"".join(field(*item) for item in value))
    elif letter == "D":
        value = struct.pack(">Bi", *value)
    else:
        assert letter == "V" and value is None
        value = b""
    return letter.encode() + value


def table(fields):
    """fields: names, texts or bytes, to (letter, value)."""
    return long_text(b"".join(
        struct.pack(">B", len(name)) + name + field(*value)
        for name, value in ((name if isinstance(name, bytes)
                             else name.encode(), value)
                            for name, value in fields.items())))


def write_properties(properties):
    """headers: as table() has them; the others texts and numbers."""
    flags, values = 0, b""
    for bit, name in enumerate(PROPERTIES):
        if name not in properties:
            continue
        flags |= 1 << 15 - bit
        value = properties[name]
        if name == "headers":
            values += table(value)
        elif name in ("delivery_mode", "priority"):
            values += struct.pack(">B", value)
        elif name == "timestamp":
            values += struct.pack(">Q", value)
        else:
            values += short_text(value)
    return struct.pack(">H", flags) + values


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        piece = self.data[self.at:self.at + size]
        assert len(piece) == size, "the frame is too short"
        self.at += size
        return piece

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def short_text(self):
        return self.take(self.number(">B")).decode()

    def table(self):
        inside = Reader(self.take(self.number(">I")))
        fields = {}
        while inside.at < len(inside.data):
            name = inside.short_text()
            assert name not in fields, f"header {name} twice"
            fields[name] = inside.field()
        return fields

    def field(self):
        letter = self.take(1).decode()
        if letter in NUMBERS:
            return letter, self.number(NUMBERS[letter])
        if letter in "Sx":
            return letter, self.take(self.number(">I")).decode()
        if letter == "t":
            return letter, self.number(">B") != 0
        if letter == "F":
            return letter, self.table()
        if letter == "A":
            inside = Reader(self.take(self.number(">I")))
            fields = []
            while inside.at < len(inside.data):
                fields.append(inside.field())
            return letter, fields
        assert letter == "V", f"a field of kind {letter!r}"
        return letter, None


def read_properties(reader):
    flags = reader.number(">H")
    found = {}
    for bit, name in enumerate(PROPERTIES):
        if not flags & 1 << 15 - bit:
            continue
        if name == "headers":
            found[name] = reader.table()
        elif name in ("delivery_mode", "priority"):
            found[name] = reader.number(">B")
        elif name == "timestamp":
            found[name] = reader.number(">Q")
        else:
            found[name] = reader.short_text()
    return found


class Client:
    """One connection with one channel."""

    def __init__(self, url, vhost=None):
        parts = urllib.parse.urlsplit(url)
        if vhost is None:
            vhost = urllib.parse.unquote(parts.path[1:])
        self.link = socket.create_connection((parts.hostname, parts.port), 60)
        self.unread = b""
        self.link.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(10, 10)
        login = f"\0{parts.username}\0{parts.password}"
        self.send(10, 11, struct.pack(">I", 0) + short_text("PLAIN") +
                  long_text(login) + short_text("en_US"), channel=0)
        tune = self.expect(10, 30)
        limits = tune.take(6)
        self.frame_max = struct.unpack(">HI", limits)[1]
        self.send(10, 31, limits + struct.pack(">H", 0), channel=0)
        self.send(10, 40, short_text(vhost) + b"\0\0", channel=0)
        self.expect(10, 41)
        self.open_channel()

    def open_channel(self):
        self.ask(20, 10, b"\0", 11)
        self.published = 0  # 0: the channel does not confirm
        self.unconfirmed = set()

    def close(self):
        self.link.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def declare_exchange(self, name, kind="topic"):
        self.ask(40, 10, b"\0\0" + short_text(name) + short_text(kind) +
                 b"\2" + struct.pack(">I", 0), 11)

    def delete_exchange(self, name):
        self.ask(40, 20, b"\0\0" + short_text(name) + b"\0", 21)

    def declare_queue(self, name, passive=False, arguments=()):
        """How many messages wait in it. arguments: names and texts or
        numbers."""
        fields = b"".join(
            short_text(key) + (b"l" + struct.pack(">q", value)
                               if isinstance(value, int)
                               else b"S" + long_text(value))
            for key, value in dict(arguments).items())
        answer = self.ask(50, 10, b"\0\0" + short_text(name) +
                          (b"\1" if passive else b"\2") + long_text(fields),
                          11)
        answer.short_text()
        return answer.number(">I")

    def bind(self, queue, exchange, key):
        self.ask(50, 20, b"\0\0" + short_text(queue) + short_text(exchange) +
                 short_text(key) + b"\0" + struct.pack(">I", 0), 21)

    def unbind(self, queue, exchange, key):
        self.ask(50, 50, b"\0\0" + short_text(queue) + short_text(exchange) +
                 short_text(key) + struct.pack(">I", 0), 51)

    def delete_queue(self, name):
        self.ask(50, 40, b"\0\0" + short_text(name) + b"\0", 41)

    def count(self, queue):
        return self.declare_queue(queue, passive=True)

    def take(self, queue):
        """The next message, which leaves the queue; None: it is empty."""
        self.send(60, 70, b"\0\0" + short_text(queue) + b"\1")
        method, answer = self.next_method()
        if method == (60, 72):
            return None
        assert method == (60, 71), f"{method} after basic.get"
        answer.take(9)
        exchange, key = answer.short_text(), answer.short_text()
        kind, payload = self.next_frame()
        assert kind == HEADER
        header = Reader(payload)
        header.take(4)
        size = header.number(">Q")
        properties = read_properties(header)
        body = b""
        while len(body) < size:
            kind, payload = self.next_frame()
            assert kind == BODY
            body += payload
        return Message(exchange, key, properties, body)

    def take_all(self, queue):
        taken = []
        while (message := self.take(queue)) is not None:
            taken.append(message)
        return taken

    def publish(self, exchange, key, body, headers=(), **properties):
        """Hands a durable message over; confirm() waits for the server."""
        if self.published == 0:
            self.ask(85, 10, b"\0", 11)
        self.published += 1
        self.unconfirmed.add(self.published)
        given = {"delivery_mode": 2, "headers": dict(headers), **properties}
        method = struct.pack(">HHH", 60, 40, 0) + short_text(exchange) + \
            short_text(key) + b"\1"
        header = struct.pack(">HHQ", 60, 0, len(body)) + \
            write_properties(given)
        frames = [(METHOD, method), (HEADER, header)]
        size = self.frame_max - 8
        frames += [(BODY, body[at:at + size])
                   for at in range(0, len(body), size)]
        self.link.sendall(b"".join(
            struct.pack(">BHI", kind, 1, len(payload)) + payload + FRAME_END
            for kind, payload in frames))

    def confirm(self):
        """Waits until the server has stored all that was published; due
        before anything else is asked. Refused: it has no queue for it, or
        cannot store it."""
        while self.unconfirmed:
            answer = self.expect(60, 80)
            tag, multiple = answer.number(">Q"), answer.number(">B")
            if multiple:
                self.unconfirmed = {other for other in self.unconfirmed
                                    if other > tag}
            self.unconfirmed.discard(tag)

    def ask(self, group, method, arguments, answer):
        self.send(group, method, arguments)
        return self.expect(group, answer)

    def send(self, group, method, arguments, channel=1):
        payload = struct.pack(">HH", group, method) + arguments
        self.link.sendall(struct.pack(">BHI", METHOD, channel, len(payload)) +
                          payload + FRAME_END)

    def expect(self, group, method):
        found, answer = self.next_method()
        if found == (20, 40):
            code, text = answer.number(">H"), answer.short_text()
            self.send(20, 41, b"")
            self.open_channel()
            raise Refused(f"{code} {text}")
        if found == (10, 50):
            raise Refused(f"{answer.number('>H')} {answer.short_text()}")
        if found in ((60, 50), (60, 120)):
            raise Refused("a message was returned or refused")
        assert found == (group, method), f"{found}, not {(group, method)}"
        return answer

    def next_method(self):
        kind, payload = self.next_frame()
        assert kind == METHOD, f"a frame of kind {kind}"
        answer = Reader(payload)
        return (answer.number(">H"), answer.number(">H")), answer

    def next_frame(self):
        while True:
            kind, _, size = struct.unpack(">BHI", self.read(7))
            payload = self.read(size)
            assert self.read(1) == FRAME_END
            if kind != HEARTBEAT:
                return kind, payload

    def read(self, size):
        while len(self.unread) < size:
            piece = self.link.recv(1 << 16)
            if not piece:
                raise Refused("the server closed the connection")
            self.unread += piece
        piece, self.unread = self.unread[:size], self.unread[size:]
        return piece
