"""Free TCP ports of 127.0.0.1 that no other user of this module will get.

A port is locked by binding an abstract Unix socket that is named after it:
such a name belongs to the network namespace, as ports do, holds against every
user of the machine and goes with the process that bound it, however that ends.
"""
import errno
import random
import socket

# Below what the kernel gives to outgoing connections: those would come and
# take the port of a server that is down between kill() and restart().
FIRST, LAST = 20000, 32000


class Port:
    """A locked port; close() gives it back."""

    def __init__(self, number, lock):
        self.number = number
        self._lock = lock

    def close(self):
        self._lock.close()


def is_free(number):
    with socket.socket() as probe:
        # Servers set it too: what a former connection left behind is no
        # obstacle, a listener still is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True


def lock(number):
    """A Port, or None when another process has it."""
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0skirnir-test-port-{number}")
    except OSError as error:
        holder.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return Port(number, holder)


def take():
    numbers = list(range(FIRST, LAST))
    random.SystemRandom().shuffle(numbers)
    for number in numbers:
        port = lock(number)
        if port is None:
            continue
        if is_free(number):
            return port
        port.close()
    raise OSError(f"no port from {FIRST} to {LAST} is free")
