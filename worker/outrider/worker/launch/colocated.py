"""A target and its draft in one process, which take turns on one engine loop.

The same two schedulers as in separate processes, over a loopback link; where the target would wait
for growth, the draft runs a pass instead. A draft that takes up growing again after a rest catches
up in small chunks, one after each of the target's passes. While its memory is lent to the target's
KV, the draft is as one whose link is down. `draft.placement: Colocated` means this. Leaves loading
to `build_colocated`, lending to `memory_lender`.
"""

import functools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from outrider.contract.state import TimelineSpan
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.compiled_loop.run import RootPlanner, RootRun
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.draft.batch import PREFILL_ROWS, DraftBatch
from outrider.worker.draft.scheduler import SHORT_PREFILL, DraftScheduler
from outrider.worker.draft.session import DraftSession
from outrider.worker.draft.spans import draft_spans
from outrider.worker.engine.loop import Runner
from outrider.worker.engine.runner import TopChildren
from outrider.worker.launch.memory_lender import MemoryLender
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import EngineReport
from outrider.worker.speculation.draft_memory import OFFLOAD, MemoryView
from outrider.worker.target.request import Request
from outrider.worker.target.scheduler import HasParts, TargetScheduler
from outrider.worker.target.sequence import Sequence as TargetSequence
from outrider.worker.target.spans import TargetSpans
from outrider.worker.target.stats import Stats

SerialStep = DraftBatch | HasParts
LINK = 1
"""Number of the loopback link."""
CHUNK_SHARE = 0.5
"""Most time of a chunk of catching up, over a plain pass of the target: what it delays others."""
MIN_CHUNK_ROWS = 4
"""Rows of a chunk at least: fewer take no less time."""
LEAST_PRICE = 1e-6
"""Tokens that a row costs at least: a price of 0 has no logarithm."""
COPY_POLL_SECONDS = 0.005
"""How often an idle engine looks whether a copy of the draft's weights has ended."""


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


class ColocatedScheduler:
    """Scheduler and runner of both roles together."""

    def __init__(
        self,
        target: TargetScheduler,
        target_runner: Runner[Any, Any],
        draft: DraftScheduler,
        draft_runner: Runner[DraftBatch, list[TopChildren]],
        link: LoopbackLink,
        tokens: TargetTokens,
        costs: StepCosts | None = None,
    ) -> None:
        """`tokens`: the target's, as the draft sees them; `costs`: the draft's step costs, None:
        not known."""
        self.target = target
        self.draft = draft
        self._target_runner = target_runner
        self._draft_runner = draft_runner
        self._link = link
        self.outbox = target.outbox
        selector = target.row_selector
        self._chunk_rows = MIN_CHUNK_ROWS
        self._text_costs: Callable[[int], float] = lambda tokens: 0.0
        """Seconds that the draft takes for so many tokens of texts."""
        self._row_seconds: float | None = None
        """Seconds that a further row adds to a short pass of the draft; None: not known."""
        if costs is not None:
            self._chunk_rows = chunk_rows(costs, selector.costs, draft.most_rows.prefill)
            self._row_seconds = row_seconds(costs)
            account, chunk = selector.account, self._chunk_rows
            account.growth_costs = functools.cache(
                lambda count: costs.seconds(2 * count, 128, count)
            )
            chunk_seconds = costs.seconds(chunk, 128)
            account.return_costs = lambda tokens: tokens * chunk_seconds / chunk
            most = draft.most_rows.prefill
            text_seconds = costs.seconds(most, 128)
            self._text_costs = lambda tokens: tokens * text_seconds / most
            selector.text_seconds = self._text_seconds
        self._may_catch_up = True
        """True if the target has run a pass since the last chunk of catching up."""
        self._stepped = False
        """True if the target has run a step since the last look at memory."""
        self.tokens = tokens
        self.lender: MemoryLender | None = None
        """Knows the memory of both, and lends the draft's; None: the draft keeps it."""
        self.runs: RootPlanner | None = None
        """Plans runs of roots; None: every pass is a step."""
        draft.catches_up_apart = True
        self._link_up()

    @property
    def host_seconds(self) -> float:
        """Host time within steps of several passes."""
        return self.target.host_seconds

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server: it is for the target."""
        self.target.receive(message, now)

    def receive_during_pass(self, messages: Sequence[Any], now: float) -> Sequence[Any]:
        """Apply nothing: the draft is in this process, and grows between passes."""
        return messages

    def next(self, now: float) -> SerialStep | None:
        """Return the target's step, or the draft's where the target would wait for growth or has
        let a draft catch up for a chunk."""
        if self.lender is not None and self.lender.memory.lent:
            self._move_memory(self.lender, now)
        self.deliver(now)
        if self.target.row_selector.behind:
            self._let_opened_catch_up()
        if self._row_seconds is not None:
            self.draft.least_score = self._least_score(self._row_seconds)
        if self.runs is not None and (run := self._run(self.runs, now)) is not None:
            return run
        if self._may_catch_up and (chunk := self.draft.catch_up(now, self._chunk_rows)):
            self._may_catch_up = False
            return chunk
        step = self.target.next(now)
        if step is not None or not self.target.admission.running:
            return step
        self.deliver(now)
        draft_step = self.draft.next(now)
        if draft_step is not None:
            return draft_step
        return self.target.next(now, may_wait=False)

    def _least_score(self, row_seconds: float) -> float:
        """Return the log-probability from which on a leaf is worth a row of both models."""
        selector = self.target.row_selector
        price = selector.rate * (row_seconds + selector.row_seconds)
        return math.log(min(1.0, max(price, LEAST_PRICE)))

    def _run(self, runs: RootPlanner, now: float) -> RootRun | None:
        """Return a run of roots, if nothing else is to be done first."""
        admission = self.target.admission
        if len(admission.running) != 1 or admission.waiting:
            return None
        (sequence,) = admission.running
        self.target.row_selector.follow([sequence], now)
        self.target.or_end(sequence, now, self.target.sessions.update, sequence, now)
        self.deliver(now)
        return self.target.or_end(sequence, now, runs.plan, sequence, now)

    def _text_seconds(self, sequences: list[TargetSequence]) -> float:
        """Return the time that the draft takes to compute the texts of sequences; 0 if that of one
        is as good as computed: growth for the others is part of growth for it."""
        texts = [self._uncomputed(sequence) for sequence in sequences]
        return self._text_costs(sum(texts)) if min(texts) > SHORT_PREFILL else 0.0

    def _uncomputed(self, sequence: Request) -> int:
        """Return the tokens of a sequence that the draft has not computed."""
        own = self._draft_session(sequence)
        return own.uncomputed_tokens if own else sequence.length

    def _draft_session(self, sequence: Request) -> DraftSession | None:
        """Return the draft's session of a sequence; None: it has none yet."""
        session = sequence.session
        return None if session is None else self.draft.sessions.live.get((LINK, session.number))

    def max_wait(self, now: float) -> float | None:
        """Return as the target does: without a step there is no request, or a grammar compiles.

        While memory moves or is lent, the time to look after it is sooner.
        """
        waits = [None if self.target.admission.running else self.target.max_wait(now)]
        if self.lender is not None:
            calm_at = self.lender.memory.calm_at(now)
            waits.append(None if calm_at is None else max(calm_at - now, COPY_POLL_SECONDS))
            waits.append(COPY_POLL_SECONDS if self.lender.memory.moving else None)
        return min((wait for wait in waits if wait is not None), default=None)

    def run(self, step: SerialStep) -> Any:
        """Run a pass of the role that the step is of."""
        if isinstance(step, DraftBatch):
            return self._draft_runner.run(step)
        return self._target_runner.run(step)

    def settle(self, step: SerialStep, output: Any, now: float) -> None:
        """Settle with the role that ran."""
        if isinstance(step, DraftBatch):
            share = sum([part.count for part in step.parts if part.computes_text])
            self.target.row_selector.account.invest((now - step.started) * share / step.rows.count)
            self.draft.settle(step, output, now)
            self.target.stats.counters.drafting_seconds += now - step.started
        elif isinstance(step, RootRun):
            assert self.runs is not None
            self.runs.settle(step, output)
            self._may_catch_up = self._stepped = True
        else:
            self.target.settle(step, output, now)
            self._may_catch_up = self._stepped = True

    def fail(self, step: SerialStep, detail: str, now: float) -> None:
        """End the requests or sessions of a step, with the role that ran."""
        if isinstance(step, DraftBatch):
            self.draft.fail(step, detail, now)
        else:
            self.target.fail(step, detail, now)

    def report(self) -> EngineReport:
        """Return the target's counters."""
        report = self.target.report()
        return report if self.lender is None else replace(report, memory=self.lender.report())

    def _move_memory(self, lender: MemoryLender, now: float) -> None:
        """Move the draft's memory as far as is due; no pass of either role is under way."""
        if lender.memory.moving:
            lender.poll(now)
            if not lender.memory.moving:
                if not lender.memory.away:
                    self._link_up()
                self.outbox.append(self.report())  # an idle engine has no other reason for one
            return
        move = lender.wanted(self._memory_view(), now)
        if move is OFFLOAD:
            self._link_down(now)
            lender.offload(now)
            if not lender.memory.away:  # it could not be
                self._link_up()
        elif move is not None:
            lender.reload(now)

    def _memory_view(self) -> MemoryView:
        """Return what the last step has left, once."""
        stepped, self._stepped = self._stepped, False
        admission, selector = self.target.admission, self.target.row_selector
        free_places = len(admission.running) < admission.max_running
        return MemoryView(
            free=self.target.kv_cache.available,
            kv_waited_for=admission.kv_short and len(admission.waiting) > 0 and free_places,
            drafting=not selector.drafting_rests,
            gain=selector.switch.known_gain,
            stepped=stepped,
        )

    def _link_down(self, now: float) -> None:
        """End every session of the draft, and let the target decode plainly."""
        self.target.sessions.link_down(LINK)
        self.draft.sessions.link_down(LINK)
        self._link.to_draft.clear()
        self._link.to_target.clear()
        self.target.row_selector.set_away(True, now)

    def _link_up(self) -> None:
        """Let the target open sessions."""
        self.target.sessions.link_up(LINK, self.tokens.allowed)
        self.draft.sessions.link_up(LINK, *self.tokens)
        self.target.row_selector.set_away(False, 0.0)

    def _let_opened_catch_up(self) -> None:
        """Let sessions that were opened at a return to drafting catch up as those that rested.

        Their target does not wait for them, so nothing else would run their prefill.
        """
        for sequence in self.target.admission.running:
            session = sequence.session
            if session is not None and session.level_at is not None:
                own = self._draft_session(sequence)
                if own is not None and own.needs_prefill:
                    own.returns = True

    def deliver(self, now: float) -> None:
        """Deliver what was sent, the target's messages first."""
        while self._link.to_draft:
            self.draft.apply(LINK, self._link.to_draft.popleft(), now)
        self.target.sessions.receive(LINK, self._link.to_target, now)
        self._link.to_target.clear()


class ColocatedSpans:
    """Spans of the passes of both roles."""

    def __init__(self, stats: Stats) -> None:
        """`stats`: the target's."""
        self._target = TargetSpans(stats)

    def __call__(
        self, step: SerialStep, output: Any, began: float, ended: float
    ) -> Iterable[TimelineSpan]:
        """Return the spans of a step that is settled, with the role that ran."""
        if isinstance(step, DraftBatch):
            return draft_spans(step, output, began, ended)
        return self._target(step, output, began, ended)


def row_seconds(draft: StepCosts) -> float:
    """Return what a further row adds to a short pass of the draft."""
    return (draft.seconds(8, 128) - draft.seconds(1, 128)) / 7


def chunk_rows(draft: StepCosts, target: StepCosts, most: int = PREFILL_ROWS) -> int:
    """Return the rows of a chunk of catching up that delays others by no more than its share."""
    allowed = CHUNK_SHARE * target.seconds(1, 1)
    fitting = (rows for rows in range(most, 0, -1) if draft.seconds(rows, 1) <= allowed)
    return max(MIN_CHUNK_ROWS, next(fitting, 0))
