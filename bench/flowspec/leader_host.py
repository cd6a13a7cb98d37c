"""A simulated pipelined target: the real leader over simulated stages, and its one request.

Sides differ in when growth comes and when results are handed over: `PlainLeader`,
`ContinuousLeader`, `RoundsLeader`.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bench.flowspec.draft_host import SESSION, DraftHost, allowed
from bench.flowspec.draft_tree import best_tree
from bench.flowspec.language import Language
from bench.flowspec.network import Link
from bench.flowspec.outcome import Outcome
from bench.flowspec.setting import Setting
from bench.flowspec.stages import SimulatedStages
from outrider.worker.kv.block_pool import BLOCK, BlockPool, blocks_for
from outrider.worker.link.wire import Commit
from outrider.worker.messages import Submit
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.records import Results, Segment
from outrider.worker.pipeline.segment_size import Pace, SegmentPlan
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.mirror import DRAFT

Root = PassRecord[PipelinedSequence]
DRAFT_LIMITS = 8, 96
"""Leaves that the draft expands in a pass, and nodes ahead: the defaults of a service."""
PROMPT = 8
"""Tokens of the prompt."""
TREE_BLOCKS = 4
GRANTED = 4096
REQUEST = 0
GROWTH_BYTES, COMMIT_BYTES = 40, 40
"""About what these messages take beside their nodes and tokens."""
NODE_BYTES = 12


def slots_for(language: Language) -> int:
    """Return the KV slots that a text and its trees take."""
    return BLOCK * (blocks_for(len(language.text)) + TREE_BLOCKS)


class PlainLeader:
    """One request without a draft."""

    def __init__(self, setting: Setting, language: Language, plan: SegmentPlan) -> None:
        self.setting = setting
        self.language = language
        slots = slots_for(language)
        pool = BlockPool(slots // BLOCK, slots, prefix_cache=False)
        self.stages = SimulatedStages(setting, language, slots, self._results_arrive)
        self.clock = self.stages.clock
        limits = LeaderLimits(1, TREE_BLOCKS, local_nodes=BLOCK * TREE_BLOCKS)
        self.leader = Leader(pool, plan, limits)
        self.pace = Pace(setting.times())
        self.text: list[int] = []
        self.commits = 0
        self.first: tuple[float, int, int] = (math.nan, 0, 0)
        """Time, tokens and bytes of the first commit."""
        self.last = math.nan
        prompt = language.text[:PROMPT]
        tokens = len(language.text) - PROMPT
        submit = Submit(REQUEST, prompt, SamplingParams(), tokens, (), True, 0.0)
        self.mirror = self.leader.submit(submit).mirror

    @property
    def finished(self) -> bool:
        return len(self.text) == len(self.language.text) - PROMPT

    def run(self) -> Outcome:
        """Answer the request."""
        self.begin()
        self.clock.run(lambda: self.finished)
        began, tokens, sent = self.first
        return Outcome(
            text=np.array(self.text, np.int32),
            tokens=len(self.text) - tokens,
            seconds=self.last - began,
            commits=self.commits,
            bytes=self.stages.sent_bytes - sent,
            spans=self.stages.spans,
            stages=self.setting.count,
            began=began,
            note=self.note,
        )

    @property
    def note(self) -> str:
        return ""

    def begin(self) -> None:
        """Start."""
        self.fill()

    def fill(self) -> None:
        """Send what is due, and may be sent."""
        while self.clock.now >= self.pace.due and self.leader.fill():
            segment = self.leader.outgoing[-1]
            assert isinstance(segment, Segment)
            self.pace.sent(self.clock.now, segment.count)
            self.clock.at(self.pace.due, self.fill)
        while self.leader.outgoing:
            self.stages.send(self.leader.outgoing.popleft())

    def _results_arrive(self, results: Any) -> None:
        self.clock.after(self.setting.host, lambda: self.receive(results))

    def receive(self, results: Results) -> None:
        """Take the results of a segment."""
        self.settle(results)
        self.fill()

    def settle(self, results: Results) -> None:
        """Commit what results decide."""
        for record in self.leader.receive(results):
            self.text += record.tokens.tolist()
            self.commits += 1
            self.last = self.clock.now
            if math.isnan(self.first[0]):
                self.first, self.commits = (
                    (self.clock.now, len(self.text), self.stages.sent_bytes),
                    0,
                )
            if record.finish is None:
                self.committed(record)

    def committed(self, record: Root) -> None:
        """Hear of a commit."""


class ContinuousLeader(PlainLeader):
    """One request whose draft grows its tree all the time."""

    def __init__(self, setting: Setting, language: Language, plan: SegmentPlan) -> None:
        super().__init__(setting, language, plan)
        self.mirror.attach()
        links = setting.links
        self._growth = Link(self.clock, links, self._receive_growth)
        self.draft = DraftHost(
            self.clock, language, DRAFT_LIMITS, setting.draft_pass, self._send_growth
        )
        self._commits = Link(self.clock, links, self.draft.commit)

    @property
    def note(self) -> str:
        plan = self.leader.plan
        return f"{plan.rows} rows, {plan.in_flight} under way"

    def begin(self) -> None:
        """Start, with the draft."""
        self.draft.open(self.language.text[:PROMPT])
        super().begin()

    def committed(self, record: Root) -> None:
        """Tell the draft."""
        position = record.sequence.position - len(record.tokens)
        commit = Commit(SESSION, position, record.tokens)
        self._commits.send(commit, COMMIT_BYTES + 4 * len(record.tokens))

    def _send_growth(self, growth: Growth) -> None:
        self._growth.send(growth, GROWTH_BYTES + NODE_BYTES * len(growth.tokens))

    def _receive_growth(self, growth: Growth) -> None:
        self.mirror.receive(growth, GRANTED, allowed(self.language))
        self.fill()


class RoundSizes(NamedTuple):
    """Sizes of rounds."""

    chunk: int
    """Rows of a segment."""
    nodes: int
    """Nodes of a tree."""
    depth: int
    """Levels of a tree."""


class RoundsLeader(PlainLeader):
    """One request in rounds (FlowSpec's Chunk-PP): a tree is drafted, travels in chunks, and is
    verified as a whole before the next one is drafted."""

    def __init__(self, setting: Setting, language: Language, sizes: RoundSizes) -> None:
        super().__init__(setting, language, SegmentPlan(sizes.chunk, 1 << 30, 64))
        self._nodes, self._depth = sizes.nodes, sizes.depth
        self._held: list[Results] = []
        self.rounds = 0

    @property
    def note(self) -> str:
        return f"{self._nodes} nodes, {self._depth} levels, chunks of {self.leader.plan.rows}"

    def run(self) -> Outcome:
        """Answer the request; a commit is a whole round."""
        return replace(super().run(), commits=self.rounds)

    def begin(self) -> None:
        """Draft a tree and send it."""
        self.rounds += 1
        root = self.language.keys[self.mirror.root_position]
        tree = best_tree(self.language, root, self._nodes, self._depth)
        self.clock.after(
            sum(self.setting.draft_pass(rows) for rows in tree.expanded),
            lambda: self._send_tree(tree.parents, tree.tokens, tree.logprobs),
        )

    def _send_tree(self, parents: Any, tokens: Any, logprobs: Any) -> None:
        self.mirror.add_local(parents, tokens, logprobs, DRAFT)
        self.fill()

    def receive(self, results: Results) -> None:
        """Hold results until all of the round are back."""
        self._held.append(results)
        if len(self._held) < self.leader.segments.busy:
            return
        held, self._held = self._held, []
        for one in held:
            self.settle(one)
        if not self.finished:
            self.begin()
