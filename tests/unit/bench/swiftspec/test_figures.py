"""What delays cost, who was idle, and which texts differ, by arithmetic."""

from dataclasses import replace
from typing import Any

import pytest

from bench.swiftspec.answer import COLOCATED, LOCK_STEP, MIRRORED, Answer
from bench.swiftspec.figures import (
    Figures,
    busy,
    by_side,
    differing,
    figures,
    ratios,
    verdicts,
)
from bench.swiftspec.sides import answer_of
from outrider.contract.state import TimelineSpan

ANSWER = Answer(
    token_ids=(1, 2, 3, 4, 5),
    tokens=4,
    passes=2,
    began=10.0,
    ended=12.0,
    commits=2,
    fall_ins=1,
    target=(
        TimelineSpan("target", 0, 9.5, 9.5, 10.5, 4),
        TimelineSpan("target", 1, 11.0, 11.0, 12.0, 4),
    ),
    draft=(
        TimelineSpan("draft", 0, 10.0, 10.0, 10.5, 3),
        TimelineSpan("draft", 1, 11.5, 11.5, 12.5, 5),
    ),
    draft_commits=2,
    draft_fall_ins=2,
    recomputed=6,
    messages=8,
    bytes=400,
)


def with_rate(figures: Figures, share: float, fall_ins: float = 0.5) -> Figures:
    return replace(
        figures,
        tokens_per_second=share * figures.tokens_per_second,
        milliseconds_per_step=figures.milliseconds_per_step / share,
        draft_fall_ins=fall_ins,
    )


def test_passes_count_only_within_their_answer() -> None:
    assert busy(ANSWER.target, ANSWER) == 1.5
    assert busy(ANSWER.draft, ANSWER) == 1.0


def test_figures_are_sums_over_answers() -> None:
    other = replace(ANSWER, tokens=2, ended=11.0, target=(), draft=())
    found = figures([ANSWER, other], [ANSWER, replace(other, tokens=4)])
    assert found.tokens_per_second == 6 / 3
    assert found.tokens_per_pass == 6 / 4
    assert found.milliseconds_per_step == 3000 / 4
    assert (found.fall_ins, found.draft_fall_ins) == (0.5, 1.0)
    assert (found.target_idle, found.draft_idle) == (0.5, 1 - 1.0 / 3)
    assert (found.draft_passes_per_pass, found.draft_rows_per_pass) == (2 / 4, 8 / 4)
    assert (found.messages_per_token, found.bytes_per_token) == (16 / 6, 800 / 6)
    assert found.recomputed_per_pass == 12 / 4
    assert (found.over_mirrored.low, found.over_mirrored.high) == (0.5, 1.0)


def near_and_far(mirrored: float, lock_step_ms: float, fall_ins: float = 0.5) -> list[bool]:
    """Whether each claim holds; a step takes a second, the round trip 200 ms."""
    near = by_side({MIRRORED: [ANSWER], LOCK_STEP: [ANSWER]})
    step = near[LOCK_STEP].milliseconds_per_step
    far = {
        MIRRORED: with_rate(near[MIRRORED], mirrored, fall_ins),
        LOCK_STEP: with_rate(near[LOCK_STEP], step / (step + lock_step_ms)),
    }
    return [one.had for one in verdicts({0.0: near, 100.0: far})]


@pytest.mark.parametrize(
    ("rate", "fall_ins", "had"),
    [(0.88, 0.5, True), (0.86, 0.5, False), (0.86, 0.4, True), (0.975, 1.0, True)],
)
def test_the_mirrored_tree_may_lose_a_round_trip_for_each_fall_out(
    rate: float, fall_ins: float, had: bool
) -> None:
    assert near_and_far(rate, 200, fall_ins)[0] is had


@pytest.mark.parametrize(("longer", "had"), [(200, True), (191, True), (180, False)])
def test_lock_step_loses_a_round_trip_in_each_step(longer: float, had: bool) -> None:
    assert near_and_far(1.0, longer)[1] is had


def test_texts_differ_where_one_prompt_has_two() -> None:
    assert differing([(0, [1, 2]), (1, [3]), (0, (1, 2)), (1, [3])]) == []
    assert differing([(0, [1, 2]), (1, [3]), (0, [1, 3]), (1, [3])]) == [0]


def test_ratios_are_to_the_mirrored_tree_and_to_the_link_without_delay() -> None:
    near = by_side({COLOCATED: [ANSWER], MIRRORED: [ANSWER]})
    far = {MIRRORED: with_rate(near[MIRRORED], 0.7)}
    found = ratios(8, near, {0.0: near, 5.0: far})
    assert found == {
        "Colocated_over_mirrored_8x": 1.0,
        "mirrored_5ms_over_0ms_8x": pytest.approx(0.7),
    }


def test_what_both_processes_said_is_one_answer() -> None:
    said: dict[str, Any] = {
        "token_ids": [1, 2],
        "tokens": 1,
        "passes": 1,
        "began": 1.0,
        "ended": 2.0,
        "commits": 1,
        "fall_ins": 0,
        "spans": [["target", 0, 1.0, 1.0, 1.5, 2], ["draft", 1, 1.5, 1.5, 2.0, 3]],
        "messages": 2,
        "bytes": 20,
    }
    colocated = answer_of(said, {})
    assert (len(colocated.target), len(colocated.draft), colocated.draft_commits) == (1, 1, 0)
    beside = {"spans": said["spans"][1:], "commits": 1, "fall_ins": 1, "recomputed": 4}
    both = answer_of(said | {"spans": said["spans"][:1]}, beside | {"messages": 3, "bytes": 5})
    assert (both.messages, both.bytes, both.draft_fall_ins, both.recomputed) == (5, 25, 1, 4)
    assert both.draft == colocated.draft
