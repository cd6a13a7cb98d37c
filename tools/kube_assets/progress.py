"""One line of progress: rewritten in place on a terminal, else repeated every few seconds.

Knows nothing of what makes progress.
"""

import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

SECONDS = 5.0
"""Seconds between two lines where there is no terminal."""


@dataclass(slots=True)
class Progress:
    """Progress of one call on stderr."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=time.monotonic)
    _last: float = 0.0
    _open: bool = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, stays=True)

    def tick(self, text: str) -> None:
        """Show progress, at a rate that suits the stream."""
        now = time.monotonic()
        if self.stream.isatty() or now - self._last >= SECONDS:
            self._write(text, stays=not self.stream.isatty())

    def _write(self, text: str, stays: bool) -> None:
        self._last = time.monotonic()
        line = f"kube_assets: {self._last - self.started:.0f} s: {text}"
        if not stays:
            line = line[: shutil.get_terminal_size().columns - 1]  # a wrapped line stays
        erase = "\r\x1b[K" if self._open else ""
        self._open = not stays
        print(f"{erase}{line}", end="\n" if stays else "", file=self.stream, flush=True)
