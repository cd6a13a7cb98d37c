"""Stats of a target: usage and timing of each request, counters, and gain.

Decides nothing. Gain is that of docs/concepts/glossary.md: plain decoding's seconds for the same
tokens, at the same number of sequences, divided by the seconds spent.
"""

import bisect
import dataclasses
import logging
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from outrider.contract.counters import (
    CHOICES,
    GROWTH_LATENCY_BOUNDS,
    Counters,
    new_counters,
    seldom_right,
)
from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SOURCES
from outrider.worker.engine.open_answer import count_finish
from outrider.worker.messages import EngineReport, Finish
from outrider.worker.speculation.local_sources import NO_ROWS, NO_SHARE, LocalShare, SourceRows
from outrider.worker.target.draft_switch import DraftSwitch
from outrider.worker.target.pass_costs import PlainCost
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.request import Request
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.mirror_table import DRAFT, PREDICTION

logger = logging.getLogger(__name__)

Control = TypeVar("Control", bound=DraftSwitch)
CHOICE_INDEX = {choice: at for at, choice in enumerate(CHOICES)}


@dataclass(slots=True)
class DraftVerdict:
    """Whether a draft turned out to be of no use, said once."""

    said: bool = False

    def judge(self, counters: Counters) -> None:
        """Warn of a draft that is seldom right."""
        guesses, hits = counters.first_guesses, counters.first_hits
        if not self.said and seldom_right(guesses, hits):
            self.said = True
            logger.warning(
                "this draft is of no use to its target: %d of its first %d next tokens were "
                "accepted; take one of the target's family, or distil one (outrider distil)",
                hits,
                guesses,
            )


@dataclass(slots=True)
class GrowthLatencies:
    """Times from a commit to the first growth that knows it, as a histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(GROWTH_LATENCY_BOUNDS) + 1))
    """Growths by bucket, the last one beyond all bounds."""
    seconds: float = 0.0
    """Sum of all."""

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect.bisect_left(GROWTH_LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds


class Decoding(Protocol):
    """One sequence that decodes in a step."""

    @property
    def sequence(self) -> Sequence: ...
    @property
    def in_session(self) -> bool: ...


class StepRecord(NamedTuple):
    """What one step ran over all its sequences."""

    decoding: SequenceOf[Decoding]
    rows: int
    """Rows of its pass."""
    prefill_rows: int
    """Rows of prefill chunks among them."""
    expected_seconds: float
    """Seconds of its pass by the step costs."""
    plain: PlainCost
    """Cost of the step without nodes."""
    started: float
    by_library: bool = False
    """True if the vendor's library ran a chunk, whose seconds step costs do not know."""


class StepTimes(NamedTuple):
    """What one step brought and took."""

    plain: float
    """Seconds of plain decoding for its tokens, by the step costs."""
    spent: float
    """Seconds since the step before."""
    ended: float
    """Time at which it ended."""


@dataclass(slots=True)
class RequestStats(Generic[Control]):
    """Counters of one target, and usage and timing of its requests, whatever runs its passes."""

    control: Control
    counters: Counters = field(default_factory=new_counters)
    passes_by_accepted: list[int] = field(default_factory=lambda: [0] * (MAX_DEPTH + 1))
    """Verify passes by how many node rows each accepted."""
    source_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Node rows by what proposed them, in the order of `SOURCES`."""
    source_accepted: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Accepted node rows, in the same order."""
    _step: SourceRows = NO_ROWS
    """Node rows of the passes since `take_step`."""
    last_rows: int = 0
    """Rows of the last step or segment."""
    last_node_rows: int = 0
    """Node rows among them."""
    _verdict: DraftVerdict = field(default_factory=DraftVerdict)

    def count_prompt(self, tokens: int, cached: int) -> None:
        """Count a request that starts; KV of `cached` tokens of its prompt was there."""
        self.counters.prompt_tokens += tokens
        self.counters.cached_prompt_tokens += cached

    def count_pass(self, record: PassRecord[Any]) -> None:
        """Count a pass that committed tokens after the first of an answer."""
        sequence, counters, control = record.sequence, self.counters, self.control
        submit, usage = sequence.submit, sequence.usage
        rows, accepted, guessed = record.nodes, record.accepted, record.first_token >= 0
        hit = record.first_token == record.tokens.item(0)
        usage.passes += 1
        usage.draft_rows += rows
        usage.accepted_rows += accepted
        usage.passes_with_nodes += record.live > 0
        usage.first_guesses += guessed
        usage.first_hits += hit
        counters.passes += 1
        counters.tokens += len(record.tokens)
        counters.draft_rows += rows
        counters.accepted_rows += accepted
        self.passes_by_accepted[min(accepted, MAX_DEPTH)] += 1
        if rows or accepted:
            self._count_sources(record)
        counters.drafted_passes += rows > 0
        counters.blind_passes += record.live == 0 and control.wants_drafts(submit)
        counters.resting_passes += control.rests(submit)
        counters.first_guesses += guessed
        counters.first_hits += hit

    def count_rows(self, rows: int, node_rows: int) -> None:
        """Count the rows of a step that has run or of a segment that leaves."""
        self.last_rows, self.last_node_rows = rows, node_rows
        self.counters.steps += 1
        self.counters.step_rows += rows

    def take_step(self) -> SourceRows:
        """Return the node rows of the passes counted since it was last called."""
        step, self._step = self._step, NO_ROWS
        return step

    def count_gain(self, plain: float, spent: float) -> None:
        """Count seconds in which requests decoded, and those of plain decoding for their tokens, by
        the step costs."""
        self.counters.plain_seconds += plain * self.control.account.present.scale
        self.counters.spent_seconds += spent

    def count_local_share(self, share: LocalShare) -> None:
        """Count what is none of the draft's gain."""
        if share is not NO_SHARE:
            self.counters.local_plain_seconds += share.plain * self.control.account.present.scale
            self.counters.local_spent_seconds += share.spent

    def _count_sources(self, record: PassRecord[Any]) -> None:
        """Count the node rows of a pass by what proposed them."""
        if (found := record.sources) is None:
            self.source_rows[DRAFT] += record.nodes
            self.source_accepted[DRAFT] += record.accepted
            return
        record.sequence.usage.accepted_prediction_tokens += found.accepted[PREDICTION]
        self.source_rows = sums(self.source_rows, found.rows)
        self.source_accepted = sums(self.source_accepted, found.accepted)
        rows, accepted, total = self._step
        self._step = SourceRows(
            sums(rows, found.rows), sums(accepted, found.accepted), total + record.nodes
        )

    def count_end(self, request: Request, finish: Finish) -> None:
        """Count a request that ended, and log it."""
        if not request.submit.ends_by_text:
            count_finish(self.counters, finish)
        usage, timing = request.usage, request.timing
        logger.info(
            "request %d: %s after %d tokens in %d passes over %d node rows, %d of them right; "
            "%.0f ms%s",
            request.submit.request,
            finish.value,
            usage.completion_tokens,
            usage.passes,
            usage.draft_rows,
            usage.accepted_rows,
            1e3 * timing.decode_seconds,
            self._details(request),
        )
        self._verdict.judge(self.counters)

    def _details(self, request: Request) -> str:
        """Return what else the log says of a request that ended."""
        return ""

    def report(self, running: int, waiting: int) -> EngineReport:
        """Return the counters so far, of so many requests that run and that wait."""
        counters = self.counters
        counters.passes_by_accepted = tuple(self.passes_by_accepted)
        counters.source_rows = tuple(self.source_rows)
        counters.source_accepted = tuple(self.source_accepted)
        return EngineReport(
            counters,
            running,
            waiting,
            drafting=self.control.drafting,
            last_rows=self.last_rows,
            last_node_rows=self.last_node_rows,
        )


@dataclass(slots=True)
class Stats(RequestStats[RowSelector]):
    """Counters of a target in one piece."""

    planner_steps: list[int] = field(default_factory=lambda: [0] * len(CHOICES))
    """Steps that decoded by the planner's choice, in the order of `CHOICES`."""
    settled_at: float | None = None
    """When the last step ended; None after a time without any request."""

    def count_time(self, sequence: Sequence, plain_seconds: float, started: float) -> None:
        """Count the times of one sequence's pass, which began at `started`.

        `plain_seconds`: of plain decoding for the same tokens, by the step costs.
        """
        timing = sequence.timing
        timing.draft_wait_seconds += started - sequence.committed_at
        timing.plain_seconds += plain_seconds * self.control.account.present.scale

    def count_step(self, step: StepRecord, tokens: int, now: float, learns: bool = True) -> None:
        """Count a step in which decoding committed `tokens` over all sequences.

        `learns`: false where it says nothing of the present state of drafting.
        """
        began = step.started if self.settled_at is None else self.settled_at
        self.settled_at = now
        decoding = len(step.decoding)
        self.count_rows(step.rows, step.rows - step.prefill_rows - decoding)
        sources = self.take_step()
        if sources is not NO_ROWS:
            sources = sources._replace(total=self.last_node_rows)
        if decoding == 0:
            return
        selector, spent = self.control, now - began
        self.planner_steps[CHOICE_INDEX[selector.choice]] += 1
        if step.by_library:
            return
        each = step.plain.step / decoding
        plain = tokens * each + step.plain.prefill
        selector.observe_sources(sources, each, spent)
        self.count_local_share(selector.local.share)
        if learns:
            self._learn(step, StepTimes(plain, spent, now))
        self.count_gain(plain, spent)

    def _learn(self, step: StepRecord, times: StepTimes) -> None:
        """Let the selector learn what a step brought and took."""
        selector, (plain, spent, now) = self.control, times
        expected, forward = step.expected_seconds, now - step.started
        drafting = selector.wants_any_drafts
        if any([_measures_drafting(part, drafting) for part in step.decoding]):
            selector.observe(expected, forward, plain, spent, now)
            return
        if any([selector.local_sources(one.sequence.submit) for one in step.decoding]):
            selector.learn_step(expected, forward, plain, spent)
        selector.saw_plain(plain, spent, now)

    def _details(self, request: Request) -> str:
        """Return the request's waits, and the present times of growth and gain."""
        control, load = self.control, self.control.account.present
        return (
            f", of which {1e3 * request.timing.draft_wait_seconds:.0f} before passes; first growth "
            f"takes {1e3 * load.latency:.1f} ms, the next {1e3 * load.period:.1f} ms; drafting is "
            f"{control.drafting} and gains {load.gain:.2f}; the last step's choice: "
            f"{control.choice.value}"
        )

    def report(self, running: int, waiting: int) -> EngineReport:
        """Return the counters so far, with those of steps and waits."""
        counters = self.counters
        counters.planner_steps = tuple(self.planner_steps)
        counters.draft_wait_seconds = self.control.waited_seconds
        report = RequestStats.report(self, running, waiting)
        return dataclasses.replace(report, planner_choice=self.control.choice.value)


def sums(one: list[int], other: list[int]) -> list[int]:
    """Add two lists of counts."""
    return [a + b for a, b in zip(one, other, strict=True)]


def _measures_drafting(part: Decoding, drafting: bool) -> bool:
    """True if its pass measures the gain of drafting, or of a rest from it."""
    return part.in_session or (part.sequence.submit.speculate and not drafting)
