"""Target and draft in one process, in turn, over a link that is a pair of lists.

The same two schedulers as in separate processes; where the target would wait for growth, the draft
runs a pass instead. This is serial speculation, and what `draft.placement: Colocated` means.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.draft.batch import Step as DraftStep
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.engine.loop import Runner
from outrider.worker.engine.runner import Ranked, TargetRunner
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import Report
from outrider.worker.speculation.wait import Patience
from outrider.worker.speculation.wait_by_batch import PatienceByLoad
from outrider.worker.target.batch import Step as TargetStep
from outrider.worker.target.scheduler import TargetScheduler

LINK = 1
"""Number of the one link."""


class Link:
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


class TakingTurns:
    """Scheduler and runner of both roles, as one."""

    def __init__(
        self,
        target: TargetScheduler,
        target_runner: TargetRunner,
        draft: DraftScheduler,
        draft_runner: Runner[DraftStep, list[Ranked]],
        link: Link,
        allowed: NDArray[np.bool_],
    ) -> None:
        """`allowed` [the target's vocabulary]: ids on which both tokenizers agree."""
        self.target = target
        self.draft = draft
        self._target_runner = target_runner
        self._draft_runner = draft_runner
        self._link = link
        self.outbox = target.outbox
        target.chooser.patience = PatienceByLoad(Patience.in_turn)
        target.sessions.link_up(LINK, allowed)
        draft.links[LINK] = allowed
        draft.holds = False

    def receive(self, message: Any, now: float) -> None:
        """Messages of the server are the target's."""
        self.target.receive(message, now)

    def next(self, now: float) -> TargetStep | DraftStep | None:
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

    def run(self, step: TargetStep | DraftStep) -> Any:
        """One pass of whichever role."""
        if isinstance(step, TargetStep):
            return self._target_runner.run(step)
        return self._draft_runner.run(step)

    def settle(self, step: TargetStep | DraftStep, output: Any, now: float) -> None:
        """Settles with the role that ran."""
        if isinstance(step, TargetStep):
            self.target.settle(step, output, now)
        else:
            self.draft.settle(step, output, now)
            self.target.accounts.counters.drafting_seconds += now - step.started

    def fail(self, step: TargetStep | DraftStep, detail: str, now: float) -> None:
        """Ends what the step ran for, with the role that ran."""
        if isinstance(step, TargetStep):
            self.target.fail(step, detail, now)
        else:
            self.draft.fail(step, detail, now)

    def report(self) -> Report:
        """The target's counters."""
        return self.target.report()

    def _deliver(self, now: float) -> None:
        """Hands over what was sent, the target's first."""
        while self._link.to_draft:
            self.draft.apply(LINK, self._link.to_draft.popleft(), now)
        while self._link.to_target:
            self.target.sessions.receive(LINK, self._link.to_target.popleft(), now)
