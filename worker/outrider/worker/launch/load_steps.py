"""Steps of a model's loading: what is done now, for its log and for those who wait for it."""

import logging
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import PurePath

logger = logging.getLogger(__name__)

FRAMES = 3
"""Innermost calls that are shown of a step that takes long."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step, and when it began."""

    doing: str
    """What is done, without its subject: "reads its layers"."""
    thread: int = field(default_factory=threading.get_ident)
    began: float = field(default_factory=time.monotonic)
    processor_seconds: float = field(default_factory=time.process_time)
    """Processor time of the process when the step began, in seconds."""

    def __str__(self) -> str:
        """What it does, for how long, on how much of a processor, and where it stands: a machine
        that is busy, a lock and a loop that never ends look different."""
        seconds = time.monotonic() - self.began
        computed = time.process_time() - self.processor_seconds
        return (
            f"{self.doing}, for {seconds:.0f} s, of which {computed:.1f} s on a processor, "
            f"in {calls_of(self.thread)}"
        )


class LoadSteps:
    """The steps of one loading: begun on the thread that loads, read on any."""

    def __init__(self, name: str) -> None:
        """`name`: who loads, for people."""
        self.name = name
        self.now = LoadStep("starts")

    def begin(self, doing: str) -> None:
        """Begin a step."""
        self.now = LoadStep(doing)
        logger.info("%s %s", self.name, doing)


def calls_of(thread: int) -> str:
    """Return the innermost calls of a thread, the deepest first."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "a thread that has ended"
    walk = traceback.walk_stack(frame)
    calls = traceback.StackSummary.extract(walk, limit=FRAMES, lookup_lines=False)
    return " < ".join(f"{c.name} ({PurePath(c.filename).name}:{c.lineno})" for c in calls)
