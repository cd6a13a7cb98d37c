"""Serial speculation: target and draft in one process, on one engine loop, over a loopback link.

The same two schedulers as in separate processes; where the target would wait for growth, the draft
runs a pass instead. A draft that takes up growing again after a rest catches up in small chunks,
one after each of the target's passes. `draft.placement: Colocated` means this. Leaves loading to
`build_serial`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.batch import PREFILL_ROWS, DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.spans import draft_spans
from outrider.worker.engine.loop import Runner
from outrider.worker.engine.runner import TopChildren
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import EngineReport, TimelineSpan
from outrider.worker.model.step_costs import StepCosts
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.pass_run import PassRun
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.spans import TargetSpans
from outrider.worker.target.stats import Stats

LINK = 1
"""Number of the loopback link."""
CHUNK_SHARE = 0.5
"""Most time of a chunk of catching up, over a plain pass of the target: what it delays others."""
MIN_CHUNK_ROWS = 4
"""Rows of a chunk at least: fewer take no less time."""


class LoopbackLink:
    """Messages that one side has sent and the other has not received yet."""

    def __init__(self) -> None:
        self.to_draft: deque[FromTarget] = deque()
        self.to_target: deque[FromDraft] = deque()

    def send_to_draft(self, link: int, message: FromTarget) -> None:
        """Send as the target."""
        self.to_draft.append(message)

    def send_to_target(self, link: int, messages: Sequence[FromDraft]) -> None:
        """Send as the draft."""
        self.to_target.extend(messages)


class SerialScheduler:
    """Scheduler and runner of both roles together."""

    def __init__(
        self,
        target: TargetScheduler,
        target_runner: Runner[Any, Any],
        draft: DraftScheduler,
        draft_runner: Runner[DraftBatch, list[TopChildren]],
        link: LoopbackLink,
        allowed: NDArray[np.bool_],
        chunk_rows: int = MIN_CHUNK_ROWS,
    ) -> None:
        """`allowed` [the target's vocabulary]: ids on which both tokenizers agree; `chunk_rows`:
        most rows of a chunk of catching up."""
        self.target = target
        self.draft = draft
        self._target_runner = target_runner
        self._draft_runner = draft_runner
        self._link = link
        self.outbox = target.outbox
        self._chunk_rows = chunk_rows
        self._may_catch_up = True
        """True if the target has run a pass since the last chunk of catching up."""
        draft.catches_up_apart = True
        target.sessions.link_up(LINK, allowed)
        draft.sessions.link_up(LINK, allowed)

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes."""
        return self.target.host_seconds

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server: it is for the target."""
        self.target.receive(message, now)

    def receive_growth(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        """Apply nothing: the draft is in this process, and grows between passes."""
        return messages

    def next(self, now: float) -> TargetBatch | PassRun | DraftBatch | None:
        """Return the target's step, or the draft's where the target would wait for growth or has
        let a draft catch up for a chunk."""
        self._deliver(now)
        if self._may_catch_up and (chunk := self.draft.catch_up(now, self._chunk_rows)):
            self._may_catch_up = False
            return chunk
        step = self.target.next(now)
        if step is not None or not self.target.admission.running:
            return step
        self._deliver(now)
        draft_step = self.draft.next(now)
        if draft_step is not None:
            return draft_step
        return self.target.next(now, may_wait=False)

    def max_wait(self, now: float) -> float | None:
        """Return as the target does: without a step there is no request, or a grammar compiles."""
        return None if self.target.admission.running else self.target.max_wait(now)

    def run(self, step: TargetBatch | PassRun | DraftBatch) -> Any:
        """Run a pass of the role that the step is of."""
        if isinstance(step, DraftBatch):
            return self._draft_runner.run(step)
        return self._target_runner.run(step)

    def settle(self, step: TargetBatch | PassRun | DraftBatch, output: Any, now: float) -> None:
        """Settle with the role that ran."""
        if isinstance(step, DraftBatch):
            self.draft.settle(step, output, now)
            self.target.stats.counters.drafting_seconds += now - step.started
        else:
            self.target.settle(step, output, now)
            self._may_catch_up = True

    def fail(self, step: TargetBatch | PassRun | DraftBatch, detail: str, now: float) -> None:
        """End the requests or sessions of a step, with the role that ran."""
        if isinstance(step, DraftBatch):
            self.draft.fail(step, detail, now)
        else:
            self.target.fail(step, detail, now)

    def report(self) -> EngineReport:
        """Return the target's counters."""
        return self.target.report()

    def _deliver(self, now: float) -> None:
        """Deliver what was sent, the target's messages first."""
        while self._link.to_draft:
            self.draft.apply(LINK, self._link.to_draft.popleft(), now)
        self.target.sessions.receive(LINK, self._link.to_target, now)
        self._link.to_target.clear()


class SerialSpans:
    """Spans of the passes of both roles."""

    def __init__(self, stats: Stats) -> None:
        """`stats`: the target's."""
        self._target = TargetSpans(stats)

    def __call__(
        self, step: TargetBatch | PassRun | DraftBatch, output: Any, began: float, ended: float
    ) -> Iterable[TimelineSpan]:
        """Return the spans of a step that is settled, with the role that ran."""
        if isinstance(step, DraftBatch):
            return draft_spans(step, output, began, ended)
        return self._target(step, output, began, ended)


def chunk_rows(draft: StepCosts, target: StepCosts, most: int = PREFILL_ROWS) -> int:
    """Return the rows of a chunk of catching up that delays others by no more than its share."""
    allowed = CHUNK_SHARE * target.seconds(1, 1)
    fitting = (rows for rows in range(most, 0, -1) if draft.seconds(rows, 1) <= allowed)
    return max(MIN_CHUNK_ROWS, next(fitting, 0))
