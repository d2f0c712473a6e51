"""Finds and ends the processes that live in a folder.

A server's processes have their working folder inside its private one, those
that it forks included; nothing else has, but perhaps a shell.
"""
import os
import pathlib
import signal
import time


def _stat(folder):
    """The fields behind the name, which may itself hold parentheses."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _has_terminal(process):
    return _stat(process)[4] != "0"


def _is_stopped(pid):
    """Each thread stops for itself. One that has ended, and whose parent does
    not take notice as it is stopped, does nothing any more."""
    try:
        return all(_stat(thread)[0] in "TZ" for thread
                   in pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # a thread or all of it has ended: look again
        return not os.path.exists(f"/proc/{pid}")


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


def freeze(pid, timeout_s=10):
    """The signal is sent before the threads have stopped; until then they go
    on answering."""
    send(pid, signal.SIGSTOP)
    deadline = time.monotonic() + timeout_s
    while not _is_stopped(pid) and time.monotonic() < deadline:
        time.sleep(0.001)


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
