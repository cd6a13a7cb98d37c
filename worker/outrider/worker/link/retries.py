"""Pauses between tries to reach one draft; a clock and the tries are the caller's."""

from dataclasses import dataclass

FIRST_SECONDS = 0.1
LAST_SECONDS = 0.5
"""A draft that returns is used again within a second, however long it was away. A try costs a
connection that nobody takes."""
REFUSED_SECONDS = 10.0
"""After a refusal, which another try soon would meet again."""


@dataclass(slots=True)
class Retries:
    """Back-off since a link was up last."""

    _next: float = FIRST_SECONDS

    def pause(self, refused: bool) -> float:
        """Return how many seconds to wait after a try that failed.

        A refusal does not lengthen the pauses after it: what refused may be gone.
        """
        if refused:
            self._next = FIRST_SECONDS
            return REFUSED_SECONDS
        pause = self._next
        self._next = min(2 * pause, LAST_SECONDS)
        return pause
