import dataclasses
from pathlib import Path

import pytest

from outrider.simulator.figures import document, summary
from outrider.simulator.fleet import run_cells
from tests.unit.simulator.simulations import DRAFT, TARGET, TRAFFIC, simulation

FLEET = (
    TARGET.replace("target:", "target:\n  replicas: 8\n  gpus: 4"),
    DRAFT.replace("draft:", "draft:\n  replicas: 4"),
    TRAFFIC.replace("rate: 4", "rate: 24"),
    "prices: {targetGpuHour: 2, draftGpuHour: 1}\n",
)


def test_a_sample_stands_for_the_fleet() -> None:
    whole = simulation(*FLEET, seconds=4.0)
    sample = simulation(*FLEET, "sample: {targets: 2, cells: 3}\n", seconds=4.0)
    shares: list[float] = []
    cells = run_cells(sample, Path(), shares.append, processes=1)
    found, all_of_it = (
        summary(sample, cells),
        summary(whole, run_cells(whole, Path(), lambda share: None)),
    )
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert found["simulated_targets"] == 6
    assert found["drafts_mean"] == pytest.approx(4.0)
    assert found["gpus"] == all_of_it["gpus"] == {"targets": 32, "drafts": 4}
    assert found["cost"]["price"] == pytest.approx((32 * 2 + 4) * 4 / 3600)
    assert found["tokens_per_second"] == pytest.approx(all_of_it["tokens_per_second"], rel=0.15)
    assert found["tokens_per_second_error"] > 0


def test_cells_come_out_the_same_in_processes_of_their_own() -> None:
    sample = simulation(*FLEET, "sample: {targets: 2, cells: 2}\n", seconds=2.0)
    here = run_cells(sample, Path(), lambda share: None, processes=1)
    apart = run_cells(sample, Path(), lambda share: None, processes=2)
    assert [dataclasses.replace(cell, wall_seconds=0.0) for cell in here] == [
        dataclasses.replace(cell, wall_seconds=0.0) for cell in apart
    ]
    assert len(document(sample, here)["cells"]) == 2
