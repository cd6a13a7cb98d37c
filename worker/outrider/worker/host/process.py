"""This process on its machine: the processors that it may use, and the parent that it ends with.

A worker that serves watches its parent's descriptor in its own loop (`server`).
"""

import logging
import os
import threading
from collections.abc import Sequence

logger = logging.getLogger(__name__)

ORPHANED = 1
"""Exit status of a process whose parent is gone; no process reads it."""


def cores() -> int:
    """Count the processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_to(processors: Sequence[int]) -> None:
    """Keep the calling thread, and those that it starts, to `processors`; empty: to any."""
    if not processors:
        return
    setter = getattr(os, "sched_setaffinity", None)  # Linux only
    if setter is None:
        logger.info("this system cannot keep a thread to processors %s", processors)
        return
    try:
        setter(0, processors)
    except (OSError, ValueError) as error:
        logger.warning("cannot keep to processors %s: %s", processors, error)


def exit_with_parent(descriptor: int | None) -> None:
    """Exit, from a thread, when the pipe ends whose other end the starting process has open."""
    if descriptor is not None:
        threading.Thread(
            target=_watch, args=(descriptor,), name="parent watch", daemon=True
        ).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(ORPHANED)
