"""What the bench of planners makes of loads, sides and outcomes; nothing large is simulated."""

import dataclasses

import numpy as np
import pytest

from bench.nightjar.figures import best_fixed, ratios
from bench.nightjar.loads import (
    AT_ONCE,
    PAIRS,
    Load,
    Side,
    bandit,
    described,
    goodput,
    loads_of,
    oracle,
    sides,
    static,
)
from bench.nightjar.real import Figures, compared, of_side, status
from bench.nightjar.run import Outcome, covered, until_answered
from bench.record.report import median_and_range
from bench.sides.services import SERVICE
from outrider.cli.service.file import read_service
from outrider.operator.spec.speculation import Proposer, SpeculationMode
from outrider.simulator.service import policy_of
from outrider.worker.speculation.planner import NO_CANDIDATES

LOAD = Load("3", {"stages": [{"rate": 50, "requests": 3}]}, 3)
PLAIN = Outcome(100.0, 120.0, 2.0, 4.0, 0.1, 1.0, {})


def test_the_oracle_has_an_entry_where_the_best_number_changes() -> None:
    side = oracle({1: 5, 2: 5, 4: 2, 8: 0, 16: 0})
    assert side.make is not None
    planner = side.make()
    costs, none = np.linspace(0.01, 0.02, 600), NO_CANDIDATES
    assert [
        (planner.plan([none] * running, costs, 16), planner.awaited)[1]
        for running in (1, 3, 4, 7, 8, 30)
    ] == [5, 5, 2, 2, 0, 0]


@pytest.mark.parametrize("pair", PAIRS)
def test_every_side_of_every_pair_and_load_can_be_simulated(pair: str) -> None:
    for load in loads_of(pair):
        for side in sides({1: 3, 8: 0}):
            simulation = described(pair, side, load.traffic)
            assert max(AT_ONCE) == simulation.target.max_running
            policy = policy_of(simulation)
            assert policy.speculate == (side != static(0))
            assert (policy.off_below_percent == 0) == (side.name != "goodput")
            stages = simulation.traffic.stages or []
            assert sum(stage.requests for stage in stages) in (load.requests, 0)


@pytest.mark.parametrize("side", [static(0), static(3), bandit(), goodput()], ids=lambda s: s.name)
def test_a_run_ends_with_the_last_answer(side: Side) -> None:
    found = until_answered(described("13b", side, LOAD.traffic), side, LOAD.requests)
    assert 0 < found.mean_seconds <= found.p99_seconds
    assert found.busy_tokens_per_second >= 0.999 * found.tokens_per_second > 0
    assert (found.off_share == 1) == (side == static(0))
    assert sum(found.choices.values()) > 0


def test_a_run_in_which_a_request_has_no_whole_answer_is_none() -> None:
    crowd = {"stages": [{"rate": 1000, "requests": 4}]}
    simulation = described("13b", static(0), crowd, maxRunning=1, maxQueueSeconds=1)
    with pytest.raises(RuntimeError, match="2 of 4 requests were answered in full"):
        until_answered(simulation, static(0), 4)


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


def test_on_the_real_pair_sides_are_compared_with_plain_decoding() -> None:
    found = compared({16: {"off": real(1.0), "goodput": real(0.98)}})
    assert found == {"goodput_vs_plain_16": pytest.approx(0.98)}


def test_on_the_real_pair_a_text_that_differs_is_a_failure() -> None:
    assert status({1: {"off": real(1.0), "goodput": real(1.1)}}) == 0
    assert status({1: {"off": real(1.0)}, 2: {"goodput": real(1.1, same_text=0.99)}}) == 1


def test_a_service_is_as_its_side_wants_it() -> None:
    own = read_service(SERVICE).spec.speculation
    for side, mode in ((static(0), SpeculationMode.DISABLED), (goodput(), own.mode)):
        speculation = of_side(read_service(SERVICE), side).spec.speculation
        assert (speculation.mode, speculation.sources) == (mode, (Proposer.DRAFT,))
        assert speculation.nodes_ahead == own.nodes_ahead
