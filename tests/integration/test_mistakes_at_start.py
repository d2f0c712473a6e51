"""Mistakes that waiting does not mend end a command that can do nothing else,
with the cure; where something else can be done it is done, and --wait waits."""
import contextlib
import os
import signal
import socket
import socketserver
import threading

import pytest

import shop as shops
import test_metrics
import test_trouble

user_shop = test_trouble.user_shop


def fails(shop, words, *arguments):
    result = shop.run(*arguments)
    assert result.returncode == 1, result.stderr
    for word in words:
        assert word in result.stderr
    return result.stderr


def without_setup(shop):
    """Databases without our tables, which are not made."""
    shop.configure(auto_setup="false", replace=[
        ("queue_name=outbox'", "queue_name=outbox&auto_setup=false'")])
    for name in ("shop", "queue", "billing"):
        shop.open(name).execute(
            "CREATE TABLE effects (order_id, message_id, name, body)")


def elsewhere(shop, name):
    """A database in a folder that is not there."""
    return (str(shop.path(name)), str(shop.folder / "none" / f"{name}.db"))


def test_a_missing_folder_ends_relay_and_consumer(ready_shop):
    shop = ready_shop
    shop.configure(replace=[elsewhere(shop, "shop")])
    fails(shop, ["none/", "there is no folder", "make it"], "relay", "outbox")
    shop.configure(replace=[elsewhere(shop, "queue")])
    fails(shop, ["none/", "there is no folder", "make it"], "relay", "outbox")
    fails(shop, ["none/", "there is no folder", "make it"], "consume",
          "orders")
    shop.configure(replace=[elsewhere(shop, "billing")])
    fails(shop, ["none/", "there is no folder", "make it"], "consume",
          "orders", "--consumers=3")


def test_a_missing_table_ends_relay_and_consumer(shop):
    without_setup(shop)
    said = fails(shop, ["there is no table", "skirnir setup"], "relay",
                 "outbox")
    assert said.count("skirnir setup") == 1
    fails(shop, ["skirnir setup"], "consume", "orders")


@pytest.mark.parametrize("damage", ["pages", "all"])
def test_a_damaged_file_ends_the_relay(ready_shop, damage):
    shop = ready_shop
    shop.place_orders(3)
    shop.open("shop").execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shop.close()
    size = shop.path("shop").stat().st_size
    with open(shop.path("shop"), "r+b") as file:
        file.seek(4096 if damage == "pages" else 0)
        file.write(b"\xff" * (size - file.tell()))
    fails(shop, ["SQLite /", "shop.db", "damaged or not a database", "backup"],
          "relay", "outbox")


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_file_that_may_not_be_written_ends_the_command(user_shop, mode):
    shop = user_shop
    for name, command in [("shop", ["relay", "outbox"]),
                          ("queue", ["relay", "outbox"]),
                          ("queue", ["consume", "orders"]),
                          ("billing", ["consume", "orders"])]:
        os.chmod(shop.path(name), mode)
        fails(shop, [f"{name}.db", "writable for this user"], *command)
        os.chmod(shop.path(name), 0o644)


def test_a_handler_without_its_table_ends_the_consumer(ready_shop):
    shop = ready_shop
    shop.open("billing").execute("DROP TABLE effects")
    fails(shop, ["the handler of order.placed", "no such table: effects",
                 "create the table"], "consume", "orders")
    shop.open("billing").execute("CREATE TABLE effects (order_id)")
    fails(shop, ["the handler of order.placed", "message_id",
                 "correct the statement"], "consume", "orders")
    shop.open("billing").execute("DROP TABLE effects")
    # Where another handler can work it does.
    shop.configure(replace=[("handlers:\n", "handlers:\n    other.thing: "
                             "{sql: 'DELETE FROM skirnir_attempt'}\n")])
    consumer = shop.start_consumer()
    consumer.wait_for(r"warning consumer\.handler_waits .*effects")
    consumer.wait_for(r"consumer\.ready")
    assert consumer.stop() == 0


def test_an_ordered_outbox_without_partition_keys_ends_the_relay(place):
    place.set_config(replace=[("doctrine://default?table_name",
                               "ordered-doctrine://default?table_name")])
    fails(place, ["messenger_outbox has no column partition_key",
                  "skirnir setup"], "relay", "outbox")


def test_a_transport_that_is_named_twice_is_refused(ready_shop):
    result = ready_shop.run("consume", "orders", "orders")
    assert result.returncode == 2
    assert "orders is named twice; name it once (--consumers=N" in result.stderr
    # A relay has no such option.
    result = ready_shop.run("relay", "outbox", "outbox")
    assert result.returncode == 2
    assert "outbox is named twice; name it once; see" in result.stderr


def test_wait_waits_for_what_is_missing(shop):
    without_setup(shop)
    relay = shop.start("relay", "outbox", "--wait")
    consumer = shop.start("consume", "orders", "--wait")
    relay.wait_for(r"relay\.trouble .*skirnir setup")
    consumer.wait_for(r"consumer\.trouble .*skirnir setup")
    shop.configure()
    shop.check("setup")
    shop.check("setup-deduplication", "--force")
    relay.wait_for(r"relay\.active")
    consumer.wait_for(r"consumer\.ready")
    assert relay.stop() == 0
    assert consumer.stop() == 0


SECOND = """\
    second:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=second'
        relay_to: far
    far: 'queue://broken?queue_name=far'
failure_transport:"""


def test_others_go_on_beside_a_mistake(ready_shop):
    shop = ready_shop
    shop.configure(replace=[
        ("failure_transport:", SECOND),
        ("databases:\n", f"databases:\n    broken: 'sqlite:///{shop.folder}"
         "/none/x.db'\n")])
    shop.place_orders(3)
    relay = shop.start("relay", "second", "outbox")
    relay.wait_for(r"relay\.trouble name=second .*there is no folder")
    relay.wait_for(r"relay\.active name=outbox")
    shops.until(lambda: len(shop.wire()) == 3, relay.log)
    # What is mended is found.
    (shop.folder / "none").mkdir()
    relay.wait_for(r"relay\.active name=second")
    assert relay.stop() == 0
    # Without the other there is nothing to do.
    (shop.folder / "none" / "x.db").unlink()
    (shop.folder / "none").rmdir()
    fails(shop, ["there is no folder"], "relay", "second")


def test_a_server_that_is_away_is_waited_for(shop):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        shop.configure(replace=[(
            shop.url("queue"), f"pgsql://u@127.0.0.1:{port}/b")])
        relay = shop.start("relay", "outbox")
        relay.wait_for(r"relay\.trouble ")
        assert relay.is_running()
        assert relay.stop() == 0


LOOK = "else correct host and port"


def with_server(shop, kind, address, parameters=""):
    """A server in the place of the queue."""
    if kind == "amqp":
        shop.configure(replace=[
            ("relay_to: orders", "relay_to: mq"),
            ("    failed:\n", f"    mq: 'amqp://{address}/%2f{parameters}'\n"
             "    failed:\n")])
    else:
        shop.configure(replace=[(
            shop.url("queue"), f"{kind}://u@{address}/b{parameters}")])


@pytest.mark.parametrize("kind", ["pgsql", "mysql", "amqp"])
def test_a_server_that_is_not_met_is_told_of_with_the_cure(shop, kind):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        with_server(shop, kind, f"127.0.0.1:{port}")
        relay = shop.start("relay", "outbox")
        said = relay.wait_for(r"relay\.trouble .*").group()
        assert f"127.0.0.1:{port}" in said and LOOK in said
        assert relay.stop() == 0
    with_server(shop, kind, "host.invalid")
    relay = shop.start("relay", "outbox")
    said = relay.wait_for(r"relay\.trouble .*").group()
    assert "host.invalid" in said and "correct" in said
    assert relay.stop() == 0


@pytest.mark.parametrize("kind", ["pgsql", "amqp"])
def test_a_port_that_is_silent_is_told_of_with_the_cure(shop, kind):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with_server(shop, kind, f"127.0.0.1:{port}", "?connect_timeout=1")
        relay = shop.start("relay", "outbox")
        said = relay.wait_for(r"relay\.trouble .*").group()
        assert "no answer" in said and LOOK in said
        assert relay.stop() == 0


def test_a_port_that_hangs_up_is_told_of_with_the_cure(shop):
    with another_server(b"") as port:
        with_server(shop, "amqp", f"127.0.0.1:{port}")
        relay = shop.start("relay", "outbox")
        said = relay.wait_for(r"relay\.trouble .*").group()
        assert "closed the connection" in said and LOOK in said
        assert relay.stop() == 0


def test_a_certificate_that_is_not_there_is_told_of_as_that(shop):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with_server(shop, "amqp", f"127.0.0.1:{port}", "?cacert=none.pem")
        shop.config_path.write_text(
            shop.config_path.read_text().replace("amqp:", "amqps:"))
        fails(shop, ["cacert=", "none.pem", "No such file"], "relay", "outbox")


@pytest.mark.parametrize("scheme, says", [
    ("pgsql", "is not PostgreSQL; correct host and port"),
    ("mysql", "does not answer as MariaDB and MySQL do; correct host and port")])
def test_another_service_on_the_port_is_not_taken_for_a_bad_certificate(
        shop, scheme, says):
    def answer():
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                if scheme == "pgsql":
                    connection.recv(8)
                    connection.sendall(b"AMQP")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        shop.configure(replace=[(
            shop.url("queue"), f"{scheme}://u@127.0.0.1:{port}/b")])
        relay = shop.start("relay", "outbox")
        try:
            said = relay.wait_for(r"relay\.trouble .*").group()
            assert says in said and "certificate" not in said
            assert relay.stop() == 0
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_mistake_in_a_new_configuration_does_not_end_a_service(ready_shop):
    shop = ready_shop
    relay = shop.start("relay", "outbox")
    relay.wait_for(r"relay\.active")
    shop.configure(replace=[elsewhere(shop, "queue")])
    relay.process.send_signal(signal.SIGHUP)
    relay.wait_for(r"relay\.trouble .*there is no folder")
    shop.configure()
    relay.process.send_signal(signal.SIGHUP)
    shops.until(lambda: len(relay.events("relay.active")) == 2, relay.log)
    assert relay.stop() == 0


def test_ready_is_said_when_it_is(ready_shop):
    shop = ready_shop
    path = shop.folder / "notify"
    shop.configure(replace=[elsewhere(shop, "queue")])
    port = test_metrics.free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(shops.PATIENCE_S)
        relay = shop.start("relay", "outbox", "--wait",
                           f"--metrics-port={port}",
                           environment={"NOTIFY_SOCKET": str(path)})
        told = []
        while "STATUS=outbox: in trouble" not in told:
            told.append(listener.recv(4096).decode())
        assert "READY=1" not in told
        assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in told)
        assert test_metrics.get(port, "/readyz")[0] == 503
        (shop.folder / "none").mkdir()
        while "READY=1" not in told:
            told.append(listener.recv(4096).decode())
        relay.wait_for(r"relay\.active")
        assert test_metrics.get(port, "/readyz")[0] == 200
        assert relay.stop() == 0


@contextlib.contextmanager
def another_server(answer):
    """Answers whatever it is asked in this way, and hangs up; its port."""
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answer, cure", [
    (b"AMQP\0\0\x09\x01", "what answers there is no Kafka broker: check the "
                          "port in the DSN"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no Kafka "
                                          "broker"),
    (b"\x15\x03\x03\0\x02\x02\x46", "the port seems to want TLS")])
def test_a_port_that_is_not_kafka_s_is_not_taken_for_one(shop, answer, cure):
    """RabbitMQ, a web server, and a listener that speaks TLS alone."""
    if "kafka" not in shop.check("--version"):
        pytest.skip("this build has no Kafka")
    with another_server(answer) as port:
        shop.configure(replace=[
            ("relay_to: orders", "relay_to: topic"),
            ("    failed:\n",
             f"    topic: 'kafka://127.0.0.1:{port}/orders'\n    failed:\n")])
        shop.set_up()
        relay = shop.start_relay()
        relay.wait_for(rf"relay\.trouble .*127\.0\.0\.1:{port} cannot be "
                       rf"reached: {cure}")
        assert relay.stop() == 0
