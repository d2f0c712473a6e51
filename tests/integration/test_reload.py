"""SIGHUP and SIGTERM: a new configuration under way, and an end in time."""
import json
import signal
import socket
import sqlite3
import threading
import time

import pytest

import shop as shops

OTHER_QUEUE = """\
    others: 'queue://default?queue_name=others'
    orders:
"""


def reload(program):
    """Asks for it; waits for the answer."""
    before = len(program.events("config.reloaded") +
                 program.events("config.refused"))
    program.process.send_signal(signal.SIGHUP)
    shops.until(lambda: len(program.events("config.reloaded") +
                            program.events("config.refused")) > before,
                lambda: program.log())


def restarted(program, event, times):
    shops.until(lambda: len(program.events(event)) == times,
                lambda: program.log())


def queued(place, queue):
    return place.number("SELECT COUNT(*) FROM messenger_messages "
                        f"WHERE queue_name = '{queue}'")


def write(place, count):
    place.write_many([(json.dumps({"n": n}), '{"type":"order.placed"}')
                      for n in range(count)])


def test_a_relay_goes_on_under_the_new_configuration(place):
    relay = place.start("relay", "outbox")
    relay.wait_for("relay.active")
    write(place, 5)
    place.wait_until_relayed(relay)
    place.set_config(replace=[("    orders:\n", OTHER_QUEUE),
                              ("relay_to: orders", "relay_to: others")])
    reload(relay)
    restarted(relay, "relay.active", 2)
    write(place, 7)
    place.wait_until_relayed(relay)
    assert (queued(place, "orders"), queued(place, "others")) == (5, 7)
    assert relay.events("relay.trouble") == []
    assert relay.stop() == 0


def test_a_consumer_goes_on_under_the_new_configuration(place):
    consumer = place.start("consume", "orders")
    consumer.wait_for("consumer.ready")
    place.set_config(replace=[("VALUES (:body)", "VALUES (''new'')")])
    reload(consumer)
    restarted(consumer, "consumer.ready", 2)
    place.write_many([("{}", json.dumps({
        "type": "order.placed",
        "X-Message-Id": "01932b6e-7c00-7000-8000-000000000001"}))],
        "orders", "messenger_messages")
    shops.until(lambda: place.ask("SELECT body FROM effects") == "new",
                lambda: consumer.log())
    assert consumer.stop() == 0


def write_orders(shop, count):
    """In a thread, to which its connection belongs."""
    connection = sqlite3.connect(shop.path("shop"), isolation_level=None,
                                 timeout=shops.PATIENCE_S)
    for first in range(1, count + 1, 20):
        shop.place_orders(20, first, connection)
    connection.close()


def test_reloads_under_load_lose_nothing_and_send_nothing_twice(ready_shop):
    shop = ready_shop
    relay, consumer = shop.start_relay(), shop.start_consumer()
    relay.wait_for("relay.active")
    consumer.wait_for("consumer.ready")
    writer = threading.Thread(target=write_orders, args=(shop, 2000))
    writer.start()

    def reload_both():
        reload(relay)
        reload(consumer)
        return not writer.is_alive() and len(relay.events("relay.active")) > 2
    # A reload may come before the last one has become active.
    shops.until(reload_both, relay.log, pause_s=0)
    shop.wait_until_relayed()
    shop.wait_until_consumed()
    assert relay.stop() == consumer.stop() == 0
    assert shop.duplicates() == 0
    shop.expect_effects_once()


@pytest.mark.parametrize("command,ready", [
    (["relay", "outbox"], "relay.active"),
    (["consume", "orders"], "consumer.ready")], ids=["relay", "consume"])
def test_a_bad_file_is_refused_and_the_old_one_stays(ready_shop, command,
                                                     ready):
    shop = ready_shop
    good = shop.config_path.read_text()
    program = shop.start(*command)
    program.wait_for(ready)
    for bad, word in [(good + "no_such_key: 1\n", "no_such_key"),
                      (good + "\t: [", "skirnir.yaml:"), ("", "")]:
        shop.write_config(bad)
        reload(program)
        assert word in program.events("config.refused")[-1]
    shop.config_path.unlink()
    reload(program)
    assert len(program.events("config.refused")) == 4
    assert len(program.events(ready)) == 1, "nothing was interrupted"
    shop.write_config(good)
    shop.place_orders(3)
    if command[0] == "relay":
        shop.wait_until_relayed()
    else:
        assert shop.relay_all().returncode == 0
        shop.wait_until_consumed()
    assert program.stop() == 0


def test_what_cannot_be_started_gives_way_to_what_could(ready_shop):
    """A good file, but the transport that is relayed is not in it."""
    shop = ready_shop
    good = shop.config_path.read_text()
    relay = shop.start_relay()
    relay.wait_for("relay.active")
    shop.write_config(good.replace("    outbox:\n", "    inbox:\n"))
    reload(relay)
    relay.wait_for("config.refused.*outbox")
    restarted(relay, "relay.active", 2)
    shop.place_orders(3)
    shop.wait_until_relayed()
    shop.write_config(good)
    reload(relay)
    restarted(relay, "relay.active", 3)
    assert relay.stop() == 0


def test_a_stop_after_a_reload_is_a_stop(ready_shop):
    shop = ready_shop
    for _ in range(10):
        relay = shop.start_relay()
        relay.wait_for("relay.active")
        relay.process.send_signal(signal.SIGHUP)
        assert relay.stop() == 0


def test_the_time_limit_is_not_begun_anew(ready_shop):
    began = time.monotonic()
    relay = ready_shop.start_relay("--time-limit=2")
    relay.wait_for("relay.active")
    while relay.is_running() and time.monotonic() < began + 10:
        relay.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    assert relay.end() == 0
    assert time.monotonic() < began + 6


def test_systemd_is_told_of_a_reload(ready_shop):
    shop = ready_shop
    path = shop.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(shops.PATIENCE_S)
        relay = shop.start("relay", "outbox",
                           environment={"NOTIFY_SOCKET": str(path)})
        told = []

        def hear(word):
            while not told or not told[-1].startswith(word):
                told.append(listener.recv(4096).decode())
        hear("STATUS=outbox: active")
        relay.process.send_signal(signal.SIGHUP)
        hear("RELOADING=1\nMONOTONIC_USEC=")
        hear("READY=1")
        hear("STATUS=outbox: active")
        assert "STOPPING=1" not in told
        relay.process.terminate()
        hear("STOPPING=1")
        assert relay.end() == 0


def test_a_handler_that_hangs_does_not_outlive_the_stop_timeout(ready_shop):
    """What it had in hand comes again."""
    shop = ready_shop
    shop.place_orders(2)
    assert shop.relay_all().returncode == 0
    held = shop.hold_at("consumer.handled", "consume", "orders",
                        "--stop-timeout=1")
    began = time.monotonic()
    held.process.terminate()
    assert held.end() == 1
    assert 0.9 < time.monotonic() - began < 10
    assert "stop.timeout" in held.log()
    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    shop.expect_effects_once()
    assert consumer.stop() == 0


# The time that it is not told takes as long as it promises.
@pytest.mark.parametrize("limit", [["--stop-timeout=1"],
                                   *([[]] if shops.LONG else [])])
def test_a_relay_that_hangs_does_not_outlive_the_stop_timeout(ready_shop,
                                                              limit):
    shop = ready_shop
    shop.place_orders(5)
    held = shop.hold_at("relay.submitted", "relay", "outbox", *limit)
    held.process.terminate()
    assert held.end() == 1
    assert held.events("stop.timeout")
    assert shop.relay_all().returncode == 0
    assert set(shop.wire()) == shop.orders()


@pytest.mark.parametrize("command", [["relay", "outbox"],
                                     ["consume", "orders"]], ids=" ".join)
@pytest.mark.parametrize("value", ["0", "-1", "soon", "3601"])
def test_a_stop_timeout_that_makes_no_sense_is_refused(ready_shop, command,
                                                       value):
    result = ready_shop.run(*command, f"--stop-timeout={value}")
    assert result.returncode == 2
    assert "stop-timeout" in result.stderr
