"""What each arrangement is expected to give, with step costs of made-up machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.estimate import (
    Curve,
    Expected,
    Machine,
    StepCosts,
    arrangements,
    best,
    best_plain,
    each_placement,
    expected,
    levels_reached,
)
from outrider.operator.spec import Placement

BOTH = frozenset({Placement.COLOCATED, Placement.SEPARATE})
DEMO = 0.45
"""Share of the demo draft's first guesses that are right."""
TWO_CORES = Machine(processors=2)


def curve(**milliseconds: float) -> Curve:
    return Curve({int(rows[1:]): 1e-3 * ms for rows, ms in milliseconds.items()})


def scaled(one: Curve, factor: float) -> Curve:
    return Curve({rows: factor * s for rows, s in one.seconds_by_rows.items()})


ZEN5_TARGET = {
    1: curve(r1=4.06, r2=4.18, r4=4.57, r8=5.46, r16=9.44, r32=15.9, r64=29.1),
    2: curve(r1=3.43, r2=3.43, r4=3.48, r8=3.92, r16=5.75, r32=9.0, r64=15.7),
}
"""Measured on two Zen 5 processors with VNNI (bench/results/speculation.json)."""
ZEN5_DRAFT = {1: curve(r1=0.42, r2=0.45, r4=0.46, r8=0.50, r16=0.92, r64=3.6)}
AVX2_TARGET = {
    1: curve(r1=19.6, r2=21.0, r4=29.4, r8=71.6, r16=154.0, r64=670.0),
    2: curve(r1=8.3, r2=9.8, r4=14.7, r8=35.8, r16=77.0, r64=335.0),
}
"""Measured on two processors with AVX2 alone, before rows were cheap there."""
AVX2_DRAFT = {1: curve(r1=1.7, r2=2.5, r8=9.0, r16=18.0)}
GPU_TARGET = {1: curve(r1=4.7, r16=4.9, r64=6.5)}
GPU_DRAFT = {1: curve(r1=0.9, r8=0.9, r16=1.0)}


def taken(
    costs: StepCosts,
    machine: Machine,
    acceptance: float = DEMO,
    allowed: frozenset[Placement] = BOTH,
) -> Arrangement:
    return best(expected(costs, machine, allowed, acceptance)).arrangement


def over_plain(costs: StepCosts, machine: Machine, acceptance: float = DEMO) -> dict[str, float]:
    found = expected(costs, machine, BOTH, acceptance)
    plain = best_plain(found).tokens_per_second
    return {
        str(e.arrangement.placement): e.tokens_per_second / plain for e in each_placement(found)
    }


def test_two_processors_with_vnni_draft_in_one_process_on_both_threads() -> None:
    costs = StepCosts(ZEN5_TARGET, ZEN5_DRAFT)
    assert taken(costs, TWO_CORES) == Arrangement(Placement.COLOCATED, 2)


def test_what_is_expected_of_two_processors_is_what_they_gave() -> None:
    ratios = over_plain(StepCosts(ZEN5_TARGET, ZEN5_DRAFT), TWO_CORES)
    assert ratios["Colocated"] == pytest.approx(1.17, rel=0.1)
    assert ratios["Separate"] == pytest.approx(0.99, rel=0.1)


def test_a_draft_inside_its_target_has_its_threads_as_far_as_they_are_measured() -> None:
    target = {n: ZEN5_TARGET[2] for n in (1, 2, 3, 8)}
    draft = {n: scaled(ZEN5_DRAFT[1], 1 / n) for n in (1, 2, 4)}
    found = expected(StepCosts(target, draft), Machine(processors=8), BOTH, DEMO)
    rates = {
        e.arrangement.threads: e.tokens_per_second
        for e in found
        if e.arrangement.placement is Placement.COLOCATED
    }
    assert rates[1] < rates[2] == rates[3] < rates[8]


@pytest.mark.parametrize("acceptance", [0.1, DEMO])
def test_dear_rows_and_a_slow_draft_mean_no_draft_and_the_best_threads(acceptance: float) -> None:
    costs = StepCosts(AVX2_TARGET, AVX2_DRAFT)
    assert taken(costs, TWO_CORES, acceptance) == Arrangement(None, 2)


def test_cheap_rows_on_the_same_machine_make_a_draft_pay() -> None:
    target = AVX2_TARGET | {2: curve(r1=8.3, r2=8.8, r4=10.0, r8=14.0, r64=110.0)}
    draft = {1: curve(r1=0.8, r2=0.9, r8=2.0)}
    assert taken(StepCosts(target, draft), TWO_CORES) == Arrangement(Placement.COLOCATED, 2)


def test_a_target_many_times_its_draft_on_many_processors_takes_two_processes() -> None:
    target = {n: scaled(ZEN5_TARGET[2], f) for n, f in ((15, 10.1), (16, 10.0))}
    one = taken(StepCosts(target, ZEN5_DRAFT), Machine(processors=16), acceptance=0.75)
    assert one == Arrangement(Placement.SEPARATE, 15, 1)


def test_one_gpu_is_never_shared_by_two_workers() -> None:
    costs = StepCosts(GPU_TARGET, GPU_DRAFT)
    one_gpu = Machine(processors=16, gpus=1, target_gpus=1, draft_gpus=1)
    assert taken(costs, one_gpu) == Arrangement(Placement.COLOCATED, 1)
    placements = {one.placement for one in arrangements(costs, one_gpu, BOTH)}
    assert placements == {None, Placement.COLOCATED}
    assert taken(costs, one_gpu, acceptance=0.02) == Arrangement(None, 1)


def test_two_gpus_take_a_worker_each() -> None:
    two_gpus = Machine(processors=16, gpus=2, target_gpus=1, draft_gpus=1)
    one = taken(StepCosts(GPU_TARGET, GPU_DRAFT), two_gpus, acceptance=0.7)
    assert one == Arrangement(Placement.SEPARATE, 1, 1)


def test_a_target_over_all_gpus_leaves_none_for_a_draft_s_process() -> None:
    costs = StepCosts(GPU_TARGET, GPU_DRAFT)
    machine = Machine(processors=16, gpus=2, target_gpus=2, draft_gpus=1)
    assert Placement.SEPARATE not in {one.placement for one in arrangements(costs, machine, BOTH)}


def test_a_draft_on_the_cpu_runs_beside_a_target_on_the_only_gpu() -> None:
    machine = Machine(processors=2, gpus=1, target_gpus=1, draft_gpus=0)
    found = set(arrangements(StepCosts(GPU_TARGET, GPU_DRAFT | {2: GPU_DRAFT[1]}), machine, BOTH))
    assert Arrangement(Placement.SEPARATE, 1, 1) in found
    assert Arrangement(Placement.SEPARATE, 1, 2) not in found, "the target's host needs one"


@pytest.mark.parametrize("processors", [1, 2, 4, 8])
def test_threads_of_two_processes_never_outnumber_the_processors(processors: int) -> None:
    target = {n: ZEN5_TARGET[1] for n in range(1, processors + 1)}
    draft = {n: ZEN5_DRAFT[1] for n in (1, 2, 4)}
    found = list(arrangements(StepCosts(target, draft), Machine(processors), BOTH))
    beside = [one for one in found if one.placement is Placement.SEPARATE]
    assert all(one.threads + one.draft_threads <= processors for one in beside)
    assert bool(beside) == (processors > 1)


@pytest.mark.parametrize(
    ("machine", "threads"),
    [
        (Machine(processors=2), {1, 2}),
        (Machine(processors=1), {1}),
        (Machine(processors=1, gpus=1, target_gpus=1), {1, 2}),
    ],
)
def test_a_target_has_no_more_threads_than_its_share_of_processors(
    machine: Machine, threads: set[int]
) -> None:
    found = list(arrangements(StepCosts(ZEN5_TARGET, ZEN5_DRAFT), machine, BOTH))
    for placement in (None, Placement.COLOCATED):
        assert {one.threads for one in found if one.placement is placement} == threads


def test_threads_that_were_asked_for_are_kept_however_few_processors_there_are() -> None:
    found = list(arrangements(StepCosts({8: ZEN5_TARGET[1]}, {}), TWO_CORES, BOTH))
    assert found == [Arrangement(None, 8)]


@pytest.mark.parametrize("allowed", [frozenset(), frozenset({Placement.SEPARATE})])
def test_placements_that_the_service_excludes_are_not_taken(allowed: frozenset[Placement]) -> None:
    costs = StepCosts(ZEN5_TARGET, ZEN5_DRAFT)
    found = {one.placement for one in arrangements(costs, TWO_CORES, allowed)}
    assert found == {None, *allowed}


def test_a_service_without_a_draft_decodes_plainly_with_the_threads_that_are_fastest() -> None:
    assert taken(StepCosts(AVX2_TARGET, {}), TWO_CORES) == Arrangement(None, 2)


def test_a_draft_that_the_service_keeps_is_placed_where_it_costs_least() -> None:
    found = expected(StepCosts(AVX2_TARGET, AVX2_DRAFT), TWO_CORES, BOTH, DEMO)
    kept = best(found, keeps_draft=True).arrangement
    assert kept.placement is not None
    assert best(found).arrangement.placement is None
    plain = expected(StepCosts(AVX2_TARGET, {}), TWO_CORES, BOTH, DEMO)
    assert best(plain, keeps_draft=True).arrangement.placement is None


def test_threads_that_gain_nothing_are_left_to_others() -> None:
    target = {1: curve(r1=4.0), 2: curve(r1=3.99)}
    assert taken(StepCosts(target, {}), TWO_CORES) == Arrangement(None, 1)


def test_a_draft_has_to_gain_more_than_an_estimate_may_err() -> None:
    plain = Expected(Arrangement(None, 2), 100.0)
    for rate, placement in ((102.0, None), (104.0, Placement.COLOCATED)):
        drafted = Expected(Arrangement(Placement.COLOCATED, 2), rate)
        assert best([drafted, plain]).arrangement.placement is placement


@given(
    row=st.floats(0.1, 100.0),
    slope=st.floats(0.0, 10.0),
    draft=st.floats(0.01, 50.0),
    acceptance=st.floats(0.02, 0.95),
)
def test_what_is_taken_is_never_expected_to_be_slower_than_plain_decoding(
    row: float, slope: float, draft: float, acceptance: float
) -> None:
    target = Curve({1: 1e-3 * row, 64: 1e-3 * (row + 63 * slope)})
    costs = StepCosts({1: target, 2: scaled(target, 0.6)}, {1: Curve({1: 1e-3 * draft})})
    found = expected(costs, TWO_CORES, BOTH, acceptance)
    fastest_plain = max(e.tokens_per_second for e in found if e.arrangement.placement is None)
    assert best(found).tokens_per_second >= 0.98 * fastest_plain


@given(st.floats(0.02, 0.9), st.floats(0.01, 0.05))
def test_a_better_draft_is_never_expected_to_give_less(acceptance: float, more: float) -> None:
    costs = StepCosts(ZEN5_TARGET, ZEN5_DRAFT)
    less, most = (over_plain(costs, TWO_CORES, a) for a in (acceptance, acceptance + more))
    assert most["Colocated"] >= less["Colocated"]


def test_levels_are_reached_one_below_the_other() -> None:
    assert levels_reached(0.5, 3) == pytest.approx(0.875)


def test_costs_between_and_beyond_measured_rows_lie_on_straight_lines() -> None:
    one = curve(r1=1.0, r2=2.0, r4=6.0)
    assert one.seconds(3) == pytest.approx(4e-3)
    assert one.seconds(6) == pytest.approx(10e-3)
    assert one.seconds(1) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "facts", [{}, {"rows": {}}, {"rows": {"1": 0}}, {"rows": {"x": 1}}, {"rows": 3}]
)
def test_what_is_no_cost_of_passes_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        StepCosts.of({"target": {"1": facts}})
