"""Real servers for the tests, private to the process that starts them.

    with servers.PostgreSQL() as server:
        connect(server.url)
        server.kill()
        server.restart()

with-server does the same for a command. server.py has what they share,
clusters.py several that are one.
"""
from .clusters import KafkaCluster, Pair, RabbitMQCluster
from .galera import Galera
from .group import KINDS, Group
from .kafka import Kafka
from .mariadb import MariaDB
from .mysql import MISSING as MYSQL_IS_MISSING
from .mysql import MySQL
from .pgbouncer import PgBouncer
from .postgresql import PostgreSQL, Standby
from .proxy import Proxy
from .rabbitmq import RabbitMQ
from .server import NotInstalled, Server, ServerError

__all__ = ["KINDS", "MYSQL_IS_MISSING", "Galera", "Group", "Kafka",
           "KafkaCluster", "MariaDB", "MySQL", "NotInstalled", "Pair",
           "PgBouncer", "PostgreSQL", "Proxy", "RabbitMQ", "RabbitMQCluster",
           "Server", "ServerError", "Standby"]
