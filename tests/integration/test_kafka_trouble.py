"""Kafka is killed, away, silent, or not what the configuration says: nothing is
lost or done twice, and it is said what is wrong."""
import contextlib
import os
import random
import time

import pytest

import servers
import shop as shops
import test_kafka
import test_metrics
import worlds
from servers import ports


@pytest.fixture(scope="module")
def own_kafka():
    """One that may be killed."""
    worlds.need("SKR_KAFKA_URL")
    with servers.Kafka() as server:
        yield server


def new_world(folder, broker):
    return test_kafka.World(
        folder, test_kafka.new_database("sqlite", folder), broker)


@pytest.fixture
def world(tmp_path):
    opened = new_world(tmp_path, worlds.need("SKR_KAFKA_URL"))
    opened.set_up()
    yield opened
    opened.leave()


@pytest.fixture
def own_world(tmp_path, own_kafka):
    """On the Kafka that may be killed; it runs again for the next test."""
    opened = new_world(tmp_path, own_kafka.url)
    opened.set_up()
    yield opened
    own_kafka.thaw()
    if not own_kafka.is_running():
        own_kafka.start()
    opened.leave()


def test_everything_is_killed_under_load(own_world, own_kafka):
    world = own_world
    seed = int(os.environ.get("SKIRNIR_SEED", random.randrange(1 << 32)))
    print(f"SKIRNIR_SEED={seed}")
    chance = random.Random(seed)
    count = 60000 if shops.LONG else 6000
    running = {kind: world.start(*kind.split())
               for kind in ("relay outbox", "consume kafka")}
    for first in range(0, count, 1000):
        world.insert(1000, first)
        victim = chance.choice([*running, "kafka"])
        world.wait_for_effects(chance.randrange(first + 1) // 2)
        if victim == "kafka":
            own_kafka.kill()
            own_kafka.start()
        else:
            running[victim].kill()
            running[victim] = world.start(*victim.split())
    world.wait_for_effects(count, 180)
    for program in running.values():
        assert program.stop() == 0
    assert world.left() == 0
    world.expect_once(count)


def test_a_kafka_that_is_away_is_waited_for_and_said_once(
        own_world, own_kafka):
    world = own_world
    own_kafka.stop()
    world.insert(100)
    relay = world.start_relay()
    relay.wait_for("relay.trouble")
    assert own_kafka.url.removeprefix("kafka://") in relay.log()
    own_kafka.start()
    shops.until(lambda: world.left() == 0, relay.log)
    assert relay.stop() == 0
    assert len(relay.events("relay.trouble")) == 1
    assert world.failed() == 0
    # The same when it goes away under way.
    world.insert(100, 100)
    own_kafka.kill()
    relay = world.start_relay()
    own_kafka.start()
    shops.until(lambda: world.left() == 0, relay.log)
    assert relay.stop() == 0
    world.consume()
    world.expect_once(200)


@pytest.mark.quick
def test_a_consumer_stops_although_kafka_hangs(own_world, own_kafka):
    """It cannot tell what it handled; that is not handled again."""
    world = own_world
    world.insert(2000)
    world.relay()
    consumer = world.start("consume", "kafka")
    world.wait_for_effects(100)
    own_kafka.freeze()
    assert consumer.stop() == 0
    own_kafka.thaw()
    world.consume()
    world.expect_once(2000)


@contextlib.contextmanager
def watched(world):
    """A relay and a consumer, and whether both say that they are ready."""
    with contextlib.ExitStack() as stack:
        programs = {}
        for command in ("relay outbox", "consume kafka"):
            port = stack.enter_context(contextlib.closing(ports.take())).number
            programs[port] = world.start(*command.split(),
                                         f"--metrics-port={port}")

        def wait_until_all_say(status):
            for port in programs:
                shops.until(lambda: test_metrics.get(port, "/readyz")[0] ==
                            status, world.logs)

        wait_until_all_say(200)
        yield *programs.values(), wait_until_all_say
        for program in programs.values():
            assert program.stop() == 0


@pytest.mark.parametrize("trouble, cure", [
    pytest.param("freeze", "thaw", marks=pytest.mark.quick),
    ("kill", "start")])
def test_those_who_are_idle_know_whether_kafka_is_there(
        own_world, own_kafka, trouble, cure):
    """Although nothing is to be sent or consumed."""
    own_world.set_config(broker=f"{own_kafka.url}?confirm_timeout=600")
    with watched(own_world) as (relay, consumer, wait_until_all_say):
        getattr(own_kafka, trouble)()
        wait_until_all_say(503)
        getattr(own_kafka, cure)()
        wait_until_all_say(200)
        for program in (relay, consumer):
            assert program.events("kafka.recovered")
            assert not program.events("kafka.given_up")


def test_an_outage_longer_than_confirm_timeout_is_over_when_kafka_is_back(
        own_world, own_kafka):
    own_world.set_config(broker=f"{own_kafka.url}?confirm_timeout=3")
    with watched(own_world) as (relay, consumer, wait_until_all_say):
        own_kafka.freeze()
        consumer.wait_for("consumer.trouble")
        # One with nothing to send has no reason to begin anew.
        relay.wait_for("kafka.trouble")
        assert not relay.events("relay.trouble")
        own_world.insert(1)
        relay.wait_for("relay.trouble")
        wait_until_all_say(503)
        own_kafka.thaw()
        own_world.wait_for_effects(1)
        wait_until_all_say(200)


def test_a_topic_that_is_missing_holds_its_messages_and_no_others(tmp_path):
    worlds.need("SKR_KAFKA_URL")
    with servers.Kafka(settings={
            "auto.create.topics.enable": "false"}) as kafka:
        world = new_world(tmp_path, kafka.url)
        try:
            world.set_up()
            # Consuming makes the topic.
            world.consume()
            world.insert(10, headers='{"type":"order.placed",'
                         '"X-Skirnir-Topic":"no-such-topic"}')
            world.insert(100, 10)
            relay = world.start_relay()
            relay.wait_for("relay.route_closed")
            assert "no-such-topic" in relay.log()
            shops.until(lambda: world.left() == 10, relay.log)
            assert relay.stop() == 0
            assert world.failed() == 0
        finally:
            world.leave()


def find_mistake(name):
    """A DSN that is wrong, and what is said of it."""
    def port(purpose):
        return f"127.0.0.1:{worlds.need(f'SKR_KAFKA_{purpose}PORT')}"
    user = worlds.need("SKR_KAFKA_USER")
    certificates = worlds.need("SKR_KAFKA_CERTIFICATES")
    authority = f"cacert={certificates}/authority.pem"
    return {
        "nobody listens": ("kafka://127.0.0.1:1",
                           "check that a broker runs there"),
        "no such host": ("kafka://no-such-host.invalid:9092",
                         "check the names of the brokers"),
        "no TLS there": (f"kafka://{port('')}?tls=1&{authority}",
                         "TLS met a port without it"),
        # The certificate is for 127.0.0.1 and localhost; this leads there too.
        "certificate of another name": (
            f"kafka://{port('TLS_').replace('127.0.0.1', '127.1')}"
            f"?tls=1&{authority}", "named as in the certificates"),
        "TLS alone there": (f"kafka://{port('TLS_')}",
                            "the port seems to want TLS or a login"),
        "wrong password": (
            f"kafka://{user}:not-the-secret@{port('SASL_')}?{authority}",
            "the login was refused"),
        "certificate of a stranger": (
            f"kafka://{port('TLS_')}?tls=1&"
            + authority.replace("authority", "stranger"),
            "TLS failed: check cacert"),
        "certificate that the server refuses": (
            f"kafka://{port('TLS_')}?tls=1&{authority}"
            + "".join(f"&{part}={certificates}/stranger.{end}"
                      for part, end in (("cert", "pem"), ("key", "key"))),
            "TLS failed: check cacert, cert and key"),
        "no such mechanism": (
            f"kafka://{user}:not-the-secret@{port('SASL_')}?{authority}"
            "&sasl.mechanisms=SCRAM-SHA-512", "the login was refused"),
        "wrong password, by SCRAM": (
            f"kafka://{user}:not-the-secret@{port('SASL_PLAINTEXT_')}"
            "?security.protocol=sasl_plaintext", "the login was refused"),
    }[name]


@pytest.mark.parametrize("mistake", [
    "nobody listens", "no such host", "no TLS there", "TLS alone there",
    pytest.param("certificate of another name", marks=pytest.mark.quick),
    pytest.param("wrong password", marks=pytest.mark.quick),
    "wrong password, by SCRAM"])
def test_a_mistake_is_said_as_such_and_once(world, mistake):
    dsn, text = find_mistake(mistake)
    world.insert(10)
    world.set_config(broker=dsn)
    relay = world.start_relay("--wait")
    consumer = world.start("consume", "kafka", "--wait")
    for program, event in ((relay, "relay.trouble"),
                           (consumer, "consumer.trouble")):
        program.wait_for(event)
        assert text in program.log()
        assert "not-the-secret" not in program.log()
        assert program.stop() == 0
        assert len(program.events(event)) == 1
    assert world.left() == 10
    password = worlds.need("SKR_KAFKA_PASSWORD")
    world.set_config(broker=dsn.replace("not-the-secret", password)
                     if "not-the-secret" in dsn else world.broker)
    world.relay()
    world.consume()
    world.expect_once(10)


@pytest.mark.parametrize("mistake", [
    "wrong password", "wrong password, by SCRAM", "no such mechanism",
    "certificate of another name", "certificate of a stranger",
    "certificate that the server refuses"])
def test_a_login_that_is_refused_ends_relay_and_consumer(world, mistake):
    """Waiting does not mend it, whichever side refuses the other."""
    dsn, text = find_mistake(mistake)
    world.set_config(broker=dsn)
    for command in (["relay", "outbox"], ["consume", "kafka"]):
        ended = world.start(*command)
        assert ended.end() == 1, ended.log()
        assert text in ended.log()
        assert "not-the-secret" not in ended.log()


def test_a_broker_with_a_wrong_certificate_leaves_the_others_of_its_list(world):
    """librdkafka begins with any of them, and most have another name here than
    in the certificate."""
    dsn = find_mistake("certificate of another name")[0]
    port = worlds.need("SKR_KAFKA_TLS_PORT")
    wrong = f"127.1:{port}"
    others = [f"{name}:{port}" for name in (
        "127.0.1", "0x7f.1", "0x7f.0.1", "0177.1", "0177.0.1", "127.0.0.1")]
    assert wrong in dsn
    world.insert(10)
    world.set_config(broker=dsn.replace(wrong, ",".join([wrong, *others])))
    world.relay()
    world.consume()
    world.expect_once(10)


def test_a_login_that_is_refused_is_no_storm(world):
    """The more often it was refused, the longer is the wait before the next."""
    dsn = find_mistake("wrong password")[0]
    with servers.Proxy(int(worlds.need("SKR_KAFKA_SASL_PORT"))) as proxy:
        # One connection for each time that it is tried.
        world.set_config(broker=proxy.url(dsn) + "&reconnect.backoff.ms=60000"
                         "&reconnect.backoff.max.ms=60000")
        started_s = time.monotonic()
        relay = world.start_relay("--wait")
        shops.until(lambda: proxy.accepted >= 6, relay.log)
        # 0.1, 0.2, 0.4, 0.8, 1.6 seconds.
        assert time.monotonic() - started_s > 3
        assert relay.stop() == 0
        assert len(relay.events("relay.trouble")) == 1
        assert "the login was refused" in relay.log()
