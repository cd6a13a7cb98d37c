"""Sessions: the draft that a target picks for a sequence, and the draft's side of them."""

from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.link.wire import Capacity, Close, CloseReason, Limits, Open
from outrider.worker.messages import Drain, FromPeer, LinkDown, LinkUp, Room, Submit
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.draft_peer import BACK_OFF_SECONDS, MIN_BACK_OFF_SECONDS
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.tree.mirror import Mirror
from tests.unit.worker.fakes import VOCABULARY, FlatCosts, TokenPool

EVERYTHING = np.ones(VOCABULARY, np.bool_)
CONTEXT = 64
NODES = 16
SOON = 0.1
"""Seconds: less than the back-off."""
FIRST, SECOND = 1, 2
"""Links; the first is asked first."""


class Target:
    """The sessions of a target, a clock that the test moves, and what was sent."""

    def __init__(self, *rooms: Room | None) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, Any]] = []
        row_selector = RowSelector.start(FlatCosts(), PolicySettings(), 65)  # type: ignore[arg-type]
        self.sessions = TargetSessions(
            lambda link, message: self.sent.append((link, message)), row_selector
        )
        for link, room in enumerate(rooms, start=1):
            self.sessions.link_up(link, EVERYTHING, room)

    def sequence(self, length: int = 5) -> Sequence:
        """A request with a prompt of so many tokens."""
        prompt = np.arange(length, dtype=np.int32) % VOCABULARY
        submit = Submit(1, prompt, SamplingParams(), 100, (), True, self.now)
        tokens = np.zeros(length + 100, np.int32)
        tokens[:length] = prompt
        ends = np.array([], np.int32)
        calibration = self.sessions.control.new_calibration()
        return Sequence(
            submit, tokens, length, Mirror(length - 1, tokens=tokens), calibration, ends
        )

    def update(self, sequence: Sequence, after: float = 0.0) -> int | None:
        """Update a sequence's session; return its link."""
        self.now += after
        self.sessions.update(sequence, self.now)
        return sequence.session.link if sequence.session else None

    def hear(self, sequence: Sequence, reason: CloseReason) -> None:
        """The draft closes the sequence's session."""
        assert sequence.session is not None
        close = Close(sequence.session.number, reason)
        self.sessions.receive(sequence.session.link, [close], self.now)

    def opened(self) -> list[int]:
        """Return the links of every session opened, in order."""
        return [link for link, message in self.sent if isinstance(message, Open)]


def test_requests_one_after_the_other_take_turns_over_the_drafts() -> None:
    target = Target(None, None, None)
    for _ in range(6):
        sequence = target.sequence()
        target.update(sequence)
        target.sessions.finish(sequence)
    assert sorted(target.opened()) == [1, 1, 2, 2, 3, 3]


def test_a_draft_that_comes_back_takes_no_more_turns_than_the_others() -> None:
    target = Target(None, None)

    def ask(times: int) -> list[int]:
        before = len(target.opened())
        for _ in range(times):
            sequence = target.sequence()
            target.update(sequence)
            target.sessions.finish(sequence)
        return target.opened()[before:]

    ask(20)
    target.sessions.link_down(SECOND)
    assert ask(3) == [FIRST] * 3
    target.sessions.link_up(SECOND, EVERYTHING)
    assert ask(6) == [SECOND, FIRST] * 3


@pytest.mark.parametrize(
    "reason", [r for r in CloseReason if r not in (CloseReason.FINISHED, CloseReason.INVALID)]
)
def test_a_session_closed_by_one_draft_opens_on_another_at_once(reason: CloseReason) -> None:
    target = Target(None, None)
    sequence = target.sequence()
    assert target.update(sequence) == FIRST
    target.hear(sequence, reason)
    assert target.update(sequence) == SECOND


@pytest.mark.parametrize(
    ("reason", "returns"),
    [
        (CloseReason.EVICTED, True),
        (CloseReason.OVERLOADED, True),
        (CloseReason.INVALID, True),
        (CloseReason.DRAINING, False),
        (CloseReason.TOO_LONG, False),
    ],
)
def test_the_only_draft_is_asked_again_after_a_while_or_never(
    reason: CloseReason, returns: bool
) -> None:
    target = Target(None)
    sequence = target.sequence()
    target.update(sequence)
    target.hear(sequence, reason)
    assert target.update(sequence, 0.9 * BACK_OFF_SECONDS) is None
    assert target.update(sequence, BACK_OFF_SECONDS) == (FIRST if returns else None)
    assert target.update(sequence, 1e6) == (FIRST if returns else None)


@pytest.mark.parametrize(
    ("reason", "asked"),
    [
        (CloseReason.EVICTED, True),
        (CloseReason.TOO_LONG, True),
        (CloseReason.OVERLOADED, False),
        (CloseReason.DRAINING, False),
    ],
)
def test_a_close_is_about_its_sequence_or_about_its_draft(reason: CloseReason, asked: bool) -> None:
    target = Target(None)
    closed, other = target.sequence(), target.sequence()
    target.update(closed)
    target.hear(closed, reason)
    assert target.update(other) == (FIRST if asked else None)


def test_a_draining_draft_that_returns_is_used() -> None:
    target = Target(None)
    sequence = target.sequence()
    target.update(sequence)
    target.hear(sequence, CloseReason.DRAINING)
    target.sessions.link_down(FIRST)
    target.sessions.link_up(SECOND, EVERYTHING)
    assert target.update(sequence) == SECOND


def test_room_ends_the_back_off_of_an_overloaded_draft() -> None:
    target = Target(None)
    sequence = target.sequence()
    target.update(sequence)
    target.hear(sequence, CloseReason.OVERLOADED)
    assert target.update(sequence, SOON) is None
    for none in (Capacity(0, 900), Capacity(3, 0), Capacity(3, sequence.length - 1)):
        target.sessions.receive(FIRST, [none], target.now)
        assert target.update(sequence) is None
    target.sessions.receive(FIRST, [Capacity(1, 64)], target.now)
    assert target.update(sequence) == FIRST


def test_a_draft_that_refuses_and_has_room_alternately_is_not_asked_all_the_time() -> None:
    target = Target(None)
    sequence = target.sequence()
    steps = 200
    for _ in range(steps):
        if target.update(sequence, MIN_BACK_OFF_SECONDS / 10) is not None:
            target.hear(sequence, CloseReason.OVERLOADED)
            target.sessions.receive(FIRST, [Capacity(1, 64)], target.now)
    assert steps / 12 < len(target.opened()) <= steps / 10 + 1


def test_room_does_not_end_distrust() -> None:
    target = Target(None)
    sequence = target.sequence()
    target.update(sequence)
    target.sessions.receive(FIRST, [Close(0, CloseReason.INVALID)], target.now)
    target.sessions.receive(FIRST, [Capacity(9, 900)], target.now)
    assert target.update(sequence, SOON) is None


def test_no_more_sessions_are_opened_than_were_announced() -> None:
    target = Target(Room(2, CONTEXT))
    sequences = [target.sequence() for _ in range(3)]
    assert [target.update(s) for s in sequences] == [FIRST, FIRST, None]
    target.sessions.finish(sequences[0])
    assert target.update(sequences[2]) == FIRST


def test_a_sequence_goes_to_a_draft_whose_context_holds_it() -> None:
    target = Target(Room(9, CONTEXT), Room(9, 2 * CONTEXT))
    assert target.update(target.sequence(CONTEXT - 1)) == FIRST
    target.sessions.link_up(FIRST, EVERYTHING, Room(9, CONTEXT))  # as idle as the other
    assert target.update(target.sequence(CONTEXT)) == SECOND
    assert target.update(target.sequence(2 * CONTEXT)) is None


class Draft:
    """A draft's scheduler with room for two sessions, and what it sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.kv_cache = TokenPool(2, CONTEXT + 600)
        self.scheduler = DraftScheduler(
            self.kv_cache,  # type: ignore[arg-type]
            CONTEXT,
            2,
            VOCABULARY,
            SendBuffer(self._send),
        )
        for link in (FIRST, SECOND):
            self.receive(LinkUp(link, EVERYTHING))

    def _send(self, link: int, messages: list[Any]) -> None:
        self.sent += [(link, message) for message in messages]

    def receive(self, message: Any) -> None:
        self.scheduler.receive(message, 0.0)

    def open(self, link: int, number: int) -> DraftSession | None:
        """A session of a target, if it was taken."""
        limits = Limits(number, depth=8, width=4, nodes_ahead=NODES, error_scale=1.0)
        tokens = np.array([1, 2, 3], np.int32)
        self.receive(FromPeer(link, [Open(number, tokens, SamplingParams(), limits, len(tokens))]))
        return self.scheduler.sessions.live.get((link, number))

    def close(self, link: int, number: int) -> None:
        self.receive(FromPeer(link, [Close(number, CloseReason.FINISHED)]))

    def reasons(self) -> list[tuple[int, int, CloseReason]]:
        """Link, number and reason of every Close sent."""
        return [(k, m.session, m.reason) for k, m in self.sent if isinstance(m, Close)]

    def capacities(self) -> list[tuple[int, Capacity]]:
        return [(k, m) for k, m in self.sent if isinstance(m, Capacity)]


def test_a_target_that_was_refused_hears_once_of_room() -> None:
    draft = Draft()
    assert all(draft.open(FIRST, number) for number in (1, 2))
    assert draft.open(SECOND, 1) is None
    assert draft.reasons() == [(SECOND, 1, CloseReason.OVERLOADED)]
    assert draft.capacities() == []
    draft.close(FIRST, 1)
    free = draft.kv_cache.available * BLOCK
    draft.close(FIRST, 2)
    assert draft.capacities() == [(SECOND, Capacity(1, free))]
    assert draft.open(SECOND, 2) is not None


def test_a_lost_link_makes_room_and_hears_of_none() -> None:
    draft = Draft()
    for number in (1, 2, 3):
        draft.open(FIRST, number)
    draft.open(SECOND, 1)
    draft.receive(LinkDown(FIRST))
    assert draft.capacities() == [(SECOND, Capacity(2, draft.kv_cache.available * BLOCK))]


def test_a_target_hears_of_no_room_unless_it_was_refused() -> None:
    draft = Draft()
    draft.open(FIRST, 1)
    draft.close(FIRST, 1)
    assert draft.sent == []


def test_a_draining_draft_closes_every_session_and_refuses_new_ones() -> None:
    draft = Draft()
    draft.open(FIRST, 1)
    draft.open(SECOND, 1)
    draft.open(SECOND, 2)
    draft.sent.clear()
    draft.receive(Drain())
    assert draft.reasons() == [(FIRST, 1, CloseReason.DRAINING), (SECOND, 1, CloseReason.DRAINING)]
    assert draft.kv_cache.used == 0
    assert draft.scheduler.report().draining
    assert draft.open(FIRST, 2) is None
    assert draft.reasons()[2:] == [(FIRST, 2, CloseReason.DRAINING)]
    assert draft.capacities() == []
