"""Number of events that may still be posted about one service, so that a pod whose readiness comes
and goes fills no event store.

As Kubernetes' own controllers have it (client-go's EventSourceObjectSpamFilter).
"""

from dataclasses import dataclass

AT_ONCE = 25
"""Events that may come one after the other."""
SECONDS = 300.0
"""Time after which there may be one more."""


@dataclass(slots=True)
class EventBudget:
    """Token bucket of one service's events."""

    _left: float = AT_ONCE
    _at: float = 0.0
    """Time to which `_left` belongs."""

    def take(self, now: float) -> bool:
        """Return True if an event may be posted at the time `now`, in seconds, and count it."""
        self._left = min(AT_ONCE, self._left + max(0.0, now - self._at) / SECONDS)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
