"""Runs: steps of one sequence, with its colocated draft if it has one, in compiled code.

Leaves the passes to `loop`, and what follows from each root to the schedulers of both roles, which
apply it as a step. What a run decides by, growths that are waited for, costs and the rate, is taken
for known while it goes on; it is learnt when the run has ended.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from outrider.contract.settings import MAX_DEPTH, MAX_NODE_ROWS
from outrider.contract.state import TimelineSpan
from outrider.worker.compiled_loop.loop import MOST_ROOTS, Reason, RootTerms
from outrider.worker.draft.scheduler import SHORT_PREFILL, DraftScheduler
from outrider.worker.draft.session import MAX_NEW_NODES, DraftSession, DraftTerms
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.draft.spans import LANE as DRAFT_LANE
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.speculation.planner import choice_of
from outrider.worker.speculation.wait import MOST_GROWTHS
from outrider.worker.target.batch import TargetPart
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import FULL_SHARE, NO_NODES
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.spans import LANE as TARGET_LANE
from outrider.worker.target.stats import StepRecord

MOST_MOVES = 4 * (MAX_NODES + MAX_NODE_ROWS)
"""Most moves of KV before one pass."""
MOST_NEW_NODES = MOST_GROWTHS * MAX_NEW_NODES
"""Nodes by which the draft's tree may grow at one root."""


class DraftPass(NamedTuple):
    """One pass of the draft at a root."""

    began: float
    ended: float
    rows: int
    prefill: int
    """Rows of committed tokens."""
    sent: bool
    """True if the tree grew by it."""

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Root:
    """One root of a run."""

    grown: int
    """Growths that its tree had as it began."""
    first: float
    """Time at which it began."""
    draft_passes: list[DraftPass]
    began: float
    """Time at which the target's pass began."""
    ended: float
    followed: bool
    """True where the new root was in the draft's tree."""
    candidates: int
    """Nodes that the pass's rows were selected from."""
    done: PassRecord[Sequence]


@dataclass(frozen=True, slots=True)
class RootOutput:
    """What a run did."""

    roots: list[Root]
    grown: int
    """Growths that the tree of the next root has."""
    reason: Reason
    """For which it returned."""

    @property
    def seconds(self) -> float:
        """From the beginning of the first root to the end of the last pass."""
        return self.roots[-1].ended - self.roots[0].first

    @property
    def pass_seconds(self) -> float:
        """Seconds of the passes of both roles, without what lies between them."""
        drafting = sum([one.seconds for root in self.roots for one in root.draft_passes])
        return drafting + sum([root.ended - root.began for root in self.roots])

    def spans(self) -> Iterable[TimelineSpan]:
        """Return a span for each pass of both roles."""
        for root in self.roots:
            for one in root.draft_passes:
                times = one.began, one.began, one.ended
                yield TimelineSpan(DRAFT_LANE, 0, *times, one.rows, prompt_rows=one.prefill)
            rows, committed = 1 + root.done.nodes, 1 + root.done.accepted
            times = root.began, root.began, root.ended
            yield TimelineSpan(TARGET_LANE, 0, *times, rows, 0, committed, rows - committed)


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """The draft's part of a run."""

    session: DraftSession
    terms: DraftTerms
    price: float
    """Tokens that a growth has to be worth, for the time that it takes."""

    @property
    def full(self) -> int:
        """Nodes from which on the draft's tree is not waited for."""
        return math.ceil(FULL_SHARE * self.terms.nodes_ahead)


@dataclass(frozen=True, slots=True)
class RootRun:
    """A step of one sequence, and of its draft."""

    part: TargetPart
    """The row of the first root."""
    terms: RootTerms
    started: float
    """Time at which it was planned."""
    drafting: GrowthPlan | None
    """None: no draft grows for the sequence."""

    @property
    def parts(self) -> tuple[TargetPart]:
        """The sequence's, as of a batch."""
        return (self.part,)


class RootPlanner:
    """Plans runs of roots, and applies what they did."""

    def __init__(
        self, target: TargetScheduler, draft: DraftScheduler | None = None, link: int = 0
    ) -> None:
        """`draft`: in the same process; `link`: the number of the link to it."""
        self._target = target
        self._draft = draft
        self._link = link
        self.most = MOST_ROOTS
        """Most roots of a run; 0: every pass is a step."""

    def plan(self, sequence: Sequence, now: float) -> RootRun | None:
        """Return a run of a sequence that is alone; None if its next pass has to be a step.

        Its draft, if it has one, grows for it where that pays.
        """
        target, selector = self._target, self._target.row_selector
        if self.most == 0 or not needs_tokens_alone(sequence) or self._many_moves:
            return None
        own = None
        if sequence.session is not None or self._drafts_for(sequence):
            own = self._level(sequence)
            steps = not selector.is_level or selector.may_try(now)
            if own is None or steps or not selector.wants_drafts(sequence.submit):
                return None
        if not target.admission.make_room(sequence):
            return None
        block_tokens = tokens_until_block(sequence, selector.policy.max_rows)
        if sequence.length >= block_tokens:
            return None
        limits, drafting = selector.search_terms(sequence), None
        if own is not None and self._draft is not None:
            if not self._draft.sessions.make_room(own, MOST_NEW_NODES):
                return None
            price = limits.rate * selector.account.growth_seconds(first=False)
            drafting = GrowthPlan(own, self._draft.terms(own), price)
        terms = RootTerms(
            search=limits,
            most_tokens=sequence.most_tokens,
            block_tokens=block_tokens,
            sent_at=sequence.sent_at,
            stream_seconds=sequence.submit.stream_seconds,
            roots=self.most,
            local=bool(selector.local_sources(sequence.submit) & sequence.sources),
            grown=sequence.growths,
        )
        return RootRun(TargetPart.verify(sequence, NO_NODES), terms, now, drafting)

    @property
    def _many_moves(self) -> bool:
        """True if a run might have no room for its moves of KV."""
        caches = [one.kv_cache for one in (self._target, self._draft) if one is not None]
        return max([cache.waiting_moves for cache in caches]) > MOST_MOVES // 2

    def _drafts_for(self, sequence: Sequence) -> bool:
        """True if a draft may open a session for a sequence that has none."""
        peers = self._target.sessions.peers
        return bool(peers) and self._target.row_selector.wants_drafts(sequence.submit)

    def _level(self, sequence: Sequence) -> DraftSession | None:
        """Return the draft's session of a sequence, if both are at one root, and all that the two
        need is in compiled code."""
        session = sequence.session
        if self._draft is None or session is None or session.level_at is not None:
            return None
        own = self._draft.sessions.live.get((self._link, session.number))
        if own is None or own.returns or own.has_long_link or own.rules.adjuster is not None:
            return None
        level = own.tree.target_position == sequence.position and own.limits.nodes_ahead > 0
        level = level and own.uncomputed_tokens <= SHORT_PREFILL
        fits = own.length + (MAX_DEPTH + 1) * own.tree.longest < self._draft.sessions.context
        return own if level and fits else None

    def settle(self, run: RootRun, output: RootOutput) -> None:
        """Apply each root of a run as a step."""
        sequence = run.part.sequence
        own = None if run.drafting is None else run.drafting.session
        selector = self._target.row_selector
        goes_on = True
        for number, root in enumerate(output.roots):
            if own and number and root.grown:
                self._grew(sequence, own, root.first)
            self._apply(sequence, own, root, goes_on)
            goes_on = goes_on and (own is None or selector.wants_any_drafts)
        last = output.roots[-1]  # its arrays are those of the sequence now
        if len(last.done.tokens):
            self._target.committer.show_tree(sequence, last.done.nodes, last.done.accepted)
        if own and self._draft:
            if sequence.session is not None and output.grown:
                self._grew(sequence, own, last.ended)
            self._draft.sessions.publish(own)
        self._target.host_seconds += output.seconds - output.pass_seconds

    def _apply(
        self, sequence: Sequence, own: DraftSession | None, root: Root, goes_on: bool
    ) -> None:
        """Apply the passes of both roles at a root.

        `goes_on`: drafting is as when the run began.
        """
        target, done = self._target, root.done
        selector, useful = target.row_selector, target.row_selector.speculates(sequence)
        costs = selector.price(1, 0, sequence.length)

        for one in root.draft_passes:
            assert own is not None
            self._drafted(sequence, own, one)
        if own and self._draft:
            self._draft.sessions.advance(own, len(done.tokens), root.followed, root.ended)
        selector.planned_choice = choice_of(root.candidates if useful else 0, done.nodes)
        expected = costs.scaled.item(done.nodes)
        step = StepRecord((done,), 1 + done.nodes, 0, expected, costs.plain, root.began)
        target.apply(step, (done,), root.ended, goes_on)

    def _drafted(self, sequence: Sequence, own: DraftSession, one: DraftPass) -> None:
        """Count a pass of the draft, and what it grew."""
        assert self._draft is not None
        self._draft.count_pass(one.rows, one.prefill, one.seconds)
        own.count_pass(one.rows)
        self._target.stats.counters.drafting_seconds += one.seconds
        self._target.row_selector.waited_seconds += one.seconds
        if one.sent:
            self._grew(sequence, own, one.ended)

    def _grew(self, sequence: Sequence, own: DraftSession, now: float) -> None:
        own.growths += 1
        self._target.sessions.grew(sequence, sequence.position, now)


def tokens_until_block(sequence: Sequence, max_rows: int) -> int:
    """Return the committed tokens at which a sequence's block table wants something: a block more
    for a pass of so many node rows, or to publish one."""
    kv = sequence.kv
    tokens = kv.room - max_rows
    return min(tokens, (kv.published + 1) * BLOCK + 1) if kv.findable else tokens


def needs_tokens_alone(sequence: Sequence) -> bool:
    """True if the sequence's passes need nothing but its tokens, whatever nodes its tree has."""
    return (
        sequence.generated > 0
        and not sequence.needs_prefill
        and sequence.logits_processor is None
        and sequence.submit.logprobs is None
    )
