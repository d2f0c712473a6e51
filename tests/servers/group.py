"""The servers that a test run names, which its tests share."""
from .kafka import Kafka
from .mariadb import MariaDB
from .mysql import MySQL
from .postgresql import PostgreSQL
from .rabbitmq import RabbitMQ
from .together import Together

KINDS = {kind.name: kind for kind in (MariaDB, MySQL, PostgreSQL,
                                      RabbitMQ, Kafka)}


class Group(Together):
    def __init__(self, names, keep=False):
        """names: NAME[+tls],..."""
        chosen = []
        for word in names.split(","):
            name, plus, extra = word.partition("+")
            if name not in KINDS or (plus and extra != "tls"):
                raise ValueError(f"no server is called {word!r}; there are "
                                 f"{', '.join(KINDS)}, each with or "
                                 "without +tls")
            chosen.append(KINDS[name](tls=bool(plus), keep=keep))
        super().__init__(chosen)

    def environment(self):
        return {name: value for server in self.servers
                for name, value in server.environment().items()}
