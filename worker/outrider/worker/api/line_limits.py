"""Limits on the lines of a text, as code editors want of a suggestion.

Leaves stop strings to `text`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from outrider.worker.api.text import StopStrings

INDENTATION = " \t"


@dataclass(slots=True)
class LineLimits:
    """Ends a text before a line that is indented too little, or with the line that is being written
    when its time is over. Stop strings end it as well."""

    stops: StopStrings
    least_indent: int
    """Spaces and tabs before each line but the first, empty ones too."""
    seconds: float | None
    """Time from the first text on; None: any."""
    clock: Callable[[], float] = time.monotonic
    _began: float | None = None
    _is_cut: bool = False
    _buffer: str = ""
    """The beginning of a line whose indentation is not known yet, with the break before it."""

    @property
    def word(self) -> str | None:
        """The stop string that has ended the text; empty: a limit has; None: neither."""
        return "" if self._is_cut else self.stops.word

    def push(self, text: str) -> tuple[str, bool]:
        """Return text that is safe to show, and True once the text has ended."""
        if self._began is None:
            self._began = self.clock()
        text, stopped = self.stops.push(text)
        shown = self._within(text)
        if stopped and not self._is_cut:
            shown += self._taken()
        return shown, stopped or self._is_cut

    def finish(self) -> str:
        """Return all that is left to show at the end of the text."""
        return self._within(self.stops.finish()) + self._taken()

    def _within(self, text: str) -> str:
        """Return what the limits allow of more text, and buffer a line that they do not judge."""
        text = self._taken() + text
        at = text.find("\n")
        while at >= 0:
            rest = text[at + 1 :].lstrip(INDENTATION)
            indent = len(text) - at - 1 - len(rest)
            self._is_cut = self._is_late() or bool(rest and indent < self.least_indent)
            if not (self._is_cut or rest):
                self._buffer = text[at:]
            if self._is_cut or not rest:
                return text[:at]
            at = text.find("\n", at + 1)
        return text

    def _is_late(self) -> bool:
        return (
            self.seconds is not None
            and self._began is not None
            and self.clock() - self._began > self.seconds
        )

    def _taken(self) -> str:
        taken, self._buffer = self._buffer, ""
        return taken
