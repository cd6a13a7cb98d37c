"""Arithmetic of `bench.lending`."""

from dataclasses import replace

import pytest

from bench.lending import KEPT, LENT, NONE, Figures, compared, share_lent, status
from bench.report import median_and_range
from outrider.client import Memory

FIGURES = Figures(median_and_range([1.0]), 0.5, expansions=0, more_kv=0.0)


def test_sides_are_compared_by_turns_of_the_same_round() -> None:
    ratios = compared({NONE: [100.0, 50.0], LENT: [110.0, 60.0], KEPT: [100.0, 40.0]})
    assert ratios["lent_vs_kept"].low == pytest.approx(1.1)
    assert ratios["lent_vs_kept"].high == pytest.approx(1.5)
    assert ratios["kept_vs_no_draft"].low == pytest.approx(0.8)


def test_a_run_in_which_nothing_was_lent_has_measured_nothing() -> None:
    assert status({LENT: FIGURES}) == 1
    assert status({LENT: replace(FIGURES, expansions=2)}) == 0


@pytest.mark.parametrize(("draft", "target_kv"), [("on_device", 300), ("on_host", 400)])
def test_the_share_is_that_of_the_targets_own_memory(draft: str, target_kv: int) -> None:
    memory = Memory(
        draft=draft,
        target_kv_bytes=target_kv,
        draft_kv_bytes=0,
        draft_weight_bytes=0,
        lendable_bytes=100,
        expansions=0,
        contractions=0,
        moved_blocks=0,
    )
    assert share_lent(memory) == pytest.approx(1 / 3)
