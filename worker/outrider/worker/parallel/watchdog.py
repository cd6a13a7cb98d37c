"""Notices a pass that never ends: a rank that is stopped or cut off keeps the others waiting.

What happens then is the caller's; a rank whose process has ended is `followers`' to notice.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

FIRST_SECONDS = 600.0
"""Until all has run once: ranks may have to fetch the model, or to compile."""
MIN_SECONDS = 20.0
"""Of any pass after that: a machine may be busy with something else."""
TIMES = 50.0
"""How many times longer than the longest that was measured a pass may take."""
CHECKED_SECONDS = 0.5


class Watchdog:
    """Use as a context manager around each pass."""

    def __init__(self, passed: Callable[[str], None]) -> None:
        """`passed` is called once, on a thread, with what happened."""
        self.seconds = FIRST_SECONDS
        self._passed = passed
        self._began: float | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def measured(self, longest: float) -> None:
        """From now on, passes take about as long as was measured: `longest` seconds at most."""
        self.seconds = max(MIN_SECONDS, TIMES * longest)

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._began = None

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(CHECKED_SECONDS):
            began = self._began
            if began is not None and time.monotonic() - began > self.seconds:
                self._passed(f"a pass has not ended within {self.seconds:.0f} s")
                return
