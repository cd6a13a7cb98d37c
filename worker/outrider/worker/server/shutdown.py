"""Shutdown of a worker's server process: by a signal, a request, or the end of its parent.

Leaves the drain to `worker`.
"""

import asyncio
import math
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

POLL_SECONDS = 0.02


@dataclass(slots=True)
class Shutdown:
    """The request to stop, and the time that is left."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    deadline: float = math.inf
    """When the worker has to end, by the clock of the event loop."""

    @classmethod
    def install(cls, parent: int | None, grace: float) -> "Shutdown":
        """Request the shutdown on SIGTERM and SIGINT, within `grace` seconds, and on the end of the
        parent, at once."""
        stop = cls()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.request, grace)
        if parent is not None:
            loop.add_reader(parent, stop.orphaned, parent)
        return stop

    def request(self, grace: float) -> None:
        """Stop the worker within `grace` seconds, or sooner if it was requested before."""
        self.deadline = min(self.deadline, asyncio.get_running_loop().time() + grace)
        self.requested.set()

    def orphaned(self, parent: int) -> None:
        """Stop at once: the supervising process is gone."""
        asyncio.get_running_loop().remove_reader(parent)
        self.request(0.0)

    @property
    def left(self) -> float:
        """Seconds until the worker has to end."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    async def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait while something holds and time is left."""
        while self.left and holds():
            await asyncio.sleep(POLL_SECONDS)
