"""Target and draft in one process, in turn, over a link that is a pair of lists.

The same two schedulers as in separate processes; where the target would wait for growth, the draft
runs a pass instead. This is serial speculation, and what `draft.placement: Colocated` means.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.engine.loop import Runner
from outrider.worker.engine.runner import TargetRunner, TopChildren
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import EngineReport
from outrider.worker.speculation.wait import WaitPolicy
from outrider.worker.speculation.wait_by_batch import WaitPolicyByBatch
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.scheduler import TargetScheduler

LINK = 1
"""Number of the one link."""


class LoopbackLink:
    """Messages that one side has sent and the other has not seen yet."""

    def __init__(self) -> None:
        self.to_draft: deque[FromTarget] = deque()
        self.to_target: deque[FromDraft] = deque()

    def send_to_draft(self, link: int, message: FromTarget) -> None:
        """The target's `send`."""
        self.to_draft.append(message)

    def send_to_target(self, link: int, messages: Sequence[FromDraft]) -> None:
        """The draft's `send`."""
        self.to_target.extend(messages)


class SerialScheduler:
    """Scheduler and runner of both roles, as one."""

    def __init__(
        self,
        target: TargetScheduler,
        target_runner: TargetRunner,
        draft: DraftScheduler,
        draft_runner: Runner[DraftBatch, list[TopChildren]],
        link: LoopbackLink,
        allowed: NDArray[np.bool_],
    ) -> None:
        """`allowed` [the target's vocabulary]: ids on which both tokenizers agree."""
        self.target = target
        self.draft = draft
        self._target_runner = target_runner
        self._draft_runner = draft_runner
        self._link = link
        self.outbox = target.outbox
        target.row_selector.patience = WaitPolicyByBatch(WaitPolicy.serial)
        target.sessions.link_up(LINK, allowed)
        draft.links[LINK] = allowed
        draft.holds = False

    def receive(self, message: Any, now: float) -> None:
        """Messages of the server are the target's."""
        self.target.receive(message, now)

    def next(self, now: float) -> TargetBatch | DraftBatch | None:
        """The target's step; a draft's where the target would wait for growth."""
        self._deliver(now)
        step = self.target.next(now)
        if step is not None or not self.target.running:
            return step
        self._deliver(now)
        drafting = self.draft.next(now)
        if drafting is not None:
            return drafting
        return self.target.next(now, may_wait=False)

    def fail_next(self, detail: str, now: float) -> bool:
        """Ends the request that the target's part of `next` failed at, if it was that."""
        return self.target.fail_next(detail, now)

    def patience(self, now: float) -> float | None:
        """Nothing to run means no request, or one whose grammar is being compiled."""
        return None if self.target.running else self.target.patience(now)

    def run(self, step: TargetBatch | DraftBatch) -> Any:
        """One pass of whichever role."""
        if isinstance(step, TargetBatch):
            return self._target_runner.run(step)
        return self._draft_runner.run(step)

    def settle(self, step: TargetBatch | DraftBatch, output: Any, now: float) -> None:
        """Settles with the role that ran."""
        if isinstance(step, TargetBatch):
            self.target.settle(step, output, now)
        else:
            self.draft.settle(step, output, now)
            self.target.stats.counters.drafting_seconds += now - step.started

    def fail(self, step: TargetBatch | DraftBatch, detail: str, now: float) -> None:
        """Ends what the step ran for, with the role that ran."""
        if isinstance(step, TargetBatch):
            self.target.fail(step, detail, now)
        else:
            self.draft.fail(step, detail, now)

    def report(self) -> EngineReport:
        """The target's counters."""
        return self.target.report()

    def _deliver(self, now: float) -> None:
        """Hands over what was sent, the target's first."""
        while self._link.to_draft:
            self.draft.apply(LINK, self._link.to_draft.popleft(), now)
        while self._link.to_target:
            self.target.sessions.receive(LINK, self._link.to_target.popleft(), now)
