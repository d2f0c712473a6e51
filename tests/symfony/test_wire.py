"""What Symfony writes arrives at Symfony when Skirnir carries it, and what
either publishes is handled by the other: class, stamps, id and body."""
import json

import peer as peers
import pytest

COUNT, KEYS = 20, 3
PLACED_AT = "2026-11-15T02:45:00+00:00"
NOTE = "h\u00e9llo \U0001f600 \"quoted\" \\ / <tag> \u2028 "


# Where a handler of Skirnir's keeps all that it is given.
SEEN = """\
        sql: >-
            INSERT INTO seen VALUES (:id_text, :name, :partition_key, :body,
            :headers)
"""


def expect_handled(handled, ids, namespace=peers.INBOX, has_name=False):
    """By Symfony's handler, each as it was sent, and of the bundle's stamps with
    those of the id and of the name, once each and as they were. The partition
    key's is for the relay and stays there, with the bundle as here."""
    assert {line["order"]["orderId"]: line["id"] for line in handled} == ids
    assert len(handled) == len(ids)
    for line in handled:
        number = line["order"]["number"]
        assert line["class"] == peers.CLASS
        assert line["order"]["orderId"] == f"order-{number}"
        assert line["order"]["total"] == pytest.approx(number / 7, abs=1e-15)
        assert line["order"]["note"] == NOTE + str(number)
        assert line["placedAt"] == PLACED_AT
        expected = {namespace + r"\MessageIdStamp":
                    [{"messageId": ids[f"order-{number}"]}]}
        if has_name:
            expected[peers.CONTRACTS + r"\MessageNameStamp"] = [
                {"messageName": peers.NAME}]
        assert {name: stamps for name, stamps in line["stamps"].items()
                if name.startswith("Freyr")} == expected


def test_symfony_writes_skirnir_relays_symfony_handles(any_peer):
    any_peer.set_up()
    ids = any_peer.send(COUNT, f"--key={KEYS}", f"--name={peers.NAME}")
    any_peer.relay_all()
    handled = any_peer.work("orders", COUNT)
    expect_handled(handled, ids, has_name=True)
    numbers = [line["order"]["number"] for line in handled]
    if any_peer.ordered:
        for key in range(KEYS):
            own = [number for number in numbers if number % KEYS == key]
            assert own == sorted(own)
    assert any_peer.left() == 0 and any_peer.failed() == []


def test_classes_without_names_arrive_at_a_plain_symfony(peer):
    """No map of types on either side: `type` is the class from end to end."""
    peer.plain = True
    peer.set_config()
    peer.set_up()
    ids = peer.send(COUNT)
    peer.relay_all()
    expect_handled(peer.work("orders", COUNT), ids)


def keep_what_is_seen(peer):
    handler = peers.CONFIG[peers.CONFIG.index("        sql: >-"):]
    peer.set_config(replace=[(handler.format(
        order_id=peers.ORDER_ID[peer.database.dialect]), SEEN)])
    peer.set_up()
    text = "LONGTEXT CHARACTER SET utf8mb4" \
        if peer.database.dialect == "mysql" else "TEXT"
    peer.ask("CREATE TABLE seen (id VARCHAR(36), name VARCHAR(60), "
             f"partition_key VARCHAR(60), body {text}, headers {text})")


def expect_seen(peer, ids, note):
    """By Skirnir's handler, each once and as Symfony sent it."""
    rows = [line.split("\t") for line in
            peer.ask("SELECT id, name, COALESCE(partition_key, ''), body, "
                     "headers FROM seen").split("\n")]
    assert sorted(row[0] for row in rows) == sorted(ids.values())
    for number, row_id in enumerate(ids.values()):
        _, name, key, body, headers = next(row for row in rows
                                           if row[0] == row_id)
        order = json.loads(body)
        assert (name, order["orderId"], order["number"], order["note"]) == (
            peers.NAME, f"order-{number}", number, note(number))
        assert order["total"] == pytest.approx(number / 7, abs=1e-15)
        headers = json.loads(headers)
        assert headers["X-Message-Class"] == peers.CLASS
        assert headers["Content-Type"] == "application/json"
        stamps = {name: json.loads(value) for name, value in headers.items()
                  if name.startswith("X-Message-Stamp-Freyr")}
        # The partition key stays with the relay.
        assert stamps == {rf"X-Message-Stamp-{peers.INBOX}\MessageIdStamp":
                          [{"messageId": row_id}]}
        assert key == ""


def test_symfony_publishes_skirnir_handles(peer):
    keep_what_is_seen(peer)
    ids = peer.publish(COUNT)
    peer.consume()
    expect_seen(peer, ids, lambda number: "\U0001f600")
    assert peer.deduplicated() == set(ids.values())


def test_symfony_writes_skirnir_relays_and_handles(any_peer):
    """Of a plain outbox and of an ordered one."""
    keep_what_is_seen(any_peer)
    ids = any_peer.send(COUNT, f"--key={KEYS}")
    any_peer.relay_all()
    any_peer.consume()
    expect_seen(any_peer, ids, lambda number: NOTE + str(number))
    assert any_peer.deduplicated() == set(ids.values())


def test_skirnir_publishes_symfonys_worker_relays_skirnir_handles(any_peer):
    """Through the outbox, too, in the other direction."""
    any_peer.set_up()
    key = ["--partition-key=customer-1"] if any_peer.ordered else []
    ids = {any_peer.check(
        "publish", "order.placed", *key, "--body",
        json.dumps({"orderId": f"order-{number}"})).strip()
        for number in range(COUNT)}
    any_peer.work("outbox", COUNT)
    any_peer.consume()
    assert any_peer.effects() == [
        (f"order-{number}", "skirnir")
        for number in sorted(range(COUNT), key=str)]
    assert any_peer.deduplicated() == ids


@pytest.mark.parametrize("relay", ["skirnir", "symfony"])
def test_skirnir_publishes_symfony_handles(any_peer, relay):
    """Whichever of the two relays it."""
    any_peer.set_up()
    ids = {}
    for number in range(COUNT):
        key = [f"--partition-key=customer-{number % KEYS}"] \
            if any_peer.ordered else []
        order = {"orderId": f"order-{number}", "number": number,
                 "total": number / 7, "note": NOTE + str(number),
                 "placedAt": PLACED_AT}
        ids[order["orderId"]] = any_peer.check(
            "publish", "order.placed", *key, "--body",
            json.dumps(order)).strip()
    if relay == "skirnir":
        any_peer.relay_all()
    else:
        any_peer.work("outbox", COUNT)
    expect_handled(any_peer.work("orders", COUNT), ids,
                   peers.CONTRACTS if any_peer.ordered else peers.INBOX)
    assert any_peer.deduplicated() == set(ids.values())
    assert any_peer.failed() == []
