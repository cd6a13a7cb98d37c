"""What the bench of the simulator makes of a measured run; nothing is measured here."""

import dataclasses
import json
from pathlib import Path

import pytest

from bench import simulate_model
from bench.simulate import CORRECTIONS, compared, figures_of, simulated
from bench.simulate_model import (
    NO_MORE,
    SPREAD,
    WHOLE_TEXT,
    MoreSeconds,
    Observed,
    RowTimes,
    StepSeconds,
    described,
    fitted,
    host_time,
)
from outrider.contract.counters import new_counters
from outrider.simulator.figures import cell_figures
from outrider.simulator.run import run_cell

ROWS = RowTimes(2e-6, 25e-6)
PAIR = {"hitRate": 0.6, "spread": 1.0, "second": 0.35}


def observed(host: float, **counted: float) -> Observed:
    counters = dataclasses.replace(new_counters(), steps=100, host_seconds=100 * host, **counted)
    return Observed(10.0, (0.2,) * 50, (0.19,) * 50, (0.02,) * 50, (30, 40, 50), 64, counters)


def costs(folder: Path) -> None:
    """Write step costs of both roles, as `outrider profile` does."""
    for role, least in (("target", 0.003), ("draft", 0.0003)):
        seconds = [least, 1.5 * least, 4 * least]
        table = {"rows": [1, 16, 128], "contexts": [128, 512], "batches": [1], "prefill_share": 1.0}
        known = table | {"seconds": [[seconds, seconds]]}
        file = folder / "costs.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(found | {role: {"1": {"step_costs": known}}}))


def test_host_time_is_a_line_through_the_fewest_and_the_most_requests() -> None:
    base, each = host_time({1: observed(500e-6), 4: observed(9.0), 16: observed(2000e-6)})
    assert (base, each) == (pytest.approx(400), pytest.approx(100))


def test_acceptance_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_model, "SECONDS", 12.0)
    costs(tmp_path)
    pair = PAIR | {"spread": SPREAD, "passageShare": 0.4, "passageTokens": WHOLE_TEXT}
    runs = {1: observed(500e-6), 16: observed(2000e-6)}
    real = cell_figures(run_cell(described(1, pair, runs, ROWS, 12.0), tmp_path))
    names = ("accepted_rows", "drafted_passes", "first_hits", "first_guesses")
    runs[1] = observed(500e-6, **{name: round(real.counters[name]) for name in names})
    runs[1] = dataclasses.replace(runs[1], insides=real.latencies)
    found = fitted(runs, ROWS, tmp_path, 0.0)
    assert found["second"] == pytest.approx(0.35, abs=0.08)
    assert found["passageShare"] == pytest.approx(0.4, abs=0.35)  # of few answers


def test_time_outside_of_the_engine_is_the_servers() -> None:
    assert observed(0.0).server_seconds == pytest.approx(0.01)
    way = described(1, PAIR, {1: observed(0.0), 16: observed(0.0)}, ROWS, 1.0).target
    assert way.server_microseconds == pytest.approx(10_000)


def test_a_step_is_passes_drafting_and_host_time() -> None:
    counted = observed(100e-6, spent_seconds=1.0, drafting_seconds=0.3).step
    assert counted == StepSeconds(
        passes=pytest.approx(0.0069), drafting=pytest.approx(0.003), host=pytest.approx(0.0001)
    )


def test_a_simulated_run_ends_when_as_many_requests_have_ended(tmp_path: Path) -> None:
    costs(tmp_path)
    runs = {n: observed(500e-6, tokens=100, passes=50) for n in (1, 4, 16)}
    alone, many = (simulated(n, PAIR, runs, ROWS, tmp_path) for n in (1, 16))
    assert many.tokens_per_second > 2 * alone.tokens_per_second
    # one client: its 50 answers of 64 tokens come one after the other
    assert alone.tokens_per_second == pytest.approx(64 / alone.mean_seconds, rel=0.02)
    assert alone.step.host == pytest.approx(500e-6, rel=0.1)
    ratio = compared({1: figures_of(runs[1])}, {1: alone})["simulated_vs_measured_mean_seconds_1"]
    assert ratio == pytest.approx(alone.mean_seconds / 0.2)


def test_passes_that_take_longer_in_the_service_do_so_in_simulation(tmp_path: Path) -> None:
    costs(tmp_path)
    slow, found = MoreSeconds(target=1e-3, sequence=-1e-4, draft=3e-4), NO_MORE
    runs = {n: observed(500e-6, tokens=100, passes=50) for n in (1, 4, 16)}

    def steps(more: MoreSeconds) -> dict[int, StepSeconds]:
        return {n: simulated(n, PAIR, runs, ROWS, tmp_path, more).step for n in (1, 16)}

    real = steps(slow)
    for _ in range(CORRECTIONS):
        found = found.corrected(real, steps(found))
    near = steps(found)
    assert near[1].passes == pytest.approx(real[1].passes, rel=0.02)
    assert near[16].passes == pytest.approx(real[16].passes, rel=0.02)
    assert near[1].drafting == pytest.approx(real[1].drafting, rel=0.1)


def test_a_machine_that_varies_makes_slow_answers_slower(tmp_path: Path) -> None:
    costs(tmp_path)
    runs = {n: observed(500e-6, tokens=100, passes=50) for n in (1, 16)}
    even, uneven = (simulated(1, PAIR, runs, ROWS, tmp_path, machine=x) for x in (0.0, 0.2))
    assert uneven.p99_seconds > 1.1 * even.p99_seconds
