"""What lies in the outbox while one takes over from the other: rows that wait
for their time or for a retry, and those that PHP alone can read."""
import time

import peer as peers
import shop as shops

UNDONE = ("SELECT COUNT(*) FROM messenger_outbox WHERE delivered_at IS NULL "
          "OR delivered_at < '9999-01-01'")
DELAY_S = 3
# Symfony's columns have no fractions.
ROUNDED_S = 1


def undone(peer):
    """Without the rows that Symfony has done with and not yet deleted."""
    return int(peer.ask(UNDONE))


def relay_the_rest(peer):
    """Those that wait, when their time has come."""
    relay = peer.start_relay()
    shops.until(lambda: undone(peer) == 0, relay.log)
    assert relay.stop() == 0
    return relay


def expect_handled(peer, ids):
    handled = peer.work("orders", len(ids))
    assert {line["order"]["orderId"]: line["id"] for line in handled} == ids
    assert len(handled) == len(ids) and peer.failed() == []


def test_a_delay_of_symfonys_is_kept(peer):
    peer.set_up()
    began = time.monotonic()
    ids = peer.send(3, f"--delay={DELAY_S * 1000}")
    peer.relay_all()
    assert undone(peer) == len(ids)
    relay_the_rest(peer)
    assert time.monotonic() - began > DELAY_S - ROUNDED_S
    expect_handled(peer, ids)


def test_a_retry_of_symfonys_is_taken_over(peer):
    peer.set_up()
    ids = peer.send(1, "--note=refused")
    peer.work("outbox", 1, refuses=1, retries=3)
    headers = peer.ask("SELECT headers FROM messenger_outbox "
                       "ORDER BY id DESC LIMIT 1")
    assert "RedeliveryStamp" in headers and "DelayStamp" in headers
    assert undone(peer) == 1 and peer.failed() == []
    relay_the_rest(peer)
    expect_handled(peer, ids)


def test_what_php_serialised_stays_for_php(peer):
    peer.set_up()
    foreign = {line["order"]: line["id"] for line in peers.lines(
        peer.php("shop:send", 2, "--note=plain", php=1))}
    ids = peer.send(2, "--first=2")
    relay = peer.start_relay()
    relay.wait_for(r"relay\.foreign_rows")
    shops.until(lambda: undone(peer) == len(foreign), relay.log)
    assert relay.stop() == 0
    expect_handled(peer, ids)
    peer.work("outbox", len(foreign), php=1)
    assert undone(peer) == 0
    expect_handled(peer, foreign)


def test_symfony_deletes_what_its_serializer_cannot_read(peer):
    """As the guide warns before a serializer is changed."""
    peer.set_up()
    peer.send(1)
    peer.run_php("messenger:consume", "outbox", "--limit=1", "--time-limit=2",
                 php=1)
    assert undone(peer) == 0
    peer.php("shop:send", 1, "--first=1", "--note=plain", php=1)
    peer.run_php("messenger:consume", "outbox", "--limit=1", "--time-limit=2")
    assert undone(peer) == 0
    assert peer.client.count("orders") == 0 and peer.failed() == []
