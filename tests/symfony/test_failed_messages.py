"""Failed messages are shown, retried and removed by either program, whichever
of them put them there, and a retry keeps the id."""
import json

import peer as peers
import pytest

ORDERS = ["order-0", "order-1", "order-2"]
CONDITION = "CONSTRAINT taken CHECK (order_id NOT LIKE 'order-%')"


def refuse_orders(peer):
    """What any handler writes is refused by the database."""
    peer.ask(f"ALTER TABLE effects ADD {CONDITION}")


def take_orders(peer):
    peer.ask("ALTER TABLE effects DROP CONSTRAINT taken")


def fail_in_consumer(peer):
    """Skirnir's consumer puts three there; their ids."""
    ids = peer.publish(len(ORDERS))
    refuse_orders(peer)
    peer.consume()
    take_orders(peer)
    return ids


def fail_in_relay(peer):
    """Skirnir's relay does: no queue takes them."""
    ids = peer.send(len(ORDERS))
    peer.client.delete_queue("orders")
    peer.set_config(replace=[("exchange: {name", "auto_setup: false\n"
                              "            exchange: {name")])
    peer.relay_all()
    peer.set_config()
    peer.check("setup-amqp")
    return ids


def fail_in_worker(peer):
    """Symfony's worker on the broker's queue does."""
    ids = peer.publish(len(ORDERS), "--note=refused")
    peer.php("messenger:consume", "orders", f"--limit={len(ORDERS)}",
             refuses=1)
    return ids


def fail_in_publishing(peer):
    """Symfony's worker on the outbox does."""
    ids = peer.send(len(ORDERS), "--note=refused")
    peer.php("messenger:consume", "outbox", f"--limit={len(ORDERS)}",
             refuses=1)
    return ids


# Where they fail, by whom, and what is told of it.
BY_SKIRNIR = {"orders": (fail_in_consumer, "taken"),
              "outbox": (fail_in_relay, "312")}
BY_SYMFONY = {"orders": (fail_in_worker, "the shop does not take this"),
              "outbox": (fail_in_publishing, "the broker is not to have this")}


def numbers(peer):
    """Of those that Skirnir lists, in the order in which they failed."""
    listed = json.loads(peer.check("failed", "show", "--json"))
    return [str(number) for number in sorted(row["number"] for row in listed)]


def expect_none(peer):
    """Nor is anything left that a retry would find. Symfony leaves rows that
    it has done with on MariaDB and MySQL, under a date far ahead."""
    assert numbers(peer) == []
    assert peers.CLASS not in peer.php("messenger:failed:show")
    peer.check("failed", "retry", "--all")
    assert json.loads(peer.check("stats", "--json"))["failed"] == 0


def words(text):
    """Without the lines into which a console breaks its tables."""
    return " ".join(text.split())


@pytest.mark.parametrize("transport", BY_SKIRNIR)
def test_symfony_shows_retries_and_removes_what_skirnir_failed(
        any_peer, transport):
    peer = any_peer
    fail, reason = BY_SKIRNIR[transport]
    peer.set_up()
    ids = fail(peer)
    first, second, third = numbers(peer)

    listed = peer.php("messenger:failed:show")
    assert listed.count(peers.CLASS) == len(ORDERS)
    shown = words(peer.php("messenger:failed:show", second, "-vv"))
    assert peers.CLASS in shown and transport in shown and reason in shown
    assert '+orderId: "order-1"' in shown or "order-1" in shown

    peer.php("messenger:failed:remove", third, "--force")
    peer.php("messenger:failed:retry", first, second, "--force")
    expect_none(peer)
    if transport == "outbox":
        peer.work("orders", 2)
    assert peer.effects() == [("order-0", "symfony"), ("order-1", "symfony")]
    assert peer.deduplicated() == {ids["order-0"], ids["order-1"]}


@pytest.mark.parametrize("transport", BY_SYMFONY)
def test_skirnir_shows_retries_and_removes_what_symfony_failed(
        any_peer, transport):
    peer = any_peer
    fail, reason = BY_SYMFONY[transport]
    peer.set_up()
    ids = fail(peer)
    first, second, third = numbers(peer)

    listed = json.loads(peer.check("failed", "show", "--json"))
    assert {str(row["number"]): row["id"] for row in listed} == {
        first: ids["order-0"], second: ids["order-1"], third: ids["order-2"]}
    assert {row["class"] for row in listed} == {peers.CLASS}
    assert all(reason in row["error"] for row in listed)
    shown = words(peer.check("failed", "show", second))
    assert peers.CLASS in shown and transport in shown and reason in shown
    assert "RuntimeException" in shown

    peer.check("failed", "remove", third, "--force")
    peer.check("failed", "retry", first, second)
    expect_none(peer)
    if transport == "outbox":
        peer.relay_all()
    peer.consume()
    assert peer.effects() == [("order-0", "skirnir"), ("order-1", "skirnir")]
    assert peer.deduplicated() == {ids["order-0"], ids["order-1"]}


def test_what_skirnir_sends_back_is_for_symfonys_worker_as_well(peer):
    """A retried row of the outbox is an ordinary row of the outbox."""
    peer.set_up()
    ids = fail_in_publishing(peer)
    peer.check("failed", "retry", "--all")
    peer.work("outbox", len(ORDERS))
    handled = peer.work("orders", len(ORDERS))
    assert {line["order"]["orderId"]: line["id"] for line in handled} == ids
    expect_none(peer)
