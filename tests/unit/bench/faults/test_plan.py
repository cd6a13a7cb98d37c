"""Plans of faults."""

from hypothesis import given
from hypothesis import strategies as st

from bench.faults.plan import CALM_SECONDS, DELAY_SECONDS, FAULT_SECONDS, Kind, plan

SEEDS = st.integers(0, 2**32)
SECONDS = st.floats(0, 2000)


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(3, 3, 600) == plan(3, 3, 600)
    assert plan(3, 3, 600) != plan(4, 3, 600)


@given(SEEDS, st.integers(1, 8), SECONDS)
def test_faults_fit_into_the_time_and_leave_no_room_for_another(
    seed: int, drafts: int, seconds: float
) -> None:
    taken = sum(fault.span for fault in plan(seed, drafts, seconds))
    longest = CALM_SECONDS[1] + FAULT_SECONDS[1]
    assert taken <= max(0.0, seconds - CALM_SECONDS[1])
    assert taken + longest > seconds - CALM_SECONDS[1]


@given(SEEDS, st.integers(1, 8), SECONDS)
def test_each_fault_is_one_of_a_draft_in_the_pool_within_bounds(
    seed: int, drafts: int, seconds: float
) -> None:
    for fault in plan(seed, drafts, seconds):
        assert 0 <= fault.draft < drafts
        assert CALM_SECONDS[0] <= fault.calm <= CALM_SECONDS[1]
        assert FAULT_SECONDS[0] <= fault.seconds <= FAULT_SECONDS[1]
        if fault.kind is Kind.DELAYED:
            assert DELAY_SECONDS[0] <= fault.delay <= DELAY_SECONDS[1]
        else:
            assert fault.delay == 0


@given(SEEDS)
def test_every_kind_comes_before_any_comes_again(seed: int) -> None:
    kinds = [fault.kind for fault in plan(seed, 3, 600)]
    for first in range(0, len(kinds) - len(Kind) + 1, len(Kind)):
        assert set(kinds[first : first + len(Kind)]) == set(Kind)
