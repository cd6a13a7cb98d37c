"""A `Pair` whose two roles take turns in one process, as with `draft.placement: Colocated`.

pair = ColocatedPair(running=8)
pair.submit([1, 2, 3], 20)
pair.run()
"""

from dataclasses import dataclass

import numpy as np

from outrider.contract.settings import PolicySettings
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.launch.colocated import ColocatedScheduler, LoopbackLink
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.pair import DRAFT_SECONDS, PASS_SECONDS, Pair


@dataclass
class ColocatedPair(Pair):
    """The draft runs only while the target would wait; drafting is never switched off."""

    draft_costs: StepCosts | None = None
    """Step costs of the draft."""

    def __post_init__(self) -> None:
        self.loopback = LoopbackLink()
        super().__post_init__()
        link = self.loopback
        self.target.sessions.send = link.send_to_draft
        self.colocated = ColocatedScheduler(
            self.target,
            self.target_runner,
            self.draft,
            self.draft_runner,
            link,
            TargetTokens(np.ones(VOCABULARY, np.bool_)),
            self.draft_costs,
        )
        self.target.row_selector.set_policy(
            PolicySettings(version=1, off_below_percent=0), self.now
        )

    def send_buffer(self) -> SendBuffer:
        return SendBuffer(self.loopback.send_to_target, coalesce=False)

    def turn(self, seconds: float = PASS_SECONDS, draft_seconds: float = DRAFT_SECONDS) -> None:
        """Run one pass of either role; a draft's takes `draft_seconds` for each of its sessions."""
        step = self.colocated.next(self.now)
        if step is not None:
            drafting = isinstance(step, DraftBatch)
            self.now += draft_seconds * len(step.parts) if drafting else seconds
            self.colocated.settle(step, self.colocated.run(step), self.now)
