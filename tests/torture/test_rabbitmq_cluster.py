"""A quorum queue of a RabbitMQ cluster gets another leader while a relay
publishes to it."""
import json

import pytest

import amqp_client
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


@pytest.fixture
def cluster():
    with servers.RabbitMQCluster() as started:
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
    world = World(tmp_path, test_kafka.SQLite(tmp_path / "shop.db"),
                  cluster.nodes[0].url)
    world.declare()
    leader = leader_of(cluster, world.topic)
    near, other = (node for node in cluster.nodes if node is not leader)
    world.broker = near.url
    world.set_config()
    world.set_up()
    # Without the third node nobody is elected.
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


# A cluster takes half a minute to start.
if shops.LONG:
    def test_a_relay_that_was_refused_in_an_election_goes_on_after_it(
            tmp_path, cluster):
        relay_through_an_election(tmp_path, cluster)
