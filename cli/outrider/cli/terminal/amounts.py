"""Bytes and seconds in words, and how far something has come that goes on."""

import time
from collections.abc import Callable

MINUTE = 60.0
WORTH_TELLING = 1.0
"""Seconds from which on it is told how long something takes."""


def size(count: float) -> str:
    """Return bytes in words; a dash for none."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B" if count else "-"


def duration(seconds: float) -> str:
    """Return a duration in words, in minutes or, from two hours on, in hours."""
    minutes = round(seconds / MINUTE)
    if minutes >= 120:
        return f"{minutes / 60:.0f} h"
    return f"{minutes} min" if minutes else "under a minute"


class Pace:
    """How much of a stage is done, by what rate, and how long the rest takes.

    What was done when it began, such as the part of a download that was cut, says nothing of the
    rate.
    """

    def __init__(self, in_bytes: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._in_bytes = in_bytes
        self._clock = clock
        self._began: tuple[float, int] | None = None

    def words(self, done: int, total: int) -> str:
        """Say it of `done` parts now; empty while nothing is known."""
        now = self._clock()
        if self._began is None:
            self._began = now, done
        if not done or not total:
            return ""
        seconds, more = now - self._began[0], done - self._began[1]
        words = [f"{done / total:.0%}".replace("%", " %")]
        if self._in_bytes:
            words.append(f"{size(done)} of {size(total)}")
        if more > 0 and seconds > 0:
            if self._in_bytes:
                words.append(f"{size(more / seconds)}/s")
            left = seconds * (total - done) / more
            if left >= WORTH_TELLING:
                words.append(f"{f'{left:.0f} s' if left < MINUTE else duration(left)} left")
        return ", ".join(words)
