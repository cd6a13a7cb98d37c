"""Pools of threads that exist from the beginning: the system may refuse a new one later."""

import threading
from concurrent.futures import ThreadPoolExecutor


def started(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of threads that run; raise `RuntimeError` where the system has no more."""
    pool, begun = ThreadPoolExecutor(count, name), threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(begun.wait)
        begun.wait()
    except (
        RuntimeError
    ):  # a thread that cannot start; those that wait end with `BrokenBarrierError`
        begun.abort()
        raise
    return pool
