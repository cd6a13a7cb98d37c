"""Availability of a worker whose engine runs: whether it is ready, and whether it takes new work.

The two differ in the lame-duck time. Leaves the end of the worker to `server`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Availability:
    """Reasons for which a worker is not ready, though its engine is."""

    linking: bool = False
    """True while a new target waits for its first draft."""
    lame_duck_seconds: float = 0.0
    """How long one that drains takes new work all the same."""
    clock: Callable[[], float] = time.monotonic
    _drains_since: float | None = None

    def drain(self) -> None:
        """Be not ready from now on, and refuse new work after the lame-duck time."""
        if self._drains_since is None:
            self._drains_since = self.clock()

    @property
    def draining(self) -> bool:
        """True once it is to stop."""
        return self._drains_since is not None

    @property
    def refusing(self) -> bool:
        """True if new work is refused."""
        since = self._drains_since
        return since is not None and self.clock() - since >= self.lame_duck_seconds
