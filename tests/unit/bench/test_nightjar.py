"""What the bench of planners makes of loads, sides and outcomes; nothing large is simulated."""

import dataclasses

import pytest

from bench.nightjar_figures import best_fixed, ratios
from bench.nightjar_loads import (
    AT_ONCE,
    PAIRS,
    Load,
    bandit,
    described,
    goodput,
    loads_of,
    oracle,
    sides,
    static,
)
from bench.nightjar_real import Figures, compared, of_side, status
from bench.nightjar_run import Outcome, covered, until_answered
from bench.report import median_and_range
from bench.sides import SERVICE
from outrider.cli.service_file import read_service
from outrider.operator.spec.speculation import Planner
from outrider.simulator.service import policy_of

LOAD = Load("3", {"stages": [{"rate": 50, "requests": 3}]}, 3)
PLAIN = Outcome(100.0, 120.0, 2.0, 4.0, 0.1, 1.0, {})


def test_the_oracle_has_an_entry_where_the_best_number_changes() -> None:
    side = oracle({1: 5, 2: 5, 4: 2, 8: 0, 16: 0})
    assert side.speculation["staticTable"] == [
        {"first": 1, "last": 3, "draftTokens": 5},
        {"first": 4, "last": 7, "draftTokens": 2},
        {"first": 8, "draftTokens": 0},
    ]


@pytest.mark.parametrize("pair", PAIRS)
def test_every_side_of_every_pair_and_load_can_be_simulated(pair: str) -> None:
    for load in loads_of(pair):
        for side in sides({1: 3, 8: 0}):
            simulation = described(pair, side, load.traffic)
            assert max(AT_ONCE) == simulation.target.max_running
            assert policy_of(simulation).planner.value == side.name.split()[0].replace(
                "oracle", "static"
            )
            stages = simulation.traffic.stages or []
            assert sum(stage.requests for stage in stages) in (load.requests, 0)


@pytest.mark.parametrize("side", [static(0), static(3), bandit(), goodput()], ids=lambda s: s.name)
def test_a_run_ends_with_the_last_answer(side: object) -> None:
    found = until_answered(described("13b", side, LOAD.traffic), LOAD.requests)  # type: ignore[arg-type]
    assert 0 < found.mean_seconds <= found.p99_seconds
    assert found.busy_tokens_per_second >= 0.999 * found.tokens_per_second > 0
    assert (found.off_share == 1) == (side == static(0))
    assert sum(found.choices.values()) > 0


def test_a_run_in_which_a_request_has_no_whole_answer_is_none() -> None:
    crowd = {"stages": [{"rate": 1000, "requests": 4}]}
    simulation = described("13b", static(0), crowd, maxRunning=1, maxQueueSeconds=1)
    with pytest.raises(RuntimeError, match="2 of 4 requests were answered in full"):
        until_answered(simulation, 4)


def test_seconds_with_a_request_are_counted_once() -> None:
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == pytest.approx(4.0)


def outcomes(**rates: float) -> dict[str, Outcome]:
    return {
        name.replace("_", " "): dataclasses.replace(PLAIN, tokens_per_second=rate)
        for name, rate in rates.items()
    }


def test_ratios_are_to_plain_decoding_and_to_the_best_of_each_load() -> None:
    low = outcomes(off=100, static_1=120, static_5=150, bandit=130, goodput=147, oracle=150)
    high = outcomes(off=100, static_1=90, static_5=50, bandit=80, goodput=98, oracle=100)
    assert (best_fixed(low), best_fixed(high)) == ("static 5", "off")
    found = ratios({"7b": {"low": low, "high": high}})
    assert found["goodput_vs_off_mean"] == pytest.approx((1.47 + 0.98) / 2)
    assert found["goodput_vs_best_static_least"] == pytest.approx(0.98)
    assert found["goodput_vs_bandit_least"] == pytest.approx(147 / 130)
    assert found["static_5_regret_most"] == pytest.approx(0.5)


def real(over_plain: float, same_text: float = 1.0) -> Figures:
    one = median_and_range([over_plain])
    return Figures(one, one, 1.0, 2.0, 0.5, same_text)


def test_on_the_real_pair_plain_decoding_counts_among_the_best() -> None:
    found = compared(
        {16: {"off": real(1.0), "static 3": real(0.7), "bandit": real(0.9), "goodput": real(0.98)}}
    )
    assert found["goodput_vs_best_static_16"] == pytest.approx(0.98)
    assert found["static_3_vs_plain_16"] == pytest.approx(0.7)
    found = compared({1: {"off": real(1.0), "bandit": real(1.1), "goodput": real(1.2)}})
    assert found["goodput_vs_best_static_1"] == pytest.approx(1.2), "fixed numbers may be left out"


def test_on_the_real_pair_a_text_that_differs_is_a_failure() -> None:
    assert status({1: {"off": real(1.0), "bandit": real(1.1)}}) == 0
    assert status({1: {"off": real(1.0)}, 2: {"bandit": real(1.1, same_text=0.99)}}) == 1


def test_a_service_gets_the_planner_of_its_side() -> None:
    speculation = of_side(read_service(SERVICE), static(3)).spec.speculation
    assert speculation.planner is Planner.STATIC
    assert speculation.static_table is not None
    assert speculation.static_table[0].draft_tokens == 3
    assert speculation.nodes_ahead == read_service(SERVICE).spec.speculation.nodes_ahead
