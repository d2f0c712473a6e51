"""PostgreSQL: user postgres without a password, database `skirnir`."""
import pathlib
import re
import shutil
import signal

from .server import NotInstalled, Server, ServerError

VERSIONS = pathlib.Path("/usr/lib/postgresql")


class PostgreSQL(Server):
    name = "postgresql"
    package = "postgresql"
    user = "postgres"
    # SIGTERM would wait for every client to leave by itself.
    stop_signal = signal.SIGINT
    primary = None  # the server that this one follows

    @property
    def url(self):
        return f"pgsql://postgres@127.0.0.1:{self.port}/skirnir"

    @property
    def socket_folder(self):
        return self.folder / "sockets"

    def environment(self):
        return {**super().environment(),
                "SKR_POSTGRESQL_SOCKET_FOLDER": str(self.socket_folder)}

    def query(self, sql, database="skirnir"):
        """Rows as lines, columns parted by bars, by the server's client."""
        return self.call([
            self._program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1",
            "-h", self.socket_folder, "-p", self.port, "-U", "postgres",
            "-d", database, "-c", sql]).stdout

    def find_programs(self):
        for program in ("initdb", "pg_basebackup", "postgres", "psql"):
            self._program(program)

    def prepare(self):
        self.folder_of("sockets")
        if self.primary is not None:
            self._copy_primary()
            return
        # What is lost when the power fails is not missed here.
        self.call([self._program("initdb"), "-D", self.folder_of("data"),
                   "-U", "postgres", "-A", "trust", "-E", "UTF8",
                   "--locale=C", "--no-sync"])

    def command(self):
        options = {"listen_addresses": "127.0.0.1",
                   "unix_socket_directories": self.socket_folder}
        if self.tls:
            options.update({"ssl": "on",
                            "ssl_ca_file": self.certificates.authority,
                            "ssl_cert_file": self.certificates.server,
                            "ssl_key_file": self.certificates.server_key})
        options.update(self.settings)
        command = [self._program("postgres"), "-D", self.folder / "data",
                   "-p", str(self.port)]
        for key, value in options.items():
            command += ["-c", f"{key}={value}"]
        return command

    def is_ready(self):
        # The server says so itself in its eighth line; the first is its pid.
        try:
            lines = (self.folder / "data/postmaster.pid").read_text()
        except FileNotFoundError:
            return False
        lines = lines.splitlines()
        return len(lines) >= 8 and lines[0] == str(self.process.pid) and \
            lines[7].strip() == "ready"

    def after_first_start(self):
        if self.primary is None:
            self.query("CREATE DATABASE skirnir", database="postgres")

    def promote(self):
        """A standby is a primary when this returns, and stays one."""
        answer = self.query("SELECT pg_promote()").strip()
        if answer != "t":
            raise ServerError(f"the standby was not promoted: {answer}")
        self.primary = None

    def follow(self, primary):
        """Becomes a standby of that one, by a copy in place of its data."""
        self.stop()
        self.primary = primary
        shutil.rmtree(self.folder / "data")
        self._copy_primary()
        return self.start()

    def has_all(self):
        """Whether it has all that its primary has written so far."""
        behind = self.primary.query("SELECT pg_current_wal_lsn()").strip()
        return self.query("SELECT pg_last_wal_replay_lsn() >= "
                          f"'{behind}'").strip() == "t"

    def _copy_primary(self):
        data = self.folder_of("data")
        data.chmod(0o700)
        self.call([self._program("pg_basebackup"), "--no-sync", "-R",
                   "-c", "fast", "-X", "stream", "-U", "postgres",
                   "-h", self.primary.socket_folder, "-p", self.primary.port,
                   "-D", data])

    def _program(self, name):
        # Debian keeps each version's programs in a folder of their own.
        folders = sorted(
            VERSIONS.glob("*/bin"), reverse=True,
            key=lambda f: [int(n) for n in re.findall(r"\d+", str(f))])
        try:
            return self.find_program(name, *folders)
        except NotInstalled:
            raise NotInstalled(f"PostgreSQL's {name} is not installed: "
                               f"apt-get install {self.package}") from None


class Standby(PostgreSQL):
    """A copy of another server that follows it, can be read, and becomes a
    primary when it is told to."""

    def __init__(self, primary, **options):
        super().__init__(**options)
        self.primary = primary
