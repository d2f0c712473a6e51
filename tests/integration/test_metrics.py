"""Metrics for Prometheus, and answers about health, while work goes on."""
import json
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest

import prometheus_text
import shop as shops

pytestmark = pytest.mark.alike


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def get(port, path):
    """Status and text; 0 while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                    timeout=shops.PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def scrape(port):
    """What /metrics says, of a text that keeps to the format."""
    status, text = get(port, "/metrics")
    assert status == 200
    return prometheus_text.Metrics(text)


@pytest.fixture
def port():
    return free_port()


def test_a_relay_counts_what_it_published(place, port):
    for number in range(7):
        place.write(f'{{"n":{number}}}', '{"type":"order.placed"}', "outbox",
                    "messenger_outbox")
    place.write("{}", "{broken", "outbox", "messenger_outbox")
    place.fail()
    relay = place.start("relay", "outbox", f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200,
                lambda: relay.log())
    shops.until(lambda: scrape(port)["skirnir_relay_published_total", "outbox"]
                == 7, lambda: relay.log())
    samples = scrape(port)
    assert samples["skirnir_relay_failed_total", "outbox"] == 1
    assert samples["skirnir_up", "outbox"] == 1
    assert samples["skirnir_active", "outbox"] == 1
    assert samples["skirnir_troubles_total", "outbox"] == 0
    assert samples["process_start_time_seconds", None] > 1600000000
    assert samples["skirnir_relay_confirmed_total", "outbox"] == 7
    assert samples["skirnir_relay_returned_total", "outbox"] == 0
    assert samples["skirnir_relay_parked_rows", "outbox"] == 0
    assert samples.count("skirnir_relay_latency_seconds", "outbox") == 7
    # What tables hold is asked every few seconds.
    shops.until(lambda: scrape(port)["skirnir_queue_depth", "outbox"] == 0,
                lambda: relay.log())
    assert scrape(port)["skirnir_failed_messages", "outbox"] == 2
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/readyz") == (200, "outbox: active\n")
    assert get(port, "/")[0] == 404
    assert relay.stop() == 0
    assert get(port, "/healthz")[0] == 0


def test_a_standby_is_ready_and_not_active(place, port):
    first = place.start("relay", "outbox")
    first.wait_for("relay.active")
    second = place.start("relay", "outbox", f"--metrics-port={port}")
    second.wait_for("relay.standby")
    assert get(port, "/readyz") == (200, "outbox: standby\n")
    assert scrape(port)["skirnir_active", "outbox"] == 0
    first.kill()
    second.wait_for("relay.active")
    shops.until(lambda: get(port, "/readyz") == (200, "outbox: active\n"),
                lambda: second.log())
    assert second.stop() == 0


def test_trouble_is_not_ready(shop, port):
    """The queue's database is away, and then it is there."""
    shop.check("setup")
    shop.configure(auto_setup="false")
    shop.path("queue").rename(shop.folder / "aside")
    relay = shop.start_relay(f"--metrics-port={port}", "--wait")
    relay.wait_for("relay.trouble")
    assert get(port, "/readyz") == (503, "outbox: in trouble\n")
    assert get(port, "/healthz")[0] == 200
    assert scrape(port)["skirnir_troubles_total", "outbox"] == 1
    (shop.folder / "aside").rename(shop.path("queue"))
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: relay.log())
    assert relay.stop() == 0


def test_a_relay_that_cannot_remove_rows_is_not_ready(ready_shop, port):
    shop = ready_shop
    outbox = shop.open("shop")
    # Of no row in particular: every DELETE fails.
    outbox.execute("""
        CREATE TRIGGER forbid BEFORE DELETE ON messenger_outbox
        BEGIN DELETE FROM a_table_that_is_gone; END""")
    shop.place_orders(1)
    relay = shop.start_relay(f"--metrics-port={port}")
    relay.wait_for("relay.settle_trouble")
    assert get(port, "/readyz") == (503, "outbox: in trouble\n")
    assert scrape(port)["skirnir_up", "outbox"] == 0
    outbox.execute("DROP TRIGGER forbid")
    relay.wait_for("relay.settle_recovered")
    assert get(port, "/readyz") == (200, "outbox: active\n")
    assert relay.stop() == 0


def test_consumers_of_one_transport_are_counted_together(ready_shop, port):
    shop = ready_shop
    shop.place_orders(20)
    assert shop.relay_all().returncode == 0
    shops.write_row(shop.open("queue"), "{}", shops.id_headers(
        "01932b6e-7c00-7000-8000-00000000ffff", type="order.unknown"),
        table="messenger_messages", queue="orders")
    consumer = shop.start_consumer("--consumers=3", f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: consumer.log())
    shops.until(lambda: scrape(port)["skirnir_consumer_handled_total",
                                     "orders"] == 20, lambda: consumer.log())
    shops.until(lambda: scrape(port)["skirnir_consumer_failed_total",
                                     "orders"] == 1, lambda: consumer.log())
    assert scrape(port)["skirnir_consumer_duplicates_total", "orders"] == 0
    assert scrape(port).count("skirnir_consumer_handler_duration_seconds",
                              "orders") >= 20
    assert consumer.stop() == 0


def test_promtool_finds_nothing_wrong(ready_shop, port):
    shop = ready_shop
    shop.place_orders(3)
    relay = shop.start_relay(f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: relay.log())
    assert prometheus_text.check_with_promtool(get(port, "/metrics")[1]) == ""
    assert relay.stop() == 0
    consumer = shop.start_consumer(f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: consumer.log())
    assert prometheus_text.check_with_promtool(get(port, "/metrics")[1]) == ""
    assert consumer.stop() == 0


def test_a_broker_that_is_silent_keeps_no_probe_waiting(ready_shop, port):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(shops.PATIENCE_S)
        broker = silent.getsockname()[1]
        ready_shop.configure(replace=[("    orders:\n", f"""\
    silent: 'amqp://127.0.0.1:{broker}/%2f?connect_timeout=120'
    orders:
""")])
        consumer = ready_shop.start("consume", "silent",
                                    f"--metrics-port={port}")
        connections = [silent.accept()[0]]
        shops.until(lambda: get(port, "/healthz")[0] == 200, consumer.log)
        scraped = []
        scraping = threading.Thread(
            target=lambda: scraped.append(get(port, "/metrics")[0]))
        scraping.start()
        connections.append(silent.accept()[0])
        assert get(port, "/healthz") == (200, "ok\n")
        # Another one is told what is known without asking.
        assert get(port, "/metrics")[0] == 200
        assert scraped == []
        for connection in connections:
            connection.close()
    scraping.join()
    assert scraped == [200]
    assert consumer.stop() == 0


def test_a_new_configuration_is_no_new_process(ready_shop, port):
    relay = ready_shop.start_relay(f"--metrics-port={port}")
    relay.wait_for("relay.active")
    name = ("process_start_time_seconds", None)
    start = scrape(port)[name]
    # Seconds are what it is told in.
    shops.until(lambda: time.time() > start + 2, relay.log)
    relay.process.send_signal(signal.SIGHUP)
    shops.until(lambda: len(relay.events("relay.active")) == 2, relay.log)
    shops.until(lambda: get(port, "/readyz")[0] == 200, relay.log)
    assert scrape(port)[name] == start
    assert relay.stop() == 0


def test_what_was_scheduled_is_not_late(ready_shop, port):
    shop = ready_shop
    connection = shop.open("shop")
    shops.write_row(connection, '{"orderId":"now"}')
    shops.write_row(connection, '{"orderId":"later"}', delay_s=1)
    relay = shop.start_relay(f"--metrics-port={port}")
    shop.wait_until_relayed()
    shops.until(lambda: scrape(port)["skirnir_relay_confirmed_total",
                                     "outbox"] == 2, lambda: relay.log())
    assert scrape(port).count("skirnir_relay_latency_seconds", "outbox") == 1
    assert relay.stop() == 0


def test_the_time_in_an_id_is_more_exact_than_the_table(ready_shop, port):
    """`skirnir publish` makes a UUIDv7: a latency within the second is
    possible although the table has whole seconds."""
    shop = ready_shop
    relay = shop.start_relay(f"--metrics-port={port}")
    relay.wait_for("relay.active")

    def publish_and_look():
        shop.check("publish", "order.placed", "--body", '{"orderId":"1"}')
        shop.wait_until_relayed()
        return scrape(port).within("skirnir_relay_latency_seconds", "outbox",
                                   0.25)
    shops.until(publish_and_look, lambda: get(port, "/metrics")[1])
    assert relay.stop() == 0


def new_id(age_s, version=7):
    """One that was made so long ago, where its version tells."""
    time_ms = int((time.time() - age_s) * 1000)
    return (f"{time_ms >> 16:08x}-{time_ms & 0xffff:04x}-{version}000-8000-"
            f"{random.getrandbits(48):012x}")


def test_the_way_from_publishing_to_the_effect_is_timed(ready_shop, port):
    """By the time in the id: ids of other kinds do not count."""
    shop = ready_shop
    queue = shop.open("queue")
    for made in (new_id(0), new_id(1000), new_id(0, version=4)):
        shops.write_row(queue, '{"orderId":"1"}',
                        shops.id_headers(made, type="order.placed"),
                        table="messenger_messages", queue="orders")
    consumer = shop.start_consumer(f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, consumer.log)
    shops.until(lambda: scrape(port)["skirnir_consumer_handled_total",
                                     "orders"] == 3, consumer.log)
    samples = scrape(port)
    name = "skirnir_consumer_latency_seconds"
    assert samples.count(name, "orders") == 2
    assert samples.within(name, "orders", 300) == 1
    # Nothing waits any more.
    shops.until(lambda: scrape(port)["skirnir_consumer_oldest_seconds",
                                     "orders"] == 0, consumer.log)
    assert prometheus_text.check_with_promtool(samples.text) == ""
    assert consumer.stop() == 0


class Watcher(threading.Thread):
    """Scrapes again and again, while others work."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.seen, self.wrong = [], []
        self.is_over = threading.Event()

    def look(self):
        latest = scrape(self.port)
        if self.seen:
            self.wrong += latest.falls_behind(self.seen[-1])
        self.seen.append(latest)
        return latest

    def run(self):
        while not self.is_over.is_set():
            try:
                self.look()
            except AssertionError as error:
                self.wrong.append(str(error))

    def end(self):
        """The last look."""
        self.is_over.set()
        self.join(shops.PATIENCE_S)
        latest = self.look()
        assert self.wrong == []
        return latest


def test_metrics_under_load_agree_with_the_ledger(place, port):
    """What was written, and what lies in the queue and among the failed
    messages, is what relay and consumer say that they did; every look while
    they worked was well-formed, and no count ever fell."""
    good, bad, poison, twice = 600, 7, 5, 4
    place.set_config(replace=[
        ("max_retries: 0", "max_retries: 1, delay: 1"),
        ("handlers:\n", """handlers:
    order.refused:
        sql: 'INSERT INTO refused (id) VALUES (1)'
""")])
    place.ask("CREATE TABLE refused (id INTEGER PRIMARY KEY)")
    place.ask("INSERT INTO refused (id) VALUES (1)")
    relay = place.start("relay", "outbox", f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: relay.log())
    watcher = Watcher(port)
    watcher.start()
    for start in range(0, good, 100):
        place.write_many([(json.dumps({"n": n}), '{"type":"order.placed"}')
                          for n in range(start, start + 100)])
    place.write_many([("{}", "{broken")] * bad)
    place.write_many([("{}", '{"type":"order.unknown"}')] * poison)
    place.wait_until_relayed(relay)
    shops.until(lambda: scrape(port)["skirnir_relay_published_total", "outbox"]
                == good + poison, lambda: get(port, "/metrics")[1])
    ledger = watcher.end()
    assert ledger["skirnir_relay_confirmed_total", "outbox"] == \
        place.number("SELECT COUNT(*) FROM messenger_messages "
                     "WHERE queue_name = 'orders'") == good + poison
    assert ledger["skirnir_relay_failed_total", "outbox"] == bad
    assert ledger.count("skirnir_relay_latency_seconds", "outbox") == \
        good + poison
    assert relay.stop() == 0

    # Some come once more, and one is refused whenever it comes.
    place.ask("INSERT INTO messenger_messages (body, headers, queue_name, "
              "created_at, available_at) SELECT body, headers, queue_name, "
              "created_at, available_at FROM messenger_messages WHERE "
              f"queue_name = 'orders' ORDER BY id LIMIT {twice}")
    place.write_many([("{}", shops.id_headers(
        "01932b6e-7c00-7000-8000-000000000042", type="order.refused"))],
        "orders", "messenger_messages")
    consumer = place.start("consume", "orders", f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200,
                lambda: consumer.log())
    watcher = Watcher(port)
    watcher.start()
    shops.until(lambda: scrape(port)["skirnir_consumer_handled_total",
                                     "orders"] == good and
                scrape(port)["skirnir_consumer_failed_total", "orders"]
                == poison + 1, lambda: consumer.log())
    ledger = watcher.end()
    assert place.number("SELECT COUNT(*) FROM effects") == good
    assert ledger.count("skirnir_consumer_handler_duration_seconds",
                        "orders") >= good
    assert ledger["skirnir_consumer_duplicates_total", "orders"] == twice
    assert ledger["skirnir_consumer_retried_total", "orders"] == 1
    assert place.number("SELECT COUNT(*) FROM messenger_messages WHERE "
                        "queue_name IN ('failed', 'failed.skirnir')") == \
        bad + poison + 1
    assert consumer.stop() == 0


# Whatever a line, a label or a terminal could stumble over.
NASTY = 'K\u00e4se "25" \\ \\n\n\r\t{a="b"} 1\x85\u2028\U0001f9c0 '
NO_TYPE = 'headers have no type; add "type":"message.name"'


def block_partitions(place, *keys):
    """Three messages each, of which the first cannot be understood; the rows
    of these."""
    place.set_config(replace=[("'doctrine://default?table_name",
                               "'ordered-doctrine://default?table_name")])
    place.check("setup")
    for key in keys:
        for body in ("{}", "[1]", "[2]"):
            place.check("publish", "order.placed", "--body", body,
                        "--partition-key", key)
    place.ask("UPDATE messenger_outbox SET headers = '{}' WHERE body = '{}'")
    return [int(row) for row in place.ask(
        "SELECT id FROM messenger_outbox WHERE body = '{}' ORDER BY id"
        ).split()]


def told_by_stats(place):
    [outbox] = json.loads(place.check("stats", "outbox", "--json")
                          )["transports"]
    return {("outbox", head["partition"]): prometheus_text.Blocked(
        head["row"], head["error"], head["length"])
            for head in outbox["blocked_partitions"]}


def test_each_blocked_partition_is_told_until_it_goes_on(place, port):
    first, second = block_partitions(place, NASTY, "b")
    relay = place.start("relay", "outbox", f"--metrics-port={port}")
    shops.until(lambda: len(relay.events("relay.partition_blocked")) == 2,
                relay.log)
    nasty = {("outbox", NASTY): prometheus_text.Blocked(first, NO_TYPE, 3)}
    other = {("outbox", "b"): prometheus_text.Blocked(second, NO_TYPE, 3)}

    def wait_for(wanted):
        # What tables hold is asked every few seconds.
        shops.until(lambda: scrape(port).blocked == wanted,
                    lambda: get(port, "/metrics")[1], pause_s=0.2)
        assert told_by_stats(place) == wanted
        samples = scrape(port)
        assert samples["skirnir_blocked_partitions", "outbox"] == len(wanted)
        assert prometheus_text.check_with_promtool(samples.text) == ""

    wait_for(nasty | other)
    place.check("partition", "skip", NASTY)
    wait_for(other)
    place.ask("UPDATE messenger_outbox SET headers = "
              """'{"type":"order.placed"}' WHERE body = '{}'""")
    place.check("partition", "retry", "b")
    wait_for({})
    assert relay.stop() == 0


def test_what_rabbitmq_returns_is_counted(world, port):
    world.set_up()
    world.insert(20)
    world.write(*[("{}", json.dumps({
        "type": "order.placed", "X-Skirnir-Routing-Key": "nobody"}))] * 3)
    relay = world.start("relay", "outbox", f"--metrics-port={port}")
    world.wait_until_empty(relay)
    shops.until(lambda: scrape(port)["skirnir_relay_failed_total",
                                     "outbox"] == 3, lambda: relay.log())
    samples = scrape(port)
    assert samples["skirnir_relay_returned_total", "outbox"] == 3
    assert samples["skirnir_relay_confirmed_total", "outbox"] == 20
    assert samples["skirnir_relay_published_total", "outbox"] == 20
    assert len(world.failed()) == 3
    assert relay.stop() == 0


def test_a_consumer_tells_of_its_queue_on_rabbitmq(world, port):
    world.set_config(replace=[
        ("    amqp: '{}'".format(world.broker),
         "    amqp: '{}?queues[orders]='".format(world.broker)),
        ("message_broker_amqp:", "handlers: {order.placed: {command: "
         "[cat]}}\nmessage_broker_amqp:")])
    world.set_up()
    world.check("setup-deduplication", "--force")
    world.write(("{}", '{"type":"order.placed"}'), queue="amqp.retry",
                table="messenger_messages")
    world.ask("UPDATE messenger_messages SET "
              "available_at = '2099-01-01 00:00:00'")
    consumer = world.start("consume", "amqp", f"--metrics-port={port}")
    consumer.wait_for("consumer.ready")
    # What the broker knows is asked every few seconds.
    shops.until(lambda: scrape(port)["skirnir_queue_consumers", "amqp"] == 1,
                consumer.log, pause_s=0.2)
    samples = scrape(port)
    for name, value in (("depth", 0), ("due", 0), ("delayed", 1),
                        ("oldest_seconds", 0)):
        assert samples[f"skirnir_queue_{name}", "amqp"] == value
    assert ("skirnir_queue_in_flight", "amqp") not in samples.samples
    assert prometheus_text.check_with_promtool(samples.text) == ""
    assert consumer.stop() == 0


def test_a_consumer_tells_how_old_the_messages_on_rabbitmq_are(world, port):
    """The broker does not: the ids of what it gives do."""
    world.set_config(replace=[
        ("    amqp: '{}'".format(world.broker),
         "    amqp: '{}?queues[orders]='".format(world.broker)),
        ("message_broker_amqp:", "handlers: {order.placed: {sql: 'DELETE FROM "
         "messenger_messages WHERE 1 = 0'}}\nmessage_broker_amqp:")])
    world.set_up()
    world.check("setup-deduplication", "--force")
    for age_s in (50, 1000, 100):
        world.write(("{}", shops.id_headers(new_id(age_s),
                                            type="order.placed")))
    world.check("relay", "outbox", "--stop-when-empty")
    held = world.hold_at("consumer.handled", "consume", "amqp",
                         f"--metrics-port={port}")
    age_s = scrape(port)["skirnir_consumer_oldest_seconds", "amqp"]
    assert 1000 <= age_s < 1000 + shops.PATIENCE_S
    held.kill()
    consumer = world.start("consume", "amqp", f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, consumer.log)
    shops.until(lambda: scrape(port)["skirnir_consumer_handled_total",
                                     "amqp"] == 3, consumer.log)
    shops.until(lambda: scrape(port)["skirnir_consumer_oldest_seconds",
                                     "amqp"] == 0, consumer.log)
    assert consumer.stop() == 0


def test_a_port_that_is_taken_is_named(ready_shop):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = ready_shop.run("relay", "outbox", "--stop-when-empty",
                                f"--metrics-port={port}")
    assert result.returncode == 1
    assert f"port {port}" in result.stderr
    assert "--metrics-port" in result.stderr


def set_ports(shop, ports):
    shop.configure(replace=[
        ("databases:", f"metrics: {{port: {ports}}}\ndatabases:")])


def test_services_with_one_file_take_a_port_each_of_a_range(ready_shop):
    """The first of the range is taken by a stranger."""
    shop = ready_shop
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        # Other tests may take a port in between.
        last = min(first + 50, 65535)
        set_ports(shop, f"{first}-{last}")
        assert f"port: '{first}-{last}'" in shop.check("config", "show")
        ports = []
        for program in (shop.start_relay(), shop.start_consumer()):
            found = program.wait_for(
                r"info http\.serving address=127\.0\.0\.1 port=(\d+)")
            ports.append(int(found.group(1)))
            shops.until(lambda: get(ports[-1], "/readyz")[0] == 200,
                        program.log)
    assert len(set(ports)) == 2
    assert all(first < port <= last for port in ports)
    assert ("skirnir_relay_published_total", "outbox") in \
        scrape(ports[0]).samples
    assert ("skirnir_consumer_handled_total", "orders") in \
        scrape(ports[1]).samples


def test_the_option_takes_a_range_as_the_file_does(ready_shop):
    shop = ready_shop
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        last = min(first + 50, 65535)
        relay = shop.start_relay(f"--metrics-port={first}-{last}")
        found = relay.wait_for(r"http\.serving address=127\.0\.0\.1 port=(\d+)")
        assert first < int(found.group(1)) <= last
        assert relay.stop() == 0
    result = shop.run("relay", "outbox", "--metrics-port=9197-9187")
    assert result.returncode == 2
    assert "--metrics-port=9197-9187: " in result.stderr
    assert "or a range such as 9187-9197 is needed" in result.stderr


def test_a_taken_port_of_a_shared_file_stops_no_service(ready_shop):
    shop = ready_shop
    shop.place_orders(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        set_ports(shop, port)
        result = shop.relay_all()
    assert result.returncode == 0
    line, = [line for line in result.stderr.splitlines()
             if " warning http.not_served " in line]
    assert f" port={port} " in line
    assert "range such as 9187-9197" in line and "--metrics-port" in line
    assert len(shop.wire()) == 3


@pytest.mark.parametrize("ports", ["9197-9187", "0-10", "9187-", "-1", "65536",
                                   "9187-65536", "9187-9197-9200", "some"])
def test_what_is_no_range_of_ports_is_refused(ready_shop, ports):
    set_ports(ready_shop, f"'{ports}'")
    result = ready_shop.run("config", "check")
    assert result.returncode == 3
    assert "metrics.port" in result.stderr + result.stdout
    assert "or a range such as 9187-9197 is needed" in \
        result.stderr + result.stdout


def test_the_configuration_names_port_and_address(ready_shop, port):
    shop = ready_shop
    shop.configure(replace=[
        ("databases:", f"metrics: {{port: {port}}}\ndatabases:")])
    relay = shop.start_relay()
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: relay.log())
    assert relay.stop() == 0
    # The command line wins.
    relay = shop.start_relay("--metrics-port=0")
    relay.wait_for("relay.active")
    assert get(port, "/healthz")[0] == 0
    assert relay.stop() == 0
    shop.configure(replace=[
        ("databases:", f"metrics: {{port: {port}, address: here}}\n"
         "databases:")])
    result = shop.run("relay", "outbox", "--stop-when-empty")
    assert result.returncode == 3
    assert "metrics.address" in result.stderr


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"],
                         ids=["silent", "slow"])
def test_idle_connections_keep_no_probe_out(ready_shop, port, said):
    relay = ready_shop.start_relay(f"--metrics-port={port}")
    shops.until(lambda: get(port, "/readyz")[0] == 200, lambda: relay.log())
    idle = []
    try:
        for _ in range(600):
            idle.append(socket.create_connection(("127.0.0.1", port),
                                                 shops.PATIENCE_S))
            idle[-1].sendall(said)
        for path in ["/healthz", "/readyz", "/metrics"] * 5:
            began = time.monotonic()
            assert get(port, path)[0] == 200
            # Milliseconds; a busy machine takes its time.
            assert time.monotonic() - began < 5
    finally:
        for connection in idle:
            connection.close()
    assert relay.stop() == 0


def test_systemd_is_told(ready_shop):
    shop = ready_shop
    path = shop.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(shops.PATIENCE_S)
        relay = shop.start("relay", "outbox", environment={
            "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})
        told = set()
        while not {"READY=1", "STATUS=outbox: active", "WATCHDOG=1"} <= told:
            told.add(listener.recv(4096).decode())
        relay.process.terminate()
        while "STOPPING=1" not in told:
            told.add(listener.recv(4096).decode())
        assert relay.end() == 0


@pytest.mark.parametrize("value", ["", "relative", "/nowhere/at/all", "@",
                                   "/" + "x" * 200])
def test_a_service_manager_that_is_not_there_is_no_trouble(ready_shop, value):
    result = ready_shop.run("relay", "outbox", "--stop-when-empty",
                            environment={"NOTIFY_SOCKET": value,
                                         "WATCHDOG_USEC": "x"})
    assert result.returncode == 0
