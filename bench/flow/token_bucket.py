"""Token bucket: when a message has left through a link of so many bits a second.

Pure arithmetic on times, so that the simulation's links and real ones obey the same rule.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """A link's budget of bytes, which fills at its rate."""

    bits_per_second: float
    burst: int = 0
    """Bytes that may leave at once after a silence."""
    _empty_at: float = float("-inf")
    """Time at which all that was sent would have left through a link without a burst."""

    def leaves(self, now: float, size: int) -> float:
        """Take `size` bytes; return when the last of them leaves, at `now` or later."""
        taken = size * 8 / self.bits_per_second
        self._empty_at = max(self._empty_at, now) + taken
        return max(now, self._empty_at - self.burst * 8 / self.bits_per_second)
