"""Growth that comes while a pass runs: it counts for the root that the pass commits from."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from outrider.worker.engine.loop import Engine
from outrider.worker.link.wire import Capacity, Close, CloseReason, FromDraft, Grow
from outrider.worker.messages import FromPeer
from outrider.worker.speculation.gain import TIME_MEMORY, Load
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence as TargetSequence
from outrider.worker.tree.growth import Growth
from tests.unit.worker.pair import LINK, PASS_SECONDS, Pair

PROMPT = [1, 2, 3]
COUNT = 20


class Mailbox:
    """A transport of a target, and its runner, during whose pass a draft's messages come."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.coming: list[Sequence[FromDraft]] = []
        """Of the next pass."""
        self._here: list[FromPeer] = []

    def run(self, step: Any) -> Any:
        output = self.pair.target_runner.run(step)
        self._here += [FromPeer(LINK, messages) for messages in self.coming]
        self.coming = []
        return output

    def drain(self) -> list[FromPeer]:
        here, self._here = self._here, []
        return here

    def drain_peers(self) -> list[FromPeer]:
        return self.drain()

    def wait(self, seconds: float | None) -> None:
        raise AssertionError("nothing is waited for")

    def send(self, *messages: Any) -> None:
        pass


class NoWaits(RowSelector):
    """Waits for no growth."""

    def _waits(self, *step: Any) -> bool:
        return False


def decoding() -> tuple[Pair, TargetSequence]:
    """Return a target whose request decodes, with a session on a draft that is silent."""
    pair = Pair(draft_passes=0, start_selector=NoWaits.start)
    pair.now = time.monotonic() - 1.0  # an engine has no other clock
    pair.submit(PROMPT, COUNT)
    for _ in range(4):
        pair.turn()
    (sequence,) = pair.target.admission.running
    assert sequence.session is not None
    return pair, sequence


def grown(sequence: TargetSequence, *tokens: int, first_id: int = 1, parent: int = 0) -> Grow:
    """Return growth of a chain below the root, or below `parent`."""
    assert sequence.session is not None
    parents = np.array([parent, *range(first_id, first_id + len(tokens) - 1)], np.int64)
    logprobs = np.full(len(tokens), -0.1, np.float32)
    growth = Growth(sequence.position, first_id, parents, np.array(tokens, np.int32), logprobs)
    return Grow(sequence.session.number, growth)


def step(pair: Pair, *coming: Sequence[FromDraft]) -> None:
    """Run one step of the engine, during whose pass these messages come."""
    mailbox = Mailbox(pair)
    mailbox.coming = list(coming)
    Engine(pair.target, mailbox, mailbox).step()


def test_a_root_that_lies_in_the_mailbox_is_no_fall_out() -> None:
    pair, sequence = decoding()
    text = pair.expected(PROMPT, COUNT)
    at = sequence.generated
    step(pair, [grown(sequence, text[at], text[at + 1])])
    assert sequence.generated == at + 1
    assert sequence.mirror.token.tolist() == [text[at + 1]]


def test_growth_during_a_pass_changes_no_node_of_it() -> None:
    """A new root's first growth is ranked as it comes, to learn what such growth is worth."""
    pair, sequence = decoding()
    text = pair.expected(PROMPT, COUNT)
    selector, at = pair.target.row_selector, sequence.generated
    selector.set_policy(
        dataclasses.replace(selector.policy, max_rows=1, off_below_percent=0), pair.now
    )
    pair.target.receive(FromPeer(LINK, [grown(sequence, *text[at : at + 4])]), pair.now)
    step(pair)
    assert sequence.generated == at + 2
    assert sequence.mirror.token.tolist() == text[at + 2 : at + 4]
    likelier = grown(sequence, 5, first_id=5)
    likelier.growth.logprobs[:] = -0.001
    step(pair, [likelier])
    assert sequence.generated == at + 4, "the node of the pass was accepted"
    pair.now = time.monotonic()
    pair.run()
    assert sequence.tokens[len(PROMPT) : sequence.length].tolist() == text


@pytest.mark.parametrize("wrong", ["close", "violation"])
def test_what_ends_a_session_waits_until_the_pass_is_settled(wrong: str) -> None:
    """The pass has rows of nodes that go with the session."""
    pair, sequence = decoding()
    text = pair.expected(PROMPT, COUNT)
    at, session = sequence.generated, sequence.session
    assert session is not None
    pair.target.receive(FromPeer(LINK, [grown(sequence, *text[at : at + 3])]), pair.now)
    ending: FromDraft = Close(session.number, CloseReason.EVICTED)
    if wrong == "violation":
        ending = grown(sequence, 1)  # an id that was used
    mailbox = Mailbox(pair)
    mailbox.coming = [[ending], [grown(sequence, 5, first_id=4)]]
    engine: Engine[Any, Any] = Engine(pair.target, mailbox, mailbox)
    engine.step()
    assert sequence.generated == at + 4, "all three nodes were accepted"
    assert sequence.session is session
    engine.receive()
    assert sequence.session is None
    pair.now = time.monotonic()
    pair.run()
    assert sequence.tokens[len(PROMPT) : sequence.length].tolist() == text


def test_growth_is_timed_by_its_stamp_not_by_when_the_engine_looked() -> None:
    pair, sequence = decoding()
    prior, load = Load(1.0), pair.target.row_selector.account.present
    assert load.latency == prior.latency
    came = sequence.committed_at + 0.0007
    growth = FromPeer(LINK, [grown(sequence, 5)], came)
    pair.target.receive(growth, sequence.committed_at + PASS_SECONDS)
    expected = prior.latency + (1 - TIME_MEMORY) * (0.0007 - prior.latency)
    assert load.latency == pytest.approx(expected)
    growth = FromPeer(LINK, [grown(sequence, 6, first_id=2)], came + 0.0002)
    pair.target.receive(growth, sequence.committed_at + PASS_SECONDS)
    expected = prior.period + (1 - TIME_MEMORY) * (0.0002 - prior.period)
    assert load.period == pytest.approx(expected)


def test_growth_of_an_older_root_tells_how_late_it_is() -> None:
    """Only growth that is fast would ever be timed if that of the present root alone were."""
    pair, sequence = decoding()
    late = grown(sequence, 5)
    asked = sequence.session.asked  # type: ignore[union-attr]
    assert asked is not None
    pair.turn()
    load = pair.target.row_selector.account.present
    before = load.latency
    pair.target.receive(FromPeer(LINK, [late], pair.now), pair.now)
    lateness = pair.now - asked[1]
    assert lateness > PASS_SECONDS
    counted = 2 * before + 0.0005
    assert counted < lateness
    assert load.latency == pytest.approx(before + (1 - TIME_MEMORY) * (counted - before))


def test_growth_that_comes_together_counts_once() -> None:
    pair, sequence = decoding()
    both = [grown(sequence, 5), grown(sequence, 6, first_id=2, parent=1)]
    pair.target.receive(FromPeer(LINK, both, pair.now), pair.now)
    assert sequence.growths == 1


def test_growth_that_knows_a_commit_before_it_was_sent_makes_no_time_negative() -> None:
    """A draft that guesses the commit of the pass in flight: its growth breaks the rules while the
    pass runs, and has become valid once it is settled."""
    pair, sequence = decoding()
    text = pair.expected(PROMPT, COUNT)
    session = sequence.session
    assert session is not None
    session.asked = None
    at = sequence.generated
    ahead = grown(sequence, text[at + 1])
    ahead = Grow(ahead.session, ahead.growth._replace(root_position=sequence.position + 1))
    mailbox = Mailbox(pair)
    mailbox.coming = [[ahead]]
    engine: Engine[Any, Any] = Engine(pair.target, mailbox, mailbox)
    engine.step()
    engine.receive()
    assert sequence.session is session
    assert pair.target.sessions.peers[session.link].lag >= 0.0
    assert pair.target.sessions.latencies.seconds >= 0.0


def test_growth_before_another_message_is_taken_at_once() -> None:
    pair, sequence = decoding()
    early = [FromPeer(LINK, [grown(sequence, 5), Capacity(1, 100)], pair.now)]
    (rest,) = pair.target.receive_during_pass(early, pair.now)
    assert rest.messages == [Capacity(1, 100)]
    assert sequence.growths == 1
