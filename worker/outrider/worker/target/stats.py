"""Stats of a target: usage and timing of each request, counters, and gain.

Decides nothing. Gain is that of docs/index.md: plain decoding's seconds for the same tokens,
at the same number of sequences, divided by the seconds spent.
"""

import bisect
import logging
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from outrider.contract.counters import (
    CHOICES,
    GROWTH_LATENCY_BOUNDS,
    Counters,
    new_counters,
    seldom_right,
)
from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SOURCES
from outrider.worker.messages import Finish
from outrider.worker.speculation.local_sources import NO_ROWS, NOTHING_LENT, Lent, SourceRows
from outrider.worker.target.pass_costs import PlainCost
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.mirror import DRAFT

logger = logging.getLogger(__name__)

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
    """By bucket, the last one beyond all bounds."""
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


class StepTimes(NamedTuple):
    """What one step brought and took."""

    tokens: int
    """That decoding committed, over all sequences."""
    plain: float
    """Seconds of plain decoding for the same, by the step costs;"""
    spent: float
    """those that it took, since the step before;"""
    ended: float
    """and when."""


@dataclass(slots=True)
class Stats:
    """Counters of one target, and usage and timing of its requests."""

    row_selector: RowSelector
    counters: Counters = field(default_factory=new_counters)
    passes_by_accepted: list[int] = field(default_factory=lambda: [0] * (MAX_DEPTH + 1))
    """Verify passes by how many node rows each accepted."""
    planner_steps: list[int] = field(default_factory=lambda: [0] * len(CHOICES))
    """Steps that decoded by the planner's choice, in the order of `CHOICES`."""
    source_rows: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """Node rows by what proposed them, in the order of `SOURCES`;"""
    source_accepted: list[int] = field(default_factory=lambda: [0] * len(SOURCES))
    """of them, those accepted."""
    _step: SourceRows = NO_ROWS
    """Of the step that is being settled."""
    settled_at: float | None = None
    """When the last step ended; None after a time without any request."""
    last_rows: int = 0
    """Rows of the last step."""
    last_node_rows: int = 0
    """Node rows among them."""
    _verdict: DraftVerdict = field(default_factory=DraftVerdict)

    def count_prompt(self, tokens: int, cached: int) -> None:
        """Count a request that starts; KV of `cached` tokens of its prompt was there."""
        self.counters.prompt_tokens += tokens
        self.counters.cached_prompt_tokens += cached

    def count_pass(self, record: PassRecord, hit: bool) -> None:
        """Count a pass; `hit`: the likeliest token after the root was sampled there."""
        sequence, counters, selector = record.sequence, self.counters, self.row_selector
        submit, usage = sequence.submit, sequence.usage
        rows, accepted, guessed = record.nodes, record.accepted, record.first_token >= 0
        usage.passes += 1
        usage.draft_rows += rows
        usage.accepted_rows += accepted
        usage.passes_with_nodes += record.live > 0
        usage.first_guesses += guessed
        usage.first_hits += hit
        counters.passes += 1
        counters.tokens += accepted + 1
        counters.draft_rows += rows
        counters.accepted_rows += accepted
        self.passes_by_accepted[accepted] += 1
        if rows:
            self._count_sources(record)
        counters.drafted_passes += rows > 0
        counters.blind_passes += record.live == 0 and selector.wants_drafts(submit)
        counters.resting_passes += selector.rests(submit)
        counters.first_guesses += guessed
        counters.first_hits += hit

    def count_time(self, sequence: Sequence, plain_seconds: float, started: float) -> None:
        """Count the times of one sequence's pass, which began at `started`.

        `plain_seconds`: of plain decoding for the same tokens, by the step costs.
        """
        timing = sequence.timing
        timing.draft_wait_seconds += started - sequence.committed_at
        timing.plain_seconds += plain_seconds * self.row_selector.switch.scale

    def count_step(self, step: StepRecord, tokens: int, now: float, learns: bool = True) -> None:
        """Count a step in which decoding committed `tokens` over all sequences.

        `learns`: false where it says nothing of the present state of drafting.
        """
        began = step.started if self.settled_at is None else self.settled_at
        self.settled_at = now
        decoding = len(step.decoding)
        self.last_rows, self.last_node_rows = step.rows, step.rows - step.prefill_rows - decoding
        self.counters.steps += 1
        self.counters.step_rows += step.rows
        sources, self._step = self._step, NO_ROWS
        if sources is not NO_ROWS:
            sources = sources._replace(total=self.last_node_rows)
        if decoding == 0:
            return
        selector, spent = self.row_selector, now - began
        self.planner_steps[CHOICE_INDEX[selector.choice]] += 1
        each = step.plain.step / decoding
        plain = tokens * each + step.plain.prefill
        if selector.local.wanted:
            selector.observe_sources(sources, each, spent, now)
            self._count_lent(selector.local.lent)
        if learns:
            self._learn(step, StepTimes(tokens, plain, spent, now))
        self.counters.plain_seconds += plain * selector.switch.scale
        self.counters.spent_seconds += spent

    def _count_lent(self, lent: Lent) -> None:
        """Count what is none of the draft's gain."""
        if lent is not NOTHING_LENT:
            self.counters.local_plain_seconds += lent.plain * self.row_selector.switch.scale
            self.counters.local_spent_seconds += lent.spent

    def _learn(self, step: StepRecord, times: StepTimes) -> None:
        """Let the selector learn what a step brought and took."""
        selector, (tokens, plain, spent, now) = self.row_selector, times
        expected, forward = step.expected_seconds, now - step.started
        drafting = selector.wants_any_drafts
        if any([_measures_drafting(part, drafting) for part in step.decoding]):
            selector.observe(tokens, expected, forward, spent, plain, now)
            return
        if selector.local.on and any([one.sequence.submit.speculate for one in step.decoding]):
            selector.learn_step(tokens, expected, forward, spent)
        selector.saw_plain(plain, spent)

    def drop_step(self) -> None:
        """Note that a step has failed: no `count_step` follows its `count_pass`."""
        self._step = NO_ROWS

    def _count_sources(self, record: PassRecord) -> None:
        """Count the node rows of a pass by what proposed them."""
        if (found := record.sources) is None:
            self.source_rows[DRAFT] += record.nodes
            self.source_accepted[DRAFT] += record.accepted
            return
        self.source_rows = sums(self.source_rows, found.rows)
        self.source_accepted = sums(self.source_accepted, found.accepted)
        before = self._step
        self._step = SourceRows(
            sums(before.rows, found.rows), sums(before.accepted, found.accepted)
        )

    def count_end(self, sequence: Sequence, finish: Finish) -> None:
        """Count a request that ended, and log it."""
        count_finish(self.counters, finish)
        self._log(sequence, finish)
        self._verdict.judge(self.counters)

    def _log(self, sequence: Sequence, finish: Finish) -> None:
        """Log the request's passes and waits, and the present times of growth, in one sentence."""
        usage, timing, waits = sequence.usage, sequence.timing, self.row_selector.wait_policy
        logger.info(
            "request %d: %s after %d tokens in %d passes over %d node rows, %d of them right; "
            "%.0f ms, of which %.0f before passes; first growth takes %.1f ms, the next %.1f ms; "
            "waits brought %.1f of %.1f tokens hoped for; drafting is %s; the last "
            "step's choice: %s",
            sequence.submit.request,
            finish.value,
            usage.completion_tokens,
            usage.passes,
            usage.draft_rows,
            usage.accepted_rows,
            1e3 * timing.decode_seconds,
            1e3 * timing.draft_wait_seconds,
            1e3 * waits.present.latency,
            1e3 * waits.present.period,
            waits.realised_gain,
            waits.predicted_gain,
            self.row_selector.drafting,
            self.row_selector.choice.value,
        )


def count_finish(counters: Counters, finish: Finish) -> None:
    """Count a request that ended."""
    if finish in (Finish.CANCELLED, Finish.EXPIRED, Finish.STAGES_MISSING):
        counters.requests_cancelled += 1
    else:
        counters.requests_finished += 1
    counters.requests_expired += finish is Finish.EXPIRED
    counters.requests_failed += finish is Finish.FAILED
    counters.requests_at_length += finish is Finish.LENGTH


def sums(one: list[int], other: list[int]) -> list[int]:
    """Add two lists of counts."""
    return [a + b for a, b in zip(one, other, strict=True)]


def _measures_drafting(part: Decoding, drafting: bool) -> bool:
    """True if its pass measures the gain of drafting, or of a rest from it."""
    return part.in_session or (part.sequence.submit.speculate and not drafting)
