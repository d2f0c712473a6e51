"""Three brokers of Kafka: what a relay and a consumer say of a cluster that is
well, and of one that cannot work; and each broker is killed and frozen under
load."""
import contextlib
import subprocess
import time
import uuid

import pytest

import databases
import load
import servers
import shop as shops
import test_kafka
import test_metrics
from servers import ports

CONFIG = """\
databases:
    default: '{database}'
transports:
    ordered:
        dsn: 'ordered-doctrine://default?table_name=ordered_outbox'
        relay_to: inbox
        in_flight: {in_flight}
    inbox:
        dsn: '{broker}'
        options:
            topic: '{topic}'
            topics: ['{topic}']
            group: '{topic}'
            session.timeout.ms: 6000
        batch: 20
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
"""
LOADED = """\
    broker:
        dsn: '{url}'
        options: {{topic: '{topic}', topics: ['{topic}'], group: '{topic}',
                   session.timeout.ms: 6000}}
    orders:
        dsn: '{url}'
        options: {{topic: '{topic}', topics: ['{topic}'], group: '{topic}',
                   session.timeout.ms: 6000}}
        retry_strategy: {{max_retries: 1000000, delay: 100, max_delay: 1000}}
"""
# Longer than several looks at the cluster.
IDLE_S = 20
PATIENCE_S = 180


class World(test_kafka.World):
    """Of one outbox, in order; what is handled goes to a table."""

    def __init__(self, folder, broker, config):
        self.config = config
        super().__init__(folder, test_kafka.new_database("sqlite", folder),
                         broker)

    def set_config(self, **settings):
        self.write_config(self.config.format(
            database=self.database.url, broker=self.broker, topic=self.topic,
            in_flight=test_kafka.IN_FLIGHT))

    def left(self, table="ordered_outbox"):
        return super().left(table)


class LoadedWorld(load.World):
    databases = ""

    def __init__(self, folder, database, cluster):
        self.cluster = cluster
        self.topic = f"skr-{uuid.uuid4().hex}"
        self.brokers = LOADED.format(url=cluster.url, topic=self.topic)
        super().__init__(folder, database)

    def prepare_broker(self):
        """The topic is made by the first who asks for it."""

    def wire(self):
        """A key has one partition, whose records come in their order."""
        return subprocess.run(
            ["kcat", "-C", "-q", "-e", "-b", self.cluster.hosts, "-t",
             self.topic, "-o", "beginning"], check=True, capture_output=True,
            text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def cluster():
    with servers.KafkaCluster() as started:
        yield started


@pytest.fixture
def world(tmp_path, cluster):
    opened = World(tmp_path, cluster.url, CONFIG)
    yield opened
    opened.leave()
    cluster.mend()


@contextlib.contextmanager
def idle_programs(world):
    """A relay and a consumer that have handled something, and their ports."""
    world.set_up()
    with contextlib.ExitStack() as stack:
        programs = {}
        for command in ("relay ordered", "consume inbox"):
            port = stack.enter_context(contextlib.closing(ports.take())).number
            programs[port] = world.start(*command.split(),
                                         f"--metrics-port={port}")
        world.insert_ordered(100)
        world.wait_for_effects(100)
        yield programs
        for program in programs.values():
            assert program.stop() == 0


def is_ready(port):
    return test_metrics.get(port, "/readyz")[0] == 200


def test_those_who_are_idle_are_ready_and_silent(world):
    with idle_programs(world) as programs:
        until_s = time.monotonic() + IDLE_S
        while time.monotonic() < until_s:
            assert all(map(is_ready, programs)), world.logs()
            time.sleep(0.1)
        for program in programs.values():
            assert not program.events("kafka.trouble")


def test_a_cluster_that_cannot_work_is_named_and_waited_for(world, cluster):
    """Of three, one is left: no leader is elected any more."""
    with idle_programs(world) as programs:
        for node in cluster.nodes[1:]:
            node.freeze()
        world.insert_ordered(100, 100)
        for port, program in programs.items():
            shops.until(lambda: not is_ready(port), world.logs)
            said = program.wait_for(r"(kafka|relay|consumer)\.trouble .*"
                                    ).group()
            assert str(cluster.nodes[0].port) in said
        cluster.mend()
        world.wait_for_effects(200, PATIENCE_S)
        for port in programs:
            shops.until(lambda: is_ready(port), world.logs)
    world.expect_once(200)


@pytest.fixture
def loaded(tmp_path, cluster):
    database = databases.PostgreSQL()
    opened = LoadedWorld(tmp_path, database, cluster)
    yield opened
    opened.close()
    database.drop()
    cluster.mend()


def test_nothing_is_lost_or_doubled_whichever_broker_is_away(loaded, cluster):
    with load.load(loaded) as watch:
        load.disturb(watch, cluster)
