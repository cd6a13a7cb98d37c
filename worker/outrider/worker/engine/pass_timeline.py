"""Timeline of an engine's last passes, for pictures of what it did when.

Leaves what a pass was to those who know its step.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from outrider.contract.state import TimelineSpan
from outrider.worker.messages import MAX_TIMELINE_SPANS, Timeline

Step = TypeVar("Step")
Output = TypeVar("Output")
SpansOf = Callable[[Step, Output, float, float], Iterable[TimelineSpan]]
"""Returns the passes of a step that has been settled, by its output and the times at which it began
and ended; they are numbered later."""


class PassTimeline(Generic[Step, Output]):
    """The last passes of one engine."""

    def __init__(self, spans_of: SpansOf[Step, Output]) -> None:
        self._spans_of = spans_of
        self._spans: deque[TimelineSpan] = deque(maxlen=MAX_TIMELINE_SPANS)
        self._count = 0

    def add(self, step: Step, output: Output, began: float, ended: float) -> None:
        """Add a step that has been settled."""
        for span in self._spans_of(step, output, began, ended):
            self._spans.append(span)
            self._count += 1

    def asked(self) -> Timeline:
        """Return the passes, oldest first, numbered through."""
        first = self._count - len(self._spans)
        return Timeline(
            tuple(span._replace(number=first + at) for at, span in enumerate(self._spans))
        )


NO_TIMELINE: PassTimeline[Any, Any] = PassTimeline(lambda *_: ())
"""Keeps nothing."""
