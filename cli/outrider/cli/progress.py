"""Progress of preparation and start-up on stderr: bars on a terminal, plain lines elsewhere.

Knows nothing of workers: a name, a stage, and how much of it is done.
"""

import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

CLOCK = "%H:%M:%S"


class Reporter(Protocol):
    """Where the hand says what it does."""

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """`done` of `total` parts of a stage; a total of 0 means that it is not known."""

    def finish(self, name: str) -> None:
        """End the stage of `name`."""

    def note(self, text: str) -> None:
        """One sentence that stays, with the time of day: a service runs for hours."""

    def clear(self) -> None:
        """Remove what still moves."""


def reporter() -> Reporter:
    """The fitting reporter for this stderr."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines:
    """One line for each new stage, none for its parts."""

    def __init__(self) -> None:
        self._stages: dict[str, str] = {}

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Print a stage when it begins."""
        if self._stages.get(name) != stage:
            self._stages[name] = stage
            print(f"{name}: {stage}", file=sys.stderr, flush=True)

    def finish(self, name: str) -> None:
        """Forget the stage, so that a repeated one is printed again."""
        self._stages.pop(name, None)

    def note(self, text: str) -> None:
        """Print one line and when."""
        print(f"{time.strftime(CLOCK)} {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Do nothing: lines do not move."""


class Bars:
    """A spinner and a bar for each name at work; they vanish when it is done."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Move the bar of `name`."""
        progress = self._shown()
        if name not in self._tasks:
            self._tasks[name] = progress.add_task(name, total=None, stage="")
        progress.update(self._tasks[name], completed=done, total=total or None, stage=stage)

    def finish(self, name: str) -> None:
        """Remove the bar of `name`."""
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
        self._tasks.clear()

    def _shown(self) -> Progress:
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(style="cyan"),
                TextColumn("{task.description}"),
                TextColumn("{task.fields[stage]}", style="dim"),
                BarColumn(bar_width=24),
                Elapsed(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self._progress
