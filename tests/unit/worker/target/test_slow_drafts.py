"""Drafts that grow late beside others, or not at all: sequences leave them, for a while.

Time is what the tests say that it is.
"""

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.worker.link.wire import Close, CloseReason, Grow, Open
from outrider.worker.messages import Room, SetPolicy
from outrider.worker.target.draft_peer import (
    AVOID_SECONDS,
    COMPARED_SECONDS,
    LOOKED_AT,
    MAX_AVOID_SECONDS,
    SILENT_SECONDS,
    SLOW_FACTOR,
)
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.sessions import CAUGHT_UP_TOKENS
from outrider.worker.tree.growth import Growth
from tests.unit.worker.target.test_sessions import CONTEXT, FIRST, SECOND, Target

QUICK, SLOW = 0.004, 0.1
"""Seconds from a commit to growth."""
ENOUGH = LOOKED_AT + 1
"""Latencies that tell: the first of a session is that of its text, too."""
MANY = 8
"""Sessions on one draft."""
TOKEN = np.array([1], np.int32)


class Drafted(Target):
    """The same, with commits, and growth that answers them when the test says so."""

    def commit(self, sequence: Sequence) -> None:
        """Commit a token."""
        self.sessions.commit(sequence, sequence.position, TOKEN, self.now)
        sequence.mirror.commit(TOKEN)
        sequence.append(TOKEN, self.now)
        sequence.computed = sequence.position

    def growth(self, sequence: Sequence) -> Grow:
        """A node after the present root, from the draft that the sequence is on."""
        assert sequence.session is not None
        first = sequence.mirror.last_id + 1
        node = np.zeros(1, np.int64), TOKEN.copy(), np.array([-0.5], np.float32)
        return Grow(sequence.session.number, Growth(sequence.position, first, *node))

    def answer(self, sequence: Sequence, *seconds: float) -> int | None:
        """Commit a token for each of these times, after which growth knows it; return the link."""
        for late in seconds:
            self.commit(sequence)
            self.now += late
            assert sequence.session is not None
            self.sessions.receive(sequence.session.link, [self.growth(sequence)], self.now)
        return self.update(sequence)

    def silence(self, sequence: Sequence) -> int | None:
        """Take steps in which no draft says anything, for longer than one may; return the link."""
        return [self.update(sequence, 0.4 * SILENT_SECONDS) for _ in range(3)][-1]

    def seconds_on(self, sequence: Sequence, link: int) -> float:
        """Take short steps in which no draft says anything; return how long a sequence stays."""
        began = self.now
        while self.update(sequence, 0.1) == link and self.now < began + 100.0:
            pass
        return self.now - began

    def speculate(self, wanted: bool) -> None:
        """Let drafts rest, or go on."""
        version = self.sessions.control.policy.version + 1
        policy = PolicySettings(version=version, speculate=wanted)
        self.sessions.apply(SetPolicy(policy), self.now)

    def two(self) -> tuple[Sequence, Sequence]:
        """A sequence on each draft, of which the first has shown that it is quick."""
        sequences = self.sequence(), self.sequence()
        assert [self.update(one) for one in sequences] == [FIRST, SECOND]
        assert self.answer(sequences[0], *[QUICK] * ENOUGH) == FIRST
        return sequences

    def slowed(self) -> Sequence:
        """A sequence that has left the second draft, which is slow."""
        _, sequence = self.two()
        assert self.answer(sequence, *[SLOW] * ENOUGH) == FIRST
        return sequence

    def many(self) -> list[Sequence]:
        """Sequences on the second draft, and one on the first, which is quick with it."""
        first, *others = [self.sequence() for _ in range(1 + MANY)]
        self.sessions.peers[FIRST].room = Room(1, CONTEXT)
        assert [self.update(one) for one in (first, *others)] == [FIRST] + [SECOND] * MANY
        self.sessions.peers[FIRST].room = None
        assert self.answer(first, *[QUICK] * ENOUGH) == FIRST
        return others


def test_sequences_leave_a_slow_draft_for_a_quick_one() -> None:
    target = Drafted(None, None)
    sequence = target.slowed()
    opening, closing = (
        next(message for _, message in reversed(target.sent) if isinstance(message, kind))
        for kind in (Open, Close)
    )
    assert (SECOND, closing) in target.sent
    assert closing.reason is CloseReason.FINISHED
    assert opening.tokens.tolist() == sequence.tokens[: sequence.length].tolist()
    assert target.answer(sequence, QUICK) == FIRST, "it grows there"


def test_a_draft_that_is_ever_many_tokens_behind_is_slow() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    for _ in range(ENOUGH):
        for _ in range(CAUGHT_UP_TOKENS):
            target.commit(sequence)
        target.answer(sequence, SLOW)
    assert sequence.session is not None
    assert sequence.session.link == FIRST


def test_new_sessions_are_opened_on_the_quick_draft_alone() -> None:
    target = Drafted(None, None)
    target.slowed()
    assert [target.update(target.sequence()) for _ in range(3)] == [FIRST] * 3


def test_a_slow_draft_is_used_where_no_other_has_room() -> None:
    target = Drafted(Room(1, CONTEXT), None)
    _, sequence = target.two()
    assert target.answer(sequence, *[SLOW] * ENOUGH) == SECOND
    assert target.update(target.sequence()) == SECOND


def test_what_an_avoided_draft_takes_is_no_measure_of_waits() -> None:
    target = Drafted(Room(1, CONTEXT), None)
    first, sequence = target.two()
    target.answer(sequence, *[SLOW] * ENOUGH)
    load = target.sessions.control.account.present
    before = load.latency
    target.answer(sequence, *[SLOW] * ENOUGH)
    assert load.latency == before
    target.answer(first, QUICK)
    assert load.latency < before


@pytest.mark.parametrize("late", [QUICK, SLOW])
def test_drafts_that_are_equally_late_are_all_used(late: float) -> None:
    target = Drafted(None, None)
    sequences = target.sequence(), target.sequence()
    for sequence in sequences:
        target.update(sequence)
    for sequence, link in zip(sequences * 2, (FIRST, SECOND) * 2, strict=True):
        assert target.answer(sequence, *[late] * ENOUGH) == link


def test_a_draft_with_many_sessions_may_take_as_many_times_longer() -> None:
    target = Drafted(None, None)
    for sequence in target.many():
        assert target.answer(sequence, *[MANY * QUICK] * ENOUGH) == SECOND


def test_times_are_those_of_the_sessions_that_a_draft_had_then() -> None:
    target = Drafted(None, None)
    sequences = target.many()
    assert [target.update(target.sequence()) for _ in range(MANY - 1)] == [FIRST] * (MANY - 1)
    for sequence in sequences:
        assert target.answer(sequence, *[MANY * QUICK] * ENOUGH) == SECOND


def test_a_draft_with_many_sessions_is_slow_where_each_of_them_is() -> None:
    target = Drafted(None, None)
    sequences = target.many()
    assert target.answer(sequences[0], *[MANY * SLOW] * ENOUGH) == FIRST
    assert [target.update(sequence) for sequence in sequences] == [FIRST] * MANY


def test_times_of_long_ago_make_no_other_draft_slow() -> None:
    target = Drafted(None, None)
    first, sequence = target.two()
    target.now += COMPARED_SECONDS
    assert target.answer(sequence, *[SLOW] * ENOUGH) == SECOND
    target.answer(first, *[SLOW] * (LOOKED_AT - 1))
    assert target.answer(sequence, SLOW) == SECOND, "what was quick once is forgotten"


def test_growth_that_is_late_now_and_then_makes_no_slow_draft() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    late = ([SLOW] * (LOOKED_AT - 1) + [QUICK]) * 3
    assert target.answer(sequence, *late) == SECOND


def test_a_draft_that_is_late_for_each_of_many_sessions_in_turn_is_slow() -> None:
    target = Drafted(None, None)
    sequences = target.many()
    for sequence in sequences * ENOUGH:  # each is answered when its turn comes again
        target.commit(sequence)
        target.now += 0.02
        waited = sequences[(sequences.index(sequence) + 1) % MANY]
        assert waited.session is not None
        target.sessions.receive(waited.session.link, [target.growth(waited)], target.now)
        if target.sessions.peers[SECOND].is_avoided(target.now):
            break
    assert [target.update(sequence) for sequence in sequences] == [FIRST] * MANY


def test_one_pause_of_a_draft_with_many_sessions_makes_no_slow_draft() -> None:
    target = Drafted(None, None)
    sequences = target.many()
    for sequence in sequences:
        target.answer(sequence, *[QUICK] * ENOUGH)
    for sequence in sequences:
        target.commit(sequence)
    grown = [target.growth(sequence) for sequence in sequences]
    target.now += 3 * MANY * SLOW  # the draft stands still, and answers all together
    target.sessions.receive(SECOND, grown, target.now)
    assert [target.update(sequence) for sequence in sequences] == [SECOND] * MANY


def test_a_slow_draft_is_tried_again_with_one_session() -> None:
    target = Drafted(None, None)
    target.slowed()
    trial = target.sequence()
    assert target.update(trial, AVOID_SECONDS) == SECOND
    assert [target.update(target.sequence()) for _ in range(3)] == [FIRST] * 3
    assert target.answer(trial, *[QUICK] * ENOUGH) == SECOND
    assert [target.update(target.sequence()) for _ in range(3)] == [SECOND] * 3, "it has fewer"


def test_a_draft_that_is_slow_again_is_avoided_for_longer() -> None:
    target = Drafted(None, None)
    target.slowed()
    trial = target.sequence()
    assert target.update(trial, AVOID_SECONDS) == SECOND
    assert target.answer(trial, *[SLOW] * ENOUGH) == FIRST
    assert target.update(target.sequence(), 1.5 * AVOID_SECONDS) == FIRST
    assert target.update(target.sequence(), 0.6 * AVOID_SECONDS) == SECOND


def test_a_trial_that_nothing_is_compared_with_ends() -> None:
    target = Drafted(None, None)
    target.slowed()
    assert target.update(target.sequence(), AVOID_SECONDS) == SECOND
    allowed = target.sessions.peers[FIRST].allowed
    target.sessions.link_down(FIRST)
    target.sessions.link_up(FIRST, allowed)
    assert [target.update(target.sequence()) for _ in range(3)] == [FIRST] * 3
    assert target.update(target.sequence(), MAX_AVOID_SECONDS) == SECOND, "it has fewer"


def test_a_draft_that_is_slow_again_much_later_is_avoided_for_no_longer() -> None:
    target = Drafted(None, None)
    first, sequence = target.two()
    assert target.answer(sequence, *[SLOW] * ENOUGH) == FIRST
    trial = target.sequence()
    assert target.update(trial, AVOID_SECONDS + MAX_AVOID_SECONDS) == SECOND
    target.answer(first, *[QUICK] * ENOUGH)
    assert target.answer(trial, *[SLOW] * ENOUGH) == FIRST
    assert target.update(target.sequence(), 0.9 * AVOID_SECONDS) == FIRST
    assert target.update(target.sequence(), 0.2 * AVOID_SECONDS) == SECOND


def test_sequences_leave_a_draft_that_says_nothing() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    assert target.answer(sequence, QUICK) == SECOND
    target.commit(sequence)
    assert target.update(sequence, 0.9 * SILENT_SECONDS) == SECOND
    assert target.update(sequence, 0.2 * SILENT_SECONDS) == FIRST


def test_a_target_that_stood_still_itself_takes_no_draft_for_silent() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    target.answer(sequence, QUICK)
    target.commit(sequence)
    assert target.update(sequence, 2 * SILENT_SECONDS) == SECOND
    assert target.update(sequence, 0.9 * SILENT_SECONDS) == SECOND
    assert target.update(sequence, 0.2 * SILENT_SECONDS) == FIRST


def test_a_draft_that_speaks_again_is_tried_at_once() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    target.answer(sequence, QUICK)
    target.commit(sequence)
    late = target.growth(sequence)
    assert target.silence(sequence) == FIRST
    assert target.update(target.sequence()) == FIRST
    target.sessions.receive(SECOND, [late], target.now)
    assert target.update(target.sequence()) == SECOND


def test_a_prompt_that_is_computed_is_no_silence_while_nobody_knows_how_long_it_takes() -> None:
    target = Drafted(None, None)
    sequences = target.sequence(), target.sequence()
    assert [target.update(one) for one in sequences] == [FIRST, SECOND]
    target.commit(sequences[1])
    assert [target.silence(sequences[1]) for _ in range(8)] == [SECOND] * 8


def test_a_prompt_is_given_as_long_as_others_took_by_the_token_and_more() -> None:
    target = Drafted(None, None)
    first, sequence = target.sequence(), target.sequence(100)
    assert [target.update(one) for one in (first, sequence)] == [FIRST, SECOND]
    taken = 0.03 * first.length
    target.answer(first, taken)
    limit = SILENT_SECONDS + SLOW_FACTOR * 0.03 * sequence.length - taken
    assert target.seconds_on(sequence, SECOND) == pytest.approx(limit, abs=0.2)


def test_growth_for_somebody_else_is_a_sign_of_life() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    target.answer(sequence, QUICK)
    other, waiting = target.sequence(), target.sequence()
    assert [target.update(one) for one in (other, waiting)] == [FIRST, SECOND]
    for _ in range(8):
        target.update(waiting, 0.9 * SILENT_SECONDS)
        assert target.answer(sequence, QUICK) == SECOND
    assert target.update(waiting) == SECOND
    assert target.silence(waiting) == FIRST


def test_a_draft_that_is_tried_while_it_still_says_nothing_is_left_again_and_for_longer() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    target.answer(sequence, QUICK)
    target.commit(sequence)
    assert target.silence(sequence) == FIRST
    trial = target.sequence()
    assert target.update(trial, 2 * AVOID_SECONDS) == SECOND
    assert target.silence(trial) == FIRST
    assert target.update(target.sequence(), 3.9 * AVOID_SECONDS) == FIRST
    assert target.update(target.sequence(), 0.2 * AVOID_SECONDS) == SECOND


def test_a_draft_that_says_nothing_once_it_is_to_go_on_is_silent() -> None:
    target = Drafted(None, None)
    _, sequence = target.two()
    target.answer(sequence, QUICK)
    target.speculate(False)
    assert target.update(sequence) == SECOND
    target.commit(sequence)
    assert [target.silence(sequence) for _ in range(4)] == [SECOND] * 4
    target.speculate(True)
    assert target.update(sequence) == SECOND
    assert target.update(sequence, 0.9 * SILENT_SECONDS) == SECOND
    assert target.silence(sequence) == FIRST


def test_nothing_is_said_by_silence_of_the_only_draft() -> None:
    target = Drafted(None)
    sequence = target.sequence()
    target.update(sequence)
    target.answer(sequence, QUICK)
    target.commit(sequence)
    assert target.silence(sequence) == FIRST
    target.sessions.link_up(SECOND, np.ones_like(target.sessions.peers[FIRST].allowed))
    assert target.update(target.sequence()) == SECOND


def test_each_draft_is_told_its_own_lag() -> None:
    target = Drafted(None, None)
    target.slowed()
    first, second = (target.sessions.peers[link].lag for link in (FIRST, SECOND))
    assert first <= QUICK < second
    target.update(target.sequence(), AVOID_SECONDS)
    opening = next(message for _, message in reversed(target.sent) if isinstance(message, Open))
    assert opening.limits.link_lag_micros == int(second * 1e6)
