"""This process on its machine: the processors that it keeps to, and the parent that it ends with.

A worker that serves watches its parent's descriptor in its own loop (`server`).
"""

import logging
import os
import threading
from collections.abc import Sequence

from outrider.contract.processors import usable

logger = logging.getLogger(__name__)

ORPHANED = 1
"""Exit status of a process whose parent is gone; no process reads it."""


def keep_to(processors: Sequence[int], thread: int = 0) -> None:
    """Keep a thread, and those that it starts, to `processors`; empty: to any.

    `thread`: its native id; 0: the calling one.
    """
    if not processors:
        return
    setter = getattr(os, "sched_setaffinity", None)  # Linux only
    if setter is None:
        logger.info("this system cannot keep a thread to processors %s", processors)
        return
    try:
        setter(thread, set(processors))
    except (OSError, ValueError) as error:
        logger.warning("cannot keep to processors %s: %s", processors, error)


def keep_process_to(processors: Sequence[int]) -> None:
    """Keep all threads of this process to `processors`; empty: leave them where they are."""
    for thread in os.listdir("/proc/self/task") if processors else ():  # named on Linux only
        keep_to(processors, int(thread))


def keep_apart(helpers: Sequence[threading.Thread]) -> None:
    """Keep the calling thread and its running `helpers` to a processor each, where they are as many
    as the processors that this process may use; else change nothing.

    Threads that wait for each other by looking seem busy to the system, which leaves two of them on
    one processor for milliseconds while others use theirs now and then. Where processors are left
    over it moves them at once. On two Zen 5 processors, with a server and a client beside them, a
    pass took 2.88 ms for 3.19 (six times eight answers, in turns).
    """
    own = usable()
    if not helpers or len(own) != 1 + len(helpers):
        return
    keep_to(own[:1])
    for helper, processor in zip(helpers, own[1:], strict=True):
        if helper.native_id is not None:
            keep_to([processor], helper.native_id)


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
