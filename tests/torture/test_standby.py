"""Two relays on one outbox: one works, the other takes over at once."""
import os
import re
import signal

import shop as shops

TAKEOVER_S = 2


def is_active(relay):
    return len(relay.events("relay.active")) > 0


def wait_until_active(relay):
    relay.wait_for(r"relay\.active")


def wait_until_standby(relay):
    relay.wait_for(r"relay\.standby")
    assert not is_active(relay)


def arrives(shop, order_id, patience_s):
    shops.until(lambda: order_id in shop.wire(),
                lambda: f"{order_id} on the wire:\n{shop.logs()}", patience_s)


def test_standby_takes_over_at_once_when_the_active_relay_is_killed(
        ready_shop):
    shop = ready_shop
    orders = shop.open("shop")
    active = shop.start_relay()
    wait_until_active(active)
    for number in range(1, 6):
        standby = shop.start_relay()
        wait_until_standby(standby)
        shop.place_orders(1, first=2 * number, connection=orders)
        arrives(shop, f"order-{2 * number}", shops.PATIENCE_S)
        assert not is_active(standby), "two active relays"
        active.kill()
        shop.place_orders(1, first=2 * number + 1, connection=orders)
        arrives(shop, f"order-{2 * number + 1}", TAKEOVER_S)
        # The log is written by a thread of its own.
        wait_until_active(standby)
        active = standby
    assert active.stop() == 0
    assert shop.duplicates() <= 5


def test_standby_takes_over_when_the_active_relay_is_stopped(ready_shop):
    shop = ready_shop
    active = shop.start_relay()
    wait_until_active(active)
    standby = shop.start_relay()
    wait_until_standby(standby)
    assert active.stop() == 0
    shop.place_orders(1)
    arrives(shop, "order-1", TAKEOVER_S)
    assert standby.stop() == 0
    assert shop.duplicates() == 0


def test_only_one_of_many_relays_is_active(ready_shop):
    shop = ready_shop
    relays = [shop.start_relay() for _ in range(6)]
    for _ in range(5):
        shops.until(lambda: any(map(is_active, relays)), "an active relay")
        active, = filter(is_active, relays)
        others = [relay for relay in relays if relay is not active]
        for relay in others:
            wait_until_standby(relay)
        active.kill()
        relays = others
    wait_until_active(relays[0])


def test_one_table_has_one_active_relay_however_it_is_spelt(ready_shop):
    """To SQLite Messenger_Outbox is messenger_outbox."""
    shop = ready_shop
    active = shop.start_relay()
    wait_until_active(active)
    other = shop.folder / "other.yaml"
    other.write_text(shop.config_path.read_text().replace(
        "messenger_outbox", "Messenger_Outbox"))
    standby = shop.start("relay", "outbox", "--config", other)
    wait_until_standby(standby)
    active.kill()
    shop.place_orders(1)
    arrives(shop, "order-1", TAKEOVER_S)
    assert standby.stop() == 0


def test_frozen_relay_is_not_replaced_and_goes_on(ready_shop):
    """Without a server nothing tells a stopped holder from a slow one: two
    active relays would be worse than none."""
    shop = ready_shop
    active = shop.start_relay()
    wait_until_active(active)
    os.kill(active.pid, signal.SIGSTOP)
    standby = shop.start_relay()
    wait_until_standby(standby)
    shop.place_orders(10)
    os.kill(active.pid, signal.SIGCONT)
    arrives(shop, "order-10", TAKEOVER_S)
    assert not is_active(standby)
    assert standby.stop() == 0
    assert active.stop() == 0
    assert shop.duplicates() == 0


def test_relay_whose_lock_file_is_deleted_steps_back(ready_shop):
    """Its deletion lets another in: the first must notice, and the two
    agree on one again."""
    shop = ready_shop
    first = shop.start_relay()
    wait_until_active(first)
    lock, = shop.folder.glob("*.lock")
    lock.unlink()
    second = shop.start_relay()
    wait_until_active(second)
    first.wait_for(r"relay\.trouble.*lock file .* was deleted or replaced")
    first.wait_for(r"relay\.standby")
    shop.place_orders(100)
    shop.wait_until_relayed()
    assert shop.duplicates() == 0
    second.kill()
    shops.until(lambda: len(first.events("relay.active")) == 2,
                "the first to be active again")
    assert re.search(r"relay\.recovered", first.log())
