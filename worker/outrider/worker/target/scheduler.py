"""Scheduler of a target: plans the batch of each step, and applies its result.

A batch holds the root of every sequence past prefill, the nodes that `target/selection` picks for
them, and prefill chunks of others. Leaves KV to `target/admission`, rows to `target/batch`,
committing to `target/commit`, drafts to `target/sessions`, and how requests come and go to
`target/request_scheduler`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from typing import Any, Protocol, TypeVar

import numpy as np

from outrider.contract.settings import PrefillKind
from outrider.worker.errors import PlanFailed
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.messages import EngineReport, Finish, FromPeer, Submit
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.speculation.answer_index import NO_ANSWERS, AnswerIndex
from outrider.worker.target.admission import Admission
from outrider.worker.target.batch import TargetBatch, TargetPart
from outrider.worker.target.commit import Committer
from outrider.worker.target.finished_answers import FinishedAnswers
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.prefill import (
    ChunkPrefill,
    FairPrefill,
    PrefillPlanner,
    Prompt,
    Streams,
)
from outrider.worker.target.request_scheduler import RequestScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.target.stats import Stats, StepRecord
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.mirror_table import ANSWERS, PREDICTION

T = TypeVar("T")

MIN_PREFILL_ROWS = 16
"""Rows of a pass that are kept for prefill, if a sequence needs it."""
GRAMMAR_POLL_SECONDS = 0.005
"""How often an idle engine looks whether the grammar of its next request is compiled."""
NOT_PLANNED = "the engine failed at this request"


class HasParts(Protocol):
    """A step of any kind."""

    @property
    def parts(self) -> SequenceOf[TargetPart]: ...


class Runs(Protocol):
    """Plans steps of several passes of one sequence, as `compiled_loop.run` does."""

    def plan(self, sequence: Sequence, now: float) -> HasParts | None:
        """Return such a step; None if the next pass has to be a step."""

    def settle(self, run: Any, output: Any) -> None:
        """Apply each pass of it, by `TargetScheduler.apply`."""


class TargetScheduler(RequestScheduler[Sequence]):
    """Every request of one target in one piece."""

    def __init__(
        self,
        kv_cache: KVCache,
        context: int,
        max_running: int,
        sessions: TargetSessions[RowSelector],
        outbox: list[Any],
        logits_processors: LogitsProcessors,
        prefill: PrefillKind = PrefillKind.EXACT,
    ) -> None:
        self.kv_cache = kv_cache
        self.context = context
        self.sessions = sessions
        self.row_selector = row_selector = sessions.control
        self.stats = Stats(row_selector)
        self.admission = Admission(
            kv_cache, max_running, logits_processors, row_selector, self.stats
        )
        super().__init__(self.admission.waiting, self.admission.running, outbox)
        self.committer: Committer = Committer(sessions, self.stats, outbox, kv_cache, self.running)
        self.answers = FinishedAnswers()
        self.prefill_planner: PrefillPlanner = FairPrefill(row_selector.costs)
        self._by_library = prefill is PrefillKind.LIBRARY
        if self._by_library:
            self.prefill_planner = ChunkPrefill()
        self.runs: Runs | None = None
        """Steps of several passes of one sequence; None: every pass is a step."""
        self.host_seconds = 0.0
        """Time between the passes of such steps."""
        self._round_robin_start = 0
        """Index of the sequence with which the next pass begins when one cannot hold them all."""

    @property
    def kv_blocks(self) -> tuple[int, int]:
        """KV blocks that are used, and all of them."""
        return self.kv_cache.used, self.kv_cache.blocks

    def submit(self, submit: Submit, now: float) -> None:
        """Let a request wait."""
        self.waiting.put(self._sequence(submit))

    def end(self, request: Sequence, finish: Finish, now: float) -> None:
        """End a request that runs and free its KV."""
        self.committer.end(request, finish, now)

    def receive_during_pass(
        self, messages: SequenceOf[FromPeer], now: float
    ) -> SequenceOf[FromPeer]:
        """Add growth that has come while a pass ran to the mirrors; return the rest.

        Whatever ends a session must wait until the pass is settled, for that takes nodes away.
        """
        for number, message in enumerate(messages):
            arrived = min(message.arrived, now)
            rest = self.sessions.receive_growth(message.link, message.messages, arrived)
            if rest:
                left = FromPeer(message.link, rest, message.arrived)
                return (left, *messages[number + 1 :])
        return ()

    def next(self, now: float, may_wait: bool = True) -> HasParts | None:
        """Return the next batch, or a run of passes; None if no request runs, or if waiting for
        growth is worth more.

        Raises `PlanFailed` once it has ended a request whose part of the batch cannot be made.
        """
        if self.waiting:
            self.expire(now)
            self.admission.admit(now)
        if not self.running:
            self.stats.settled_at = None
            return None
        self.row_selector.follow(self.running, now)
        if self.runs is not None and (run := self._run(self.runs, now)) is not None:
            return run
        decoding = self._decoding()
        prefilling = [s for s in self.running if s.needs_prefill]
        prefill = self._prefill(prefilling, decoding) if prefilling else []
        for sequence in tuple(self.running):
            self.or_end(sequence, now, self.sessions.update, sequence, now)
        for sequence in decoding:
            if sequence.needs_search:
                self.or_end(sequence, now, self.row_selector.search, sequence)
        rows = sum([part.rows.count for part in prefill if not part.rows.by_library])
        selection = self.row_selector.select(decoding, rows, now, may_wait, bool(prefill))
        if selection is None:
            return None
        verify = [
            self.or_end(sequence, now, TargetPart.verify, sequence, nodes)
            for sequence, nodes in zip(decoding, selection.nodes, strict=True)
        ]
        return TargetBatch.of(verify, prefill, selection, now)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a wait for growth or a grammar ends; None if nothing waits."""
        if self.running:
            return self.row_selector.seconds_left(now)
        return GRAMMAR_POLL_SECONDS if self.waiting else None

    def settle(self, step: HasParts, outputs: Any, now: float) -> None:
        """Apply the output of a step: commit the tokens of each part (`commit`)."""
        if not isinstance(step, TargetBatch):
            assert self.runs is not None
            self.runs.settle(step, outputs)
            return
        pairs = zip(step.parts, outputs, strict=True)  # lazily: a part may end its request
        passes = (self.committer.settled(part, output, now) for part, output in pairs)
        self.apply(step.record, passes, now)

    def apply(
        self,
        step: StepRecord,
        passes: Iterable[PassRecord[Sequence] | None],
        now: float,
        learns: bool = True,
    ) -> None:
        """Apply a step that ended at `now`: all that learns of its tokens and times learns here.
        The acceptance of its rows was learnt as their trees were settled.

        `passes`: of its sequences, each settled once the one before is applied; `learns`: false
        where it says nothing of the present state of drafting.
        """
        self.row_selector.end_wait(step.started)
        tokens = 0
        for record in passes:
            if record is not None:
                tokens += self.committer.apply(record, step.plain.step, step.started, now)
        self.committer.stream(now)
        self.stats.count_step(step, tokens, now, learns)

    def fail(self, step: HasParts, detail: str, now: float) -> None:
        """End the requests whose pass could not be run."""
        self.stats.take_step()  # no `count_step` follows
        for part in step.parts:
            if part.sequence in self.running:
                self.committer.end(part.sequence, Finish.FAILED, now, detail)

    def report(self) -> EngineReport:
        """Return the counters so far, and how far drafts are behind."""
        lag = max([s.draft_lag for s in self.running], default=0)
        return dataclasses.replace(RequestScheduler.report(self), draft_lag=lag)

    def _sequence(self, submit: Submit) -> Sequence:
        """Make the sequence of a request, without KV."""
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[: len(submit.prompt)] = submit.prompt
        wanted = self.row_selector.local.wanted | bool(len(submit.prediction)) << PREDICTION
        return Sequence(
            submit=submit,
            tokens=tokens,
            length=len(submit.prompt),
            mirror=Mirror(len(submit.prompt) - 1, tokens=tokens),
            calibration=self.row_selector.new_calibration(),
            ends=np.array(submit.end_ids, np.int32),
            sources=wanted if submit.speculate else 0,
            answers=self._answers(submit, wanted),
            library_tokens=len(submit.prompt) if self._by_library else 0,
        )

    def _answers(self, submit: Submit, wanted: int) -> AnswerIndex:
        """Return the finished answers that a request may see; forget all if none are wanted."""
        if wanted >> ANSWERS & 1:
            return self.answers.of(submit)
        self.answers.forget()
        return NO_ANSWERS

    def or_end(self, sequence: Sequence, now: float, plan: Callable[..., T], *arguments: Any) -> T:
        """Plan the sequence's part of a batch; if that fails, end its request first.

        Raises `PlanFailed`.
        """
        try:
            return plan(*arguments)
        except Exception as error:
            self.committer.end(sequence, Finish.FAILED, now, NOT_PLANNED)
            raise PlanFailed(f"request {sequence.submit.request}") from error

    def _run(self, runs: Runs, now: float) -> HasParts | None:
        """Return a step of several passes, if one sequence alone runs."""
        if len(self.running) > 1 or self.waiting:
            return None
        (sequence,) = self.running
        return self.or_end(sequence, now, runs.plan, sequence, now)

    def _decoding(self) -> list[Sequence]:
        """Return the sequences that decode next; round-robin if a pass cannot hold them all."""
        running = self.running
        decoding = [
            s for s in tuple(running) if not s.needs_prefill and self.admission.make_room(s)
        ]
        capacity = self.row_selector.pass_costs.row_capacity
        if len(decoding) < len(running):  # some need prefill
            capacity -= min(MIN_PREFILL_ROWS, capacity // 2)
        if len(decoding) <= capacity:
            return decoding
        self._round_robin_start = (self._round_robin_start + capacity) % len(decoding)
        return (decoding[self._round_robin_start :] + decoding[: self._round_robin_start])[
            :capacity
        ]

    def _prefill(self, sequences: list[Sequence], decoding: list[Sequence]) -> list[TargetPart]:
        """Return the prefill chunks of `sequences` that go along with those that decode."""
        count = len(decoding)
        rows = self.prefill_planner.plan(
            [
                Prompt(s.length - s.computed, s.computed, s.submit.priority, s.chunk)
                for s in sequences
            ],
            Streams(count, sum(s.length for s in decoding) // max(1, count)),
            self.row_selector.pass_costs.row_capacity - count,
        )
        chunks = zip(sequences, rows, strict=True)
        return [TargetPart.prefill(sequence, limit) for sequence, limit in chunks if limit > 0]
