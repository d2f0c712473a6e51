"""PgBouncer in front of a PostgreSQL server, which gives its sessions away by the
transaction or for good."""
import socket

from .postgresql import PostgreSQL
from .server import Server


class PgBouncer(Server):
    name = "pgbouncer"
    package = "pgbouncer"
    user = PostgreSQL.user

    def __init__(self, server_port, pool_mode, **options):
        super().__init__(**options)
        self.server_port, self.pool_mode = server_port, pool_mode

    def url(self, url):
        """The same URL through the pooler."""
        return url.replace(f":{self.server_port}/", f":{self.port}/")

    def find_programs(self):
        self.find_program("pgbouncer")

    def prepare(self):
        pass

    def before_start(self):
        self.write("pgbouncer.ini", f"""\
[databases]
* = host=127.0.0.1 port={self.server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {self.pool_mode}
""")

    def command(self):
        return [self.find_program("pgbouncer"), self.folder / "pgbouncer.ini"]

    def is_ready(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True
