"""A target and a draft with real schedulers, a virtual clock, and a link in between.

pair = Pair(running=4)
pair.submit([1, 2, 3], 20)
pair.run()
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider.contract.settings import PolicySettings, PrefillKind
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.messages import Finished, Submit, Tokens
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.batch import TargetPart
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.unit.worker.fakes import VOCABULARY, FlatCosts, HashModel, TokenPool

CONTEXT = 512
PASS_SECONDS = 0.010
DRAFT_SECONDS = 0.001
LINK = 1


@dataclass
class Pair:
    """A target and a draft, a clock, and a link in between that can be cut."""

    noise: float = 0.5
    sampling: SamplingParams = field(default_factory=SamplingParams)
    draft_passes: int = 6
    """Draft passes for each target step."""
    lag: int = 0
    """Steps that a message spends on the link."""
    running: int = 2
    """Sequences that the target runs at once."""
    spare_blocks: int | None = None
    """Blocks of the target's KV beyond one sequence's; None: room for all."""
    draft_blocks: int | None = None
    """Blocks of the draft's KV; None: room for all."""
    grammars: Grammars | None = None
    row_capacity: int = 65
    """Rows of one pass of the target."""
    costs: Any = field(default_factory=FlatCosts)
    """Step costs of the target."""
    context: int = CONTEXT
    """Most tokens of one sequence."""
    prefill: PrefillKind = PrefillKind.EXACT
    """What computes prompts."""
    start_selector: Callable[..., RowSelector] = RowSelector.start
    """Makes the target's selector of node rows."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.parts: Sequence[TargetPart] = ()
        """What the target ran in the last turn."""
        self.most_sessions = 0
        """Of one pass of the draft."""
        longest = self.context + 65
        blocks = blocks_for(longest) * self.running
        if self.spare_blocks is not None:
            blocks = min(blocks, blocks_for(longest) + self.spare_blocks)
        self.target_kv_cache = TokenPool(self.running, longest, blocks)
        self.target_model = HashModel(self.target_kv_cache)
        self.target_runner = TargetRunner(self.target_model, VOCABULARY)
        row_selector = self.start_selector(self.costs, PolicySettings(), self.row_capacity)
        sessions = TargetSessions(
            lambda link, m: self.to_draft.append((self.step, m)), row_selector
        )
        self.outbox: list[Any] = []
        self.target = TargetScheduler(
            self.target_kv_cache,  # type: ignore[arg-type]
            self.context,
            self.running,
            sessions,
            self.outbox,
            LogitsProcessors(VOCABULARY, self.grammars),
            self.prefill,
        )
        self.step = 0
        self.link = LINK - 1
        self.connect()

    def connect(self) -> None:
        """A fresh draft process on a fresh link."""
        self.link += 1
        self.to_draft: deque[Any] = deque()
        self.to_target: deque[Any] = deque()
        longest = self.context + 600
        blocks = self.draft_blocks or blocks_for(longest) * self.running
        self.draft_kv_cache = TokenPool(self.running, longest, blocks)
        self.draft_model = HashModel(self.draft_kv_cache, noise=self.noise)
        self.draft_runner = DraftRunner(self.draft_model, None, VOCABULARY)
        self.draft = DraftScheduler(
            self.draft_kv_cache,  # type: ignore[arg-type]
            self.context,
            self.running,
            VOCABULARY,
            self.send_buffer(),
        )
        everything = np.ones(VOCABULARY, np.bool_)
        self.draft.sessions.link_up(self.link, everything)
        self.target.sessions.link_up(self.link, everything)

    def send_buffer(self) -> SendBuffer:
        """Make the draft's send buffer, which puts messages on the link."""
        return SendBuffer(lambda link, sent: self.to_target.extend((self.step, m) for m in sent))

    def cut(self) -> None:
        """The draft dies, with all that was on the wire."""
        self.target.sessions.link_down(self.link)
        self.to_draft.clear()
        self.to_target.clear()

    def deliver(self) -> None:
        """Hand over messages that have been on the link for `lag` steps."""
        while self.to_draft and self.to_draft[0][0] + self.lag <= self.step:
            self.draft.apply(self.link, self.to_draft.popleft()[1], self.now)
        while self.to_target and self.to_target[0][0] + self.lag <= self.step:
            self.target.sessions.receive(self.link, [self.to_target.popleft()[1]], self.now)

    def turn(self, seconds: float = PASS_SECONDS, draft_seconds: float = DRAFT_SECONDS) -> None:
        """Run one target step, and the draft's passes beside it, with the seconds of each."""
        self.step += 1
        self.deliver()
        for _ in range(self.draft_passes):
            drafting = self.draft.next(self.now)
            if drafting is None:
                break
            self.most_sessions = max(self.most_sessions, len(drafting.parts))
            self.now += draft_seconds
            self.draft.settle(drafting, self.draft_runner.run(drafting), self.now)
        self.deliver()
        step = self.target.next(self.now, may_wait=False)
        self.parts = () if step is None else step.parts
        self.now += seconds
        if step is not None:
            self.target.settle(step, self.target_runner.run(step), self.now)

    def settle_link(self) -> None:
        """Hand over everything, however long the link."""
        self.step += self.lag
        self.deliver()

    def submit(self, prompt: list[int], count: int, request: int = 1, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "request": request,
            "prompt": np.array(prompt, np.int32),
            "sampling": self.sampling,
            "max_tokens": count,
            "end_ids": (),
            "speculate": True,
            "arrived": self.now,
        }
        self.target.receive(Submit(**(fields | changes)), self.now)

    def text(self, request: int = 1) -> list[int]:
        """Return the tokens that the client has been sent."""
        sent = (m.ids for m in self.outbox if isinstance(m, Tokens) and m.request == request)
        return [token for ids in sent for token in ids]

    def finished(self, request: int = 1) -> Finished | None:
        """Return the last event of a request; None if it has not ended."""
        ends = [m for m in self.outbox if isinstance(m, Finished) and m.request == request]
        assert len(ends) <= 1
        return ends[0] if ends else None

    def run(self, request: int = 1, most: int = 2000) -> Finished:
        """Turn until a request ends."""
        for _ in range(most):
            if (end := self.finished(request)) is not None:
                return end
            self.turn()
        raise AssertionError("the request did not end")

    def expected(self, prompt: list[int], count: int) -> list[int]:
        """Return plain decoding's text."""
        return self.target_model.text(prompt, Sampler(VOCABULARY), self.sampling, count)
