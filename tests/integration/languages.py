"""The languages of the clients of clients/: what runs their tests and the
workers among these, with the drivers that these need."""
import functools
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
TIMED_OUT = 124
# Where drivers are kept that a package manager fetched.
CACHE = pathlib.Path(os.environ.get(
    "XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "skirnir-clients"


class Missing(Exception):
    """This machine has no such language, or cannot get its drivers."""


def find_python():
    """One that has the drivers: Debian's are for the system's own."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import psycopg, pymysql"],
                          capture_output=True).returncode == 0:
            return python
    raise Missing("psycopg and PyMySQL are not installed")


def run_fetcher(*command, cwd=None):
    """A network that hangs is none."""
    try:
        return subprocess.run(command, cwd=cwd, text=True, timeout=120,
                              capture_output=True)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, TIMED_OUT, "", "")


@functools.cache
def fetch_for_node():
    """False: they cannot be had."""
    drivers = CACHE / "node"
    # Written when all is there.
    if (drivers / "node_modules/.package-lock.json").exists():
        return True
    shutil.rmtree(drivers, ignore_errors=True)
    drivers.mkdir(parents=True)
    return run_fetcher(
        "npm", "install", "--fetch-retries=1", "--fetch-timeout=20000",
        "--prefix", drivers, "pg@8", "mysql2@3").returncode == 0


@functools.cache
def build_for_go(program):
    """False: the drivers cannot be had."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # With the system's library: to compile one of its own takes long.
    built = run_fetcher("go", "test", "-c", "-tags", "libsqlite3", "-o",
                        program, ".", cwd=CLIENTS / "go/tests")
    said = built.stderr.lower()
    if built.returncode == TIMED_OUT or "dial tcp" in said or "proxy" in said:
        return False
    assert built.returncode == 0, built.stderr
    return True


def python():
    folder = CLIENTS / "python"
    return [find_python(), "-m", "unittest", "discover", "-s", "tests"], \
        [find_python(), folder / "tests/shop.py"]


def php():
    if shutil.which("php") is None:
        raise Missing("php is not installed")
    return ["php", "tests/run.php"], ["php", CLIENTS / "php/tests/shop.php"]


def node():
    if shutil.which("npm") is None:
        raise Missing("node is not installed")
    if not fetch_for_node():
        raise Missing("pg and mysql2 cannot be fetched here")
    os.environ["NODE_PATH"] = str(CACHE / "node" / "node_modules")
    return ["node", "--test", "test/skirnir.test.js"], \
        ["node", CLIENTS / "node/test/shop.js"]


def go():
    if shutil.which("go") is None:
        raise Missing("go is not installed")
    program = CACHE / "skirnir.test"
    if not build_for_go(program):
        raise Missing("drivers for Go cannot be fetched here")
    return ["env", "-C", "tests", program], \
        ["sh", "-c", 'SKR_SHOP=$1 exec "$0"', program]


# Of each: what runs its tests, in its folder; and the worker that takes the
# kind of its database and writes a row of `effects` for each order, and a byte
# into the file `progress` for each call.
LANGUAGES = {"python": python, "php": php, "node": node, "go": go}


def worker_environment(urls):
    """Of a worker whose databases have these URLs, by their kind."""
    return {"PYTHONPATH": str(CLIENTS / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **{f"SKR_CLIENT_{kind.upper()}": url.replace(
                "pgsql:", "postgresql:") for kind, url in urls.items()}}
