"""Why and when a worker's server process stops: a signal, a request, or the end of its parent.

Leaves what stopping means to `server_parts`.
"""

import asyncio
import signal
from dataclasses import dataclass, field

GRACE_SECONDS = 10.0


@dataclass(slots=True)
class Shutdown:
    """Why and when this worker stops."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = GRACE_SECONDS

    @classmethod
    def install(cls, parent: int | None) -> "Shutdown":
        """Stops on SIGTERM, SIGINT and the end of the parent."""
        stop = cls()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.request, GRACE_SECONDS)
        if parent is not None:
            loop.add_reader(parent, stop.orphaned, parent)
        return stop

    def request(self, grace: float) -> None:
        """Begins to drain."""
        self.grace = grace
        self.requested.set()

    def orphaned(self, parent: int) -> None:
        """The supervising process is gone: nobody waits for an orderly end."""
        asyncio.get_running_loop().remove_reader(parent)
        self.request(0.0)
