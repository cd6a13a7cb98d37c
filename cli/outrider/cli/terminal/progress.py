"""Progress of preparation and start-up on stderr: bars on a terminal, plain lines elsewhere.

Knows nothing of workers: a name, a stage, how much of it is done, and how long it took last time.
Lines are printed again by the event loop in which a stage began.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.progress import TimeElapsedColumn as Elapsed

from outrider.cli.terminal.amounts import WORTH_TELLING, Pace
from outrider.cli.terminal.stopwatch import Stopwatch

CLOCK = "%H:%M:%S"
IN_BYTES = ("download", "hash")
"""Stages whose parts are bytes."""
REPEATED_SECONDS = 30.0
"""After so long a stage that goes on is printed again, so that waiting can be told from a hang."""


class StageReporter(Protocol):
    """Where the hand says what it does."""

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """`done` of `total` parts of a stage; a total of 0 means that it is not known."""

    def finish(self, name: str) -> None:
        """End the stage of `name`."""

    def note(self, text: str) -> None:
        """One sentence that stays, with the time of day: a service runs for hours."""

    def clear(self) -> None:
        """Remove what still moves."""

    def started(self) -> None:
        """Remove what still moves, and remember how long each stage took: all went well."""


def reporter(watch: Stopwatch | None = None) -> StageReporter:
    """The fitting reporter for this stderr; by a watch it says how long stages took last time."""
    return Bars(watch) if sys.stderr.isatty() else Lines(watch)


def last_time(seconds: float) -> str:
    """Return how long a stage took last time, in words; empty: that is not worth telling."""
    return f"{seconds:.0f} s last time" if seconds >= WORTH_TELLING else ""


Later = Callable[[float, Callable[[], None]], Any]
"""Makes a call after so many seconds and returns what can `cancel` it; None where there is no event
loop that could."""


def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Make a call in the event loop that runs."""
    try:
        return asyncio.get_running_loop().call_later(seconds, call)
    except RuntimeError:
        return None


class Lines:
    """One line for each new stage, none for its parts; again and again where one takes long."""

    def __init__(
        self,
        watch: Stopwatch | None = None,
        clock: Callable[[], float] = time.monotonic,
        later: Later = later,
    ) -> None:
        self._watch = watch or Stopwatch()
        self._clock = clock
        self._later = later
        self._timers: dict[str, Any] = {}
        """By name: what prints its stage again."""
        self._paces: dict[str, Pace] = {}
        """By name: how its stage goes on."""
        self._shares: dict[str, str] = {}
        """By name: how far it is, in words; empty where that is not known."""

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Print a stage when it begins, and again while it goes on."""
        last = self._watch.begin(name, stage)
        if last is not None:
            self._paces[name] = Pace(stage in IN_BYTES, self._clock)
        self._shares[name] = self._paces[name].words(done, total)
        if last is not None:
            self._cancel(name)
            _print(f"{name}: {stage}", last_time(last))
            self._repeat(name, stage, self._clock())

    def finish(self, name: str) -> None:
        """Forget the stage, so that a repeated one is printed again."""
        self._cancel(name)
        self._watch.end(name)

    def note(self, text: str) -> None:
        """Print one line and when."""
        print(f"{time.strftime(CLOCK)} {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Forget all stages: nobody says how they go on."""
        for name in [*self._timers]:
            self.finish(name)

    def started(self) -> None:
        """Print no stage again, and remember how long each took."""
        self.clear()
        self._watch.write()

    def _repeat(self, name: str, stage: str, began: float) -> None:
        def again() -> None:
            seconds = f"{self._clock() - began:.0f} s so far"
            _print(f"{name}: {stage}", ", ".join(filter(None, (seconds, self._shares[name]))))
            self._repeat(name, stage, began)

        self._timers[name] = self._later(REPEATED_SECONDS, again)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _print(line: str, remark: str) -> None:
    print(f"{line} ({remark})" if remark else line, file=sys.stderr, flush=True)


class Bars:
    """A spinner and a bar for each name at work; they vanish when it is done."""

    def __init__(self, watch: Stopwatch | None = None) -> None:
        self._watch = watch or Stopwatch()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Move the bar of `name`."""
        progress = self._shown()
        if name not in self._tasks:
            self._tasks[name] = progress.add_task(name, total=None, stage="", share="", last="")
        task = self._tasks[name]
        last = self._watch.begin(name, stage)
        if last is not None:  # its seconds are those of the stage
            progress.reset(task, stage=stage, share="", last=last_time(last))
            self._paces[name] = Pace(stage in IN_BYTES)
        share = self._paces[name].words(done, total)
        progress.update(task, completed=done, total=total or None, share=share)

    def finish(self, name: str) -> None:
        """Remove the bar of `name`."""
        self._watch.end(name)
        if self._progress is not None and name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))
        if not self._tasks:
            self.clear()

    def note(self, text: str) -> None:
        """Print one line and when, above the bars."""
        console = self._progress.console if self._progress else Console(stderr=True)
        line = f"{time.strftime(CLOCK)} {text}"
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)

    def clear(self) -> None:
        """Take all bars down."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        for name in [*self._tasks]:
            self._watch.end(name)
        self._tasks.clear()

    def started(self) -> None:
        """Take all bars down, and remember how long each stage took."""
        self.clear()
        self._watch.write()

    def _shown(self) -> Progress:
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(style="cyan"),
                TextColumn("{task.description}"),
                TextColumn("{task.fields[stage]}", style="dim"),
                BarColumn(bar_width=24),
                Elapsed(),
                TextColumn("{task.fields[share]}", style="dim"),
                TextColumn("{task.fields[last]}", style="dim"),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self._progress
