"""An earlier program and this one on one queue, as they stand side by side while
an installation is upgraded, or goes back: no message is lost, and each key's
arrive in order."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest

import databases
import outbox_world
import shop as shops

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What an installation may have before the upgrade.
EARLIER = "8e939872b1a2"
KEYS, EACH = 6, 40
INSERT = ("INSERT INTO messenger_outbox (body, headers, queue_name, "
          "partition_key, created_at, available_at) VALUES "
          "('{{\"key\":{key},\"n\":{n}}}', '{type}', 'outbox', 'k{key}', {now}, "
          "{now})")


def build(commit, folder):
    """The program of that commit, from this repository's own history."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT,
                             stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False)
    if archive.returncode != 0:
        pytest.skip("the earlier program's sources are not in this checkout")
    source = folder / "source"
    source.mkdir(parents=True)
    (folder / "source.tar").write_bytes(archive.stdout)
    with tarfile.open(folder / "source.tar") as sources:
        sources.extractall(source)
    build_folder = source / "build"
    for command in (["meson", "setup", "-Dwerror=false", str(build_folder),
                     str(source)],
                    ["nice", "ninja", "-C", str(build_folder),
                     "src/app/skirnir"]):
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return build_folder / "src/app/skirnir"


@pytest.fixture(scope="session")
def earlier():
    """Built once for a machine."""
    cache = pathlib.Path(os.environ.get(
        "XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    kept = cache / "skirnir" / f"earlier-{EARLIER}"
    if not kept.exists():
        folder = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)
        program = build(EARLIER, folder)
        kept.mkdir(parents=True, exist_ok=True)
        os.replace(shutil.copy(program, folder / "skirnir"), kept / "skirnir")
        shutil.rmtree(folder)
    return str(kept / "skirnir")


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path):
    made = outbox_world.World(tmp_path, request.param(),
                              scheme="ordered-doctrine")
    yield made
    made.leave()


class Writer:
    """Writes one message of each key, then the next of each."""

    def __init__(self, world):
        self.world, self.written = world, 0

    def write(self, count):
        for _ in range(count):
            for key in range(KEYS):
                self.world.server.send(INSERT.format(
                    key=key, n=self.written, now=self.world.server.now,
                    type=outbox_world.PLAIN_TYPE))
            self.written += 1


def first_arrivals(world):
    """Of each key, the numbers in the order in which they first came."""
    found = {key: [] for key in range(KEYS)}
    for (body,) in world.queue.execute(
            "SELECT body FROM messenger_messages ORDER BY id"):
        message = json.loads(body)
        if message["n"] not in found[message["key"]]:
            found[message["key"]].append(message["n"])
    return found


def wait_for(world, count, *programs):
    shops.until(lambda: all(len(numbers) >= count for numbers in
                            first_arrivals(world).values()),
                lambda: "\n".join(program.log() for program in programs))


def judge(world, writer):
    expected = list(range(writer.written))
    assert first_arrivals(world) == {key: expected for key in range(KEYS)}
    assert world.server.ask("SELECT COUNT(*) FROM messenger_outbox") == "0"


def start(world, program):
    world.program = program
    return world.start("relay", "outbox")


@pytest.mark.alike
def test_each_takes_over_from_the_other(world, earlier):
    later = world.program
    writer = Writer(world)
    world.set_up()
    first = start(world, earlier)
    first.wait_for("relay.active")
    second = start(world, later)
    second.wait_for("relay.standby")
    writer.write(EACH)
    wait_for(world, EACH // 2, first)
    first.kill()
    second.wait_for("relay.active")
    third = start(world, earlier)
    third.wait_for("relay.standby")
    writer.write(EACH)
    wait_for(world, EACH + EACH // 2, second)
    assert second.stop() == 0
    third.wait_for("relay.active")
    writer.write(EACH)
    wait_for(world, writer.written, third)
    assert third.stop() == 0
    judge(world, writer)


@pytest.mark.alike
def test_both_divide_a_queue(world, earlier):
    later = world.program
    writer = Writer(world)
    world.set_outbox("\n        claim: lease\n"
                     "        options: {redeliver_timeout: 5}",
                     "ordered-doctrine")
    world.set_up()
    first, second = start(world, earlier), start(world, later)
    for program in (first, second):
        shops.until(lambda p=program: any("slots=30" in line for line in
                                          p.log().splitlines()), program.log)
    writer.write(EACH)
    wait_for(world, EACH, first, second)
    first.kill()
    writer.write(EACH)
    wait_for(world, 2 * EACH, second)
    third = start(world, earlier)
    third.wait_for("relay.share")
    writer.write(EACH)
    second.kill()
    wait_for(world, writer.written, third)
    assert third.stop() == 0
    judge(world, writer)
