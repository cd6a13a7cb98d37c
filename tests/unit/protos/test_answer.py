"""The figures that people are shown are computed from usage and timing in one place."""

import pytest

from outrider.client import FinishReason, Result, Timing, Usage

FIGURES = ("tokens_per_second", "tokens_per_pass", "hit_rate", "gain", "draft_share")


def result(usage: Usage, timing: Timing) -> Result:
    return Result(
        text="", token_ids=(), finish_reason=FinishReason.STOP, usage=usage, timing=timing, seed=0
    )


def test_figures_are_ratios_of_what_was_counted() -> None:
    usage = Usage(
        completion_tokens=41, passes=20, first_guesses=16, first_hits=12, passes_with_nodes=18
    )
    answer = result(usage, Timing(decode_seconds=2.0, plain_seconds=3.0))
    assert [getattr(answer, name) for name in FIGURES] == [20.0, 2.0, 0.75, 1.5, 0.9]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_with_nothing_to_divide_by_is_none(figure: str) -> None:
    assert getattr(result(Usage(completion_tokens=1), Timing()), figure) is None
