"""Heartbeat of an engine: whether its loop still goes round, asked when somebody wants to know.

Asked, and never waited for: a probe is answered at once, by what the last one has found. Leaves to
others what becomes of an engine that has none.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.contract.process_status import is_stopped

LEAST_SECONDS = 60.0
"""Least limit of an answer: a machine may be busy with something else, and who starts a worker
again loses its requests, and minutes of loading."""
MAX_SLOWDOWN = 50.0
"""Most time of a pass over the longest that was measured, of a watchdog too."""


@dataclass(slots=True)
class Heartbeat:
    """What is known of one engine's life."""

    ask: Callable[[], None]
    """Sends the engine a question, which it answers between two passes."""
    process: int | None = None
    """Id of the engine's process, where it has its own."""
    clock: Callable[[], float] = time.monotonic
    stopped: Callable[[int], bool] = is_stopped
    _limit: float = field(default=math.inf, init=False)
    """Longest time of an answer, in seconds: none before the model is loaded, for compiling and
    reading weights take what they take."""
    _asked_at: float | None = field(default=None, init=False)
    """When the question was sent that is still open."""

    def loaded(self, longest_pass: float) -> None:
        """Begin to expect answers; `longest_pass`: seconds as measured, 0 if that is not known."""
        self._limit = max(LEAST_SECONDS, MAX_SLOWDOWN * longest_pass)
        self._asked_at = None

    def beat(self) -> None:
        """Take the engine's answer."""
        self._asked_at = None

    def trouble(self) -> str:
        """Return why the engine has to be started again, or nothing; have it asked anew."""
        if self.process is not None and self.stopped(self.process):
            return "the engine is stopped by a signal"
        now = self.clock()
        if self._asked_at is None:
            self._asked_at = now
            self.ask()
        waited = now - self._asked_at
        return f"the engine has not gone on for {waited:.0f} s" if waited > self._limit else ""
