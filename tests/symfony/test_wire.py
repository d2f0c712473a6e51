"""What Symfony writes arrives at Symfony when Skirnir carries it, and what
either publishes is handled by the other: class, stamps, id and body."""
import json

import peer as peers
import pytest

COUNT, KEYS = 20, 3
PLACED_AT = "2026-11-15T02:45:00+00:00"
NOTE = "h\u00e9llo \U0001f600 \"quoted\" \\ / <tag> \u2028 "


def expect_handled(handled, ids, namespace=peers.INBOX):
    """By Symfony's handler, each as it was sent."""
    assert {line["order"]["orderId"]: line["id"] for line in handled} == ids
    assert len(handled) == len(ids)
    for line in handled:
        number = line["order"]["number"]
        assert line["class"] == peers.CLASS
        assert line["order"]["orderId"] == f"order-{number}"
        assert line["order"]["total"] == pytest.approx(number / 7, abs=1e-15)
        assert line["order"]["note"] == NOTE + str(number)
        assert line["placedAt"] == PLACED_AT
        assert namespace + r"\MessageIdStamp" in line["stamps"]


def test_symfony_writes_skirnir_relays_symfony_handles(any_peer):
    any_peer.set_up()
    ids = any_peer.send(COUNT, f"--key={KEYS}")
    any_peer.relay_all()
    handled = any_peer.work("orders", COUNT)
    expect_handled(handled, ids)
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


def test_symfony_publishes_skirnir_handles(peer):
    peer.set_up()
    ids = peer.publish(COUNT)
    peer.consume()
    assert peer.effects() == [(order, "skirnir") for order in sorted(ids)]
    assert peer.deduplicated() == set(ids.values())


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
