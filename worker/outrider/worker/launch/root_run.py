"""Runs of roots: steps in which one sequence and its serial draft go on in compiled code.

Leaves the passes to `root_loop`, and what follows from each root to the schedulers of both roles,
which book it as the steps that it stands for. What a run decides by, growths that are waited for,
costs and the rate, is taken for known while it goes on; it is learnt when the run is booked.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from outrider.contract.settings import MAX_DEPTH, MAX_NODE_ROWS
from outrider.contract.state import TimelineSpan
from outrider.worker.draft.scheduler import SHORT_PREFILL, DraftScheduler
from outrider.worker.draft.session import MAX_NEW_NODES, DraftSession
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.draft.spans import LANE as DRAFT_LANE
from outrider.worker.launch.root_loop import (
    MOST_GROWTHS,
    MOST_ROOTS,
    RootTerms,
)
from outrider.worker.target.batch import TargetBatch, TargetPart
from outrider.worker.target.commit import Booked
from outrider.worker.target.pass_loop import Reason
from outrider.worker.target.pass_run import needs_tokens_alone, tokens_until_block
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import FULL_SHARE, NO_NODES
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.spans import LANE as TARGET_LANE
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.growth import Ints

FEWEST_ROOTS = 2
"""Of a run: one alone is a step."""
MOST_MOVES = 4 * (MAX_NODES + MAX_NODE_ROWS)
"""Of KV, before one pass."""


class Weighing(NamedTuple):
    """One look at a tree during a run."""

    value: float
    """Of a step with the tree as it is then, in tokens."""
    now: float


class DraftPass(NamedTuple):
    """One pass of the draft at a root."""

    began: float
    rows: int
    prefill: int
    """Of them, those of committed tokens."""
    sent: bool
    """True if the tree grew by it."""
    after: Weighing
    """When it had ended."""

    @property
    def seconds(self) -> float:
        """It took."""
        return self.after.now - self.began


@dataclass(frozen=True, slots=True)
class Root:
    """One root of a run."""

    grown: int
    """Growths that its tree had as it began."""
    first: Weighing
    supplied: bool
    """As of `Answer`."""
    draft_passes: list[DraftPass]
    began: float
    """Of the target's pass."""
    ended: float
    live: int
    """Nodes of the mirror as rows were selected."""
    selected: Ints
    """int32[rows] nodes."""
    first_token: int
    """As of `TargetPart`."""
    sources: tuple[list[int], list[int]]
    """Node rows, and those accepted, by what proposed them."""
    done: Booked
    followed: bool
    """True where the new root was in the draft's tree."""

    @property
    def last(self) -> Weighing:
        """The tree whose nodes ran."""
        return self.draft_passes[-1].after if self.draft_passes else self.first


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
        return self.roots[-1].ended - self.roots[0].first.now

    @property
    def pass_seconds(self) -> float:
        """Of the passes of both roles, without what lies between them."""
        drafting = sum([one.seconds for root in self.roots for one in root.draft_passes])
        return drafting + sum([root.ended - root.began for root in self.roots])


@dataclass(frozen=True, slots=True)
class RootRun:
    """A step of one sequence and its draft."""

    part: TargetPart
    """Its first root's row."""
    own: DraftSession
    """The draft's."""
    terms: RootTerms
    started: float
    """When it was planned."""

    @property
    def parts(self) -> tuple[TargetPart]:
        """The sequence's, as of a batch."""
        return (self.part,)


class RootPlanner:
    """Plans runs of roots, and books what they did."""

    def __init__(self, target: TargetScheduler, draft: DraftScheduler, link: int) -> None:
        """`link`: the number of the link between both."""
        self._target = target
        self._draft = draft
        self._link = link

    def plan(self, sequence: Sequence, now: float) -> RootRun | None:
        """Return a run of a sequence that is alone, with a draft that grows for it and is waited
        for as long as usual; None if it may have none."""
        admission, selector = self._target.admission, self._target.row_selector
        caches = self._target.kv_cache, self._draft.kv_cache
        if max([cache.waiting_moves for cache in caches]) > MOST_MOVES // 2:
            return None
        own = self._level_session(sequence)
        if own is None or not selector.drafts_as_usual(sequence):
            return None
        policy = selector.wait_policy.of(1, now)
        fresh, supplied = policy.usual
        if policy.roots_as_usual < FEWEST_ROOTS or not 0 < fresh <= MOST_GROWTHS >= supplied:
            return None
        if not admission.make_room(sequence):
            return None
        block_tokens = tokens_until_block(sequence, selector.policy.max_rows)
        new_nodes = max(fresh, supplied) * MAX_NEW_NODES
        if sequence.length >= block_tokens or not self._draft.sessions.make_room(own, new_nodes):
            return None
        terms = RootTerms(
            hunt=selector.terms(sequence),
            draft=self._draft.terms(own),
            most_tokens=sequence.most_tokens,
            block_tokens=block_tokens,
            sent_at=sequence.sent_at,
            stream_seconds=sequence.submit.stream_seconds,
            roots=min(MOST_ROOTS, policy.roots_as_usual),
            fresh_growths=fresh,
            supplied_growths=supplied,
            new_nodes=new_nodes,
            full=math.ceil(FULL_SHARE * own.limits.nodes_ahead),
            local=bool(selector.local.on & sequence.sources),
            judged=not (sequence.needs_search or sequence.unjudged),
            supplied=sequence.supplied,
            grown=sequence.growths,
        )
        return RootRun(TargetPart.verify(sequence, NO_NODES), own, terms, now)

    def _level_session(self, sequence: Sequence) -> DraftSession | None:
        """Return the draft's session of a sequence, if both are at one root, and all that the two
        need is in compiled code."""
        session = sequence.session
        if session is None or session.level_at is not None or not needs_tokens_alone(sequence):
            return None
        own = self._draft.sessions.live.get((self._link, session.number))
        if own is None or own.returns or own.has_long_link or own.rules.adjuster is not None:
            return None
        level = own.tree.root_position == sequence.position and own.limits.nodes_ahead > 0
        level = level and own.uncomputed_tokens <= SHORT_PREFILL
        fits = own.length + MAX_DEPTH + 1 < self._draft.sessions.context
        return own if level and fits else None

    def book(self, run: RootRun, output: RootOutput) -> None:
        """Apply each root of a run as the steps that it stands for."""
        sequence, own = run.part.sequence, run.own
        selector = self._target.row_selector
        drafting = True
        for number, root in enumerate(output.roots):
            if number and root.grown:
                self._grew(sequence, own, root.first.now)
            self._book_waits(sequence, own, root, selector.speculates(sequence))
            self._book_pass(sequence, own, root, drafting)
            drafting = drafting and selector.wants_any_drafts
        last = output.roots[-1]  # its arrays are those of the sequence now
        if len(last.done.tokens):
            self._target.committer.show_tree(sequence, len(last.selected), last.done.accepted)
        if sequence.session is not None and output.grown:
            self._grew(sequence, own, output.roots[-1].ended)
        self._draft.sessions.publish(own)
        self._target.host_seconds += output.seconds - output.pass_seconds

    def _book_waits(self, sequence: Sequence, own: DraftSession, root: Root, useful: bool) -> None:
        """Learn what the draft's passes took and brought; `useful`: its nodes may run."""
        selector, counters = self._target.row_selector, self._target.stats.counters
        if useful:
            sequence.supplied = root.supplied
            selector.weigh_again(sequence, *root.first)
        for one in root.draft_passes:
            self._draft.book(own, one.rows, one.prefill, one.seconds)
            counters.drafting_seconds += one.seconds
            if one.sent:
                self._grew(sequence, own, one.after.now)
            if useful and selector.wait_policy.ongoing is not None:
                selector.weigh_again(sequence, *one.after)

    def _grew(self, sequence: Sequence, own: DraftSession, now: float) -> None:
        own.growths += 1
        self._target.sessions.book_growth(sequence, now)

    def _book_pass(self, sequence: Sequence, own: DraftSession, root: Root, drafting: bool) -> None:
        """Commit what the target's pass wrote; `drafting` went on as it began."""
        target, done, now = self._target, root.done, root.ended
        nodes = root.selected
        selection = target.row_selector.select_again(sequence, nodes, root.last.value, root.began)
        rows = sequence.views.rows(1 + len(nodes), sequence.kv.table)
        part = TargetPart(sequence, rows, nodes, root.live, root.first_token, in_session=True)
        step = TargetBatch.of([part], [], selection, root.began)
        sequence.views.recall_sources(*root.sources)
        self._draft.sessions.book_commit(own, len(done.tokens), root.followed, now)
        tokens = target.committer.book(part, done, step.plain.step, root.began, now)
        target.committer.stream(now)
        target.stats.count_step(step, tokens, now, learns=drafting)


class RootRunner(Protocol):
    """Runs roots, as `root_runner`."""

    def run(self, step: RootRun, rows: DraftRows) -> RootOutput:
        """Run one step; `rows`: room for the draft's."""


def root_spans(output: RootOutput) -> Iterable[TimelineSpan]:
    """Return a span for each pass of both roles."""
    for root in output.roots:
        for one in root.draft_passes:
            times = one.began, one.began, one.after.now
            yield TimelineSpan(DRAFT_LANE, 0, *times, one.rows, prompt_rows=one.prefill)
        rows, committed = 1 + len(root.selected), 1 + root.done.accepted
        times = root.began, root.began, root.ended
        yield TimelineSpan(TARGET_LANE, 0, *times, rows, 0, committed, rows - committed)
