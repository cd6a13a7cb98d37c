"""Requests to workers to finish and end, each in a task of its own.

Leaves the call to a client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from outrider.client.errors import ClientError
from outrider.operator.observed.pods import Pod

log = logging.getLogger(__name__)


class Drains:
    """The requests that are on their way, and whom they have reached."""

    def __init__(self, drain: Callable[[Pod, float], Awaitable[int]]) -> None:
        """`drain` returns how much runs; raises `ClientError`."""
        self._drain = drain
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the pods' uids."""
        self._told: dict[str, int] = {}
        """Incarnations that have answered, likewise."""

    def begin(self, pod: Pod, incarnation: int, seconds: float) -> None:
        """Tell a worker, unless it is being told, or was told in this life."""
        if pod.uid not in self._tasks and self._told.get(pod.uid) != incarnation:
            task = self._tasks[pod.uid] = asyncio.create_task(self._run(pod, incarnation, seconds))
            task.add_done_callback(lambda _: self._tasks.pop(pod.uid, None))

    def forget(self, gone: Iterable[str]) -> None:
        """Tell the pods with these uids nothing more."""
        for uid in gone:
            self._told.pop(uid, None)
            if uid in self._tasks:
                self._tasks[uid].cancel()

    async def close(self) -> None:
        """End all of them."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, pod: Pod, incarnation: int, seconds: float) -> None:
        try:
            running = await self._drain(pod, seconds)
        except ClientError as error:
            log.warning("%s was not told that a pod of its replica ends: %s", pod.name, error)
        except Exception:  # the outermost loop of this task
            log.exception("%s: drain", pod.name)
        else:
            self._told[pod.uid] = incarnation
            words = "%s finishes %d requests and begins again: a pod of its replica ends"
            log.info(words, pod.name, running)
