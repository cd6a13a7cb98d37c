"""Requests to workers to finish and end, each in a task of its own.

Leaves the call to a client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from outrider.client.errors import ClientError
from outrider.operator.pods import Pod

log = logging.getLogger(__name__)


class Drains:
    """The requests that are on their way."""

    def __init__(self, drain: Callable[[Pod, float], Awaitable[int]]) -> None:
        """`drain` returns how much runs; raises `ClientError`."""
        self._drain = drain
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the pods' uids."""

    def begin(self, pod: Pod, seconds: float) -> None:
        """Tell a worker, unless it is being told."""
        if pod.uid not in self._tasks:
            task = self._tasks[pod.uid] = asyncio.create_task(self._run(pod, seconds))
            task.add_done_callback(lambda _: self._tasks.pop(pod.uid, None))

    async def close(self) -> None:
        """End all of them."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, pod: Pod, seconds: float) -> None:
        try:
            running = await self._drain(pod, seconds)
        except ClientError as error:
            log.warning("%s was not told that a pod of its replica ends: %s", pod.name, error)
        except Exception:  # the outermost loop of this task
            log.exception("%s: drain", pod.name)
        else:
            words = "%s finishes %d requests and begins again: a pod of its replica ends"
            log.info(words, pod.name, running)
