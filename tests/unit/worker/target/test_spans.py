"""Spans of passes in one piece: what became of their rows, numbered through, the last ones kept."""

from typing import Any

import pytest

from outrider.contract.state import TimelineSpan
from outrider.worker.engine.loop import Engine
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.messages import MAX_TIMELINE_SPANS, AskTimeline, FromPeer
from outrider.worker.target.spans import TargetSpans
from tests.unit.worker.pair import LINK
from tests.unit.worker.target.test_early_growth import COUNT, PROMPT, Mailbox, decoding, grown


class Asking(Mailbox):
    """A transport by which someone asks for a timeline."""

    def drain(self) -> list[Any]:
        return [AskTimeline()]


def test_a_pass_commits_its_root_and_right_nodes_and_prunes_the_others() -> None:
    pair, sequence = decoding()
    at = sequence.generated
    right = pair.expected(PROMPT, COUNT)[at : at + 2]
    chain = grown(sequence, *right, 1 + right[0] % 7, right[1])
    pair.target.receive(FromPeer(LINK, [chain]), pair.now)
    timeline: PassTimeline[Any, Any] = PassTimeline(TargetSpans(pair.target.stats))
    mailbox = Mailbox(pair)
    Engine(pair.target, mailbox, mailbox, timeline).step()
    assert sequence.generated == at + 3
    (span,) = timeline.asked().spans
    assert (span.lane, span.number, span.rows, span.prompt_rows) == ("target", 0, 5, 0)
    assert (span.committed_rows, span.pruned_rows) == (3, 2)
    assert span.came == span.began <= span.ended


def test_no_fewer_than_no_rows_are_pruned() -> None:
    """A step that failed halfway may have counted rows as accepted."""
    pair, _ = decoding()
    timeline: PassTimeline[Any, Any] = PassTimeline(TargetSpans(pair.target.stats))
    pair.target.stats.counters.accepted_rows += 3
    mailbox = Mailbox(pair)
    Engine(pair.target, mailbox, mailbox, timeline).step()
    (span,) = timeline.asked().spans
    assert span.pruned_rows == 0


def test_an_engine_answers_with_its_timeline() -> None:
    pair, _ = decoding()
    timeline: PassTimeline[Any, Any] = PassTimeline(TargetSpans(pair.target.stats))
    mailbox = Mailbox(pair)
    engine: Engine[Any, Any] = Engine(pair.target, mailbox, mailbox, timeline)
    engine.step()
    engine.transport = Asking(pair)
    engine.receive()
    assert pair.outbox[-1] == timeline.asked()
    assert len(timeline.asked().spans) == 1


@pytest.mark.parametrize("count", [3, MAX_TIMELINE_SPANS + 2])
def test_passes_are_numbered_through_and_the_last_are_kept(count: int) -> None:
    span = TimelineSpan("draft", 0, 1.0, 1.0, 2.0, 1)
    timeline: PassTimeline[None, None] = PassTimeline(lambda *_: [span])
    for _ in range(count):
        timeline.add(None, None, 1.0, 2.0)
    numbers = [one.number for one in timeline.asked().spans]
    assert numbers == list(range(max(0, count - MAX_TIMELINE_SPANS), count))
