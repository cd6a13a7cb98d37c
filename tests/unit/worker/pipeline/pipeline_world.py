"""A leader and its stages, joined by queues that any schedule may delay; checked at every step."""

import random
from collections import Counter, deque
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.messages import Finish, Submit
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.records import Begin, End, Move, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.stage import Executor, Stage
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.pipeline.build import cancel, find
from tests.unit.worker.pipeline.path_draft import Path, PathDraft

GRANTED = 48
LOCAL_NODES = 5
"""So few that a lost draft takes rows with it that are on their way."""


class CheckedLayers(Executor, Protocol):
    """A stage's layers, whose KV can be compared with a fresh forward pass."""

    def held(self, slots: NDArray[np.bool_]) -> NDArray[Any]:
        """Return what slots hold, [numbers, slots]."""

    def fresh(self, path: Path) -> Any:
        """Return what a fresh forward pass of a path leaves at its last token, [numbers]."""


class CutModel(Protocol):
    """A model, cut into stages."""

    stages: int
    vocabulary: int

    def layers(self, stage: int, slots: int) -> CheckedLayers:
        """Return a stage, with a KV cache of so many slots."""

    def next_token(self, path: Path, prompt: int, sampling: SamplingParams) -> int:
        """Return what plain decoding samples after a path, whose first `prompt` tokens are one."""


class CheckedStage:
    """A stage, and what must be in its KV: a fresh forward pass of every row that lives there."""

    def __init__(
        self, stage: Stage, layers: CheckedLayers, paths: dict[int, Path], slots: int
    ) -> None:
        self.stage = stage
        self.layers = layers
        self.paths = paths
        """Of every row that was ever sent, by number."""
        self.computed: set[int] = set()
        self.expected = layers.held(np.ones(slots, np.bool_)).copy()
        self.users = np.zeros(slots, np.int32)
        """Sequences that use each slot; more than one for a common prefix."""
        self.held: dict[int, set[int]] = {}
        """By sequence: its slots."""

    def step(self) -> None:
        """Handle one record, and compare all KV with fresh forward passes."""
        record = self.stage.incoming[0] if self.stage.incoming else None
        self._expect(record)
        assert self.stage.step() == (record is not None)
        in_use = self.users > 0
        assert np.array_equal(self.layers.held(in_use), self.expected[:, in_use])

    def _expect(self, record: Any) -> None:
        match record:
            case Begin():
                self._expect_prefix(record)
            case Segment():
                self._expect_rows(record)
            case Move():
                self._expect_move(record)
            case End():
                self._free(self.held.pop(record.sequence))

    def _expect_prefix(self, begin: Begin) -> None:
        slots = (begin.prefix_blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1).tolist()
        self.held[begin.sequence] = set(slots)
        self.users[slots] += 1
        path = tuple(begin.tokens.tolist())
        for position, slot in enumerate(slots):
            self.expected[:, slot] = self.layers.fresh(path[: position + 1])

    def _expect_rows(self, segment: Segment) -> None:
        numbers = segment.rows.tolist()
        assert not self.computed & set(numbers), "a row is computed twice"
        self.computed |= set(numbers)
        rows = zip(numbers, segment.sequence.tolist(), segment.slots.tolist(), strict=True)
        for number, sequence, slot in rows:
            self._take(sequence, slot)
            self.expected[:, slot] = self.layers.fresh(self.paths[number])

    def _expect_move(self, move: Move) -> None:
        held = self.held[move.sequence]
        both = zip(move.sources.tolist(), move.destinations.tolist(), strict=True)
        for source, destination in both:
            if source in held:  # if not, it was dropped, for its sequence ends
                self._take(move.sequence, destination)
                self.expected[:, destination] = self.expected[:, source]
        dead = held & {*move.sources.tolist(), *move.freed.tolist()}
        held -= dead
        self._free(dead)

    def _take(self, sequence: int, slot: int) -> None:
        assert self.users[slot] == 0, f"slot {slot} is in use"
        self.users[slot] = 1
        self.held[sequence].add(slot)

    def _free(self, slots: set[int]) -> None:
        self.users[list(slots)] -= 1


class World:
    """Everything, with one method for each thing that may happen next."""

    def __init__(
        self,
        model: CutModel,
        plan: SegmentPlan,
        blocks: int = 12,
        running: int = 3,
        grammars: Grammars | None = None,
    ) -> None:
        self.model = model
        self.grammars = grammars
        self.blocks = blocks
        self.stage_count = model.stages
        limits = LeaderLimits(running, tree_blocks=1, local_nodes=LOCAL_NODES)
        self.leader = Leader(self._pool(), plan, limits)
        self.paths: dict[int, Path] = {}
        self.requests: dict[int, Submit] = {}
        self.texts: dict[int, list[int]] = {}
        self.finished: dict[int, Finish] = {}
        self.cancelled: set[int] = set()
        self.drafts: dict[int, PathDraft] = {}
        self.counts: Counter[str] = Counter()
        self._start_stages()

    def _pool(self) -> BlockPool:
        return BlockPool(self.blocks, longest=6 * BLOCK)

    def _start_stages(self) -> None:
        self.stages: list[CheckedStage] = []
        self.links: list[deque[Any]] = [deque() for _ in range(self.stage_count + 1)]
        slots = self.blocks * BLOCK
        for number in range(self.stage_count):
            layers = self.model.layers(number, slots)
            processors = LogitsProcessors(self.model.vocabulary, self.grammars)
            sampler = StageSampler(processors) if number == self.stage_count - 1 else None
            stage = Stage(layers, sampler)
            self.stages.append(CheckedStage(stage, layers, self.paths, slots))

    def submit(
        self,
        prompt: Path,
        max_tokens: int,
        sampling: SamplingParams,
        ends: Path = (),
        grammar: str = "",
    ) -> int:
        """A request comes."""
        request = len(self.requests)
        tokens = np.array(prompt, np.int32)
        submit = Submit(
            request, tokens, sampling, max_tokens, ends, True, float(request), grammar=grammar
        )
        self.requests[request], self.texts[request] = submit, []
        self.drafts[request] = PathDraft(prompt)
        self.leader.submit(submit)
        return request

    @property
    def open(self) -> list[int]:
        """Requests that go on."""
        return [r for r in self.requests if r not in self.finished and r not in self.cancelled]

    def cancel(self, request: int) -> None:
        """A client goes away."""
        cancel(self.leader, request)
        self.cancelled.add(request)

    def tokens(self, request: int) -> Path:
        """All committed tokens."""
        return (*self.requests[request].prompt.tolist(), *self.texts[request])

    def sequence(self, request: int) -> PipelinedSequence:
        """The leader's sequence of an open request."""
        return find(self.leader, request)

    def true_token(self, request: int, path: Path) -> int:
        """What the target would choose after a path."""
        submit = self.requests[request]
        return self.model.next_token(path, len(submit.prompt), submit.sampling)

    def grow(self, request: int, rng: random.Random, luck: float, most: int = 6) -> None:
        """The draft sends growth, each token right with probability `luck`."""

        def token(path: Path) -> int:
            good = rng.random() < luck
            return self.true_token(request, path) if good else rng.randrange(self.model.vocabulary)

        def pick(parents: int) -> int:
            return parents - 1 if rng.random() < 0.7 else rng.randrange(parents)

        self.drafts[request].grow(pick, token, most)

    def receive_growth(self, request: int) -> None:
        """The oldest growth arrives."""
        draft, mirror = self.drafts[request], self.sequence(request).mirror
        if draft.sent:
            before = mirror.root_position
            growth = draft.sent.popleft()
            self.counts["late growth"] += growth.root_position < before
            mirror.receive(growth, GRANTED, np.ones(self.model.vocabulary, np.bool_))

    def add_local(self, request: int, rng: random.Random) -> None:
        """The target guesses for itself, often what the draft has sent already."""
        mirror, path = self.sequence(request).mirror, self.tokens(request)
        right = self.true_token(request, path)
        following = self.true_token(request, (*path, right))
        count = len(mirror)
        parents = np.array([ROOT, count, rng.randint(ROOT, count - 1)], np.int32)
        tokens = [right, following, rng.randrange(self.model.vocabulary)]
        mirror.add_local(parents, np.array(tokens, np.int32), np.full(3, -0.5, np.float32))

    def hear(self, request: int) -> None:
        """The draft hears of all commits."""
        self.drafts[request].hear(self.tokens(request))

    def lose_draft(self, request: int) -> None:
        """The draft dies, and another one opens a session."""
        records = len(self.leader.outgoing)
        self.sequence(request).drop_session()
        self.counts["lost drafts with rows"] += len(self.leader.outgoing) > records
        self.sequence(request).mirror.attach()
        self.drafts[request] = PathDraft(self.tokens(request))

    def fill(self) -> bool:
        """The leader sends a segment, if it can."""
        filled = self.leader.fill()
        if filled:
            segment = self.leader.outgoing[-1]
            assert isinstance(segment, Segment)
            self._note_paths(segment)
            self.counts["shared segments"] += len(set(segment.sequence.tolist())) > 1
        return filled

    def _note_paths(self, segment: Segment) -> None:
        """Note the paths of the rows that leave, from the leader's books."""
        by_number = {s.kv.number: s for s in self.leader.running}
        columns = (segment.rows, segment.sequence, segment.positions, segment.tokens)
        nodes = {}
        for sequence in self.leader.running:
            for node, row in enumerate(sequence.kv.rows):
                if row is not None:
                    nodes[row.number] = node
        for number, owner, position, token in zip(*(c.tolist() for c in columns), strict=True):
            assert number not in self.paths, "a row number is used twice"
            sequence = by_number[owner]
            path = tuple(sequence.committed().tolist())
            if number in nodes:
                path += node_path(sequence, nodes[number])
            assert path[position] == token
            self.paths[number] = path[: position + 1]

    def leader_sends(self) -> None:
        """The first link takes a record."""
        if self.leader.outgoing:
            self.links[0].append(self.leader.outgoing.popleft())

    def deliver(self, link: int) -> None:
        """The oldest record on a link arrives."""
        if not self.links[link]:
            return
        record = self.links[link].popleft()
        if link < self.stage_count:
            self._receive(self.stages[link].stage, record)
        else:
            self._receive_results(record)

    def _receive(self, stage: Stage, record: Any) -> None:
        def rows() -> int:
            queued = (*stage.incoming, *stage.outgoing)
            return sum(one.count for one in queued if isinstance(one, Segment))

        before = rows() + (record.count if isinstance(record, Segment) else 0)
        stage.receive(record)
        self.counts["dropped rows"] += before - rows()

    def step(self, stage: int) -> None:
        """A stage handles a record."""
        self.stages[stage].step()

    def send(self, stage: int) -> None:
        """A stage's link takes what it has made."""
        outgoing = self.stages[stage].stage.outgoing
        if outgoing:
            self.links[stage + 1].append(outgoing.popleft())

    def _receive_results(self, results: Any) -> None:
        for committed in self.leader.receive(results):
            self._commit(committed)
        self.check_books()

    def _commit(self, committed: PassRecord[PipelinedSequence]) -> None:
        """Compare what is committed with plain decoding."""
        request = committed.sequence.submit.request
        assert request in self.open
        for token in committed.tokens.tolist():
            assert token == self.true_token(request, self.tokens(request))
            self.texts[request].append(token)
        self.counts["tokens"] += len(committed.tokens)
        self.counts["accepted"] += len(committed.tokens) - (not committed.survived)
        if committed.finish is not None:
            self.finished[request] = committed.finish
            self.counts["end within a path"] += len(committed.tokens) > 1
            self._check_finish(request, committed.finish)
        elif committed.survived:
            self.counts["fall-in"] += 1
            self.counts["pipeline stays full"] += self.sequence(request).kv.root is not None
        else:
            self.counts["fall-out"] += 1

    def _check_finish(self, request: int, finish: Finish) -> None:
        text, submit = self.texts[request], self.requests[request]
        if finish is Finish.GRAMMAR_FAILED:
            assert submit.grammar
            return
        assert not set(text[:-1]) & set(submit.end_ids)
        if text[-1] in submit.end_ids:
            assert finish is Finish.STOP
        else:
            assert finish is Finish.LENGTH
            assert len(text) == submit.max_tokens

    def restart(self) -> None:
        """The stages die with all that was under way, and others take their place."""
        given_up = self.leader.restart(self._pool())
        self.counts["given up"] += len(given_up)
        self.cancelled.update(sequence.submit.request for sequence in given_up)
        self._start_stages()

    def check_books(self) -> None:
        """Check the leader's accounts."""
        leader = self.leader
        suspects = [s for s in leader.running if s.suspected]
        assert not suspects or len(leader.running) == 1, "a suspect runs beside others"
        tables = [s.kv.block_table for s in leader.running]
        tables += [s.kv.slots.block_table for s in leader.running]
        blocks = {block for table in tables for block in table.table.tolist()}
        assert leader.pool.used == len(blocks)
        for sequence in leader.running:
            rows = [row for row in sequence.kv.rows if row is not None]
            slots = {row.slot for row in rows}
            assert len(slots) == len(rows)
            assert sequence.kv.slots.free == BLOCK - len(rows)
            mirror = sequence.mirror
            assert len(sequence.kv.rows) <= len(mirror)
            assert sequence.kv.sent <= sequence.length

    def run(self, most: int = 100_000) -> None:
        """Let everything arrive, with no further growth, until all requests are answered."""
        for _ in range(most):
            if not self.open and self.quiet:
                return
            while self.fill():
                pass
            while self.leader.outgoing:
                self.leader_sends()
            for at in range(self.stage_count):
                self.deliver(at)
                self.step(at)
                self.send(at)
            self.deliver(self.stage_count)
        raise AssertionError("the pipeline is stuck")

    @property
    def quiet(self) -> bool:
        """True if nothing is on its way."""
        queues = [self.leader.outgoing, *self.links]
        for one in self.stages:
            queues += [one.stage.incoming, one.stage.outgoing]
        return not any(queues)

    def finish(self) -> None:
        """Answer all; nothing is left behind."""
        self.run()
        assert self.leader.pool.used == 0
        assert self.leader.segments.busy == 0
        assert all(not one.held and not one.stage.sequences for one in self.stages)


def node_path(sequence: PipelinedSequence, node: int) -> Path:
    """Tokens from the root to a node."""
    path: Path = ()
    while node != ROOT:
        path = (int(sequence.mirror.token[node]), *path)
        node = int(sequence.mirror.parent[node])
    return path
