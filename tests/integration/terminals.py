"""Programs on a terminal of their own."""
import fcntl
import os
import pty
import struct
import subprocess
import termios


def start(place, columns, *arguments, rows=24, has_errors=False,
          environment=None):
    """The process, and where what it shows can be read; has_errors: standard
    error is shown there too. Without colours, unless the environment says
    otherwise."""
    chosen = {"TERM": "xterm", "NO_COLOR": "1", **(environment or {})}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ,
                struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        place.command(*arguments), stdin=slave, stdout=slave,
        stderr=slave if has_errors else subprocess.DEVNULL, cwd=place.folder,
        env={**place.environment, **chosen})
    os.close(slave)
    return process, master


def read_all(master):
    """Until the program ends."""
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(master)
    return text.decode()
