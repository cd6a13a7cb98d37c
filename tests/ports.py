"""Ports for servers that tests start.

A port that the system hands out, and that is closed again for a server to open it, may meanwhile go
to any server or connection of the machine. So each pytest takes a block of others, below those that
the system hands out, which is its own for as long as it lives.
"""

import contextlib
import fcntl
import functools
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIRST, END = 10_000, 32_000
BLOCK = 200


def free_port() -> int:
    """A port that nobody listens on, and that is given again only after all others of the block."""
    for port in itertools.islice(_own_ports(), BLOCK):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"{BLOCK} ports in a row are taken")


@functools.cache
def _own_ports() -> Iterator[int]:
    """Takes a block; yields its ports over and over."""
    folder = Path(tempfile.gettempdir(), f"outrider-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for first in range(FIRST, END, BLOCK):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except BlockingIOError:
            os.close(lock)
        else:
            return itertools.cycle(range(first, first + BLOCK))
    raise RuntimeError(f"every port from {FIRST} to {END} belongs to a pytest that runs")
