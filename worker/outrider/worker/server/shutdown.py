"""Shutdown of a worker's server process: by a signal, a request, or the end of its parent.

Leaves the drain to `worker`.
"""

import asyncio
import signal
from dataclasses import dataclass, field

GRACE_SECONDS = 10.0


@dataclass(slots=True)
class Shutdown:
    """The request to stop, and its grace period."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = GRACE_SECONDS

    @classmethod
    def install(cls, parent: int | None) -> "Shutdown":
        """Request the shutdown on SIGTERM, SIGINT and the end of the parent."""
        stop = cls()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.request, GRACE_SECONDS)
        if parent is not None:
            loop.add_reader(parent, stop.orphaned, parent)
        return stop

    def request(self, grace: float) -> None:
        """Stop the worker within `grace` seconds."""
        self.grace = grace
        self.requested.set()

    def orphaned(self, parent: int) -> None:
        """Stop at once: the supervising process is gone."""
        asyncio.get_running_loop().remove_reader(parent)
        self.request(0.0)
