"""Back-off before a crashed worker is started again.

Pure: knows no clock and no process.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles from `first` to `ceiling` seconds; begins anew after a healthy life."""

    first: float = 0.2
    """Seconds after the first crash."""
    ceiling: float = 10.0
    """Longest wait, in seconds."""
    healthy: float = 30.0
    """A life of at least so many seconds of health clears what came before."""
    _next: float = 0.0

    def after(self, lived: float) -> float:
        """Return the seconds to wait after a life with `lived` seconds of health."""
        delay = self.first if lived >= self.healthy else max(self._next, self.first)
        self._next = min(2 * delay, self.ceiling)
        return delay
