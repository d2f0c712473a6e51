"""Taking over from Symfony on RabbitMQ: what its serializers wrote into the
outbox leaves as its own amqp transport would send it, so that consumers need
not know who relays."""
import json
import time

import pytest

import symfony_rows as symfony

pytestmark = pytest.mark.alike

TYPES = """\
message_broker:
    inbox:
        message_types:
            order.placed: 'App\\Event\\OrderPlaced'
"""


def send(world, body, headers, types=TYPES):
    """The one message that arrives."""
    world.write_config(world.config_path.read_text() + types)
    world.set_up()
    world.write((body, headers))
    before = int(time.time())
    world.relay_all()
    assert world.failed() == []
    message, = world.take_all()
    assert before <= message.properties["timestamp"] <= time.time()
    return message


def expect_properties(message, message_id):
    """Symfony sets the first three; the other two are for consumers that look
    for ids and names where the protocol has them."""
    properties = dict(message.properties)
    properties.pop("timestamp")
    assert properties == {
        "content_type": "application/json", "delivery_mode": 2,
        "message_id": message_id, "type": symfony.NAME}
    assert {letter for letter, _ in message.typed_headers.values()} == {"S"}
    assert (message.exchange, message.routing_key) == \
        ("order.placed", "order.placed")


def stamp(member, value):
    """As PHP's json_encode writes it."""
    return json.dumps([{member: value}], separators=(",", ":"))


@pytest.mark.parametrize("kind", symfony.HEADERS)
def test_row_of_symfonys_serializer(world, kind):
    message = send(world, symfony.BODIES[kind], symfony.HEADERS[kind])
    assert message.body == symfony.BODIES[kind].encode()
    assert message.headers == {
        "type": symfony.NAME,
        "X-Message-Class": symfony.CLASS,
        symfony.ID_STAMP: stamp("messageId", symfony.IDS[kind]),
        "X-Message-Id": symfony.IDS[kind]}
    expect_properties(message, symfony.IDS[kind])


@pytest.mark.parametrize("kind", ["stamped", "named"])
def test_row_of_freyrs_bundle_needs_no_map_of_types(world, kind):
    body, message_id = symfony.BODIES["bus"], symfony.FREYR_IDS[kind]
    message = send(world, body, symfony.FREYR_HEADERS[kind], types="")
    assert message.body == body.encode()
    assert message.headers == {
        "type": symfony.NAME,
        "X-Message-Class": symfony.CLASS,
        symfony.FREYR_ID_STAMP: stamp("messageId", message_id),
        symfony.NAME_STAMP: stamp("messageName", symfony.NAME),
        "X-Message-Id": message_id}
    expect_properties(message, message_id)


def test_ulid_and_partition_key_of_an_ordered_row(world):
    """The key is the outbox's business; the ULID stays one in its stamp, and
    is the same sixteen bytes as a UUID elsewhere."""
    message = send(world, "{}", symfony.FREYR_HEADERS["ordered"], types="")
    assert symfony.PARTITION_STAMP not in message.headers
    assert message.headers[symfony.FREYR_ID_STAMP] == \
        stamp("messageId", symfony.ULID)
    assert message.properties["message_id"] == ulid_as_uuid(symfony.ULID)
    assert message.headers["X-Message-Id"] == ulid_as_uuid(symfony.ULID)


def ulid_as_uuid(ulid):
    number = 0
    for letter in ulid:
        number = number * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(letter)
    digits = f"{number:032x}"
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20],
                     digits[20:]])


def test_body_that_is_no_json_object_passes_untouched(world):
    body = "caf\u00e9 \U0001f600 'quoted' \\ <tag>\r\n\ttab"
    message = send(world, body, json.dumps(
        {"type": "order.placed", "Content-Type": "text/plain"}))
    assert message.body == body.encode()
    assert message.properties["content_type"] == "text/plain"
    assert "Content-Type" not in message.headers


def test_class_without_a_name_goes_to_the_transports_exchange(world):
    """As Symfony would send it: nothing translates it."""
    world.set_config(replace=[(
        "    amqp: '", "    amqp:\n        options: {exchange: {name: "
        "order.placed}}\n        dsn: '")])
    world.set_up()
    world.declare_queue("all", "order.placed")
    world.write((symfony.BODIES["plain"], symfony.HEADERS["plain"]))
    world.relay_all()
    message, = world.take_all("all")
    assert message.routing_key == symfony.CLASS
    assert message.headers["type"] == symfony.CLASS
    assert "X-Message-Class" not in message.headers


def test_class_without_a_name_or_an_exchange_fails_with_the_cure(world):
    world.set_up()
    world.write((symfony.BODIES["plain"], symfony.HEADERS["plain"]))
    world.relay_all()
    (body, headers, queue), = world.failed()
    assert body == symfony.BODIES["plain"]
    assert headers["type"] == symfony.CLASS and queue == "failed"
    reason = json.loads(headers[symfony.ERROR_STAMP])[0]["exceptionMessage"]
    assert "message_types" in reason and "exchange.name" in reason


def test_php_serialised_rows_stay_for_php(world):
    world.set_up()
    world.write(*((body, symfony.PHP_HEADERS) for body in symfony.PHP_BODIES))
    world.insert(10)
    relay = world.start_relay()
    relay.wait_for(r"relay\.foreign_rows.*serializer")
    assert relay.stop() == 0
    assert world.left() == len(symfony.PHP_BODIES)
    assert len(world.take_all()) == 10
    assert world.failed() == []
