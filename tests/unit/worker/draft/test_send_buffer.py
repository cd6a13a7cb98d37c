"""The draft's send buffer: growth is sent at once, or that of several passes as one message."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from outrider.worker.draft.scheduler import FIRST_GROWTHS, DraftScheduler
from outrider.worker.draft.send_buffer import MAX_BUFFER_SECONDS, SendBuffer
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.link.wire import Close, CloseReason, Commit, FromDraft, Grow, Limits, Open
from outrider.worker.messages import LinkDown
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import VOCABULARY, HashModel, TokenPool

CONTEXT = 512
PROMPT = [1, 2, 3, 4, 5]
LINK = 1
SHORT = MAX_BUFFER_SECONDS / 10
LONG = MAX_BUFFER_SECONDS * 5
PLENTY = 400
"""Nodes ahead that no test reaches."""


def limits(session: int, nodes_ahead: int) -> Limits:
    return Limits(session, depth=32, width=2, nodes_ahead=nodes_ahead, error_scale=1.0)


@dataclass
class Draft:
    """A draft, a clock, and the messages that it has sent so far."""

    sent: list[tuple[int, list[FromDraft]]] = field(default_factory=list)
    now: float = 100.0
    coalesce: bool = True

    def __post_init__(self) -> None:
        kv_cache = TokenPool(2, CONTEXT + 600)
        self.runner = DraftRunner(HashModel(kv_cache), None, VOCABULARY)
        self.scheduler = DraftScheduler(
            kv_cache,  # type: ignore[arg-type]
            CONTEXT,
            2,
            VOCABULARY,
            SendBuffer(self.send, self.coalesce),
        )
        for link in (LINK, LINK + 1):
            self.scheduler.sessions.link_up(link, np.ones(VOCABULARY, np.bool_))

    def send(self, link: int, messages: Sequence[FromDraft]) -> None:
        self.sent.append((link, list(messages)))

    def open(self, nodes_ahead: int = PLENTY, link: int = LINK, session: int = 1) -> None:
        """A target's prompt."""
        opening = Open(
            session, np.array(PROMPT, np.int32), SamplingParams(), limits(session, nodes_ahead), 1
        )
        self.scheduler.apply(link, opening, self.now)

    def passes(self, count: int, seconds: float) -> None:
        """So many passes, each of which takes so long."""
        for _ in range(count):
            step = self.scheduler.next(self.now)
            assert step is not None
            self.now += seconds
            self.scheduler.settle(step, self.runner.run(step), self.now)

    def fall_out(self) -> None:
        """Commit a token that the tree does not hold: what grows next is a new tree."""
        (drafting,) = self.scheduler.sessions.live.values()
        nodes = drafting.tree.nodes
        children = set(nodes.token[nodes.depth == 1].tolist())
        token = next(t for t in range(VOCABULARY) if t not in children)
        self.commit([token])

    def commit(self, tokens: list[int]) -> None:
        (drafting,) = self.scheduler.sessions.live.values()
        position = drafting.length - 1
        commit = Commit(drafting.number, position, np.array(tokens, np.int32))
        self.scheduler.apply(drafting.link, commit, self.now)

    def growths(self) -> list[int]:
        """Of each message, how many growths it carries."""
        return [len([m for m in messages if isinstance(m, Grow)]) for _, messages in self.sent]

    def ids(self) -> list[int]:
        """Of every node that was sent, in order."""
        grows = [m.growth for _, messages in self.sent for m in messages if isinstance(m, Grow)]
        return [g.first_id + i for g in grows for i in range(len(g.tokens))]


@pytest.fixture
def draft() -> Draft:
    return Draft()


def test_a_new_tree_s_first_growth_travels_with_its_second(draft: Draft) -> None:
    draft.open()
    draft.passes(1, SHORT)
    assert draft.sent == [], "the root's children wait for theirs"
    draft.passes(FIRST_GROWTHS - 1, SHORT)
    assert draft.growths() == [FIRST_GROWTHS]
    assert FIRST_GROWTHS == 2


def test_so_it_is_after_each_fall_out(draft: Draft) -> None:
    draft.open()
    draft.passes(FIRST_GROWTHS, SHORT)
    for _ in range(3):
        draft.fall_out()
        draft.sent.clear()
        draft.passes(1, SHORT)
        assert draft.sent == []
        draft.passes(1, SHORT)
        assert draft.growths() == [FIRST_GROWTHS]


def test_a_tree_that_survived_a_commit_is_no_new_tree(draft: Draft) -> None:
    draft.open()
    draft.passes(FIRST_GROWTHS, SHORT)
    (drafting,) = draft.scheduler.sessions.live.values()
    nodes = drafting.tree.nodes
    draft.commit([int(nodes.token[nodes.slot >= 0][0])])
    draft.sent.clear()
    draft.passes(FIRST_GROWTHS, SHORT)
    assert draft.sent == []


def test_later_growth_is_buffered_no_longer_than_the_limit(draft: Draft) -> None:
    draft.open()
    draft.passes(FIRST_GROWTHS, SHORT)
    draft.sent.clear()
    made = 0
    for _ in range(4):
        buffered_since = draft.now + SHORT  # the first growth is made at the end of its pass
        before = len(draft.sent)
        while len(draft.sent) == before:
            draft.passes(1, SHORT)
            made += 1
        assert draft.now - buffered_since <= MAX_BUFFER_SECONDS + 1e-9
    assert sum(draft.growths()) == made
    assert max(draft.growths()) <= MAX_BUFFER_SECONDS / SHORT + 1
    assert min(draft.growths()) >= MAX_BUFFER_SECONDS / SHORT - 1


def test_growth_goes_at_once_where_a_pass_takes_long(draft: Draft) -> None:
    draft.open()
    draft.passes(FIRST_GROWTHS, LONG)
    for _ in range(30):  # until the draft knows how long its passes are
        draft.passes(1, LONG)
    draft.fall_out()
    draft.sent.clear()
    for sent in range(1, 6):
        draft.passes(1, LONG)
        assert draft.growths() == [1] * sent


def test_growth_goes_at_once_where_the_next_pass_would_make_it_late(draft: Draft) -> None:
    draft.open()
    draft.scheduler.pass_seconds.value = 1.1 * MAX_BUFFER_SECONDS
    draft.passes(1, SHORT)
    assert draft.growths() == [1], "of a new tree, too"


def test_a_draft_that_buffers_nothing_sends_each_growth_at_once() -> None:
    draft = Draft(coalesce=False)
    draft.open()
    for sent in range(1, 6):
        draft.passes(1, SHORT)
        assert draft.growths() == [1] * sent


@pytest.mark.parametrize("nodes_ahead", [1, 5, 8, 9, 17, 40])
def test_nothing_stays_buffered_once_there_is_nothing_to_run(
    draft: Draft, nodes_ahead: int
) -> None:
    draft.open(nodes_ahead)
    for _ in range(nodes_ahead + 1):
        step = draft.scheduler.next(draft.now)
        if step is None:
            break
        draft.now += SHORT
        draft.scheduler.settle(step, draft.runner.run(step), draft.now)
    assert draft.scheduler.next(draft.now) is None
    assert draft.ids() == list(range(1, nodes_ahead + 1))
    assert not draft.scheduler.send_buffer


def test_limits_that_end_growth_do_not_keep_what_was_buffered(draft: Draft) -> None:
    draft.open()
    draft.passes(1, SHORT)
    assert draft.sent == []
    draft.scheduler.apply(LINK, limits(1, nodes_ahead=0), draft.now)
    assert draft.scheduler.next(draft.now) is None
    assert draft.growths() == [1]


def test_a_target_that_closes_does_not_keep_what_was_buffered_for_it(draft: Draft) -> None:
    draft.open()
    draft.passes(1, SHORT)
    draft.scheduler.apply(LINK, Close(1, CloseReason.FINISHED), draft.now)
    assert draft.scheduler.next(draft.now) is None
    assert not draft.scheduler.send_buffer


def test_a_close_leaves_behind_the_growth_that_was_buffered(draft: Draft) -> None:
    draft.open()
    draft.passes(1, SHORT)
    draft.scheduler.apply(LINK, Commit(1, 99, np.array([1], np.int32)), draft.now)
    ((link, messages),) = draft.sent
    assert link == LINK
    assert [type(m) for m in messages] == [Grow, Close]


def test_growth_buffered_for_two_links_goes_to_each_its_own(draft: Draft) -> None:
    draft.open(nodes_ahead=8, session=3)
    draft.open(nodes_ahead=8, session=4, link=LINK + 1)
    draft.passes(1, SHORT)
    assert draft.scheduler.next(draft.now) is None
    owners = {link: [m.session for m in messages] for link, messages in draft.sent}  # type: ignore[union-attr]
    assert owners == {LINK: [3], LINK + 1: [4]}
    assert len(draft.sent) == 2


def test_growth_buffered_for_a_link_that_ends_is_dropped(draft: Draft) -> None:
    draft.open()
    draft.passes(1, SHORT)
    draft.scheduler.receive(LinkDown(LINK), draft.now)
    assert draft.scheduler.next(draft.now) is None
    assert draft.sent == []


def test_buffering_changes_neither_what_is_sent_nor_its_order(draft: Draft) -> None:
    at_once = Draft(coalesce=False)
    for each in (draft, at_once):
        each.open(nodes_ahead=100)
        while each.scheduler.next(each.now) is not None:
            each.passes(1, SHORT)
    assert draft.ids() == at_once.ids() == list(range(1, 101))
    assert len(draft.sent) < len(at_once.sent)


def test_a_long_prompt_of_another_session_holds_nothing_up() -> None:
    draft = Draft()
    draft.open(session=1)
    draft.passes(1, SHORT)
    assert not draft.sent
    opening = Open(2, np.ones(400, np.int32), SamplingParams(), limits(2, 400), 1)
    draft.scheduler.apply(LINK + 1, opening, draft.now)
    draft.scheduler.next(draft.now)
    assert draft.sent
