"""MySQL: user root without a password, database `skirnir`.

Debian's stable release has no package of it. Debian unstable has one that needs
unstable's own C library, so it is not installed: apt fetches it, by lists and a
status of its own, into the cache folder of the user who runs the tests, the
packages are unpacked there, and the server is run by their own loader.
"""
import fcntl
import os
import pathlib
import pwd
import re
import shutil
import subprocess

from .mariadb import MariaDB
from .server import NotInstalled

PACKAGE = "mysql-server-core"
# What a test that is skipped says: tools/test lets this text pass, and no other.
MISSING = "MySQL cannot be fetched here"
# Why, once apt has failed: it takes minutes to fail, and a run of the tests asks
# for MySQL in each of its processes.
FAILURE = "SKIRNIR_TEST_MYSQL_MISSING"
FETCH_LIMIT_S = 600
# A test run has several at once: by default each takes 700 MB of memory, and
# 100 MB of the folder for its redo log.
SMALL = {"innodb-buffer-pool-size": "64M", "innodb-log-buffer-size": "4M",
         "innodb-redo-log-capacity": "32M", "table-open-cache": "400",
         "table-definition-cache": "400",
         "performance-schema-digests-size": "200",
         "performance-schema-events-statements-history-long-size": "100",
         "performance-schema-error-size": "0",
         # As of MariaDB. Some tests fill it, and four times as much takes long.
         "max-allowed-packet": "16M"}
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCE_FOLDER = pathlib.Path("/etc/apt")


def cache_folder():
    parent = os.environ.get("XDG_CACHE_HOME") or \
        pathlib.Path.home() / ".cache"
    return pathlib.Path(parent) / "skirnir" / "mysql"


def debian_archive():
    """Where this machine gets Debian's packages; None: from nowhere."""
    files = [SOURCE_FOLDER / "sources.list",
             *sorted((SOURCE_FOLDER / "sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        # Both forms: `deb [options] URI suite ...` and `URIs: URI`.
        for found in re.finditer(
                r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(\S+/debian)/?(?:\s|$)",
                file.read_text(errors="replace"), re.M):
            return found.group(1)
    return None


def _apt(folder, *arguments):
    options = {"Dir::Etc::sourcelist": folder / "sources.list",
               "Dir::Etc::sourceparts": "/dev/null",
               "Dir::State::lists": folder / "lists",
               "Dir::State::status": folder / "status",
               "Dir::Cache": folder / "cache",
               # The user who runs the tests owns the folder, and no other.
               "APT::Sandbox::User": pwd.getpwuid(os.geteuid()).pw_name}
    command = ["apt-get", "-q"]
    for key, value in options.items():
        command += ["-o", f"{key}={value}"]
    try:
        result = subprocess.run(
            [*command, *arguments], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=FETCH_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{MISSING}: {error}") from None
    if result.returncode != 0:
        reason = next((line for line in result.stdout.splitlines()
                       if line.startswith("E:")), "apt gives no reason")
        raise NotInstalled(f"{MISSING}: {reason.strip()}")


def _fetch_into(folder):
    archive = debian_archive()
    if archive is None or not KEYRING.exists():
        raise NotInstalled(f"{MISSING}: this machine has no source of Debian's "
                           "packages")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(
        f"deb [signed-by={KEYRING}] {archive} sid main\n")
    _apt(folder, "update")
    _apt(folder, "-y", "-d", "--no-install-recommends", "install", PACKAGE)
    part = folder / "root.part"
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, part], check=True)
        package.unlink()
    part.rename(folder / "root")


def fetch():
    """The folder that holds MySQL; the first time takes a while. What failed
    once is not tried again by this process, nor by those that it starts."""
    folder = cache_folder()
    root = folder / "root"
    if root.exists():
        return root
    if FAILURE in os.environ:
        raise NotInstalled(os.environ[FAILURE])
    try:
        return _fetch_once(folder, root)
    except NotInstalled as error:
        os.environ[FAILURE] = str(error)
        raise


def _fetch_once(folder, root):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _fetch_into(folder)
    return root


class MySQL(MariaDB):
    """MariaDB's clients speak to it as they do to their own server."""
    name = "mysql"
    package = "mariadb-client"
    root = None

    @property
    def user(self):
        # It runs as anyone, and its programs lie in a folder of our own.
        return pwd.getpwuid(os.geteuid()).pw_name

    def find_programs(self):
        for program in ("mariadb", "mariadb-admin"):
            self.find_program(program)
        self.root = fetch()

    def prepare(self):
        data = self.folder / "data"
        # This one cannot be changed any more when the data is there.
        kept = "lower-case-table-names"
        if kept in self.settings:
            self._make_data(data, {kept: self.settings[kept]})
        else:
            shutil.copytree(self._fresh_data(), data)

    def _fresh_data(self):
        """Made once, as it takes seconds; each server begins with a copy."""
        data = self.root / "data"
        with open(cache_folder() / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not data.exists():
                part = self.root / "data.part"
                shutil.rmtree(part, ignore_errors=True)
                self._make_data(part, {})
                # Without it the server chooses an identity of its own.
                (part / "auto.cnf").unlink()
                part.rename(data)
        return data

    def _make_data(self, folder, settings):
        self.call([*self._server(), "--initialize-insecure",
                   f"--datadir={folder}", "--auto-generate-certs=OFF",
                   *(f"--{name}={value}"
                     for name, value in {**SMALL, **settings}.items())])

    def options(self):
        options = {**SMALL, **super().options()}
        if not self.tls:
            options["auto-generate-certs"] = "OFF"
        return options

    def command(self):
        return [*self._server(), *self.words()]

    def _server(self):
        libraries = next(self.root.glob("usr/lib/*-linux-gnu"))
        loader = next(libraries.glob("ld-linux-*.so.*"))
        share = self.root / "usr/share/mysql"
        return [loader, "--library-path", libraries,
                self.root / "usr/sbin/mysqld", "--no-defaults",
                f"--user={self.user}", f"--lc-messages-dir={share}",
                f"--character-sets-dir={share}/charsets",
                f"--plugin-dir={self.root}/usr/lib/mysql/plugin",
                "--secure-file-priv=", "--mysqlx=OFF"]
