"""A Galera cluster of MariaDB servers: each node can be written."""
import contextlib
import pathlib
import time

from .mariadb import MariaDB
from .server import START_LIMIT_S, NotInstalled, ServerError

PROVIDER = pathlib.Path("/usr/lib/galera/libgalera_smm.so")
# Of tests: a node that is silent is put out sooner than by default, which is
# 5 and 15 seconds.
SILENCE = "evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;" \
    "evs.inactive_timeout=PT4S;evs.inactive_check_period=PT0.5S"


class Node(MariaDB):
    def __init__(self, cluster, **options):
        super().__init__(**options)
        self.cluster = cluster
        self.is_founder = False  # of a cluster of which no node runs

    def find_programs(self):
        super().find_programs()
        self.find_program("rsync")
        if not PROVIDER.exists():
            raise NotInstalled("Galera is not installed: "
                               "apt-get install galera-4")

    def command(self):
        group, transfer = self.port_of("group"), self.port_of("transfer")
        others = ",".join(f"127.0.0.1:{node.port_of('group')}"
                          for node in self.cluster.nodes)
        options = {
            "wsrep-on": "ON", "wsrep-provider": PROVIDER,
            "wsrep-cluster-name": "skirnir",
            "wsrep-cluster-address": f"gcomm://{others}",
            "wsrep-node-address": f"127.0.0.1:{group}",
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address":
                f"127.0.0.1:{self.port_of('copy')}",
            "wsrep-provider-options":
                f"gmcast.listen_addr=tcp://127.0.0.1:{group};"
                f"ist.recv_addr=127.0.0.1:{transfer};{SILENCE}",
            "binlog-format": "ROW", "innodb-autoinc-lock-mode": "2"}
        command = [*super().command(), *(
            f"--{key}={value}" for key, value in options.items())]
        return command + (["--wsrep-new-cluster"] if self.is_founder else [])

    def is_ready(self):
        return super().is_ready() and self.is_synced()

    def is_synced(self):
        """Whether it is one of those that decide, and has what they have."""
        result = self.call([
            *self._client("mariadb"), "--batch", "--skip-column-names",
            "--connect-timeout=5", "-e",
            "SHOW STATUS WHERE Variable_name IN "
            "('wsrep_ready', 'wsrep_local_state_comment')"], is_checked=False)
        return result.returncode == 0 and \
            "wsrep_ready\tON" in result.stdout and "Synced" in result.stdout

    def after_first_start(self):
        if self.is_founder:
            self.query("CREATE DATABASE skirnir")


class Galera:
    """So many nodes; each is a server that can be killed and started."""

    def __init__(self, count=3, settings=None):
        self.nodes = [Node(self, settings=settings) for _ in range(count)]

    @property
    def url(self):
        """All of them, in order."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"mysql://root@{hosts}/skirnir"

    def start(self):
        """One after the other: each copies what the others have."""
        for node in self.nodes:
            # A cluster that is there is joined.
            node.is_founder = node is self.nodes[0]
            node.start()
            node.is_founder = False
        return self

    def wait_until_synced(self, nodes=None):
        deadline = time.monotonic() + START_LIMIT_S
        for node in nodes or self.nodes:
            while not node.is_synced():
                if time.monotonic() > deadline:
                    raise ServerError(f"a node is not synced; {node.tail()}")
                time.sleep(0.1)

    def close(self):
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()
