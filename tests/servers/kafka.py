"""Apache Kafka: one process that is broker and controller, any topic made on
first use with four partitions.

Debian has no package of it: Maven fetches it once, into the cache folder of
the tests' user. With tls there are three more listeners: TLS, and login
with a password over TLS or without it.
"""
import base64
import fcntl
import os
import pathlib
import pwd
import subprocess
import uuid

from .server import NotInstalled, Server

VERSION = "3.9.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>skirnir</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-reload4j</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
FETCH_LIMIT_S = 600
STARTED = b"Kafka Server started"
# The same for login by PLAIN and by SCRAM.
USER, PASSWORD = "alice", "alice-secret"
LISTENERS = {"main": "PLAINTEXT", "controller": "CONTROLLER"}
TLS_LISTENERS = {"tls": "SSL", "sasl": "SASL_SSL",
                 "sasl_plaintext": "SASL_PLAINTEXT"}


def cache_folder():
    parent = os.environ.get("XDG_CACHE_HOME") or \
        pathlib.Path.home() / ".cache"
    return pathlib.Path(parent) / "skirnir" / f"kafka-{VERSION}"


def fetch(maven):
    """The folder with Kafka's jars; the first time takes a while."""
    folder = cache_folder()
    jars = folder / "jars"
    if jars.exists():
        return jars
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars.exists():
            return jars
        (folder / "pom.xml").write_text(POM)
        part = folder / "jars.part"
        result = subprocess.run(
            [maven, "-B", "-q", "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={part}"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=FETCH_LIMIT_S)
        if result.returncode != 0:
            reason = next((line for line in result.stdout.splitlines()
                           if "ERROR" in line), "it gives no reason")
            raise NotInstalled(
                f"Maven cannot fetch Apache Kafka {VERSION} into {folder}: "
                f"{reason.strip()}; give this machine a way to Maven's "
                "repository, or put the jars there")
        part.rename(jars)
    return jars


def new_identity():
    # Not with a hyphen first: that would be an option.
    return base64.urlsafe_b64encode(
        b"s" + uuid.uuid4().bytes[1:]).decode()[:22]


class Kafka(Server):
    name = "kafka"
    package = "default-jre-headless maven kcat"
    jars = None
    log_start = 0
    identity = new_identity()  # the servers of a cluster have the same

    @property
    def user(self):
        # Kafka runs as anyone, and its jars lie in a folder of our own.
        return pwd.getpwuid(os.geteuid()).pw_name

    @property
    def url(self):
        return f"kafka://127.0.0.1:{self.port}"

    def environment(self):
        values = super().environment()
        if self.tls:
            for purpose in TLS_LISTENERS:
                values[f"SKR_KAFKA_{purpose.upper()}_PORT"] = \
                    str(self.port_of(purpose))
            values["SKR_KAFKA_USER"] = USER
            values["SKR_KAFKA_PASSWORD"] = PASSWORD
        return values

    def produce(self, topic, lines, *options):
        """One record a line, by kcat; KEY:VALUE with -K:."""
        subprocess.run(
            [self.find_program("kcat"), "-P", "-b", f"127.0.0.1:{self.port}",
             "-t", topic, *options], input="\n".join(lines) + "\n", text=True,
            check=True, capture_output=True)

    def consume(self, topic, form="%s\\n", *options):
        """What the topic holds, by kcat; form is kcat's."""
        return subprocess.run(
            [self.find_program("kcat"), "-C", "-q", "-e", "-b",
             f"127.0.0.1:{self.port}", "-t", topic, "-o", "beginning",
             "-f", form, *options], text=True, capture_output=True).stdout

    def find_programs(self):
        self.find_program("java")
        self.find_program("kcat")
        self.jars = fetch(self.find_program("mvn"))

    def prepare(self):
        self.folder_of("data")
        self.write("log4j.properties",
                   "log4j.rootLogger=WARN, out\n"
                   "log4j.logger.kafka.server.KafkaRaftServer=INFO\n"
                   # Logins that were refused.
                   "log4j.logger.org.apache.kafka.common.network.Selector"
                   "=INFO\n"
                   "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                   "log4j.appender.out.layout="
                   "org.apache.log4j.PatternLayout\n"
                   "log4j.appender.out.layout.ConversionPattern="
                   "%d %p %m (%c)%n\n")
        self._write_properties()
        scram = [] if not self.tls else [
            "--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]
        self.call(self._java("128m", "kafka.tools.StorageTool") +
                  ["format", "-t", self.identity, "-c", "server.properties",
                   *scram])

    def before_start(self):
        self._write_properties()
        self.log_start = self.log.stat().st_size if self.log.exists() else 0

    def command(self):
        return self._java("192m", "kafka.Kafka") + ["server.properties"]

    def is_ready(self):
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return STARTED in log.read()

    def _java(self, heap, program):
        return [self.find_program("java"), f"-Xmx{heap}", "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dlog4j.configuration=file:log4j.properties",
                "-cp", f"{self.jars}/*", program]

    def _write_properties(self):
        listeners = dict(LISTENERS)
        if self.tls:
            listeners.update(TLS_LISTENERS)
        places = {name: f"{name}://127.0.0.1:{self.port_of(purpose)}"
                  for purpose, name in listeners.items()}
        lines = {
            "process.roles": "broker,controller", "node.id": 1,
            "controller.quorum.voters":
                f"1@127.0.0.1:{self.port_of('controller')}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(places.values()),
            "advertised.listeners": ",".join(
                place for name, place in places.items()
                if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}"
                for name in places),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.folder / "data",
            "num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 2097152}
        if self.tls:
            lines.update(self._tls_properties())
        lines.update(self.settings)
        self.write("server.properties", "".join(
            f"{key}={value}\n" for key, value in lines.items()))

    def _tls_properties(self):
        own = self.certificates
        chain = self.write("keystore.pem", "".join(
            path.read_text() for path in (own.server_key, own.server,
                                          own.authority)))
        module = "org.apache.kafka.common.security"
        lines = {"ssl.keystore.type": "PEM", "ssl.keystore.location": chain,
                 "ssl.truststore.type": "PEM",
                 "ssl.truststore.location": own.authority,
                 "ssl.client.auth": "requested",
                 "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            lines[f"{prefix}.plain.sasl.jaas.config"] = (
                f"{module}.plain.PlainLoginModule required "
                f'user_{USER}="{PASSWORD}";')
            lines[f"{prefix}.scram-sha-256.sasl.jaas.config"] = (
                f"{module}.scram.ScramLoginModule required;")
        return lines
