"""Three nodes of RabbitMQ: each is killed and frozen under load, and a quorum
queue gets another leader while a relay publishes to it."""
import json

import pytest

import amqp_client
import databases
import load
import servers
import shop as shops
import test_kafka

CONFIG = """\
databases:
    default: '{database}'
transports:
    ordered:
        dsn: 'ordered-doctrine://default?table_name=ordered_outbox'
        relay_to: broker
        in_flight: {in_flight}
    broker:
        dsn: '{broker}'
        options:
            auto_setup: false
            exchange: {{name: '{topic}', type: topic}}
    failed: 'doctrine://default?queue_name=failed'
failure_transport: failed
"""
COUNT = 100
# After so long the cluster gives a node up that hangs; 60 by default.
NET_TICK_S = 10
# A server that hangs is left soon.
LOADED = """\
    broker:
        dsn: '{url}'
        options:
            auto_setup: false
            exchange: {{name: orders, type: topic}}
            connect_timeout: 3
            confirm_timeout: 5
            heartbeat: 5
    orders:
        dsn: '{url}?queues[orders]='
        options:
            auto_setup: false
            connect_timeout: 3
            confirm_timeout: 5
            heartbeat: 5
        retry_strategy: {{max_retries: 1000000, delay: 100, max_delay: 1000}}
"""


class World(test_kafka.World):
    """Of one ordered outbox, whose relay knows one node of the cluster."""

    def set_config(self, **_):
        self.write_config(CONFIG.format(
            database=self.database.url, broker=self.broker, topic=self.topic,
            in_flight=test_kafka.IN_FLIGHT))

    def declare(self):
        with amqp_client.Client(self.broker) as client:
            client.declare_exchange(self.topic)
            client.declare_queue(self.topic,
                                 arguments={"x-queue-type": "quorum"})
            client.bind(self.topic, self.topic, "#")


class LoadedWorld(load.World):
    """What is published goes to a consumer, and once more to a queue that keeps
    it in its order."""
    databases = ""

    def __init__(self, folder, database, cluster):
        self.cluster = cluster
        self.brokers = LOADED.format(url=cluster.url)
        super().__init__(folder, database)

    def prepare_broker(self):
        with amqp_client.Client(self.cluster.nodes[0].url) as client:
            client.declare_exchange("orders")
            for queue in ("orders", "wire"):
                client.declare_queue(queue,
                                     arguments={"x-queue-type": "quorum"})
                client.bind(queue, "orders", "#")

    def wire(self):
        with amqp_client.Client(self.cluster.nodes[0].url) as client:
            return [message.body for message in client.take_all("wire")]


@pytest.fixture(scope="module")
def cluster():
    with servers.RabbitMQCluster({"net_ticktime": NET_TICK_S}) as started:
        yield started


def leader_of(cluster, queue):
    for line in cluster.nodes[0].control(
            "list_queues", "--quiet", "name", "leader").splitlines():
        name, _, leader = line.partition("\t")
        if name == queue:
            return next(node for node in cluster.nodes if node.node == leader)
    raise AssertionError(f"queue {queue} has no leader")


def relay_through_an_election(tmp_path, cluster):
    """The old leader's node stays away, and the relay has connected before
    there is another."""
    world = World(tmp_path, test_kafka.new_database("sqlite", tmp_path),
                  cluster.nodes[0].url)
    world.declare()
    leader = leader_of(cluster, world.topic)
    near, other = (node for node in cluster.nodes if node is not leader)
    world.broker = near.url
    world.set_config()
    world.set_up()
    # Without the third node no leader is elected.
    other.freeze()
    leader.kill()
    try:
        relay = world.start("relay", "ordered")
        world.insert_ordered(COUNT)
        relay.wait_for(r"relay\.route_closed .*nack")
    finally:
        other.thaw()
    shops.until(lambda: world.left("ordered_outbox") == 0, world.logs)
    assert relay.stop() == 0
    with amqp_client.Client(near.url) as client:
        arrived = [json.loads(message.body)["n"]
                   for message in client.take_all(world.topic)]
    world.leave()
    first = list(dict.fromkeys(arrived))
    for key in range(test_kafka.KEYS):
        assert [number for number in first
                if number % test_kafka.KEYS == key] == \
            list(range(key, COUNT, test_kafka.KEYS))
    cluster.mend()


@pytest.fixture
def loaded(tmp_path, cluster):
    database = databases.PostgreSQL()
    opened = LoadedWorld(tmp_path, database, cluster)
    yield opened
    opened.close()
    database.drop()
    cluster.mend()


# A cluster takes half a minute to start.
if shops.LONG:
    def test_a_relay_that_was_refused_in_an_election_goes_on_after_it(
            tmp_path, cluster):
        relay_through_an_election(tmp_path, cluster)

    def test_nothing_is_lost_or_doubled_whichever_node_is_away(loaded, cluster):
        with load.load(loaded) as watch:
            load.disturb(watch, cluster)
