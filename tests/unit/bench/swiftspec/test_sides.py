"""Drafts and targets of `bench.swiftspec` write plain decoding's text, each in its own way."""

from typing import Any

import numpy as np
import pytest

from bench.swiftspec.answer import LOCK_STEP, PARALLEL
from bench.swiftspec.draft_sides import MirroredDraft, RecomputingDraft
from bench.swiftspec.lock_step_draft import SUBTREE, LockStepDraft, Replies, subtree
from bench.swiftspec.target_sides import LockStepTarget, MirroredTarget, TargetSides, Use
from outrider.contract.settings import PolicySettings
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.link.wire import Commit, Grow
from outrider.worker.messages import FromPeer, LinkDown, LinkUp
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.draft import DraftTree
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.pair import DRAFT_SECONDS, PASS_SECONDS, Pair

PROMPT = [5, 3, 8, 1, 9]
COUNT = 150
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=3),
    SamplingParams(frequency_penalty=0.3, repetition_penalty=1.1),
)


class SwiftPair(Pair):
    """A pair whose sides are those of a benchmark, told everything as engines are."""

    def __post_init__(self) -> None:
        self.commits = self.growths = 0
        super().__post_init__()
        inner = self.target
        self.target_side = self.make_target()
        assert self.target_side.inner is inner

    def make_target(self) -> MirroredTarget:
        return MirroredTarget(lambda: self.target)

    def make_draft(self) -> MirroredDraft:
        return MirroredDraft(self.draft)

    def connect(self) -> None:
        super().connect()
        self.draft_side = self.make_draft()

    def deliver(self) -> None:
        while self.to_draft and self.to_draft[0][0] + self.lag <= self.step:
            message = self.to_draft.popleft()[1]
            self.commits += isinstance(message, Commit)
            self.draft_side.receive(FromPeer(self.link, [message], self.now), self.now)
            self.lose_kv(message)
        while self.to_target and self.to_target[0][0] + self.lag <= self.step:
            message = self.to_target.popleft()[1]
            self.growths += isinstance(message, Grow)
            self.target_side.receive(FromPeer(self.link, [message], self.now), self.now)

    def lose_kv(self, message: Any) -> None:
        """Do nothing: a commit moves KV."""

    def passes_with(self, commits: int) -> None:
        """Note a pass, after so many commits were sent."""

    def turn(self, seconds: float = PASS_SECONDS, draft_seconds: float = DRAFT_SECONDS) -> None:
        self.step += 1
        self.deliver()
        for _ in range(self.draft_passes):
            if (drafting := self.draft_side.next(self.now)) is None:
                break
            assert drafting.rows.count > 0
            self.now += draft_seconds
            self.draft_side.settle(drafting, self.draft_runner.run(drafting), self.now)
        self.deliver()
        step = self.target_side.next(self.now)
        self.now += seconds
        if step is not None:
            on_link = sum(isinstance(message, Commit) for _, message in self.to_draft)
            self.passes_with(self.commits + on_link)
            self.target_side.settle(step, self.target_runner.run(step), self.now)


class RecomputingPair(SwiftPair):
    """A commit wipes all KV of the draft behind the old root: what is read must be computed."""

    draft_side: RecomputingDraft

    def make_draft(self) -> MirroredDraft:
        return RecomputingDraft(self.draft)

    def lose_kv(self, message: Any) -> None:
        session = self.draft.sessions.live.get((self.link, 1))
        if isinstance(message, Commit) and session is not None:
            block_table = session.block_table
            first = max(message.position + 1, block_table.published * 64)
            offsets = np.arange(first, block_table.room, dtype=np.int32)
            self.draft_kv_cache.tokens[block_table.slots(offsets)] = -1


NEVER_OFF = PolicySettings(version=1, off_below_percent=0)
"""A draft that is waited for may cost more than it brings."""


class LockStepPair(SwiftPair):
    """Each commit is answered by one subtree, which the target waits for."""

    def make_target(self) -> MirroredTarget:
        return LockStepTarget(lambda: self.target)

    def send_buffer(self) -> SendBuffer:
        self.replies = Replies(
            lambda link, sent: self.to_target.extend((self.step, m) for m in sent)
        )
        return self.replies

    def make_draft(self) -> MirroredDraft:
        return LockStepDraft(self.draft, self.replies)

    def passes_with(self, commits: int) -> None:
        if self.target.sessions.peers:
            assert self.growths == commits, "every commit was answered, once"


@pytest.mark.parametrize(
    ("kind", "sampling", "lag"),
    [
        (kind, sampling, (0, 1, 4)[(row + column) % 3])
        for row, kind in enumerate((SwiftPair, RecomputingPair, LockStepPair))
        for column, sampling in enumerate(SAMPLINGS)
    ],
)
def test_every_side_writes_plain_decodings_text(
    kind: type[SwiftPair], sampling: SamplingParams, lag: int
) -> None:
    pair = kind(sampling=sampling, lag=lag, noise=0.3)
    pair.target.row_selector.set_policy(NEVER_OFF, pair.now)
    pair.submit(PROMPT, COUNT)
    end = pair.run(most=5000)
    assert pair.text() == pair.expected(PROMPT, COUNT)
    assert end.usage.accepted_rows > 0
    assert end.usage.completion_tokens / end.usage.passes > 1.1
    counts = pair.target_side.counts
    assert counts.commits == end.usage.passes
    assert counts.fall_ins < counts.commits
    assert counts.fall_ins > 0 or lag > 0  # growth of a long link comes after its root has moved
    assert 0 < pair.draft_side.fall_ins <= pair.draft_side.commits == pair.commits


def test_only_lock_step_waits_for_the_link_in_every_pass() -> None:
    steps = {}
    for kind in (SwiftPair, LockStepPair):
        for lag in (0, 4):
            pair = kind(lag=lag, noise=0.3)
            pair.target.row_selector.set_policy(NEVER_OFF, pair.now)
            pair.submit(PROMPT, COUNT)
            steps[kind, lag] = pair.run(most=5000).usage.passes, pair.step
    (near_passes, near), (passes, far) = steps[LockStepPair, 0], steps[LockStepPair, 4]
    assert far >= 2 * 4 * (passes - 1)
    assert near - near_passes < near_passes
    assert steps[SwiftPair, 4][1] < far / 2


def test_in_lock_step_a_draft_that_has_gone_is_not_waited_for() -> None:
    pair = LockStepPair(lag=1)
    pair.submit(PROMPT, COUNT)
    for _ in range(12):
        pair.turn()
    assert pair.finished() is None
    pair.target_side.receive(LinkDown(pair.link), pair.now)
    pair.to_draft.clear()
    pair.to_target.clear()
    pair.run()
    assert pair.text() == pair.expected(PROMPT, COUNT)


def test_without_reuse_a_draft_computes_what_it_had() -> None:
    recomputing, mirrored = RecomputingPair(noise=0.3), SwiftPair(noise=0.3)
    for pair in (recomputing, mirrored):
        pair.submit(PROMPT, COUNT)
        pair.run()
    assert recomputing.draft_side.recomputed > COUNT / 2
    assert mirrored.draft_side.recomputed == 0


def test_each_side_of_one_target_has_its_own_link_and_requests() -> None:
    pairs: list[Pair] = []

    def make() -> Any:
        pairs.append(Pair())
        pairs[-1].target.sessions.link_down(1)
        return pairs[-1].target

    sides, everything = TargetSides(make), np.ones(VOCABULARY, np.bool_)
    peers = {}
    for link, name in enumerate(PARALLEL, start=5):
        sides.receive(Use(name), 0.0)
        sides.receive(LinkUp(link, everything), 0.0)
        peers[name] = sides.present.inner.sessions.peers
    assert [list(one) for one in peers.values()] == [[5], [6], [7]]
    sides.receive(Use(LOCK_STEP), 0.0)
    assert isinstance(sides.present, LockStepTarget)
    late = FromPeer(7, [], 0.0)
    assert sides.receive_during_pass([FromPeer(6, [], 0.0), late], 0.0) == (late,)
    sides.receive(LinkDown(7), 0.0)
    assert [list(one) for one in peers.values()] == [[5], [6], []]


def test_a_subtree_is_the_likeliest_nodes_and_hangs_together() -> None:
    tree = DraftTree(4)
    tree.mark_prefilled(4)
    root = np.array([-1], np.int32)
    offered = np.array([[10, 11, 12]], np.int32), np.array([[-0.1, -1.5, -3.0]], np.float32)
    tree.offer(root, np.array([3], np.int32), *offered)
    tree.send(3, 3, 8)
    first = np.array([0], np.int32)
    below = np.array([[20, 21]], np.int32), np.array([[-0.2, -2.0]], np.float32)
    tree.offer(first, np.array([4], np.int32), *below)
    tree.send(5, 5, 8)
    growth = subtree(tree, 3, first_id=41)
    assert (growth.root_position, growth.first_id) == (3, 41)
    assert growth.tokens.tolist() == [10, 11, 20]
    assert growth.parents.tolist() == [0, 0, 41]
    whole = subtree(tree, SUBTREE, first_id=44)
    assert len(whole.tokens) == 5
    assert all(parent < 44 + at for at, parent in enumerate(whole.parents.tolist()))


@pytest.mark.parametrize("prompt", [62, 63, 64])
def test_a_block_that_was_just_published_is_not_computed_again(prompt: int) -> None:
    pair = RecomputingPair(noise=0.0, draft_passes=2)
    tokens = [5 + at % 7 for at in range(prompt)]
    pair.submit(tokens, 80)
    pair.run()
    assert pair.text() == pair.expected(tokens, 80)
