"""Servers that are one: three of RabbitMQ with quorum queues, three of Kafka
with three copies of everything, a pair of PostgreSQL.

    with RabbitMQCluster() as cluster:
        connect(cluster.url)          # names all three
        cluster.nodes[0].freeze()     # each can be killed, frozen, restarted
        cluster.nodes[0].thaw()

The nodes are servers as any other of this folder, on ports of their own.
"""
import json
import secrets
import socket
import subprocess
import time

from .kafka import Kafka, new_identity
from .postgresql import PostgreSQL, Standby
from .rabbitmq import RabbitMQ
from .server import Server, ServerError
from .together import Together

SIZE = 3
MEND_LIMIT_S = 180


class Cluster(Together):
    @property
    def nodes(self):
        return self.servers

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def is_whole(self):
        """Whether every node has all that the others have, so that any one of
        them can be spared."""
        raise NotImplementedError

    def mend(self):
        """Every node runs again, whatever was done to it, and has all."""
        for node in self.nodes:
            if node.is_running():
                node.thaw()
        for node in self.nodes:
            if not node.is_running():
                node.start()
        deadline = time.monotonic() + MEND_LIMIT_S
        while not self.is_whole():
            if time.monotonic() > deadline:
                raise ServerError("the nodes do not come together; " +
                                  "\n".join(map(Server.tail, self.nodes)))
            time.sleep(0.1)

    def close(self):
        # One that is frozen, or misses the others, does not stop.
        for node in self.nodes:
            node.kill()
        super().close()


class Epmd(Server):
    """Erlang's register of nodes, which outlives each of them."""
    name = "epmd"
    package = RabbitMQ.package
    user = RabbitMQ.user

    def find_programs(self):
        self.find_program("epmd")

    def prepare(self):
        pass

    def command(self):
        return [self.find_program("epmd"), "-address", "127.0.0.1",
                "-port", self.port]

    def is_ready(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True


class RabbitMQNode(RabbitMQ):
    def __init__(self, cluster, letter, **options):
        super().__init__(**options)
        self.cluster, self.letter = cluster, letter

    @property
    def node(self):
        return f"{self.letter}@localhost"

    def port_of(self, purpose):
        if purpose == "epmd":
            return self.cluster.register.port
        return super().port_of(purpose)

    def prepare(self):
        super().prepare()
        self.write(".erlang.cookie", self.cluster.cookie).chmod(0o400)

    def start_epmd(self):
        pass


class RabbitMQCluster(Cluster):
    def __init__(self, settings=None):
        """settings go to each node's rabbitmq.conf."""
        self.cookie = secrets.token_hex(16)
        self.register = Epmd()
        letters = "abc"[:SIZE]
        super().__init__([RabbitMQNode(self, letter, settings={
            "cluster_partition_handling": "pause_minority",
            "cluster_formation.peer_discovery_backend": "classic_config",
            **{f"cluster_formation.classic_config.nodes.{number}":
               f"{other}@localhost"
               for number, other in enumerate(letters, 1)},
            **(settings or {})}) for letter in letters])

    @property
    def url(self):
        return f"amqp://guest:guest@{self.hosts}/%2f"

    def start(self):
        """The others join the first."""
        self.register.start()
        self.nodes[0].start()
        for node in self.nodes[1:]:
            node.start()
        return self

    def is_whole(self):
        """All members of all quorum queues are there."""
        try:
            lines = self.nodes[0].control("list_queues", "type", "online")
        except ServerError:
            return False
        return all(line.count("@localhost") == SIZE
                   for line in lines.splitlines() if line.startswith("quorum"))

    def close(self):
        try:
            super().close()
        finally:
            self.register.close()


class KafkaNode(Kafka):
    def __init__(self, cluster, number):
        super().__init__()
        self.cluster, self.number = cluster, number
        self.identity = cluster.identity

    def before_start(self):
        # Only now every node has its ports.
        self.settings = self.cluster.settings_of(self)
        super().before_start()

    def prepare(self):
        self.settings = self.cluster.settings_of(self)
        super().prepare()


class KafkaCluster(Cluster):
    def __init__(self, settings=None):
        """settings go to each node's server.properties."""
        self.identity = new_identity()
        self.more = settings or {}
        super().__init__([KafkaNode(self, number)
                          for number in range(1, SIZE + 1)])

    @property
    def url(self):
        return f"kafka://{self.hosts}"

    def start(self):
        # Before three threads ask for them.
        for node in self.nodes:
            node.port_of("main")
            node.port_of("controller")
        return super().start()

    def is_whole(self):
        """All copies of all partitions are in step."""
        told = subprocess.run(
            [self.nodes[0].find_program("kcat"), "-L", "-J", "-b",
             self.hosts], capture_output=True, text=True)
        if told.returncode != 0:
            return False
        cluster = json.loads(told.stdout)
        return len(cluster["brokers"]) == SIZE and all(
            len(partition["isrs"]) == SIZE for topic in cluster["topics"]
            for partition in topic["partitions"])

    def settings_of(self, node):
        return {
            "node.id": node.number,
            "controller.quorum.voters": ",".join(
                f"{other.number}@127.0.0.1:{other.port_of('controller')}"
                for other in self.nodes),
            "default.replication.factor": SIZE,
            "min.insync.replicas": SIZE - 1,
            "offsets.topic.replication.factor": SIZE,
            "transaction.state.log.replication.factor": SIZE,
            "transaction.state.log.min.isr": SIZE - 1,
            **self.more}


class Pair(Cluster):
    """A primary of PostgreSQL and a standby. A commit waits until both have it,
    while there are both."""

    def __init__(self):
        # One that has lost its primary looks for it again soon.
        settings = {"wal_retrieve_retry_interval": "200ms"}
        self.primary = PostgreSQL(settings=dict(settings))
        self.standby = Standby(self.primary, settings=dict(settings))
        super().__init__([self.primary, self.standby])

    @property
    def url(self):
        return f"pgsql://postgres@{self.hosts}/skirnir"

    def start(self):
        self.primary.start()
        self.standby.start()
        self._wait_for_standby(True)
        return self

    def is_whole(self):
        return self.primary.query(
            "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        ) == "1\n"

    def fail_over(self):
        """The primary is gone, and the standby takes its place."""
        self.primary.kill()
        self.primary, self.standby = self.standby, self.primary
        self._wait_for_standby(False)
        self.primary.promote()

    def rejoin(self):
        """The one that was gone follows the other, from a new copy."""
        self.standby.follow(self.primary)
        self._wait_for_standby(True)
        self.mend()

    def _wait_for_standby(self, is_needed):
        names = "*" if is_needed else ""
        self.primary.query(
            f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.query("SELECT pg_reload_conf()")
