"""The watchdog of a service manager hears of a process as long as its loops turn:
one that waits for others is alive, one that stands still is not."""
import socket
import time
import uuid

import pytest

import shop as shops

WATCHDOG_S = 0.2
SLOW = """\
import sys
print('{"ready":true}', flush=True)
for line in sys.stdin:
    open("begun", "a").close()
"""


@pytest.fixture
def manager(ready_shop):
    """What a service manager hears."""
    name = f"skirnir-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        ready_shop.environment |= {
            "NOTIFY_SOCKET": f"@{name}",
            "WATCHDOG_USEC": str(int(WATCHDOG_S * 1000000))}
        listener.settimeout(10 * WATCHDOG_S)
        yield listener


def falls_silent(manager):
    """Whether no sign of life comes for a while, in the end."""
    deadline = time.monotonic() + shops.PATIENCE_S / 4
    while time.monotonic() < deadline:
        try:
            manager.recv(4096)
        except TimeoutError:
            return True
    return False


@pytest.mark.parametrize("failpoint, command", [
    ("relay.submitted", "relay outbox"), ("relay.settling", "relay outbox"),
    ("consumer.received", "consume orders")])
def test_one_whose_loop_stands_still_shows_no_life(ready_shop, manager,
                                                   failpoint, command):
    shop = ready_shop
    shop.place_orders(1)
    if command.startswith("consume"):
        assert shop.relay_all().returncode == 0
    held = shop.hold_at(failpoint, *command.split())
    assert falls_silent(manager)
    assert held.is_running()


def test_one_whose_manager_does_not_listen_works_and_ends(ready_shop, manager):
    """What it has been told fills all there is room for."""
    shop = ready_shop
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
        teller.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                teller.sendto(b"STATUS=full", manager.getsockname())
    shop.place_orders(1)
    assert shop.relay_all().returncode == 0
    assert shop.wire() == ["order-1"]


@pytest.mark.parametrize("what", ["handler", "broker", "lock"])
def test_one_that_waits_is_alive(ready_shop, manager, what):
    """For a handler that takes its time, or anything else of others."""
    shop = ready_shop
    if what == "handler":
        (shop.folder / "slow.py").write_text(SLOW)
        text = shop.config_path.read_text()
        shop.write_config(text[:text.index("    order.placed:")] +
                          "    order.placed: {command: [python3, slow.py]}\n")
        shop.place_orders(1)
        assert shop.relay_all().returncode == 0
        program = shop.start_consumer()
        shops.until((shop.folder / "begun").exists, program.log)
    elif what == "broker":
        shop.configure(replace=[(str(shop.path("queue")), "/missing/q.db")])
        program = shop.start_relay("--wait")
        program.wait_for("relay.trouble")
    else:
        active = shop.start_relay(environment={"NOTIFY_SOCKET": ""})
        active.wait_for("relay.active")
        program = shop.start_relay()
        program.wait_for("relay.standby")
    # Longer than one that stands still is believed to live.
    began = time.monotonic()
    while time.monotonic() < began + 5 * WATCHDOG_S:
        assert manager.recv(4096)
    assert program.is_running()
