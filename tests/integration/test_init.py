"""`skirnir init`: what it writes is right as it stands, and the commands that it
names carry a message from end to end."""
import os
import pathlib
import re
import stat
import subprocess
import types

import pytest

import databases
import shop as shops
import terminals
import worlds

pytestmark = pytest.mark.alike
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name != "SKIRNIR_CONFIG"}


class Folder:
    """Where a new user stands, with the program in the PATH."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {
            **ENVIRONMENT, "PATH": f"{pathlib.Path(shops.PROGRAM).parent}:"
                                   f"{os.environ['PATH']}"}

    def command(self, *arguments):
        return [shops.PROGRAM, *arguments]

    def run(self, *arguments, **options):
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, text=True,
            capture_output=True, env=self.environment, check=False,
            stdin=subprocess.DEVNULL, timeout=shops.PATIENCE_S, **options)

    def init(self, *arguments):
        result = self.run("init", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def follow(self, said):
        """Runs what it says is next, a line each, as in one shell."""
        script = said.partition("Next:\n")[2]
        return subprocess.run(
            ["bash", "-eu", "-c", script], cwd=self.folder, text=True,
            capture_output=True, env=self.environment, check=False,
            timeout=shops.PATIENCE_S)

    def files(self):
        return {path.name for path in self.folder.iterdir()}


WRITTEN = {"skirnir.yaml", "skirnir.sql", "skirnir-relay.service",
           "skirnir-consume.service"}


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def assert_is_right(folder, said):
    result = folder.run("config", "check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "warning" not in result.stdout
    result = folder.follow(said)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "consumer.stopped name=orders handled=1 duplicates=0 retried=0 " \
        "failed=0" in result.stderr
    assert folder.run("failed", "show").stdout.startswith("No failed messages")


@pytest.fixture(params=databases.KINDS)
def dsn(request):
    if request.param == "sqlite":
        yield "sqlite:///shop.db"
        return
    database = databases.BY_KIND[request.param]()
    yield database.url
    database.drop()


@pytest.mark.parametrize("ordered", [(), ("--ordered",)])
def test_what_is_written_works(folder, dsn, ordered):
    said = folder.init(f"--database={dsn}", *ordered)
    assert folder.files() == WRITTEN
    assert_is_right(folder, said)
    assert ("partition_key" in (folder.folder / "skirnir.sql").read_text()) \
        == bool(ordered)


def test_it_works_with_rabbitmq(folder, vhost):
    server = worlds.need("SKR_RABBITMQ_URL").rsplit("/", 1)[0]
    said = folder.init("--database=sqlite:///shop.db",
                       f"--broker={server}/{vhost}")
    assert_is_right(folder, said)
    mode = (folder.folder / "skirnir.yaml").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_it_works_with_kafka(folder):
    said = folder.init("--database=sqlite:///shop.db",
                       "--broker=" + worlds.need("SKR_KAFKA_URL"))
    result = folder.run("config", "check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skirnir relay outbox" in said


def test_the_sql_makes_all_that_is_needed(folder):
    said = folder.init("--database=sqlite:///shop.db")
    sql = (folder.folder / "skirnir.sql").read_text()
    subprocess.run(["sqlite3", "shop.db"], input=sql, text=True, check=True,
                   cwd=folder.folder, timeout=shops.PATIENCE_S)
    # Setup finds nothing to make.
    assert re.search(r"^setup|made", folder.run("setup").stdout) is None
    setup, *others = said.partition("Next:\n")[2].splitlines()
    assert "setup" in setup
    assert folder.follow("Next:\n" + "\n".join(others)).returncode == 0


def test_it_asks_on_a_terminal(folder):
    place = types.SimpleNamespace(command=folder.command, folder=folder.folder,
                                  environment=folder.environment)
    process, master = terminals.start(place, 80, "init", has_errors=True)
    os.write(master, b"sqlite:///mine.db\n\ny\n")
    said = terminals.read_all(master)
    assert process.wait(shops.PATIENCE_S) == 0, said
    written = (folder.folder / "skirnir.yaml").read_text()
    assert "default: 'sqlite:///mine.db'" in written
    assert "'ordered-doctrine://default?" in written
    assert "'queue://default?queue_name=orders'" in written
    assert "--partition-key=order-1" in said


def test_nothing_is_written_over(folder):
    folder.init("--database=sqlite:///shop.db")
    (folder.folder / "skirnir.yaml").unlink()
    (folder.folder / "skirnir-relay.service").write_text("mine")
    for name in ("skirnir.sql", "skirnir-consume.service"):
        (folder.folder / name).unlink()
    result = folder.run("init", "--database=sqlite:///shop.db")
    assert result.returncode == 1
    assert "skirnir-relay.service: File exists; remove it" in result.stderr
    # What was written before that is gone again.
    assert folder.files() == {"skirnir-relay.service"}
    folder.init("--database=sqlite:///shop.db", "--config=other.yaml")
    assert (folder.folder / "skirnir-relay.service").read_text() == "mine"
    assert "other-relay.service" in folder.files()


@pytest.mark.parametrize("arguments, code, words", [
    ([], 1, "give --database, as in --database=sqlite:///shop.db"),
    (["--database=shop.db"], 3, "--database: a DSN begins with scheme://"),
    (["--database=sqlite:///a.db", "--broker=redis://x"], 3,
     "--broker: 'orders' is redis://"),
    (["--database=oracle://x/y"], 3, "--database"),
    (["--database=sqlite:///a.db", "--config=no/where.yaml"], 1,
     "no/where.yaml: No such file or directory"),
    (["more"], 2, "more"),
    (["--database=sqlite:///a\nb.db"], 1, "--database has a line break"),
    (["--database=sqlite:///" + "a" * 1000], 1, "--database has more than"),
])
def test_mistakes_are_told_and_leave_nothing(folder, arguments, code, words):
    result = folder.run("init", *arguments)
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert result.stdout == ""
    assert folder.files() == set()


def test_units_start_what_stands_there(folder):
    folder.init("--database=sqlite:///shop.db")
    for worker, transport in (("relay", "outbox"), ("consume", "orders")):
        unit = (folder.folder / f"skirnir-{worker}.service").read_text()
        assert f'ExecStart="{pathlib.Path(shops.PROGRAM).resolve()}" {worker} ' \
            f'{transport} "--config={folder.folder}/skirnir.yaml"\n' in unit
        assert f"WorkingDirectory={folder.folder}\n" in unit


@pytest.mark.parametrize("broker", [
    "kafka://localhost:9092?sasl.password=secret", "amqp://token@localhost/%2f",
    "amqp://shop:secret@localhost/%2f"])
def test_a_file_with_any_secret_is_its_owners(folder, broker):
    folder.init("--database=sqlite:///shop.db", f"--broker={broker}")
    path = folder.folder / "skirnir.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "only its owner may read it" in path.read_text()


def test_a_file_without_a_secret_is_everyones(folder):
    folder.init("--database=sqlite:///shop.db")
    path = folder.folder / "skirnir.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert "password" not in path.read_text()


def test_the_environment_names_the_file(folder):
    """Else the commands that it names would work on another one."""
    folder.environment["SKIRNIR_CONFIG"] = str(folder.folder / "mine.yaml")
    said = folder.init("--database=sqlite:///shop.db")
    assert "mine.yaml" in folder.files()
    assert_is_right(folder, said)


def test_a_folder_with_odd_characters(folder):
    odd = folder.folder / "it's a \"$HOME\" 100%"
    odd.mkdir()
    said = folder.init("--database=sqlite:///shop.db",
                       f"--config={odd}/my file.yaml")
    result = folder.follow(said)
    assert result.returncode == 0, result.stderr
    unit = (odd / "my file-relay.service").read_text()
    assert "\\\"$$HOME\\\" 100%%/my file.yaml\"\n" in unit


def test_a_quote_in_a_dsn_is_kept(folder):
    folder.init("--database=sqlite:///it's.db")
    assert folder.run("setup").returncode == 0
    assert "it's.db" in folder.files()
