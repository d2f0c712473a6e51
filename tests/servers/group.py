"""Several servers that start and end together."""
import concurrent.futures

from .kafka import Kafka
from .mariadb import MariaDB
from .mysql import MySQL
from .postgresql import PostgreSQL
from .rabbitmq import RabbitMQ
from .server import ServerError

KINDS = {kind.name: kind for kind in (MariaDB, MySQL, PostgreSQL,
                                      RabbitMQ, Kafka)}


class Group:
    def __init__(self, names, keep=False):
        """names: NAME[+tls],..."""
        self.servers = []
        for word in names.split(","):
            name, plus, extra = word.partition("+")
            if name not in KINDS or (plus and extra != "tls"):
                raise ValueError(f"no server is called {word!r}; there are "
                                 f"{', '.join(KINDS)}, each with or "
                                 "without +tls")
            self.servers.append(KINDS[name](tls=bool(plus), keep=keep))

    def start(self):
        # Threads: the slowest start decides, and a signal, which only the
        # main thread gets, never comes between a fork and its bookkeeping.
        with concurrent.futures.ThreadPoolExecutor(len(self.servers)) as pool:
            starts = [pool.submit(server.start) for server in self.servers]
            try:
                for start in concurrent.futures.as_completed(starts):
                    start.result()
            except BaseException:
                for server in self.servers:
                    server.cancelled.set()
                raise
        return self

    def environment(self):
        return {name: value for server in self.servers
                for name, value in server.environment().items()}

    def close(self):
        """All of them, whatever happens to one."""
        wrong = []
        for server in self.servers:
            try:
                server.close()
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
