"""A Galera cluster of MariaDB servers: each node can be written."""
import pathlib

from .clusters import Cluster
from .mariadb import MariaDB
from .server import NotInstalled

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
            f"--{key}={value}" for key, value in options.items()),
            "--skip-log-bin"]
        return command + (["--wsrep-new-cluster"] if self.is_founder else [])

    def is_ready(self):
        return super().is_ready() and self.is_synced()

    def is_synced(self):
        """Whether it is one of those that decide, and has what they have."""
        status = self.status()
        return status.get("wsrep_ready") == "ON" and \
            status.get("wsrep_local_state_comment") == "Synced"

    def status(self):
        """What it says of itself and the cluster; nothing if it is away."""
        result = self.call([
            *self._client("mariadb"), "--batch", "--skip-column-names",
            "--connect-timeout=5", "-e", "SHOW STATUS LIKE 'wsrep%'"],
            is_checked=False)
        return dict(line.split("\t", 1) for line in result.stdout.splitlines()
                    if result.returncode == 0)

    def after_first_start(self):
        if self.is_founder:
            self.query("CREATE DATABASE skirnir")


class Galera(Cluster):
    """So many nodes; each is a server that can be killed and started."""

    def __init__(self, count=3, settings=None):
        super().__init__([Node(self, settings=settings)
                          for _ in range(count)])

    @property
    def url(self):
        """All of them, in order."""
        return f"mysql://root@{self.hosts}/skirnir"

    def start(self):
        """One after the other: each copies what the others have."""
        for node in self.nodes:
            # A cluster that is there is joined.
            node.is_founder = node is self.nodes[0]
            node.start()
            node.is_founder = False
        return self

    def is_whole(self):
        """One that was frozen believes for a moment that nothing was."""
        views = {(node.is_synced(), status.get("wsrep_cluster_conf_id"),
                  status.get("wsrep_cluster_size"))
                 for node in self.nodes for status in [node.status()]}
        return len(views) == 1 and views.pop()[::2] == (
            True, str(len(self.nodes)))
