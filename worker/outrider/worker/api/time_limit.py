"""Time limit of Python code that may loop, in whatever thread runs it.

Calls into C are not interrupted: the limit holds from the next line of Python on.
"""

import contextlib
import ctypes
import functools
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


class TookTooLong(Exception):
    """Code did not end within its time."""

    def __init__(self) -> None:
        super().__init__("it did not end within its time")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TookTooLong` in a block that takes longer."""
    limit = _Limit(time.monotonic() + seconds)
    _limits().put(limit)
    try:
        yield
    finally:
        limit.end()


@dataclass(slots=True)
class _Limit:
    """Limit of a block that runs in this thread."""

    until: float
    thread: ctypes.c_ulong = field(default_factory=lambda: ctypes.c_ulong(threading.get_ident()))
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)
    interrupted: bool = False

    def watch(self) -> None:
        """Wait for the end of the block; interrupt it where it comes too late."""
        if self.ended.wait(max(0.0, self.until - time.monotonic())):
            return
        with self.lock:
            if not self.ended.is_set():
                self.interrupted = True
                _raise_in(self.thread, TookTooLong)

    def end(self) -> None:
        """Let nothing interrupt the thread any more."""
        with self.lock:
            self.ended.set()
        if self.interrupted:
            with contextlib.suppress(_TakenBack):
                _raise_in(self.thread, _TakenBack)  # in the place of one that would come too late
                while True:
                    pass


@functools.cache
def _limits() -> "queue.SimpleQueue[_Limit]":
    """Return the queue of a thread that watches one block after the other.

    Blocks begin in the order in which their times end, as long as all have the same limit.
    """
    limits: queue.SimpleQueue[_Limit] = queue.SimpleQueue()

    def watch() -> None:
        while True:
            limits.get().watch()

    threading.Thread(target=watch, name="time limits", daemon=True).start()
    return limits


class _TakenBack(Exception):
    """Stands for an error that is not raised any more.

    To unset the error instead would leave the interpreter looking for one at every call (CPython
    3.11 and 3.12), and one that profiles would never go on.
    """


def _raise_in(thread: ctypes.c_ulong, error: type[Exception]) -> None:
    """Have a thread raise an error at its next line, in the place of one that is not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(error))
