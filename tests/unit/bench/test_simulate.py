"""What the bench of the simulator makes of a measured run; nothing is measured here."""

import dataclasses
import json
from pathlib import Path

import pytest

from bench import simulate_model
from bench.simulate_model import Observed, RowTimes, described, fitted, host_time
from outrider.contract.counters import new_counters
from outrider.simulator.figures import cell_figures
from outrider.simulator.run import run_cell

ROWS = RowTimes(2e-6, 25e-6)


def observed(host: float, **counted: int) -> Observed:
    counters = dataclasses.replace(new_counters(), steps=100, host_seconds=100 * host, **counted)
    return Observed(10.0, (0.2,) * 50, (30, 40, 50), 64, counters)


def costs(folder: Path) -> None:
    """Write step costs of both roles, as `outrider profile` does."""
    for role, least in (("target", 0.003), ("draft", 0.0003)):
        seconds = [least, 1.5 * least, 4 * least]
        table = {"rows": [1, 16, 128], "contexts": [128, 512], "batches": [1], "prefill_share": 1.0}
        known = table | {"seconds": [[seconds, seconds]]}
        file = folder / "costs.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(found | {role: {"2": {"step_costs": known}}}))


def test_host_time_is_a_line_through_the_fewest_and_the_most_requests() -> None:
    base, each = host_time({1: observed(500e-6), 4: observed(9.0), 16: observed(2000e-6)})
    assert (base, each) == (pytest.approx(400), pytest.approx(100))


def test_acceptance_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_model, "SECONDS", 6.0)
    costs(tmp_path)
    runs = {1: observed(500e-6), 16: observed(2000e-6)}
    pair = {"hitRate": 0.6, "spread": 1.0, "second": 0.35}
    real = cell_figures(run_cell(described(1, pair, runs, ROWS, 6.0), tmp_path)).counters
    names = ("accepted_rows", "drafted_passes", "first_hits", "first_guesses")
    runs[1] = observed(500e-6, **{name: round(real[name]) for name in names})
    assert fitted(runs, ROWS, tmp_path)["second"] == pytest.approx(0.35, abs=0.08)
