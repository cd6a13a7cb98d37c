"""The loop of a pipelined target's engine: answers, drafts, groups that are lost, and who waits."""

import dataclasses
import random

import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.messages import AskTimeline, Cancel, Finish, LinkDown, SetPolicy, Timeline
from outrider.worker.pipeline.draft_control import PipelinedDraftControl
from outrider.worker.pipeline.planner import PipelinePlanner
from outrider.worker.pipeline.scheduler import GIVEN_UP
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.tree.mirror_table import DRAFT, PREDICTION, SUFFIX
from tests.unit.worker.pipeline.build import find
from tests.unit.worker.pipeline.pipelined_engine import LINK, Target

PROMPTS = ([1, 2, 3], [4, 5, 6, 7] * 9, [8, 9])
ANSWER = 24
GONE = "stage 1 is gone"
POISON = 11
LONG = 90
"""Tokens of an answer in which, of 12 tokens, some follow each other again."""
WITH_TEXT = PolicySettings(off_below_percent=0, sources=(SourceKind.DRAFT, SourceKind.SUFFIX))


def asked(
    stages: int = 2, draft: bool = True, planning: type[PipelinePlanner] = PipelinePlanner
) -> Target:
    target = Target(stages, planning=planning)
    if draft:
        target.link_draft()
    for number, prompt in enumerate(PROMPTS):
        target.submit(prompt, ANSWER, temperature=0.5 * number, seed=number)
    return target


def assert_true(target: Target) -> None:
    for number in target.requests:
        assert target.texts[number] == target.truth(number)
        finished = target.finished[number]
        assert finished.finish is Finish.LENGTH
        assert finished.usage.completion_tokens == ANSWER


@pytest.mark.parametrize(("stages", "draft"), [(1, True), (2, False), (3, True)])
def test_several_requests_are_answered_as_by_plain_decoding(stages: int, draft: bool) -> None:
    target = asked(stages, draft)
    target.run()
    assert_true(target)
    counters = target.report.counters
    assert counters.requests_finished == len(PROMPTS)
    assert counters.generation_tokens == len(PROMPTS) * ANSWER
    assert counters.prompt_tokens == sum(map(len, PROMPTS))
    assert (counters.accepted_rows > 0) == draft
    assert (counters.draft_rows > 0) == draft
    assert counters.passes == sum(one.usage.passes for one in target.finished.values())
    assert target.report.running == target.report.waiting == 0


@pytest.mark.parametrize("draft", [True, False])
def test_every_row_that_leaves_is_a_prompts_or_committed_or_pruned(draft: bool) -> None:
    target = asked(draft=draft)
    target.run()
    totals = target.report.segments
    assert totals is not None
    assert totals.segments_in_flight == totals.rows_in_flight == 0
    known = totals.prompt_rows + totals.committed_rows + totals.pruned_rows
    assert known == target.report.counters.step_rows
    assert totals.prompt_rows >= sum(len(prompt) - 1 for prompt in PROMPTS)
    assert (totals.pruned_rows > 0) == draft
    assert target.report.counters.preemptions == 0
    assert totals.committed_rows == len(PROMPTS) * ANSWER  # all but each last one, and the prompts'


def test_what_the_stages_are_is_told_with_the_group() -> None:
    target = asked(stages=3)
    target.run()
    told = target.groups[-1]
    assert told.link == "grpc"
    assert [(one.index, one.first_layer, one.layers) for one in told.stages] == [
        (0, 0, 1),
        (1, 1, 1),
        (2, 2, 1),
    ]
    assert len(target.report.stages) == 3


def test_a_timeline_is_sent_to_whoever_asks() -> None:
    target = asked()
    target.run()
    target.inbox.append(AskTimeline())
    target.engine.step()
    assert target.timelines == [Timeline()]  # these stages look at no clock


def test_a_lost_group_costs_no_token() -> None:
    target = asked()
    target.run(until=lambda: len(target.texts[0]) >= ANSWER // 2)
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    assert target.groups[-1].detail == GONE
    target.stages.missing = ""
    target.run(steps=1_000_000)
    assert_true(target)
    assert target.groups[-1].up
    assert target.groups[-1].losses == 1
    assert len(target.stages.lives) > 1


def test_growth_for_a_sequence_that_waits_for_its_group_is_taken() -> None:
    target = asked()
    target.run(until=lambda: len(target.texts[0]) >= ANSWER // 2)
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    assert target.grow_all(), "no session is open"
    target.engine.step()
    assert not target.engine.group.up, "it came while the group was gone"
    target.stages.missing = ""
    target.run(steps=1_000_000)
    assert_true(target)


def test_a_text_that_is_computed_again_says_nothing_of_drafting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[float] = []

    def count(self: PipelinedDraftControl, plain: float, *_: object) -> float:
        counted.append(plain)
        return 0.0

    monkeypatch.setattr(PipelinedDraftControl, "count", count)
    monkeypatch.setattr(PipelinePlanner, "round_trip", 0.01)
    monkeypatch.setattr(PipelinePlanner, "plain_seconds", lambda self, sequences: 0.01)
    target = Target()
    target.link_draft()
    number = target.submit([1, 2, 3] * 90, ANSWER)
    target.run(until=lambda: len(target.texts[number]) >= ANSWER // 2)
    assert counted
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    target.stages.missing = ""
    counted.clear()
    before = find(target.leader, number)
    length = before.length
    target.run(steps=1_000_000, until=lambda: before.length > length)
    assert counted == []
    target.run()
    assert target.texts[number] == target.truth(number)
    assert counted


def test_what_no_longer_fits_ends_when_stages_come_back_smaller() -> None:
    target = Target()
    large = target.submit([1, 2, 3] * 60, ANSWER)
    small = target.submit(PROMPTS[0], ANSWER)
    target.run(until=lambda: len(target.texts[small]) >= 4 and len(target.texts[large]) >= 4)
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    target.blocks, target.stages.rows, target.stages.missing = 4, 8, ""
    target.run(steps=1_000_000)
    assert target.finished[large].finish is Finish.FAILED
    assert "came back with less room" in target.finished[large].detail
    assert target.texts[large] == target.truth(large)[: len(target.texts[large])]
    assert target.texts[small] == target.truth(small)
    assert target.leader.plan.rows + target.leader.plan.prompt_rows <= 8


def test_while_the_group_is_down_nothing_is_sent_and_a_cancelled_request_ends() -> None:
    target = asked()
    target.run(until=lambda: len(target.texts[0]) >= 4)
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    target.inbox.append(Cancel(0))
    target.engine.step()
    assert target.finished[0].finish is Finish.CANCELLED
    assert target.texts[0] == target.truth(0)[: len(target.texts[0])]
    assert target.waits[-1] is not None
    assert target.report.waiting == len(PROMPTS) - 1


@pytest.mark.parametrize("missing", [True, False])
def test_a_request_that_never_started_learns_whether_a_stage_is_missing(missing: bool) -> None:
    target = Target()
    target.submit(PROMPTS[0], ANSWER)
    target.submit(PROMPTS[2], ANSWER)
    target.run(until=lambda: all(target.texts.values()))  # as many as may run
    if missing:
        target.stages.lose(GONE)
        target.run(until=lambda: not target.engine.group.up)
    late = target.submit(PROMPTS[1], ANSWER, start_by=0.0)
    target.engine.step()
    finished = target.finished[late]
    if missing:
        assert (finished.finish, finished.detail) == (Finish.STAGES_MISSING, GONE)
    else:
        assert finished.finish is Finish.EXPIRED


def test_a_lost_draft_costs_no_token() -> None:
    target = asked()
    target.run(until=lambda: len(target.texts[0]) >= ANSWER // 2)
    target.inbox.append(LinkDown(LINK))
    target.run()
    assert_true(target)


def test_a_policy_without_drafts_sends_no_node_rows() -> None:
    target = Target()
    target.link_draft()
    target.submit(PROMPTS[0], ANSWER)
    target.run(until=lambda: len(target.texts[0]) >= ANSWER // 2)
    target.inbox.append(SetPolicy(PolicySettings(version=1, speculate=False)))
    target.engine.step()
    leader = target.leader
    sequence = find(leader, 0)
    rows = sum(sequence.source_rows)
    assert rows > 0
    target.run()
    assert sum(sequence.source_rows) == rows
    assert target.texts[0] == target.truth(0)


@pytest.mark.parametrize(("stages", "draft"), [(1, False), (3, True)])
def test_the_text_is_searched_with_a_draft_and_without(stages: int, draft: bool) -> None:
    target = Target(stages, WITH_TEXT)
    if draft:
        target.link_draft()
    for number, prompt in enumerate(PROMPTS):
        target.submit(prompt, LONG, temperature=0.5 * number, seed=number)
    target.run(steps=20_000)
    for number in target.requests:
        assert target.texts[number] == target.truth(number)
    counters = target.report.counters
    rows, accepted = (
        dict(zip(SOURCES, counts, strict=True))
        for counts in (counters.source_rows, counters.source_accepted)
    )
    assert rows[SourceKind.SUFFIX] >= accepted[SourceKind.SUFFIX] > 0
    assert (accepted[SourceKind.DRAFT] > 0) == draft
    assert sum(rows.values()) == counters.draft_rows
    assert sum(accepted.values()) == counters.accepted_rows
    assert counters.first_guesses == 0 or draft, "the draft alone is judged by them"


@pytest.mark.parametrize(("stages", "draft"), [(1, False), (3, True)])
@pytest.mark.parametrize("right", [0.0, 0.9, 1.0])
def test_a_prediction_changes_no_text(stages: int, draft: bool, right: float) -> None:
    truth = Target(stages)
    target = Target(stages, PolicySettings(off_below_percent=0))
    if draft:
        target.link_draft()
    rng = random.Random(0)
    for number, prompt in enumerate(PROMPTS):
        sampling = {"temperature": 0.5 * number, "seed": number}
        text = truth.truth(truth.submit(prompt, ANSWER, **sampling))
        prediction = [token if rng.random() < right else (token + 5) % 12 for token in text]
        target.submit(prompt, ANSWER, prediction=prediction, **sampling)
    target.run(steps=20_000)
    assert_true(target)
    usages = [one.usage for one in target.finished.values()]
    accepted = sum(one.accepted_prediction_tokens for one in usages)
    assert accepted == target.report.counters.source_accepted[PREDICTION]
    assert accepted > 2 * ANSWER * (right - 0.5)
    assert sum(one.prediction_tokens for one in usages) == len(PROMPTS) * ANSWER


def test_a_text_is_searched_on_after_its_stages_were_lost() -> None:
    target = Target(2, WITH_TEXT)
    number = target.submit(PROMPTS[1], LONG)
    target.run(until=lambda: len(target.texts[number]) >= LONG // 3)
    target.stages.lose(GONE)
    target.run(until=lambda: not target.engine.group.up)
    target.stages.missing = ""
    before = target.report.counters.source_rows
    target.run(steps=1_000_000)
    assert target.texts[number] == target.truth(number)
    assert target.report.counters.source_rows[SUFFIX] > before[SUFFIX]


def test_a_draft_that_rests_leaves_the_text_its_rows() -> None:
    target = Target(2, WITH_TEXT)
    target.link_draft()
    number = target.submit(PROMPTS[0], LONG)
    target.run(until=lambda: len(target.texts[number]) >= LONG // 3)
    off = dataclasses.replace(WITH_TEXT, version=1, sources=(SourceKind.SUFFIX,))
    target.inbox.append(SetPolicy(off))
    target.engine.step()
    sequence = find(target.leader, number)
    before = list(sequence.source_rows)
    target.run(steps=20_000)
    assert target.texts[number] == target.truth(number)
    assert sequence.source_rows[DRAFT] == before[DRAFT]
    assert sequence.source_rows[SUFFIX] > before[SUFFIX]


def test_a_request_that_wants_no_speculation_has_no_text_searched() -> None:
    target = Target(2, WITH_TEXT)
    number = target.submit(PROMPTS[1], LONG)
    target.inbox[-1] = dataclasses.replace(target.inbox[-1], speculate=False)
    target.run(steps=20_000)
    assert target.texts[number] == target.truth(number)
    assert target.report.counters.draft_rows == 0


def test_a_request_that_fits_no_stage_ends_with_the_reason() -> None:
    target = Target()
    number = target.submit([1] * 500, 5000)
    target.engine.step()
    assert target.finished[number].finish is Finish.FAILED
    assert "max_tokens: 5000 is not allowed" in target.finished[number].detail


def test_a_request_that_takes_its_stages_down_ends_after_three_losses_and_others_go_on() -> None:
    target = Target()
    for prompt in ([1, 2, 3], [POISON, 5, 6], [8, 9]):
        target.submit(prompt, ANSWER)
    target.stages.poisoned = lambda rows: bool(
        ((rows.tokens == POISON) & (rows.positions == 0)).any()
    )
    target.run(steps=1_000_000)
    assert target.finished[1].finish is Finish.FAILED
    assert target.finished[1].detail == GIVEN_UP.format(
        losses=3, reason="stage 1: it failed: poison"
    )
    assert target.texts[1] == []
    for other in (0, 2):
        assert target.texts[other] == target.truth(other)
        assert target.finished[other].finish is Finish.LENGTH
    assert len(target.stages.company) == 3
    assert target.stages.company[-1] == 1, "it ran alone"


@pytest.mark.parametrize("draft", [True, False])
def test_a_request_that_takes_its_stages_down_late_has_its_tokens_up_to_there(draft: bool) -> None:
    target = asked(draft=draft)
    target.stages.poisoned = lambda rows: bool((rows.positions == 50).any())
    target.run(steps=1_000_000)
    assert target.finished[1].finish is Finish.FAILED
    assert "it failed: poison" in target.finished[1].detail
    text = target.texts[1]
    assert text == target.truth(1)[: len(text)]
    assert 0 < len(text) <= 50 - len(PROMPTS[1]) + 1
    for other in (0, 2):
        assert target.texts[other] == target.truth(other)


def test_trees_are_learned_as_they_are_when_their_rows_leave_once_no_record_waits() -> None:
    seen: list[int] = []

    class Watched(PipelinePlanner):
        def saw_tree(self, sequence: PipelinedSequence) -> None:
            assert not target.leader.outgoing
            assert sequence.kv.decodes
            assert any(row.sampled is None for row in sequence.kv.live_rows())
            seen.append(len(sequence.mirror))
            super().saw_tree(sequence)

    target = asked(planning=Watched)
    target.run()
    assert_true(target)
    assert sum(nodes > 0 for nodes in seen) > ANSWER
