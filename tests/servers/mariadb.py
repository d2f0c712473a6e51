"""MariaDB: user root without a password, database `skirnir`."""
import os

from .server import Server


class MariaDB(Server):
    name = "mariadb"
    package = "mariadb-server"
    user = "mysql"

    @property
    def url(self):
        return f"mysql://root@127.0.0.1:{self.port}/skirnir"

    @property
    def socket(self):
        return self.folder / f"{self.name}.sock"

    def environment(self):
        return {**super().environment(),
                f"SKR_{self.name.upper()}_SOCKET": str(self.socket)}

    def query(self, sql, database="", limit_s=None):
        """Rows as lines, columns parted by tabs, by the server's client."""
        return self.call([*self._client("mariadb"), "--batch",
                          "--skip-column-names", "-e", sql, database],
                         limit_s=limit_s).stdout

    def find_programs(self):
        for program in ("mariadbd", "mariadb-install-db", "mariadb",
                        "mariadb-admin"):
            self.find_program(program)

    def prepare(self):
        self.folder_of("data")
        self.call([self.find_program("mariadb-install-db"), "--no-defaults",
                   f"--datadir={self.folder}/data", "--skip-test-db",
                   "--auth-root-authentication-method=normal"])

    def options(self):
        options = {
            "datadir": self.folder / "data", "socket": self.socket,
            "port": self.port, "bind-address": "127.0.0.1",
            "pid-file": self.folder / "pid", "tmpdir": self.folder / "tmp",
            # As Debian sets it.
            "character-set-server": "utf8mb4",
            # Some tests listen to it, in another format than this one. The
            # users of tests may make triggers all the same.
            "log-bin": self.folder / "data/log", "server-id": "1",
            "log-bin-trust-function-creators": "ON"}
        if self.tls:
            options.update({"ssl-ca": self.certificates.authority,
                            "ssl-cert": self.certificates.server,
                            "ssl-key": self.certificates.server_key})
        options.update(self.settings)
        return options

    def command(self):
        # Without --no-defaults, and in front, it reads the machine's settings.
        return [self.find_program("mariadbd"), "--no-defaults",
                *self.words()]

    def words(self):
        """An option without a value is one that is None."""
        return [f"--{key}" if value is None else f"--{key}={value}"
                for key, value in self.options().items()]

    def is_ready(self):
        # Its own socket: no other server answers there.
        return os.path.exists(self.socket) and self.call(
            [*self._client("mariadb-admin"), "--silent", "ping"],
            is_checked=False).returncode == 0

    def after_first_start(self):
        self.query("CREATE DATABASE skirnir")

    def _client(self, program):
        return [self.find_program(program), "--no-defaults",
                f"--socket={self.socket}", "--user=root"]
