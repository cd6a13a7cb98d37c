"""Seconds of the stages of a start: those of now, and what each took last time, in a small file.

Knows nothing of workers: a name, and a stage of its own.
"""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from outrider.contract.files import write_whole

FILE = "stages.json"
MOST = 400
"""Stages in the file; the oldest are dropped first."""


class Stopwatch:
    """Stages that are under way, and how long those took that have ended."""

    def __init__(
        self,
        subject: str = "",
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`subject`: whose stages they are, such as a service. `folder`: of the file, which all
        subjects share; None: nothing is remembered."""
        self._subject = subject
        self._file = folder and folder / FILE
        self._clock = clock
        self._last = _read(self._file)
        self._now: dict[str, float] = {}
        self._begun: dict[str, tuple[str, float]] = {}
        """By name, its stage and when that began."""

    def begin(self, name: str, stage: str) -> float | None:
        """Begin a stage of `name`, and end the one before; return its seconds last time, 0 where
        they are not known, and None where it goes on."""
        key = f"{self._subject} {name}: {stage}"
        if name in self._begun and self._begun[name][0] == key:
            return None
        self.end(name)
        self._begun[name] = key, self._clock()
        return self._last.get(key, 0.0)

    def end(self, name: str) -> None:
        """End the stage of `name`, if it has one."""
        if name in self._begun:
            key, began = self._begun.pop(name)
            self._now[key] = round(self._clock() - began, 1)

    def write(self) -> None:
        """Write what has ended into the file, whole.

        Nothing where that cannot be done: the next start then does not say how long it may take.
        """
        if self._file is None:
            return
        others = {key: last for key, last in _read(self._file).items() if key not in self._now}
        kept = dict([*others.items(), *self._now.items()][-MOST:])
        with contextlib.suppress(OSError):
            write_whole(self._file, json.dumps(kept, indent=2))


def _read(file: Path | None) -> dict[str, float]:
    """Return the seconds in a file; nothing if there is none, or none that can be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file else {}
        return {key: float(seconds) for key, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
