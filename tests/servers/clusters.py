"""Three servers that are one: RabbitMQ with quorum queues, Kafka with three
copies of everything.

    with RabbitMQCluster() as cluster:
        connect(cluster.url)          # names all three
        cluster.nodes[0].freeze()     # each can be killed, frozen, restarted
        cluster.nodes[0].thaw()

The nodes are servers as any other of this folder, on ports of their own.
"""
import concurrent.futures
import secrets
import socket

from .kafka import Kafka, new_identity
from .rabbitmq import RabbitMQ
from .server import Server, ServerError

SIZE = 3


class Cluster:
    def __init__(self, nodes):
        self.nodes = nodes

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self):
        with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as pool:
            starts = [pool.submit(node.start) for node in self.nodes]
            for start in concurrent.futures.as_completed(starts):
                start.result()
        return self

    def mend(self):
        """Every node runs again, whatever was done to it."""
        for node in self.nodes:
            if node.is_running():
                node.thaw()
        for node in self.nodes:
            if not node.is_running():
                node.start()

    def close(self):
        wrong = []
        for node in reversed(self.nodes):
            try:
                # One that is frozen, or misses the others, stops for nobody.
                node.kill()
                node.close()
            except ServerError as error:
                wrong.append(str(error))
        if wrong:
            raise ServerError("\n".join(wrong))

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


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
