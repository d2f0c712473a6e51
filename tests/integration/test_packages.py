"""What others install: a tarball, and Debian packages of it."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import shop as shops

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from servers import mysql as archives  # noqa: E402: found through the path above

PACKAGE = shops.ROOT / "tools/package"
PACKAGES = ["libskirnir-dev", "libskirnir0", "skirnir"]
LIMIT_S = 900
CONFIG = """\
databases: {default: 'sqlite:///shop.db'}
transports:
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders: 'queue://default?queue_name=orders'
handlers: {order.placed: {sql: 'INSERT INTO effects (id) VALUES (:id)'}}
"""
PROGRAM = """\
#include <skirnir/sqlite.h>
#include <stdio.h>

int main(void)
{
    puts(skr_sqlite_connection(skr_sqlite_tx(NULL)) == NULL ? skr_version() : "");
    return 0;
}
"""
# In the order of a first hour; each has to succeed.
FIRST_HOUR = """\
cd /home
skirnir config check
skirnir setup
skirnir setup-deduplication --force
sqlite3 shop.db 'CREATE TABLE effects (id BLOB)'
skirnir publish order.placed --body '{}'
skirnir relay outbox --stop-when-empty
skirnir consume orders --stop-when-empty
test "$(sqlite3 shop.db 'SELECT COUNT(*) FROM effects')" = 1
cc -o use use.c $(pkg-config --cflags --libs skirnir skirnir-sqlite)
./use
"""


def run(*command, **how):
    result = subprocess.run(command, text=True, capture_output=True,
                            stdin=subprocess.DEVNULL, timeout=LIMIT_S, **how)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(autouse=True)
def needs_a_clone():
    if not (shops.ROOT / ".git").exists():
        pytest.skip("the earlier program's sources are not in this checkout")


def make_tarball(folder):
    run(PACKAGE, "tar", folder)
    return next(folder.glob("skirnir-*.tar.gz"))


def test_a_tarball_is_the_same_each_time_and_holds_what_is_committed(tmp_path):
    first, second = (make_tarball(tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    assert first.with_name(first.name + ".sha256").read_text() == \
        f"{digest}  {first.name}\n"
    with tarfile.open(first) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "-C", shops.ROOT, "ls-tree", "-r", "--name-only",
                  "HEAD").splitlines()
    assert set(tracked) <= names
    assert not any(name.startswith(("build", "dist")) for name in names)


def test_without_a_clone_there_is_no_tarball(tmp_path):
    archive = make_tarball(tmp_path)
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="tar")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    result = subprocess.run(
        [unpacked / "tools/package", "tar", tmp_path / "made"], text=True,
        capture_output=True, cwd=unpacked)
    assert result.returncode == 1
    assert "no clone of the repository" in result.stderr
    assert not (tmp_path / "made").exists()


def test_a_word_that_is_not_known_makes_nothing(tmp_path):
    result = subprocess.run([PACKAGE, "rpm", tmp_path / "made"], text=True,
                            capture_output=True)
    assert result.returncode == 2
    assert result.stderr == "usage: tools/package tar|deb [FOLDER]\n"
    assert not (tmp_path / "made").exists()


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The files, by the name of the package."""
    if any(shutil.which(name) is None for name in ("dh", "lintian")):
        pytest.skip("debhelper and lintian are not installed")
    folder = tmp_path_factory.mktemp("packages")
    run(PACKAGE, "deb", folder)
    found = {file.name.partition("_")[0]: file for file in folder.glob("*.deb")}
    assert sorted(found) == PACKAGES
    return found


def unpack(packages, folder):
    for file in packages.values():
        run("dpkg-deb", "--extract", file, folder)
    libraries, = folder.glob("usr/lib/*/pkgconfig")
    return libraries.parent


def field(package, name):
    return run("dpkg-deb", "--field", package, name).strip()


def test_packages_hold_the_program_the_libraries_and_what_a_build_needs(
        packages, tmp_path):
    libraries = unpack(packages, tmp_path)
    version = run(tmp_path / "usr/bin/skirnir", "--version")
    assert version.startswith("skirnir " + field(
        packages["skirnir"], "Version").partition("-")[0])
    for name in ("sqlite", "mysql", "pgsql", "amqp", "kafka"):
        assert name in version
    for page in ("man1/skirnir.1.gz", "man5/skirnir.yaml.5.gz",
                 "man7/skirnir-handler.7.gz", "man3/skirnir.3.gz"):
        assert (tmp_path / "usr/share/man" / page).exists()
    for file in ("bash-completion/completions/skirnir",
                 "zsh/vendor-completions/_skirnir",
                 "fish/vendor_completions.d/skirnir.fish",
                 "skirnir/prometheus/skirnir.rules.yml"):
        assert (tmp_path / "usr/share" / file).exists()
    units = {file.name for file in
             (tmp_path / "lib/systemd/system").glob("*.service")}
    assert units == {"skirnir-relay@.service", "skirnir-consume@.service",
                     "skirnir-kafka-relay@.service"}
    (tmp_path / "use.c").write_text(PROGRAM)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries),
                   "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
                   "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}
    flags = run("pkg-config", "--cflags", "--libs", "skirnir",
                "skirnir-sqlite", env=environment).split()
    run("cc", "-o", tmp_path / "use", tmp_path / "use.c", *flags)
    assert run(tmp_path / "use", env=environment) == f"{version.split()[1]}\n"


def test_the_library_needs_no_client_that_a_program_does_not_use(packages):
    needed = field(packages["libskirnir0"], "Depends")
    for name in ("libmariadb3", "libpq5", "librdkafka1", "libsqlite3-0"):
        assert name not in needed
        assert name in field(packages["libskirnir0"], "Recommends")


def test_the_container_has_the_libraries_of_the_package(packages):
    text = (shops.ROOT / "packaging/docker/Dockerfile").read_text()
    installed = set(re.findall(r"\blib[\w-]+", text.rpartition("FROM")[2]))
    needed = set(re.findall(r"\blib[\w.+-]+",
                            field(packages["skirnir"], "Depends")))
    assert installed == {name for name in needed if name != "libc6"}


def test_the_configuration_of_the_containers_is_without_a_mistake():
    folder = shops.ROOT / "packaging/docker"
    variables = dict(re.findall(r"^    (\w+_URL): (.*)$", (
        folder / "compose.yaml").read_text(), re.M))
    assert len(variables) == 2
    run(shops.PROGRAM, "config", "check", folder / "skirnir.yaml",
        env={**os.environ, **variables})


@pytest.mark.long
def test_packages_are_installed_used_and_removed_in_a_clean_debian(
        packages, tmp_path):
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("a clean Debian needs root and debootstrap")
    root = tmp_path / "root"
    run("debootstrap", "--variant=minbase", "bookworm", root,
        archives.debian_archive())
    for file in packages.values():
        shutil.copy(file, root / "tmp")
    (root / "home/skirnir.yaml").write_text(CONFIG)
    (root / "home/use.c").write_text(PROGRAM)

    def inside(script):
        return run("chroot", root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                   "DEBIAN_FRONTEND=noninteractive", "sh", "-eux", "-c", script)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    inside("apt-get update; apt-get install -y --no-install-recommends "
           "/tmp/*.deb gcc libc6-dev pkg-config sqlite3 libsqlite3-dev")
    inside(FIRST_HOUR)
    inside(f"apt-get purge -y {' '.join(PACKAGES)}")
    left = run("find", root, "-name", "*skirnir*", "-not", "-path",
               f"{root}/home/*", "-not", "-path", f"{root}/tmp/*")
    assert left == ""
