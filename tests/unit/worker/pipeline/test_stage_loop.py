"""One stage's thread: why groups end, and what it counts over them."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Event

import numpy as np
import pytest

from outrider.contract.settings import MAX_RUNNING
from outrider.worker.errors import GroupLost, ProtocolViolation, StageLost
from outrider.worker.launch.warm_up_stage import prompt_segment
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline import stage_loop
from outrider.worker.pipeline.records import Begin, End, Floats, Ints, Record, Results
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_loop import StageLoop
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.pipeline.build import move
from tests.unit.worker.pipeline.forms import FORM, FORM_TOKENS, held_grammars
from tests.unit.worker.pipeline.hash_stages import VOCABULARY, HashCut


class FakeLinks:
    """Links that bring all records at once, and are gone afterwards."""

    def __init__(self, *records: Record) -> None:
        self._records = list(records)
        self.closed: str | None = None
        self.received_bytes = 100
        self.sent_bytes = 10

    def send(self, message: Record | Results) -> None:
        pass

    def poll(self) -> Sequence[Record]:
        return ()

    def receive(self, seconds: float | None) -> Sequence[Record]:
        if not self._records:
            self.closed = self.closed or "gone"
            raise StageLost(self.closed)
        records, self._records = self._records, []
        return records

    def close(self, reason: str) -> None:
        self.closed = reason


def make_stage() -> Stage:
    return Stage(HashCut(2).layers(0, 512))


def begin(sequence: int = 1) -> Begin:
    prompt, none = np.array([1, 2], np.int32), np.zeros(0, np.int32)
    return Begin(sequence, prompt, 2, SamplingParams(), none, np.array([1], np.int32))


def served(*groups: FakeLinks) -> StageLoop:
    loop = StageLoop(make_stage)
    for links in groups:
        loop.attach(links)
    loop.stop()
    loop.run()
    return loop


def test_a_slot_of_another_sequence_that_is_freed_closes_the_links_with_the_reason() -> None:
    links = FakeLinks(begin(), move(1, [], [], [200]))
    served(links)
    assert links.closed is not None
    assert links.closed.startswith("a message breaks the rules: slots [200] are not all tree slots")


def test_bytes_of_groups_that_ended_stay_counted() -> None:
    loop = served(FakeLinks(begin()), FakeLinks(begin()))
    assert (loop.traffic.received_bytes, loop.traffic.sent_bytes) == (200, 20)


def test_bytes_do_not_go_down_while_a_group_ends() -> None:
    seen: list[int] = []

    class WatchedLinks(FakeLinks):
        def receive(self, seconds: float | None) -> Sequence[Record]:
            seen.append(loop.traffic.received_bytes)
            try:
                return super().receive(seconds)
            finally:
                assert (loop.links is None) == (self.closed is not None)
                seen.append(loop.traffic.received_bytes)

    loop = StageLoop(make_stage)
    loop.attach(WatchedLinks(begin()))
    loop.attach(WatchedLinks(begin()))
    loop.stop()
    loop.run()
    assert seen == [100] * 4 + [200] * 4


def test_too_many_records_close_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_loop, "MAX_RECORDS", 2)
    links = FakeLinks(begin(), End(1), begin(2))
    served(links)
    assert "3 records wait; 2 may" in str(links.closed)


def test_too_many_bytes_close_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_loop, "MAX_BYTES", 15)
    links = FakeLinks(begin(1), begin(2))
    served(links)
    assert "16 bytes wait in 2 records; 15 may" in str(links.closed)


def test_a_stage_has_no_more_sequences_than_may_run() -> None:
    stage = make_stage()
    for number in range(MAX_RUNNING):
        stage.receive(begin(number))
        stage.step()
    stage.receive(begin(MAX_RUNNING))
    with pytest.raises(ProtocolViolation, match=f"beside {MAX_RUNNING}; {MAX_RUNNING} may run"):
        stage.step()


class Watch:
    """Counts what was watched."""

    def __init__(self) -> None:
        self.entered = self.left = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        self.left += 1


def test_each_pass_is_watched_and_nothing_else() -> None:
    watch = Watch()
    loop = StageLoop(make_stage, watch)
    loop.attach(FakeLinks(begin(), prompt_segment(1, None)))
    loop.stop()
    loop.run()
    assert (watch.entered, watch.left) == (1, 1)
    assert loop.counters.segments == 1


def test_rows_that_wait_for_a_grammar_are_answered_though_nothing_else_comes() -> None:
    may_compile = Event()
    grammars = held_grammars(may_compile)
    sent: list[Record | Results] = []
    waits: list[float | None] = []

    class RecordingLinks(FakeLinks):
        def send(self, message: Record | Results) -> None:
            sent.append(message)

        def receive(self, seconds: float | None) -> Sequence[Record]:
            waits.append(seconds)
            if len(waits) == 2:
                may_compile.set()
                grammars.compiled(FORM).result()
                return ()
            return super().receive(seconds)

    segment = prompt_segment(1, None)
    segment.sample[-1] = True
    sampler = StageSampler(LogitsProcessors(VOCABULARY, grammars))
    loop = StageLoop(lambda: Stage(HashCut(1).layers(0, 512), sampler))
    links = RecordingLinks(replace(begin(), grammar=FORM), segment)
    loop.attach(links)
    loop.stop()
    loop.run()
    assert links.closed == "gone"
    assert waits == [None, stage_loop.GRAMMAR_SECONDS, None]
    first, late = sent
    assert isinstance(first, Results)
    assert isinstance(late, Results)
    assert first.segment == late.segment == segment.number
    assert len(first.rows) == 0
    assert late.rows.tolist() == segment.rows[-1:].tolist()
    assert late.tokens[0] in range(FORM_TOKENS)


def test_a_lost_rank_ends_the_group_with_the_reason_and_then_the_loop() -> None:
    class LosingLayers:
        def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
            raise GroupLost("a rank is gone: connection closed")

        def move(self, sources: Ints, destinations: Ints) -> None:
            pass

    links = FakeLinks(begin(), prompt_segment(1, None))
    loop = StageLoop(lambda: Stage(LosingLayers()))
    loop.attach(links)
    with pytest.raises(GroupLost):
        loop.run()
    assert links.closed == "it ends: a rank is gone: connection closed"
