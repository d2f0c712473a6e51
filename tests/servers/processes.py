"""Finds and ends the processes that live in a folder.

A server's processes have their working folder inside its private one, those
that it forks included; nothing else has, but perhaps somebody's shell.
"""
import os
import pathlib
import signal
import time


def _has_terminal(process):
    # The name in parentheses may hold anything; the fields follow the last.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return fields[4] != "0"


def living_in(folder):
    folder = os.path.realpath(folder)
    found = []
    for process in pathlib.Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            place = os.readlink(process / "cwd").removesuffix(" (deleted)")
            if (place == folder or place.startswith(folder + "/")) and \
                    not _has_terminal(process):
                found.append(int(process.name))
        except OSError:
            continue  # gone, or of another user
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def end_all(folder, timeout_s=10):
    """Kills what is left there; False when something does not go."""
    deadline = time.monotonic() + timeout_s
    while pids := living_in(folder):
        for pid in pids:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
