"""Pools of threads that exist from the beginning: the system may refuse a new one later."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

STAND_BACK = 15
"""Niceness of threads that compute for long while others should answer at once: a thirtieth of a
processor that is wanted by others. They may run little Python: who waits for the interpreter would
wait for them."""


def started(count: int, name: str, nice: int = 0) -> ThreadPoolExecutor:
    """Return a pool of threads that run; raise `RuntimeError` where the system has no more.

    `nice`: how far they stand back behind other threads, 0 to 19.
    """
    pool = ThreadPoolExecutor(count, name, _stand_back, (nice,))
    begun = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(begun.wait)
        begun.wait()
    except RuntimeError:
        begun.abort()  # for those that have started
        raise
    return pool


def _stand_back(nice: int) -> None:
    """Lower this thread's priority; elsewhere than on Linux it would be the whole process's."""
    if nice and sys.platform == "linux":
        os.nice(nice)
