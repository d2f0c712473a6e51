"""RabbitMQ: user and password guest, virtual host /, no plugins.

The node has an epmd (Erlang's register of nodes) and a cookie of its own, so
nothing of another node on the machine is ever met.
"""
import socket

from .server import Server

# The distribution's commands in PATH change the user, these do not.
PACKAGE_FOLDER = "/usr/lib/rabbitmq/bin"
AMQP_GREETING = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"


class RabbitMQ(Server):
    name = "rabbitmq"
    package = "rabbitmq-server"
    user = "rabbitmq"
    epmd = None

    @property
    def node(self):
        return f"{self.folder.name}@localhost"

    @property
    def url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2f"

    @property
    def tls_url(self):
        return f"amqps://guest:guest@127.0.0.1:{self.port_of('tls')}/%2f"

    def environment(self):
        values = super().environment()
        if self.tls:
            values["SKR_RABBITMQ_TLS_URL"] = self.tls_url
            values["SKR_RABBITMQ_TLS_PORT"] = str(self.port_of("tls"))
        return values

    def control(self, *arguments):
        """What rabbitmqctl prints; it takes more than a second."""
        return self.call([self._program("rabbitmqctl"), "--quiet",
                          *arguments]).stdout

    def keep_declarations(self):
        """Queues that were declared outlive a kill from here on. RabbitMQ
        syncs the transaction that makes one, but writes that it was committed
        up to two seconds later: killed in between, it starts without the queue
        and without messages that it has confirmed."""
        self.control("eval", "mnesia:dump_log().")

    def find_programs(self):
        self.find_program("epmd")
        self._program("rabbitmq-server")
        self._program("rabbitmqctl")

    def prepare(self):
        for folder in ("mnesia", "logs", "generated"):
            self.folder_of(folder)
        self.write("enabled_plugins", "[].\n")
        self.write("environment", "")

    def before_start(self):
        lines = {"listeners.tcp.default": f"127.0.0.1:{self.port}",
                 "loopback_users": "none"}
        if self.tls:
            lines.update({
                "listeners.ssl.default": f"127.0.0.1:{self.port_of('tls')}",
                "ssl_options.cacertfile": self.certificates.authority,
                "ssl_options.certfile": self.certificates.server,
                "ssl_options.keyfile": self.certificates.server_key,
                # A client may have no certificate, but none of strangers.
                "ssl_options.verify": "verify_peer",
                "ssl_options.fail_if_no_peer_cert": "false"})
        lines.update(self.settings)
        self.write("rabbitmq.conf", "".join(
            f"{key} = {value}\n" for key, value in lines.items()))
        self.start_epmd()

    def start_epmd(self):
        # In the foreground: the one that Erlang would start itself outlives
        # the node and hides in the root folder.
        self.epmd = self.spawn(
            [self.find_program("epmd"), "-address", "127.0.0.1",
             "-port", self.port_of("epmd")], self.folder / "epmd.log")

    def command(self):
        return [self._program("rabbitmq-server")]

    def server_environment(self):
        return {
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.port_of("distribution")),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self.port_of("epmd")),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE":
                str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE":
                str(self.folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            # Makes the script become the server instead of its parent.
            "RUNNING_UNDER_SYSTEMD": "true"}

    def is_ready(self):
        # The listeners come last, that for TLS at the very end.
        try:
            if self.tls:
                self._connect("tls").close()
            with self._connect("main") as link:
                link.sendall(AMQP_GREETING)
                return link.recv(1) == METHOD_FRAME
        except OSError:
            return False

    def after_end(self):
        if self.epmd is not None:
            self.epmd.wait()

    def _connect(self, purpose):
        return socket.create_connection(
            ("127.0.0.1", self.port_of(purpose)), 5)

    def _program(self, name):
        return self.find_program(name, PACKAGE_FOLDER)
