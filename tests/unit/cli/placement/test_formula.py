"""What each arrangement gives, with passes of made-up machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.placement.formula import (
    Curve,
    Rounds,
    colocated_rate,
    parallel_rate,
    plain_rate,
    seconds,
)

DEMO = 0.45
"""Share of the demo draft's first guesses that are right."""


def curve(**milliseconds: float) -> Curve:
    return {int(rows[1:]): 1e-3 * ms for rows, ms in milliseconds.items()}


def scaled(one: Curve, factor: float) -> Curve:
    return {rows: factor * s for rows, s in one.items()}


ZEN5_TARGET = {
    1: curve(r1=4.06, r2=4.18, r4=4.57, r8=5.46),
    2: curve(r1=3.43, r2=3.43, r4=3.48, r8=3.92),
}
"""Measured by threads on two Zen 5 processors with VNNI."""
ZEN5_DRAFT = curve(r2=0.45, r8=0.50)
ZEN5_BESIDE = 1.24
"""What a busy draft does there to its target's passes."""
AVX2_TARGET = curve(r1=8.3, r2=9.8, r4=14.7, r8=35.8)
"""Measured with two threads and AVX2 alone, before rows were cheap there."""
AVX2_DRAFT = curve(r2=2.5, r8=9.0)


def test_two_zen5_processors_are_expected_to_give_what_they_gave() -> None:
    plain = plain_rate(ZEN5_TARGET[2])
    colocated = colocated_rate(Rounds(ZEN5_TARGET[2], ZEN5_DRAFT, DEMO))
    beside = Rounds(scaled(ZEN5_TARGET[1], ZEN5_BESIDE), ZEN5_DRAFT, DEMO)
    assert colocated / plain == pytest.approx(1.17, rel=0.1)
    assert parallel_rate(ZEN5_TARGET[1], beside) / plain == pytest.approx(0.99, rel=0.1)


@pytest.mark.parametrize("acceptance", [0.1, DEMO])
def test_dear_rows_and_a_slow_draft_gain_nothing(acceptance: float) -> None:
    rounds = Rounds(AVX2_TARGET, AVX2_DRAFT, acceptance)
    assert colocated_rate(rounds) < plain_rate(AVX2_TARGET)
    assert parallel_rate(AVX2_TARGET, rounds) < 1.03 * plain_rate(AVX2_TARGET)


def test_a_target_many_times_its_draft_gains_most_with_two_processes() -> None:
    target = scaled(ZEN5_TARGET[2], 10.0)
    rounds = Rounds(target, ZEN5_DRAFT, 0.75)
    assert parallel_rate(target, rounds) > colocated_rate(rounds) > plain_rate(target)


def test_a_shared_memory_bus_takes_what_two_processes_gain() -> None:
    target = scaled(ZEN5_TARGET[2], 10.0)
    quiet, busy = (
        parallel_rate(target, Rounds(scaled(target, factor), scaled(ZEN5_DRAFT, 10), 0.75))
        for factor in (1.0, 1.5)
    )
    assert busy < quiet


def test_a_round_counts_hits_and_misses_by_their_share() -> None:
    rounds = Rounds({1: 1.0 - 0.0003}, {2: 0.2, 8: 0.3}, 0.5)
    assert rounds.rate(0.0, 0, 0) == pytest.approx(1.0)
    growth = 0.2 + 0.3 + 2 * 0.0001
    assert rounds.grow(2) == pytest.approx(growth)
    assert rounds.rate(0.0, 2, 2) == pytest.approx(1.75 / (1 + growth))
    assert rounds.rate(0.5, 2, 0) == pytest.approx(1 + 0.5 * 0.75)
    assert rounds.rate(0.5, 2, 2, 0.1) == pytest.approx(1.75 / (1 + 0.5 * (growth + 0.1)))


CODER_TARGET = curve(r1=55, r2=60, r4=66.5, r8=76)
"""Qwen2.5-Coder 1.5B in four bits, two threads of a Xeon with AMX: the least of several runs."""


@pytest.mark.parametrize(
    ("draft", "acceptance", "gained"),
    [
        (curve(r2=23.4, r8=28.6), 0.96, 1.47),  # its 0.5B, code, which is right anyway
        (curve(r2=23.4, r8=28.6), 0.78, 1.13),  # chats
        (curve(r2=8.3, r8=10.4), 0.58, 1.34),  # SmolLM2-135M, chats
        (curve(r2=3.2, r8=3.4), 0.25, 1.02),  # a distilled layer, chats
    ],
)
def test_a_pair_is_expected_to_give_what_it_gave_where_the_text_does_not_help(
    draft: Curve, acceptance: float, gained: float
) -> None:
    expected = colocated_rate(Rounds(CODER_TARGET, draft, acceptance)) / plain_rate(CODER_TARGET)
    assert expected == pytest.approx(gained, rel=0.1)


@given(st.floats(0.02, 0.9), st.floats(0.01, 0.05))
def test_a_better_draft_is_never_expected_to_give_less(acceptance: float, more: float) -> None:
    for rate in (colocated_rate, lambda rounds: parallel_rate(rounds.target, rounds)):
        less, most = (
            rate(Rounds(ZEN5_TARGET[2], ZEN5_DRAFT, a)) for a in (acceptance, acceptance + more)
        )
        assert most >= less


def test_passes_between_and_beyond_measured_rows_lie_on_straight_lines() -> None:
    one = curve(r1=1.0, r2=2.0, r4=6.0)
    assert seconds(one, 3) == pytest.approx(4e-3)
    assert seconds(one, 6) == pytest.approx(10e-3)
    assert seconds(one, 1) == pytest.approx(1e-3)
