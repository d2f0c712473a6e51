"""What the servers have in common: a private folder, a port, a life.

A server is started with start(), on a new port the first time and on the same
port and data from then on. stop() ends it in good order, kill() as a crash
would; close() also removes the folder. It runs as the user that its package
made for it when we are root, which servers refuse to be, else as ourselves.
"""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from . import certificates, ports, processes

# For a machine that does other things too.
START_LIMIT_S = 90
STOP_LIMIT_S = 30
# A Unix socket's path has room for 107 bytes.
LONGEST_PARENT = 60


class ServerError(Exception):
    pass


class NotInstalled(ServerError):
    pass


def _searchable(folder):
    return all(parent.stat().st_mode & 0o001
               for parent in [folder, *folder.parents])


def _parent_folder():
    """The temporary folder, if any user can get at what is in it."""
    chosen = pathlib.Path(tempfile.gettempdir()).resolve()
    if len(str(chosen)) <= LONGEST_PARENT and \
            (os.geteuid() != 0 or _searchable(chosen)):
        return chosen
    return pathlib.Path("/tmp")


class Closing:
    """What is started with start() and gone after close(), here within a `with`:
    also when the start fails, or is interrupted."""

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


class Server(Closing):
    name = None     # as with-server calls it
    package = None  # Debian's, where it is missing
    user = None     # made by that package
    stop_signal = signal.SIGTERM

    def __init__(self, tls=False, settings=None, keep=False):
        """settings go to the server as its own options, by their names."""
        self.tls = tls
        self.settings = settings or {}
        self.keep = keep
        self.folder = None
        self.certificates = None
        self.process = None
        self.is_frozen = False
        self.cancelled = threading.Event()  # a start in another thread gives up
        self._ports = {}
        self._guard = None

    # What a kind of server fills in.

    def find_programs(self):
        """Raises NotInstalled unless all there is to run is there."""
        raise NotImplementedError

    def prepare(self):
        """Makes the data, once."""
        raise NotImplementedError

    def command(self):
        """How to start the server, in the foreground."""
        raise NotImplementedError

    def is_ready(self):
        """True once the server that we started answers."""
        raise NotImplementedError

    def after_first_start(self):
        pass

    def before_start(self):
        pass

    def after_end(self):
        """All processes have been killed by now; reaps those of its own."""

    def server_environment(self):
        return {}

    @property
    def url(self):
        raise NotImplementedError

    def environment(self):
        """What a command needs to know to use the server."""
        prefix = f"SKR_{self.name.upper()}_"
        values = {"URL": self.url, "PORT": self.port, "PID": self.pid,
                  "FOLDER": self.folder, "LOG": self.log}
        if self.tls:
            values["CERTIFICATES"] = self.certificates.folder
        return {prefix + key: str(value) for key, value in values.items()}

    # The life of a server.

    @property
    def port(self):
        return self.port_of("main")

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return self.folder / "log"

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        if self.is_running():
            raise ServerError(f"{self.name} runs already")
        is_first = self.folder is None
        if is_first:
            self.find_programs()
            self._make_folder()
        try:
            if is_first:
                self.prepare()
            self._start_on_free_ports(is_first)
            if is_first:
                self.after_first_start()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self):
        """In good order; the data stay."""
        if self.is_running():
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ServerError(f"{self.name} did not stop; {self.tail()}")
        self._end()

    def kill(self):
        """As a crash of the server's own process; the data stay."""
        if self.is_running():
            self.process.kill()
        self._end()

    def freeze(self):
        """As on a host that hangs: connections stay, and none is answered."""
        self.is_frozen = True
        for pid in processes.living_in(self.folder):
            processes.freeze(pid)

    def thaw(self):
        for pid in processes.living_in(self.folder):
            processes.send(pid, signal.SIGCONT)
        self.is_frozen = False

    def restart(self):
        self.stop()
        return self.start()

    def close(self):
        """The server, its folder and its ports are gone after this."""
        try:
            self.stop()
        finally:
            for port in self._ports.values():
                port.close()
            self._ports.clear()
            if self.folder is not None and not self.keep:
                shutil.rmtree(self.folder, ignore_errors=True)
            if self._guard is not None:
                self._guard.stdin.close()
                self._guard.wait()
                self._guard = None

    # For the kinds of servers.

    def port_of(self, purpose):
        """A port for one of a server's purposes; it stays the same."""
        if purpose not in self._ports:
            self._ports[purpose] = ports.take()
        return self._ports[purpose].number

    def folder_of(self, name):
        """A folder inside the private one, owned by the server's user."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.give_away(folder)
        return folder

    def give_away(self, path):
        if os.geteuid() == 0:
            shutil.chown(path, *self._user_and_group())

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        self.give_away(path)
        return path

    def find_program(self, name, *folders):
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"],
                                "/usr/sbin", "/usr/bin"])
        program = shutil.which(name, path=path)
        if program is None:
            raise NotInstalled(
                f"{name} is not installed: apt-get install {self.package}")
        return program

    def call(self, command, is_checked=True, limit_s=None):
        """Runs a program of the server's package as the server's user."""
        try:
            result = subprocess.run(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=limit_s, **self._how_to_run())
        except subprocess.TimeoutExpired:
            raise ServerError(f"{command[0]} takes longer than {limit_s} s"
                              ) from None
        if is_checked and result.returncode != 0:
            raise ServerError(f"{command[0]} failed: {result.stdout}")
        return result

    def spawn(self, command, log):
        with open(log, "ab") as output:
            self.give_away(log)
            return subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, **self._how_to_run())

    def tail(self):
        if self.folder is None:
            return f"{self.name} has not started"
        lines = []
        if self.log.exists():
            lines = self.log.read_text(errors="replace").splitlines()[-20:]
        return f"{self.log} ends so:\n" + "\n".join(lines)

    def _user_and_group(self):
        try:
            entry = pwd.getpwnam(self.user)
        except KeyError:
            raise NotInstalled(f"there is no user {self.user}: "
                               f"apt-get install {self.package}") from None
        return entry.pw_uid, entry.pw_gid

    def _how_to_run(self):
        # Nothing of the caller's own settings for these programs gets in.
        environment = {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"),
            "LANG": "C.UTF-8", **self.server_environment()}
        how = {"cwd": self.folder, "env": environment}
        if os.geteuid() == 0:
            how["user"], how["group"] = self._user_and_group()
            how["extra_groups"] = []
        return how

    def _make_folder(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(
            prefix=f"skirnir-{self.name}-", dir=_parent_folder()))
        self._guard = subprocess.Popen(
            [sys.executable, "-B",
             str(pathlib.Path(__file__).with_name("guard.py")),
             str(self.folder), *(["--keep"] if self.keep else [])],
            cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        self.folder.chmod(0o755)
        self.give_away(self.folder)
        self.folder_of("tmp")
        if self.tls:
            self.certificates = certificates.Certificates(
                self.folder_of("certificates"))
            self.give_away(self.certificates.server_key)

    def _start_on_free_ports(self, is_first):
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            self.before_start()
            self.process = self.spawn(self.command(), self.log)
            if self._becomes_ready(deadline):
                return
            lost = [purpose for purpose, port in self._ports.items()
                    if not ports.is_free(port.number)]
            if not lost or not is_first:
                raise ServerError(f"{self.name} ended with "
                                  f"{self.process.returncode}; {self.tail()}")
            # A process that does not lock ports was faster.
            self._end()
            for purpose in lost:
                self._ports.pop(purpose).close()

    def _becomes_ready(self, deadline):
        """False when the server has ended instead."""
        while not self.cancelled.is_set():
            if self.process.poll() is not None:
                return False
            if self.is_ready():
                return True
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} is not ready after "
                                  f"{START_LIMIT_S} s; {self.tail()}")
            time.sleep(0.05)
        raise ServerError(f"the start of {self.name} was cancelled")

    def _end(self):
        """What the server's own process has left behind ends as well."""
        if self.process is not None:
            self.process.wait()
        if self.folder is not None and not processes.end_all(self.folder):
            raise ServerError(f"processes of {self.folder} do not end")
        self.is_frozen = False
        self.after_end()
