"""Watchdog of passes: notices one that never ends, because a rank is stopped or cut off.

Leaves what happens then to the caller, ranks whose process has ended to `processes`.
"""

import threading
import time
from collections.abc import Callable

from outrider.worker.engine.heartbeat import MAX_SLOWDOWN

FIRST_SECONDS = 600.0
"""Limit until all has run once: ranks may have to fetch the model, or to compile."""
MIN_SECONDS = 20.0
"""Least limit of a pass after that: a machine may be busy with something else."""
CHECK_SECONDS = 0.5


class Watchdog:
    """Context manager around each pass."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        """`expired` is called once, on a thread, with the reason."""
        self.seconds = FIRST_SECONDS
        self._expired = expired
        self._began: float | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def set_limit(self, longest: float) -> None:
        """Set the limit by the `longest` seconds of a pass, as measured once all is compiled."""
        self.seconds = max(MIN_SECONDS, MAX_SLOWDOWN * longest)

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._began = None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            began = self._began
            if began is not None and time.monotonic() - began > self.seconds:
                self._expired(f"a pass has not ended within {self.seconds:.0f} s")
                return
