"""Words and pictures of a simulation, without running one."""

import asyncio
import json
import math
import runpy
import sys
from pathlib import Path

import pytest

from outrider.cli.failures import Failure
from outrider.cli.lab import simulate
from outrider.cli.lab.simulate import lines
from outrider.cli.lab.simulation_plot import gain, plot, summed

POINT = {
    "second": 10.0, "arrived": 4, "answered": 2, "tokens": 100, "running": 2, "waiting": 0,
    "drafts": 1, "speculating": 1, "max_rows": 16, "gain_plain": 6.0, "gain_spent": 4.0,
}  # fmt: skip
START = {**dict.fromkeys(POINT, 0), "second": 0.0}


def test_figures_are_named_by_their_path() -> None:
    summary = {"gpus": {"targets": 4000}, "latency_seconds": None, "target_busy": 0.98765}
    assert lines(summary) == [
        ("gpus, targets", "4,000"),
        ("latency seconds", "-"),
        ("target busy", "0.9877"),
    ]


def test_cells_are_added_up_and_time_is_not() -> None:
    assert summed([POINT, POINT]) == {name: 2 * x for name, x in POINT.items()} | {"second": 10.0}


def test_gain_is_that_between_two_moments() -> None:
    assert gain(START, POINT) == pytest.approx(150)
    assert math.isnan(gain(POINT, POINT))


def test_a_picture_is_written(tmp_path: Path) -> None:
    plot({"cells": [{"series": [START, POINT]}] * 2}, tmp_path / "a" / "b.png")
    assert (tmp_path / "a" / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            'print(\'{"missing": "No module named numpy"}\')',
            f"No module named numpy; {simulate.MISSING}",
        ),
        ("raise SystemExit(3)", "the simulator ended with status 3"),
    ],
)
def test_only_what_cannot_be_imported_is_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setattr(simulate, "SIMULATOR", (sys.executable, "-c", script))
    with pytest.raises(Failure) as caught:
        asyncio.run(simulate.simulate(Path("x.yaml"), None))
    assert str(caught.value) == message


def test_the_simulator_names_the_module_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "outrider.worker.host.process", None)
    with pytest.raises(SystemExit):
        runpy.run_module("outrider.simulator", run_name="__main__")
    assert "outrider.worker.host.process" in json.loads(capsys.readouterr().out)["missing"]
