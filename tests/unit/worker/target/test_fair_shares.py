"""Fair shares of many requests: rows of a pass, memory, the draft, the grammar compiler."""

import dataclasses
import time

import numpy as np
from llguidance import LLMatcher

from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.link.wire import Commit, Limits, Open
from outrider.worker.messages import SetPolicy
from outrider.worker.sampling.grammar import REMEMBERED, Grammars
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.fakes import VOCABULARY, HashModel, TokenPool
from tests.unit.worker.pair import Pair
from tests.unit.worker.sampling.test_grammar import tokenizer

LINK = 1
COMPILE_SECONDS = 60.0
"""Seconds for all grammars, on the busiest machine; 0.1 to 0.3 on one that has nothing else to
do."""


def test_no_pass_has_more_rows_than_it_can_hold() -> None:
    pair = Pair(noise=0.0, running=4, spare_blocks=32, row_capacity=24)
    for number in range(1, 4):
        pair.submit([number] * 40, 200, number)
    most = 0
    for turn in range(16):
        if turn >= 8:
            pair.submit([turn] * (9 if turn < 12 else 16), 1, turn)
        pair.turn()
        most = max(most, sum(part.rows.count for part in pair.parts))
    assert most == 24


def test_a_prompt_that_is_there_already_needs_no_memory_of_its_own() -> None:
    shared = [t % VOCABULARY for t in range(6 * BLOCK)]
    pair = Pair(running=2, spare_blocks=2, draft_passes=0)
    pair.submit([*shared, 1], 40, 1)
    for _ in range(10):
        pair.turn()
    pair.submit([*shared, 2], 10, 2)
    pair.turn()
    assert [s.submit.request for s in pair.target.admission.running] == [1, 2]


class LoneDraft:
    """A draft without a target: sessions are opened by hand."""

    def __init__(self, width: int = 4) -> None:
        """`width`: leaves of one session that a pass may expand."""
        self.width = width
        kv_cache = TokenPool(8, 1200)
        self.runner = DraftRunner(HashModel(kv_cache), None, VOCABULARY)
        self.scheduler = DraftScheduler(
            kv_cache,  # type: ignore[arg-type]
            600,
            8,
            VOCABULARY,
            SendBuffer(lambda link, sent: None),
        )
        self.scheduler.sessions.link_up(LINK, np.ones(VOCABULARY, np.bool_))

    def open(self, session: int, prompt: int) -> None:
        tokens = np.arange(prompt, dtype=np.int32) % VOCABULARY
        limits = Limits(session, 32, self.width, nodes_ahead=400, error_scale=1.0)
        self.scheduler.apply(LINK, Open(session, tokens, SamplingParams(), limits, prompt), 0.0)

    def one_pass(self) -> dict[int, int]:
        """Rows by session, in the order in which they were shared out."""
        step = self.scheduler.next(0.0)
        assert step is not None
        rows = {part.session.number: part.count for part in step.parts}
        self.scheduler.settle(step, self.runner.run(step), 0.001)
        return rows

    @property
    def trees(self) -> dict[int, int]:
        """Nodes by session, left for its target to verify."""
        return {number: len(s.tree) for (_, number), s in self.scheduler.sessions.live.items()}

    def use_up(self, session: int) -> None:
        """The target commits the longest path of a session's tree whose rows have run."""
        drafting = self.scheduler.sessions.live[LINK, session]
        nodes = drafting.tree.nodes
        node = int(np.where(nodes.slot < 0, 0, nodes.depth).argmax())
        path: list[int] = []
        while node != ROOT:
            path.insert(0, int(nodes.token[node]))
            node = int(nodes.parent[node])
        tokens = np.array(path, np.int32)
        self.scheduler.apply(LINK, Commit(session, drafting.length - 1, tokens), 0.002)


def test_a_draft_s_long_prompt_leaves_rows_to_the_trees_of_others() -> None:
    draft = LoneDraft()
    draft.open(1, 5)
    draft.one_pass()
    draft.open(2, 500)
    while draft.scheduler.sessions.live[LINK, 2].needs_prefill:
        assert draft.one_pass().get(1, 0) > 0


def test_in_a_draft_a_missing_token_waits_for_no_long_prompt() -> None:
    draft = LoneDraft()
    draft.open(1, 500)
    draft.open(2, 5)
    assert 2 in draft.one_pass()
    unlikely = np.array([VOCABULARY - 1, 0, VOCABULARY - 1], np.int32)
    draft.scheduler.apply(LINK, Commit(2, 4, unlikely), 0.002)
    assert 2 in draft.one_pass()
    assert draft.scheduler.sessions.live[LINK, 1].needs_prefill


def test_the_smallest_tree_is_drafted_for_first() -> None:
    draft = LoneDraft(width=16)
    for number in range(1, 9):
        draft.open(number, 2 + number)
    draft.one_pass()
    left_out = 0
    for _ in range(30):
        before = draft.trees
        drafted = [before.pop(number) for number in draft.one_pass()]
        assert drafted == sorted(drafted)
        assert all(size >= drafted[-1] for size in before.values())
        left_out += len(before)
    assert left_out > 0


def test_a_tree_that_its_target_has_used_up_is_drafted_for_next() -> None:
    draft = LoneDraft(width=16)
    for number in range(1, 9):
        draft.open(number, 2 + number)
    for _ in range(12):
        draft.one_pass()
    for number in (8, 3, 5):
        draft.use_up(number)
        assert not draft.scheduler.sessions.live[LINK, number].needs_prefill, "it fell in"
        assert next(iter(draft.one_pass())) == number


def test_more_grammars_wait_than_are_remembered_and_all_are_answered() -> None:
    count = REMEMBERED + 8
    pair = Pair(running=2, draft_passes=0, grammars=Grammars(tokenizer))
    for number in range(1, count + 1):
        grammar = LLMatcher.grammar_from_regex(f"(ab){{{number}}}")
        pair.submit([number % VOCABULARY, 1], 3, number, grammar=grammar, end_ids=(0,))
    deadline = time.monotonic() + COMPILE_SECONDS  # turns without a request take no time at all
    while pair.finished(count) is None:
        assert time.monotonic() < deadline, "the grammars were compiled again and again"
        pair.turn()


def test_a_rest_of_drafting_is_no_lag_of_the_link() -> None:
    pair = Pair()
    pair.submit([1, 2, 3], 300, 1)
    policy = pair.target.row_selector.policy
    for speculate, seconds in ((True, 0.01), (False, 1.0), (True, 0.01)):
        changed = dataclasses.replace(policy, speculate=speculate)
        pair.target.receive(SetPolicy(changed), pair.now)
        for _ in range(10):
            pair.turn(seconds=seconds)
            assert pair.target.sessions.peers[pair.link].lag < 0.5
    assert pair.finished(1) is None
    assert pair.target.sessions.peers[pair.link].lag > 0


def test_computing_a_prompt_again_is_no_wait_for_drafts() -> None:
    pair = Pair(running=2, spare_blocks=0, draft_passes=0)
    for number in (1, 2):
        pair.submit([number] * 200, 250, number)
    ends = [pair.run(number) for number in (1, 2)]
    assert pair.target.report().counters.preemptions > 0
    assert sum(end.timing.draft_wait_seconds for end in ends) < 0.001
