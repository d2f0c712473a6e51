"""Cleans up after a starter of servers that died without doing it.

    guard.py FOLDER [--keep]

The starter holds the other end of standard input: when that closes, whatever
still lives in the folder ends and the folder goes.
"""
import pathlib
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from servers import processes  # noqa: E402: found through the path above


def main():
    folder = pathlib.Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    if not folder.exists():
        return
    # SIGQUIT ends PostgreSQL at once and still lets it free its shared memory.
    for pid in processes.living_in(folder):
        processes.send(pid, signal.SIGQUIT)
    deadline = time.monotonic() + 2
    while processes.living_in(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    processes.end_all(folder)
    if "--keep" not in sys.argv:
        shutil.rmtree(folder, ignore_errors=True)


main()
