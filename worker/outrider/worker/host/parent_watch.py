"""Ends a process that only prepares or measures when the one that wants the result is gone.

A worker that serves watches the same descriptor in its own loop (`server`).
"""

import os
import threading

ORPHANED = 1
"""Exit status; nobody reads it."""


def hold(descriptor: int | None) -> None:
    """Watches, on a thread, for the end of the pipe that the starting process holds open."""
    if descriptor is not None:
        threading.Thread(target=_watch, args=(descriptor,), name="lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(ORPHANED)
